"""Rules that a sum of trees keeps over a box, in exact numbers: monotone, or values above a bound.

A sum of trees changes with a feature at thresholds only, and there only by the trees that ask for
just that one. What a step adds is again a sum of pieces, each constant on a box of the other
features. A tree of cuts divides the region into cells; in each the least of every tree's pieces
are added, as whole multiples of one power of two, so that nothing is rounded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.claim import Heading, checked, fields, listed, whole
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.folder_reader import below, member_state
from cg4ai_checker.scale import LARGEST, within_scale
from cg4ai_checker.words import exact, linear_sum

KEYS = {
    *("kind", "title", "requirement", "input_size", "output_size", "form", "features", "member"),
    *("made_by", "about"),
}
FORMS = ("monotone", "least")
MOST_PIECES = 2**21  # of one step, or as many as the file has bytes
SLIP = 2.0**-50  # of the sizes added: far more than the rounding of a quick sum of them
MOST_NUMBERS = 2**25  # of the boxes of a step, or as many as the file has bytes
MOST_WAITING = 2**26  # pieces of cells that wait
TINY = 1e-300  # more than all that underflow takes
SHOWN = 6
Whole = NDArray[np.int64]
Ends = dict[int, tuple[float, float]]  # by feature: above the first, up to the second


class TreeSumClaim(Heading):
    """A validated claim: one member made of trees, the region, what is asked of which sums."""

    def __init__(self, content: Content) -> None:
        claim = fields(content.claim, KEYS, "the claim")
        super().__init__(claim)
        arrays = dict(content.arrays)
        taken = {name: arrays.pop(name, np.zeros(0)) for name in (*CLAIMED, *CUTS)}
        self.form: str = claim["form"]
        if self.form not in FORMS:
            raise Rejected(f"the form must be one of {list(FORMS)}")
        self.features = [_feature(one, self.input_size) for one in listed(claim["features"], "f")]
        if len({j for j, _ in self.features}) < len(self.features):
            raise Rejected("a feature is named twice", code="duplicate")
        if bool(self.features) != (self.form == "monotone"):
            raise Rejected("features go with a claim that sums are monotone, and with no other")
        self.lower, self.upper = (_ends(taken[name], name, self.input_size) for name in CLAIMED[:2])
        largest = max(np.abs(self.lower).max(), np.abs(self.upper).max())
        if not largest < LARGEST:  # where trees keep a number for infinite thresholds
            raise Rejected(f"the region reaches {largest:g}, {LARGEST:g} and beyond", code="range")
        if not (self.lower <= self.upper).all():
            raise Rejected("the region is empty: lower exceeds upper", code="empty")
        self.functional: Array = checked(
            taken["functional"], "functional", (None, self.output_size), np.float64
        )
        count = len(self.functional)
        self.bound: Array = checked(taken["bound"], "bound", (count,), np.float64)
        if not count or not self.functional.any(axis=1).all():
            raise Rejected("nothing is claimed of some sum of outputs", code="empty")
        self.trees = _Trees(claim["member"], below(arrays, "0."), self)
        self.cuts = _Cuts(*(taken[name] for name in CUTS))
        if any(not name.startswith("0.") for name in arrays):
            raise Rejected("the archive holds arrays of no use")
        self.size, self.most = content.size, max(MOST_PIECES, content.size)

    def jobs(self) -> Iterator[tuple[int, tuple[int, int] | None, float]]:
        """Sum, feature with its sign, threshold, in the order in which cuts are stored."""
        for number in range(len(self.functional)):
            if self.form == "least":
                yield number, None, 0.0
            for feature, sign in self.features:
                low, high = self.trees.lower[feature], self.trees.upper[feature]
                for threshold in self.trees.thresholds(feature):
                    if low <= threshold < high:
                        yield number, (feature, sign), threshold

    def __str__(self) -> str:
        outputs = "scores" if self.trees.link == "softmax" else "outputs"
        lines = []
        for row, bound in zip(self.functional[:SHOWN], self.bound[:SHOWN].tolist(), strict=True):
            said = linear_sum(row, "y")
            if self.form == "least":
                lines.append(f"{said} is at least {exact(bound)}")
            else:
                words = {1: "never falls with", -1: "never rises with"}
                lines.append(
                    f"{said} "
                    + ", ".join(f"{words[sign]} feature {j}" for j, sign in self.features)
                )
        more = len(self.functional) - len(lines)
        return f"Of the {outputs} y: {'; '.join(lines)}{f' and {more} more' if more else ''}."


@dataclass(frozen=True)
class TreeSumVerdict:
    """What has been proven of a sum of trees; all else is `Rejected`."""

    claim: TreeSumClaim
    digest: str
    steps: int
    cells: int
    seconds: float

    def __str__(self) -> str:
        claim = self.claim
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  {claim}",
                f"  At every input of {_place(claim)}, for the exact sum of "
                f"{claim.trees.count} trees as stored.",
                "  Missing values are not included, nor is the rounding of a library's own sums.",
                f"  {self.cells} cells of {self.steps} steps, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )


CLAIMED = ("lower", "upper", "functional", "bound")
CUTS = ("cut_start", "cut_feature", "cut_value")
UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError)


def check_tree_sums(content: Content) -> TreeSumVerdict:
    """Verify a certificate about a sum of trees; Rejected unless each cell of each step closes."""
    started = time.perf_counter()
    try:
        claim = TreeSumClaim(content)
        steps = cells = 0
        for job, (number, step, threshold) in enumerate(claim.jobs()):
            cells += _close(claim, job, number, step, threshold)
            steps += 1
        if steps != claim.cuts.count:
            raise Rejected(f"cuts are stored for {claim.cuts.count} steps, there are {steps}")
    except UNREADABLE as error:
        if isinstance(error, Rejected):
            raise
        raise Rejected(f"the trees are not described as they should be: {error!r}") from error
    return TreeSumVerdict(claim, content.digest, steps, cells, time.perf_counter() - started)


class _Cuts:
    """For each step its tree of cuts in preorder: feature and value, or -1 for a cell."""

    def __init__(self, start: Any, feature: Any, value: Any) -> None:
        self.start: Whole = checked(start, "cut_start", (None,), np.int64)
        self.feature: Whole = checked(feature, "cut_feature", (None,), np.int64)
        self.value: Array = checked(value, "cut_value", (len(self.feature),), np.float64)
        ends = (self.start[:1].tolist(), self.start[-1:].tolist())
        if ends != ([0], [len(self.feature)]) or (np.diff(self.start) < 1).any():
            raise Rejected("cut_start must rise from 0 to the number of cuts")

    @property
    def count(self) -> int:
        return len(self.start) - 1


class _Trees:
    """The trees of one member, their thresholds as inputs of its precision meet them."""

    def __init__(self, record: Any, arrays: dict[str, Any], claim: TreeSumClaim) -> None:
        state = member_state(record, arrays)
        config, own = state.config, state.arrays
        if state.kind != "tree" or len(own["value"]) != 1:
            raise Rejected("the claim must be about one member made of trees")
        if "subset" in own:
            raise Rejected("trees that ask for categories are not checked", code="unsupported")
        for name in ("threshold", "value", "initial", "factor"):
            within_scale(own[name], f"the array {name}")
        self.feature, self.left, self.right = (own[n][0] for n in ("feature", "left", "right"))
        self.value, self.initial = own["value"][0], own["initial"][0]
        self.factor = Fraction(float(own["factor"][0]))
        shape, size = self.feature.shape, self.value.shape
        if size != (*shape, claim.output_size) or self.initial.shape != (claim.output_size,):
            raise Rejected("arrays of the trees do not fit each other", code="shape")
        if self.left.shape != shape or self.right.shape != shape or 0 in shape:
            raise Rejected("arrays of the trees do not fit each other", code="shape")
        if config["input_size"] != claim.input_size or self.factor <= 0:
            raise Rejected("the trees have other inputs than the claim, or are subtracted")
        node = np.arange(shape[1])
        leaf = (self.left == node) & (self.right == node)
        later = (self.left > node) & (self.right > node)
        inside = (self.left < shape[1]) & (self.right < shape[1])
        named = (self.feature >= 0) & (self.feature < claim.input_size)
        if not ((leaf | later) & inside & named).all():
            raise Rejected("a node of a tree does not point to later nodes of its own")
        self.link: str = config["link"]
        if self.link == "softmax" and claim.functional.sum(axis=1).any():
            raise Rejected("of scores under a softmax only differences mean anything")
        self.threshold = own["threshold"][0]
        if self.threshold.shape != shape:
            raise Rejected("arrays of the trees do not fit each other", code="shape")
        self.lower, self.upper = claim.lower, claim.upper
        if config["single_precision"]:
            # inputs are rounded to float32 first: x <= t there is x <= the last such number up to t
            with np.errstate(over="ignore"):
                near = self.threshold.astype(np.float32)
                self.lower, self.upper = (
                    one.astype(np.float32).astype(np.float64) for one in (self.lower, self.upper)
                )
            down = np.nextafter(near, np.float32(-np.inf))
            self.threshold = np.where(near.astype(np.float64) > self.threshold, down, near)
            self.threshold = self.threshold.astype(np.float64)
        self.inner = ~leaf
        self._of_feature: dict[int, dict[float, list[tuple[int, int]]]] = {}
        self._parent = self._parents()

    @property
    def count(self) -> int:
        return len(self.feature)

    def _parents(self) -> Whole:
        """(trees, nodes), -1 of roots; Rejected where two nodes lead to one."""
        parent = np.full(self.feature.shape, -1, np.int64)
        tree, node = np.nonzero(self.inner)
        children = np.concatenate([self.left[tree, node], self.right[tree, node]])
        both = np.concatenate([tree, tree]) * parent.shape[1] + children
        if len(np.unique(both)) < len(both):
            raise Rejected("two nodes of a tree lead to the same one")
        parent[np.concatenate([tree, tree]), children] = np.concatenate([node, node])
        return parent

    def thresholds(self, feature: int) -> list[float]:
        return sorted(self._asking(feature))

    def _asking(self, feature: int) -> dict[float, list[tuple[int, int]]]:
        """The nodes (tree, node) that ask for a feature, by their threshold."""
        if feature not in self._of_feature:
            found: dict[float, list[tuple[int, int]]] = {}
            tree, node = np.nonzero(self.inner & (self.feature == feature))
            for t, n in zip(tree.tolist(), node.tolist(), strict=True):
                found.setdefault(float(self.threshold[t, n]), []).append((t, n))
            self._of_feature[feature] = found
        return self._of_feature[feature]

    def above(self, feature: int, threshold: float) -> dict[int, set[int]]:
        """By tree, the nodes with this threshold in or below them."""
        found: dict[int, set[int]] = {}
        for tree, node in self._asking(feature)[threshold]:
            own, at = found.setdefault(tree, set()), node
            while at >= 0 and at not in own:
                own.add(at)
                at = int(self._parent[tree, at])
        return found


def _close(
    claim: TreeSumClaim,
    job: int,
    number: int,
    step: tuple[int, int] | None,
    threshold: float,
) -> int:
    """How many cells prove a job; Rejected if one of them does not."""
    row = [Fraction(float(one)) for one in claim.functional[number]]
    target = Fraction(0)
    if step is None:
        trees = claim.trees
        start = sum(w * Fraction(float(v)) for w, v in zip(row, trees.initial, strict=True))
        target = (Fraction(float(claim.bound[number])) - start) / trees.factor
        pieces = [_leaves(trees, tree, claim.most) for tree in range(trees.count)]
        sign = 1
    else:
        feature, sign = step
        found = claim.trees.above(feature, threshold)
        pieces = [
            _steps(claim.trees, tree, own, feature, threshold, claim.most)
            for tree, own in found.items()
        ]
    if sum(map(len, pieces)) > claim.most:
        raise Rejected("a step is made of too many pieces to be checked", code="memory")
    values = _values(claim.trees, pieces, row, sign, stepping=step is not None)
    return _Cells(claim, pieces, values, target).close(job)


Piece = tuple[int, int, int, Ends]  # tree, leaf, leaf on the other side or -1, where


def _narrow(ends: Ends, trees: _Trees, feature: int, cut: float) -> tuple[Ends | None, Ends | None]:
    """Both sides of a cut, None for what no input of the region reaches."""
    low, high = ends.get(
        feature,
        (float(np.nextafter(trees.lower[feature], -np.inf)), float(trees.upper[feature])),
    )
    left = {**ends, feature: (low, min(high, cut))} if cut > low else None
    right = {**ends, feature: (max(low, cut), high)} if cut < high else None
    return left, right


def _leaves(trees: _Trees, tree: int, most: int) -> list[Piece]:
    found: list[Piece] = []
    waiting: list[tuple[int, Ends]] = [(0, {})]
    while waiting:
        node, ends = waiting.pop()
        if not trees.inner[tree, node]:
            found.append((tree, node, -1, ends))
            continue
        sides = _narrow(
            ends, trees, int(trees.feature[tree, node]), float(trees.threshold[tree, node])
        )
        for child, side in zip((trees.left, trees.right), sides, strict=True):
            if side is not None:
                waiting.append((int(child[tree, node]), side))
        if len(found) > most:
            raise Rejected("a tree has too many leaves to be checked", code="memory")
    return found


def _steps(
    trees: _Trees, tree: int, own: set[int], feature: int, threshold: float, most: int
) -> list[Piece]:
    """Pairs of leaves that inputs at the threshold, and just above it, end in."""
    found: list[Piece] = []
    waiting: list[tuple[int, int, Ends]] = [(0, 0, {})]
    while waiting:
        one, other, ends = waiting.pop()
        if one == other and one not in own:
            found.append((tree, one, one, ends))  # nothing changes below
            continue
        at = one if trees.inner[tree, one] else other
        if not trees.inner[tree, at]:
            found.append((tree, one, other, ends))
            if len(found) > most:
                raise Rejected("a step is made of too many pieces to be checked", code="memory")
            continue
        asked, cut = int(trees.feature[tree, at]), float(trees.threshold[tree, at])
        children = (int(trees.left[tree, at]), int(trees.right[tree, at]))
        if asked == feature:
            down, up = children[threshold > cut], children[threshold >= cut]
            waiting.append((down if one == at else one, up if other == at else other, ends))
            continue
        for child, side in zip(children, _narrow(ends, trees, asked, cut), strict=True):
            if side is not None:
                waiting.append((child if one == at else one, child if other == at else other, side))
    return found


def _values(
    trees: _Trees, pieces: list[list[Piece]], row: list[Fraction], sign: int, *, stepping: bool
) -> list[list[Fraction]]:
    known: dict[tuple[int, int], Fraction] = {}

    def value(tree: int, leaf: int) -> Fraction:
        if (tree, leaf) not in known:
            leaves = trees.value[tree, leaf].tolist()
            terms = (w * Fraction(v) for w, v in zip(row, leaves, strict=True) if w)
            known[tree, leaf] = sum(terms, Fraction(0))
        return known[tree, leaf]

    if not stepping:
        return [[value(tree, leaf) for tree, leaf, _, _ in own] for own in pieces]
    return [
        [
            sign * (value(tree, other) - value(tree, one)) if one != other else Fraction(0)
            for tree, one, other, _ in own
        ]
        for own in pieces
    ]


class _Cells:
    """The cells of one job: which pieces each of them meets, and the least that these add up to."""

    def __init__(
        self,
        claim: TreeSumClaim,
        pieces: list[list[Piece]],
        values: list[list[Fraction]],
        target: Fraction,
    ) -> None:
        self.claim, self.target = claim, target
        flat = [one for own in pieces for one in own]
        used = sorted({j for *_, ends in flat for j in ends})
        self.place = {feature: column for column, feature in enumerate(used)}
        if len(flat) * len(used) > max(MOST_NUMBERS, claim.size):
            raise Rejected("the pieces of a step are too many to be checked", code="memory")
        low = np.nextafter(claim.trees.lower[used], -np.inf)
        high = claim.trees.upper[used]
        self.lower, self.upper = np.tile(low, (len(flat), 1)), np.tile(high, (len(flat), 1))
        for number, (*_, ends) in enumerate(flat):
            for feature, (one, other) in ends.items():
                at = number, self.place[feature]
                self.lower[at], self.upper[at] = one, other
        self.exact = [one for own in values for one in own]
        self.quick = np.array([float(one) for one in self.exact])
        self.owner = np.repeat(np.arange(len(pieces)), [len(own) for own in pieces])
        self.trees, self.low, self.high = len(pieces), low, high

    def close(self, job: int) -> int:
        """The number of cells; they are walked through in preorder."""
        cuts = self.claim.cuts
        if job >= cuts.count:
            raise Rejected("there are fewer trees of cuts than steps")
        at, end = int(cuts.start[job]), int(cuts.start[job + 1])
        waiting = [(np.arange(len(self.owner)), self.low, self.high)]
        cells, held = 0, len(self.owner)
        while waiting:
            if at >= end:
                raise Rejected("a tree of cuts ends before all of its cells")
            which, low, high = waiting.pop()
            held -= len(which)
            meets = ((self.lower[which] < high) & (self.upper[which] > low)).all(axis=1)
            which = which[meets]
            feature, cut = int(cuts.feature[at]), float(cuts.value[at])
            at += 1
            if feature == -1:
                self._verify(which)
                cells += 1
                continue
            column = self.place.get(feature, -1)
            if column < 0 or not low[column] < cut < high[column]:
                raise Rejected("a cut lies outside its cell, or is of a feature without a say")
            below_cut, above_cut = high.copy(), low.copy()
            below_cut[column] = above_cut[column] = cut
            held += 2 * len(which)
            if held > MOST_WAITING:
                raise Rejected("a tree of cuts is too deep to be checked", code="memory")
            waiting += [(which, above_cut, high), (which, low, below_cut)]
        if at != end:
            raise Rejected("a tree of cuts goes on behind its last cell")
        return cells

    def _verify(self, which: NDArray[np.intp]) -> None:
        if not self.trees:
            if self.target > 0:
                raise Rejected("not proven: no tree adds anything", code="not-proven")
            return
        owner = self.owner[which]
        starts = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        if len(which) == 0 or len(starts) != self.trees:
            raise Rejected("a cell is not covered by the pieces of every tree")
        least = np.minimum.reduceat(self.quick[which], starts)
        slip = SLIP * float(np.abs(least).sum() + abs(float(self.target)))
        if math.fsum(least) - slip > float(self.target) + TINY:
            return
        ends = np.append(starts[1:], len(which))
        total = sum(
            min(self.exact[at] for at in which[one:other].tolist())
            for one, other in zip(starts.tolist(), ends.tolist(), strict=True)
        )
        if total < self.target:
            missing = float(self.target - total) * float(self.claim.trees.factor)
            raise Rejected(
                f"not proven: in a cell the sum may miss its bound by {missing:.3g}",
                code="not-proven",
            )


def _feature(pair: Any, size: int) -> tuple[int, int]:
    if not isinstance(pair, list) or len(pair) != 2 or pair[1] not in (1, -1):
        raise Rejected("a feature is [position, 1 or -1]")
    if whole(pair[0], "a feature", least=0) >= size:
        raise Rejected(f"there is no feature {pair[0]}")
    return int(pair[0]), int(pair[1])


def _ends(array: Any, name: str, size: int) -> Array:
    """The ends of the region, which may be infinite."""
    if array.dtype != np.float64 or array.shape != (size,) or np.isnan(array).any():
        raise Rejected(f"{name} must be {size} numbers", code="shape")
    return np.asarray(array)


def _place(claim: TreeSumClaim) -> str:
    """The ends that all features have, or those of the first ones."""
    low, high = claim.lower, claim.upper
    if (low == low[0]).all() and (high == -low).all():
        return f"numbers up to {exact(float(high[0]))} in size"
    shown = [f"x[{j}] in [{exact(low[j])}, {exact(high[j])}]" for j in range(min(SHOWN, len(low)))]
    more = f" and {len(low) - SHOWN} more" if len(low) > SHOWN else ""
    return f"{', '.join(shown)}{more}"
