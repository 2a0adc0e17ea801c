"""Routing instances: a network's largest demands, paths for each and the box of demands.

`instance` is where routing starts. It takes a network by name, from a file or as a graph, and
gives the arrays that everything else works on. A demand vector b lies in a set, usually the box
[0, demand_max]; a split gives each path its share of its demand, and shares of a demand sum to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cg4ai import clock
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.sets import (
    DemandSet,
    demand_box,
    limit_demands,
    sample_demands,
    scale_set,
)
from cg4ai.routing.network.graphs import from_graph, read_graphml, read_json
from cg4ai.routing.network.network import Network, Position
from cg4ai.routing.network.path_choice import ChosenPaths, PathChoice, choose_paths
from cg4ai.routing.network.path_files import Nodes, read_paths
from cg4ai.routing.network.path_search import Graph, PathLimits
from cg4ai.routing.network.readers import read_demands, read_links, read_native, read_xml
from cg4ai.routing.network.repetita import read_repetita
from cg4ai.routing.network.simple_paths import SimplePaths
from cg4ai.routing.network.sndlib import load_by_name
from cg4ai.routing.train import optimal as linear_programs
from cg4ai.rules import Box

if TYPE_CHECKING:
    from cg4ai.routing.train.anchors import RobustSplit
    from cg4ai.routing.train.optimal import OptimalRouting

READERS = {
    ".txt": read_native,
    ".xml": read_xml,
    ".graphml": read_graphml,
    ".json": read_json,
    ".csv": read_links,
    ".graph": read_repetita,
}

CONFIGURATIONS: tuple[tuple[str, int, int], ...] = tuple(
    (network, int(size.split("/")[0]), int(size.split("/")[1]))
    for network, sizes in {
        "abilene": "5/3 10/3 15/3 5/5",
        "atlanta": "5/3 10/3 15/3 5/5",
        "dfn-bwin": "5/3 10/3 15/3",
        "di-yuan": "5/3 10/3 15/3 5/5",
        "france": "10/3 15/3 5/5",
        "geant": "5/3 10/3 15/3 5/5",
        "newyork": "5/3 10/3 15/3 5/5",
        "nobel-eu": "5/3 10/3 15/3",
        "nobel-germany": "5/3 15/3 5/5",
        "nobel-us": "5/3 10/3 15/3 5/5",
        "polska": "5/3",
        "ta1": "5/3 10/3 15/3 5/5",
    }.items()
    for size in sizes.split()
)

USUAL_DEMANDS = 5
FAR_APART = 1e6  # further apart, the solver's tolerances are larger than the loads


@dataclass(frozen=True, eq=False)
class PathSource:
    """How the paths were chosen: "given" by a file or a `PathChoice`, and out of which links.

    `capacity`, `length`, and `delay` where known, are those of `Instance.all_arcs`.
    """

    choice: str
    capacity: Array
    length: Array
    delay: Array | None = None
    limits: PathLimits = field(default_factory=PathLimits)

    def scale(self, factor: float) -> PathSource:
        """With that multiple of the capacities."""
        return replace(self, capacity=factor * self.capacity)

    def take(self, arcs: IntArray) -> PathSource:
        """For some of the arcs."""
        delay = None if self.delay is None else self.delay[arcs]
        return replace(self, capacity=self.capacity[arcs], length=self.length[arcs], delay=delay)


@dataclass(frozen=True, eq=False)
class Instance:
    """D demands with P paths over the A arcs that some path uses.

    `capacity` (A,), `incidence` (P, A) of 0 and 1, `path_demand` (P,) ascending, `demand_max`
    (D,) the largest demands, `path_length` (P,), `scale`: demand_max / volumes of the network.
    `load` is the worst MLU over the set of demands that was asked for; None: volumes as given.
    `capacity_factor`: `capacity` over the network's own; None: another than 1, and not known.
    `demand_set` is that set, in the box [0, demand_max]; None: all of it.
    `notes` say in words what was left out, rescaled or assumed. `positions` of the nodes on paths,
    (longitude, latitude) or of a drawing, are for pictures; None: not all are known. `all_arcs`
    are those of the network, on a path or not, and `path_source` says how paths were chosen among
    them; None: not known. `granularity`: of answers, whose shares are multiples of 1/N; None: any.
    `priorities` of the demands, 1 is kept first; None: all alike.
    """

    name: str
    arcs: list[tuple[str, str]]
    capacity: Array
    incidence: Array
    path_demand: IntArray
    demand_max: Array
    path_length: Array
    demand_names: list[str]
    paths: list[tuple[str, ...]]
    scale: float = 1.0
    load: float | None = None
    capacity_factor: float | None = 1.0
    notes: tuple[str, ...] = ()
    demand_set: DemandSet | None = None
    positions: dict[str, Position] | None = None
    all_arcs: tuple[tuple[str, str], ...] | None = None
    path_source: PathSource | None = None
    granularity: int | None = None
    priorities: tuple[int, ...] | None = None

    @cached_property
    def region(self) -> DemandSet:
        """The demand vectors at which a router is to keep the capacities."""
        return demand_box(self.demand_max) if self.demand_set is None else self.demand_set

    @property
    def ends(self) -> list[tuple[str, str]]:
        """Source and target of each demand."""
        return [(self.paths[block[0]][0], self.paths[block[0]][-1]) for block in self.blocks]

    @cached_property
    def robust(self) -> RobustSplit:
        """The constant split whose worst utilisation over the set is least."""
        from cg4ai.routing.train.anchors import robust_split

        return robust_split(self)

    @cached_property
    def level(self) -> float:
        """The worst MLU over the set under the best constant split; in a box, the worst optimum."""
        if isinstance(self.region, Box):
            return linear_programs.find_bottleneck(self).mlu
        return self.robust.level

    @cached_property
    def blocks(self) -> tuple[IntArray, ...]:
        """The positions of each demand's paths."""
        ends = np.searchsorted(self.path_demand, np.arange(1, len(self.demand_max)))
        return tuple(np.split(np.arange(len(self.path_demand)), ends))

    @cached_property
    def starts(self) -> IntArray:
        """(D,): the position of each demand's first path."""
        return np.array([block[0] for block in self.blocks], np.int64)

    def sample(self, count: int, seed: int) -> Array:
        """Demand vectors (count, D), uniform in the set."""
        return sample_demands(self.region, count, seed)

    def compute_utilisation(self, B: Array, splits: Array) -> Array:
        """Load over capacity of every arc: demands (N, D), splits (N, P) or (P,) -> (N, A)."""
        flows = self.check_vectors(B)[:, self.path_demand] * splits
        return np.asarray(flows @ self.incidence / self.capacity)

    def compute_unrouted(self, splits: Array) -> float:
        """How far the shares of a demand in `splits` (N, P) are from summing to one, at most."""
        return max(float(np.abs(splits[:, block].sum(1) - 1).max()) for block in self.blocks)

    def find_optimal(
        self, B: Array, splits: bool = False, objective: Literal["mlu", "cost"] = "mlu"
    ) -> OptimalRouting:
        """The best routing of every demand vector (N, D): see `cg4ai.routing.train.optimal`."""
        return linear_programs.optimal_routing(self, B, splits=splits, objective=objective)

    def check_vectors(self, B: Array) -> Array:
        """`B` as (N, D) float64, or an error that says what is wrong with it."""
        vectors = np.atleast_2d(np.asarray(B, dtype=np.float64))
        if vectors.ndim != 2 or vectors.shape[1] != len(self.demand_max):
            raise InvalidInput(
                f"demand vectors of {self.name} have shape (N, {len(self.demand_max)}), "
                f"got {np.shape(B)}",
                code="shape",
            )
        if not np.all(np.isfinite(vectors)) or np.any(vectors < 0):
            raise InvalidInput(
                "demands must be finite and at least 0; check the vectors", code="not-finite"
            )
        return vectors


