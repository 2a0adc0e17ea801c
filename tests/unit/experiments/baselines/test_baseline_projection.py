"""Projections are the nearest points: against a QP solver and the variational inequality."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from baseline_cases import SETTINGS, data
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from experiments.baselines import METHODS
from experiments.baselines.plain import project_margin, project_probability
from experiments.baselines.rule import LabelRule


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.0, 0.05, 1.0, 3.0]))
def test_margin_projection_is_nearest(seed: int, threshold: float) -> None:
    generator = np.random.default_rng(seed)
    scores, labels = generator.normal(size=(6, 5)), generator.integers(5, size=6)
    nearest = project_margin(scores, labels, threshold)
    assert LabelRule("margin", threshold).satisfied(nearest, labels).all()
    # p is the projection of s onto a convex set iff (s - p) . (q - p) <= 0 for all q in the set
    others = generator.normal(size=(200, 6, 5)) * 3
    rows = np.arange(6)
    for other in others:
        other[rows, labels] = -np.inf
        other[rows, labels] = other.max(axis=1) + threshold + generator.exponential(size=6)
    assert ((scores - nearest) * (others - nearest)).sum(-1).max() <= 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["margin", "probability"])
def test_projection_equals_a_solver(kind: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    label = int(generator.integers(4))
    own = np.eye(4)[label]
    if kind == "margin":
        scores = generator.normal(size=4)
        project, threshold = project_margin, 0.5
        rivals = np.delete(np.eye(4), label, axis=0)
        limits = [LinearConstraint(own - rivals, threshold, np.inf)]
    else:
        scores = generator.dirichlet(np.ones(4))
        project, threshold = project_probability, 0.8
        limits = [
            LinearConstraint(np.eye(4), threshold * own, np.inf),
            LinearConstraint(np.ones((1, 4)), 1.0, 1.0),
        ]
    solved = minimize(
        lambda q: np.square(q - scores).sum(),
        own * 2 if kind == "margin" else own,
        jac=lambda q: 2 * (q - scores),
        constraints=limits,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    found = project(scores[None], np.array([label]), threshold)[0]
    np.testing.assert_allclose(found, solved.x, atol=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), threshold=st.sampled_from([0.05, 0.501, 0.9, 1.0]))
def test_probability_projection_is_nearest(seed: int, threshold: float) -> None:
    generator = np.random.default_rng(seed)
    scores, labels = generator.dirichlet(np.ones(5), size=6), generator.integers(5, size=6)
    nearest = project_probability(scores, labels, threshold)
    rows = np.arange(6)
    np.testing.assert_allclose(nearest.sum(1), 1.0, atol=1e-12)
    assert nearest.min() >= 0
    assert (nearest[rows, labels] >= threshold).all()
    others = (1 - threshold) * generator.dirichlet(np.ones(5), size=(200, 6))
    others[:, rows, labels] += threshold
    assert ((scores - nearest) * (others - nearest)).sum(-1).max() <= 1e-9


def test_what_keeps_the_rule_stays() -> None:
    scores, label = np.array([[0.7, 0.2, 0.1]]), np.array([0])
    assert project_margin(scores, label, 0.4).tolist() == scores.tolist()
    assert project_probability(scores, label, 0.7).tolist() == scores.tolist()


@pytest.mark.parametrize(("rule", "threshold"), [("margin", 0.05), ("probability", 0.6)])
def test_oracle_keeps_every_rule_and_predicts_like_a_single_member(
    rule: str, threshold: float
) -> None:
    chosen = replace(SETTINGS, rule=rule, threshold=threshold)  # type: ignore[arg-type]
    hard = data(spread=1.0)
    oracle = METHODS["projection"].train(hard, chosen, seed=1)
    single = METHODS["single"].train(hard, chosen, seed=1)
    np.testing.assert_array_equal(
        oracle.predict(hard.hard_inputs), single.predict(hard.hard_inputs)
    )
    labelled = oracle.predict_labelled(hard.hard_inputs, hard.hard_labels)
    kept = chosen.label_rule.satisfied
    assert kept(labelled, hard.hard_labels).all()
    assert not kept(single.predict(hard.hard_inputs), hard.hard_labels).all()
