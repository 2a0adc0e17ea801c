"""One tree as arrays, in whatever order its library keeps nodes, and several as one member."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.members.trees import BITS, NODEWISE, TreeMembers
from cg4ai.records import Array, IntArray

# A score under a softmax that gives probability exactly zero, and is still a finite number.
ABSENT_SCORE = -1e9
LARGEST_THRESHOLD = 1e60  # in place of infinite ones; proofs account for numbers up to it
SAME = 1e-8  # of the spread of a feature: values nearer than that differ by rounding
ROW = 10.0  # such distances: values that lie in a longer row are told apart
APART = 1e-3  # of the way between two values: where a threshold is nearer to one, it is moved
LARGEST_CATEGORY = 2**20  # a subset holds a bit for each smaller one


@dataclass(frozen=True, eq=False)
class Tree:
    """Arrays (nodes,), the root first; leaves have -1 for `left` and `right`; `value` (nodes, r).

    `missing` is 1 where NaN goes right, 0 where it goes left; None refuses NaN. `subsets` has the
    categories that go left for the nodes that ask for one.
    """

    feature: IntArray
    threshold: Array
    left: IntArray
    right: IntArray
    value: Array
    missing: IntArray | None = None
    subsets: Mapping[int, Collection[int]] = field(default_factory=dict)

    def sort_nodes(self) -> Tree:
        """The same tree with every node before its children, and without what no input reaches."""
        inner = self.left >= 0
        own = np.arange(len(inner))
        if (~inner | ((self.left > own) & (self.right > own))).all():
            return self
        levels, frontier = [], np.zeros(1, np.int64)
        while len(frontier):
            levels.append(frontier)
            inside = frontier[inner[frontier]]
            frontier = np.concatenate([self.left[inside], self.right[inside]])
        kept = np.concatenate(levels)
        place = np.full(len(inner) + 1, -1, np.int64)  # the last is where -1 points
        place[kept] = np.arange(len(kept))
        return Tree(
            self.feature[kept],
            self.threshold[kept],
            place[self.left[kept]],
            place[self.right[kept]],
            self.value[kept],
            None if self.missing is None else self.missing[kept],
            {int(place[node]): some for node, some in self.subsets.items() if place[node] >= 0},
        )


def build_member(
    trees: Sequence[Tree],
    *,
    input_size: int,
    factor: float = 1.0,
    initial: Array | None = None,
    link: str = "identity",
    single_precision: bool = False,
) -> TreeMembers:
    """`link(initial + factor * sum of trees)`, the trees padded to a common number of nodes."""
    trees = [tree.sort_nodes() for tree in trees]
    nodes = max(len(tree.left) for tree in trees)
    shape = (1, len(trees), nodes)
    feature, threshold = np.zeros(shape, np.int64), np.zeros(shape)
    left = np.broadcast_to(np.arange(nodes), shape).copy()
    right, missing, subset = left.copy(), np.full(shape, -1), np.full(shape, -1)
    value = np.zeros((*shape, trees[0].value.shape[1]))
    bits: list[IntArray] = []
    for number, tree in enumerate(trees):
        at, inner = (0, number, slice(0, len(tree.left))), tree.left >= 0
        own = np.arange(len(tree.left))
        feature[at] = np.where(inner, tree.feature, 0)
        threshold[at] = np.where(inner, _finite(tree.threshold), 0.0)
        left[at] = np.where(inner, tree.left, own)
        right[at] = np.where(inner, tree.right, own)
        value[at] = tree.value
        if tree.missing is not None:
            missing[at] = np.where(inner, tree.missing, -1)
        for node, categories in tree.subsets.items():
            subset[0, number, node] = len(bits)
            bits.append(_bits(categories))
    return TreeMembers(
        feature,
        threshold,
        left=left,
        right=right,
        value=value,
        input_size=input_size,
        initial=None if initial is None else initial[None],
        factor=np.array([factor]),
        missing=missing if any(tree.missing is not None for tree in trees) else None,
        subset=subset if bits else None,
        subsets=_padded(bits)[None] if bits else None,
        link="softmax" if link == "softmax" else "identity",
        single_precision=single_precision,
    )


def _finite(threshold: Array) -> Array:
    """Infinite thresholds, where all numbers go one way, as the largest that stand for such."""
    return np.asarray(np.clip(threshold, -LARGEST_THRESHOLD, LARGEST_THRESHOLD))


def _bits(categories: Collection[int]) -> IntArray:
    codes = np.array(sorted(categories), np.int64)
    if len(codes) and (codes[0] < 0 or codes[-1] >= LARGEST_CATEGORY):
        raise InvalidInput(
            f"categories must be whole numbers 0..{LARGEST_CATEGORY - 1}, got "
            f"{int(codes[0])}..{int(codes[-1])}; number them from 0 on",
            code="range",
        )
    words = np.zeros(1 + (int(codes[-1]) // BITS if len(codes) else 0), np.uint64)
    np.bitwise_or.at(words, codes // BITS, np.uint64(1) << (codes % BITS).astype(np.uint64))
    return np.asarray(words.view(np.int64))


def _padded(bits: Sequence[IntArray]) -> IntArray:
    words = np.zeros((len(bits), max(map(len, bits))), np.int64)
    for row, own in zip(words, bits, strict=True):
        row[: len(own)] = own
    return words


@dataclass(frozen=True, slots=True)
class ClassColumns:
    """Where the column of each of a classifier's labels goes, among how many."""

    positions: NDArray[np.int64]
    size: int