def instance(
    network: str | Path | Network | Any,
    demands: int | Literal["all"] | None = None,
    paths: int = 3,
    load: float | None = 0.99,
    *,
    demand_file: str | Path | None = None,
    path_file: str | Path | None = None,
    least: float = 0.0,
    hose: float | None = None,
    budget: float | None = None,
    path_choice: PathChoice = "shortest",
    max_hops: int | None = None,
    max_latency: float | None = None,
    disjoint_pairs: bool = False,
) -> Instance:
    """The `demands` largest demands of a network with up to `paths` simple paths each.

    With `demands` None: all of a demand file, the 5 largest of a network's own; "all": of either.
    `network`: an
    SNDlib name, a file (.txt and .xml of SNDlib, .graphml, .json, .csv of links, REPETITA's .graph)
    or a networkx graph. `demand_file`: a CSV source,target,volume, a matrix with the nodes as
    header, or REPETITA's .demands, that replaces the network's own demands. `path_file`: the paths
    to use instead, all of them: a CSV source,target,path with a path as node;node;node, or JSON, a
    list of lists of nodes. Where fewer simple paths than `paths` exist, a demand gets those.

    The largest demands are the volumes times a scale. Without limits on sums it is such that the
    least possible maximum link utilisation (MLU) at the largest demands is `load`; with load None
    the volumes are taken as they are. `least`: demands are at least this share of their largest.
    `hose`, `budget`: what a node sends or receives in all, and what all demands make up together,
    is at most this share of the sum of their largest (see `demands.sets.limit_demands`); `load` is
    then the worst MLU over the set under the best constant split, see `restrict_to_set`.

    `path_choice`: "shortest" as in the paper; "generated" by column generation, which take traffic
    best; "disjoint": two without a common link, where there are such, and the shortest others.
    `max_hops`, `max_latency` (in milliseconds of the links' delays) limit every path.
    `disjoint_pairs`: two of the generated paths of a demand have no common link, where possible.
    """
    given = 1 if demands is None or demands == "all" else demands
    for what, count in (("demands", given), ("paths", paths)):
        if not isinstance(count, (int, np.integer)) or count < 1:
            raise InvalidInput(
                f"{what} must be a whole number of at least 1, got {count!r}", code="range"
            )
    if load is not None and not load > 0:
        raise InvalidInput(
            f"load must be above 0 and at most 1, got {load}; the usual is 0.99", code="range"
        )
    graph = network_of(network)
    volumes = graph.volumes if demand_file is None else read_demands(Path(demand_file), graph)
    if demands == "all" or (demands is None and demand_file is not None):
        demands = max(1, len(volumes))
    elif demands is None:
        demands = max(1, min(USUAL_DEMANDS, len(volumes)))
    chosen = _largest(graph.name, volumes, demands)
    largest = {pair: volumes[pair] for pair in chosen}
    ends = [(graph.nodes[source], graph.nodes[target]) for source, target in chosen]
    box = demand_box(np.array(list(largest.values())), least)
    region = limit_demands(box, ends, hose=hose, budget=budget)
    wanted = WantedPaths(
        paths,
        path_choice,
        PathLimits(max_hops, max_latency),
        disjoint_pairs,
        None if path_file is None else Path(path_file),
    )
    unscaled, path_notes = build_with_paths(graph, largest, region, wanted)
    made = restrict_to_set(unscaled, region, load=load)
    notes = (
        *graph.notes,
        *path_notes,
        *_changes(volumes, chosen, made),
    )
    noted = replace(made, notes=notes)
    carry_robust(noted, made, 1.0)
    return noted


