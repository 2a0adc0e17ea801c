"""Linear masters for tests, and the complete program as an oracle."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from cg4ai.colgen.master import DUMMY_MULTIPLE, OWN_SLACK, LinearMaster


class Complete:
    """The same master written out in full: every row, every column, solved by scipy."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.costs = np.empty(0)
        self.column_blocks = np.empty(0, dtype=int)
        self.coefficients = np.empty((0, 0))
        self.bounds = np.empty(0)
        self.slack = np.empty(0, dtype=int)
        self.epigraph = np.empty(0, dtype=int)
        self.weights = np.empty(0)
        self.floor = 0.0

    def add_columns(self, costs, blocks, coefficients):
        self.costs = np.r_[self.costs, costs]
        self.column_blocks = np.r_[self.column_blocks, blocks]
        self.coefficients = np.hstack([self.coefficients, coefficients])

    def add_rows(self, coefficients, bounds, slack, epigraph):
        self.coefficients = np.vstack([self.coefficients, coefficients])
        self.bounds = np.r_[self.bounds, bounds]
        self.slack = np.r_[self.slack, slack]
        self.epigraph = np.r_[self.epigraph, epigraph]

    def optimum(self, penalty: float, *, slack_phase: bool = False) -> float:
        m, n = self.coefficients.shape
        own = np.flatnonzero(self.slack == OWN_SLACK)
        shared = np.unique(self.slack[self.slack >= 0])
        extra = np.zeros((m, len(self.weights) + len(own) + len(shared)))
        for j in range(m):
            if self.epigraph[j] >= 0:
                extra[j, self.epigraph[j]] = 1
            if self.slack[j] == OWN_SLACK:
                extra[j, len(self.weights) + np.flatnonzero(own == j)] = 1
            if self.slack[j] >= 0:
                at = len(self.weights) + len(own) + np.flatnonzero(shared == self.slack[j])
                extra[j, at] = 1
        cost_of_slack = 1.0 if slack_phase else penalty
        cost_of_dummy = cost_of_slack * DUMMY_MULTIPLE
        free = 0.0 if slack_phase else 1.0
        slacks = len(own) + len(shared)
        costs = [
            free * self.costs,
            np.full(self.blocks, cost_of_dummy),
            free * self.weights,
            np.full(slacks, cost_of_slack),
        ]
        convexity = np.zeros((self.blocks, n + self.blocks + extra.shape[1]))
        convexity[self.column_blocks, np.arange(n)] = 1
        convexity[np.arange(self.blocks), n + np.arange(self.blocks)] = 1
        lower = [0.0] * (n + self.blocks) + [self.floor] * len(self.weights) + [0.0] * slacks
        answer = linprog(
            np.concatenate(costs),
            A_ub=-np.hstack([self.coefficients, np.zeros((m, self.blocks)), extra]) if m else None,
            b_ub=-self.bounds if m else None,
            A_eq=convexity,
            b_eq=np.ones(self.blocks),
            bounds=[(low, None) for low in lower],
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        assert answer.status == 0, answer.message
        return float(answer.fun)

    def dual_objective(self, duals, penalty: float) -> float:
        """The bound that these duals prove, after checking that they are feasible."""
        tolerance = 1e-7 * max(1.0, penalty)
        assert (duals.rows >= 0).all()
        assert (duals.rows[self.slack == OWN_SLACK] <= penalty + tolerance).all()
        for number in np.unique(self.slack[self.slack >= 0]):
            assert duals.rows[self.slack == number].sum() <= penalty + tolerance
        assert (duals.blocks <= penalty * DUMMY_MULTIPLE + tolerance).all()
        reduced = self.costs - duals.rows @ self.coefficients - duals.blocks[self.column_blocks]
        assert (reduced >= -tolerance).all()
        left = self.weights.copy()
        np.subtract.at(left, self.epigraph[self.epigraph >= 0], duals.rows[self.epigraph >= 0])
        assert (left >= -tolerance).all()
        return float(self.bounds @ duals.rows + duals.blocks.sum() + self.floor * left.sum())


def close(found: float, expected: float, tolerance: float = 1e-8) -> bool:
    return abs(found - expected) <= tolerance * max(1.0, abs(expected))


def one_block(**options) -> LinearMaster:
    """min w_0 + 3 w_1 with w_0 + w_1 = 1 and the row -w_0 + w_1 >= 0."""
    master = LinearMaster(1, **options)
    master.add_columns(np.array([1.0, 3.0]), np.array([0, 0]), np.empty((0, 2)))
    master.add_rows(np.array([[-1.0, 1.0]]), np.array([0.0]), np.array([OWN_SLACK]))
    return master


def random_master(seed: int, *, rows: int = 60, columns: int = 8, **options) -> LinearMaster:
    generator = np.random.default_rng(seed)
    master = LinearMaster(1, **options)
    master.add_columns(generator.random(columns), np.zeros(columns, int), np.empty((0, columns)))
    coefficients = generator.normal(0.3, 1, (rows, columns))
    master.add_rows(coefficients, np.zeros(rows), np.full(rows, OWN_SLACK))
    return master


def extend(master: LinearMaster, generator: np.random.Generator) -> None:
    """One random column and ten random rows."""
    master.add_columns(
        generator.random(1), np.zeros(1, int), generator.normal(0.3, 1, (master.n_rows, 1))
    )
    coefficients = generator.normal(0.2, 1, (10, master.n_columns))
    master.add_rows(coefficients, np.zeros(10), np.full(10, OWN_SLACK))
