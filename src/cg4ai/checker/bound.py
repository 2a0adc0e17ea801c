"""An upper bound of one rule on cells: `sum_k (constant_k + slope_k . x) y_k(x)` and its limits.

Where the limit is one number the bound is of the rule's value; else of its excess over the largest
of several `limit_p + tilt_p . x`, at most 0 where the rule is kept. Every member's outputs are put
between affine functions of delta = x - centre; times their affine coefficients that is a quadratic
in delta, and the quadratics of all members are added before anything is bounded. A second, plainer
bound multiplies intervals; the smaller one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cg4ai.checker.bands import Array
from cg4ai.checker.cells import Cells
from cg4ai.checker.linearised import Linearised, Part
from cg4ai.checker.region import Region
from cg4ai.checker.scale import UNDERFLOW, UNIT
from cg4ai.checker.shares import Outputs, Share, reach


@dataclass(frozen=True)
class Member:
    """Member `index` of a stack, with its weight in the mixture."""

    part: Part
    index: int
    weight: float


@dataclass(frozen=True)
class Coefficients:
    """One affine function of the input per output: `constant` (K,), `slope` (K, d)."""

    constant: Array
    slope: Array

    def padded(self, size: int) -> Coefficients:
        """Zero for the outputs that a member has beyond those of its block."""
        more = size - len(self.constant)
        return Coefficients(
            np.pad(self.constant, (0, more)), np.pad(self.slope, ((0, more), (0, 0)))
        )


@dataclass(frozen=True)
class Asked:
    """What a rule asks of the members of one stack in one block."""

    own: Coefficients
    groups: list[_Group]

    @property
    def settled(self) -> bool:
        """Whether all outputs of every softmax have one coefficient: what they are is no matter."""
        return bool(self.groups) and all(len(group.classes) == 1 for group in self.groups)


@dataclass(frozen=True)
class CellLimits:
    """One limit of each cell, `limit` (n,) + `tilt` (n, d) . x, as a sum of `terms` numbers.

    `limit_size` and `tilt_size` are the sums of the sizes of these.
    """

    limit: Array
    tilt: Array
    limit_size: Array
    tilt_size: Array
    terms: int


@dataclass(frozen=True)
class Limits:
    """A rule's value must not exceed all of `limit + tilt . x`: limit (p,), tilt (p, d)."""

    limit: Array
    tilt: Array

    def take(self, which: Outputs) -> CellLimits:
        """One of the limits for each cell, (n,)."""
        limit, tilt = self.limit[which], self.tilt[which]
        return CellLimits(limit, tilt, np.abs(limit), np.abs(tilt), 1)

    def mean(self, shares: Array) -> CellLimits:
        """The mean of all by shares (n, p), which the largest is never below."""
        share = shares / shares.sum(axis=1, keepdims=True)
        limit, tilt = share @ self.limit, share @ self.tilt
        sizes = share @ np.abs(self.limit), share @ np.abs(self.tilt)
        return CellLimits(limit, tilt, *sizes, 2 * len(self.limit))


@dataclass(frozen=True)
class RuleTerms:
    """A rule as the blocks that enter it: the coefficients of each block and its members.

    `limits` are None where the limit is one number, with which the bound is compared. `squares`:
    sums t of outputs, and -t, whose squares are part of the rule.
    """

    blocks: Sequence[tuple[Coefficients, Sequence[Member]]]
    limits: Limits | None = None
    squares: Sequence[tuple[RuleTerms, RuleTerms]] = ()

    @cached_property
    def members(self) -> list[tuple[Member, Asked]]:
        """All members that enter the rule; those of one stack and block are asked the same."""
        found = []
        for coefficients, members in self.blocks:
            asked: dict[int, Asked] = {}
            for member in members:
                part = member.part
                if id(part) not in asked:
                    own = coefficients.padded(part.output_size)
                    asked[id(part)] = Asked(own, _groups(own, part.groups))
                found.append((member, asked[id(part)]))
        return found

    @property
    def sloped(self) -> bool:
        """Whether a coefficient depends on the input."""
        return any(bool(own.slope.any()) for own, _ in self.blocks)

    def numbers_per_cell(self, input_size: int) -> int:
        """About how many float64 numbers are held at once while one cell is bounded."""
        parts = [member.part for member, _ in self.members]
        parts += [member.part for one, _ in self.squares for member, _ in one.members]
        largest = max((part.numbers_per_cell for part in parts), default=0)
        return largest + 32 * input_size + (6 * input_size**2 if self.sloped else 0)


@dataclass(frozen=True)
class Bounds:
    """`value` (n,) is the proven bound; `blame` (n, d) which dimensions loosen it."""

    value: Array
    blame: Array


def rule_bound(terms: RuleTerms, cells: Cells, region: Region | None = None) -> Bounds:
    """For every input of each cell, and of the region if given, the rule is at most this.

    Rounding is included.
    """
    box = Region(cells.lower.min(axis=0), cells.upper.max(axis=0)) if region is None else region
    total = _summed(terms, cells)
    for above, below in terms.squares:
        _add_square(total, _summed(above, cells), _summed(below, cells), box)
    return total.bounds(terms.limits, box)


def _summed(terms: RuleTerms, cells: Cells) -> _Total:
    """All members of a rule together."""
    total = _Total(cells, sloped=terms.sloped)
    for member, asked in terms.members:
        raw = None if asked.settled else member.part.on(member.index, cells)
        for group in asked.groups:
            _add_reference(total, member, group)
            if raw is not None:
                _add_shares(total, member, group, raw)
        if raw is not None and not asked.groups:
            _add_raw(total, member, asked.own, raw)
    return total


