"""Fitted scikit-learn models as members: trees and linear models become plain arrays."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.members.networks import NetworkMembers, affine
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array

if TYPE_CHECKING:
    from cg4ai.protocols import Members

# A score under a softmax that gives probability exactly zero, and is still a finite number.
ABSENT_SCORE = -1e9
SUPPORTED = (
    "DecisionTree, ExtraTree, RandomForest, ExtraTrees and GradientBoosting classifiers and "
    "regressors, LogisticRegression, LinearRegression and Ridge"
)


def from_sklearn(estimator: Any, *, classes: int | None = None) -> Members:
    """One member with the outputs of a fitted model: `predict_proba`, or `predict` of a regressor.

    A classifier's columns follow its `classes_`. With `classes` they are put into 0..classes-1
    and labels the model has not seen get probability zero. Trees round inputs to float32, as
    scikit-learn does.
    """
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    forests = (
        RandomForestClassifier,
        ExtraTreesClassifier,
        RandomForestRegressor,
        ExtraTreesRegressor,
    )
    if isinstance(estimator, DecisionTreeClassifier | DecisionTreeRegressor):
        _check_fitted(estimator)
        return _mean_of_trees([estimator], estimator, classes)
    if isinstance(estimator, forests):
        _check_fitted(estimator)
        return _mean_of_trees(list(estimator.estimators_), estimator, classes)
    if isinstance(estimator, GradientBoostingClassifier | GradientBoostingRegressor):
        _check_fitted(estimator)
        return _boosted(estimator, classes)
    if isinstance(estimator, LogisticRegression):
        _check_fitted(estimator)
        return _logistic(estimator, classes)
    if isinstance(estimator, LinearRegression | Ridge):
        _check_fitted(estimator)
        _positions(estimator, classes)
        slopes = np.atleast_2d(estimator.coef_).T
        offsets = np.broadcast_to(np.atleast_1d(estimator.intercept_), slopes.shape[1:])
        return affine(slopes[None], offsets[None].copy())
    raise InvalidInput(
        f"{type(estimator).__name__} cannot become a member; use one of {SUPPORTED}, "
        "or give its outputs by a class of your own with the methods of Members"
    )


def _check_fitted(estimator: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        name = type(estimator).__name__
        raise InvalidInput(f"{name} is not fitted; call fit(X, y) first") from error


def _positions(estimator: Any, classes: int | None) -> tuple[NDArray[np.int64], int] | None:
    """Where each class column goes and how many columns there are; None for regressors."""
    labels = getattr(estimator, "classes_", None)
    if labels is None:
        if classes is not None:
            raise InvalidInput(
                f"classes is for classifiers; {type(estimator).__name__} is a regressor"
            )
        return None
    if isinstance(labels, list):
        raise InvalidInput(
            f"{type(estimator).__name__} was fitted on several label columns; fit one per column"
        )
    if classes is None:
        return np.arange(len(labels)), len(labels)
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
        raise InvalidInput(
            f"with classes={classes} the labels must be integers in 0..{classes - 1}, "
            f"got {labels.tolist()}"
        )
    return labels.astype(np.int64), classes


def _mean_of_trees(trees: list[Any], estimator: Any, classes: int | None) -> TreeMembers:
    place = _positions(estimator, classes)
    values: list[Array] = []
    for tree in trees:
        raw = tree.tree_.value
        if place is None:
            values.append(raw[:, :, 0])
        else:
            positions, size = place
            spread = np.zeros((len(raw), size))
            spread[:, positions] = raw[:, 0, : len(positions)]
            values.append(spread)
    return _tree_member(trees, values, factor=1.0 / len(trees))


def _tree_member(
    trees: list[Any],
    values: list[Array],
    *,
    factor: float,
    initial: Array | None = None,
    link: str = "identity",
) -> TreeMembers:
    """Pads the trees of one member to a common number of nodes."""
    nodes = max(tree.tree_.node_count for tree in trees)
    shape = (1, len(trees), nodes)
    feature, threshold = np.zeros(shape, np.int64), np.zeros(shape)
    left = np.broadcast_to(np.arange(nodes), shape).copy()
    right = left.copy()
    value = np.zeros((*shape, values[0].shape[1]))
    for position, (tree, leaf_values) in enumerate(zip(trees, values, strict=True)):
        arrays = tree.tree_
        used = slice(0, arrays.node_count)
        inner = arrays.children_left != -1
        own = np.arange(arrays.node_count)
        feature[0, position, used] = np.where(inner, arrays.feature, 0)
        threshold[0, position, used] = np.where(inner, arrays.threshold, 0.0)
        left[0, position, used] = np.where(inner, arrays.children_left, own)
        right[0, position, used] = np.where(inner, arrays.children_right, own)
        value[0, position, used] = leaf_values
    return TreeMembers(
        feature,
        threshold,
        left=left,
        right=right,
        value=value,
        input_size=int(trees[0].n_features_in_),
        initial=None if initial is None else initial[None],
        factor=np.array([factor]),
        link="softmax" if link == "softmax" else "identity",
        single_precision=True,
    )


def _boosted(estimator: Any, classes: int | None) -> TreeMembers:
    """Raw scores are a constant plus trees; the constant is read off at one input.

    Two classes have one raw score z: probabilities are the softmax of (0, z), or of (0, 2 z) for
    the exponential loss.
    """
    if estimator.init not in (None, "zero"):
        raise InvalidInput(
            f"GradientBoosting with init={estimator.init!r} cannot become a member; "
            "use the default init, or 'zero'"
        )
    place = _positions(estimator, classes)
    per_round = estimator.estimators_.shape[1]
    trees = list(estimator.estimators_.ravel())
    own = [tree.tree_.value[:, 0, 0] for tree in trees]
    raw = _one_column_each(own, [k % per_round for k in range(len(own))], per_round)
    factor = float(estimator.learning_rate)
    probe = np.zeros((1, estimator.n_features_in_))
    reached = _tree_member(trees, raw, factor=factor).outputs(torch.from_numpy(probe))[0, 0].numpy()
    with warnings.catch_warnings():
        # A model fitted on a data frame would complain that the probe has no column names.
        warnings.simplefilter("ignore", UserWarning)
        score = estimator.predict if place is None else estimator.decision_function
        initial = np.ravel(score(probe)) - reached
    if place is None:
        return _tree_member(trees, raw, factor=factor, initial=initial)
    positions, size = place
    scores = np.full(size, ABSENT_SCORE)
    scores[positions] = 0.0
    if len(positions) == 2:
        doubled = 2.0 if estimator.loss == "exponential" else 1.0
        columns = [int(positions[1])] * len(own)
        initial, factor = doubled * initial, doubled * factor
        scores[positions[1]] = initial[0]
    else:
        columns = [int(positions[k % per_round]) for k in range(len(own))]
        scores[positions] = initial
    spread = _one_column_each(own, columns, size)
    return _tree_member(trees, spread, factor=factor, initial=scores, link="softmax")


def _one_column_each(values: list[Array], columns: list[int], size: int) -> list[Array]:
    spread = []
    for own, column in zip(values, columns, strict=True):
        full = np.zeros((len(own), size))
        full[:, column] = own
        spread.append(full)
    return spread


def _logistic(estimator: Any, classes: int | None) -> NetworkMembers:
    place = _positions(estimator, classes)
    if place is None:
        raise InvalidInput("this LogisticRegression has no classes_; fit it again")
    positions, size = place
    one_versus_rest = estimator.solver == "liblinear" and len(positions) > 2
    if one_versus_rest or getattr(estimator, "multi_class", "auto") in ("ovr", "multinomial"):
        raise InvalidInput(
            "LogisticRegression with one-versus-rest or an explicit multi_class cannot become a "
            "member; use the default (a softmax over all classes) with another solver"
        )
    slopes = np.zeros((estimator.coef_.shape[1], size))
    offsets = np.full(size, ABSENT_SCORE)
    offsets[positions] = 0.0
    seen = positions[1:] if len(positions) == 2 else positions
    slopes[:, seen] = estimator.coef_.T
    offsets[seen] = estimator.intercept_
    return affine(slopes[None], offsets[None], output="softmax")
