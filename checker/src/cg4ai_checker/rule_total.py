"""The sum of all that members add to a rule: a quadratic in delta = x - centre, and its bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai_checker.bands import Array
from cg4ai_checker.cells import Cells
from cg4ai_checker.region import Region
from cg4ai_checker.scale import UNDERFLOW, UNIT
from cg4ai_checker.shares import Outputs, reach
from cg4ai_checker.terms import CellLimits, Limits, Member


@dataclass(frozen=True)
class Bounds:
    """`value` (n,) is the proven bound; `blame` (n, d) which dimensions loosen it."""

    value: Array
    blame: Array


class Total:
    """The sum so far: a quadratic in delta, a plain number, and the size of what was added."""

    def __init__(self, cells: Cells, *, sloped: bool) -> None:
        n, size = cells.lower.shape
        self.cells = cells
        self.centre, self.radius = cells.centre, cells.radius
        self.largest_input = np.maximum(np.abs(cells.lower), np.abs(cells.upper)).max(axis=0)
        self.constant = np.zeros(n)
        self.linear = np.zeros((n, size))
        # without coefficients that depend on the input there are no squares
        self.quadratic = np.zeros((n, size, size)) if sloped else None
        self.plain = np.zeros(n)
        self.mass: Array | float = 0.0
        self.lost: Array | float = 1.0  # how often more than underflow can take is added
        self.terms = size * size
        self.nothing = True  # whether all that was added is zero, whatever the input
        self.blame = np.zeros((n, size))

    def swing(self, slope: Array) -> Array:
        """The most that `slope . delta` can be, for one slope (d,): (n,)."""
        return self.radius @ np.abs(slope)

    def count(self, member: Member, size: float) -> None:
        """Note that numbers up to `size` were added.

        Inference may add what members add in one sum: all hidden units of all of them with their
        weights multiplied in, or all probabilities of a softmax.
        """
        self.mass += size
        self.terms += member.part.terms + self.linear.shape[1] + 8

    def add_times(self, times: Array, other: Total) -> None:
        """`times` (n,), each at least 0, of another sum that does not depend on the input twice."""
        self.constant += times * other.constant
        self.linear += times[:, None] * other.linear
        self.plain += times * other.plain
        self.blame += times[:, None] * other.blame
        self.mass = self.mass + times * other.mass
        self.terms += other.terms
        self.nothing &= other.nothing
        self.lost = self.lost + times

    def add_square(self, slope: Array, other: Array) -> None:
        """The quadratic `(slope . delta) (other . delta)`, slope (d,) and other (n, d)."""
        if self.quadratic is None:
            return
        for dimension in np.flatnonzero(slope).tolist():
            self.quadratic[:, dimension] += slope[dimension] * other

    def bounds(self, limits: Limits | None, region: Region) -> Bounds:
        """Of the value, or of its excess over the limits."""
        if limits is None:
            value = self._above(slice(None), None, region)
        elif self.cells.shares is not None:
            value = self._above(slice(None), limits.mean(self.cells.shares), region)
        else:
            value = np.full(len(self.centre), np.inf)
        if limits is not None:
            # where that is not enough, one limit after the other, the highest at the centre first
            order = np.argsort(-(limits.limit + self.centre @ limits.tilt.T), axis=1, kind="stable")
            for place in range(order.shape[1]):
                left = np.flatnonzero(~(value <= 0))
                if not len(left):
                    break
                one = limits.take(order[left, place])
                value[left] = np.minimum(value[left], self._above(left, one, region))
        # steep dimensions loosen nothing by themselves, but halving them pays in the end
        steep = 0.1 * np.abs(self.linear) * self.radius
        bends = 0.0
        if self.quadratic is not None:
            both = np.abs(self.quadratic + self.quadratic.transpose(0, 2, 1))
            bends = np.einsum("nij,nj->ni", both, self.radius) * self.radius
        return Bounds(value, self.blame + bends + steep)

    def _above(self, which: Outputs | slice, limit: CellLimits | None, region: Region) -> Array:
        """The bound on some of the cells, minus a limit of each if given."""
        cells, radius = self.cells.take(which), self.radius[which]
        constant, linear, plain = self.constant[which], self.linear[which], self.plain[which]
        every = np.ones(len(self.centre))
        mass, lost = (self.mass * every)[which], (self.lost * every)[which]
        underflow = not self.nothing
        slope, terms = np.zeros_like(linear), self.terms + region.row_count + 64
        if limit is not None:
            start = -limit.limit - np.einsum("nd,nd->n", limit.tilt, cells.centre)
            constant, plain, slope = constant + start, plain + start, slope - limit.tilt
            mass, underflow = mass + limit.limit_size + limit.tilt_size @ self.largest_input, True
            terms += limit.terms
        added = region.added(cells)
        if added is not None:
            constant, plain = constant + added.constant, plain + added.constant
            mass, slope, underflow = mass + added.mass, slope + added.slope, True
        linear, plain = linear + slope, plain + reach(slope, radius)
        best = np.minimum(self._quadratic(which, constant, linear, region), plain)
        return np.asarray(best + UNIT * terms * mass + (UNDERFLOW * lost if underflow else 0.0))

    def _quadratic(
        self, which: Outputs | slice, constant: Array, linear: Array, region: Region
    ) -> Array:
        """The least of what the quadratic is bounded by: over the box of a cell, over the ball."""
        radius = self.radius[which]
        highest = region.highest(linear, self.cells.take(which))
        if self.quadratic is None:
            swing = reach(linear, radius)
            return np.asarray(constant + (swing if highest is None else np.minimum(swing, highest)))
        quadratic = self.quadratic[which]
        value = largest_value(constant, linear, quadratic=quadratic, radius=radius)
        if highest is None:
            return value
        flat = largest_value(constant, np.zeros_like(linear), quadratic=quadratic, radius=radius)
        return np.asarray(np.minimum(value, flat + highest))


def largest_value(constant: Array, linear: Array, *, quadratic: Array, radius: Array) -> Array:
    """(n,): at least the maximum of a quadratic over |delta| <= radius.

    A dimension in which the slope keeps its sign all over the cell is set to its better end,
    twice over; the rest is bounded term by term, each dimension alone being solved exactly.
    Shapes: constant (n,), linear and radius (n, d), quadratic (n, d, d).
    """
    both = quadratic + quadratic.transpose(0, 2, 1)
    size = np.abs(both)
    square = 0.5 * np.einsum("nii->ni", both)
    for _ in range(2):
        # at most how far the slope in each dimension moves away from `linear`
        moves = np.einsum("nij,nj->ni", size, radius)
        steady = np.abs(linear) >= moves
        delta = np.where(steady, np.sign(linear) * radius, 0.0)
        pull = np.einsum("nij,nj->ni", both, delta)
        constant = constant + np.einsum("ni,ni->n", linear + 0.5 * pull, delta)
        linear, radius = linear + pull, np.where(steady, 0.0, radius)
    pairs = np.einsum("ni,nij,nj->n", radius, size, radius)
    pairs = 0.5 * (pairs - 2 * np.einsum("ni,ni->n", np.abs(square), radius**2))
    ends = np.abs(linear) * radius + square * radius**2
    # a square that bends down has its vertex inside where |linear| < 2 |square| radius
    inside = (square < 0) & (np.abs(linear) < -2 * square * radius)
    vertex = linear**2 / np.where(inside, -4 * square, 1.0)
    return np.asarray(constant + pairs + np.where(inside, vertex, ends).sum(axis=1))
