"""Scalers before a model, taken into it: thresholds and weights for inputs before scaling.

Scaling is monotone in floating point, too, so the last input that a scaler brings up to a
threshold is found exactly, bit by bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.model import LARGEST_INPUT
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray

SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
TOP = np.int64(2**63 - 1)


def scale_member(members: Any, step: Any) -> Any:
    """A member that takes inputs before a fitted scaler of scikit-learn."""
    name = type(step).__name__
    if name not in SCALERS or not type(step).__module__.startswith("sklearn."):
        raise InvalidInput(
            f"{name} before a model is not supported; steps may be {', '.join(SCALERS)}: audit "
            "the model behind it, on its own inputs",
            code="unsupported",
        )
    if int(step.n_features_in_) != members.input_size:
        raise InvalidInput(
            f"{name} gives {step.n_features_in_} features, the model takes {members.input_size}",
            code="shape",
        )
    if isinstance(members, TreeMembers):
        return _scale_trees(members, step)
    shift, scale = _units(step, members.input_size)
    return _scale_network(members, shift, scale)


def find_largest_input(steps: Sequence[Any], size: int) -> float:
    """The largest power of ten up to which scaled inputs are float32 numbers, which trees ask."""
    largest = LARGEST_INPUT
    while True:
        ends = np.array([np.full(size, -largest), np.full(size, largest)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in steps:
                ends = np.asarray(step.transform(ends))
        if np.abs(ends).max(initial=0.0) <= np.finfo(np.float32).max:
            return largest
        largest /= 10


def _scale_trees(members: TreeMembers, step: Any) -> TreeMembers:
    feature, threshold = members.feature.numpy(), members.threshold.numpy().copy()
    inner = (members.left != torch.arange(members.left.shape[2])).numpy()
    for column in range(members.input_size):
        here = inner & (feature == column)
        if here.any():
            cuts, back = np.unique(threshold[here], return_inverse=True)
            threshold[here] = _invert(step, column, cuts, single=members.single_precision)[back]
    made = members._rebuild({**members.tensors(), "threshold": torch.as_tensor(threshold)})
    made.single_precision = False
    return made


def _invert(step: Any, column: int, cuts: Array, *, single: bool) -> Array:
    """The last number that the scaler brings up to each of the cuts."""

    def brought(values: Array) -> Array:
        rows = np.zeros((len(values), int(step.n_features_in_)))
        rows[:, column] = values
        with warnings.catch_warnings(), np.errstate(over="ignore"):
            warnings.simplefilter("ignore")
            found = np.asarray(step.transform(rows))[:, column]
            return found.astype(np.float32).astype(np.float64) if single else found

    largest = 1e60
    low, high = (_order(np.full(len(cuts), end)) for end in (-largest, largest))
    never = brought(np.full(len(cuts), -largest)) > cuts
    always = brought(np.full(len(cuts), largest)) <= cuts
    while ((middle := _middle(low, high)) != low).any():
        up = brought(_number(middle)) <= cuts
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    found = _number(low)
    return np.asarray(np.where(never, -largest, np.where(always, largest, found)))


def _middle(low: IntArray, high: IntArray) -> IntArray:
    """Rounded down; the sum of both may be no whole number of 64 bits."""
    return np.asarray((low >> 1) + (high >> 1) + (low & high & 1))


def _order(values: Array) -> IntArray:
    """Whole numbers in the order of the floats."""
    bits = values.view(np.int64)
    return np.asarray(np.where(bits < 0, -(bits & TOP), bits))


def _number(order: IntArray) -> Array:
    bits = np.where(order < 0, -order | ~TOP, order).astype(np.int64)
    return bits.view(np.float64)


def _units(step: Any, size: int) -> tuple[Array, Array]:
    """`(x - shift) / scale` for each feature."""
    ones, zeros = np.ones(size), np.zeros(size)
    kind = type(step).__name__
    if kind == "MinMaxScaler":
        if getattr(step, "clip", False):
            raise InvalidInput(
                "MinMaxScaler(clip=True) before a network is not supported", code="unsupported"
            )
        return -step.min_ / step.scale_, 1.0 / step.scale_
    centre = getattr(step, "mean_" if kind == "StandardScaler" else "center_", None)
    scale = getattr(step, "scale_", None)
    return zeros if centre is None else centre, ones if scale is None else scale


def _scale_network(members: NetworkMembers, shift: Array, scale: Array) -> NetworkMembers:
    architecture = members.architecture
    if architecture.shift is not None or architecture.scale is not None:
        raise InvalidInput("only one scaler before a network is supported", code="unsupported")
    made: NetworkArchitecture = replace(architecture, shift=shift, scale=scale)
    return NetworkMembers(made, members.parameters)
