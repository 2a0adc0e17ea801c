"""How outputs may move with a feature, read off the signs of weights alone, without any rounding.

For every unit of a network and every feature it is known whether the unit may rise or fall with
it, and bend up (convex) or down (concave). A positive weight passes on what may happen, a negative
one its opposite; activations add what they do. What cannot happen on any path of weights that are
not zero never happens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray
from cg4ai.rules.output_sets import OutputSet
from cg4ai.rules.shapes import Monotone, Shape

Moves = NDArray[np.bool_]  # (..., features, 4): may rise, fall, bend up, bend down
RISE, FALL, UP, DOWN = range(4)
OPPOSITE = [FALL, RISE, DOWN, UP]
TREE_ARRAYS = ("feature", "left", "right", "value", "factor", "subset")
FREE = 2  # a weight of either sign; else weights are 1 (>= 0), -1 (<= 0) or 0


def build_input_moves(input_size: int) -> Moves:
    """(d, d, 4): each input rises with itself."""
    made = np.zeros((input_size, input_size, 4), bool)
    made[np.arange(input_size), np.arange(input_size), RISE] = True
    return made


def apply_activation(moves: Moves, activation: str) -> Moves:
    """What units may do after their activation: relu is convex and rises, tanh only rises."""
    moved = moves[..., RISE] | moves[..., FALL]
    made = moves.copy()
    made[..., UP] |= moved
    if activation != "relu":
        made[..., DOWN] |= moved
    if activation not in ("relu", "tanh"):
        made[..., RISE] |= moved
        made[..., FALL] |= moved
    return made


def propagate_moves(positive: Moves, negative: Moves, moves: Moves) -> Moves:
    """Weights (k, units) above and below zero, what units may do -> what their sums may do."""
    flat = moves.reshape(len(moves), -1).astype(np.float64)
    opposite = moves[..., OPPOSITE].reshape(len(moves), -1).astype(np.float64)
    found = positive.astype(np.float64) @ flat + negative.astype(np.float64) @ opposite > 0
    return np.asarray(found.reshape(len(positive), *moves.shape[1:]))


def find_permitted_signs(targets: Moves, sources: Moves, activation: str | None = None) -> IntArray:
    """(targets, sources): which sign a weight may have, for targets to do only what they may.

    Targets are units after their activation, if one is given: relu of a falling input falls and
    bends up, so the activation comes after the sign.
    """
    beyond = ~targets.reshape(len(targets), -1)

    def excess(moves: Moves) -> NDArray[np.bool_]:
        if activation is not None:
            moves = apply_activation(moves, activation)
        return (beyond.astype(np.float64) @ moves.reshape(len(moves), -1).T.astype(np.float64)) > 0

    rises, falls = ~excess(sources), ~excess(sources[..., OPPOSITE])
    return np.where(rises & falls, FREE, rises.astype(np.int64) - falls.astype(np.int64))


def find_allowed_moves(shapes: Sequence[Shape], input_size: int) -> Moves:
    """(d, 4): what is left to an output of which all these shapes are asked."""
    made = np.ones((input_size, 4), bool)
    for shape in shapes:
        against = (FALL, RISE) if isinstance(shape, Monotone) else (DOWN, UP)
        directions = shape.directions(input_size)
        made[directions > 0, against[0]] = False
        made[directions < 0, against[1]] = False
    return made


def find_asked_rows(shape: Shape, output_size: int, *, softmax: bool) -> IntArray:
    """(k, r): the sums of scores to look at; differences of them, if under a softmax."""
    return shape.differences(output_size) if softmax else shape.functionals(output_size)


def find_output_moves(shapes: Sequence[Shape], output_size: int, input_size: int) -> Moves:
    """(r, d, 4): what is left to each output."""
    return np.stack(
        [
            find_allowed_moves([one for one in shapes if one.output in (None, output)], input_size)
            for output in range(output_size)
        ]
    )


def map_into_set(moves: Moves, source: OutputSet) -> Moves:
    """What outputs (r, d, 4) may do once they are mapped into a set.

    Order statistics rise where all that are sorted rise, and bend both ways. Clamping turns nothing
    round: the larger of an output and a lower end bends up alone, the smaller of it and an upper
    end down. What must sum to a total moves with the others.
    """
    made = moves.copy()
    for chain in map(list, source.chains):
        made[chain] = moves[chain].any(axis=0)
    moved = made[..., RISE] | made[..., FALL]
    for bend, end in ((UP, source.low), (DOWN, source.high)):
        bent = np.isfinite(end)
        bent[[output for chain in source.chains for output in chain]] = True
        made[..., bend] |= moved & bent[:, None]
    for total in source.totals:
        outputs = list(total.outputs)
        made[outputs] = np.logical_or.reduce(moved[outputs])[:, None]
    return made


def find_network_moves(
    arrays: Mapping[str, Array], functionals: IntArray, *, depth: int, activation: str
) -> Moves:
    """One network's parameters -> (k, d, 4): what these sums of its scores may do."""
    last = _parts(functionals, arrays[f"weight_{depth}"])
    if depth == 0:
        return propagate_moves(*last, build_input_moves(arrays["weight_0"].shape[1]))
    moves = build_input_moves(arrays["weight_0"].shape[1])
    for layer in range(depth):
        weight = arrays[f"weight_{layer}"]
        moves = apply_activation(propagate_moves(weight > 0, weight < 0, moves), activation)
    found = propagate_moves(*last, moves)
    if "skip" in arrays:
        inputs = build_input_moves(arrays["skip"].shape[1])
        found |= propagate_moves(*_parts(functionals, arrays["skip"]), inputs)
    return found


