"""Rates of scores hold on rows that were never seen, and are stated for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cg4ai import ConstrainedClassifier
from cg4ai.rules import Rate


def people(count: int, seed: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(seed)
    group = random.integers(0, 2, count)
    inputs = random.normal(size=(count, 8))
    inputs[:, 0] += 0.8 * group
    score = inputs[:, :3] @ [1.0, 0.7, -0.6] - 0.4 + random.logistic(size=count)
    return inputs, (score > 0).astype(int), group


@pytest.mark.slow
@pytest.mark.guard
def test_a_gap_of_mean_scores_is_small_on_fresh_rows_too() -> None:
    inputs, labels, group = people(2000, 0)
    rule = Rate(inputs, group, tolerance=0.02)
    model = ConstrainedClassifier(random_state=0, iteration_limit=4)
    model.fit(inputs, labels, requirements=[rule])
    fresh, _, other = people(20_000, 1)
    scores = model.predict_proba(fresh)[:, 1]
    assert abs(scores[other == 1].mean() - scores[other == 0].mean()) <= 0.035
    difference = model.audit_[0].rates[-1]
    assert abs(difference.value) <= 0.02 + 1e-6, "the rule that was asked for, not the tighter one"
    assert difference.held_out is not None
    assert difference.held_out.count == model.n_held_out_
    assert difference.held_out.low < difference.held_out.value < difference.held_out.high
