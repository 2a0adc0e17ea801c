"""Paths of a network: shortest ones within limits, and pairs of paths without a common link."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.network.network import Network
from cg4ai.routing.network.path_files import Nodes
from cg4ai.routing.network.simple_paths import SimplePaths

ROUNDING = 1e-9  # of a limit on latency
MOST_FIRST_PATHS = 500  # of a demand, for each of which a second one without common links is sought


@dataclass(frozen=True)
class PathLimits:
    """At most so many links, and so many milliseconds of delay, on every path; None: any."""

    hops: int | None = None
    latency: float | None = None

    def __bool__(self) -> bool:
        return self.hops is not None or self.latency is not None

    def check(self, graph: Graph) -> None:
        """Refuse limits that make no sense, and one on delays that are not known."""
        if self.hops is not None and self.hops < 1:
            raise InvalidInput(f"max_hops must be at least 1, got {self.hops}", code="range")
        if self.latency is not None and not self.latency > 0:
            raise InvalidInput(f"max_latency must be above 0, got {self.latency:g}", code="range")
        if self.latency is not None and graph.delay is None:
            raise InvalidInput(
                f"max_latency needs the delay of every link, which {graph.name} does not have; "
                "give each link the attribute delay, in milliseconds, or limit max_hops",
                code="missing-values",
            )

    def __str__(self) -> str:
        parts = [] if self.hops is None else [f"{self.hops} link{'s' if self.hops > 1 else ''}"]
        parts += [] if self.latency is None else [f"{self.latency:g} ms"]
        return " and ".join(parts)


@dataclass(frozen=True, eq=False)
class Graph:
    """The links of a network as arrays: `ends` (A, 2) of nodes; `capacity`, `length`, `delay` (A,).

    `delay` is None where that of some link is not known. `limits` are those of all paths.
    """

    name: str
    nodes: tuple[str, ...]
    ends: IntArray
    capacity: Array
    length: Array
    delay: Array | None = None
    limits: PathLimits = field(default_factory=PathLimits)

    @classmethod
    def from_network(cls, network: Network, limits: PathLimits | None = None) -> Graph:
        arcs = sorted(network.arcs)
        delays = [network.arcs[arc].delay for arc in arcs]
        known = [delay for delay in delays if delay is not None]
        graph = cls(
            network.name,
            network.nodes,
            np.array(arcs, np.int64).reshape(-1, 2),
            np.array([network.arcs[arc].capacity for arc in arcs]),
            np.array([network.arcs[arc].length for arc in arcs]),
            np.array(known) if len(known) == len(delays) else None,
            limits or PathLimits(),
        )
        graph.limits.check(graph)
        return graph

    @cached_property
    def position(self) -> dict[tuple[int, int], int]:
        """Of each arc by its nodes."""
        return {(source, target): arc for arc, (source, target) in enumerate(self.ends.tolist())}

    @cached_property
    def leaving(self) -> list[list[tuple[int, int]]]:
        """Of each node the (arc, node) that it leads to."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for arc, (source, target) in enumerate(self.ends.tolist()):
            found[source].append((arc, target))
        return found

    @cached_property
    def simple_paths(self) -> SimplePaths:
        """All of them, by length."""
        return SimplePaths(self.ends, self.length, len(self.nodes))

    def get_arcs(self, nodes: Nodes) -> list[int]:
        return [self.position[hop] for hop in pairwise(nodes)]

    def get_links(self, nodes: Nodes) -> set[tuple[int, int]]:
        """Links without regard to direction: one that fails does in both."""
        return {(min(hop), max(hop)) for hop in pairwise(nodes)}

    def are_disjoint(self, one: Nodes, other: Nodes) -> bool:
        return self.get_links(one).isdisjoint(self.get_links(other))

    def allows(self, nodes: Nodes) -> bool:
        """Whether a path keeps the limits."""
        limits = self.limits
        if limits.hops is not None and len(nodes) - 1 > limits.hops:
            return False
        if limits.latency is None:
            return True
        assert self.delay is not None
        return float(self.delay[self.get_arcs(nodes)].sum()) <= limits.latency * (1 + ROUNDING)

    def make_matrix(self, lengths: Array) -> Any:
        """(n, n) sparse; a length of 0 is kept as one."""
        size = len(self.nodes)
        return sparse.csr_matrix((lengths, (self.ends[:, 0], self.ends[:, 1])), (size, size))

    def find_distances_to(self, target: int, lengths: Array) -> list[float]:
        """(n,): of the shortest path from each node."""
        found: list[float] = dijkstra(self.make_matrix(lengths).T, indices=target).tolist()
        return found

    def without(self, nodes: Nodes) -> Graph:
        """The graph without the links of a path."""
        lost = self.get_links(nodes)
        kept = [k for k, hop in enumerate(self.ends.tolist()) if (min(hop), max(hop)) not in lost]
        return Graph(
            self.name,
            self.nodes,
            self.ends[kept],
            self.capacity[kept],
            self.length[kept],
            None if self.delay is None else self.delay[kept],
            self.limits,
        )


