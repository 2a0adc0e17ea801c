"""Repaired models keep their rules, and are no further from the model than they have to be."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.linear_model import Ridge

from cg4ai import certify, repair
from cg4ai.errors import InvalidInput
from cg4ai.fitted_models import Stable
from cg4ai.records import Strength
from cg4ai.rules import Box, Curvature, Linear, Monotone, Range, SumTo
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 3))
Y = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * RANDOM.normal(size=300)
MODEL = GradientBoostingRegressor(n_estimators=10, max_depth=3, random_state=0).fit(X, Y)
LARGER = GradientBoostingRegressor(n_estimators=40).fit(X, Y)
FIRST = RANDOM.normal(size=(500, 3))
SECOND = FIRST + np.array([1.0, 0.0, 0.0]) * RANDOM.exponential(size=(500, 1))
BOX = Box([-1.0] * 3, [1.0] * 3)


@pytest.mark.parametrize("method", ["envelope", "leaves"])
def test_no_pair_falls_and_the_range_is_kept(method: str) -> None:
    made = repair(MODEL, [Monotone({0: 1}), Range(-1, 1)], data=X, method=method)  # type: ignore[arg-type]
    assert (made.predict(SECOND) >= made.predict(FIRST)).all()
    assert np.abs(made.predict(FIRST)).max() <= 1
    assert set(made.strengths.values()) == {Strength.CONSTRUCTED}
    assert made.distance is not None
    assert made.distance.largest >= made.distance.mean > 0
    if made.ensemble is not None:
        assert certify(made.ensemble, Monotone({0: 1})).status == "proven"


def test_no_monotone_function_is_nearer_than_the_envelope() -> None:
    """Along a line it differs by half of the largest fall, which any monotone function must."""
    made = repair(MODEL, Monotone({1: 1}))
    line = np.zeros((2000, 3))
    line[:, 1] = np.linspace(-3, 3, 2000)
    given, moved = MODEL.predict(line), made.predict(line)
    fall = float((np.maximum.accumulate(given) - given).max())
    assert fall > 0
    assert np.abs(given - moved).max() == pytest.approx(fall / 2, abs=1e-12)


def test_two_features_and_classes() -> None:
    small = GradientBoostingRegressor(n_estimators=4, max_depth=2).fit(X, Y)
    made = repair(small, Monotone({0: 1, 1: -1}))
    both = FIRST + np.array([1.0, -1.0, 0.0]) * RANDOM.exponential(size=(500, 3))
    assert (made.predict(both) >= made.predict(FIRST)).all()
    model = GradientBoostingClassifier(n_estimators=5).fit(X, Y > 0)
    decided = repair(model, Monotone({0: 1}))
    shares = decided.predict_proba(SECOND)[:, 1] - decided.predict_proba(FIRST)[:, 1]
    assert (shares >= 0).all()
    assert (decided.predict(FIRST) == (decided.predict_proba(FIRST)[:, 1] > 0.5)).all()


def test_rules_over_regions_get_a_shield() -> None:
    rules = [Linear(BOX, [1.0], 0.5, "<=", name="cap"), Stable(X[0], 0.2, 0.05, name="steady")]
    made = repair(MODEL, [*rules, Range(-3, 3, name="range")], data=X)
    inside = RANDOM.uniform(-1, 1, size=(2000, 3))
    assert made.predict(inside).max() <= 0.5 + 1e-9
    near = X[0] + RANDOM.uniform(-0.2, 0.2, size=(500, 3))
    assert np.abs(made.predict(near) - MODEL.predict(X[:1])).max() <= 0.05 + 1e-9
    assert made.strengths["cap"] is Strength.SHIELDED
    far = np.array([[5.0, 5.0, 5.0]])
    assert made.predict(far) == pytest.approx(MODEL.predict(far))


def test_what_cannot_be_repaired_is_refused() -> None:
    cap = Linear(BOX, [1.0], 0.5, "<=")
    cases = [
        ("conflict", lambda: repair(MODEL, [Monotone({0: 1}), cap])),
        ("conflict", lambda: repair(MODEL, [Monotone({0: 1}), SumTo(1.0)])),
        ("conflict", lambda: repair(MODEL, [Monotone({0: 1}), Monotone({0: -1})])),
        ("unsupported", lambda: repair(MODEL, Curvature({0: 1}))),
        ("unsupported", lambda: repair(Ridge().fit(X, Y), Monotone({1: -1}))),
        ("memory", lambda: repair(LARGER, Monotone({0: 1, 1: 1, 2: 1}))),
        ("unknown-name", lambda: repair(MODEL, cap, method="magic")),  # type: ignore[arg-type]
        ("missing-values", lambda: repair(MODEL, cap).predict([[np.nan, 0, 0]])),
        ("shape", lambda: repair(MODEL, cap).predict([[0.0]])),
        ("unsupported", lambda: repair(MODEL, cap).predict_proba(X)),
        ("empty", lambda: repair(MODEL, [])),
    ]
    for code, call in cases:
        with raises(InvalidInput, code):
            call()
