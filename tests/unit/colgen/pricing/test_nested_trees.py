"""Trees of many classes under monotone shapes, against the models that they are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pricing_requests import make_request
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cg4ai.colgen.pricing.nested_classes import find_nesting, fit_nested_member
from cg4ai.colgen.pricing.trees import TreePricer
from cg4ai.ensemble.shapes import find_obstacle
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import NestedMembers
from cg4ai.objectives import Supervised
from cg4ai.rules import Monotone
from cg4ai.rules.rows import RowSet
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 4)).astype(np.float32).astype(np.float64)
SCORE = np.sin(4 * X[:, 0]) - X[:, 1] + X[:, 2] ** 2 + 0.3 * RNG.normal(size=400)
GRADES = np.digitize(SCORE, [-0.4, 0.2, 0.9])
SEED = 7  # of the requests
DIRECTIONS = np.array([1, -1, 0, 0])
HISTOGRAMS = HistGradientBoostingClassifier(max_iter=10, early_stopping=False)


def model(name):
    if name == "lightgbm":
        library = pytest.importorskip("lightgbm")
        return library.LGBMClassifier(n_estimators=10, num_threads=1, verbose=-1)
    if name == "xgboost":
        return pytest.importorskip("xgboost").XGBClassifier(n_estimators=10, n_jobs=1)
    if name == "tree":
        return DecisionTreeClassifier(max_depth=5)
    return RandomForestClassifier(5, max_depth=5) if name == "forest" else clone(HISTOGRAMS)


def bound(name, directions):
    """The library's own model of two classes under its constraint."""
    made = model(name)
    parameter = "monotone_constraints" if name in ("lightgbm", "xgboost") else "monotonic_cst"
    signs = tuple(directions.tolist())
    made.set_params(**{parameter: str(signs) if name == "xgboost" else list(signs)})
    return made.set_params(random_state=SEED)


def priced(estimator, shape, labels=GRADES):
    shape.check(4, 4)
    objective = Supervised(X, labels, "log_loss")
    request = make_request(objective, RowSet(Layout.single(4)), duals=[], gammas=[1e6])
    return TreePricer(estimator, scales=(1.0,)).with_shapes([shape]).price(request).members


def outputs(members, inputs):
    return members.outputs(torch.tensor(inputs)).numpy()[0]


@pytest.mark.parametrize("name", ["tree", "forest", "boosting", "lightgbm", "xgboost"])
@pytest.mark.parametrize("output", [None, 0, 2])
def test_members_are_the_libraries_binary_models_composed(name, output):
    shape = Monotone({0: 1, 1: -1}, output=output, ordered=output is None)
    members = priced(model(name), shape)
    assert isinstance(members, NestedMembers)
    assert not find_obstacle(members, shape)
    if output is None:
        reached = [bound(name, DIRECTIONS).fit(X, k <= GRADES) for k in (1, 2, 3)]
        chances = -np.sort(-np.stack([one.predict_proba(X)[:, 1] for one in reached], 1), axis=1)
        expected = -np.diff(chances, axis=1, prepend=1.0, append=0.0)
    else:
        rest = output != GRADES
        own = bound(name, DIRECTIONS).fit(X, ~rest).predict_proba(X)[:, 1:]
        if output == 0:  # the others are the second class, which falls
            own = bound(name, -DIRECTIONS).fit(X, rest).predict_proba(X)[:, :1]
        codes = np.unique(GRADES[rest], return_inverse=True)[1]
        among = model(name).set_params(random_state=SEED).fit(X[rest], codes).predict_proba(X)
        expected = np.insert((1 - own) * among, [output], own, axis=1)
    np.testing.assert_allclose(outputs(members, X), expected, atol=1e-6)
    low = RNG.uniform(-1, 1, (20_000, 4))
    high = low + DIRECTIONS * RNG.exponential(size=(20_000, 4))
    columns = [[1, 2, 3], [2, 3], [3]] if output is None else [[output]]
    for chosen in columns:
        before, after = (outputs(members, x)[:, chosen].sum(1) for x in (low, high))
        assert (after >= before - 1e-12).all()
    assert find_obstacle(members, Monotone({2: 1}, output=output, ordered=output is None))