class ShortestPaths:
    """From the sources of demands, with lengths (A,) of links >= 0; one search for each source."""

    def __init__(self, graph: Graph, pairs: Sequence[tuple[int, int]], lengths: Array) -> None:
        self.graph, self.pairs, self.lengths = graph, pairs, lengths
        sources = sorted({source for source, _ in pairs})
        self._row = {source: row for row, source in enumerate(sources)}
        self._far, self._before = dijkstra(
            graph.make_matrix(lengths), indices=sources, return_predecessors=True
        )

    @cached_property
    def distances(self) -> Array:
        """(D,): of the shortest paths without regard to limits: none that keeps them is shorter."""
        rows = [self._row[source] for source, _ in self.pairs]
        return np.asarray(self._far[rows, [target for _, target in self.pairs]])

    def get_distance(self, demand: int) -> float:
        """That of one demand."""
        return float(self.distances[demand])

    def find_path(self, demand: int, below: float = np.inf) -> Nodes | None:
        """The shortest path within the limits; None where none is shorter than `below`."""
        source, target = self.pairs[demand]
        if not self.get_distance(demand) < below:
            return None
        before, nodes = self._before[self._row[source]], [target]
        while nodes[-1] != source:
            nodes.append(int(before[nodes[-1]]))
        found = tuple(reversed(nodes))
        if self.graph.allows(found):
            return found
        return find_path_within(self.graph, source, target, self.lengths, below=below)


def find_path_within(
    graph: Graph, source: int, target: int, lengths: Array, *, below: float = np.inf
) -> Nodes | None:
    """The shortest path that keeps the limits of the graph; None where none is below `below`.

    Labels (length, links, delay) of a node of which another is better in all three are dropped, and
    so are those from which the target cannot be reached in time.
    """
    found = _search(graph, source, target, lengths, below=below, dominated=True)
    return next(found, None)


def iterate_paths(graph: Graph, source: int, target: int) -> Iterator[Nodes]:
    """All simple paths that keep the limits, by length.

    Without limits equal ones are in the order of their nodes, else by links first.
    """
    if not graph.limits:
        return graph.simple_paths.iterate(source, target)
    return _search(graph, source, target, graph.length, below=np.inf, dominated=False)


def _search(
    graph: Graph, source: int, target: int, lengths: Array, *, below: float, dominated: bool
) -> Iterator[Nodes]:
    """Paths by length; with `dominated` labels dropped only the first one is exact."""
    limits, every = graph.limits, len(lengths)
    delay = np.zeros(every) if graph.delay is None else graph.delay
    most_hops = np.inf if limits.hops is None else limits.hops
    most_delay = np.inf if limits.latency is None else limits.latency * (1 + ROUNDING)
    far = graph.find_distances_to(target, lengths)
    hops_left = graph.find_distances_to(target, np.ones(every))
    delay_left = graph.find_distances_to(target, delay)
    length, late = lengths.tolist(), delay.tolist()
    # (length with what is left at least, links, nodes, length, delay)
    heap: list[tuple[float, int, Nodes, float, float]] = [(far[source], 0, (source,), 0.0, 0.0)]
    labels: list[list[tuple[float, int, float]]] = [[] for _ in graph.nodes]
    while heap:
        _, hops, nodes, gone, spent = heapq.heappop(heap)
        node = nodes[-1]
        if node == target:
            yield nodes
            continue
        if dominated:
            if any(a <= gone and b <= hops and c <= spent for a, b, c in labels[node]):
                continue
            labels[node].append((gone, hops, spent))
        for arc, other in graph.leaving[node]:
            further, delayed = gone + length[arc], spent + late[arc]
            inside = hops + 1 + hops_left[other] <= most_hops
            inside = inside and delayed + delay_left[other] <= most_delay
            if inside and further + far[other] < below and other not in nodes:
                entry = (further + far[other], hops + 1, (*nodes, other), further, delayed)
                heapq.heappush(heap, entry)


