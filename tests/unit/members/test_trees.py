"""Trees and converted scikit-learn models against scikit-learn itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkMembers, TreeMembers, concatenate, from_sklearn, restore
from cg4ai.members import trees as trees_module
from cg4ai.members.tree_arrays import move_thresholds_apart
from cg4ai.records import MemberState
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5))
LABELS = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) + (X[:, 2] > 0.7)
TARGETS = np.stack([X[:, 0] * X[:, 1] * 100, np.sin(X[:, 2])], axis=1)
NEW = np.concatenate([RNG.normal(size=(200, 5)), X])

CLASSIFIERS = [
    DecisionTreeClassifier(random_state=0),
    DecisionTreeClassifier(max_depth=3, class_weight="balanced", random_state=0),
    ExtraTreeClassifier(random_state=0),
    RandomForestClassifier(7, random_state=0),
    ExtraTreesClassifier(5, max_depth=6, random_state=0),
    GradientBoostingClassifier(n_estimators=9, random_state=0),
    GradientBoostingClassifier(n_estimators=4, init="zero", subsample=0.5, random_state=0),
    LogisticRegression(),
]
REGRESSORS = [
    DecisionTreeRegressor(random_state=0),
    RandomForestRegressor(6, random_state=0),
    ExtraTreesRegressor(6, random_state=0),
    LinearRegression(),
    LinearRegression(fit_intercept=False),
    Ridge(0.5),
]


def outputs(members, x):
    return members.outputs(torch.tensor(x)).numpy()


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1), (0, 2)])
def test_classifiers_equal_predict_proba(model, kept):
    rows = np.isin(LABELS, kept)
    model.fit(X[rows], LABELS[rows])
    expected = model.predict_proba(NEW)
    np.testing.assert_allclose(outputs(from_sklearn(model), NEW)[0], expected, rtol=0, atol=1e-12)
    full = np.zeros((len(NEW), 4))
    full[:, kept] = expected
    members = from_sklearn(model, classes=4)
    np.testing.assert_allclose(outputs(members, NEW)[0], full, rtol=0, atol=1e-12)
    absent = [label for label in range(4) if label not in kept]
    assert np.all(outputs(members, NEW)[0][:, absent] == 0.0)


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("targets", [TARGETS, TARGETS[:, 0]])
def test_regressors_equal_predict(model, targets):
    model.fit(X, targets)
    expected = model.predict(NEW).reshape(len(NEW), -1)
    np.testing.assert_allclose(
        outputs(from_sklearn(model), NEW)[0], expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber"])
def test_boosted_regressors_equal_predict(loss):
    model = GradientBoostingRegressor(n_estimators=8, loss=loss, random_state=0)
    model.fit(X, TARGETS[:, 0])
    np.testing.assert_allclose(
        outputs(from_sklearn(model), NEW)[0, :, 0], model.predict(NEW), rtol=1e-12, atol=1e-12
    )


def test_exponential_loss_equals_predict_proba():
    model = GradientBoostingClassifier(n_estimators=8, loss="exponential", random_state=0)
    model.fit(X, LABELS > 0)
    np.testing.assert_allclose(
        outputs(from_sklearn(model), NEW)[0], model.predict_proba(NEW), rtol=0, atol=1e-12
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), leaves=st.integers(2, 20), bits=st.integers(0, 3))
def test_ties_at_float32_thresholds_go_the_way_of_scikit_learn(seed, leaves, bits):
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(60, 2)), bits) + 1e-9 * rng.integers(-2, 3, size=(60, 2))
    model = DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=seed)
    model.fit(x, rng.normal(size=60))
    thresholds = model.tree_.threshold[model.tree_.feature >= 0]
    near = np.repeat(thresholds, 2)[:, None] + rng.normal(size=(2 * len(thresholds), 2)) * 1e-9
    probe = np.concatenate([x, near, np.repeat(thresholds, 2).reshape(-1, 2)])
    np.testing.assert_allclose(
        outputs(from_sklearn(model), probe)[0, :, 0], model.predict(probe), rtol=0, atol=1e-14
    )


def forest_stack():
    models = [
        RandomForestRegressor(size, max_depth=depth, random_state=0).fit(X, TARGETS)
        for size, depth in ((3, 2), (5, 7), (1, 4))
    ]
    models.append(DecisionTreeRegressor(max_depth=1).fit(X, TARGETS))
    return models, concatenate([from_sklearn(model) for model in models])


def test_stacks_of_different_sizes(monkeypatch):
    models, members = forest_stack()
    expected = np.stack([model.predict(NEW) for model in models])
    assert len(members) == 4
    assert members.depth == 7
    np.testing.assert_allclose(outputs(members, NEW), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        outputs(members.take(np.array([3, 1])), NEW), expected[[3, 1]], rtol=1e-12, atol=1e-12
    )
    monkeypatch.setattr(trees_module, "TREE_CHUNK", 64)
    np.testing.assert_allclose(outputs(members.to("cpu"), NEW), expected, rtol=1e-12, atol=1e-12)
    assert outputs(members, NEW[:0]).shape == (4, 0, 2)
    assert outputs(members.take(np.array([], dtype=np.int64)), NEW).shape == (0, 500, 2)


def test_state_gives_identical_outputs():
    boosted = GradientBoostingClassifier(n_estimators=3, random_state=0).fit(X, LABELS)
    for members in (forest_stack()[1], from_sklearn(boosted, classes=5)):
        state = members.state()
        again = restore(MemberState(state.kind, json.loads(json.dumps(state.config)), state.arrays))
        assert np.array_equal(outputs(again, NEW), outputs(members, NEW))


def test_stumps_by_hand_compare_in_double_precision():
    members = TreeMembers(
        [[[1, 0, 0]]],
        [[[0.1, 0.0, 0.0]]],
        left=[[[1, 1, 2]]],
        right=[[[2, 1, 2]]],
        value=[[[[0.0], [5.0], [7.0]]]],
        input_size=2,
    )
    x = np.array([[0.0, 0.1], [9.0, 0.1 + 1e-12], [0.0, -3.0]])
    assert outputs(members, x).ravel().tolist() == [5.0, 7.0, 5.0]
    assert not members.differentiable


def test_linear_models_become_networks_with_gradients():
    members = from_sklearn(LogisticRegression().fit(X, LABELS))
    assert isinstance(members, NetworkMembers)
    assert members.differentiable


def test_models_that_cannot_be_converted_are_named():
    with raises(InvalidInput, "unsupported"):
        from_sklearn(RandomForestClassifier())
    with raises(InvalidInput, "unsupported", "HistGradientBoostingClassifier"):
        from_sklearn(HistGradientBoostingClassifier())
    with raises(InvalidInput, "unsupported", "DummyClassifier"):
        from_sklearn(DummyClassifier().fit(X, LABELS))
    with raises(InvalidInput, "unsupported"):
        from_sklearn("tree")
    with raises(InvalidInput, "conflict", "regressor"):
        from_sklearn(Ridge().fit(X, TARGETS), classes=2)
    with raises(InvalidInput, "range"):
        from_sklearn(DecisionTreeClassifier().fit(X, LABELS), classes=2)
    with raises(InvalidInput, "shape"):
        from_sklearn(DecisionTreeClassifier().fit(X, np.stack([LABELS, LABELS], 1)))
    custom = GradientBoostingClassifier(n_estimators=2, init=DummyClassifier(strategy="prior"))
    with raises(InvalidInput, "unsupported", "init"):
        from_sklearn(custom.fit(X, LABELS))


def test_string_labels_keep_their_order():
    names = np.array(["a", "b", "c"])[LABELS]
    model = DecisionTreeClassifier(max_depth=3).fit(X, names)
    np.testing.assert_allclose(
        outputs(from_sklearn(model), NEW)[0], model.predict_proba(NEW), rtol=0, atol=1e-12
    )
    with raises(InvalidInput, "range", "integers"):
        from_sklearn(model, classes=3)


def test_models_fitted_on_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcde"))
    model = GradientBoostingClassifier(n_estimators=3).fit(frame, LABELS)
    np.testing.assert_allclose(
        outputs(from_sklearn(model), X)[0], model.predict_proba(frame), rtol=0, atol=1e-12
    )


def test_damaged_states_and_inputs_are_refused():
    members = from_sklearn(DecisionTreeRegressor(max_depth=2).fit(X, TARGETS))
    with raises(InvalidInput, "not-finite"):
        members.outputs(torch.full((1, 5), torch.inf))
    boosted = from_sklearn(GradientBoostingRegressor(n_estimators=2).fit(X, TARGETS[:, 0]))
    with raises(InvalidInput, "missing-values"):
        boosted.outputs(torch.full((1, 5), torch.nan))
    state = members.state()
    left = state.arrays["left"].copy()
    left[0, 0, 1] = 0
    far = state.arrays["right"].copy()
    far[0, 0, 0] = 99
    for config, arrays, code in [
        (
            state.config,
            {k: v for k, v in state.arrays.items() if k != "value"},
            "bad-file",
        ),
        (state.config, {**state.arrays, "threshold": np.zeros((1, 1, 2))}, "shape"),
        (state.config, {**state.arrays, "left": left}, "range"),
        (state.config, {**state.arrays, "right": far}, "range"),
        (state.config, {**state.arrays, "feature": state.arrays["feature"] + 9}, "range"),
        (state.config, {**state.arrays, "feature": state.arrays["feature"] + 0.5}, "type"),
        (state.config, {**state.arrays, "factor": np.ones(2)}, "shape"),
        (state.config, {**state.arrays, "value": np.ones(2)}, "shape"),
        ({**state.config, "link": "sofmax"}, state.arrays, "unknown-name"),
        ({"link": "identity"}, state.arrays, "bad-file"),
    ]:
        with raises(InvalidInput, code):
            restore(MemberState("tree", config, arrays))


def with_ties(random: np.random.Generator) -> np.ndarray:
    """Values on a grid that a rotation has made to differ by last bits."""
    grid = np.round(random.normal(size=(601, 3)), 1)
    return grid @ np.linalg.qr(random.normal(size=(3, 3)))[0]


@pytest.mark.parametrize("rows", [with_ties, lambda random: random.normal(size=(811, 3))])
@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e6])
@pytest.mark.parametrize(
    "model", [HistGradientBoostingClassifier(max_iter=8), RandomForestClassifier(8, random_state=0)]
)
def test_no_tree_splits_at_a_value_it_was_fitted_to(model, rows, unit) -> None:
    random = np.random.default_rng(4)
    inputs = unit * rows(random)
    model = clone(model).fit(inputs, (inputs[:, 0] + inputs[:, 1] ** 2 / unit > 0).astype(int))
    members = from_sklearn(model)
    assert isinstance(members, TreeMembers)
    apart = move_thresholds_apart(members, inputs)
    own = apart.outputs(torch.as_tensor(inputs))
    for change in (1e-12, -1e-12):
        moved = torch.as_tensor(inputs * (1 + change))
        assert torch.equal(apart.outputs(moved), own)
    kept = (members.outputs(torch.as_tensor(inputs)) == own).all(-1)
    assert kept.double().mean() > 0.9, "but for ties it decides as the model does"


def test_thresholds_stay_where_nothing_is_near() -> None:
    inputs = np.arange(8.0)[:, None]
    fitted = from_sklearn(DecisionTreeRegressor().fit(inputs, inputs[:, 0] ** 2))
    assert isinstance(fitted, TreeMembers)
    assert torch.equal(move_thresholds_apart(fitted, inputs).threshold, fitted.threshold)
    constant = np.ones((8, 1))
    assert torch.equal(move_thresholds_apart(fitted, constant).threshold, fitted.threshold)