def _add_square(total: _Total, above: _Total, below: _Total, region: Region) -> None:
    """t^2 for a sum t of outputs that `above` bounds, and `below` minus it.

    For t between l and u, t^2 <= (l + u) t - l u, the chord. Rows of the region, whose multipliers
    were chosen for the whole rule, are left out of l and u.
    """
    plain = replace(region, rows=None, most=None)
    high = above.bounds(None, plain).value
    low = -below.bounds(None, plain).value
    rate, largest = low + high, np.maximum(np.abs(low), np.abs(high))
    total.add_times(np.maximum(rate, 0.0), above)
    total.add_times(np.maximum(-rate, 0.0), below)
    # the rounding of l + u, times t, and of l u
    start = -low * high + 8 * UNIT * largest**2
    total.constant += start
    total.plain += start
    total.mass = total.mass + largest**2


@dataclass(frozen=True)
class _Group:
    """The outputs of one softmax by coefficient: `outputs[i]` has that of `classes[which[i]]`.

    `classes` (c, 1 + d): constant and slope. The class `reference` is left out of sums.
    """

    outputs: Outputs
    classes: Array
    which: Outputs
    reference: int


def _groups(own: Coefficients, sizes: Sequence[int]) -> list[_Group]:
    rows = np.column_stack([own.constant, own.slope])
    groups, start = [], 0
    for size in sizes:
        outputs = np.arange(start, start + size)
        classes, which = np.unique(rows[outputs], axis=0, return_inverse=True)
        which = which.reshape(-1)
        zero = np.flatnonzero(~classes.any(axis=1))
        reference = int(zero[0]) if len(zero) else int(np.bincount(which).argmax())
        groups.append(_Group(outputs, classes, which, reference))
        start += size
    return groups


class _Total:
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

    def add_times(self, times: Array, other: _Total) -> None:
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


def _add_raw(total: _Total, member: Member, own: Coefficients, raw: Linearised) -> None:
    """Outputs as they are: coefficients at the centre together, their changes one by one."""
    weight = member.weight
    middle = own.constant + total.centre @ own.slope.T
    lines = raw.functional(middle)
    total.constant += weight * lines.high
    total.linear += weight * lines.slope
    total.plain += weight * (lines.high + reach(lines.slope, total.radius))
    total.blame += weight * lines.blame
    sizes = np.abs(own.constant) + np.abs(own.slope) @ total.largest_input
    mass = member.part.masses[-1][member.index]
    total.count(member, weight * float(sizes @ mass))
    # asked of the numbers themselves, for products of small ones are rounded to zero
    asked = (own.constant != 0) | own.slope.any(axis=1)
    total.nothing &= not (asked & (mass > 0)).any()
    for output in np.flatnonzero(own.slope.any(axis=1)).tolist():
        slope = weight * own.slope[output]
        unit = np.zeros_like(middle)
        unit[:, output] = 1.0
        one = raw.functional(unit)
        centre, half = 0.5 * (one.high + one.low), 0.5 * (one.high - one.low)
        total.constant += total.swing(slope) * half
        total.linear += centre[:, None] * slope
        total.add_square(slope, one.slope)
        largest = np.abs(centre) + half + reach(one.slope, total.radius)
        total.plain += total.swing(slope) * largest
        total.blame += total.swing(slope)[:, None] * one.blame


def _add_reference(total: _Total, member: Member, group: _Group) -> None:
    """A softmax sums to one: with a reference class r,

    `sum_j A_j P_j = A_r + sum over j != r of (A_j - A_r) P_j`; this adds A_r.
    """
    base = member.weight * group.classes[group.reference]
    value = base[0] + total.centre @ base[1:]
    total.constant += value
    total.linear += base[1:]
    total.plain += value + total.swing(base[1:])
    total.count(member, abs(base[0]) + float(np.abs(base[1:]) @ total.largest_input))
    total.nothing &= not group.classes.any()


def _add_shares(total: _Total, member: Member, group: _Group, raw: Linearised) -> None:
    """The other classes of a softmax: see `_add_reference`."""
    base = group.classes[group.reference]
    for number, own in enumerate(group.classes):
        if number == group.reference:
            continue
        share = Share(
            raw,
            on=group.outputs[group.which == number],
            off=group.outputs[group.which != number],
            size=member.part.output_size,
            radius=total.radius,
        )
        size = np.abs(own) + np.abs(base)
        total.count(member, member.weight * float(size[0] + size[1:] @ total.largest_input))
        _add_share(total, share, member.weight * (own - base))


def _add_share(total: _Total, share: Share, rate: Array) -> None:
    """`A(x) P(x)` with A = rate[0] + rate[1:] . x and P a share in [0, 1].

    A P <= A U where A >= 0 and A L where A <= 0; where A changes sign on the cell,
    A P <= A L + max A max(U - L).
    """
    slope = rate[1:]
    middle, swing = rate[0] + total.centre @ slope, total.swing(slope)
    positive = middle - swing >= 0
    lines = share.upper()
    if not positive.all():
        low = share.lower()
        gap = lines.high - low.low + reach(lines.slope - low.slope, total.radius)
        mixed = ~positive & (middle + swing > 0)
        total.constant += np.where(mixed, (middle + swing) * np.maximum(gap, 0.0), 0.0)
        value = np.where(positive, lines.high, low.low)
        tilt = np.where(positive[:, None], lines.slope, low.slope)
    else:
        value, tilt = lines.high, lines.slope
    total.constant += middle * value
    total.linear += middle[:, None] * tilt + value[:, None] * slope
    total.add_square(slope, tilt)
    total.blame += (np.abs(middle) + swing)[:, None] * lines.blame
    top = middle + swing
    total.plain += np.where(top > 0, top * share.most(), top * share.least())
