"""Where a claim holds: a box, or a ball or polytope inside one, and what that adds to bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.cells import Cells
from cg4ai_checker.scale import UNDERFLOW, UNIT

HAIR = 1e-11  # by which a ball is enlarged, relative to its size, so that rounding loses no input


@dataclass(frozen=True)
class Region:
    """A box; with a centre a ball inside it, `norm` 2 or inf; with rows only `rows @ x <= most`."""

    lower: Array
    upper: Array
    centre: Array | None = None
    radius: float = math.inf
    norm: float = 2
    rows: Array | None = None
    most: Array | None = None

    @property
    def row_count(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    @property
    def wide_radius(self) -> float:
        """Of the ball, and a hair more than its size in float64 numbers can matter."""
        if self.centre is None:
            return math.inf
        return self.radius + HAIR * (self.radius + float(np.abs(self.centre).max()))

    def missed_by(self, cells: Cells) -> NDArray[np.bool_]:
        """(n,): cells that certainly hold no input of the region."""
        if self.rows is not None:
            return self._cut_off(cells)
        if self.centre is None:
            return np.zeros(len(cells), bool)
        below, above = cells.lower - self.centre, self.centre - cells.upper
        distance = np.maximum(np.maximum(below, above), 0.0)
        nearest = distance.max(axis=1)
        if self.norm != math.inf:
            nearest = length(distance)
        return np.asarray(nearest > self.wide_radius)

    def _cut_off(self, cells: Cells) -> NDArray[np.bool_]:
        """Farkas: with u >= 0 every input x of the region has u . (most - rows x) >= 0."""
        added = self.added(cells)
        if added is None:
            return np.zeros(len(cells), bool)
        largest = added.constant + np.einsum("nd,nd->n", np.abs(added.slope), cells.radius)
        size = self.rows.shape[1] + self.row_count + 64  # type: ignore[union-attr]
        return np.asarray(largest + UNIT * size * added.mass + UNDERFLOW < 0)

    def added(self, cells: Cells) -> Added | None:
        """`u . (most - rows x)`, at least 0 in the region, for the multipliers u of each cell."""
        if self.rows is None or self.most is None or cells.multipliers is None:
            return None
        u = cells.multipliers
        slope = -(u @ self.rows)
        constant = u @ self.most + np.einsum("nd,nd->n", slope, cells.centre)
        ends = np.maximum(np.abs(cells.lower), np.abs(cells.upper))
        mass = u @ np.abs(self.most) + np.einsum("nd,nd->n", u @ np.abs(self.rows), ends)
        return Added(constant, slope, mass)

    def highest(self, slope: Array, cells: Cells) -> Array | None:
        """(n,): what `slope . (x - centre of the cell)` is at most in the ball; None without one.

        Any x of the ball is its centre plus a step of at most the radius.
        """
        if self.centre is None or self.norm == math.inf:
            return None
        offset = self.centre - cells.centre
        step = self.wide_radius * length(slope)
        value = np.einsum("nd,nd->n", slope, offset) + step
        size = np.einsum("nd,nd->n", np.abs(slope), np.abs(offset)) + step
        return np.asarray(value + UNIT * (slope.shape[1] + 64) * size + UNDERFLOW)


@dataclass(frozen=True)
class Added:
    """`constant` (n,) + `slope` (n, d) . (x - centre of the cell); `mass` (n,) bounds its sums."""

    constant: Array
    slope: Array
    mass: Array


def length(vectors: Array) -> Array:
    """(n,) Euclidean norms, in units of the largest entry: squares neither overflow nor vanish."""
    largest = np.abs(vectors).max(axis=1)
    unit = np.where(largest > 0, largest, 1.0)
    return np.asarray(unit * np.sqrt(((vectors / unit[:, None]) ** 2).sum(axis=1)))