def find_class_columns(labels: Any, name: str, classes: int | None) -> ClassColumns | None:
    """From a model's `classes_`, None for regressors; `name` is for what is refused."""
    if labels is None:
        if classes is not None:
            raise InvalidInput(
                f"classes is for classifiers; {name} is a regressor", code="conflict"
            )
        return None
    if isinstance(labels, list):
        raise InvalidInput(
            f"{name} was fitted on several label columns; fit one per column", code="shape"
        )
    if classes is None:
        return ClassColumns(np.arange(len(labels)), len(labels))
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
        raise InvalidInput(
            f"with classes={classes} the labels must be integers in 0..{classes - 1}, "
            f"got {labels.tolist()}",
            code="range",
        )
    return ClassColumns(labels.astype(np.int64), classes)


def build_boosted_member(
    trees: Sequence[Tree],
    scores: Sequence[int],
    initial: Array,
    *,
    columns: ClassColumns | None,
    input_size: int,
    factor: float = 1.0,
    single_precision: bool = False,
) -> TreeMembers:
    """Boosting: tree t, with values (nodes, 1), adds to score `scores[t]`, from `initial` (s,) on.

    Scores are a regressor's outputs. Probabilities of two classes with one score z are the
    softmax of (0, z), those of more classes the softmax of a score each.
    """
    start = np.asarray(initial, np.float64)
    if columns is None:
        places, size, link = np.arange(len(start)), len(start), "identity"
    else:
        seen = columns.positions
        places, size, link = seen if len(start) > 1 else seen[1:], columns.size, "softmax"
        full = np.full(size, ABSENT_SCORE)
        full[seen] = 0.0
        full[places] = start
        start = full
    spread = []
    for tree, score in zip(trees, scores, strict=True):
        value = np.zeros((len(tree.value), size))
        value[:, places[score]] = tree.value[:, 0]
        spread.append(replace(tree, value=value))
    return build_member(
        spread,
        input_size=input_size,
        factor=factor,
        initial=start,
        link=link,
        single_precision=single_precision,
    )


def build_constant_tree(input_size: int, like: TreeMembers | None = None) -> TreeMembers:
    """A member of one output, always 1; its link and precision are those of other trees."""
    nothing = np.zeros((1, 1, 1), np.int64)
    return TreeMembers(
        nothing,
        nothing,
        left=nothing,
        right=nothing,
        value=np.ones((1, 1, 1, 1)),
        input_size=input_size,
        link="identity" if like is None else like.link,
        single_precision=like is not None and like.single_precision,
    )


def spread_to_classes(members: TreeMembers, columns: IntArray, size: int) -> TreeMembers:
    """The same probabilities in these columns of `size`, the others zero."""
    value = members.value.new_zeros(*members.value.shape[:3], size)
    value[..., columns] = members.value
    absent = ABSENT_SCORE if members.link == "softmax" else 0.0
    initial = members.initial.new_full((len(members), size), absent)
    initial[:, columns] = members.initial
    return members._rebuild({**members.tensors(), "value": value, "initial": initial})


def combine_outputs(parts: Sequence[TreeMembers]) -> TreeMembers:
    """One member whose output k is the one output of part k, a single member without a link."""
    members = TreeMembers.concatenate(parts)
    count, trees, nodes, _ = members.value.shape
    value = members.value.new_zeros(count, trees, nodes, count)
    for k in range(count):
        value[k, :, :, k] = members.factor[k] * members.value[k, :, :, 0]
    own = members.tensors()
    flat = {name: own[name].view(1, count * trees, nodes) for name in NODEWISE}
    extra: dict[str, Any] = (
        {"missing": own["missing"].view(1, count * trees, nodes)} if "missing" in own else {}
    )
    if members.subset is not None and members.subsets is not None:
        _, sets, words = members.subsets.shape
        first = sets * torch.arange(count, device=members.device).view(count, 1, 1)
        subset = torch.where(members.subset >= 0, members.subset + first, -1)
        extra["subset"] = subset.view(1, count * trees, nodes)
        extra["subsets"] = members.subsets.view(1, count * sets, words)
    return TreeMembers(
        flat["feature"],
        flat["threshold"],
        left=flat["left"],
        right=flat["right"],
        value=value.view(1, count * trees, nodes, count),
        input_size=members.input_size,
        initial=members.initial.view(1, count),
        **extra,
        single_precision=members.single_precision,
    )


ROUNDING = 1e-6  # of the largest value: more than rounding to float32 can move a leaf


