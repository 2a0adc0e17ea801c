"""Routing instances: a network's largest demands, their shortest paths and the box of demands.

`instance` is where routing starts. It takes a network by name, from a file or as a graph, and
gives the arrays that everything else works on. A demand vector b lies in [0, demand_max]; a split
gives each path its share of its demand, and shares of a demand sum to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cg4ai.apps.routing import optimal as linear_programs
from cg4ai.apps.routing.graphs import from_graph, read_graphml, read_json
from cg4ai.apps.routing.network import Network
from cg4ai.apps.routing.readers import read_demands, read_native, read_xml
from cg4ai.apps.routing.sndlib import by_name
from cg4ai.errors import InvalidInput
from cg4ai.extras import optional
from cg4ai.records import Array, IntArray

if TYPE_CHECKING:
    from cg4ai.apps.routing.optimal import OptimalRouting

READERS = {".txt": read_native, ".xml": read_xml, ".graphml": read_graphml, ".json": read_json}

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

# Beyond this many paths of one length, the smallest of those seen so far must do.
TIED_PATHS = 2000
USUAL_DEMANDS = 5
FAR_APART = 1e6  # further apart, the solver's tolerances are larger than the loads


@dataclass(frozen=True, eq=False)
class Instance:
    """D demands with P paths over the A arcs that some path uses.

    `capacity` (A,), `incidence` (P, A) of 0 and 1, `path_demand` (P,) ascending, `demand_max`
    (D,) the corner of the box, `path_length` (P,), `scale`: demand_max / volumes of the network.
    `load` is the least possible MLU at the corner that was asked for; None: volumes as given.
    `notes` say in words what was left out, rescaled or assumed.
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
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> tuple[IntArray, ...]:
        """The positions of each demand's paths."""
        count = len(self.demand_max)
        return tuple(np.flatnonzero(self.path_demand == demand) for demand in range(count))

    def sample(self, count: int, seed: int) -> Array:
        """Demand vectors (count, D), uniform in the box."""
        shares = np.random.default_rng(seed).uniform(0, 1, (count, len(self.demand_max)))
        return np.asarray(shares * self.demand_max)

    def utilisation(self, B: Array, splits: Array) -> Array:
        """Load over capacity of every arc: demands (N, D), splits (N, P) or (P,) -> (N, A)."""
        flows = self.vectors(B)[:, self.path_demand] * splits
        return np.asarray(flows @ self.incidence / self.capacity)

    def unrouted(self, splits: Array) -> float:
        """How far the shares of a demand in `splits` (N, P) are from summing to one, at most."""
        return max(float(np.abs(splits[:, block].sum(1) - 1).max()) for block in self.blocks)

    def optimal(
        self, B: Array, splits: bool = False, objective: Literal["mlu", "cost"] = "mlu"
    ) -> OptimalRouting:
        """The best routing of every demand vector (N, D): see `cg4ai.apps.routing.optimal`."""
        return linear_programs.optimal_routing(self, B, splits=splits, objective=objective)

    def vectors(self, B: Array) -> Array:
        """`B` as (N, D) float64, or an error that says what is wrong with it."""
        vectors = np.atleast_2d(np.asarray(B, dtype=np.float64))
        if vectors.ndim != 2 or vectors.shape[1] != len(self.demand_max):
            raise InvalidInput(
                f"demand vectors of {self.name} have shape (N, {len(self.demand_max)}), "
                f"got {np.shape(B)}"
            )
        if not np.all(np.isfinite(vectors)) or np.any(vectors < 0):
            raise InvalidInput("demands must be finite and at least 0; check the vectors")
        return vectors


def instance(
    network: str | Path | Network | Any,
    demands: int | None = None,
    paths: int = 3,
    load: float | None = 0.99,
    *,
    demand_file: str | Path | None = None,
) -> Instance:
    """The `demands` largest demands of a network with up to `paths` shortest simple paths each.

    With `demands` None: all of a demand file, the 5 largest of a network's own. `network`: an
    SNDlib name, a file (.txt and .xml of SNDlib, .graphml, .json) or a networkx graph.
    `demand_file`: a CSV source,target,volume that replaces the network's own demands. The box of
    demands is the volumes times a scale, such that the least possible maximum link utilisation
    (MLU) at its corner is `load`; with load None the volumes are taken as they are. Where fewer
    simple paths than `paths` exist, a demand gets those.
    """
    for what, count in (("demands", 1 if demands is None else demands), ("paths", paths)):
        if not isinstance(count, (int, np.integer)) or count < 1:
            raise InvalidInput(f"{what} must be a whole number of at least 1, got {count!r}")
    if load is not None and not load > 0:
        raise InvalidInput(f"load must be above 0 and at most 1, got {load}; the usual is 0.99")
    graph = _network(network)
    volumes = graph.volumes if demand_file is None else read_demands(Path(demand_file), graph)
    if demands is None:
        demands = len(volumes) if demand_file is not None else min(USUAL_DEMANDS, len(volumes))
    chosen = _largest(graph.name, volumes, demands)
    unscaled = _build(graph, {pair: volumes[pair] for pair in chosen}, paths)
    most = float(linear_programs.utilisation_per_share(unscaled).max())
    _check_units(unscaled.name, most)
    corner = linear_programs.bottleneck(unscaled)
    _check_units(unscaled.name, corner.mlu)
    scale = 1.0 if load is None else load / corner.mlu
    if scale * corner.mlu > 1 + 1e-9:
        raise InvalidInput(_unroutable(unscaled, corner, scale * corner.mlu))
    notes = (*graph.notes, *_changes(volumes, chosen, scale, load))
    return replace(
        unscaled, demand_max=scale * unscaled.demand_max, scale=scale, load=load, notes=notes
    )


