"""Networks as pictures: links in colour and width by their utilisation, and the fullest of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.plots.distributions import plot_ranges
from cg4ai.plots.drawing import (
    BAD,
    FIRST,
    INK,
    LOAD_COLOURS,
    LOADS,
    OVERLOADED,
    PAPER,
    QUIET,
    SECOND,
    SERIES,
    axis_of,
    legend_above,
    pick_evenly,
    set_log_scale,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Positions = Mapping[str, tuple[float, float]]
Box = tuple[float, float, float, float]
KEPT = 1 + 1e-6  # the highest utilisation that still counts as kept
MOST_NAMES = 30  # of nodes: more would hide the links
MANY_NODES = 40  # from which on links and nodes are drawn finer
SHOWN = 12  # of the fullest links
DECADES = 3.0  # times the capacity from which overloads are drawn on a logarithmic scale
MOST_TIMES = 400  # points of a line over time
THIN, THICK = 1.0, 6.0
# points: how far names are from nodes, sizes of nodes, letters and lines with some room
NAME_AWAY, NODE, LETTER, LINE_HEIGHT = 7.0, 6.0, 5.2, 12.0
SIDES = [math.radians(degrees) for degrees in (0, 180, 90, 270, 45, 135, 225, 315)]


class LinkedNetwork(Protocol):
    """What is drawn of a routing instance: its arcs, and where their nodes are if that is known."""

    @property
    def arcs(self) -> list[tuple[str, str]]: ...

    @property
    def positions(self) -> Positions | None: ...


def plot_network(
    instance: LinkedNetwork,
    utilisation: ArrayLike | None = None,
    *,
    names: bool | None = None,
    capacity: str = "capacity",
    ax: Axes | None = None,
) -> Axes:
    """A network's links, in both directions side by side, wider the fuller they are, and coloured.

    `utilisation` (A,) of each arc, such as a row of `instance.compute_utilisation(demands,
    splits)`; above
    one they are dashed. Nodes lie at their positions, or where a layout of fixed seed puts
    them. `names`: whether nodes are named; by default those of small networks. `capacity`: what
    utilisations are shares of.
    """
    arcs = [(str(source), str(target)) for source, target in instance.arcs]
    loads = np.zeros(len(arcs)) if utilisation is None else np.asarray(utilisation, np.float64)
    if loads.shape != (len(arcs),):
        raise InvalidInput(
            f"utilisation has shape {loads.shape}, expected ({len(arcs)},)", code="shape"
        )
    ax = axis_of(ax)
    places = places_of(arcs, instance.positions)
    size = max(float(np.ptp(np.array(list(places.values())), axis=0).max()), 1e-9)
    both = set(arcs)
    fine = min(1.0, math.sqrt(MANY_NODES / len(places)))
    for number in np.argsort(loads, kind="stable"):  # the fullest on top
        source, target = arcs[number]
        ends = _line(places[source], places[target], fine * size, aside=(target, source) in both)
        style = link_style(float(loads[number]))
        ax.plot(*ends, **{**style, "linewidth": fine * style["linewidth"]}, zorder=2)
    x, y = zip(*places.values(), strict=True)
    ax.scatter(x, y, 22 * fine**2, color=PAPER, edgecolors=INK, linewidths=1.1 * fine, zorder=4)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.margins(0.08)
    if len(places) <= MOST_NAMES if names is None else names:
        _write_names(ax, places, arcs)
    if utilisation is not None:
        _legend(ax, _share_of(capacity), above=bool((loads > KEPT).any()))
    return ax


def link_style(load: float) -> dict[str, Any]:
    """Width, colour and dashes of a link by its utilisation."""
    if load > KEPT:
        return {"color": OVERLOADED, "linewidth": THICK + 1, "linestyle": (0, (1.2, 0.6))}
    colour = LOAD_COLOURS[min(int(np.searchsorted(LOADS, load)), len(LOADS) - 1)]
    width = THIN + (THICK - THIN) * min(max(load, 0.0), 1.0)
    return {"color": colour, "linewidth": width, "solid_capstyle": "butt"}


def places_of(
    arcs: Sequence[tuple[str, str]], positions: Positions | None
) -> dict[str, tuple[float, float]]:
    """Where each node of the arcs is drawn, y upwards.

    Degrees are put such that a kilometre is as long both ways.
    """
    nodes = list(dict.fromkeys(node for arc in arcs for node in arc))
    if positions is None:
        networkx = import_optional("networkx")
        graph = networkx.Graph()
        graph.add_nodes_from(nodes)
        graph.add_edges_from(arcs)
        found = networkx.spring_layout(graph, seed=0, iterations=200)
        flat = np.array([found[node] for node in nodes])
        # turned such that the longest way through the network lies across the picture
        flat = (flat - flat.mean(axis=0)) @ np.linalg.svd(flat - flat.mean(axis=0))[2].T
        return dict(zip(nodes, map(tuple, flat.tolist()), strict=True))
    x, y = (np.array([positions[node][axis] for node in nodes]) for axis in (0, 1))
    if np.abs(x).max() <= 180 and np.abs(y).max() <= 90:
        x = x * math.cos(math.radians(float(y.mean())))
    return dict(zip(nodes, zip(x.tolist(), y.tolist(), strict=True), strict=True))


def _line(a: Any, b: Any, size: float, *, aside: bool) -> tuple[list[float], list[float]]:
    """From a to b; where there is a way back, to the right of the middle between the two."""
    (ax, ay), (bx, by) = a, b
    length = math.hypot(bx - ax, by - ay) or 1.0
    shift = 0.011 * size if aside else 0.0
    dx, dy = shift * (by - ay) / length, -shift * (bx - ax) / length
    return [ax + dx, bx + dx], [ay + dy, by + dy]


def _write_names(ax: Axes, places: Mapping[str, Any], arcs: Sequence[tuple[str, str]]) -> None:
    """Each name on the side of its node where the fewest links are and no other name is.

    Nodes of many links come first; what finds no room is left out.
    """
    ax.apply_aspect()
    figure: Any = ax.figure
    drawn = ax.transData.transform(list(places.values())) * 72 / figure.dpi
    points = dict(zip(places, drawn.tolist(), strict=True))
    linked = {node: [b if a == node else a for a, b in arcs if node in (a, b)] for node in places}
    taken = [_box(x, y, NODE, NODE, 0.0, 0.0) for x, y in points.values()]
    for node in sorted(places, key=lambda one: -len(linked[one])):
        x, y = places[node]
        ways = [math.atan2(places[one][1] - y, places[one][0] - x) for one in linked[node]]
        away = [max((math.cos(way - angle) for way in ways), default=0.0) for angle in SIDES]
        for side in np.argsort(away, kind="stable"):
            across, up = math.cos(SIDES[side]), math.sin(SIDES[side])
            right = 0 if abs(across) < 0.4 else 1 if across > 0 else -1
            above = 0 if abs(up) < 0.4 else 1 if up > 0 else -1
            at_x, at_y = points[node][0] + NAME_AWAY * across, points[node][1] + NAME_AWAY * up
            box = _box(at_x, at_y, LETTER * len(node), LINE_HEIGHT, right, above)
            if any(_meet(box, other) for other in taken):
                continue
            taken.append(box)
            ax.annotate(
                node,
                (x, y),
                xytext=(NAME_AWAY * across, NAME_AWAY * up),
                textcoords="offset points",
                ha=("center", "left", "right")[right],
                va=("center", "bottom", "top")[above],
                fontsize="small",
                parse_math=False,
                bbox={"facecolor": PAPER, "alpha": 0.75, "edgecolor": "none", "pad": 0.6},
                zorder=3,
            )
            break


def _box(x: float, y: float, width: float, height: float, right: float, above: float) -> Box:
    """Left, bottom, right and top of a box around a point, or on a side of it."""
    left, low = x + (right - 1) * width / 2, y + (above - 1) * height / 2
    return left, low, left + width, low + height


def _meet(one: Box, other: Box) -> bool:
    return (one[0] < other[2] and other[0] < one[2]) and (one[1] < other[3] and other[1] < one[3])


def _share_of(capacity: str) -> str:
    return f"share of {'the ' if capacity == 'capacity' else ''}{capacity}"


def _legend(ax: Axes, title: str, *, above: bool) -> None:
    named = [
        (f"to {high:.0%}", link_style((low + high) / 2)) for low, high in pairwise((0.0, *LOADS))
    ]
    named += [("above", link_style(2.0))] if above else []
    handles = [ax.plot([], [], label=name, **style)[0] for name, style in named]
    ax.legend(
        handles=handles,
        title=title,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=len(named),
        handlelength=1.6,
        columnspacing=1.0,
    )


def plot_utilisation(
    loads: ArrayLike,
    links: Sequence[str],
    *,
    worst: ArrayLike | None = None,
    shown: int = SHOWN,
    capacity: str = "capacity",
    ax: Axes | None = None,
) -> Axes:
    """The fullest links: what they carry at demand vectors, and the worst that was found of each.

    `loads` (n, A): utilisations at n vectors. `links`: names of the A links. `worst` (A,): the
    highest found by a search. `capacity`: what loads are shares of. See `plot_ranges` for what bars
    and marks are.
    """
    values = np.atleast_2d(np.asarray(loads, np.float64))
    most = values.max(axis=0) if worst is None else np.asarray(worst, np.float64)
    if values.shape[1:] != (len(links),) or most.shape != (len(links),):
        raise InvalidInput(
            f"loads are of {values.shape[1]} links and the worst of {most.size}, but {len(links)} "
            "are named",
            code="shape",
        )
    chosen = np.argsort(-most, kind="stable")[:shown]
    return plot_ranges(
        values[:, chosen],
        [links[number] for number in chosen],
        label=_share_of(capacity),
        vectors="vectors",
        worst=None if worst is None else most[chosen],
        limit=1.0,
        limit_name=capacity,
        ax=ax,
    )


def plot_found(
    iterations: ArrayLike,
    utilisation: ArrayLike,
    *,
    training: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Overloads by the iteration in which they were found, each a mark at its utilisation.

    `training` (n,): which are those of networks in training, in place of the mixture.
    """
    when, loads = np.asarray(iterations), np.asarray(utilisation, np.float64)
    early = np.zeros(len(when), bool) if training is None else np.asarray(training, bool)
    ax = axis_of(ax)
    for own, name, colour, mark, aside in (
        (~early, "of the mixture", FIRST, "o", -0.12),
        (early, "of networks in training", SECOND, "x", 0.12),
    ):
        few = np.flatnonzero(own)[pick_evenly(loads[own])]
        if len(few):
            ax.plot(when[few] + aside, loads[few], mark, color=colour, markersize=4, label=name)
    ax.axhline(1.0, color=BAD, linestyle="--", linewidth=1.4, label="capacity")
    whole_numbers(ax.xaxis)
    if len(when):
        ax.set_xlim(when.min() - 0.5, when.max() + 0.5)
    most = float(loads.max(initial=1.0))
    if most > DECADES:  # a single far one would press all others against the capacity
        set_log_scale(ax)
        ax.set_ylim(0.9, 1.15 * most)
    else:
        ax.set_ylim(1 - 0.08 * max(most - 1, 0.01), 1 + 1.08 * max(most - 1, 0.01))
    ax.set(xlabel="iteration", ylabel="share of the capacity")
    legend_above(ax)
    return ax


