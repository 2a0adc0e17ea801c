"""Missing values in X: taken where all members take them, else refused with the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, load
from cg4ai.ensemble.claims import record_audited
from cg4ai.errors import InvalidInput
from cg4ai.rules import AffineBound, DecisionRate, Linear, Monotone, Range, Rate
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 3))
X[RANDOM.random((200, 3)) < 0.2] = np.nan
Y = np.where(np.isnan(X[:, 0]), 3.0, np.nan_to_num(X[:, 0])) - np.nan_to_num(X[:, 1])
QUICK: dict[str, Any] = {"iteration_limit": 3, "random_state": 0}


@pytest.mark.parametrize("members", ["tree", "forest", "boosting", DecisionTreeRegressor()])
def test_trees_learn_from_what_is_missing(members: Any, tmp_path: Any) -> None:
    rules: list[Any] = [Monotone({1: -1}), Range(-2.0, 4.0)]
    model = ConstrainedRegressor(members=members, **QUICK).fit(X, Y, requirements=rules)
    assert all(audit.holds for audit in model.audit_)
    assert model.score(X, Y) > 0.4
    lost, known = X.copy(), X.copy()
    lost[:, 0], known[:, 0] = np.nan, 0.0
    assert model.predict(lost).mean() > model.predict(known).mean() + 1  # 3 where it is missing
    assert np.isfinite(model.input_range_).all()
    model.ensemble_.save(tmp_path / "model")
    again = load(tmp_path / "model").predict(X)
    np.testing.assert_allclose(again[:, 0], model.predict(X))


def test_classes_from_rows_with_missing_values() -> None:
    model = ConstrainedClassifier(members="boosting", **QUICK).fit(X, Y > 1)
    assert model.score(X, Y > 1) > 0.8
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    "members", ["auto", "network", ["boosting", "network"], LinearRegression()]
)
def test_others_refuse_them_with_the_way_out(members: Any) -> None:
    model = ConstrainedRegressor(members=members, **QUICK)
    assert not model.__sklearn_tags__().input_tags.allow_nan
    with raises(InvalidInput, "missing-values", "boosting", "NaN"):
        model.fit(X, Y)
    boosted = ConstrainedRegressor(members=HistGradientBoostingRegressor())
    assert boosted.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="infinity"):
        boosted.fit(np.where(np.isnan(X), np.inf, X), Y)


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("members", ["tree", "boosting"])
def test_rules_list_rows_with_missing_values_where_members_take_them(members: str) -> None:
    lacking = X[np.isnan(X[:, 0])][:5]
    rules: list[Any] = [
        Linear(lacking, [1.0], 3.5, ">=", name="at least"),
        Rate(X, X[:, 2] > 0, output=0, tolerance=0.05, name="alike"),
    ]
    model = ConstrainedRegressor(members=members, iteration_limit=10, random_state=0)
    model.fit(X, Y, requirements=rules)
    found = model.predict(X)
    assert (model.predict(lacking) >= 3.5 - 1e-6).all()
    assert abs(found[X[:, 2] > 0].mean() - found[~(X[:, 2] > 0)].mean()) <= 0.05 + 1e-6
    assert [audit.strength for audit in model.audit_] == ["audited"] * 2
    assert record_audited(model.ensemble_, rules[0]) == 5
    assert set(model.ensemble_.predict(-lacking * -1.0, explain=True).labels) == {"audited"}


def test_decisions_about_rows_with_missing_values() -> None:
    lower = X[:, 2] > 0
    rule = DecisionRate(X, lower, tolerance=0.1)
    model = ConstrainedClassifier(members="tree", iteration_limit=10, random_state=0)
    decided = model.fit(X, np.median(Y) < Y, requirements=[rule]).predict(X)
    assert np.isnan(X).any()
    assert abs(decided[lower].mean() - decided[~lower].mean()) <= 0.1 + 1e-9
    negative = np.where(np.isnan(X), np.copysign(np.nan, -1.0), X)  # as 0 / 0 has it
    assert (model.predict(negative) == decided).all()


def test_text_is_refused_with_the_way_out() -> None:
    with raises(InvalidInput, "type", "Rome", "ColumnTransformer"):
        ConstrainedRegressor().fit([["1", "Rome"], ["2", "Oslo"]], [0.0, 1.0])


@pytest.mark.parametrize("members", ["network", "affine", ["boosting", "network"]])
def test_rules_with_missing_values_are_refused_before_training_for_others(members: Any) -> None:
    rule = Linear(X[np.isnan(X[:, 0])][:5], [1.0], 3.5, ">=", name="at least")
    known = np.nan_to_num(X)
    with raises(InvalidInput, "missing-values", "feature 0"):
        ConstrainedRegressor(members=members, **QUICK).problem(known, Y, [rule])
    plain = ConstrainedRegressor(members=members, **QUICK, steps=20).fit(known, Y)
    with raises(InvalidInput, "missing-values"):
        plain.ensemble_.audit(rule)


def test_bounds_that_depend_on_what_is_missing_are_refused() -> None:
    with raises(InvalidInput, "missing-values"):
        Linear(X[:50], [1.0], AffineBound(0.0, [1.0, 0.0, 0.0]), ">=")
