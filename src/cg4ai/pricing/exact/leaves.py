"""Best leaf values of piecewise-constant members in closed form, many leaves at a time.

A leaf gathers what its inputs contribute: `weight` and `moment` of the loss, `price` of the rows.
Each solver returns values (leaves, q), their costs and lower bounds (leaves,).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cg4ai.records import Array


@dataclass(frozen=True, slots=True)
class LeafSolution:
    """`lower_bound` is proven up to rounding: no admissible leaf value costs less."""

    values: Array
    cost: Array
    lower_bound: Array


class Leaves(Protocol):
    """Solves leaves from sums over their inputs of per-input statistics."""

    def solve(self, statistics: Array) -> LeafSolution:
        """`statistics` (leaves, s) -> the best value of each leaf."""
        ...

    def magnitude(self, totals: Array) -> float:
        """A bound on the absolute terms summed into any leaf's cost, for rounding margins."""
        ...


@dataclass(frozen=True, slots=True)
class BoxLeaves:
    """Squared loss or none: `weight v^2 - 2 moment v + price v` per output, low <= v <= high.

    Statistics (leaves, 1 + 2 q): weight, moments, prices.
    """

    low: Array
    high: Array

    def solve(self, statistics: Array) -> LeafSolution:
        count = len(self.low)
        weight = np.maximum(statistics[:, :1], 0.0)
        linear = statistics[:, 1 + count :] - 2 * statistics[:, 1 : 1 + count]
        corner = np.where(linear > 0, self.low, self.high)
        inner = -linear / (2 * np.where(weight > 0, weight, 1.0))
        values = np.where(weight > 0, np.clip(inner, self.low, self.high), corner)
        cost = (weight * values**2 + linear * values).sum(1)
        return LeafSolution(values, cost, cost)

    def magnitude(self, totals: Array) -> float:
        largest = float(np.maximum(np.abs(self.low), np.abs(self.high)).max())
        return float(totals[0]) * largest**2 * len(self.low) + float(totals[1:].sum()) * 2 * largest


@dataclass(frozen=True, slots=True)
class SimplexLeaves:
    """Log loss or none: `sum_c -count_c log p_c + price_c p_c`, p in the simplex, p_c >= floor.

    Statistics (leaves, 2 q): counts, prices. The multiplier nu of `sum p = 1` is found by
    bisection; the Lagrangian at any nu is a lower bound.
    """

    size: int
    floor: float

    def solve(self, statistics: Array) -> LeafSolution:
        counts = np.maximum(statistics[:, : self.size], 0.0)
        prices = statistics[:, self.size :]
        if not counts.any():
            return self._linear(prices)
        low = -prices.min(1)  # one class at its cap: the sum is at least 1
        high = (counts / self.floor - prices).max(1)  # all classes at the floor: at most 1
        for _ in range(64):
            middle = (low + high) / 2
            above = self._values(counts, prices, middle).sum(1) > 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        over, under = self._values(counts, prices, low), self._values(counts, prices, high)
        excess, lack = over.sum(1) - 1, 1 - under.sum(1)
        gap = excess + lack
        share = np.where(gap > 0, excess / np.where(gap > 0, gap, 1.0), 0.0)[:, None]
        values = (1 - share) * over + share * under
        values /= values.sum(1, keepdims=True)
        cost = (-counts * np.log(values) + prices * values).sum(1)
        bound = np.maximum(
            self._lagrangian(counts, prices, over, low),
            self._lagrangian(counts, prices, under, high),
        )
        return LeafSolution(values, cost, np.minimum(bound, cost))

    def _values(self, counts: Array, prices: Array, multiplier: Array) -> Array:
        """Minimiser over [floor, cap] of each class's Lagrangian term."""
        slope = prices + multiplier[:, None]
        cap = 1 - (self.size - 1) * self.floor
        inner = counts / np.where(slope > 0, slope, 1.0)
        return np.asarray(np.where(slope > 0, np.clip(inner, self.floor, cap), cap))

    @staticmethod
    def _lagrangian(counts: Array, prices: Array, values: Array, multiplier: Array) -> Array:
        slope = prices + multiplier[:, None]
        return np.asarray((-counts * np.log(values) + slope * values).sum(1) - multiplier)

    def _linear(self, prices: Array) -> LeafSolution:
        values = np.full_like(prices, self.floor)
        values[np.arange(len(prices)), prices.argmin(1)] += 1 - self.size * self.floor
        cost = (prices * values).sum(1)
        return LeafSolution(values, cost, cost)

    def magnitude(self, totals: Array) -> float:
        counts, prices = totals[: self.size], totals[self.size :]
        return float(counts.sum() * -np.log(self.floor) / self.floor + prices.sum())
