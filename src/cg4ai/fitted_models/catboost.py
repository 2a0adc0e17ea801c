"""CatBoost models as members, read from their JSON: symmetric trees and those with nodes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.members.tree_arrays import Tree, build_boosted_member, build_member, find_class_columns
from cg4ai.members.trees import TreeMembers

IDENTITY = (
    *("RMSE", "MAE", "Quantile", "MultiQuantile", "Huber", "Expectile", "LogCosh", "MAPE"),
    *("MultiRMSE", "Lq"),
)
TWO_CLASSES, CLASSES = ("Logloss", "CrossEntropy"), ("MultiClass",)


def from_catboost(model: Any) -> TreeMembers:
    """One member with the outputs of a fitted CatBoost model: probabilities, or values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        stored = json.loads(path.read_text(encoding="utf-8"))
    return read_catboost(stored, getattr(model, "classes_", None))


def find_loss(stored: Mapping[str, Any]) -> str:
    info = stored.get("model_info", {})
    params = info.get("params", {})
    params = json.loads(params) if isinstance(params, str) else params
    loss = params.get("loss_function", info.get("loss_function", ""))
    name = loss.get("type", "") if isinstance(loss, Mapping) else str(loss)
    return str(name).partition(":")[0]


def read_catboost(stored: Mapping[str, Any], labels: Any = None) -> TreeMembers:
    """The member that CatBoost's JSON describes."""
    info = stored.get("features_info", {})
    floats = {
        int(one["feature_index"]): int(one["flat_feature_index"])
        for one in info.get("float_features", [])
    }
    others = [name for name in ("categorical_features", "text_features") if info.get(name)]
    if others:
        raise InvalidInput(
            f"this CatBoost model has {others[0].replace('_', ' ')}; encode them before the model",
            code="unsupported",
        )
    loss = find_loss(stored)
    if loss not in (*IDENTITY, *TWO_CLASSES, *CLASSES):
        raise InvalidInput(
            f"CatBoost models with the loss {loss or 'of no name'!r} are not supported; use "
            f"{', '.join((*TWO_CLASSES, *CLASSES))} or one of {', '.join(IDENTITY[:6])}",
            code="unsupported",
        )
    scale, bias = stored["scale_and_bias"]
    bias = np.atleast_1d(np.asarray(bias, np.float64))
    size = len(bias)
    if "oblivious_trees" in stored:
        trees = [_symmetric(one, floats, size) for one in stored["oblivious_trees"]]
    else:
        trees = [_nodes(one, floats, size) for one in stored.get("trees", [])]
    if not trees:
        raise InvalidInput("this CatBoost model has no trees", code="unsupported")
    inputs = max(floats.values(), default=-1) + 1
    if loss in TWO_CLASSES:
        known = np.arange(2) if labels is None or len(labels) != 2 else np.asarray(labels)
        columns = find_class_columns(known, "CatBoost", None)
        return build_boosted_member(
            trees,
            [0] * len(trees),
            bias,
            columns=columns,
            input_size=inputs,
            factor=float(scale),
            single_precision=True,
        )
    return build_member(
        trees,
        input_size=inputs,
        factor=float(scale),
        initial=bias,
        link="softmax" if loss in CLASSES else "identity",
        single_precision=True,
    )


def _border(split: Mapping[str, Any], floats: Mapping[int, int]) -> tuple[int, float]:
    if split.get("split_type", "FloatFeature") != "FloatFeature":
        raise InvalidInput(
            "this CatBoost model splits at categories; encode them before the model",
            code="unsupported",
        )
    return floats[int(split["float_feature_index"])], float(np.float32(split["border"]))


def _symmetric(stored: Mapping[str, Any], floats: Mapping[int, int], size: int) -> Tree:
    """All nodes of a level ask the same; bit i of a leaf's number is the answer of level i."""
    splits = [_border(one, floats) for one in stored.get("splits") or []]
    depth = len(splits)
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    feature, threshold = np.zeros(count, np.int64), np.zeros(count)
    left, right = np.full(count, -1), np.full(count, -1)
    code = np.zeros(count, np.int64)
    for node in range(inner):
        level = (node + 1).bit_length() - 1
        feature[node], threshold[node] = splits[level]
        left[node], right[node] = 2 * node + 1, 2 * node + 2
        code[2 * node + 1], code[2 * node + 2] = code[node], code[node] | (1 << level)
    leaves = np.asarray(stored["leaf_values"], np.float64).reshape(2**depth, size)
    value = np.zeros((count, size))
    value[inner:] = leaves[code[inner:]]
    return Tree(feature, threshold, left, right, value)


def _nodes(stored: Mapping[str, Any], floats: Mapping[int, int], size: int) -> Tree:
    nodes: list[Mapping[str, Any]] = [stored]
    left, right = [], []
    for node in nodes:  # grows while it is read
        if "split" not in node:
            left.append(-1)
            right.append(-1)
            continue
        left.append(len(nodes))
        right.append(len(nodes) + 1)
        nodes += [node["left"], node["right"]]
    feature, threshold = np.zeros(len(nodes), np.int64), np.zeros(len(nodes))
    value = np.zeros((len(nodes), size))
    for number, node in enumerate(nodes):
        if "split" in node:
            feature[number], threshold[number] = _border(node["split"], floats)
        else:
            value[number] = np.atleast_1d(node["value"])
    return Tree(feature, threshold, np.array(left), np.array(right), value)
