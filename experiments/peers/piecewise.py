"""HardNet's three problems: a function on [-2, 2] between bounds that change by pieces.

`inner` has 50 labelled points in [-1.2, 1.2] and must extrapolate, `full` has 50 in all of it; in
both each piece has one bound, below or above. `band` has 10 points and both bounds, which meet in
one piece. Measured on a grid of 401 points; bounds are searched at many more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cg4ai.data import Array

LOWER, UPPER = -2.0, 2.0
SEARCHED = 100_000
DRAW = 17  # the seed of the labelled points, as published
FAR = 20.0  # stands for no bound: far beyond all values
Name = Literal["inner", "full", "band"]
NAMES: tuple[Name, ...] = ("inner", "full", "band")


@dataclass(frozen=True, eq=False)
class Piecewise:
    """Labelled points `inputs` (n,), `labels` (n,), and bounds as functions of the input."""

    name: Name
    inputs: Array
    labels: Array
    target: Callable[[Array], Array]
    bounds: Callable[[Array], tuple[Array, Array]]

    @property
    def grid(self) -> Array:
        return np.linspace(LOWER, UPPER, 401)

    @property
    def room(self) -> float:
        """How far apart the bounds are at least, less a little; 0 where they meet."""
        low, high = self.bounds(self.grid)
        return float(0.9 * (high - low).min())

    def violation(self, points: Array, outputs: Array) -> float:
        low, high = self.bounds(points)
        return max(0.0, float((low - outputs).max()), float((outputs - high).max()))

    def searched(self, seed: int) -> Array:
        return np.random.default_rng([seed, 4]).uniform(LOWER, UPPER, SEARCHED)


def piecewise(name: Name, draw: int = DRAW) -> Piecewise:
    reach = 1.2 if name == "inner" else 2.0
    count = 10 if name == "band" else 50
    points = np.random.RandomState(draw).uniform(-reach, reach, count)
    target, bounds = (_band, _both_bounds) if name == "band" else (_curve, _one_bound)
    return Piecewise(name, points, target(points), target, bounds)


def _pieces(x: Array, *values: Array) -> Array:
    """One value for each of x <= -1, (-1, 0], (0, 1], and beyond."""
    return np.select([x <= -1, x <= 0, x <= 1], values[:3], values[3])


def _wave(x: Array) -> Array:
    return np.sin(np.pi * (x + 1) / 2)


def _arch(x: Array) -> Array:
    return 4 - 9 * (x - 2 / 3) ** 2


def _curve(x: Array) -> Array:
    return _pieces(x, -5 * _wave(x), np.zeros_like(x), _arch(x), 8 - 5 * x)


def _one_bound(x: Array) -> tuple[Array, Array]:
    """Below on the first and third piece, above on the others."""
    far = np.full_like(x, FAR)
    low = _pieces(x, 5 * _wave(x) ** 2, -far, _arch(x) * x, -far)
    high = _pieces(x, far, np.zeros_like(x), far, 7.5 - 4.5 * x)
    return low, high


def _band(x: Array) -> Array:
    beyond = 3 / np.maximum(x, 1) ** 2
    return _pieces(x, -5 * _wave(x), np.zeros_like(x), _arch(x), beyond) - 2


def _both_bounds(x: Array) -> tuple[Array, Array]:
    nothing, safe = np.zeros_like(x), np.maximum(x, 1)
    low = _pieces(x, 5 * _wave(x) ** 2, nothing, _arch(x) * x, 3 / safe**3) - 2
    high = _pieces(x, -3 * _wave(x), nothing - 2, 3 - 4 * (x - 0.5) ** 2, nothing + 2)
    return low, high
