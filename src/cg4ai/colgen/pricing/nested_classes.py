"""Monotone trees of more than two classes: binary models under constraints, fitted part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier

from cg4ai.colgen.pricing.monotone_parameters import find_signs, set_monotone_constraints
from cg4ai.errors import InvalidInput
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.nested_classes import EACH, NestedMembers, Nesting
from cg4ai.members.tree_arrays import build_constant_tree, repair_leaves, spread_to_classes
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray
from cg4ai.rules.shapes import Monotone

UNUSED = 2  # the sign of a feature that a part must not know


class _Part(NamedTuple):
    """The rows that a part is fitted to, what it tells apart, and the class that rules bind."""

    rows: IntArray
    labels: IntArray
    bound: int | None


def find_nesting(shapes: Sequence[Monotone], classes: int) -> Nesting:
    """How members that keep all these shapes of so many classes are made of parts."""
    for shape in shapes:
        shape.differences(classes)  # refuses one that does not say which class it is about
        if shape.ordered != shapes[0].ordered:
            raise InvalidInput(
                f"{shapes[0].name} and {shape.name} cannot both be built into trees of {classes} "
                "classes, in which either single classes are bound or all in order: leave one out",
                code="infeasible",
            )
    several = len({shape.output for shape in shapes}) > 1
    return Nesting(classes, EACH if several else shapes[0].output)


def find_part_signs(shapes: Sequence[Monotone], nesting: Nesting, signs: IntArray) -> IntArray:
    """(classes, inputs): how each part moves; of parts against all others UNUSED is one more way.

    Where a class rises all others must not, and a part of which opposite things are asked must not
    know the feature.
    """
    if nesting.output != EACH:
        return signs
    rises, falls = (np.ones(signs.shape, bool) for _ in range(2))  # what each may do
    for shape in shapes:
        own = shape.directions(signs.shape[1])
        bound = (np.arange(nesting.size) == shape.output)[:, None]
        rises &= np.where(bound, own >= 0, own <= 0)
        falls &= np.where(bound, own <= 0, own >= 0)
    left = (rises | falls).any(axis=0)
    if not left.all():
        raise InvalidInput(
            f"{shapes[0].name} and {shapes[1].name} ask for opposite things of feature "
            f"{int(np.flatnonzero(~left)[0])}: no class could move with it; leave one out",
            code="infeasible",
        )
    return np.where(rises | falls, rises.astype(np.int64) - falls, UNUSED)


def check_nesting(estimator: Any, shapes: Sequence[Monotone]) -> None:
    """Refuse, before anything is fitted, what parts of a classifier of many classes cannot keep."""
    classes = max((shape.output_size or 0 for shape in shapes), default=0)
    if not is_classifier(estimator) or classes < 3:
        return
    width = 1 + max(int(feature) for shape in shapes for feature in shape.features)
    nesting, signs = find_nesting(shapes, classes), find_signs(shapes, width, classes, True)
    assert signs is not None
    find_part_signs(shapes, nesting, signs)
    if isinstance(estimator.get_params().get("class_weight"), Mapping):
        raise InvalidInput(
            f"{type(estimator).__name__} has weights of {classes} classes, and {shapes[0].name} is "
            "built into models of fewer: give class_weight, or sample_weight, to the estimator "
            "around it",
            code="unsupported",
        )


def fit_nested_member(
    model: Any,
    rows: tuple[Array, IntArray, Array | None],
    *,
    nesting: Nesting,
    signs: IntArray,
) -> NestedMembers:
    """One member, its parts copies of the model that are fitted to inputs, labels and weights.

    `signs` (classes, inputs) says how each chance that is bound moves with an input.
    """
    inputs, labels, weights = rows
    parts = list(_parts(labels, nesting))
    fitted: dict[int, TreeMembers] = {}
    for number, part in enumerate(parts):
        if len(np.unique(part.labels)) > 1:
            own = None if weights is None else weights[part.rows]
            fitted[number] = _fitted(model, part, inputs[part.rows], own, signs)
    like = next(iter(fitted.values()), None)
    for number, part in enumerate(parts):
        if number not in fitted:  # there is nothing to tell apart
            label = part.labels[:1] if len(part.labels) else np.array([nesting.another])
            fitted[number] = spread_to_classes(
                build_constant_tree(inputs.shape[1], like), label, nesting.size
            )
    stack = TreeMembers.concatenate([fitted[number] for number in range(len(parts))])
    return NestedMembers(stack, nesting.output)


def _parts(labels: IntArray, nesting: Nesting) -> Iterator[_Part]:
    every = np.arange(len(labels))
    if nesting.output is None:
        for k in nesting.bound.values():
            yield _Part(every, np.where(labels >= k, k, 0), k)
        return
    if nesting.output == EACH:
        for k in range(nesting.size):
            yield _Part(every, np.where(labels == k, k, 1 if k == 0 else 0), k)
        return
    own = labels == nesting.output
    yield _Part(every, np.where(own, labels, nesting.another), nesting.output)
    yield _Part(np.flatnonzero(~own), labels[~own], None)


def _fitted(
    model: Any, part: _Part, inputs: Array, weights: Array | None, signs: IntArray
) -> TreeMembers:
    present, codes = np.unique(part.labels, return_inverse=True)  # some libraries count from 0
    unused = np.zeros(inputs.shape[1], bool) if part.bound is None else signs[part.bound] == UNUSED
    if unused.any():  # nothing is split by a column of zeros
        inputs = np.where(unused, 0.0, inputs)
        signs = np.where(unused, 0, signs)
    own = np.zeros_like(signs)
    if part.bound is not None:
        own[part.bound] = signs[part.bound]
        own[present[present != part.bound]] = -signs[part.bound]
    one = (
        clone(model)
        if part.bound is None
        else set_monotone_constraints(clone(model), own[present[1]])
    )
    one.fit(inputs, codes, sample_weight=weights)
    made = from_sklearn(one)
    if not isinstance(made, TreeMembers):
        raise InvalidInput(f"expected trees, got members of {type(made).__name__}", code="type")
    return repair_leaves(spread_to_classes(made, present, len(signs)), own)
