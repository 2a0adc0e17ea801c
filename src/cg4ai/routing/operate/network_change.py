"""A changed network under a trained router: paths that still exist are kept, others are found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.sets import DemandSet, scale_set
from cg4ai.routing.network.instance import (
    Instance,
    PathSource,
    build_instance,
    carry_robust,
    network_of,
)
from cg4ai.routing.network.network import Network, show_value
from cg4ai.routing.network.path_files import Nodes
from cg4ai.routing.network.readers import read_demands
from cg4ai.routing.operate.inheriting import NEW, InstanceMapping
from cg4ai.routing.operate.link_failures import link_of
from cg4ai.routing.operate.widening import ROUNDING, count_capacities
from cg4ai.routing.options import ALL, CAPACITIES_AUTO
from cg4ai.routing.prove.unroutable import make_refusal
from cg4ai.routing.settings import PAPER_LOAD, RouteSettings
from cg4ai.rules import Box, Polytope

NAMED = 5  # links, demands or nodes that one line names
Pair = tuple[int, int]
MakeInstance = Callable[[RouteSettings, Network], Instance]


@dataclass(frozen=True, eq=False)
class ChangedInstance:
    """The instance of the changed network; `changes` say in words what is other than before."""

    instance: Instance
    changes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Demands:
    """The demands of the changed network: the most of each pair, their set, and settings by which
    an instance of them is made to find paths."""

    volumes: dict[Pair, float]
    region: DemandSet
    fresh: Instance
    notes: tuple[str, ...]


def change_network(
    old: Instance,
    asked: RouteSettings,
    file: str,
    make: MakeInstance,
    *,
    keeps_set: bool,
    shrink: bool,
) -> ChangedInstance | None:
    """The run's instance on the network in a file; None where nothing that it uses has changed.

    `make` gives the instance that the settings of a run make of a network. With `keeps_set` the
    demands and their set are those of the run, as of one that learned from traffic; else those of
    the file, times the scale of the run. A set that the network cannot carry is refused, or with
    `shrink` made smaller.
    """
    graph = network_of(file)
    listed = graph.volumes
    if asked.demand_file is not None and not keeps_set:
        listed = read_demands(asked.demand_file, graph)
    keeps_set = keeps_set or not listed
    demands = (_kept_demands if keeps_set else _listed_demands)(old, asked, graph, make)
    names = [_name(graph, pair) for pair in demands.volumes]
    if not set(names) & set(old.demand_names):
        raise InvalidInput(
            f"{graph.name} has none of the demands of the run ({_list(old.demand_names)}): nodes "
            "must be called as before; train a router of this network with cg4ai route",
            code="unknown-name",
        )
    made = _arrange(old, demands, graph, all_paths=False)
    notes = list(demands.notes)
    if made.level > 1 + ROUNDING:  # what is left of the old paths may not be enough
        made = _arrange(old, demands, graph, all_paths=True)
    if made.level > 1 + ROUNDING:
        if asked.scale_capacities == CAPACITIES_AUTO:
            made, note = count_capacities(made, asked.load)
        else:
            made, note = _shrink(made, shrink=shrink)
        notes.append(note)
    if _is_same(old, made):
        return None
    noted = replace(made, notes=(*graph.notes, *_scaled(made), *notes))
    carry_robust(noted, made, 1.0)
    return ChangedInstance(noted, tuple(_list_changes(old, made, graph)))


def _name(graph: Network, pair: Pair) -> str:
    return f"{graph.nodes[pair[0]]}->{graph.nodes[pair[1]]}"


# ---- demands and their set -----------------------------------------------------------------------


def _kept_demands(
    old: Instance, asked: RouteSettings, graph: Network, make: MakeInstance
) -> _Demands:
    """The demands of the run whose ends the network still has, in what is left of their set."""
    index = {name: position for position, name in enumerate(graph.nodes)}
    kept = [number for number, pair in enumerate(old.ends) if all(node in index for node in pair)]
    pairs = [tuple(index[node] for node in old.ends[number]) for number in kept]
    volumes: dict[Pair, float] = {
        (pair[0], pair[1]): float(old.demand_max[number])
        for pair, number in zip(pairs, kept, strict=True)
    }
    if not kept:
        return _Demands({}, Box(np.zeros(1), np.ones(1)), old, ())
    usual = RouteSettings(network=asked.network)
    plain = replace(
        asked,
        **{name: usual.as_dict()[name] for name in ("traffic", "split", "cover", "headroom")},
        **{name: usual.as_dict()[name] for name in ("no_hose", "scale_capacities")},
        demands=ALL,
        demand_file=None,
        min_demand=0.0,
        hose=None,
        budget=None,
        load=PAPER_LOAD,
    )
    fresh = make(plain, replace(graph, volumes=volumes))
    return _Demands(volumes, project_set(old.region, np.array(kept)), fresh, ())


def project_set(region: DemandSet, kept: IntArray) -> DemandSet:
    """The vectors of the demands `kept` (k,) when the others are at their smallest."""
    if isinstance(region, Box):
        return Box(region.lower[kept], region.upper[kept])
    gone = np.setdiff1d(np.arange(region.size), kept)
    matrix = np.asarray(region.matrix)
    limit = region.limit - matrix[:, gone] @ region.box.lower[gone]
    box, left = Box(region.box.lower[kept], region.box.upper[kept]), matrix[:, kept]
    rows = left.any(axis=1)
    return Polytope(box, left[rows], limit[rows]) if rows.any() else box


def _listed_demands(
    old: Instance, asked: RouteSettings, graph: Network, make: MakeInstance
) -> _Demands:
    """The demands that the settings of the run take from the file, times the scale of the run."""
    listed = graph.volumes
    if asked.demand_file is not None:
        listed = read_demands(asked.demand_file, graph)
    count = asked.demands
    if count:
        count = min(count, len(listed))
    load = PAPER_LOAD if asked.load is None else asked.load
    plain = replace(asked, demands=count, load=load)
    fresh = make(plain, graph)
    index = {name: position for position, name in enumerate(graph.nodes)}
    pairs: list[Pair] = [(index[source], index[target]) for source, target in fresh.ends]
    largest = fresh.demand_max / fresh.scale
    region = scale_set(fresh.region, old.scale / fresh.scale)
    notes: tuple[str, ...] = ()
    if len(pairs) < len(listed):
        share = float(largest.sum()) / sum(listed.values())
        notes = (f"of {len(listed)} demands {len(pairs)} are routed, {share:.0%} of the volume",)
    volumes = dict(zip(pairs, (old.scale * largest).tolist(), strict=True))
    return _Demands(volumes, region, fresh, notes)


# ---- paths ---------------------------------------------------------------------------------------


def _arrange(old: Instance, demands: _Demands, graph: Network, *, all_paths: bool) -> Instance:
    """The instance over the paths that are left and those found anew."""
    paths = merge_paths(old, demands.fresh, graph, all_paths=all_paths)
    factor = 1.0 if old.capacity_factor is None else old.capacity_factor
    plain = build_instance(graph, demands.volumes, 1, paths)
    region = demands.region
    box = region if isinstance(region, Box) else region.box
    made = replace(
        plain,
        capacity=plain.capacity * factor,
        capacity_factor=old.capacity_factor,
        path_source=_describe_source(plain, demands.fresh, factor),
        demand_max=np.asarray(box.upper),
        demand_set=None if isinstance(region, Box) and not box.lower.any() else region,
        scale=old.scale,
        load=old.load,
    )
    if old.load is None:
        return made
    known = replace(made, load=made.level)
    carry_robust(known, made, 1.0)
    return known


def _describe_source(plain: Instance, fresh: Instance, factor: float) -> PathSource | None:
    """How paths are chosen, as an instance of the run's settings states it."""
    if plain.path_source is None or fresh.path_source is None:
        return plain.path_source
    stated = fresh.path_source
    return replace(plain.path_source.scale(factor), choice=stated.choice, limits=stated.limits)


