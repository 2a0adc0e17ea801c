"""Measured traffic as a routing instance: its demands and their set, and vectors to learn from."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cg4ai import clock
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.sets import DemandSet
from cg4ai.routing.demands.traffic import Pair, Traffic
from cg4ai.routing.demands.traffic_sets import HEADROOM, from_traffic
from cg4ai.routing.network.instance import (
    Instance,
    WantedPaths,
    build_with_paths,
    carry_robust,
    network_of,
    restrict_to_set,
)
from cg4ai.routing.network.network import Network
from cg4ai.routing.network.path_choice import PathChoice
from cg4ai.routing.network.path_search import PathLimits
from cg4ai.routing.options import CAPACITIES_AUTO as AUTO
from cg4ai.routing.options import factor_fault
from cg4ai.rules import Polytope

USUAL_LOAD = 0.99


@dataclass(frozen=True, eq=False)
class MeasuredTraffic:
    """Demand vectors of an instance: `earlier` (T, D) to learn from, `later` (L, D) to judge by.

    `times` are those of both: the first and the last earlier one, the first and the last later one.
    `silent`: how many earlier and later vectors of zeros were left out, as nothing is routed there.
    `elsewhere`: the share of the later traffic that belongs to no demand. `partial` (L,): whether
    the vector is not all of its matrix, though whole matrices were to be routed. `later_times` (L)
    are the times of the later vectors.
    """

    earlier: Array
    later: Array
    times: tuple[str, str, str, str]
    silent: tuple[int, int] = (0, 0)
    elsewhere: float = 0.0
    partial: NDArray[np.bool_] | None = None
    later_times: tuple[str, ...] = ()

    @classmethod
    def from_traffic(
        cls, instance: Instance, earlier: Traffic, later: Traffic, *, whole: bool = False
    ) -> MeasuredTraffic:
        """`whole`: the demands are meant to be all that is sent."""
        vectors = [part.to_vectors(instance) for part in (earlier, later)]
        kept = [part.any(axis=1) for part in vectors]
        if not all(rows.any() for rows in kept):
            raise InvalidInput(
                "the traffic of the demands is zero at all earlier or later times", code="empty"
            )
        times = (earlier.times[0], earlier.times[-1], later.times[0], later.times[-1])
        others = later.sum_others(instance.ends)
        return cls(
            vectors[0][kept[0]],
            vectors[1][kept[1]],
            times,
            (int((~kept[0]).sum()), int((~kept[1]).sum())),
            float(others.sum() / later.matrices.sum()),
            (others[kept[1]] > 0) & whole,
            tuple(str(later.times[row]) for row in np.flatnonzero(kept[1])),
        )

    def find_inside(self, instance: Instance) -> NDArray[np.bool_]:
        """(L,): which later matrices lie in the set; none of which a part is not routed."""
        found = instance.region.contains(self.later)
        return np.asarray(found if self.partial is None else found & ~self.partial)


def pick_evenly(length: int, count: int) -> IntArray:
    """At most `count` of the positions 0 to `length` - 1, evenly apart."""
    return np.unique(np.linspace(0, length - 1, min(length, count)).round().astype(np.int64))


def thin_vectors(vectors: Array, count: int) -> Array:
    """At most `count` of the vectors (T, D), evenly over time."""
    return np.asarray(vectors[pick_evenly(len(vectors), count)])


def measured_instance(
    network: str | Path | Network | Any,
    traffic: Traffic,
    demands: int | None = None,
    paths: int = 3,
    load: float | None = None,
    *,
    path_file: str | Path | None = None,
    cover: float = 1.0,
    headroom: float = HEADROOM,
    hose: bool = True,
    budget: bool = False,
    least: float = 0.0,
    scale_capacities: float | Literal["auto"] | None = None,
    path_choice: PathChoice = "shortest",
    max_hops: int | None = None,
    max_latency: float | None = None,
    disjoint_pairs: bool = False,
) -> Instance:
    """The demands of all pairs of nodes that send and receive, in the order of the traffic's file.

    With `demands` only the largest, by what was most. Their set is fitted to the traffic by
    `from_traffic`, in its units. Capacities are those of the network, and a set that no constant
    split routes is refused. With `scale_capacities` they are counted as that multiple of what they
    are, which `capacity_factor` keeps; "auto" is the multiple at which the worst case of the set,
    what the best constant split keeps, is `load` (0.99 if not given). Paths are chosen as by
    `instance`, generated ones for the traffic.
    """
    if load is not None and scale_capacities != AUTO:
        raise InvalidInput(
            f"load {load:g} scales nothing here: demands are in the units of the traffic, and "
            "capacities as given; leave load out, or ask for scale_capacities auto",
            code="conflict",
        )
    graph = network_of(network)
    traffic.check_nodes(graph.nodes, graph.name)
    index = {name: position for position, name in enumerate(graph.nodes)}
    pairs = _pairs(traffic, demands)
    seen = traffic.get_volumes(pairs)
    with clock.review().stage(f"the set of demands from {len(seen):,} matrices"):
        region = from_traffic(
            seen, pairs, cover=cover, headroom=headroom, hose=hose, budget=budget, least=least
        )
    upper = region.bounds()[1]
    volumes = {
        (index[source], index[target]): float(volume)
        for (source, target), volume in zip(pairs, upper, strict=True)
    }
    wanted = WantedPaths(
        paths,
        path_choice,
        PathLimits(max_hops, max_latency),
        disjoint_pairs,
        None if path_file is None else Path(path_file),
    )
    plain, path_notes = build_with_paths(graph, volumes, region, wanted, earlier=seen)
    from cg4ai.routing.train.anchors import MOST_USES, find_users

    if isinstance(region, Polytope) and (uses := int(find_users(plain).sum())) > MOST_USES:
        region = region.box
        path_notes = (
            *path_notes,
            "limits on what nodes send and receive are left out, and more is guaranteed than need "
            f"be: {uses:,} pairs of a demand and a link are too many for them (up to "
            f"{MOST_USES:,})",
        )
    if scale_capacities == AUTO:
        made = _with_load(plain, region, USUAL_LOAD if load is None else load)
    else:
        factor = 1.0 if scale_capacities is None else check_factor(scale_capacities)
        plain = _count_capacities(plain, factor)
        made = restrict_to_set(
            plain, region, load=None, remedies=lambda level: _remedies(level * factor)
        )
    left_out = (*_left_out(traffic, pairs), *path_notes)
    noted = replace(made, notes=(*graph.notes, *traffic.notes, *left_out))
    carry_robust(noted, made, 1.0)
    return noted


def _with_load(plain: Instance, region: DemandSet, load: float) -> Instance:
    """Capacities counted as the multiple at which the worst case of the set is `load`."""
    scaled = restrict_to_set(plain, region, load=load)
    if scaled.scale == 1.0:  # they fit as they are
        return restrict_to_set(plain, region, load=None)
    counted = _count_capacities(plain, 1 / scaled.scale)
    made = replace(
        counted,
        demand_max=scaled.demand_max / scaled.scale,
        demand_set=region,
        load=scaled.load,
    )
    carry_robust(made, scaled, 1.0)
    return made


def _count_capacities(plain: Instance, factor: float) -> Instance:
    """With every capacity counted as that multiple of what it is."""
    source = plain.path_source
    return replace(
        plain,
        capacity=factor * plain.capacity,
        capacity_factor=factor,
        path_source=None if source is None else source.scale(factor),
    )


def check_factor(factor: Any) -> float:
    """The multiple that capacities are counted as, or an error."""
    if fault := factor_fault(factor):
        raise InvalidInput(fault)
    return float(factor)


def _remedies(needed: float) -> str:
    """What to do about a set for which capacities would have to be `needed` times as large."""
    digits = 3 - math.floor(math.log10(needed))
    least = math.ceil(needed * 10.0**digits) / 10.0**digits
    return (
        "Give capacities and traffic in one unit; make the set smaller (headroom, cover, fewer "
        "demands); allow more paths; or count all capacities as a multiple of what they are, with "
        f"scale_capacities {least:g} or auto (--scale-capacities), which every result then states"
    )


def _pairs(traffic: Traffic, demands: int | None) -> list[Pair]:
    """Pairs of nodes in the order of the file, of which `demands` with most traffic at one time."""
    largest = traffic.largest
    sends, receives = largest.max(axis=1) > 0, largest.max(axis=0) > 0
    count = len(traffic.nodes)
    found = [(s, t) for s in range(count) for t in range(count) if s != t]
    found = [(s, t) for s, t in found if sends[s] and receives[t]]
    if not found:
        raise InvalidInput(
            "the traffic is zero at all times; there is nothing to route", code="empty"
        )
    if demands is not None:
        if demands > len(found):
            raise InvalidInput(
                f"{demands} demands were asked for, but the traffic has {len(found)} pairs of "
                "nodes that send and receive; ask for fewer",
                code="range",
            )
        kept = {*sorted(found, key=lambda pair: (-largest[pair], pair))[:demands]}
        found = [pair for pair in found if pair in kept]
    return [(traffic.nodes[source], traffic.nodes[target]) for source, target in found]


def _left_out(traffic: Traffic, pairs: list[Pair]) -> Iterator[str]:
    """What the instance leaves out of the traffic."""
    whole, routed = float(traffic.matrices.sum()), float(traffic.get_volumes(pairs).sum())
    if routed < whole * (1 - 1e-12):
        which = (
            f"the {len(pairs)} largest demands are" if len(pairs) > 1 else "the largest demand is"
        )
        yield f"only {which} routed, {routed / whole:.1%} of the traffic"