def move_thresholds_apart(members: TreeMembers, inputs: Array) -> TreeMembers:
    """The same trees with thresholds halfway between the values (n, d) that they were fitted to.

    Some libraries split at a value itself, and any may split between two that were equal before a
    scaler or a PCA. Such trees decide by last bits, which are others for a row alone than in a
    batch.
    """
    threshold, feature = members.threshold.cpu().numpy().copy(), members.feature.cpu().numpy()
    asks = members.left.cpu().numpy() != np.arange(feature.shape[2])
    if members.subset is not None:
        asks &= members.subset.cpu().numpy() < 0
    for number in np.unique(feature[asks]).tolist():
        here = asks & (feature == number)
        column = inputs[:, number]
        if members.single_precision:
            column = column.astype(np.float32).astype(np.float64)
        threshold[here] = _move_apart(threshold[here], column[np.isfinite(column)])
    made = torch.as_tensor(threshold, device=members.device)
    return members.with_tensors({**members.tensors(), "threshold": made})


def _move_apart(thresholds: Array, column: Array) -> Array:
    """Thresholds (k,) of a feature that has these values (n,)."""
    values = np.unique(column)
    if len(values) < 2:
        return thresholds
    spread = float(np.median(np.abs(column - np.median(column)))) or float(np.abs(values).max())
    near = SAME * spread
    first = np.append(True, np.diff(values) > near)
    cluster = np.cumsum(first) - 1
    wide = (values[np.append(first[1:], True)] - values[first] > ROW * near)[cluster]
    starts = np.flatnonzero(first | wide)
    lowest, highest = values[starts], values[np.append(starts[1:] - 1, len(values) - 1)]
    # the cluster with the last value up to the threshold, and the one above it
    below = np.searchsorted(lowest, thresholds, side="right") - 1
    below = np.where(below == len(lowest) - 1, below - (thresholds < highest[below]), below)
    inside = (below >= 0) & (below < len(lowest) - 1)
    at = np.clip(below, 0, len(lowest) - 2)
    low, high = highest[at], lowest[at + 1]
    way = np.minimum(thresholds - low, high - thresholds)
    middle = low + (high - low) / 2
    return np.where(inside & (way < APART * (high - low)) & (middle < high), middle, thresholds)


def repair_leaves(members: TreeMembers, signs: IntArray, *, most: float = ROUNDING) -> TreeMembers:
    """The same trees with each leaf on the low side of a split at most every one on the high side.

    `signs` (outputs, inputs) of -1, 0 and 1 says which way each column of the values moves with an
    input. Libraries keep this up to the rounding of their sums; leaves that are off by a hair move
    to the middle between the two sides. Trees that are off by more than `most`, relative to the
    largest value, are refused.
    """
    value = members.value.cpu().numpy().copy()
    towards = np.sign(members.factor.cpu().numpy()).astype(np.int64)
    for output, directions in enumerate(signs):
        if directions.any():
            value[..., output] = _clipped(members, value[..., output], directions, towards)
    moved = np.abs(value - members.value.cpu().numpy()).max(initial=0.0)
    largest = float(np.abs(value).max(initial=0.0))
    if largest and moved > most * largest:
        raise InvalidInput(
            f"trees break their monotone constraints by {2 * moved:.3g}, more than rounding does: "
            "fit them with constraints of the kind that bounds all leaves on both sides of a "
            "split (LightGBM: monotone_constraints_method='basic')",
            code="unsupported",
        )
    if not moved:
        return members
    made = torch.as_tensor(value, device=members.device)
    return members.with_tensors({**members.tensors(), "value": made})


def _clipped(members: TreeMembers, value: Array, directions: IntArray, towards: IntArray) -> Array:
    """Values (count, trees, nodes) of one output, clipped where a split has them out of order."""
    feature, left, right = (
        getattr(members, name).cpu().numpy() for name in ("feature", "left", "right")
    )
    rows, columns = np.ogrid[: value.shape[0], : value.shape[1]]
    low, high = value.copy(), value.copy()
    inner = left != np.arange(value.shape[2])
    for node in reversed(range(value.shape[2])):  # children come after their parents
        one, other = left[:, :, node], right[:, :, node]
        low[:, :, node] = np.minimum(low[rows, columns, one], low[rows, columns, other])
        high[:, :, node] = np.maximum(high[rows, columns, one], high[rows, columns, other])
    least, most = np.full_like(value, -np.inf), np.full_like(value, np.inf)
    for node in range(value.shape[2]):
        one, other = left[:, :, node], right[:, :, node]
        sign = directions[feature[:, :, node]] * towards[:, None] * inner[:, :, node]
        below, above = np.where(sign < 0, other, one), np.where(sign < 0, one, other)
        top, bottom = high[rows, columns, below], low[rows, columns, above]
        middle = np.clip(0.5 * top + 0.5 * bottom, least[:, :, node], most[:, :, node])
        middle[(sign == 0) | (top <= bottom)] = np.nan
        for child in (one, other):  # a leaf is its own child
            least[rows, columns, child] = np.fmax(least[:, :, node], least[rows, columns, child])
            most[rows, columns, child] = np.fmin(most[:, :, node], most[rows, columns, child])
        most[rows, columns, below] = np.fmin(most[rows, columns, below], middle)
        least[rows, columns, above] = np.fmax(least[rows, columns, above], middle)
    return np.asarray(np.where(inner, value, np.clip(value, least, most)))