def restrict_to_set(
    unscaled: Instance,
    region: DemandSet,
    *,
    load: float | None = 0.99,
    remedies: Callable[[float], str] | None = None,
) -> Instance:
    """The instance whose demands lie in `region` times a scale such that its worst case is `load`.

    The worst case of a box is the optimum at its corner. That of a polytope is the level that the
    best constant split keeps: the worst optimum lies at or below it, and no shield is possible
    above it. With `load` None nothing is scaled, and a worst case above one is refused, by an error
    that ends with `remedies` of it.
    """
    largest = region.upper if isinstance(region, Box) else region.box.upper
    made = replace(unscaled, demand_max=np.asarray(largest), demand_set=region)
    # capacities that no one stated have no unit, and demands are scaled in any case
    scalable = load is not None and bool(np.all(made.capacity == 1.0))
    most = float(linear_programs.make_loads(made).max())
    if scalable and most > FAR_APART:
        return _smaller(unscaled, region, most, load)
    _check_units(made.name, most)
    level = made.level
    if scalable and level > FAR_APART:  # many demands that share their links
        return _smaller(unscaled, region, level, load)
    _check_units(made.name, level)
    scale = 1.0 if load is None else load / level
    scaled = replace(
        made,
        demand_max=scale * largest,
        demand_set=scale_set(region, scale),
        scale=scale,
        load=load,
    )
    carry_robust(scaled, made, scale)
    if scale * level > 1 + 1e-9:
        from cg4ai.routing.prove.unroutable import make_refusal

        raise make_refusal(scaled, scale * level, remedies)
    if not isinstance(region, Box) or region.lower.any():
        return scaled
    return replace(scaled, demand_set=None)


def round_answers_of(instance: Instance, parts: int) -> Instance:
    """The instance of routers whose answers are splits in multiples of 1/parts."""
    note = (
        f"answers of cg4ai predict and serve are splits in multiples of 1/{parts}; figures, "
        "exported models and cg4ai.load(...).predict are of the splits before they are rounded"
    )
    made = replace(instance, granularity=parts, notes=(*instance.notes, note))
    carry_robust(made, instance, 1.0)
    return made


