"""Rules on decisions: the master against an LP over all voters, decisions at the listed inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cg4ai import (
    Box,
    ConstrainedClassifier,
    ConstrainedRegressor,
    DecisionRate,
    Linear,
    Problem,
    load,
    solve,
)
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.objectives import Supervised
from cg4ai.pricing.trees import TreePricer


def people(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Features that know the group, labels that depend on them."""
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, count)
    inputs = random.normal(size=(count, 4))
    inputs[:, 0] += group
    score = inputs @ [1.0, 0.8, -0.5, 0.0] - 0.5 + random.logistic(size=count)
    return inputs, (score > 0).astype(int), group


def gap(decided: Any, group: Any) -> float:
    return abs(float(decided[group == 1].mean() - decided[group == 0].mean()))


def odds(decided: Any, labels: Any, group: Any) -> float:
    return max(gap(decided[labels == k], group[labels == k]) for k in (0, 1))


X, Y, G = people(1500)


@pytest.mark.parametrize("members", [LogisticRegression(), DecisionTreeClassifier(max_depth=4)])
def test_parity_of_decisions_holds_at_the_listed_rows(members: Any) -> None:
    rule = DecisionRate(X, G, tolerance=0.02)
    model = ConstrainedClassifier(members=members, random_state=0).fit(X, Y, [rule])
    decided = model.predict(X)
    assert gap(decided, G) <= 0.02 + 1e-9
    assert model.audit_[0].holds
    assert gap(ConstrainedClassifier(members=members, random_state=0).fit(X, Y).predict(X), G) > 0.1
    shares = model.predict_proba(X)
    assert np.allclose(shares.sum(1), 1)
    clear = np.isclose(shares.max(1), 1)
    assert (decided[clear] == shares[clear].argmax(1)).all()


def test_equalised_odds_of_networks() -> None:
    rule = DecisionRate(X, G, tolerance=0.05, of="equalised odds", labels=Y)
    model = ConstrainedClassifier(random_state=0, iteration_limit=8).fit(X, Y, [rule])
    assert odds(model.predict(X), Y, G) <= 0.05 + 1e-9
    assert model.score(X, Y) > max(Y.mean(), 1 - Y.mean())


def test_decisions_are_the_same_alone_and_after_saving(tmp_path: Path) -> None:
    rule = DecisionRate(X, G, tolerance=0.01)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0).fit(X, Y, [rule])
    decided = model.predict(X)
    assert [int(model.predict(x[None])[0]) for x in X[:50]] == decided[:50].tolist()
    model.ensemble_.save(tmp_path / "model")
    assert load(tmp_path / "model").decide(X).tolist() == decided.tolist()


def test_rates_are_stated_with_intervals_on_held_out_rows() -> None:
    rule = DecisionRate(X, G, tolerance=0.02)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0).fit(X, Y, [rule])
    first, second, difference = model.audit_[0].rates
    decided = model.predict(X)
    assert np.isclose(first.value, decided[G == 0].mean())
    assert np.isclose(difference.value, first.value - second.value)
    assert first.held_out is not None
    assert second.held_out is not None
    assert first.held_out.count + second.held_out.count == model.n_held_out_
    assert 0 <= first.held_out.low < first.held_out.value < first.held_out.high <= 1
    assert "held out" in str(model.audit_[0])


def test_column_generation_finds_the_optimum_of_the_linear_program_over_all_voters() -> None:
    random = np.random.default_rng(3)
    slopes = np.zeros((40, 4, 2))
    slopes[..., 1] = random.normal(size=(40, 4))
    offsets = np.zeros((40, 2))
    offsets[:, 1] = random.normal(size=40)
    voters = affine(slopes, offsets)
    rule = DecisionRate(X, G, tolerance=0.05)
    problem = Problem(
        objective=Supervised(X, Y, "cross_entropy"),
        requirements=[rule],
        pricers=[TreePricer(LogisticRegression(), scales=(1.0,))],
        layout=Layout.single(2),
        start=[(voters, np.zeros(40, np.int64))],
    )
    result = solve(problem)
    scores = np.einsum("nd,mdr->mnr", X, slopes) + offsets[:, None]
    votes = np.concatenate([scores.argmax(2), np.zeros((1, len(X))), np.ones((1, len(X)))])
    errors = (votes != Y).mean(1)
    gaps = votes[:, G == 0].mean(1) - votes[:, G == 1].mean(1)
    best = linprog(errors, np.stack([gaps, -gaps]), [0.05, 0.05], np.ones((1, len(errors))), [1.0])
    assert result.objective <= best.fun + 1e-6, "trained voters can only help"
    assert result.feasible


def test_many_classes_and_labels_that_are_not_positions() -> None:
    random = np.random.default_rng(1)
    labels = np.array([3, 5, 9])[np.digitize(X[:, 0] + 0.5 * random.normal(size=len(X)), [0, 1])]
    rule = DecisionRate(X, G, tolerance=0.05, of="true positive", labels=labels, output=2)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0)
    decided = model.fit(X, labels, [rule]).predict(X)
    assert set(np.unique(decided)) <= {3, 5, 9}
    of_class = labels == 9
    assert gap((decided == 9)[of_class], G[of_class]) <= 0.05 + 1e-9


def test_bounds_on_selection_rates() -> None:
    rule = DecisionRate(X, G, at_most=0.3)
    model = ConstrainedClassifier(members=LogisticRegression(), random_state=0).fit(X, Y, [rule])
    decided = model.predict(X)
    assert max(decided[G == 0].mean(), decided[G == 1].mean()) <= 0.3 + 1e-9
    assert min(decided[G == 0].mean(), decided[G == 1].mean()) > 0.1


def test_votes_are_refused_of_regressors_and_over_regions() -> None:
    rule = DecisionRate(X, G, tolerance=0.1)
    with pytest.raises(InvalidInput, match="use Rate"):
        ConstrainedRegressor().fit(X, X[:, :2], [rule])
    everywhere = Linear(Box([-1.0] * 4, [1.0] * 4), [0.0, 1.0], 0.9, "<=")
    with pytest.raises(InvalidInput, match="over a region"):
        ConstrainedClassifier(members="tree").fit(X, Y, [rule, everywhere])
    problem = Problem(
        objective=Supervised(X, X[:, :2]),
        requirements=[rule],
        pricers=[TreePricer(DecisionTreeClassifier())],
        layout=Layout.single(2),
    )
    with pytest.raises(InvalidInput, match="no class labels"):
        solve(problem)