def refuse_unreached(graph: Graph, pairs: Sequence[tuple[int, int]]) -> None:
    """An error where a demand has no path, or none within the limits: it says what is possible."""
    limits, links = graph.limits, len(graph.ends)
    fewest = ShortestPaths(graph, pairs, np.ones(links))
    for demand, (source, target) in enumerate(pairs):
        ends = f"{graph.nodes[source]} to {graph.nodes[target]}"
        hops = fewest.get_distance(demand)
        if not np.isfinite(hops):
            raise InvalidInput(
                f"{graph.name} has no path from {ends}; add links or remove the demand",
                code="infeasible",
            )
        if fewest.find_path(demand) is not None:
            continue
        if limits.hops is not None and hops > limits.hops:
            least = f"the path of fewest links has {hops:g}"
        else:
            assert graph.delay is not None
            quickest = find_path_within(
                _limited(graph, PathLimits(hops=limits.hops)), source, target, graph.delay
            )
            assert quickest is not None
            least = f"the quickest takes {float(graph.delay[graph.get_arcs(quickest)].sum()):g} ms"
            if limits.hops is not None:
                least = f"of those of at most {limits.hops} links {least}"
        raise InvalidInput(
            f"{graph.name} has no path of at most {limits} from {ends}: {least}; allow more, or "
            "remove the demand",
            code="infeasible",
        )


def _limited(graph: Graph, limits: PathLimits) -> Graph:
    return Graph(
        *(graph.name, graph.nodes, graph.ends, graph.capacity, graph.length, graph.delay, limits)
    )


def find_disjoint_pair(graph: Graph, source: int, target: int) -> list[Nodes]:
    """Two paths without a common link, of least total length; empty where there are none.

    Limits on paths make this hard: where that pair exceeds them, the shortest path that has a
    second one is taken, of the `MOST_FIRST_PATHS` shortest.
    """
    pair = _shortest_pair(graph, source, target)
    if not pair or all(map(graph.allows, pair)):
        return pair
    for first in islice(iterate_paths(graph, source, target), MOST_FIRST_PATHS):
        rest = graph.without(first)
        second = find_path_within(rest, source, target, rest.length)
        if second is not None:
            return [first, second]
    return []


def _shortest_pair(graph: Graph, source: int, target: int) -> list[Nodes]:
    """Bhandari's algorithm: a second path may cancel links of the first, in the other direction."""
    first = _bellman_ford(graph.ends, graph.length, len(graph.nodes), source, target)
    if not first:
        return []
    lost, kept = graph.get_links(first), []
    for arc, hop in enumerate(graph.ends.tolist()):
        if (min(hop), max(hop)) not in lost:
            kept.append(arc)
    used = graph.get_arcs(first)
    ends = np.concatenate([graph.ends[kept], graph.ends[used][:, ::-1]])
    lengths = np.concatenate([graph.length[kept], -graph.length[used]])
    second = _bellman_ford(ends, lengths, len(graph.nodes), source, target)
    if not second:
        return []
    hops = {*pairwise(first)}
    for a, b in pairwise(second):
        if (b, a) in hops:
            hops.remove((b, a))
        else:
            hops.add((a, b))
    return [_take_path(hops, source, target) for _ in range(2)]


def _bellman_ford(ends: IntArray, lengths: Array, size: int, source: int, target: int) -> Nodes:
    """The shortest path, with lengths of which some are below 0 but no cycle is; () if none."""
    far = np.full(size, np.inf)
    before = np.full(size, -1)
    far[source] = 0.0
    for _ in range(size):
        reached = far[ends[:, 0]] + lengths
        better = np.flatnonzero(reached < far[ends[:, 1]] - 1e-12)
        if not len(better):
            break
        order = better[np.argsort(-reached[better], kind="stable")]  # the shortest is written last
        heads = ends[order, 1]
        far[heads], before[heads] = reached[order], ends[order, 0]
    if not np.isfinite(far[target]):
        return ()
    nodes = [target]
    while nodes[-1] != source:
        nodes.append(int(before[nodes[-1]]))
    return tuple(reversed(nodes))


def _take_path(hops: set[tuple[int, int]], source: int, target: int) -> Nodes:
    """A path of these hops, which are taken away; what goes in a circle is left out."""
    nodes = [source]
    while nodes[-1] != target:
        hop = min(one for one in hops if one[0] == nodes[-1])
        hops.remove(hop)
        nodes.append(hop[1])
        if nodes[-1] in nodes[:-1]:
            nodes = nodes[: nodes.index(nodes[-1]) + 1]
    return tuple(nodes)