@pytest.mark.parametrize("name", ["tree", "boosting", "xgboost"])
@pytest.mark.parametrize("output", [None, 1])
@pytest.mark.parametrize("classes", [(0, 1), (1,), (0, 2, 3)])
def test_classes_that_are_not_there_have_no_chance(name, output, classes):
    shape = Monotone({0: 1}, output=output, ordered=output is None)
    signs = np.tile(np.array([1, 0, 0, 0]), (4, 1))
    labels = np.array(classes)[GRADES % len(classes)]
    made = fit_nested_member(
        model(name), (X, labels, None), nesting=find_nesting([shape], 4), signs=signs
    )
    found = outputs(made, X)
    np.testing.assert_allclose(found.sum(1), 1)
    absent = [k for k in range(4) if k not in classes]
    assert np.abs(found[:, absent]).max() < 1e-6 if output is not None else True
    assert not find_obstacle(made, shape)


def test_weights_count():
    weights = RNG.uniform(0.1, 5, 400)
    signs = np.tile(DIRECTIONS, (4, 1))
    made = fit_nested_member(
        model("boosting"), (X, GRADES, weights), nesting=find_nesting([ORDERED], 4), signs=signs
    )
    top = bound("boosting", DIRECTIONS).fit(X, GRADES >= 3, sample_weight=weights)
    part = made.inner.take(np.array([2]))
    np.testing.assert_allclose(outputs(part, X)[:, 3], top.predict_proba(X)[:, 1], atol=1e-6)


ORDERED, FIRST = Monotone({0: 1}, ordered=True, name="in order"), Monotone({0: 1}, output=0)


@pytest.mark.parametrize(
    ("shapes", "estimator", "code"),
    [
        ([ORDERED, FIRST], HISTOGRAMS, "infeasible"),
        ([Monotone({0: 1}, output=one) for one in range(3)], HISTOGRAMS, "infeasible"),
        ([Monotone({0: 1})], HISTOGRAMS, "missing-argument"),
        ([FIRST], RandomForestClassifier(class_weight={0: 1, 1: 2, 2: 1}), "unsupported"),
    ],
)
def test_what_parts_cannot_keep_is_refused_before_training(shapes, estimator, code):
    for shape in shapes:
        shape.check(4, 3)
    with raises(InvalidInput, code):
        TreePricer(estimator).with_shapes(shapes)


def test_several_features_of_one_class_may_be_bound_by_several_rules():
    shapes = [Monotone({0: 1}, output=2), Monotone({1: -1}, output=2)]
    for shape in shapes:
        shape.check(4, 4)
    request = make_request(
        Supervised(X, GRADES, "log_loss"), RowSet(Layout.single(4)), duals=[], gammas=[1e6]
    )
    members = TreePricer(HISTOGRAMS, scales=(1.0,)).with_shapes(shapes).price(request).members
    assert not any(find_obstacle(members, shape) for shape in shapes)


@pytest.mark.parametrize("second", [Monotone({0: -1, 1: 1}, output=3), Monotone({0: 1}, output=3)])
def test_several_classes_may_be_bound_each_by_its_own_rule(second):
    shapes = [Monotone({0: 1}, output=0, name="first"), second]
    for shape in shapes:
        shape.check(4, 4)
    request = make_request(
        Supervised(X, GRADES, "log_loss"), RowSet(Layout.single(4)), duals=[], gammas=[1e6]
    )
    members = TreePricer(HISTOGRAMS, scales=(1.0,)).with_shapes(shapes).price(request).members
    assert not any(find_obstacle(members, shape) for shape in shapes)
    assert find_obstacle(members, Monotone({2: 1}, output=0))
    before = outputs(members, X)
    after = outputs(members, X + 0.5 * np.eye(4)[0])
    assert (after[..., 0] >= before[..., 0]).all()
    assert (np.sign(second.features[0]) * (after[..., 3] - before[..., 3]) >= 0).all()
    assert np.abs(before.sum(-1) - 1).max() < 1e-12
    assert (before.argmax(-1) == GRADES).mean() > 0.5