def _changes(
    volumes: dict[tuple[int, int], float],
    chosen: list[tuple[int, int]],
    scale: float,
    load: float | None,
) -> Iterator[str]:
    """What the instance leaves out of the demands or changes in them."""
    if len(chosen) < len(volumes):
        share = sum(volumes[pair] for pair in chosen) / sum(volumes.values())
        yield (
            f"of {len(volumes)} demands the {len(chosen)} largest are routed, {share:.0%} of the "
            "volume"
        )
    if load is not None and abs(scale - 1) > 1e-9:
        yield (
            f"all demands are multiplied by {scale:.4g}: at their largest, the least possible "
            f"maximum link utilisation is {load:g}"
        )


def _check_units(name: str, utilisation: float) -> None:
    """Refuse demands that are nothing, or everything, beside the capacities of their links."""
    if not 1 / FAR_APART <= utilisation <= FAR_APART:
        raise InvalidInput(
            f"the largest demands of {name} take {utilisation:.3g} times the capacity of a link, "
            f"expected {1 / FAR_APART:g} to {FAR_APART:g}; state demands and capacities in the "
            "same unit"
        )


def _network(network: str | Path | Network | Any) -> Network:
    if isinstance(network, Network):
        return network
    if isinstance(network, (str, Path)):
        path = Path(network)
        if path.suffix.lower() in READERS:
            try:
                return READERS[path.suffix.lower()](path)
            except RecursionError:
                raise InvalidInput(
                    f"{path}: objects or lists are nested too deeply for a graph"
                ) from None
        if isinstance(network, str) and not path.is_file():
            return by_name(network)
        raise InvalidInput(f"{path}: expected a file ending in {', '.join(READERS)}")
    if hasattr(network, "is_directed") and hasattr(network, "edges"):
        return from_graph(network)
    raise InvalidInput(
        f"a network is a name, the path of a file or a networkx graph, got {type(network).__name__}"
    )


def _largest(name: str, volumes: dict[tuple[int, int], float], count: int) -> list[tuple[int, int]]:
    if not volumes:
        raise InvalidInput(
            f"{name} has no demands of positive volume; give them in the network, or as a CSV "
            "source,target,volume by demand_file"
        )
    if count > len(volumes):
        raise InvalidInput(
            f"{count} demands of {name} were asked for, but it has {len(volumes)}; ask for fewer"
        )
    return sorted(volumes, key=lambda pair: (-volumes[pair], pair))[:count]


def _build(network: Network, volumes: dict[tuple[int, int], float], count: int) -> Instance:
    """All arrays, with `demand_max` the volumes themselves."""
    networkx = optional("networkx")
    graph: Any = networkx.DiGraph()
    graph.add_nodes_from(range(len(network.nodes)))
    graph.add_weighted_edges_from(
        ((*ends, arc.length) for ends, arc in network.arcs.items()), weight="length"
    )
    found = [shortest_paths(graph, *pair, count) for pair in volumes]
    for (source, target), own in zip(volumes, found, strict=True):
        if not own:
            raise InvalidInput(
                f"{network.name} has no path from {network.nodes[source]} to "
                f"{network.nodes[target]}; add links or remove the demand"
            )
    routes = [path for own in found for path in own]
    hops = [list(pairwise(path)) for path in routes]
    arcs = sorted({arc for path in hops for arc in path})
    position = {arc: index for index, arc in enumerate(arcs)}
    incidence = np.zeros((len(routes), len(arcs)))
    for row, path in enumerate(hops):
        incidence[row, [position[arc] for arc in path]] = 1.0
    names = network.nodes
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
    )


def shortest_paths(graph: Any, source: int, target: int, count: int) -> list[tuple[int, ...]]:
    """The `count` shortest simple paths; lengths equal to 6 decimals are ordered by node tuple."""
    networkx = optional("networkx")
    found: list[tuple[float, tuple[int, ...]]] = []
    try:
        for nodes in networkx.shortest_simple_paths(graph, source, target, weight="length"):
            length = sum(graph[a][b]["length"] for a, b in pairwise(nodes))
            # Paths come in order of length, so one that is clearly longer than the last one
            # wanted ends the search, and not before: a tied one may come first by its nodes.
            if len(found) >= count and length > sorted(found)[count - 1][0] + 1e-6:
                break
            found.append((round(length, 6), tuple(nodes)))
            if len(found) >= count + TIED_PATHS:
                break
    except networkx.NetworkXNoPath:
        return []
    return [nodes for _, nodes in sorted(found)[:count]]


def _unroutable(unscaled: Instance, corner: linear_programs.Bottleneck, mlu: float) -> str:
    links = ", ".join("->".join(unscaled.arcs[arc]) for arc in corner.arcs)
    demands = ", ".join(unscaled.demand_names[demand] for demand in corner.demands)
    return (
        f"the largest demands of {unscaled.name} cannot be routed together: whatever the splits, "
        f"some link is loaded to {mlu:.6g} of its capacity or more. The links that make it so: "
        f"{links}; the demands that must cross them: {demands}. Set load to at most 1, raise the "
        "capacity of these links, or allow more paths"
    )
