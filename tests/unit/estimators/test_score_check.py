"""A model says how good it is, and `fit` warns of one that is not what was asked for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, FitWarning, Settings, solve
from cg4ai.errors import InvalidInput
from cg4ai.estimators.score_check import Score
from cg4ai.rules import Box, Linear
from raising import raises

QUICK: dict[str, Any] = {"hidden": (6,), "steps": 60, "restarts": 2, "random_state": 0}


def rare_yes(count: int) -> tuple[Any, Any]:
    """One row in twenty is a "yes", by a rule that no line can follow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(count, 6))
    return X, np.where((X[:, 0] * X[:, 1] * X[:, 2] > 0) & (rng.uniform(size=count) < 0.1), 1, 0)


def line(count: int = 90) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(count, 2))
    return X, X[:, 0] - X[:, 1] + 0.1 * rng.normal(size=count)


def warned(action: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(one.message) for one in caught if one.category is FitWarning]


def test_a_model_that_always_says_no_is_not_passed_off_as_good() -> None:
    X, y = rare_yes(20_000)
    model = ConstrainedClassifier(**{**QUICK, "steps": 5}, members="network", iteration_limit=1)
    said = warned(lambda: model.fit(X, y))
    assert not model.predict(X).any(), "the case in question: every answer is no"
    assert model.result_.feasible
    assert any("no better than a constant" in text for text in said)
    assert model.score_.model == model.score_.constant
    assert tuple(said) == model.cautions_
    assert "the most frequent class 0.9" in str(model.result_)


def test_a_good_model_carries_its_score_beside_simpler_ones_and_nothing_is_warned_of() -> None:
    X, y = line()
    model = ConstrainedRegressor(**QUICK)
    assert warned(lambda: model.fit(X, y)) == []
    score = model.score_
    assert (score.measure, score.held_out, score.rows) == ("R2", True, model.n_held_out_)
    assert score.model > 0.9 > 0.1 > score.constant
    assert score.linear is not None
    assert score.linear > 0.9
    assert str(score) in model.result_.note


def test_the_constant_is_that_of_the_rows_trained_on() -> None:
    X, y = rare_yes(400)
    model = ConstrainedClassifier(**QUICK)
    warned(lambda: model.fit(X, y))
    share = DummyClassifier().fit(X, y).score(X, y)
    assert model.score_.constant == pytest.approx(share, abs=0.01)


def test_without_rows_held_out_the_score_says_so() -> None:
    X, y = line(12)
    model = ConstrainedRegressor(**QUICK)
    warned(lambda: model.fit(X, y))
    assert not model.score_.held_out
    assert str(model.score_).startswith("training R2")
    assert model.score_.rows == 12


def test_a_violated_requirement_is_warned_of() -> None:
    X, y = line()
    both = np.vstack([X[:1], X[:1] + 1e-9])  # no network tells these two apart
    apart = Linear(both, [[1.0], [-1.0]], [5.0, 5.0])
    model = ConstrainedRegressor(**QUICK, iteration_limit=2)
    said = warned(lambda: model.fit(X, y, [apart]))
    assert not model.result_.feasible
    assert any("a requirement is violated: Linear" in text for text in said)


@pytest.mark.parametrize("limit", [{"iteration_limit": 1}, {"settings": {"column_limit": 1}}])
def test_a_limit_that_ended_training_is_warned_of(limit: dict[str, Any]) -> None:
    X, y = line()
    ((name, value),) = limit.get("settings", limit).items()
    said = warned(lambda: ConstrainedRegressor(**QUICK, **limit).fit(X, y**3))
    assert any(f"ended by {name}={value}" in text for text in said)


def test_one_class_is_warned_of_and_a_constant_target_is_not() -> None:
    X, _ = line(40)
    said = warned(lambda: ConstrainedClassifier(**QUICK).fit(X, np.zeros(40, int)))
    assert len(said) == 1
    assert "single class, 0" in said[0]
    assert warned(lambda: ConstrainedRegressor(**QUICK).fit(X, np.full(40, 3.0))) == []


def test_an_adopted_result_is_judged_but_does_not_warn() -> None:
    X, y = line()
    model = ConstrainedRegressor(**QUICK)
    result = solve(model.problem(X, y), Settings(iteration_limit=1))
    assert warned(lambda: model.adopt(result)) == []
    assert model.score_.rows == model.n_held_out_
    assert model.cautions_
    with raises(InvalidInput, "type"):
        model.adopt(result)


def test_a_score_in_words() -> None:
    score = Score("accuracy", 0.9, 0.95, None, 40, True)
    assert str(score) == "held-out accuracy 0.900 on 40 rows (the most frequent class 0.950)"
    assert score.is_useless
    assert not Score("R2", 0.5, -0.01, 0.4, 40, True).is_useless


def test_the_score_without_the_rules_tells_what_they_cost() -> None:
    X, y = line()
    free = ConstrainedRegressor(**QUICK).fit(X, y)
    assert free.score_.without_rules is None
    kept = ConstrainedRegressor(**QUICK).fit(X, y, requirements=[Linear(X[:3], [1.0], -50.0)])
    assert kept.score_.without_rules == kept.score_.model
    assert "without the rules" in str(kept.score_)
    hard = Linear(X[:20], [1.0], 1.0)  # well above most of y
    dear = ConstrainedRegressor(**QUICK, iteration_limit=5)
    said = warned(lambda: dear.fit(X, y, requirements=[hard]))
    assert "without the rules 0.9" in " ".join(said)
    assert dear.result_.feasible
    assert dear.score_.without_rules is not None
    assert dear.score_.without_rules > 0.9 > dear.score_.model


def test_how_much_a_shield_acts_is_told() -> None:
    X, y = line()
    everywhere = Box([-1.0, -1.0], [1.0, 1.0])
    cap = Linear(everywhere, [1.0], 0.5, "<=")  # a fifth of y is above it
    model = ConstrainedRegressor(**QUICK).fit(X, y, requirements=[cap])
    assert model.audit_[0].strength == "shielded"
    assert model.predict(X).max() <= 0.5 + 1e-9
    use = model.result_.shield
    assert use is not None
    assert 0 < use.moved < 0.6
    assert 0 < use.mean <= use.largest <= 1
    assert any(str(use) in line for line in model.result_.details())
    without = model.score_.without_rules
    assert without is not None
    assert without > 0.9 > model.score_.model
    assert f"without the rules {without:.3f}" in str(model.result_)
    assert ConstrainedRegressor(**QUICK).fit(X, y).result_.shield is None
