"""Bounds of tree members on cells: reachable leaves, and all pieces of a cell one by one.

Where the thresholds inside a cell cut it into few pieces, the trees are constant on each piece
and the bound is exact; elsewhere each tree is bounded by the best leaf it can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray

PIECES = 256  # of one cell, at most, looked at one by one
# Where float32 would go on if its exponents did: numbers round to infinity from halfway to it.
SINGLE_END = 2.0**128


def convert_thresholds(threshold: Tensor) -> Tensor:
    """Largest float64 x with `float32(x) <= threshold`: comparing x itself then gives the same.

    Rounding to nearest is monotone, so such an x exists: the middle between the last float32
    below the threshold and the next one, or the float64 before it where the tie goes up.
    """
    wanted = threshold.numpy()
    with np.errstate(over="ignore"):  # thresholds and middles beyond float32 become infinite
        return torch.as_tensor(_largest_not_above(wanted))


def _largest_not_above(wanted: Array) -> Array:
    below = wanted.astype(np.float32)
    below = np.where(below > wanted, np.nextafter(below, np.float32(-np.inf)), below)
    above = np.nextafter(below, np.float32(np.inf))
    ends = np.clip(np.stack([below, above]).astype(np.float64), -SINGLE_END, SINGLE_END)
    middle = 0.5 * (ends[0] + ends[1])
    stays = middle.astype(np.float32) == below
    return np.asarray(np.where(stays, middle, np.nextafter(middle, -np.inf)))


def remove_input_rounding(members: TreeMembers) -> TreeMembers:
    """The same predictions without rounding the inputs first, on the CPU."""
    members = members.to("cpu")
    if not members.single_precision:
        return members
    return TreeMembers(
        members.feature,
        convert_thresholds(members.threshold),
        left=members.left,
        right=members.right,
        value=members.value,
        input_size=members.input_size,
        initial=members.initial,
        factor=members.factor,
        link=members.link,
    )


@dataclass(frozen=True, eq=False)
class WeightedTrees:
    """Tree members of one rule: `weights` (n,), coefficients (n, r) and slopes (n, r, d)."""

    members: TreeMembers
    weights: Array
    constant: Array
    slope: Array


class Boxes(NamedTuple):
    """Pieces of cells: corners, the cell each belongs to, and a point (its upper corner)."""

    cell: IntArray
    lower: Array
    upper: Array


class TreeBound:
    """The weighted trees of one rule, ready to be bounded on cells."""

    def __init__(self, stacks: list[WeightedTrees]) -> None:
        self.stacks = stacks
        size = stacks[0].slope.shape[2]
        self._cuts = [
            np.unique(np.concatenate([_thresholds(stack.members, i) for stack in stacks]))
            for i in range(size)
        ]

    def above(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Upper bounds (B,) of the trees' part of the value, and scores (B, d) for halving."""
        low, high = lower.cpu().numpy(), upper.cpu().numpy()
        best = sum(_by_leaves(stack, low, high) for stack in self.stacks)
        best = np.asarray(best)
        first = np.stack([np.searchsorted(c, low[:, i]) for i, c in enumerate(self._cuts)], 1)
        last = np.stack([np.searchsorted(c, high[:, i]) for i, c in enumerate(self._cuts)], 1)
        cuts = last - first  # thresholds t with lower <= t < upper
        few = np.flatnonzero(np.prod(cuts + 1.0, axis=1) <= PIECES)
        gap = np.abs(best)
        if len(few):
            boxes = self._pieces(few, first, last, low=low, high=high)
            values = sum(_on_pieces(stack, boxes) for stack in self.stacks)
            most, least = np.full(len(low), -np.inf), np.full(len(low), np.inf)
            np.maximum.at(most, boxes.cell, np.asarray(values))
            np.minimum.at(least, boxes.cell, np.asarray(values))
            best[few] = np.minimum(best[few], most[few])
            gap[few] = most[few] - least[few]
        share = cuts / np.maximum(1, cuts.sum(1, keepdims=True))
        device = lower.device
        return (
            torch.as_tensor(best, device=device),
            torch.as_tensor(gap[:, None] * share, device=device),
        )

    def _pieces(
        self, cells: IntArray, first: IntArray, last: IntArray, *, low: Array, high: Array
    ) -> Boxes:
        lowers, uppers, owner = [], [], []
        for cell in cells:
            ends = [
                np.append(cuts[first[cell, i] : last[cell, i]], high[cell, i])
                for i, cuts in enumerate(self._cuts)
            ]
            starts = [np.append(low[cell, i], end[:-1]) for i, end in enumerate(ends)]
            uppers.append(np.array(list(product(*ends))))
            lowers.append(np.array(list(product(*starts))))
            owner.append(np.full(len(uppers[-1]), cell))
        return Boxes(np.concatenate(owner), np.concatenate(lowers), np.concatenate(uppers))


