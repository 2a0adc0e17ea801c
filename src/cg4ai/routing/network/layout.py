"""Where the nodes of a network lie in a picture, and on which side of each its name stands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cg4ai.plots import places_of
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.link_failures import Link, link_of, links_of

WIDTH, LEAST_HEIGHT, MOST_HEIGHT = 1000.0, 420.0, 900.0
MARGIN_X, MARGIN_Y, GAP = 90.0, 45.0, 14.0
# directions in which a name may stand, as (x, y, where the text is anchored)
SIDES = {
    90: (0.0, 1.9, "middle"),
    270: (0.0, -1.0, "middle"),
    0: (1.0, 0.4, "start"),
    180: (-1.0, 0.4, "end"),
    45: (0.8, 1.5, "start"),
    135: (-0.8, 1.5, "end"),
    225: (-0.8, -0.7, "end"),
    315: (0.8, -0.7, "start"),
}


@dataclass(frozen=True)
class NetworkPicture:
    """A picture of `size`: `places` of nodes, y downwards, and of `labels` (dx, dy, anchor).

    `unused`: links on no path, which are there all the same.
    """

    size: tuple[float, float]
    places: dict[str, tuple[float, float]]
    labels: dict[str, tuple[float, float, str]]
    unused: list[Link]

    @property
    def nodes(self) -> list[str]:
        return list(self.places)

    @property
    def numbers_by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.places)}


def draw_network(made: Instance) -> NetworkPicture:
    """The nodes at their own positions, north up; without any, laid out by springs."""
    unused = _unused(made)
    found = places_of([*made.arcs, *unused], made.positions)
    points = np.array(list(found.values())) * [1.0, -1.0]  # y downwards
    low, high = points.min(axis=0), points.max(axis=0)
    spans = np.maximum(high - low, 1e-9 * max(1.0, float(np.abs(points).max())))
    inner = WIDTH - 2 * MARGIN_X
    height = float(np.clip(inner * spans[1] / spans[0], LEAST_HEIGHT, MOST_HEIGHT))
    scale = np.array([inner, height - 2 * MARGIN_Y]) / spans
    placed = (points - low) * scale + [MARGIN_X, MARGIN_Y]
    places = {
        name: (round(float(x), 1), round(float(y), 1))
        for name, (x, y) in zip(found, placed, strict=True)
    }
    labels = _labels((*made.arcs, *unused), places)
    return NetworkPicture((WIDTH, round(height, 1)), places, labels, unused)


def _unused(made: Instance) -> list[Link]:
    """Links of the network on no path, where the run knows them and where they lie."""
    links = {link_of(*arc) for arc in made.all_arcs or ()} - set(links_of(made))
    if made.positions is None:
        return sorted(links)
    return sorted(link for link in links if made.positions.keys() >= set(link))


def _labels(
    arcs: Iterable[Link], places: dict[str, tuple[float, float]]
) -> dict[str, tuple[float, float, str]]:
    """Each name on the side of its node that is furthest from all links there."""
    ways: dict[str, list[float]] = {name: [] for name in places}
    for source, target in arcs:
        (x1, y1), (x2, y2) = places[source], places[target]
        angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
        ways[source].append(angle)
        ways[target].append(angle + 180)

    def measure_room(side: int, name: str) -> float:
        return min((abs((side - way + 180) % 360 - 180) for way in ways[name]), default=180.0)

    result = {}
    for name in places:
        side = max(SIDES, key=lambda one: min(60.0, measure_room(one, name)))
        dx, dy, place = SIDES[side]
        result[name] = (GAP * dx, GAP * dy, place)
    return result
