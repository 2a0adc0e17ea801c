"""Trees priced under monotone shapes: no pair of inputs falls, whichever library grew them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pricing_requests import make_request
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cg4ai.colgen.pricing.trees import TreePricer
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import TreeMembers, from_sklearn
from cg4ai.members.tree_arrays import repair_leaves
from cg4ai.objectives import Supervised
from cg4ai.rules import Curvature, Monotone
from cg4ai.rules.rows import RowSet
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 4))
SCORE = np.sin(4 * X[:, 0]) - X[:, 1] + X[:, 2] ** 2 + 0.3 * RNG.normal(size=400)
LABELS = (SCORE > 0.3).astype(np.int64)
TARGETS = np.stack([SCORE, -SCORE], 1)


def priced(estimator, shapes, targets):
    outputs = 2 if targets.ndim == 1 else targets.shape[1]
    for shape in shapes:
        shape.check(4, outputs)
    loss = "log_loss" if targets.ndim == 1 else "squared"
    request = make_request(
        Supervised(X, targets, loss), RowSet(Layout.single(outputs)), duals=[], gammas=[1e6]
    )
    return TreePricer(estimator, scales=(1.0,)).with_shapes(shapes).price(request).members


def steepest_fall(members, feature, sign, output):
    """The most that an output moves against the sign, over many pairs of inputs."""
    low = RNG.uniform(-1, 1, (20_000, 4))
    high = low.copy()
    high[:, feature] = RNG.uniform(low[:, feature], 1.2)
    before, after = (members.outputs(torch.tensor(x)).numpy()[0, :, output] for x in (low, high))
    return float((sign * (before - after)).max())


def regressors():
    yield DecisionTreeRegressor(max_depth=6)
    yield ExtraTreesRegressor(5, max_depth=6)
    yield HistGradientBoostingRegressor(max_iter=20)
    yield "lightgbm"
    yield "xgboost"


def made(model, kind):
    if model == "lightgbm":
        library = pytest.importorskip("lightgbm")
        return getattr(library, f"LGBM{kind}")(n_estimators=20, num_threads=1, verbose=-1)
    if model == "xgboost":
        library = pytest.importorskip("xgboost")
        return getattr(library, f"XGB{kind}")(n_estimators=20, n_jobs=1)
    return model


@pytest.mark.parametrize("model", list(regressors()), ids=str)
@pytest.mark.parametrize("outputs", [1, 2])
def test_regressors_do_not_fall(model, outputs):
    shapes = [Monotone({0: 1}, output=0), Monotone({1: -1}, output=0)]
    if outputs == 2:
        shapes.append(Monotone({0: -1}, output=1))
    members = priced(made(model, "Regressor"), shapes, TARGETS[:, :outputs])
    assert members.output_size == outputs
    for shape in shapes:
        for feature, sign in shape.features.items():
            assert steepest_fall(members, feature, sign, shape.output) <= 0
    assert steepest_fall(members, 2, 1, 0) > 0.1  # x ** 2 is free to fall
    error = members.outputs(torch.tensor(X)).numpy()[0, :, 0] - SCORE
    assert error.std() < 0.8 * SCORE.std()


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(max_depth=5),
        RandomForestClassifier(5, max_depth=5),
        HistGradientBoostingClassifier(max_iter=10),
        "lightgbm",
        "xgboost",
    ],
    ids=str,
)
@pytest.mark.parametrize("output", [None, 0])
def test_two_classes_do_not_fall(model, output):
    members = priced(made(model, "Classifier"), [Monotone({0: 1, 1: -1}, output=output)], LABELS)
    for feature, sign in ((0, 1), (1, -1)):
        assert steepest_fall(members, feature, sign, 1 if output is None else 0) <= 1e-15


def test_shapes_that_trees_cannot_keep_are_refused_before_training():
    boosting = HistGradientBoostingClassifier()
    for estimator, shape, code in (
        (boosting, Curvature({0: 1}), "unsupported"),
        (GradientBoostingRegressor(), Monotone({0: 1}), "unsupported"),
        (Ridge(), Monotone({0: 1}), "unsupported"),
        (
            HistGradientBoostingRegressor(monotonic_cst=[1, 0, 0, 0]),
            Monotone({0: 1}),
            "conflict",
        ),
        (boosting, Monotone({0: 1}, logits=True), "unsupported"),
    ):
        with raises(InvalidInput, code):
            TreePricer(estimator).with_shapes([shape])
    opposite = [Monotone({0: 1}), Monotone({0: -1})]
    with raises(InvalidInput, "infeasible"):
        priced(HistGradientBoostingRegressor(), opposite, TARGETS[:, :1])


def test_several_outputs_are_one_model_each_with_missing_values_and_categories():
    x = X.copy()
    x[:, 3] = RNG.integers(0, 5, 400)
    x[RNG.random(x.shape) < 0.1] = np.nan
    request = make_request(
        Supervised(X, TARGETS, "squared"), RowSet(Layout.single(2)), duals=[], gammas=[1e6]
    )
    both = TreePricer(HistGradientBoostingRegressor(max_iter=5), scales=(1.0,)).price(request)
    alone = [HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(X, y) for y in TARGETS.T]
    expected = np.stack([model.predict(x) for model in alone], 1)
    got = both.members.outputs(torch.tensor(x)).numpy()[0]
    np.testing.assert_allclose(got, expected, atol=1e-9)


def worst_split(members, feature, sign):
    """The largest leaf on the low side minus the smallest on the high side, node by node."""
    worst = -np.inf
    for tree in range(members.value.shape[1]):
        left, right = members.left[0, tree].tolist(), members.right[0, tree].tolist()
        values = (sign * members.value[0, tree, :, 0]).tolist()

        def leaves(node, left=left, right=right, values=values):
            if left[node] == node:
                return [values[node]]
            return leaves(left[node]) + leaves(right[node])

        for node in range(len(left)):
            if left[node] != node and int(members.feature[0, tree, node]) == feature:
                worst = max(worst, max(leaves(left[node])) - min(leaves(right[node])))
    return worst


@pytest.mark.parametrize("size", [1e-9, 0.1])
def test_leaves_that_rounding_put_out_of_order_are_put_back(size):
    model = HistGradientBoostingRegressor(max_iter=20, monotonic_cst=[1, -1, 0, 0])
    members = from_sklearn(model.fit(X, SCORE))
    assert isinstance(members, TreeMembers)
    assert worst_split(members, 0, 1) <= 0
    signs = np.array([[1, -1, 0, 0]])
    assert repair_leaves(members, signs) is members
    noise = size * torch.as_tensor(RNG.uniform(-1, 1, members.value.shape))
    shaken = members.with_tensors({**members.tensors(), "value": members.value + noise})
    assert max(worst_split(shaken, 0, 1), worst_split(shaken, 1, -1)) > 0
    if size > 1e-3:
        with raises(InvalidInput, "unsupported"):
            repair_leaves(shaken, signs)
        return
    again = repair_leaves(shaken, signs)
    assert worst_split(again, 0, 1) <= 0
    assert worst_split(again, 1, -1) <= 0
    assert float((again.value - shaken.value).abs().max()) <= size