def plot_over_time(
    series: Mapping[str, ArrayLike],
    times: Sequence[str] = (),
    *,
    label: str = "MLU",
    outside: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Named quantities over time, one line each.

    `times` (T,) name the first, the middle and the last time below the axis. Of more than
    MOST_TIMES times the largest of neighbouring ones is drawn, so that no peak is lost.
    `outside` (T,): at which times the guarantee does not hold; they are marked at the bottom.
    """
    named = {name: np.asarray(values, np.float64) for name, values in series.items()}
    lengths = {name: len(values) for name, values in named.items()}
    if not named or len(set(lengths.values())) != 1 or not min(lengths.values()):
        raise InvalidInput(f"series of one length are needed, got {lengths}", code="shape")
    (count,) = set(lengths.values())
    if times and len(times) != count:
        raise InvalidInput(f"{count} values, but {len(times)} times", code="shape")
    ax = axis_of(ax)
    joined = -(-count // MOST_TIMES)
    starts = np.arange(0, count, joined)
    for number, (name, values) in enumerate(named.items()):
        style: Any = (1.5, "-") if number == 0 else (1.3, (0, (4, 1.5)) if number == 1 else ":")
        largest = np.maximum.reduceat(values, starts)
        ax.plot(starts, largest, color=SERIES[number % 4], label=name, lw=style[0], ls=style[1])
    ax.set_ylim(0, 1.06 * max(float(values.max()) for values in named.values()) or 1.0)
    if outside is not None and (marked := np.flatnonzero(outside)).size:
        ax.plot(
            marked,
            np.zeros(len(marked)),
            "|",
            color=QUIET,
            label="outside the set",
            transform=ax.get_xaxis_transform(),
            clip_on=False,
        )
    _label_times(ax, times, count)
    if joined > 1:
        ax.set_xlabel(f"{ax.get_xlabel()}; each point is the largest of {joined}".lstrip("; "))
    ax.set_ylabel(label)
    legend_above(ax)
    return ax


def _label_times(ax: Axes, times: Sequence[str], count: int) -> None:
    """A few times below the axis; without their names, numbers of matrices."""
    whole_numbers(ax.xaxis)
    if not times:
        ax.set_xlabel("number of the matrix")
        return
    places = sorted({0, (count - 1) // 2, count - 1})
    ax.set_xticks(places, [times[place] for place in places], parse_math=False)
    first, *_, last = ax.get_xticklabels() * 2  # which may be one
    if len(places) > 1:
        first.set_horizontalalignment("left")
        last.set_horizontalalignment("right")
