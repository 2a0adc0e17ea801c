"""Fitted models of other libraries as members: trees and linear models become plain arrays."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members.boosted import from_histograms, from_lightgbm, from_xgboost
from cg4ai.members.networks import NetworkMembers, affine
from cg4ai.members.tree_arrays import (
    ABSENT_SCORE,
    ClassColumns,
    Tree,
    build_boosted_member,
    build_member,
    find_class_columns,
)
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array

if TYPE_CHECKING:
    from cg4ai.protocols import Members

SUPPORTED = (
    "DecisionTree, ExtraTree, RandomForest, ExtraTrees, GradientBoosting and HistGradientBoosting "
    "classifiers and regressors, LogisticRegression, LinearRegression and Ridge of scikit-learn, "
    "models of LightGBM and XGBoost"
)


def from_sklearn(estimator: Any, *, classes: int | None = None) -> Members:
    """One member with the outputs of a fitted model: `predict_proba`, or `predict` of a regressor.

    A classifier's columns follow its `classes_`. With `classes` they are put into 0..classes-1
    and labels the model has not seen get probability zero. Trees round inputs to float32 and
    send missing values where the model does. Models of LightGBM and XGBoost are taken as well.
    """
    library = type(estimator).__module__.partition(".")[0]
    if library in ("lightgbm", "xgboost"):
        if hasattr(estimator, "fit"):  # not a Booster, which is always trained
            _check_fitted(estimator)
        take = from_lightgbm if library == "lightgbm" else from_xgboost
        return take(estimator, classes=classes)
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
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
    if isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor):
        _check_fitted(estimator)
        return from_histograms(estimator, classes)
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
        "or give its outputs by a class of your own with the methods of Members",
        code="unsupported",
    )


def _check_fitted(estimator: Any) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        name = type(estimator).__name__
        raise InvalidInput(
            f"{name} is not fitted; call fit(X, y) first", code="unsupported"
        ) from error


def _positions(estimator: Any, classes: int | None) -> ClassColumns | None:
    """Where each class column goes and how many columns there are; None for regressors."""
    return find_class_columns(
        getattr(estimator, "classes_", None), type(estimator).__name__, classes
    )


def _mean_of_trees(trees: list[Any], estimator: Any, classes: int | None) -> TreeMembers:
    place = _positions(estimator, classes)
    values: list[Array] = []
    for tree in trees:
        raw = tree.tree_.value
        if place is None:
            values.append(raw[:, :, 0])
        else:
            spread = np.zeros((len(raw), place.size))
            spread[:, place.positions] = raw[:, 0, : len(place.positions)]
            values.append(spread)
    missing = bool(estimator.__sklearn_tags__().input_tags.allow_nan)
    return build_member(
        [
            _tree(tree.tree_, value, missing=missing)
            for tree, value in zip(trees, values, strict=True)
        ],
        input_size=int(trees[0].n_features_in_),
        factor=1.0 / len(trees),
        single_precision=True,
    )


def _tree(arrays: Any, value: Array, *, missing: bool) -> Tree:
    return Tree(
        arrays.feature,
        arrays.threshold,
        arrays.children_left,
        arrays.children_right,
        value,
        1 - arrays.missing_go_to_left.astype(np.int64) if missing else None,
    )


def _boosted(estimator: Any, classes: int | None) -> TreeMembers:
    """Raw scores are a constant plus trees; the constant is read off at one input.

    Two classes have one raw score z: probabilities are the softmax of (0, z), or of (0, 2 z) for
    the exponential loss.
    """
    if estimator.init not in (None, "zero"):
        raise InvalidInput(
            f"GradientBoosting with init={estimator.init!r} cannot become a member; "
            "use the default init, or 'zero'",
            code="unsupported",
        )
    place = _positions(estimator, classes)
    per_round = estimator.estimators_.shape[1]
    fitted = [tree.tree_ for tree in estimator.estimators_.ravel()]
    trees = [_tree(tree, tree.value[:, 0, :], missing=False) for tree in fitted]
    scores = [number % per_round for number in range(len(trees))]
    factor, inputs = float(estimator.learning_rate), int(estimator.n_features_in_)

    def member(initial: Array, columns: ClassColumns | None, scale: float = 1.0) -> TreeMembers:
        return build_boosted_member(
            trees,
            scores,
            scale * initial,
            columns=columns,
            input_size=inputs,
            factor=scale * factor,
            single_precision=True,
        )

    probe = np.zeros((1, inputs))
    reached = member(np.zeros(per_round), None).outputs(torch.from_numpy(probe))[0, 0].numpy()
    with warnings.catch_warnings():
        # A model fitted on a data frame would complain that the probe has no column names.
        warnings.simplefilter("ignore", UserWarning)
        score = estimator.predict if place is None else estimator.decision_function
        initial = np.ravel(score(probe)) - reached
    return member(initial, place, 2.0 if estimator.loss == "exponential" else 1.0)


def _logistic(estimator: Any, classes: int | None) -> NetworkMembers:
    place = _positions(estimator, classes)
    if place is None:
        raise InvalidInput("this LogisticRegression has no classes_; fit it again")
    positions, size = place.positions, place.size
    one_versus_rest = estimator.solver == "liblinear" and len(positions) > 2
    if one_versus_rest or getattr(estimator, "multi_class", "auto") in ("ovr", "multinomial"):
        raise InvalidInput(
            "LogisticRegression with one-versus-rest or an explicit multi_class cannot become a "
            "member; use the default (a softmax over all classes) with another solver",
            code="unsupported",
        )
    slopes = np.zeros((estimator.coef_.shape[1], size))
    offsets = np.full(size, ABSENT_SCORE)
    offsets[positions] = 0.0
    seen = positions[1:] if len(positions) == 2 else positions
    slopes[:, seen] = estimator.coef_.T
    offsets[seen] = estimator.intercept_
    return affine(slopes[None], offsets[None], output="softmax")
