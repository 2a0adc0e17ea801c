"""LPBoost: its program against scipy's solver with all members at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from baseline_cases import SETTINGS, data
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cg4ai.records import Array
from experiments.baselines.boosting import MarginProgram, boost, probability_margins


def by_linprog(margins: Array, nu: float) -> tuple[float, Array]:
    """Soft margin and weights for margins (members, n), with rho free and last."""
    members, count = margins.shape
    costs = np.concatenate([np.zeros(members), np.full(count, 1 / (nu * count)), [-1.0]])
    rows = np.hstack([-margins.T, -np.eye(count), np.ones((count, 1))])
    convexity = np.concatenate([np.ones(members), np.zeros(count + 1)])[None]
    bounds = [(0, None)] * (members + count) + [(None, None)]
    found = linprog(costs, rows, np.zeros(count), convexity, [1.0], bounds)
    return -found.fun, found.x[:members]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), nu=st.sampled_from([0.05, 0.2, 0.5, 1.0]))
def test_program_equals_linprog_as_members_arrive(seed: int, nu: float) -> None:
    margins = np.random.default_rng(seed).uniform(-1, 1, size=(6, 12))
    program = MarginProgram(12, nu)
    for start in (0, 2, 4):
        program.add(margins[start : start + 2])
        solved = program.solve()
        known = margins[: start + 2]
        objective, weights = by_linprog(known, nu)
        assert solved.objective == pytest.approx(objective, abs=1e-7)
        np.testing.assert_allclose(solved.weights, weights, atol=1e-6)
        # the dual: image weights of at most 1 / (nu n), under which no member beats the bound
        assert solved.image_weights.sum() == pytest.approx(1.0)
        assert solved.image_weights.max() <= 1 / (nu * 12) + 1e-9
        assert (known @ solved.image_weights).max() == pytest.approx(solved.bound, abs=1e-7)
        assert solved.bound == pytest.approx(objective, abs=1e-7)


def test_boosted_weights_are_optimal_for_its_members() -> None:
    blurred = data(12, spread=0.8)
    chosen = replace(SETTINGS, members=6, nu=0.3)
    fitted = boost(blurred, chosen, seed=3)
    margins = probability_margins(fitted.members, blurred)
    objective, _ = by_linprog(margins, 0.3)
    mixed = fitted.weights @ margins
    reached = max(rho - np.maximum(rho - mixed, 0).sum() / (0.3 * 36) for rho in mixed)
    assert reached == pytest.approx(objective, abs=1e-6)
    assert len(fitted.members) <= 6
    assert fitted.weights.sum() == pytest.approx(1.0)


def test_margin_scores_are_logarithms_of_mixed_probabilities() -> None:
    blurred = data(8, spread=0.8)
    chosen = replace(SETTINGS, members=4, rule="probability", threshold=0.6)
    probabilities = boost(blurred, chosen, seed=1).predict(blurred.inputs)
    as_margin = boost(blurred, replace(chosen, rule="margin"), seed=1)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    np.testing.assert_allclose(np.exp(as_margin.predict(blurred.inputs)), probabilities)


def test_ends_when_no_learner_improves() -> None:
    easy = data(4, spread=0.01)
    untrained = replace(SETTINGS.training, steps=0)  # the learners of a round are those before
    fitted = boost(easy, replace(SETTINGS, members=50, training=untrained), seed=0)
    assert len(fitted.members) < 50
    assert "no new learner" in fitted.note
