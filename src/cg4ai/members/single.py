"""One input at a time through networks and trees, by NumPy: torch spends more on calls than on it.

Each function here reads stored arrays once and gives another one that does the rest. Those change
nothing that they were made of and put every result into memory of its own, so that threads may
share them and results never do. Sums have other orders than in batches, and errors no larger.

A stack of one member is computed by vectors, without an axis for members: reductions along an axis
and broadcasting take NumPy four times as long as products and operations on whole arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.members.layers import Form
from cg4ai.records import Array, IntArray

MOST_PADDED = 4  # times as many scores as outputs that groups of unequal sizes may be padded to
MODEST = 600.0  # scores up to this size have exponentials that neither overflow nor vanish

Scores = Callable[[Array], Array]  # an input (d,) -> (count, size), of one member (size,)


class SoftmaxGroups:
    """Scores laid out so that softmax within groups is a few calls on whole arrays.

    The k-th scores of all groups are neighbours; groups with fewer are padded. Output i stands at
    `place[i]` of `size`.
    """

    def __init__(self, groups: tuple[int, ...]) -> None:
        self.width, self.count = max(groups), len(groups)
        self.size = self.width * self.count
        self.place: IntArray = np.concatenate(
            [number + self.count * np.arange(size) for number, size in enumerate(groups)]
        )
        self.in_order = np.array_equal(self.place, np.arange(self.size))
        self.affordable = self.size <= MOST_PADDED * len(self.place)
        self._there = np.zeros(self.size)
        self._there[self.place] = 1.0
        self._padded = self.size > len(self.place)
        self._ones = np.ones((self.width, self.width))

    def lay_out(self, array: NDArray[Any]) -> NDArray[Any]:
        """(count, r, ...) -> (count, size, ...), 0 where there is no output."""
        made = np.zeros((len(array), self.size, *array.shape[2:]), array.dtype)
        made[:, self.place] = array
        return made

    def apply_softmax(self, scores: Array) -> Array:
        """(..., size) -> the same, 0 where there is no output."""
        flat = scores.reshape(-1)
        if not flat.dot(flat) < MODEST**2:
            scores = self._subtract_largest(scores)
        made = np.exp(scores)
        if self._padded:
            made *= self._there
        grouped = made.reshape(*made.shape[:-1], self.width, self.count)
        grouped /= self._ones.dot(grouped) if grouped.ndim == 2 else np.matmul(self._ones, grouped)
        return made

    def _subtract_largest(self, scores: Array) -> Array:
        known = np.where(self._there > 0, scores, -np.inf)
        grouped = known.reshape(*scores.shape[:-1], self.width, self.count)
        shifted: Array = grouped - grouped.max(axis=-2, keepdims=True)
        return shifted.reshape(scores.shape)

    def pick_outputs(self, values: Array) -> Array:
        """(..., size) -> (count, r)."""
        picked = values if self.in_order else values.take(self.place, axis=-1)
        return picked if picked.ndim == 2 else picked[None]


def as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Tensors on the CPU as arrays, sharing their memory."""
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def plan_scores(
    parameters: Mapping[str, Array],
    form: Form,
    *,
    units: Mapping[str, Array],
    groups: SoftmaxGroups | None = None,
) -> Scores:
    """What `layers.compute_scores` gives for one input, in the layout of the groups if any.

    `units` are the shift and scale of inputs that are given.
    """
    depth, shift, scale = form.depth, units.get("shift"), units.get("scale")
    final = [parameters.get(name) for name in (f"weight_{depth}", f"bias_{depth}", "skip")]
    laid = (
        final if groups is None else [one if one is None else groups.lay_out(one) for one in final]
    )
    last, bias, skip = (None if one is None else without_axis(one) for one in laid)
    assert last is not None
    assert bias is not None
    direct = last if depth == 0 else skip
    flat = None if direct is None else direct.reshape(bias.size, -1)
    hidden = [
        (without_axis(parameters[f"weight_{layer}"]), without_axis(parameters[f"bias_{layer}"]))
        for layer in range(depth)
    ]
    first = hidden[0][0].reshape(hidden[0][1].size, -1) if hidden else None
    activate = ACTIVATIONS[form.activation]

    def compute_scores(x: Array) -> Array:
        z = x if shift is None else x - shift
        z = z if scale is None else z / scale
        found = bias if flat is None else bias + flat.dot(z).reshape(bias.shape)
        if first is None:
            return found
        values = first.dot(z).reshape(hidden[0][1].shape)
        values += hidden[0][1]
        activate(values)
        for weight, own in hidden[1:]:
            values = multiply(weight, values)
            values += own
            activate(values)
        return found + multiply(last, values)

    return compute_scores


def plan_feedback(
    scores: Scores,
    groups: SoftmaxGroups,
    *,
    loads: Callable[[Array], Array],
    source: IntArray,
    stages: list[tuple[Array, Array]],
    least: float,
) -> Scores:
    """Answers that are corrected by their loads, as `members.feedback` says.

    `loads` maps answers times their inputs, (..., size), to loads (..., L); `source` (size,) names
    these inputs. Of each stage: the feedback (count, size, L) and the sharpness (count, 1), which
    is modest.
    """
    ready = [(without_axis(feedback), without_axis(sharp)) for feedback, sharp in stages]
    ones = np.ones(stages[0][0].shape[-1])

    def compute_answer(x: Array) -> Array:
        values, sources = scores(x), x.take(source)
        answer = groups.apply_softmax(values)
        for feedback, sharpness in ready:
            pressure = loads(answer * sources)
            if pressure.ndim == 1:
                top = pressure[pressure.argmax()]
                pressure *= sharpness.item() / max(top, least)
                np.exp(pressure, out=pressure)
                pressure *= 1.0 / pressure.dot(ones)
            else:
                pressure *= sharpness / np.maximum(pressure.max(axis=1, keepdims=True), least)
                np.exp(pressure, out=pressure)
                pressure /= pressure.dot(ones)[:, None]
            values = values + multiply(feedback, pressure)
            answer = groups.apply_softmax(values)
        return answer

    return compute_answer


def plan_trees(
    *, roots: IntArray, feature: IntArray, threshold: Array, children: IntArray, depth: int
) -> Callable[[Array], IntArray]:
    """An input -> the leaf in which it ends in each tree, (count, trees).

    Node k has `children[2 k]` and, for values above its threshold, `children[2 k + 1]`.
    """

    def find_leaves(x: Array) -> IntArray:
        node = roots
        for _ in range(depth):
            right = x.take(feature.take(node)) > threshold.take(node)
            node = children.take(2 * node + right)
        return node

    return find_leaves


def without_axis(array: Array) -> Array:
    """(count, ...) -> the same, of one member (...)."""
    return array[0] if len(array) == 1 else array


def multiply(matrices: Array, vectors: Array) -> Array:
    """(..., m, k), (..., k) -> (..., m)."""
    if matrices.ndim == 2:
        return np.asarray(matrices.dot(vectors))
    return np.asarray(np.matmul(matrices, vectors[..., None])[..., 0])


def _relu(values: Array) -> None:
    np.maximum(values, 0.0, out=values)


def _tanh(values: Array) -> None:
    np.tanh(values, out=values)


def _gelu(values: Array) -> None:
    shares: Array = torch.erf(torch.from_numpy(values * math.sqrt(0.5))).numpy()
    shares += 1.0
    shares *= 0.5
    values *= shares


# in place
ACTIVATIONS: dict[str, Callable[[Array], None]] = {"relu": _relu, "gelu": _gelu, "tanh": _tanh}
