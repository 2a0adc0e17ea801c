"""How far a network may fall along a feature: intervals of its slope on cells of a box.

The mean value theorem: between two inputs that differ in one feature, the output changes by the
distance times a slope in between. Slopes are products of weights and slopes of activations, which
are known to lie between two numbers where a cell bounds what goes into them.
"""

from __future__ import annotations

import heapq

import numpy as np
import torch

from cg4ai.clock import now
from cg4ai.members.networks import NetworkMembers
from cg4ai.records import Array

CELLS = 1000
GELU_SLOPES = (-0.13, 1.13)  # between which slopes of GELU lie
SLIP = 1e-12  # of the sizes: more than the rounding of these sums


def bound_fall(
    members: NetworkMembers, row: Array, feature: int, lower: Array, upper: Array, until: float
) -> float:
    """What `row . scores` may fall by at most as the feature rises within the box.

    A negative `row` bounds a rise. Scores are those before a softmax.
    """
    slopes = _Slopes(members, row, feature)
    least = slopes.find_least(lower, upper)
    waiting = [(least, 0, lower, upper)]
    cells = 1
    while cells < CELLS and now() < until and waiting[0][0] < 0:
        _, _, low, high = heapq.heappop(waiting)
        column = int((slopes.reach * (high - low)).argmax())
        middle = 0.5 * (low[column] + high[column])
        if not low[column] < middle < high[column]:
            heapq.heappush(waiting, (least, cells, low, high))
            break
        for side in range(2):
            one, other = low.copy(), high.copy()
            (other if side == 0 else one)[column] = middle
            cells += 1
            heapq.heappush(waiting, (slopes.find_least(one, other), cells, one, other))
        least = waiting[0][0]
    return float(max(0.0, -waiting[0][0]) * (upper[feature] - lower[feature]))


class _Slopes:
    """The least slope of a sum of scores along a feature on a cell."""

    def __init__(self, members: NetworkMembers, row: Array, feature: int) -> None:
        shape = members.architecture
        self.row, self.feature, self.kind = row, feature, shape.activation
        depth = len(shape.hidden)
        own = {name: one[0].detach().cpu().numpy() for name, one in members.parameters.items()}
        self.weights = [own[f"weight_{layer}"] for layer in range(depth + 1)]
        self.biases = [own[f"bias_{layer}"] for layer in range(depth + 1)]
        self.skip = own.get("skip")
        size = shape.input_size
        self.shift = np.zeros(size) if shape.shift is None else np.asarray(shape.shift)
        self.scale = np.ones(size) if shape.scale is None else np.asarray(shape.scale)
        self.reach = np.abs(self.weights[0]).sum(axis=0) / self.scale

    def find_least(self, lower: Array, upper: Array) -> float:
        low, high = (lower - self.shift) / self.scale, (upper - self.shift) / self.scale
        unit = np.zeros(len(lower))
        unit[self.feature] = 1.0 / self.scale[self.feature]
        down, up = unit, unit.copy()
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            low, high = _multiply(weight, low, high)
            low, high = low + bias, high + bias
            down, up = _multiply(weight, down, up)
            least, most = self._activation_slopes(low, high)
            ends = np.stack([down * least, down * most, up * least, up * most])
            down, up = ends.min(axis=0), ends.max(axis=0)
            low, high = self._activate(low), self._activate(high)
            if self.kind == "gelu":  # which falls a little below zero
                low, high = np.minimum(low, -0.17 * (low < 0)), np.maximum(high, 0.0)
        last = self.row @ self.weights[-1]
        if self.skip is not None:
            extra = float(self.row @ self.skip[:, self.feature] * unit[self.feature])
        else:
            extra = 0.0
        found, _ = _multiply(last[None], down, up)
        return float(found[0]) + extra

    def _activate(self, values: Array) -> Array:
        one = torch.as_tensor(values)
        kinds = {"relu": torch.relu, "tanh": torch.tanh, "gelu": torch.nn.functional.gelu}
        return np.asarray(kinds[self.kind](one).numpy())

    def _activation_slopes(self, low: Array, high: Array) -> tuple[Array, Array]:
        if self.kind == "relu":
            return (low > 0).astype(float), (high >= 0).astype(float)
        if self.kind == "tanh":
            ends = np.stack([1 - np.tanh(low) ** 2, 1 - np.tanh(high) ** 2])
            most = np.where((low <= 0) & (high >= 0), 1.0, ends.max(axis=0))
            return ends.min(axis=0) * (1 - SLIP), most * (1 + SLIP)
        return np.full(len(low), GELU_SLOPES[0]), np.full(len(low), GELU_SLOPES[1])


def _multiply(weight: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of `weight @ x` for x between two ends, a hair outwards."""
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    centre, width = weight @ middle, np.abs(weight) @ half
    slip = SLIP * (np.abs(weight) @ np.maximum(np.abs(low), np.abs(high)))
    return centre - width - slip, centre + width + slip
