"""Audits: counts and words against values computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.colgen.separation import BlackBox
from cg4ai.ensemble.audit import audit
from cg4ai.errors import InvalidInput
from cg4ai.rules import Linear, Margin, Probability, Rate
from cg4ai.rules.regions import Box, Pool
from raising import raises


class Affine:
    device = torch.device("cpu")
    differentiable = True
    takes_missing = False
    guards = ()
    caps = ()

    def __init__(self, matrix: Any) -> None:
        self.matrix = torch.as_tensor(matrix)
        self.input_size, self.output_size = self.matrix.shape

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.matrix


def affine(matrix: np.ndarray) -> Any:
    return Affine(matrix)


RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(40, 3))
MATRIX = RANDOM.normal(size=(3, 2))
F = X @ MATRIX
Y = RANDOM.integers(2, size=40)


@pytest.mark.parametrize("place", [X, Pool(X)])
def test_listed_rows_are_all_recomputed(place: Any) -> None:
    result = audit(Probability(place, Y, 0.3), affine(MATRIX))
    short = 0.3 - F[np.arange(40), Y]
    assert (result.strength, result.rows) == ("audited", 40)
    assert result.satisfied == int((short <= 1e-6).sum())
    assert result.worst_violation == pytest.approx(short.max())
    assert result.violated.tolist() == [j for j in np.argsort(-short) if short[j] > 1e-6]
    assert (
        result.descriptions[0]
        == f"Probability: input {short.argmax()}, class {Y[short.argmax()]} >= 0.3"
    )
    assert not result.holds
    assert f"{result.satisfied} of 40 rows" in str(result)
    assert "is violated (audited)" in str(result)


def test_a_rule_that_holds_says_so_and_no_more() -> None:
    result = audit(Linear(X, [1.0, 0.0], F[:, 0].min()), affine(MATRIX))
    assert result.holds
    assert result.satisfied == result.rows
    assert "other inputs are not covered" in str(result)


def test_tolerance_decides() -> None:
    rule = Linear(X, [1.0, 0.0], F[:, 0].min() + 1e-3)
    assert not audit(rule, affine(MATRIX), tolerance=1e-4).holds
    assert audit(rule, affine(MATRIX), tolerance=2e-3).holds


def test_member_margin_is_audited_on_the_mixture() -> None:
    result = audit(Margin(X, Y, 0.0), affine(MATRIX))
    assert result.satisfied == int((F.argmax(1) == Y).sum())


def test_rates_come_with_decisions() -> None:
    groups = np.array(["old", "young"] * 20)
    result = audit(Rate(X, groups, tolerance=5.0), affine(MATRIX), threshold=0.1)
    assert result.holds
    assert result.decision_rates == {g: (F[groups == g, 1] >= 0.1).mean() for g in ("old", "young")}
    assert "decisions at threshold 0.1 (not bound by the rule): old:" in str(result)


def test_predictions_that_are_no_numbers_keep_no_rule() -> None:
    result = audit(Linear(X, [1.0, 0.0], -100.0), affine(MATRIX * np.nan))
    assert result.satisfied == 0
    assert result.worst_violation == np.inf


@pytest.mark.parametrize("separator", [None, BlackBox(evaluations=50)])
def test_regions_are_attacked_and_the_effort_is_stated(separator: Any) -> None:
    box = Box(-np.ones(3), np.ones(3))
    peak = np.abs(MATRIX[:, 0]).sum()
    kept = audit(Linear(box, [1.0, 0.0], peak + 0.1, "<=", separator=separator), affine(MATRIX))
    assert (kept.strength, kept.holds) == ("attacked", True)
    assert kept.worst_violation == pytest.approx(-0.1, abs=1e-6)
    assert "margin 0.1" in str(kept)
    assert "-0.1" not in str(kept)
    assert "a search is not a proof" in str(kept)
    assert f"starts {kept.effort['starts']}" in str(kept)
    broken = audit(Linear(box, [1.0, 0.0], peak - 0.1, "<=", separator=separator), affine(MATRIX))
    assert not broken.holds
    assert broken.violations[0] == pytest.approx(0.1, abs=1e-6)
    assert "is violated (attacked) over a box in 3 dimensions" in str(broken)
    assert "missed by 0.1: Linear: at x = [" in str(broken)


def test_sizes_must_fit() -> None:
    with raises(InvalidInput, "shape"):
        audit(Linear(X, [1.0, 0.0, 0.0], 0.0), affine(MATRIX))
    with raises(InvalidInput, "shape"):
        audit(Linear(X[:, :2], [1.0, 0.0], 0.0), affine(MATRIX))
