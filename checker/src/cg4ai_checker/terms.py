"""A rule as what it asks of the members of each block: coefficients, limits and squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cg4ai_checker.bands import Array
from cg4ai_checker.linearised import Part
from cg4ai_checker.shares import Outputs


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
class Group:
    """The outputs of one softmax by coefficient: `outputs[i]` has that of `classes[which[i]]`.

    `classes` (c, 1 + d): constant and slope. The class `reference` is left out of sums.
    """

    outputs: Outputs
    classes: Array
    which: Outputs
    reference: int


@dataclass(frozen=True)
class Asked:
    """What a rule asks of the members of one stack in one block."""

    own: Coefficients
    groups: list[Group]

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
    sums t of outputs, and -t, whose squares are part of the rule; `missed`: what these squares may
    fall short of the quadratic that the rule states.
    """

    blocks: Sequence[tuple[Coefficients, Sequence[Member]]]
    limits: Limits | None = None
    squares: Sequence[tuple[RuleTerms, RuleTerms]] = ()
    missed: float = 0.0

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


def _groups(own: Coefficients, sizes: Sequence[int]) -> list[Group]:
    rows = np.column_stack([own.constant, own.slope])
    groups, start = [], 0
    for size in sizes:
        outputs = np.arange(start, start + size)
        classes, which = np.unique(rows[outputs], axis=0, return_inverse=True)
        which = which.reshape(-1)
        zero = np.flatnonzero(~classes.any(axis=1))
        reference = int(zero[0]) if len(zero) else int(np.bincount(which).argmax())
        groups.append(Group(outputs, classes, which, reference))
        start += size
    return groups
