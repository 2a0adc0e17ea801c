"""Least cost at given loads by HiGHS, one program after another from the last one's basis."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.errors import SolverFailure
from cg4ai.records import Array
from experiments.opf.dispatch import Dispatch

OPTIMAL, INFEASIBLE = "kOptimal", ("kInfeasible", "kUnboundedOrInfeasible")


@dataclass(frozen=True, eq=False)
class Optima:
    """Costs (n,) and dispatches (n, G); `feasible` (n,), the others are not numbers."""

    costs: Array
    dispatch: Array
    feasible: NDArray[np.bool_]


class DispatchProgram:
    """The linear or quadratic program of a grid, whose loads are changed.

    With `elastic` it minimises by what share of their rates lines are overloaded at the most.
    """

    def __init__(self, problem: Dispatch, *, elastic: bool = False) -> None:
        grid, kept = problem.grid, problem.kept
        self.grid, self.kept, self.elastic = grid, kept, elastic
        self.balances = grid.sums(grid.island_of_generator)
        self.taken = grid.sums(grid.island_of_load)
        self._highs = highspy.Highs()
        for name, value in (("output_flag", False), ("threads", 1), ("presolve", "off")):
            self._highs.setOptionValue(name, value)
        none = np.empty(0, np.int32)
        size = len(grid.lower)
        costs = np.zeros(size) if elastic else grid.costs[:, 1]
        self._highs.addCols(size, costs, grid.lower, grid.upper, 0, none, none, np.empty(0))
        along, rate = grid.by_generator[kept], grid.rate[kept]
        matrix = [self.balances, along] if not elastic else [self.balances, along, along]
        if elastic:
            self._highs.addCols(
                1, np.ones(1), np.zeros(1), np.full(1, np.inf), 0, none, none, np.empty(0)
            )
        whole = np.concatenate(matrix)
        if elastic:
            beyond = np.concatenate([np.zeros(len(self.balances)), -rate, rate])
            whole = np.column_stack([whole, beyond])
        rows = sparse.csr_matrix(whole)
        self.count = rows.shape[0]
        free = np.full(self.count, np.inf)
        self._highs.addRows(
            self.count, -free, free, rows.nnz, rows.indptr[:-1], rows.indices, rows.data
        )
        if not elastic and not grid.is_linear:
            every = np.arange(size, dtype=np.int32)
            self._highs.passHessian(
                size, size, 1, np.arange(size + 1, dtype=np.int32), every, 2 * grid.costs[:, 0]
            )

    def solve(self, loads: Array) -> str:
        """At loads (D,), MW; the name of the status of HiGHS."""
        grid, rate = self.grid, self.grid.rate[self.kept]
        own = grid.by_load[self.kept] @ loads - grid.constant[self.kept]
        total = self.taken @ loads + grid.fixed
        if self.elastic:
            free = np.full(len(rate), np.inf)
            low, high = [total, -free, own - rate], [total, own + rate, free]
        else:
            low, high = [total, own - rate], [total, own + rate]
        every = np.arange(self.count, dtype=np.int32)
        self._highs.changeRowsBounds(self.count, every, np.concatenate(low), np.concatenate(high))
        self._highs.run()
        return str(self._highs.getModelStatus().name)

    @property
    def objective(self) -> float:
        return float(self._highs.getObjectiveValue())

    @property
    def dispatch(self) -> Array:
        return np.array(self._highs.getSolution().col_value)[: len(self.grid.lower)]

    def load_prices(self) -> Array:
        """(D,): the change of the optimum per MW of each load."""
        duals = np.array(self._highs.getSolution().row_dual)
        count = len(self.balances)
        lines = duals[count:].reshape(1 + self.elastic, -1).sum(0)
        return np.asarray(duals[:count] @ self.taken + lines @ self.grid.by_load[self.kept])


def find_optima(problem: Dispatch, loads: Array) -> Optima:
    """At loads (n, D), MW."""
    program = DispatchProgram(problem)
    costs, found = np.full(len(loads), np.nan), np.full((len(loads), len(problem.moving)), np.nan)
    for number, one in enumerate(loads):
        status = program.solve(one)
        if status == OPTIMAL:
            found[number] = program.dispatch
            costs[number] = problem.grid.cost(found[number][None])[0]
        elif status not in INFEASIBLE:
            raise SolverFailure(f"HiGHS ended a dispatch with status {status}")
    return Optima(costs, found, np.isfinite(costs))


@dataclass(frozen=True, eq=False)
class Overload:
    """Loads (D,), MW, and by what share of its rate some line is overloaded at any dispatch.

    Infinite where generators cannot give what the loads take.
    """

    loads: Array
    share: float


def search_overload(problem: Dispatch, *, starts: int, seed: int) -> Overload:
    """The worst loads found: the least overload is convex in them, so that each step, to the corner
    that the duals point to, raises it.
    """
    grid, radius = problem.grid, problem.radius
    taken, given = grid.sums(grid.island_of_load), grid.sums(grid.island_of_generator)
    for sign, ends in ((1.0, grid.upper), (-1.0, grid.lower)):
        corner = grid.loads + sign * radius
        if (sign * (taken @ corner + grid.fixed - given @ ends) > 1e-9 * np.abs(ends).sum()).any():
            return Overload(corner, np.inf)
    program = DispatchProgram(problem, elastic=True)
    rng = np.random.default_rng([seed, 7])
    best = Overload(grid.loads, -np.inf)
    for number in range(starts):
        corner = rng.choice([-1.0, 1.0], len(radius))
        loads = grid.loads + radius * (number > 0) * corner
        last = -np.inf
        while True:
            status = program.solve(loads)
            if status != OPTIMAL:
                raise SolverFailure(f"HiGHS ended a least overload with status {status}")
            if program.objective > best.share:
                best = Overload(loads, program.objective)
            if program.objective <= last + 1e-9:
                break
            last, prices = program.objective, program.load_prices()
            signs = np.where(prices == 0, corner, np.sign(prices))
            loads = grid.loads + radius * signs
    return best
