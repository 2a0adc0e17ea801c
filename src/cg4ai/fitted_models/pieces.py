"""Sums of trees as pieces: what a step over one threshold adds, and values themselves, on boxes.

A sum of trees changes with a feature at thresholds only, and there only by those trees that ask
for just this one. So a rule about steps is about few trees at a time, whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray

MOST_PIECES = 2**20  # of one step
Ends = dict[int, tuple[float, float]]  # by feature: above the first, up to the second


@dataclass(frozen=True, eq=False)
class Pieces:
    """Boxes (P, m) over the features `used` (m,), above `lower`, up to `upper`; values (P,).

    `owner` (P,) rises and says whose piece each is; those of one owner divide the region `low`,
    `high` (m,). `exact` are the values without rounding.
    """

    used: IntArray
    lower: Array
    upper: Array
    value: Array
    owner: IntArray
    exact: list[Fraction]
    low: Array
    high: Array

    @property
    def owners(self) -> int:
        return int(self.owner[-1]) + 1 if len(self.owner) else 0


class TreeSum:
    """The trees of one member over a region, as inputs of their precision meet the thresholds."""

    def __init__(self, members: TreeMembers, lower: Array, upper: Array) -> None:
        if members.subset is not None:
            raise InvalidInput(
                "trees that ask for sets of categories are not audited; encode categories before "
                "the model, by OneHotEncoder",
                code="unsupported",
            )
        self.members = members
        self.single = members.single_precision
        self.feature, self.left, self.right = (
            one[0].cpu().numpy() for one in (members.feature, members.left, members.right)
        )
        self.value, self.initial = members.value[0].numpy(), members.initial[0].numpy()
        self.factor = float(members.factor[0])
        threshold = members.threshold[0].numpy()
        self.threshold = round_down(threshold) if self.single else threshold
        self.lower, self.upper = lower, upper
        if self.single:
            self.lower, self.upper = to_single(lower), to_single(upper)
        self.inner = self.left != np.arange(self.left.shape[1])
        self._asking: dict[int, dict[float, list[tuple[int, int]]]] = {}
        self._parents: list[dict[int, int]] = []
        self._values: dict[bytes, dict[tuple[int, int], Fraction]] = {}
        for tree in range(len(self.feature)):
            parents: dict[int, int] = {}
            for node in np.flatnonzero(self.inner[tree]).tolist():
                name, cut = int(self.feature[tree, node]), float(self.threshold[tree, node])
                self._asking.setdefault(name, {}).setdefault(cut, []).append((tree, node))
                parents[int(self.left[tree, node])] = parents[int(self.right[tree, node])] = node
            self._parents.append(parents)
        # plain lists are read several times faster than arrays, one number at a time
        self._nodes = [
            list(zip(*(one[tree].tolist() for one in self._columns()), strict=True))
            for tree in range(len(self.feature))
        ]

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        return self.inner, self.feature, self.threshold, self.left, self.right

    @property
    def count(self) -> int:
        return len(self.feature)

    def thresholds(self, feature: int) -> list[float]:
        """Those that inputs of the region lie on both sides of, rising."""
        low, high = float(self.lower[feature]), float(self.upper[feature])
        return sorted(one for one in self._asking.get(feature, {}) if low <= one < high)

    def find_step_pieces(
        self, functional: Array, feature: int, threshold: float, sign: int
    ) -> Pieces:
        """What a step from the threshold to just above it adds to `sign * functional . values`."""
        above: dict[int, set[int]] = {}
        for tree, node in self._asking[feature][threshold]:
            own, parents = above.setdefault(tree, set()), self._parents[tree]
            at: int | None = node
            while at is not None and at not in own:
                own.add(at)
                at = parents.get(at)
        boxes: list[Ends] = []
        owner: list[int] = []
        exact: list[Fraction] = []
        for number, (tree, own) in enumerate(above.items()):
            for one, other, ends in self._walk_step(tree, own, feature, threshold):
                boxes.append(ends)
                owner.append(number)
                change = Fraction(0)
                if one != other:
                    change = self._exact(functional, tree, other) - self._exact(
                        functional, tree, one
                    )
                exact.append(sign * change)
        return self._arranged(boxes, owner, exact)

    def find_value_pieces(self, functional: Array) -> Pieces:
        """What each tree adds to `functional . values`, before `factor` and `initial`."""
        boxes: list[Ends] = []
        owner: list[int] = []
        exact: list[Fraction] = []
        for tree in range(self.count):
            for leaf, ends in self._walk(tree):
                boxes.append(ends)
                owner.append(tree)
                exact.append(self._exact(functional, tree, leaf))
        return self._arranged(boxes, owner, exact)

    def compute_target(self, functional: Array, bound: float) -> Fraction:
        """What pieces of values must add up to at least, for `functional . outputs >= bound`."""
        start = sum(
            (
                Fraction(float(w)) * Fraction(float(v))
                for w, v in zip(functional, self.initial, strict=True)
            ),
            Fraction(0),
        )
        return (Fraction(float(bound)) - start) / Fraction(self.factor)

    def _exact(self, functional: Array, tree: int, leaf: int) -> Fraction:
        known = self._values.setdefault(functional.tobytes(), {})
        if (tree, leaf) not in known:
            known[tree, leaf] = sum(
                (
                    Fraction(float(w)) * Fraction(v)
                    for w, v in zip(functional, self.value[tree, leaf].tolist(), strict=True)
                    if w
                ),
                Fraction(0),
            )
        return known[tree, leaf]

    def _sides(self, ends: Ends, feature: int, cut: float) -> tuple[Ends | None, Ends | None]:
        known = ends.get(feature)
        if known is None:
            low, high = float(np.nextafter(self.lower[feature], -np.inf)), self.upper[feature]
        else:
            low, high = known
        left = {**ends, feature: (low, min(float(high), cut))} if cut > low else None
        right = {**ends, feature: (max(low, cut), float(high))} if cut < high else None
        return left, right

    def _walk(self, tree: int) -> list[tuple[int, Ends]]:
        """Leaves that inputs of the region reach, with their boxes."""
        found: list[tuple[int, Ends]] = []
        waiting: list[tuple[int, Ends]] = [(0, {})]
        nodes = self._nodes[tree]
        while waiting:
            at, ends = waiting.pop()
            inner, feature, cut, left, right = nodes[at]
            if not inner:
                found.append((at, ends))
                continue
            below, above = self._sides(ends, feature, cut)
            waiting += [(right, above)] if above is not None else []
            waiting += [(left, below)] if below is not None else []
        return found

    def _walk_step(
        self, tree: int, own: set[int], feature: int, threshold: float
    ) -> list[tuple[int, int, Ends]]:
        """Pairs of leaves, at the threshold and just above it, or twice a node without a change."""
        found: list[tuple[int, int, Ends]] = []
        waiting: list[tuple[int, int, Ends]] = [(0, 0, {})]
        nodes = self._nodes[tree]
        while waiting:
            one, other, ends = waiting.pop()
            if one == other and one not in own:
                found.append((one, one, ends))
                continue
            at = one if nodes[one][0] else other
            inner, asked, cut, left, right = nodes[at]
            if not inner:
                found.append((one, other, ends))
                if len(found) > MOST_PIECES:
                    raise InvalidInput(
                        f"a step of feature {feature} is made of more than {MOST_PIECES} pieces; "
                        "audit a smaller region, or a model of smaller trees",
                        code="memory",
                    )
                continue
            if asked == feature:
                first = left if threshold <= cut else right
                second = left if threshold < cut else right
                waiting.append(
                    (first if one == at else one, second if other == at else other, ends)
                )
                continue
            for child, side in zip((left, right), self._sides(ends, asked, cut), strict=True):
                if side is not None:
                    waiting.append(
                        (child if one == at else one, child if other == at else other, side)
                    )
        return found

    def _arranged(
        self, boxes: Sequence[Ends], owner: Sequence[int], exact: list[Fraction]
    ) -> Pieces:
        used = np.array(sorted({feature for ends in boxes for feature in ends}), np.int64)
        place = {feature: column for column, feature in enumerate(used.tolist())}
        low, high = np.nextafter(self.lower[used], -np.inf), self.upper[used]
        lower, upper = np.tile(low, (len(boxes), 1)), np.tile(high, (len(boxes), 1))
        for number, ends in enumerate(boxes):
            for feature, (one, other) in ends.items():
                lower[number, place[feature]], upper[number, place[feature]] = one, other
        value = np.array([float(one) for one in exact])
        return Pieces(used, lower, upper, value, np.array(owner, np.int64), exact, low, high)


def pick_number(low: float, high: float) -> float:
    """A number above `low` and up to `high`: the upper end, or one just above the lower."""
    if np.isfinite(high):
        return high
    return low + max(1.0, abs(low)) if np.isfinite(low) else 0.0


def to_single(array: Array) -> Array:
    """Numbers as float32 has them."""
    with np.errstate(over="ignore"):
        return np.asarray(array.astype(np.float32).astype(np.float64))


def round_down(array: Array) -> Array:
    """The last number of float32 up to each."""
    with np.errstate(over="ignore"):
        near = array.astype(np.float32)
    down = np.nextafter(near, np.float32(-np.inf))
    return np.asarray(np.where(near.astype(np.float64) > array, down, near).astype(np.float64))
