"""The best routing over all paths of a network, by column generation: prices of links make paths.

A linear program routes a demand vector over the paths known so far. Its dual prices of links are
lengths; one run of Dijkstra's algorithm from each source finds the paths that are shorter than what
a demand pays, and they become columns. Where none is left, the same prices prove the optimum. The
columns of one vector serve the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.clock import Deadline
from cg4ai.data import Array, IntArray
from cg4ai.routing.network.path_files import Nodes
from cg4ai.routing.network.path_search import Graph, ShortestPaths
from cg4ai.routing.train.optimal import routing_program, solve_program, start_from_paths

CLOSE = 1e-6  # of the optimum: what is proven up to this share is not improved further
# Prices are raised by this share of their mean, so that of paths that cost alike the one of fewest
# links is taken; raised prices prove a lower bound as well as any others.
RAISED = 1e-6
FORBIDDEN = 1e3  # the price of a demand on a path that may not be used, in utilisations near one
MOST_ROUNDS = 1000

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BestRouting:
    """The least MLU of a demand vector, with what paths cost beside it, and the flows (P,).

    Flows are in shares of the largest demands.
    `bound`: no routing of the network is below it; 0 where that was not asked. `paid` (D,) by each
    demand, and `prices` (A,) of links, are the dual prices: what a path costs its demand d is the
    sum over its links of prices x `NetworkFlows.loads`.
    """

    mlu: float
    bound: float
    flows: Array
    paid: Array
    prices: Array


class NetworkFlows:
    """Routes vectors of D demands over paths that it generates: `paths[k]` serves `demand[k]`.

    `pairs` are source and target of demands, `largest` (D,) their volumes. Vectors (D,) are given
    as shares of `largest`.
    """

    def __init__(self, graph: Graph, pairs: Sequence[tuple[int, int]], largest: Array) -> None:
        self.graph, self.pairs, self.largest = graph, list(pairs), largest
        self.paths: list[Nodes] = []
        self._demand: list[int] = []
        self._known: dict[tuple[int, Nodes], int] = {}
        self._forbidden: Mask = np.zeros(0, bool)
        self.work = 0  # columns and rows of all programs solved
        demands, links = len(self.pairs), len(graph.ends)
        shortest = ShortestPaths(graph, self.pairs, np.ones(links))
        routes = [(demand, shortest.find_path(demand)) for demand in range(demands)]
        first = [(demand, path) for demand, path in routes if path is not None]
        used = np.zeros(links)
        for demand, path in first:
            used[graph.get_arcs(path)] += largest[demand]
        self.unit = float((used / graph.capacity).max())  # so that utilisations are near one
        level = sparse.csr_matrix(-np.ones((links, 1)))
        matrix = sparse.vstack([sparse.csr_matrix((demands, 1)), level], "csr")
        self._lower = np.concatenate([np.zeros(demands), np.full(links, -np.inf)])
        self._upper = np.zeros(demands + links)
        self.program = routing_program(np.ones(1), matrix, self._lower, self._upper)
        self.add(first)
        if len(first) == demands:
            full = int((used / graph.capacity).argmax())
            start_from_paths(self.program, 1 + np.arange(demands), level=0, arc=full)

    @property
    def demand(self) -> IntArray:
        """(P,): the demand of each path."""
        return np.array(self._demand, np.int64)

    def make_loads(self) -> Any:
        """(P, A) sparse: the load of a link, in `unit`s, by all of a demand on the path."""
        arcs = [self.graph.get_arcs(path) for path in self.paths]
        ends = np.cumsum([0, *map(len, arcs)])
        flat = np.array([arc for one in arcs for arc in one], np.int64)
        each = np.repeat(self.largest[self.demand] / self.unit, np.diff(ends))
        shape = (len(self.paths), len(self.graph.ends))
        return sparse.csr_matrix((each / self.graph.capacity[flat], flat, ends), shape)

    def find(self, demand: int, path: Nodes) -> int:
        """The position of a known path."""
        return self._known[demand, path]

    def add(self, found: Iterable[tuple[int, Nodes]]) -> int:
        """Paths of demands as columns, those that are not known; how many these are."""
        new = [one for one in dict.fromkeys(found) if one not in self._known]
        for demand, nodes in new:
            self._known[demand, nodes] = len(self.paths)
            self._demand.append(demand)
            self.paths.append(nodes)
        if new:
            self.program.add_columns(np.zeros(len(new)), np.zeros(len(new)), self._columns(new))
            self._forbidden = np.pad(self._forbidden, (0, len(new)))
        return len(new)

    def _columns(self, new: Sequence[tuple[int, Nodes]]) -> Any:
        rows, values, starts = list[int](), list[float](), [0]
        for demand, nodes in new:
            arcs, count = self.graph.get_arcs(nodes), len(self.pairs)
            loads = self.largest[demand] / self.unit / self.graph.capacity[arcs]
            rows += [demand, *(count + arc for arc in arcs)]
            values += [1.0, *loads.tolist()]
            starts.append(len(rows))
        shape = (len(self._lower), len(new))
        return sparse.csc_matrix((np.array(values), np.array(rows), np.array(starts)), shape)

    def forbid(self, forbidden: Mask | None) -> None:
        """Paths (P,) that may not be used from now on; None: all may."""
        mask = np.zeros(len(self.paths), bool) if forbidden is None else forbidden
        if not np.array_equal(mask, self._forbidden):
            self.change_costs(np.where(mask, FORBIDDEN, 0.0))
            self._forbidden = mask.copy()

    def change_costs(self, costs: Array) -> None:
        """What all of a demand on a path costs (P,) beside the MLU, in `unit`s."""
        self.program.change_costs(np.concatenate([[1.0], costs]))

    def solve(self, shares: Array) -> BestRouting:
        """The best routing of a vector (D,) over the known paths that may be used."""
        scale = float(shares.max(initial=0.0)) or 1.0
        return self._solve(shares / scale, scale, np.zeros(0))

    def optimise(self, shares: Array) -> BestRouting:
        """The best routing of a vector (D,) over all paths of the network, proven by a bound."""
        self.forbid(None)
        scale = float(shares.max(initial=0.0)) or 1.0
        vector, best = shares / scale, 0.0
        for _ in range(MOST_ROUNDS):
            found = self._solve(vector, scale, np.array([best]))
            bound, new = self._price(vector, found)
            best = max(best, bound)
            value = found.mlu / (scale * self.unit)
            if value - best <= CLOSE * value or not self.add(new):
                break
        bound = scale * self.unit * best
        return BestRouting(found.mlu, bound, found.flows, found.paid, found.prices)

    def _solve(self, vector: Array, scale: float, best: Array) -> BestRouting:
        demands, factor = len(self.pairs), scale * self.unit
        if not np.array_equal(vector, self._lower[:demands]):
            self._lower[:demands] = self._upper[:demands] = vector
            self.program.change_row_bounds(self._lower, self._upper)
        # one vector takes little time: those who solve many look at the clock between them.
        # With new columns a basis keeps all rows, and after other demands few are broken
        solve_program(self.program, deadline=Deadline(), primal=True)
        self.work += len(self.paths) + len(self._lower)
        answer = self.program.solution()
        return BestRouting(
            mlu=factor * float(self.program.objective()),
            bound=factor * float(best.max(initial=0.0)),
            flows=scale * np.maximum(answer.values[1:], 0.0),
            paid=answer.duals[:demands],
            prices=np.maximum(-answer.duals[demands:], 0.0),
        )

    def _price(self, vector: Array, found: BestRouting) -> tuple[float, list[tuple[int, Nodes]]]:
        """A lower bound of the optimum, in `unit`s, and paths shorter than what demands pay."""
        raised = found.prices + RAISED * (float(found.prices.sum()) or 1.0) / len(found.prices)
        lengths = raised / self.graph.capacity
        shortest = ShortestPaths(self.graph, self.pairs, lengths)
        each = self.largest / self.unit
        pays = found.paid / each
        length = np.minimum(shortest.distances, pays)  # no path within the limits is shorter
        new = list[tuple[int, Nodes]]()
        for demand in np.flatnonzero((vector > 0) & (shortest.distances < pays)).tolist():
            path = shortest.find_path(demand, below=float(pays[demand]))
            if path is not None:
                new.append((demand, path))
            if self.graph.limits:
                own = [] if path is None else self.graph.get_arcs(path)
                length[demand] = pays[demand] if path is None else float(lengths[own].sum())
        return float((vector * each * length).sum() / raised.sum()), new
