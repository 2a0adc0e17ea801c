"""The convex program over the weights, and what proves how good a point of it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.master.convex.objective import Objective
from cg4ai.records import Array, Duals, IntArray

TINY_WEIGHT = 1e-11  # what an interior-point method leaves on members it does not use


@dataclass(frozen=True, slots=True)
class Program:
    """minimise objective + penalties over block-wise convex weights that meet the rows.

    `groups` (m,) numbers the slack variable of each row from 0. `penalty` is the price of slack
    and `dummy_price` that of a dummy; a penalty of None means hard rows and no dummies. A
    violation up to `row_tolerance` (m,) is not charged, so that rounding times a huge
    penalty does not drown the objective.
    """

    objective: Objective
    coefficients: Array
    bounds: Array
    groups: IntArray
    blocks: IntArray
    n_blocks: int
    row_tolerance: Array
    penalty: float | None = None
    dummy_price: float = np.inf

    @property
    def n_groups(self) -> int:
        return int(self.groups.max(initial=-1)) + 1

    def block_sums(self, weights: Array) -> Array:
        return np.asarray(np.bincount(self.blocks, weights, self.n_blocks), dtype=np.float64)

    def group_slack(self, weights: Array) -> Array:
        """What each slack variable must be: the largest shortfall of its rows beyond tolerance."""
        slack = np.zeros(self.n_groups)
        np.maximum.at(
            slack, self.groups, self.bounds - self.row_tolerance - self.coefficients @ weights
        )
        return slack

    def charge(self, weights: Array) -> float:
        if self.penalty is None:
            return 0.0
        dummies = np.maximum(0.0, 1.0 - self.block_sums(weights)).sum()
        slack = self.group_slack(weights).sum()
        return float(self.penalty * slack + self.dummy_price * dummies)

    def tidy(self, weights: Array) -> Array:
        """Nonnegative weights with block sums at most 1 (with hard rows: exactly 1)."""
        weights = np.where(weights < TINY_WEIGHT, 0.0, weights)
        sums = self.block_sums(weights)
        exact = (sums > 1.0 - 1e-9) | (self.penalty is None)
        return np.asarray(weights / np.where(exact & (sums > 0), sums, 1.0)[self.blocks])

    def duals(self, gradient: Array, beta: Array) -> Duals:
        """Row duals made feasible, and the best block duals for them: no reduced cost is < 0."""
        beta = np.maximum(beta, 0.0)
        if self.penalty is not None:
            total = np.bincount(self.groups, beta, minlength=self.n_groups)
            beta = beta * (self.penalty / np.maximum(total, self.penalty))[self.groups]
        gamma = np.full(self.n_blocks, self.dummy_price)
        np.minimum.at(gamma, self.blocks, gradient - self.coefficients.T @ beta)
        return Duals(beta, gamma)


@dataclass(frozen=True, slots=True)
class Point:
    """Weights with what is known there; `bound` is proven for a convex loss by `duals`."""

    weights: Array
    value: float
    merit: float
    gradient: Array
    duals: Duals
    bound: float

    @property
    def gap(self) -> float:
        return self.merit - self.bound


def assess(program: Program, weights: Array, choices: list[Array]) -> Point:
    """The point with those of the given row duals that prove the largest bound.

    For all feasible l, slack and dummies, `loss(l) >= value + gradient . (l - weights)`; duals
    that are feasible for that linear program bound it from below.
    """
    value, gradient = program.objective.slope(weights)
    options = [program.duals(gradient, beta) for beta in choices]
    bounds = [
        float(value - gradient @ weights + duals.rows @ program.bounds + duals.blocks.sum())
        for duals in options
    ]
    best = int(np.argmax(bounds))
    merit = value + program.charge(weights)
    return Point(weights, value, merit, gradient, options[best], bounds[best])


def check_table(name: str, table: Array, shape: tuple[int, ...]) -> None:
    if table.shape != shape or not np.isfinite(table).all():
        raise InvalidInput(
            f"{name} must be finite with shape {shape}, got shape {table.shape}"
            f"{'' if np.isfinite(table).all() else ' with NaN or infinite entries'}"
        )
