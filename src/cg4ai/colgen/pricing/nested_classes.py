"""Monotone trees of more than two classes: binary models under constraints, fitted part by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier

from cg4ai.colgen.pricing.monotone_parameters import set_monotone_constraints
from cg4ai.errors import InvalidInput
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.nested_classes import NestedMembers, Nesting
from cg4ai.members.tree_arrays import build_constant_tree, repair_leaves, spread_to_classes
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array, IntArray
from cg4ai.rules.shapes import Monotone


class _Part(NamedTuple):
    """The rows that a part is fitted to, what it tells apart, and the class that rules bind."""

    rows: IntArray
    labels: IntArray
    bound: int | None


def find_nesting(shapes: Sequence[Monotone], classes: int) -> Nesting:
    """How members that keep all these shapes of so many classes are made of parts."""
    for shape in shapes:
        shape.differences(classes)  # refuses one that does not say which class it is about
        if (shape.ordered, shape.output) != (shapes[0].ordered, shapes[0].output):
            raise InvalidInput(
                f"{shapes[0].name} and {shape.name} cannot both be built into trees of {classes} "
                "classes, in which either one class is bound or all in order: leave one out",
                code="infeasible",
            )
    return Nesting(classes, shapes[0].output)


def check_nesting(estimator: Any, shapes: Sequence[Monotone]) -> None:
    """Refuse, before anything is fitted, what parts of a classifier of many classes cannot keep."""
    classes = max((shape.output_size or 0 for shape in shapes), default=0)
    if not is_classifier(estimator) or classes < 3:
        return
    find_nesting(shapes, classes)
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
    own = labels == nesting.output
    yield _Part(every, np.where(own, labels, nesting.another), nesting.output)
    yield _Part(np.flatnonzero(~own), labels[~own], None)


def _fitted(
    model: Any, part: _Part, inputs: Array, weights: Array | None, signs: IntArray
) -> TreeMembers:
    present, codes = np.unique(part.labels, return_inverse=True)  # some libraries count from 0
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
