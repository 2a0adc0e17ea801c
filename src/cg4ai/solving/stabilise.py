"""Smoothed duals: members are proposed by prices that do not jump from solve to solve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array


class Stabiliser:
    """Mixes the duals of earlier solves into the present ones and spreads a part evenly.

    `smoothing` is the weight of the earlier ones, `uniform_share` the part that is spread over all
    rows of requirements; `guide` (rows seen so far,) is what was mixed last, and all the state.
    """

    def __init__(self, smoothing: float, uniform_share: float) -> None:
        self.smoothing = smoothing
        self.uniform_share = uniform_share
        self.guide = np.empty(0)

    def smoothed(self, duals: Array, ruled: NDArray[np.bool_]) -> Array:
        """Duals (m,) to propose members by; `ruled` (m,) marks the rows of requirements."""
        if self.smoothing == 0 and self.uniform_share == 0:
            return duals
        self.guide = self._mixed(duals)
        guide = self.guide.copy()
        if ruled.any():
            own = guide[ruled]
            guide[ruled] = (1 - self.uniform_share) * own + self.uniform_share * own.mean()
        return guide

    def _mixed(self, duals: Array) -> Array:
        if not self.guide.any():
            return duals  # the first prices are taken as they are
        earlier = np.zeros(len(duals))  # rows that are new had no price before
        earlier[: len(self.guide)] = self.guide
        return self.smoothing * earlier + (1 - self.smoothing) * duals
