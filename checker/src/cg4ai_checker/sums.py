"""Groups of outputs that sum to one at every input, as can be seen in how members are built.

A softmax over a group sums to one, and so do constants that are shares, and mixtures of such
members, whose weights sum to one. Of a router these are the paths of a demand: all of it is routed.
Rounding aside: `WITHIN` covers that, and weights and shares that miss one by a hair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.errors import Rejected
from cg4ai_checker.linearised import ConstantPart, NetworkPart, Part, TreePart

if TYPE_CHECKING:
    from cg4ai_checker.claim import Claim

Positions = NDArray[np.int64]
SHARES = 1e-9  # how far from one constant shares may sum
WITHIN = 1e-8
NOTHING = -50.0  # a logit so far below another has a share of less than 2e-22


@dataclass(frozen=True)
class Sums:
    """Groups of outputs (numbers, ascending) of what the certificate holds."""

    groups: list[Positions]

    def words(self, shield: str | None) -> list[str]:
        """What is seen of them, for the verdict."""
        count = len(self.groups)
        named = f"each of {count} groups, {sum(map(len, self.groups))} outputs in all,"
        if shield is None:
            return [f"The outputs of {named} sum to 1 at every input (within {WITHIN:g})."]
        return [
            f"The anchor's outputs of {named} sum to 1 (within {WITHIN:g});",
            "so do predictions, if those before the shield do and it moves each group as one.",
        ]


def checked_sums(stated: Positions | None, claim: Claim) -> Sums | None:
    """The groups by the number (r,) of each output's own, -1: none; Rejected where one is not seen.

    None where nothing is stated, as in certificates of earlier versions.
    """
    if stated is None:
        return None
    numbers = np.unique(stated)
    if not len(numbers) or numbers[-1] < 0 or not _without_gaps(numbers):
        raise Rejected("groups of outputs that sum to one are numbered from 0 on, others have -1")
    order = np.argsort(stated, kind="stable")
    groups = np.split(order, np.searchsorted(stated[order], np.arange(numbers[-1] + 1)))[1:]
    block_of = np.empty(len(stated), np.int64)
    place_of = np.empty(len(stated), np.int64)
    for number, block in enumerate(claim.blocks):
        block_of[block], place_of[block] = number, np.arange(len(block))
    places: list[list[Positions]] = [[] for _ in claim.blocks]
    for number, group in enumerate(groups):
        if (block_of[group] != block_of[group[0]]).any():
            raise Rejected(f"group {number} of outputs is spread over several blocks")
        places[block_of[group[0]]].append(np.sort(place_of[group]))
    for number, (own, members) in enumerate(zip(places, claim.members, strict=True)):
        if not all(shows_sums(member.part, member.index, own) for member in members):
            raise Rejected(
                f"a member of block {number} is not built so that its outputs sum to one in the "
                "groups that the certificate states"
            )
    return Sums(groups)


def _without_gaps(numbers: Positions) -> bool:
    return bool(numbers[0] >= -1 and (np.diff(numbers) == 1).all() and numbers[0] <= 0)


def shows_sums(part: Part, member: int, groups: Sequence[Positions]) -> bool:
    """Whether it is seen that a member's outputs sum to one in all of these groups of positions."""
    if not groups:
        return True
    if isinstance(part, ConstantPart):
        return all(abs(part.values[member, own].sum() - 1) <= SHARES for own in groups)
    if part.groups:
        ends = np.cumsum([0, *part.groups]).tolist()
        ranges = [(first, last) for first, last in pairwise(ends)]
        return all(_fills(part, member, own, ranges) for own in groups)
    return isinstance(part, TreePart) and _leaves_sum(part, member, groups)


def _fills(part: Part, member: int, own: Positions, ranges: list[tuple[int, int]]) -> bool:
    """Whether a group is one of the ranges under a softmax, but for outputs that have no share."""
    (around,) = [one for one in ranges if one[0] <= own[0] < one[1]]
    others = np.setdiff1d(np.arange(*around), own)
    if own[-1] >= around[1]:
        return False
    return not len(others) or (
        isinstance(part, NetworkPart) and _shut(part, member, others, int(own[0]))
    )


def _shut(part: NetworkPart, member: int, outputs: Positions, beside: int) -> bool:
    """Whether logits are constant, and so far below another's that a softmax leaves nothing."""
    constant = not part.weights[-1][member, outputs].any() and (
        part.skip is None or not part.skip[member, outputs].any()
    )
    highest = part.biases[-1][member, outputs].max() + part.masses[-1][member, beside]
    return bool(constant and highest <= NOTHING)


def _leaves_sum(part: TreePart, member: int, groups: Sequence[Positions]) -> bool:
    """Whether all leaves of each tree add the same to a group, and trees add up to one."""
    low = np.array([part.initial[member, own].sum() for own in groups])
    high = low.copy()
    for tree in range(part.value.shape[1]):
        leaves = part.value[member, tree][
            _reached(part.left[member, tree], part.right[member, tree])
        ]
        sums = part.factor[member] * np.array([leaves[:, own].sum(1) for own in groups])
        low, high = low + sums.min(1), high + sums.max(1)
    return bool((np.abs(low - 1) <= SHARES).all() and (np.abs(high - 1) <= SHARES).all())


def _reached(left: Positions, right: Positions) -> Positions:
    """The leaves of one tree that some path leads to; children come after their parents."""
    reached = np.zeros(len(left), bool)
    reached[0] = True
    inner = left != np.arange(len(left))
    for node in np.flatnonzero(inner).tolist():
        if reached[node]:
            reached[left[node]] = reached[right[node]] = True
    return np.flatnonzero(reached & ~inner)
