"""The integer master: of each block the one member that, with the others, meets all rows cheapest.

With weights 0 or 1 the mixture of a block is one of its members, so what a member costs on its own
is what it costs in the master, and no loss is left to be convex in the weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai import clock
from cg4ai.colgen.master.table import MasterTable
from cg4ai.records import Array, IntArray
from cg4ai.solvers.highs import MixedProgram, MixedSolution, solve_mixed

NODES = 20_000  # of branch and bound at most: a count, so that runs end alike on all machines
FINEST = 1e-9  # what HiGHS can tell apart


@dataclass(frozen=True, slots=True)
class Choice:
    """One column of each block, and what is known of all choices among the table's columns.

    `lacking` is the most that a row lacks, `met` whether that is within the tolerance; `objective`
    counts no penalty. `bound` is proven: no choice that meets the rows costs less (inf: none
    does).
    """

    columns: IntArray
    objective: float
    lacking: float
    met: bool
    bound: float


def choose(table: MasterTable, *, tolerance: Array, time_limit_s: float = math.inf) -> Choice:
    """The cheapest choice that meets every row; if there is none, the one that comes closest.

    `tolerance` (m,) is what each row may lack.

    Every block must have a column. One block is looked through: closest is what misses the fewest
    rows, and of these has the least total slack (a member whose outputs are all 0 lacks little of
    every margin, and is of no use). Several are a program of HiGHS: closest is the least slack.
    """
    if table.blocks == 1:
        return _looked_through(table, tolerance)
    return _Selection(table, tolerance, time_limit_s).choice()


def compute_objectives(table: MasterTable, values: Array) -> Array:
    """The epigraph's part of what columns with these row values (m, n) cost: (n,)."""
    if not len(table.epigraph_weights):
        return np.zeros(values.shape[1])
    levels = np.full((len(table.epigraph_weights), values.shape[1]), table.epigraph_floor)
    rows = np.flatnonzero(table.epigraph_of >= 0)
    np.maximum.at(levels, table.epigraph_of[rows], table.bounds[rows, None] - values[rows])
    return np.asarray(table.epigraph_weights @ levels)


def _looked_through(table: MasterTable, tolerance: Array) -> Choice:
    values = table.coefficients
    ruled = table.epigraph_of < 0
    short = np.maximum(table.bounds[ruled, None] - values[ruled], 0.0)
    lacking = short.max(0, initial=0.0)
    costs = table.costs + compute_objectives(table, values)
    missed = short > tolerance[ruled, None]
    met = np.asarray(~missed.any(axis=0))
    if met.any():
        best = int(np.where(met, costs, np.inf).argmin())
        bound = float(costs[best])
    else:
        best, bound = int(np.lexsort((short.sum(0), missed.sum(0)))[0]), math.inf
    return Choice(
        np.array([best]), float(costs[best]), float(lacking[best]), bool(met[best]), bound
    )


