"""Boosted trees of other libraries as members, read from what those models say of themselves.

HistGradientBoosting, LightGBM and XGBoost. The members need none of these packages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.members.tree_arrays import Tree, build_boosted_member, find_class_columns
from cg4ai.members.trees import TreeMembers
from cg4ai.records import IntArray

IDENTITY_OF_LIGHTGBM = (
    *("regression", "regression_l1", "l1", "huber", "fair", "quantile", "mape"),
    *("mean_absolute_error", "mean_absolute_percentage_error"),
)
IDENTITY_OF_XGBOOST = (
    *("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror"),
    "reg:squaredlogerror",
)
WORD = 32  # bits in one word of scikit-learn's sets of categories


def from_histograms(model: Any, classes: int | None = None) -> TreeMembers:
    """A fitted HistGradientBoosting model; poisson and gamma losses are refused."""
    name = type(model).__name__
    if getattr(model, "loss", None) in ("poisson", "gamma"):
        raise InvalidInput(
            f"{name} with loss={model.loss!r} predicts exp(score), which is no sum of trees: use "
            "'squared_error', 'absolute_error' or 'quantile'",
            code="unsupported",
        )
    encoding = _Encoding(model)
    trees, scores = [], []
    for round_of_trees in model._predictors:
        for score, predictor in enumerate(round_of_trees):
            trees.append(encoding.tree(predictor))
            scores.append(score)
    return build_boosted_member(
        trees,
        scores,
        np.ravel(model._baseline_prediction),
        columns=find_class_columns(getattr(model, "classes_", None), name, classes),
        input_size=int(model.n_features_in_),
    )


class _Encoding:
    """How the model's own columns and category codes come from those it was given."""

    def __init__(self, model: Any) -> None:
        count = int(model.n_features_in_)
        self.given = np.arange(count)
        self.categories: dict[int, IntArray] = {}
        if model.is_categorical_ is None:
            return
        chosen = np.asarray(model.is_categorical_, bool)
        self.given = np.concatenate([np.flatnonzero(chosen), np.flatnonzero(~chosen)])
        encoder = model._preprocessor.named_transformers_["encoder"]
        for column, values in enumerate(encoder.categories_):
            self.categories[column] = self._codes(values, int(self.given[column]))

    @staticmethod
    def _codes(values: Any, feature: int) -> IntArray:
        try:
            numbers = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            numbers = np.array([-1.0])
        numbers = numbers[~np.isnan(numbers)]
        if (numbers < 0).any() or (numbers != np.floor(numbers)).any():
            raise InvalidInput(
                f"feature {feature} has categories that are not whole numbers from 0 on: encode "
                "them before the model, by OrdinalEncoder",
                code="unsupported",
            )
        return numbers.astype(np.int64)

    def tree(self, predictor: Any) -> Tree:
        nodes = predictor.nodes
        leaf = nodes["is_leaf"].astype(bool)
        left = np.where(leaf, -1, nodes["left"].astype(np.int64))
        right = np.where(leaf, -1, nodes["right"].astype(np.int64))
        missing = 1 - nodes["missing_go_to_left"].astype(np.int64)
        subsets: dict[int, set[int]] = {}
        for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf).tolist():
            known = self.categories[int(nodes["feature_idx"][node])]
            words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]]
            codes = np.arange(len(known))
            goes_left = (words[codes // WORD] >> (codes % WORD).astype(words.dtype)) & 1
            # What is unknown goes where missing values go, so the set is that of the other side.
            if missing[node] == 0:
                left[node], right[node] = right[node], left[node]
                missing[node], goes_left = 1, 1 - goes_left
            subsets[node] = set(known[goes_left.astype(bool)].tolist())
        return Tree(
            self.given[nodes["feature_idx"].astype(np.int64)],
            nodes["num_threshold"],
            left,
            right,
            nodes["value"][:, None],
            missing,
            subsets,
        )


def from_lightgbm(model: Any, *, classes: int | None = None) -> TreeMembers:
    """A fitted LightGBM model, `Booster` or of its scikit-learn classes, by its `dump_model`.

    For regression, two classes and many; linear trees, zeros as missing values, text categories
    and objectives whose scores are transformed otherwise are refused.
    """
    booster = getattr(model, "booster_", model)
    dump = booster.dump_model()
    name, objective = type(model).__name__, str(dump.get("objective", "")).split()
    kind = objective[0] if objective else "none"
    options = dict(option.split(":", 1) for option in objective[1:] if ":" in option)
    if dump.get("pandas_categorical") and any(
        list(known) != list(range(len(known))) for known in dump["pandas_categorical"]
    ):
        raise InvalidInput(
            f"{name} was fitted to categories of a data frame other than 0, 1, ...: encode them "
            "before the model, by OrdinalEncoder",
            code="unsupported",
        )
    factor = 1.0
    if kind == "binary":
        labels, factor = np.arange(2), float(options.get("sigmoid", 1.0))
    elif kind == "multiclass":
        labels = np.arange(int(dump["num_class"]))
    elif kind in IDENTITY_OF_LIGHTGBM and "sqrt" not in objective[1:]:
        labels = None
    else:
        raise InvalidInput(
            f"{name} with the objective {' '.join(objective) or 'none'!r} cannot become a member; "
            f"use binary, multiclass or one of {', '.join(IDENTITY_OF_LIGHTGBM[:7])}",
            code="unsupported",
        )
    rounds = int(dump["num_tree_per_iteration"])
    trees = [_lightgbm_tree(info["tree_structure"], name) for info in dump["tree_info"]]
    if not trees:
        raise InvalidInput(f"{name} has no trees; fit it to rows it can split", code="unsupported")
    if dump.get("average_output"):
        factor *= rounds / len(trees)
    return build_boosted_member(
        trees,
        [number % rounds for number in range(len(trees))],
        np.zeros(rounds),
        columns=find_class_columns(
            labels if labels is None else getattr(model, "classes_", labels), name, classes
        ),
        input_size=int(dump["max_feature_idx"]) + 1,
        factor=factor,
    )


def _lightgbm_tree(structure: Mapping[str, Any], name: str) -> Tree:
    nodes: list[Mapping[str, Any]] = [structure]
    left, right = [], []
    for node in nodes:  # grows while it is read: children after their parents
        if "split_feature" not in node:
            if node.get("leaf_coeff"):
                raise InvalidInput(
                    f"{name} has linear trees; fit it with linear_tree=False", code="unsupported"
                )
            left.append(-1)
            right.append(-1)
            continue
        left.append(len(nodes))
        right.append(len(nodes) + 1)
        nodes += [node["left_child"], node["right_child"]]
    threshold, missing = np.zeros(len(nodes)), np.zeros(len(nodes), np.int64)
    subsets: dict[int, set[int]] = {}
    for number, node in enumerate(nodes):
        if "split_feature" not in node:
            continue
        if node["decision_type"] == "==":
            subsets[number] = {int(code) for code in str(node["threshold"]).split("||")}
            missing[number] = 1
            continue
        threshold[number] = float(node["threshold"])
        if node["missing_type"] == "Zero":
            raise InvalidInput(
                f"{name} takes zeros for missing; fit it with zero_as_missing=False",
                code="unsupported",
            )
        goes_left = (
            node["default_left"] if node["missing_type"] == "NaN" else threshold[number] >= 0
        )
        missing[number] = not goes_left
    return Tree(
        np.array([node.get("split_feature", 0) for node in nodes]),
        threshold,
        np.array(left),
        np.array(right),
        np.array([[node.get("leaf_value", 0.0)] for node in nodes], np.float64),
        missing,
        subsets,
    )


def from_xgboost(model: Any, *, classes: int | None = None) -> TreeMembers:
    """A fitted XGBoost model, `Booster` or of its scikit-learn classes, by its saved JSON.

    For regression (several outputs too), two classes and many; of a model stopped early, the best
    rounds, as its `predict` does. Linear boosters, trees with vectors in their leaves and
    objectives whose scores are transformed otherwise are refused.
    """
    name = type(model).__name__
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(booster.save_raw("json"))["learner"]
    gradient, objective = learner["gradient_booster"], learner["objective"]["name"]
    weights = None
    if gradient["name"] == "dart":
        weights = np.asarray(gradient["weight_drop"], np.float64)
        gradient = gradient["gbtree"]
    elif gradient["name"] != "gbtree":
        raise InvalidInput(
            f"{name} has booster {gradient['name']!r}; use 'gbtree' or 'dart'", code="unsupported"
        )
    stored = gradient["model"]
    if stored.get("cats", {}).get("enc"):
        raise InvalidInput(
            f"{name} was fitted to categories of a data frame: encode them before the model, by "
            "OrdinalEncoder",
            code="unsupported",
        )
    initial = np.atleast_1d(
        np.array(json.loads(learner["learner_model_param"]["base_score"]), np.float64)
    )
    labels: IntArray | None = None
    outputs = int(learner["learner_model_param"]["num_target"])
    if objective == "binary:logistic":
        labels, initial = np.arange(2), np.log(initial) - np.log1p(-initial)
    elif objective in ("multi:softprob", "multi:softmax"):
        outputs = int(learner["learner_model_param"]["num_class"])
        labels = np.arange(outputs)
    elif objective not in IDENTITY_OF_XGBOOST:
        raise InvalidInput(
            f"{name} with the objective {objective!r} cannot become a member; use "
            f"binary:logistic, multi:softprob or one of {', '.join(IDENTITY_OF_XGBOOST)}",
            code="unsupported",
        )
    missing = getattr(model, "missing", None)
    if missing is not None and not np.isnan(missing):
        raise InvalidInput(
            f"{name} takes {missing:g} for missing; fit it with missing=nan", code="unsupported"
        )
    rounds = best_rounds(model)
    end = int(stored["iteration_indptr"][rounds]) if rounds else None
    trees = [
        _xgboost_tree(tree, name, 1.0 if weights is None else float(weights[number]))
        for number, tree in enumerate(stored["trees"][:end])
    ]
    if not trees:
        raise InvalidInput(
            f"{name} has no trees; fit it with one round or more", code="unsupported"
        )
    if labels is not None:
        labels = np.asarray(getattr(model, "classes_", labels))
    return build_boosted_member(
        trees,
        stored["tree_info"][:end],
        np.broadcast_to(initial, (outputs,)),
        columns=find_class_columns(labels, name, classes),
        input_size=int(learner["learner_model_param"]["num_feature"]),
        single_precision=True,
    )


def best_rounds(model: Any) -> int:
    """Rounds that `predict` of XGBoost's scikit-learn classes uses; 0, as for a `Booster`: all.

    The booster itself says whether it was stopped early, by whatever way, also in a loaded file.
    """
    if not hasattr(model, "get_booster"):
        return 0
    best = model.get_booster().attr("best_iteration")
    return 0 if best is None else int(best) + 1


def _xgboost_tree(tree: Mapping[str, Any], name: str, weight: float) -> Tree:
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise InvalidInput(
            f"{name} has vectors in its leaves: fit it with multi_strategy='one_output_per_tree'",
            code="unsupported",
        )
    left = np.array(tree["left_children"], np.int64)
    right = np.array(tree["right_children"], np.int64)
    condition = np.array(tree["split_conditions"], np.float32)
    missing = 1 - np.array(tree["default_left"], np.int64)
    subsets: dict[int, list[int]] = {}
    for node, first, size in zip(
        tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
    ):
        # The categories of a node are those that go right there, and here those that go left.
        subsets[node] = tree["categories"][first : first + size]
        left[node], right[node], missing[node] = right[node], left[node], 1 - missing[node]
    leaf = left < 0
    return Tree(
        np.array(tree["split_indices"], np.int64),
        # x < t in float32 is x <= the number before t
        np.where(leaf, 0.0, np.nextafter(condition, np.float32(-np.inf))).astype(np.float64),
        left,
        right,
        np.where(leaf, weight * condition.astype(np.float64), 0.0)[:, None],
        missing,
        subsets,
    )