def carry_robust(instance: Instance, known: Instance, scale: float) -> None:
    """Take over the robust split, which takes long for many demands, where it is known."""
    if "robust" in vars(known):
        level = scale * known.robust.level
        vars(instance)["robust"] = replace(known.robust, level=level)


def _smaller(unscaled: Instance, region: DemandSet, factor: float, load: float | None) -> Instance:
    """The same for demands divided by the factor, which the scale then says."""
    made = restrict_to_set(unscaled, scale_set(region, 1 / factor), load=load)
    return replace(made, scale=made.scale / factor)


def _changes(
    volumes: dict[tuple[int, int], float],
    chosen: list[tuple[int, int]],
    made: Instance,
) -> Iterator[str]:
    """What the instance leaves out of the demands or changes in them."""
    if len(chosen) < len(volumes):
        share = sum(volumes[pair] for pair in chosen) / sum(volumes.values())
        which = f"the {len(chosen)} largest are" if len(chosen) > 1 else "only the largest is"
        yield f"of {len(volumes)} demands {which} routed, {share:.0%} of the volume"
    if made.load is not None and abs(made.scale - 1) > 1e-9:
        least = (
            "at their largest, the least possible maximum link utilisation"
            if isinstance(made.region, Box)
            else "over the set, the worst maximum link utilisation of the best constant split"
        )
        yield f"all demands are multiplied by {made.scale:.4g}: {least} is {made.load:g}"


def unused_paths(
    given: dict[tuple[int, int], list[Nodes]] | None, chosen: Iterable[tuple[int, int]]
) -> Iterator[str]:
    """Paths of a file that no demand takes."""
    left = {*(given or ())} - {*chosen}
    if left:
        pairs = "a pair" if len(left) == 1 else f"{len(left)} pairs"
        yield f"the given paths of {pairs} of nodes that no routed demand joins are left out"


def _check_units(name: str, utilisation: float) -> None:
    """Refuse demands that are nothing, or everything, beside the capacities of their links."""
    if not 1 / FAR_APART <= utilisation <= FAR_APART:
        raise InvalidInput(
            f"the largest demands of {name} take {utilisation:.3g} times the capacity of a link, "
            f"expected {1 / FAR_APART:g} to {FAR_APART:g}; state demands and capacities in the "
            "same unit",
            code="range",
        )


def network_of(network: str | Path | Network | Any) -> Network:
    if isinstance(network, Network):
        return network
    if isinstance(network, (str, Path)):
        path = Path(network)
        if path.suffix.lower() in READERS:
            try:
                return READERS[path.suffix.lower()](path)
            except RecursionError:
                raise InvalidInput(
                    f"{path}: objects or lists are nested too deeply for a graph", code="bad-file"
                ) from None
        if isinstance(network, str) and not path.is_file():
            return load_by_name(network)
        raise InvalidInput(
            f"{path}: expected a file ending in {', '.join(READERS)}", code="bad-file"
        )
    if hasattr(network, "is_directed") and hasattr(network, "edges"):
        return from_graph(network)
    raise InvalidInput(
        "a network is a name, the path of a file or a networkx graph, got "
        f"{type(network).__name__}",
        code="type",
    )


def _largest(name: str, volumes: dict[tuple[int, int], float], count: int) -> list[tuple[int, int]]:
    if not volumes:
        raise InvalidInput(
            f"{name} has no demands of positive volume; give them in the network, or as a CSV "
            "source,target,volume by demand_file",
            code="empty",
        )
    if count > len(volumes):
        raise InvalidInput(
            f"{count} demands of {name} were asked for, but it has {len(volumes)}; ask for fewer",
            code="range",
        )
    return sorted(volumes, key=lambda pair: (-volumes[pair], pair))[:count]


@dataclass(frozen=True)
class WantedPaths:
    """Which paths an instance is to have; with a `file` those are all, and nothing is chosen."""

    number: int
    choice: PathChoice = "shortest"
    limits: PathLimits = field(default_factory=PathLimits)
    disjoint_pairs: bool = False
    file: Path | None = None