def _thresholds(members: TreeMembers, feature: int) -> Array:
    node = torch.arange(members.left.shape[2])
    inner = (members.left != node) & (members.feature == feature)
    return np.asarray(members.threshold[inner].numpy())


def _affine_above(constant: Array, slope: Array, low: Array, high: Array) -> Array:
    """max over a box of constant (...) + slope (..., d) . x, the box's corners (..., d)."""
    return np.asarray(constant + np.maximum(slope * low, slope * high).sum(-1))


def _on_pieces(stack: WeightedTrees, boxes: Boxes) -> Array:
    """The trees' part on every piece: their outputs there are those of its upper corner."""
    outputs = stack.members.outputs(torch.as_tensor(boxes.upper)).numpy()
    outputs = outputs[..., : stack.constant.shape[1]] * stack.weights[:, None, None]
    constant = np.einsum("nbr,nr->b", outputs, stack.constant)
    slope = np.einsum("nbr,nrd->bd", outputs, stack.slope)
    return _affine_above(constant, slope, boxes.lower, boxes.upper)


def _reachable(members: TreeMembers, low: Array, high: Array) -> Array:
    """(count, trees, nodes, B): whether some input of the cell passes through the node."""
    count, trees, nodes, _ = members.value.shape
    left, right = members.left.numpy(), members.right.numpy()
    feature, threshold = members.feature.numpy(), members.threshold.numpy()
    reach = np.zeros((count, trees, nodes, len(low)), bool)
    reach[:, :, 0] = True
    rows, columns = np.ogrid[:count, :trees]
    for node in range(nodes):  # children come later than their parent
        inner = left[:, :, node] != node
        used, cut = feature[:, :, node], threshold[:, :, node, None]
        here = reach[:, :, node] & inner[..., None]
        reach[rows, columns, left[:, :, node]] |= here & (low.T[used] <= cut)
        reach[rows, columns, right[:, :, node]] |= here & (high.T[used] > cut)
        reach[:, :, node] &= ~inner[..., None]
    return reach


def _by_leaves(stack: WeightedTrees, low: Array, high: Array) -> Array:
    members, size = stack.members, stack.constant.shape[1]
    reach = _reachable(members, low, high)
    value = members.value.numpy()[..., :size] * members.factor.numpy()[:, None, None, None]
    initial = members.initial.numpy()
    total = np.zeros(len(low))
    for i in range(len(members)):
        if members.link == "softmax":
            full = members.value.numpy()[i] * members.factor.numpy()[i]
            own = _softmax_above(stack, i, full, reach[i], low=low, high=high)
        else:
            start = _affine_above(
                initial[i, :size] @ stack.constant[i],
                initial[i, :size] @ stack.slope[i],
                low,
                high,
            )
            leaf = _affine_above(
                (value[i] @ stack.constant[i])[..., None],
                (value[i] @ stack.slope[i])[:, :, None],
                low,
                high,
            )
            own = start + np.where(reach[i], leaf, -np.inf).max(1).sum(0)
        total += stack.weights[i] * own
    return total


def _softmax_above(
    stack: WeightedTrees, i: int, value: Array, reach: Array, *, low: Array, high: Array
) -> Array:
    """Scores by interval, each share between its extremes, each product at its largest."""
    initial = stack.members.initial.numpy()[i]
    most = np.where(reach[..., None], value[:, :, None], -np.inf).max(1).sum(0) + initial
    least = np.where(reach[..., None], value[:, :, None], np.inf).min(1).sum(0) + initial
    total = np.zeros(len(low))
    for k in range(stack.constant.shape[1]):
        others = np.delete(np.arange(value.shape[-1]), k)
        top = _share(most[:, k], least[:, others])
        bottom = _share(least[:, k], most[:, others])
        coefficient_most = _affine_above(stack.constant[i, k], stack.slope[i, k], low, high)
        coefficient_least = -_affine_above(-stack.constant[i, k], -stack.slope[i, k], low, high)
        corners = [c * p for c in (coefficient_least, coefficient_most) for p in (bottom, top)]
        total += np.max(corners, axis=0)
    return total


def _share(own: Array, others: Array) -> Array:
    """exp(own) / (exp(own) + sum exp(others))."""
    if others.shape[1] == 0:
        return np.ones_like(own)
    return np.asarray(
        torch.sigmoid(torch.as_tensor(own) - torch.logsumexp(torch.as_tensor(others), 1)).numpy()
    )