class _Selection:
    """Several blocks: binary variables for columns, one t for each scenario."""

    def __init__(self, table: MasterTable, tolerance: Array, time_limit_s: float) -> None:
        self.table, self.tolerance = table, tolerance
        self.until = clock.now() + time_limit_s
        self.members = np.arange(table.n_columns)
        self.scenarios = len(table.epigraph_weights)
        self.convexity = sparse.csr_matrix(
            (np.ones(len(self.members)), (table.column_blocks, self.members)),
            shape=(table.blocks, len(self.members)),
        )
        self.ruled = table.epigraph_of < 0
        self.needed = table.bounds - np.where(self.ruled, np.maximum(tolerance - FINEST, 0.0), 0.0)
        self.barred: list[IntArray] = []  # choices that rounding let through

    def choice(self) -> Choice:
        if self._hopeless():
            return self._least_slack(math.inf)
        while True:
            found = solve_mixed(
                self._program(slack=False), node_limit=NODES, time_limit_s=self._left()
            )
            if found.values is None:
                return self._least_slack(found.bound)
            chosen = self._described(found, found.bound)
            if chosen.met:
                return chosen
            self.barred.append(chosen.columns)

    def _hopeless(self) -> bool:
        """Whether some row is met by no choice, even of its best members."""
        most = self._by_block(np.maximum, -np.inf)
        return bool(np.any((most < self.needed)[self.ruled]))

    def _by_block(self, best: np.ufunc, start: float) -> Array:
        """(m,): the sum over blocks of the largest, or smallest, coefficient of each."""
        extremes = np.full((self.table.blocks, self.table.n_rows), start)
        best.at(extremes, self.table.column_blocks, self.table.coefficients.T)
        return np.asarray(extremes.sum(0))

    def _least_slack(self, bound: float) -> Choice:
        """Some choice is always there; the best of them by total slack, as far as it is found."""
        program = self._program(slack=True)
        start = np.zeros(len(program.costs))
        first = np.unique(self.table.column_blocks, return_index=True)[1]
        start[first] = 1.0
        found = solve_mixed(
            program, node_limit=NODES, time_limit_s=max(self._left(), 1.0), gap=FINEST
        )
        if found.values is None:
            found = MixedSolution(found.status, start, math.inf, -math.inf)
        return self._described(found, bound)

    def _left(self) -> float:
        return max(self.until - clock.now(), 0.1)

    def _described(self, found: MixedSolution, bound: float) -> Choice:
        table = self.table
        assert found.values is not None
        weights = found.values[: len(self.members)]
        order = np.lexsort((-weights, table.column_blocks))
        columns = order[np.unique(table.column_blocks[order], return_index=True)[1]]
        values = table.coefficients[:, columns].sum(1, keepdims=True)
        short = (table.bounds - values[:, 0])[self.ruled]
        lacking = float(max(short.max(initial=0.0), 0.0))
        objective = float(table.costs[columns].sum() + compute_objectives(table, values)[0])
        met = bool((short <= self.tolerance[self.ruled]).all())
        return Choice(columns, objective, lacking, met, min(bound, objective) if met else bound)

    def _program(self, *, slack: bool) -> MixedProgram:
        """With `slack` every row of a rule has one, and nothing else costs."""
        table, n = self.table, len(self.members)
        rows = self._rows_that_matter(self.ruled if slack else np.ones(table.n_rows, bool))
        table_part = sparse.csr_matrix(table.coefficients[rows])
        epigraph = sparse.lil_matrix((len(rows), self.scenarios))
        own = np.flatnonzero(table.epigraph_of[rows] >= 0)
        epigraph[own, table.epigraph_of[rows][own]] = 1.0
        extra = len(rows) if slack else 0
        columns = [table_part, epigraph, sparse.identity(len(rows), format="csr")][
            : 3 if slack else 2
        ]
        ruled = sparse.hstack(columns, format="csr")
        width = n + self.scenarios + extra
        convexity = sparse.hstack(
            [self.convexity, sparse.csr_matrix((table.blocks, width - n))], format="csr"
        )
        barred = self._barred(width)
        costs = np.zeros(width)
        if slack:
            costs[n + self.scenarios :] = 1.0
        else:
            costs[:n], costs[n : n + self.scenarios] = table.costs, table.epigraph_weights
        lower = np.zeros(width)
        lower[n : n + self.scenarios] = table.epigraph_floor
        upper = np.full(width, np.inf)
        upper[:n] = 1.0
        integer = np.arange(width) < n
        return MixedProgram(
            costs=costs,
            lower=lower,
            upper=upper,
            integer=integer,
            matrix=sparse.vstack([convexity, ruled, barred], format="csr"),
            row_lower=np.concatenate(
                [np.ones(table.blocks), self.needed[rows], np.full(len(self.barred), -np.inf)]
            ),
            row_upper=np.concatenate(
                [
                    np.ones(table.blocks),
                    np.full(len(rows), np.inf),
                    np.full(len(self.barred), table.blocks - 1.0),
                ]
            ),
        )

    def _rows_that_matter(self, among: NDArray[np.bool_]) -> IntArray:
        """Without those that every choice meets."""
        least = self._by_block(np.minimum, np.inf)
        least = least + np.where(self.ruled, 0.0, self.table.epigraph_floor)
        return np.flatnonzero(among & (least < self.needed))

    def _barred(self, width: int) -> sparse.csr_matrix:
        matrix = sparse.lil_matrix((len(self.barred), width))
        for number, columns in enumerate(self.barred):
            matrix[number, columns] = 1.0
        return matrix.tocsr()