def merge_paths(
    old: Instance, fresh: Instance, graph: Network, *, all_paths: bool = False
) -> dict[Pair, list[Nodes]]:
    """By (source, target): the old paths that still exist, then fresh ones where they are needed.

    A new demand gets its fresh paths, one that lost some as many as it lost, and all get those
    that use an added link. With `all_paths` every demand gets all fresh paths beside its old ones.
    """
    index = {name: position for position, name in enumerate(graph.nodes)}
    before = set(old.all_arcs or old.arcs)
    added = {arc for arc in graph.arcs if (graph.nodes[arc[0]], graph.nodes[arc[1]]) not in before}
    by_demand = {
        name: [old.paths[path] for path in block]
        for name, block in zip(old.demand_names, old.blocks, strict=True)
    }
    merged: dict[Pair, list[Nodes]] = {}
    for name, block in zip(fresh.demand_names, fresh.blocks, strict=True):
        found = [_positions(fresh.paths[path], index) for path in block]
        known = by_demand.get(name, [])
        left = [
            nodes
            for nodes in (_positions(path, index) for path in known)
            if nodes and all(hop in graph.arcs for hop in _hops(nodes))
        ]
        more = [nodes for nodes in found if nodes not in left]
        if known and not all_paths:
            over_added = [nodes for nodes in more if added.intersection(_hops(nodes))]
            others = [nodes for nodes in more if nodes not in over_added]
            more = over_added + others[: max(0, len(known) - len(left) - len(over_added))]
        source, target = found[0][0], found[0][-1]
        merged[source, target] = left + more
    return merged


