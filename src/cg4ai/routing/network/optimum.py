"""How far routing over chosen paths is from routing over all paths of the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.clock import Deadline
from cg4ai.data import Array
from cg4ai.routing.network.flows import NetworkFlows
from cg4ai.routing.network.path_search import Graph, iterate_paths
from cg4ai.rules import Box

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

NO_LOAD = 1e-300  # an optimum below it counts as so much


@dataclass(frozen=True)
class NetworkComparison:
    """The best routing over the chosen paths, and a router, over the optimum of the network.

    At so many `vectors`, and `worst_case`: the best routing over the chosen paths at the worst case
    of the set.
    """

    vectors: int
    mean: float
    p99: float
    largest: float
    router_mean: float
    router_p99: float
    worst_case: float

    def to_summary(self) -> dict[str, Any]:
        return {
            "vectors": self.vectors,
            "paths_mean_ratio": self.mean,
            "paths_p99_ratio": self.p99,
            "paths_max_ratio": self.largest,
            "paths_worst_case_ratio": self.worst_case,
            "router_mean_ratio": self.router_mean,
            "router_p99_ratio": self.router_p99,
        }


def make_graph(instance: Instance) -> Graph | None:
    """The links that paths were chosen from; None where they are not known."""
    source, arcs = instance.path_source, instance.all_arcs
    if source is None or arcs is None:
        return None
    nodes = tuple(dict.fromkeys(node for arc in arcs for node in arc))
    index = {node: position for position, node in enumerate(nodes)}
    ends = np.array([[index[node] for node in arc] for arc in arcs], np.int64)
    limits = source.limits
    return Graph(
        *(instance.name, nodes, ends, source.capacity, source.length, source.delay, limits)
    )


def network_flows(instance: Instance) -> NetworkFlows | None:
    """The program of the best routing over all paths of the network that keep the limits."""
    graph = make_graph(instance)
    if graph is None:
        return None
    index = {node: position for position, node in enumerate(graph.nodes)}
    flows = NetworkFlows(
        graph, [(index[a], index[b]) for a, b in instance.ends], instance.demand_max
    )
    flows.add(
        (int(demand), tuple(index[node] for node in path))
        for demand, path in zip(instance.path_demand, instance.paths, strict=True)
        if graph.allows(tuple(index[node] for node in path))
    )
    return flows


def network_optimum(instance: Instance, B: Array, deadline: Deadline | None = None) -> Array:
    """The least MLU (n,) of vectors (N, D) over all paths: of as many as time allows, one at least.

    Empty where the links of the network are not known.
    """
    flows, values = network_flows(instance), list[float]()
    vectors = instance.check_vectors(B) / instance.demand_max
    for vector in vectors if flows is not None else ():
        assert flows is not None
        values.append(flows.optimise(vector).mlu)
        if deadline is not None and deadline.passed:
            break
    return np.array(values)


def compare_with_network(
    instance: Instance, B: Array, *, best: Array, reached: Array, deadline: Deadline
) -> NetworkComparison | None:
    """At vectors (n, D), where `best` (n,) is the least MLU over the paths, `reached` the router's.

    None where the links of the network are not known.
    """
    worst = find_worst_vector(instance)
    optimum = network_optimum(instance, np.concatenate([worst[None], B]), deadline)
    if len(optimum) < 2:
        return None
    at_worst, optima = float(optimum[0]), np.maximum(optimum[1:], NO_LOAD)
    count = len(optima)
    ratio, router = best[:count] / optima, reached[:count] / optima
    return NetworkComparison(
        vectors=count,
        mean=float(ratio.mean()),
        p99=float(np.quantile(ratio, 0.99)),
        largest=float(ratio.max()),
        router_mean=float(router.mean()),
        router_p99=float(np.quantile(router, 0.99)),
        worst_case=float(instance.find_optimal(worst[None]).mlu[0] / max(at_worst, NO_LOAD)),
    )


def find_worst_vector(instance: Instance) -> Array:
    """The corner of a box (D,).

    Of a polytope the hardest to route of the vectors at which the robust split loads a link most.
    """
    if isinstance(instance.region, Box):
        return np.asarray(instance.region.upper)
    from cg4ai.routing.train.anchors import worst_vectors

    found = np.unique(worst_vectors(instance, instance.robust.split).vectors, axis=0)
    return np.asarray(found[int(instance.find_optimal(found).mlu.argmax())])


def use_shortest_paths(instance: Instance) -> Instance:
    """The same demands over as many shortest paths of the network, where its links are known."""
    graph = make_graph(instance)
    assert instance.path_source is not None or graph is None
    if graph is None or instance.path_source is None or instance.path_source.choice == "shortest":
        return instance
    number = max(len(block) for block in instance.blocks)
    index = {node: position for position, node in enumerate(graph.nodes)}
    found = [
        list(islice(iterate_paths(graph, index[source], index[target]), number))
        for source, target in instance.ends
    ]
    routes = [path for own in found for path in own]
    hops = [[graph.position[hop] for hop in pairwise(path)] for path in routes]
    used = sorted({arc for path in hops for arc in path})
    incidence = np.zeros((len(routes), len(graph.ends)))
    for row, path in enumerate(hops):
        incidence[row, path] = 1.0
    names = graph.nodes
    ends = graph.ends[used].tolist()
    return replace(
        instance,
        arcs=[(names[source], names[target]) for source, target in ends],
        capacity=graph.capacity[used],
        incidence=incidence[:, used],
        path_demand=np.repeat(np.arange(len(found)), [len(own) for own in found]),
        path_length=incidence @ graph.length,
        paths=[tuple(names[node] for node in path) for path in routes],
        path_source=replace(instance.path_source, choice="shortest"),
    )