def build_with_paths(
    network: Network,
    volumes: dict[tuple[int, int], float],
    region: DemandSet,
    wanted: WantedPaths,
    earlier: Array | None = None,
) -> tuple[Instance, tuple[str, ...]]:
    """`build_instance` over the paths that are wanted, and what is to be said of these.

    `region` is the set of demands in the units of the volumes; `earlier` as in `choose_paths`.
    """
    if wanted.file is not None:
        _refuse_choice(wanted)
        given = read_paths(wanted.file, network)
        made = build_instance(network, volumes, wanted.number, given)
        return made, tuple(unused_paths(given, volumes))
    graph = Graph.from_network(network, wanted.limits)
    if wanted.choice == "shortest" and not wanted.limits:
        return build_instance(network, volumes, wanted.number), ()
    chosen: ChosenPaths = choose_paths(
        graph,
        volumes,
        region,
        wanted.number,
        choice=wanted.choice,
        disjoint=wanted.disjoint_pairs,
        earlier=earlier,
    )
    made = build_instance(network, volumes, wanted.number, chosen.paths)
    assert made.path_source is not None
    source = replace(made.path_source, choice=wanted.choice, limits=wanted.limits)
    return replace(made, path_source=source), chosen.notes


def _refuse_choice(wanted: WantedPaths) -> None:
    """A file of paths leaves nothing to choose."""
    if wanted.limits or wanted.choice != "shortest":
        raise InvalidInput(
            "path_file gives all paths, so that path_choice, max_hops and max_latency have nothing "
            "to choose; leave out one or the other",
            code="conflict",
        )


def build_instance(
    network: Network,
    volumes: dict[tuple[int, int], float],
    count: int,
    given: dict[tuple[int, int], list[Nodes]] | None = None,
) -> Instance:
    """All arrays, with `demand_max` the volumes themselves; `given`: the paths, if not found."""
    if given is None:
        found = _found_paths(network, list(volumes), count)
    else:
        found = [given.get(pair, []) for pair in volumes]
    for (source, target), own in zip(volumes, found, strict=True):
        if not own:
            what = "has no path" if given is None else "is given no path"
            raise InvalidInput(
                f"{network.name} {what} from {network.nodes[source]} to "
                f"{network.nodes[target]}; add {'links' if given is None else 'one'} or remove the "
                "demand",
                code="infeasible",
            )
    routes = [path for own in found for path in own]
    hops = [list(pairwise(path)) for path in routes]
    arcs = sorted({arc for path in hops for arc in path})
    position = {arc: index for index, arc in enumerate(arcs)}
    incidence = np.zeros((len(routes), len(arcs)))
    for row, path in enumerate(hops):
        incidence[row, [position[arc] for arc in path]] = 1.0
    names = network.nodes
    graph = Graph.from_network(network)
    return Instance(
        name=network.name,
        arcs=[(names[source], names[target]) for source, target in arcs],
        capacity=np.array([network.arcs[arc].capacity for arc in arcs]),
        incidence=incidence,
        path_demand=np.repeat(np.arange(len(found)), [len(own) for own in found]),
        demand_max=np.array(list(volumes.values())),
        path_length=incidence @ np.array([network.arcs[arc].length for arc in arcs]),
        demand_names=[f"{names[source]}->{names[target]}" for source, target in volumes],
        paths=[tuple(names[node] for node in path) for path in routes],
        positions=_positions(network),
        all_arcs=tuple((names[source], names[target]) for source, target in sorted(network.arcs)),
        path_source=PathSource(
            "shortest" if given is None else "given", graph.capacity, graph.length, graph.delay
        ),
    )


def _positions(network: Network) -> dict[str, Position] | None:
    """Those of all nodes that links join."""
    if network.positions is None:
        return None
    linked = sorted({node for arc in network.arcs for node in arc})
    return {network.nodes[node]: network.positions[node] for node in linked}


def _found_paths(
    network: Network, pairs: list[tuple[int, int]], count: int
) -> list[list[tuple[int, ...]]]:
    """The shortest simple paths between each pair of nodes."""
    graph = Graph.from_network(network)
    found: list[list[Nodes]] = [[] for _ in pairs]
    in_order = sorted(range(len(pairs)), key=lambda number: pairs[number][1])  # by target
    with clock.review().stage(f"shortest paths of {len(pairs):,} demands", needed=True) as stage:
        for done, number in enumerate(in_order):
            stage.is_in_time(done, len(pairs))
            found[number] = shortest_paths(graph.simple_paths, *pairs[number], count)
    return found


def shortest_paths(known: SimplePaths, source: int, target: int, count: int) -> list[Nodes]:
    """The `count` shortest simple paths; lengths equal to 6 decimals are ordered by node tuple."""
    return list(islice(known.iterate(source, target), count))