def _positions(path: Sequence[str], index: Mapping[str, int]) -> Nodes:
    """Nodes by position; none where the network lacks one of them."""
    known = all(name in index for name in path)
    return tuple(index[name] for name in path) if known else ()


def _hops(nodes: Nodes) -> list[Pair]:
    return list(pairwise(nodes))


# ---- a set that does not fit ---------------------------------------------------------------------


def _shrink(made: Instance, *, shrink: bool) -> tuple[Instance, str]:
    """The instance with a set that its best constant split carries, and what to say of it."""
    factor = PAPER_LOAD / made.level
    if not shrink:
        advice = (
            f"With --shrink the set is made smaller, to {factor:.4g} times all demands; or raise "
            "capacities, or train with more --paths"
        )
        raise make_refusal(made, made.level, lambda level: advice)
    region = scale_set(made.region, factor)
    smaller = replace(
        made,
        demand_max=factor * made.demand_max,
        demand_set=None if made.demand_set is None else region,
        scale=factor * made.scale,
        load=None if made.load is None else PAPER_LOAD,
    )
    carry_robust(smaller, made, factor)
    return smaller, (
        f"THE SET IS SMALLER: the network cannot carry the one of before, so that all demands are "
        f"at most {factor:.4g} times what they were"
    )


def _scaled(made: Instance) -> list[str]:
    """How the demands of the run relate to volumes, where they are multiplied."""
    if made.load is None or abs(made.scale - 1) <= ROUNDING:
        return []
    return [
        f"all demands are multiplied by {made.scale:.4g}: at worst, the least possible maximum "
        f"link utilisation of a constant split is {made.load:.4g}"
    ]


# ---- what has changed ----------------------------------------------------------------------------


def _is_same(old: Instance, made: Instance) -> bool:
    """Whether nothing that a router reads or uses differs."""
    mapping = InstanceMapping.between(old, made)
    for positions, count in (
        (mapping.demands, len(old.demand_names)),
        (mapping.paths, len(old.paths)),
        (mapping.arcs, len(old.arcs)),
    ):
        if len(positions) != count or (positions == NEW).any():
            return False
    pairs: list[tuple[Array, Array]] = [(old.capacity[mapping.arcs], made.capacity)]
    for before, now in zip(old.region.bounds(), made.region.bounds(), strict=True):
        pairs.append((before[mapping.demands], now))
    return all(np.allclose(one, other, rtol=1e-9, atol=0.0) for one, other in pairs)


def _list_changes(old: Instance, made: Instance, graph: Network) -> list[str]:
    """Links, demands and paths that are new, gone or other."""
    mapping = InstanceMapping.between(old, made)
    before, after = set(old.all_arcs or old.arcs), set(made.all_arcs or made.arcs)
    said = [
        _count("link", _links(after - before), "added"),
        _count("link", _links(before - after), "removed"),
        _count("link", _links(_recounted(old, made, mapping)), "of another capacity"),
        _count("demand", _missing(made.demand_names, old.demand_names), "added"),
        _count("demand", _missing(old.demand_names, made.demand_names), "dropped"),
        _count("demand", _rescaled(old, made, mapping), "of another largest volume"),
    ]
    kept = int((mapping.paths != NEW).sum())
    new, gone = len(made.paths) - kept, len(old.paths) - kept
    paths = f"{kept} of {len(old.paths)} paths are kept, {gone} dropped, {new} new"
    return [*filter(None, said), paths]


def _recounted(old: Instance, made: Instance, mapping: InstanceMapping) -> list[tuple[str, str]]:
    known = np.flatnonzero(mapping.arcs != NEW)
    other = ~np.isclose(
        made.capacity[known], old.capacity[mapping.arcs[known]], rtol=1e-9, atol=0.0
    )
    return [made.arcs[arc] for arc in known[other]]


def _rescaled(old: Instance, made: Instance, mapping: InstanceMapping) -> list[str]:
    known = np.flatnonzero(mapping.demands != NEW)
    before = old.demand_max[mapping.demands[known]]
    other = ~np.isclose(made.demand_max[known], before, rtol=1e-9, atol=0.0)
    return [made.demand_names[demand] for demand in known[other]]


def _missing(names: Collection[str], others: Collection[str]) -> list[str]:
    return [name for name in names if name not in others]


def _links(arcs: Collection[tuple[str, str]]) -> list[str]:
    """Both directions of a link as one."""
    return sorted("-".join(link) for link in {link_of(*arc) for arc in arcs})


def _count(what: str, names: Sequence[str], how: str) -> str:
    if not names:
        return ""
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} {how} ({_list(names)})"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return show_value(", ".join(names[:NAMED]), quoted=False) + more
