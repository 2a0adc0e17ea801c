"""Leaf values of trees that were grown under monotone constraints, made exact after rounding."""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray

ROUNDING = 1e-6  # of the largest value: more than rounding to float32 can move a leaf


def repaired(members: TreeMembers, signs: IntArray) -> TreeMembers:
    """The same trees with each leaf on the low side of a split at most every one on the high side.

    `signs` (outputs, inputs) of -1, 0 and 1 says which way each column of the values moves with an
    input. Libraries keep this up to the rounding of their sums; leaves that are off by a hair move
    to the middle between the two sides. Trees that are off by more are refused.
    """
    value = members.value.cpu().numpy().copy()
    towards = np.sign(members.factor.cpu().numpy()).astype(np.int64)
    for output, directions in enumerate(signs):
        if directions.any():
            value[..., output] = _clipped(members, value[..., output], directions, towards)
    moved = np.abs(value - members.value.cpu().numpy()).max(initial=0.0)
    allowed = ROUNDING * np.abs(value).max(initial=0.0)
    if moved > allowed:
        raise InvalidInput(
            f"trees break their monotone constraints by {2 * moved:.3g}, more than rounding does: "
            "fit them with constraints of the kind that bounds all leaves on both sides of a "
            "split (LightGBM: monotone_constraints_method='basic')"
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
