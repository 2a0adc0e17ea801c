"""Quadratic programs with very many rows, solved through systems as small as the weights are many.

Clarabel factorises a matrix with all rows in it, which takes seconds for each of its steps once
there are thousands of dense ones. Here they are eliminated first, which leaves products of dense
matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from cg4ai.colgen.master.convex.program import Program
from cg4ai.errors import SolverFailure
from cg4ai.records import Array, IntArray
from cg4ai.solvers.conic import Answer

STEP_LIMIT = 100
LARGE = 1000  # from more rows in the whole program on, this file solves
PRECISION = 1e-11


@dataclass(frozen=True, slots=True)
class DenseSolution:
    """Weights, slack of each row and dummies (all >= 0), row values less bounds, and the duals.

    `row_duals` of rows, `block_duals` of the blocks' sums; `weight_duals`, `slack_duals` and
    `dummy_duals` of weights, slacks and dummies being >= 0.
    """

    weights: Array
    slack: Array
    dummies: Array
    surplus: Array
    row_duals: Array
    block_duals: Array
    weight_duals: Array
    slack_duals: Array
    dummy_duals: Array
    iterations: int = 0

    def answer(self, *, penalty: float, dummy_price: float) -> Answer:
        """The same as `QuadraticProgram` has it, slacks and dummies times their price."""
        scaled = (self.weights, self.slack * penalty, self.dummies * dummy_price)
        duals = (self.weight_duals, self.slack_duals / penalty, self.dummy_duals / dummy_price)
        return Answer(
            x=np.concatenate(scaled),
            z=np.concatenate([self.block_duals, self.row_duals, *duals]),
            s=np.concatenate([np.zeros(len(self.block_duals)), self.surplus, *scaled]),
            iterations=self.iterations,
        )


POSITIVE = (
    ("weights", "weight_duals"),
    ("slack", "slack_duals"),
    ("dummies", "dummy_duals"),
    ("surplus", "row_duals"),
)


@dataclass(frozen=True, slots=True)
class DenseQuadratic:
    """minimise w'Hw/2 + q'w + penalty sum s + price sum d, with Cw + s - t = b and Bw + d = 1.

    Weights w, slacks s (one of each row), dummies d (one of each block), surplus t, all >= 0.
    """

    hessian: Array
    linear: Array
    coefficients: Array
    bounds: Array
    member: Array
    penalty: float
    dummy_price: float

    @staticmethod
    def suits(program: Program, rows: IntArray) -> bool:
        """Whether there are very many rows, each with a slack of its own."""
        own = program.penalty is not None and bool(np.all(np.diff(program.groups[rows]) > 0))
        return own and len(program.bounds) > LARGE and len(rows) > len(program.blocks)

    @classmethod
    def build(
        cls, program: Program, rows: IntArray, *, hessian: Array, linear: Array
    ) -> DenseQuadratic:
        """The program's rows of these numbers; every one of them has a slack of its own."""
        assert program.penalty is not None
        member = (program.blocks == np.arange(program.n_blocks)[:, None]).astype(np.float64)
        return cls(
            hessian,
            linear,
            program.coefficients[rows],
            program.bounds[rows],
            member,
            program.penalty,
            program.dummy_price,
        )

    def solve(self) -> DenseSolution:
        """Mehrotra's predictor-corrector method, to about 8 digits like any interior point."""
        point = self._start()
        best, least = point, np.inf
        for step in range(STEP_LIMIT):
            error = self._error(point)
            if error < least:
                best, least = replace(point, iterations=step), error
            if error <= PRECISION or error > 1e6 * max(least, PRECISION):
                break
            try:
                point = self._advance(point)
            except np.linalg.LinAlgError:  # as near as rounding allows
                break
        if not np.isfinite(least):
            raise SolverFailure(
                "an interior-point method found no usable iterate of a quadratic program; scale "
                "outputs, rows and bounds to magnitudes near 1"
            )
        return best

    def _start(self) -> DenseSolution:
        """Well inside: every row with slack and surplus, every price half of what it can be."""
        rows, blocks = len(self.bounds), len(self.member)
        weights = 0.9 * (self.member / self.member.sum(1, keepdims=True).clip(1)).sum(0)
        reached = self.coefficients @ weights - self.bounds
        slack = np.maximum(-reached, 0.0) + 1.0
        half = np.full(rows, self.penalty / 2)
        slope = self.hessian @ weights + self.linear - self.coefficients.T @ half
        least = np.full(blocks, np.inf)
        for number in range(blocks):
            least[number] = slope[self.member[number] > 0].min(initial=self.dummy_price / 2)
        block_duals = -np.minimum(least, self.dummy_price / 2)
        return DenseSolution(
            weights=weights,
            slack=slack,
            dummies=1.0 - self.member @ weights,
            surplus=reached + slack,
            row_duals=half,
            block_duals=block_duals,
            weight_duals=np.maximum(slope + self.member.T @ block_duals, 0.0) + self.penalty,
            slack_duals=half.copy(),
            dummy_duals=self.dummy_price + block_duals,
        )

    def _residuals(self, at: DenseSolution) -> tuple[Array, Array, Array, Array, Array]:
        """What is wrong with stationarity (weights, slack, dummies), rows and blocks."""
        return (
            self.hessian @ at.weights
            + self.linear
            - self.coefficients.T @ at.row_duals
            + self.member.T @ at.block_duals
            - at.weight_duals,
            self.penalty - at.row_duals - at.slack_duals,
            self.dummy_price + at.block_duals - at.dummy_duals,
            self.coefficients @ at.weights + at.slack - self.bounds - at.surplus,
            self.member @ at.weights + at.dummies - 1.0,
        )

    def _error(self, at: DenseSolution) -> float:
        """The largest fault, relative to the size of what it is a difference of."""
        weights, slack, dummies, rows, blocks = self._residuals(at)
        products = sum(float(getattr(at, x) @ getattr(at, z)) for x, z in POSITIVE)
        value = self.linear @ at.weights + self.penalty * at.slack.sum()
        size = 1.0 + float(np.abs(self.linear).max(initial=0.0)) + self.penalty
        faults = [
            np.abs(weights).max(initial=0.0) / size,
            np.abs(slack).max(initial=0.0) / size,
            np.abs(dummies).max(initial=0.0) / (size + self.dummy_price),
            np.abs(rows).max(initial=0.0) / (1.0 + np.abs(self.bounds).max(initial=0.0)),
            np.abs(blocks).max(initial=0.0),
            products / (1.0 + abs(value)),
        ]
        return float(np.max(np.nan_to_num(faults, nan=np.inf)))

    def _advance(self, at: DenseSolution) -> DenseSolution:
        newton = self._newton(at)
        mean = _mean_product(at)
        targets = {x: -getattr(at, x) * getattr(at, z) for x, z in POSITIVE}
        straight = newton(targets)
        length = _longest(at, straight)
        ahead = _mean_product(_moved(at, straight, length))
        centre = (ahead / mean) ** 3 * mean
        corrected = {
            x: targets[x] - getattr(straight, x) * getattr(straight, z) + centre
            for x, z in POSITIVE
        }
        step = newton(corrected)
        return _moved(at, step, min(1.0, 0.995 * _longest(at, step)))

    def _newton(self, at: DenseSolution) -> Callable[[dict[str, Array]], DenseSolution]:
        """Solves the linearised conditions, given what each product x z should change by."""
        r_weights, r_slack, r_dummies, r_rows, r_blocks = self._residuals(at)
        give = 1.0 / (at.slack / at.slack_duals + at.surplus / at.row_duals)
        scaled = self.coefficients * give[:, None]
        matrix = self.hessian + self.coefficients.T @ scaled
        matrix[np.diag_indices_from(matrix)] += at.weight_duals / at.weights
        factor = cho_factor(matrix, check_finite=False)
        across = cho_solve(factor, self.member.T, check_finite=False)
        small = self.member @ across + np.diag(at.dummies / at.dummy_duals)

        def solve(change: dict[str, Array]) -> DenseSolution:
            wanted = (
                (at.slack * r_slack - change["slack"]) / at.slack_duals
                - r_rows
                + change["surplus"] / at.row_duals
            )
            right = -r_weights + scaled.T @ wanted + change["weights"] / at.weights
            offset = -r_blocks + (at.dummies * r_dummies - change["dummies"]) / at.dummy_duals
            inner = cho_solve(factor, right, check_finite=False)
            block_duals = np.linalg.solve(small, self.member @ inner - offset)
            weights = inner - across @ block_duals
            row_duals = give * (wanted - self.coefficients @ weights)
            slack_duals = r_slack - row_duals
            dummy_duals = r_dummies + block_duals
            return DenseSolution(
                weights=weights,
                slack=(change["slack"] - at.slack * slack_duals) / at.slack_duals,
                dummies=(change["dummies"] - at.dummies * dummy_duals) / at.dummy_duals,
                surplus=(change["surplus"] - at.surplus * row_duals) / at.row_duals,
                row_duals=row_duals,
                block_duals=block_duals,
                weight_duals=(change["weights"] - at.weight_duals * weights) / at.weights,
                slack_duals=slack_duals,
                dummy_duals=dummy_duals,
            )

        return solve


def _mean_product(at: DenseSolution) -> float:
    parts = [getattr(at, x) * getattr(at, z) for x, z in POSITIVE]
    return float(np.concatenate(parts).mean())


def _longest(at: DenseSolution, step: DenseSolution) -> float:
    """The share of the step, at most 1, at which the first of all that must be >= 0 is 0."""
    longest = 1.0
    for name in (name for pair in POSITIVE for name in pair):
        values, change = getattr(at, name), getattr(step, name)
        falls = change < 0
        longest = min(longest, float((-values[falls] / change[falls]).min(initial=1.0)))
    return longest


def _moved(at: DenseSolution, step: DenseSolution, length: float) -> DenseSolution:
    names = [field.name for field in fields(DenseSolution) if field.name != "iterations"]
    return DenseSolution(
        **{name: getattr(at, name) + length * getattr(step, name) for name in names}
    )
