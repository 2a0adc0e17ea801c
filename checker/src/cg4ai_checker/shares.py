"""Shares of a softmax on cells: the probability of some of its outputs between affine functions.

The share of the outputs `on` is sigma(g), g = LSE_on - LSE_off, where LSE is the logarithm of the
sum of exponentials. Each LSE is built up output by output from the band of softplus.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker import bands
from cg4ai_checker.bands import Array
from cg4ai_checker.linearised import Linearised, Lines

Outputs = NDArray[np.intp]


def reach(slope: Array, radius: Array) -> Array:
    """The most that `slope . delta` can be on each cell: slope and radius (n, d) -> (n,)."""
    most: Array = np.einsum("nd,nd->n", np.abs(slope), radius)
    return most


@dataclass(frozen=True)
class _Mix:
    """`weights . raw + floor <= LSE(raw) <= weights . raw + ceiling`; weights (n, K), rows of 1."""

    weights: Array
    floor: Array
    ceiling: Array


def _log_sum_exp(raw: Linearised, outputs: Outputs, *, size: int, radius: Array) -> _Mix:
    """LSE of some of `size` outputs: LSE(u, v) = v + softplus(u - v), one more v at a time."""
    n = len(radius)
    weights = np.zeros((n, size))
    weights[:, outputs[0]] = 1.0
    floor = ceiling = np.zeros(n)
    for output in outputs[1:].tolist():
        difference = weights.copy()
        difference[:, output] -= 1.0
        lines = raw.functional(difference)
        spread = reach(lines.slope, radius)
        band = bands.softplus(lines.low - spread + floor, lines.high + spread + ceiling)
        weights *= band.slope[:, None]
        weights[:, output] = 1.0 - band.slope
        floor = band.slope * floor + band.floor
        ceiling = band.slope * ceiling + band.ceiling
    return _Mix(weights, floor, ceiling)


class Share:
    """The probability of `on` within the softmax over `on` and `off`, on n cells."""

    def __init__(
        self, raw: Linearised, *, on: Outputs, off: Outputs, size: int, radius: Array
    ) -> None:
        top = _log_sum_exp(raw, on, size=size, radius=radius)
        bottom = _log_sum_exp(raw, off, size=size, radius=radius)
        lines = raw.functional(top.weights - bottom.weights)
        self._slope = lines.slope
        self._reach = reach(lines.slope, radius)
        self._high = lines.high + top.ceiling - bottom.floor
        self._low = lines.low + top.floor - bottom.ceiling
        by_slope = np.abs(lines.slope) * radius / np.maximum(self._reach, 1e-300)[:, None]
        bends = top.ceiling - top.floor + bottom.ceiling - bottom.floor
        self._blame = lines.blame + bends[:, None] * by_slope
        self._by_slope = by_slope

    def upper(self) -> Lines:
        """An affine function that the share stays below (`high`; `low` is the same)."""
        band = bands.sigmoid(self._high - self._reach, self._high + self._reach)
        value = band.slope * self._high + band.ceiling
        return self._lines(value, band)

    def lower(self) -> Lines:
        """An affine function that the share stays above."""
        band = bands.sigmoid(self._low - self._reach, self._low + self._reach)
        value = band.slope * self._low + band.floor
        return self._lines(value, band)

    def _lines(self, value: Array, band: bands.Band) -> Lines:
        slope = band.slope[:, None]
        bend = (band.ceiling - band.floor)[:, None]
        return Lines(value, value, slope * self._slope, slope * self._blame + bend * self._by_slope)

    def most(self) -> Array:
        """The largest the share can be on each cell, (n,)."""
        top = 0.5 + 0.5 * np.tanh(0.5 * (self._high + self._reach))
        return np.minimum(top + bands.ROUNDING, 1.0)

    def least(self) -> Array:
        bottom = 0.5 + 0.5 * np.tanh(0.5 * (self._low - self._reach))
        return np.maximum(bottom - bands.ROUNDING, 0.0)