def _parts(functionals: IntArray, weight: Array) -> tuple[Moves, Moves]:
    """Where `functionals @ weight` is above and below zero: compared, for sums would round."""
    signs = np.array([_signs(row, weight) for row in functionals])
    return signs > 0, signs < 0


def _signs(functional: IntArray, weight: Array) -> Any:
    plus, minus = np.flatnonzero(functional > 0), np.flatnonzero(functional < 0)
    if len(plus) <= 1 and len(minus) <= 1:
        zero = np.zeros(weight.shape[1])
        high = weight[plus[0]] if len(plus) else zero
        low = weight[minus[0]] if len(minus) else zero
        return (high > low).astype(int) - (high < low).astype(int)
    return np.array([np.sign(fsum(column)) for column in (functional[:, None] * weight).T.tolist()])


def apply_softmax(moves: Moves) -> Moves:
    """What probabilities may do where differences of scores do this: they bend as they like."""
    moved = moves[..., RISE] | moves[..., FALL]
    made = moves.copy()
    made[..., UP], made[..., DOWN] = moved, moved
    return made


def find_tree_moves(arrays: Mapping[str, Any], functionals: IntArray) -> Moves:
    """Sums of trees, their arrays (trees, nodes) -> (k, d, 4): what these sums of scores may do.

    Two inputs that differ in one feature part at a node that splits on it: a tree rises if there
    no leaf on the low side lies above one on the high side. A step bends both ways, and a split
    by categories may do anything.
    """
    feature, left, right = (arrays[name] for name in ("feature", "left", "right"))
    inner = left != np.arange(left.shape[1])
    made = np.zeros((len(functionals), int(arrays["input_size"]), 4), bool)
    for number, functional in enumerate(functionals):
        values = _functional_values(functional, arrays["value"])
        low, high = values.copy(), values.copy()
        trees = np.arange(len(left))
        for node in reversed(range(left.shape[1])):  # children come after their parents
            split = trees[inner[:, node]]
            one, other = left[split, node], right[split, node]
            names = feature[split, node]
            falls = high[split, one] > low[split, other]
            rises = high[split, other] > low[split, one]
            if arrays.get("subset") is not None:  # categories have no order
                unordered = arrays["subset"][split, node] >= 0
                rises, falls = rises | unordered, falls | unordered
            np.logical_or.at(made[number, :, RISE], names, rises)
            np.logical_or.at(made[number, :, FALL], names, falls)
            low[split, node] = np.minimum(low[split, one], low[split, other])
            high[split, node] = np.maximum(high[split, one], high[split, other])
    moved = made[..., RISE] | made[..., FALL]
    made[..., UP], made[..., DOWN] = moved, moved
    return made if arrays["factor"] >= 0 else made[..., OPPOSITE]


def _functional_values(functional: IntArray, value: Array) -> Array:
    """(trees, nodes): each leaf's sum of outputs, rounded once."""
    chosen = np.flatnonzero(functional)
    if len(chosen) == 1:
        return np.asarray(functional[chosen[0]] * value[..., chosen[0]])
    flat = (functional[chosen] * value[..., chosen]).reshape(-1, len(chosen))
    return np.array([fsum(row) for row in flat.tolist()]).reshape(value.shape[:2])
