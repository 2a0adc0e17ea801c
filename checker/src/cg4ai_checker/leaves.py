"""What a rule is at most for sums of trees, from the boxes of their leaves: no cell is halved.

On a leaf outputs are constant, so a rule whose coefficients are affine in the input is affine there
and largest at a corner of the leaf's box. Where inputs are at least 0 and all else is, too, as of
loads on links, that is the top corner. The sum of what single trees are at most bounds their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai_checker.bands import Array
from cg4ai_checker.linearised import ConstantPart, TreePart
from cg4ai_checker.region import Region
from cg4ai_checker.scale import UNDERFLOW, UNIT
from cg4ai_checker.terms import Coefficients, Member, RuleTerms


@dataclass(frozen=True)
class Boxes:
    """The leaves of one tree that inputs can reach: ends (n, d) of their boxes, outputs (n, K)."""

    lower: Array
    upper: Array
    values: Array


class LeafBounds:
    """Bounds of rules over a box; the boxes of leaves are found once for all rules."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._known: dict[tuple[int, int], list[Boxes]] = {}

    def bound(self, terms: RuleTerms) -> float | None:
        """At least the rule's value at every input, rounding included; None: not of this kind."""
        plain = self._region.centre is None and self._region.rows is None
        members = [(member, asked.own) for member, asked in terms.members]
        if not plain or terms.limits is not None or terms.squares or terms.missed:
            return None
        if not all(_piecewise_constant(member) for member, _ in members):
            return None
        size = len(self._region.lower)
        value, mass, count = 0.0, 0.0, 64 + size * size
        for member, own in members:
            for boxes in self._boxes(member):
                most, largest = _highest(boxes, own)
                value += member.weight * most
                mass += member.weight * largest
            count += member.part.terms + size + 8
        return float(value + UNIT * count * mass + UNDERFLOW)

    @property
    def count(self) -> int:
        """Leaves of all trees looked at so far, what holds everywhere not among them."""
        return sum(len(boxes.lower) for found in self._known.values() for boxes in found[1:])

    def _boxes(self, member: Member) -> list[Boxes]:
        """For each tree of a member its leaves; one box more for what it adds everywhere."""
        part, region = member.part, self._region
        key = (id(part), member.index)
        if key not in self._known:
            everywhere = (region.lower[None], region.upper[None])
            if isinstance(part, TreePart):
                found = [
                    _leaves(part, member.index, tree, region) for tree in range(part.value.shape[1])
                ]
                self._known[key] = [Boxes(*everywhere, part.initial[member.index][None]), *found]
            elif isinstance(part, ConstantPart):
                self._known[key] = [Boxes(*everywhere, part.values[member.index][None])]
        return self._known[key]


def _piecewise_constant(member: Member) -> bool:
    """Constants, and trees that compare inputs as they are and add up outputs as they are."""
    part = member.part
    if isinstance(part, TreePart):
        return not part.groups and not part.single
    return isinstance(part, ConstantPart)


def _leaves(part: TreePart, member: int, tree: int, region: Region) -> Boxes:
    """Closed boxes: where an input is above a threshold, the threshold itself is in the box, too.

    A leaf that no input reaches has none; one that two nodes lead to has a box around both.
    """
    at = (member, tree)
    left, right = part.left[at], part.right[at]
    feature, threshold = part.feature[at], part.threshold[at]
    lower = np.full((len(left), len(region.lower)), np.inf)
    upper = -lower
    lower[0], upper[0] = region.lower, region.upper
    inner = np.flatnonzero(left != np.arange(len(left)))
    for node in inner.tolist():  # children come after all their parents
        column = feature[node]
        for child, is_left in ((left[node], True), (right[node], False)):
            low, high = lower[node].copy(), upper[node].copy()
            if is_left:
                high[column] = min(high[column], threshold[node])
            else:
                low[column] = max(low[column], threshold[node])
            if (low <= high).all():
                lower[child] = np.minimum(lower[child], low)
                upper[child] = np.maximum(upper[child], high)
    reached = np.asarray((lower <= upper).all(axis=1))
    reached[inner] = False
    return Boxes(lower[reached], upper[reached], part.factor[member] * part.value[at][reached])


def _highest(boxes: Boxes, own: Coefficients) -> tuple[float, float]:
    """The most that the boxes add to a rule, and the size of the sums that it is made of."""
    slope = boxes.values @ own.slope
    ends = np.maximum(slope * boxes.lower, slope * boxes.upper).sum(axis=1)
    sizes = np.maximum(np.abs(boxes.lower), np.abs(boxes.upper))
    values = np.abs(boxes.values)
    mass = values @ np.abs(own.constant) + ((values @ np.abs(own.slope)) * sizes).sum(axis=1)
    return float((boxes.values @ own.constant + ends).max()), float(mass.max())
