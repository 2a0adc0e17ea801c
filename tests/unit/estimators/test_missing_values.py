"""Missing values in X: taken where all members take them, else refused with the way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, Monotone, Range, load
from cg4ai.errors import InvalidInput

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
    with pytest.raises(InvalidInput, match=r'NaN.*members="boosting".*SimpleImputer'):
        model.fit(X, Y)
    boosted = ConstrainedRegressor(members=HistGradientBoostingRegressor())
    assert boosted.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="infinity"):
        boosted.fit(np.where(np.isnan(X), np.inf, X), Y)
