"""Boosted trees of other libraries as arrays: equal to the library, missing and categories too."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from cg4ai.errors import InvalidInput
from cg4ai.members import (
    TreeMembers,
    concatenate,
    from_lightgbm,
    from_sklearn,
    from_xgboost,
    restore,
)
from cg4ai.records import MemberState
from raising import raises

RNG = np.random.default_rng(7)
CATEGORIES = 90  # more than one word of bits


def table(count, *, absent=0.15):
    """Three numbers and one category, the last column, with missing values everywhere."""
    x = RNG.normal(size=(count, 4))
    x[:, 3] = RNG.integers(0, CATEGORIES, count)
    x[RNG.random(x.shape) < absent] = np.nan
    return x


X, NEW = table(1500), table(500)
NEW[:40, 3] = RNG.integers(CATEGORIES, 250, 40)  # categories that no model has seen
NEW[40:60, 3] = -2
FULL = np.nan_to_num(X)
SCORE = FULL[:, 0] + np.sin(3 * FULL[:, 1]) + 2 * (FULL[:, 3] % 3 == 0) + np.isnan(X[:, 2])
Y = 40 * SCORE
TWO = (SCORE.mean() < SCORE).astype(int)
THREE = np.digitize(SCORE, np.quantile(SCORE, [0.4, 0.8]))


def outputs(members, x=NEW):
    return members.outputs(torch.tensor(x)).numpy()[0]


def same(members, expected, tolerance=1e-12):
    expected = np.asarray(expected, np.float64).reshape(len(NEW), -1)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(outputs(members) / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("categorical", [None, [3]])
@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "quantile"])
def test_histogram_regressors_equal_predict(categorical, loss):
    model = HistGradientBoostingRegressor(
        loss=loss,
        quantile=0.3 if loss == "quantile" else None,
        max_iter=12,
        categorical_features=categorical,
        monotonic_cst=[1, 0, 0, 0],
    ).fit(X, Y)
    same(from_sklearn(model), model.predict(NEW))


@pytest.mark.parametrize("categorical", [None, [3]])
@pytest.mark.parametrize("labels", [TWO, THREE])
def test_histogram_classifiers_equal_predict_proba(categorical, labels):
    model = HistGradientBoostingClassifier(max_iter=8, categorical_features=categorical)
    model.fit(X, labels)
    members = from_sklearn(model)
    assert isinstance(members, TreeMembers)
    assert (members.subset is not None) == (categorical is not None)
    same(members, model.predict_proba(NEW))
    wider = outputs(from_sklearn(model, classes=5))
    np.testing.assert_allclose(wider[:, : labels.max() + 1], model.predict_proba(NEW), atol=1e-12)
    assert np.all(wider[:, labels.max() + 1 :] == 0)


def test_histogram_categories_may_skip_numbers_but_not_be_text():
    pandas = pytest.importorskip("pandas")
    x, new = X.copy(), NEW.copy()
    x[:, 3], new[:, 3] = 3 * x[:, 3] + 2, 3 * new[:, 3] + 2
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features=[3]).fit(x, Y)
    np.testing.assert_allclose(outputs(from_sklearn(model), new)[:, 0], model.predict(new))
    frame = pandas.DataFrame({"number": FULL[:, 0], "word": pandas.Categorical(list("abc") * 500)})
    with raises(InvalidInput, "unsupported", "feature 1"):
        from_sklearn(HistGradientBoostingRegressor(max_iter=2).fit(frame, Y))


def test_losses_behind_a_logarithm_are_refused():
    model = HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(X, np.abs(Y))
    with raises(InvalidInput, "unsupported", "poisson"):
        from_sklearn(model)


@pytest.mark.parametrize("model", [RandomForestClassifier(5), RandomForestRegressor(5)])
def test_forests_send_missing_values_where_scikit_learn_does(model):
    numbers = isinstance(model, RandomForestRegressor)
    model.fit(X, Y if numbers else THREE)
    same(from_sklearn(model), model.predict(NEW) if numbers else model.predict_proba(NEW))


def test_missing_values_are_refused_where_no_node_says_where_they_go():
    half = X.copy()
    half[:, :2] = FULL[:, :2]
    lightgbm = pytest.importorskip("lightgbm")
    members = from_lightgbm(
        lightgbm.LGBMRegressor(n_estimators=3, verbose=-1, num_threads=1).fit(half, Y)
    )
    missing = members.missing.clone()
    missing[members.feature == 0] = -1
    strict = members.with_tensors({**members.tensors(), "missing": missing})
    assert strict.find_missing_allowed().tolist() == [False, True, True, True]
    with raises(InvalidInput, "missing-values", "NaN"):
        strict.outputs(torch.tensor(NEW))
    filled = NEW.copy()
    filled[:, 0] = np.nan_to_num(NEW[:, 0])
    assert np.array_equal(outputs(strict, filled), outputs(members, filled))


def lightgbm_models():
    lightgbm = pytest.importorskip("lightgbm")
    common = {"n_estimators": 12, "verbose": -1, "min_child_samples": 5, "num_threads": 1}
    few = {**common, "min_data_per_group": 3, "cat_smooth": 1.0, "max_cat_to_onehot": 2}
    forest = {"boosting_type": "rf", "bagging_fraction": 0.6, "bagging_freq": 1}
    dart = {"boosting_type": "dart", "drop_rate": 0.5}
    return [
        (lightgbm.LGBMRegressor(**few), Y),
        (lightgbm.LGBMRegressor(**few, objective="quantile", alpha=0.2), Y),
        (lightgbm.LGBMRegressor(**few, **dart), Y),
        (lightgbm.LGBMRegressor(**few, **forest), Y),
        (lightgbm.LGBMRegressor(**common, use_missing=False), Y),
        (lightgbm.LGBMClassifier(**few), TWO),
        (lightgbm.LGBMClassifier(**few, **forest), TWO),
        (lightgbm.LGBMClassifier(**few, sigmoid=2.5), TWO),
        (lightgbm.LGBMClassifier(**few), THREE),
    ]


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("categorical", ["auto", [3]])
def test_lightgbm_equals_its_predictions(number, categorical):
    model, y = lightgbm_models()[number]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LightGBM's own, on its way of naming columns
        model.fit(X, y, categorical_feature=categorical)
        expected = model.predict_proba(NEW) if y is not Y else model.predict(NEW)
    members = from_lightgbm(model)
    assert (members.subset is not None) == (categorical == [3])
    same(members, expected, 1e-9)
    same(from_sklearn(model), expected, 1e-9)
    same(from_lightgbm(model.booster_), expected, 1e-9)
    if y is THREE:
        assert outputs(from_lightgbm(model, classes=4)).shape == (len(NEW), 4)


def test_lightgbm_models_that_are_no_sums_of_constants_are_refused():
    lightgbm = pytest.importorskip("lightgbm")
    quiet = {"n_estimators": 2, "verbose": -1, "num_threads": 1}
    for options, y, fact in (
        ({"objective": "poisson"}, np.abs(Y), "objective"),
        ({"linear_tree": True}, Y, "linear_tree"),
        ({"zero_as_missing": True}, Y, "zero_as_missing"),
    ):
        model = lightgbm.LGBMRegressor(**quiet, **options).fit(X, y)
        with raises(InvalidInput, "unsupported", fact):
            from_lightgbm(model)
    with raises(InvalidInput, "unsupported"):
        from_sklearn(lightgbm.LGBMRegressor())


def xgboost_models():
    xgboost = pytest.importorskip("xgboost")
    common = {"n_estimators": 12, "max_depth": 4, "n_jobs": 1, "random_state": 0}
    return [
        (xgboost.XGBRegressor(**common), Y),
        (xgboost.XGBRegressor(**common), np.stack([Y, -SCORE], 1)),
        (xgboost.XGBRegressor(**common, booster="dart", rate_drop=0.5), Y),
        (xgboost.XGBRegressor(**common, objective="reg:absoluteerror"), Y),
        (xgboost.XGBRFRegressor(**common), Y),
        (xgboost.XGBClassifier(**common), TWO),
        (xgboost.XGBClassifier(**common, base_score=0.2), TWO),
        (xgboost.XGBClassifier(**common), THREE),
    ]


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("categorical", [False, True])
def test_xgboost_equals_its_predictions(number, categorical):
    model, y = xgboost_models()[number]
    if categorical:
        kinds = ["q", "q", "q", "c"]
        model.set_params(feature_types=kinds, enable_categorical=True, max_cat_to_onehot=3)
    # XGBoost itself ends with an error for categories below zero.
    new = np.where(NEW == -2, np.nan, NEW)
    model.fit(X, y)
    expected = model.predict_proba(new) if y is TWO or y is THREE else model.predict(new)
    expected = np.asarray(expected, np.float64).reshape(len(new), -1)
    scale = np.maximum(1.0, np.abs(expected).max())
    assert (from_xgboost(model).subset is not None) == categorical
    for members in (from_xgboost(model), from_sklearn(model), from_xgboost(model.get_booster())):
        np.testing.assert_allclose(outputs(members, new) / scale, expected / scale, atol=1e-6)


def test_xgboost_stopped_early_and_what_is_refused():
    xgboost = pytest.importorskip("xgboost")
    stopped = xgboost.XGBRegressor(n_estimators=200, early_stopping_rounds=2, n_jobs=1)
    stopped.fit(X[:700], Y[:700], eval_set=[(X[700:], Y[700:])], verbose=False)
    same(from_xgboost(stopped), stopped.predict(NEW), 1e-6)
    stopped.set_params(early_stopping_rounds=None)  # as of a loaded file, or after a callback
    same(from_xgboost(stopped), stopped.predict(NEW), 1e-6)
    zeros = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, missing=0.0).fit(FULL, Y)
    with raises(InvalidInput, "unsupported", "missing"):
        from_xgboost(zeros)
    for options, message in (
        ({"objective": "count:poisson"}, "objective"),
        ({"booster": "gblinear"}, "gblinear"),
    ):
        model = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, **options).fit(FULL, np.abs(Y))
        with raises(InvalidInput, "unsupported", message):
            from_xgboost(model)


def test_stacks_of_numbers_and_categories_are_saved_and_taken_apart():
    models = [
        HistGradientBoostingRegressor(max_iter=3, categorical_features=[3]).fit(X, Y),
        HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=4).fit(X, Y),
        HistGradientBoostingRegressor(max_iter=2, categorical_features=[0, 3]).fit(
            np.abs(np.round(np.nan_to_num(X))), Y
        ),
    ]
    for order in ([0, 1, 2], [1, 0, 2]):
        members = concatenate([from_sklearn(models[k]) for k in order])
        state = members.state()
        again = restore(MemberState(state.kind, json.loads(json.dumps(state.config)), state.arrays))
        for stack in (members, again, again.take(np.array([2, 1, 0])).take(np.array([2, 1, 0]))):
            got = stack.outputs(torch.tensor(NEW)).numpy()[..., 0]
            for row, k in zip(got, order, strict=True):
                if k < 2:
                    np.testing.assert_allclose(row, models[k].predict(NEW), atol=1e-9)


def test_damaged_categories_are_refused():
    model = HistGradientBoostingRegressor(max_iter=3, categorical_features=[3]).fit(X, Y)
    state = from_sklearn(model).state()
    for name, array, code in (
        ("missing", state.arrays["missing"] + 2, "range"),
        ("subset", state.arrays["subset"] + 99, "range"),
        ("subsets", state.arrays["subsets"][0], "shape"),
        ("subset", state.arrays["subset"] + 0.5, "type"),
    ):
        with raises(InvalidInput, code):
            restore(MemberState(state.kind, state.config, {**state.arrays, name: array}))
    alone = {name: array for name, array in state.arrays.items() if name != "subsets"}
    with raises(InvalidInput, "conflict"):
        restore(MemberState(state.kind, state.config, alone))
