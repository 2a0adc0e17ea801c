"""PoolScan against evaluating every row by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.colgen.separation import BlackBox, GradientAscent, PoolScan, default_separator
from cg4ai.errors import InvalidInput
from cg4ai.rules import Linear, Margin, Probability
from cg4ai.rules.regions import Ball, Box, Pool
from raising import raises


class Affine:
    device = torch.device("cpu")
    differentiable = True

    def __init__(self, matrix: np.ndarray) -> None:
        self.matrix = torch.as_tensor(matrix)
        self.largest = 0

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        self.largest = max(self.largest, len(inputs))
        return inputs @ self.matrix


RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(20000, 3))
Y = RANDOM.integers(4, size=20000)
MATRIX = RANDOM.normal(size=(3, 4))
F = X @ MATRIX


@pytest.mark.parametrize("form", ["member", "pairwise"])
def test_the_worst_rows_of_a_large_pool(form: str) -> None:
    mixture = Affine(MATRIX)
    requirement = Margin(Pool(X), Y, 0.1, form=form, classes=4)
    found = PoolScan().find(mixture, requirement, seed=0, limit=7, tolerance=1e-6)
    others = F.copy()
    others[np.arange(len(Y)), Y] = -np.inf
    gaps = 0.1 - (F[np.arange(len(Y)), Y][:, None] - others)
    by_hand = gaps.max(1) if form == "member" else gaps[np.isfinite(gaps)]
    assert np.allclose(found.violations, np.sort(by_hand)[::-1][:7])
    assert found.worst == pytest.approx(by_hand.max())
    assert found.rows is not None
    assert len(found.rows) == 7
    again = (
        found.rows.bounds
        - found.rows.values(mixture.outputs(torch.as_tensor(found.rows.inputs))).numpy()
    )
    assert np.allclose(again, found.violations)
    assert mixture.largest < 20000  # in chunks


def test_nothing_violated_and_only_as_many_as_violated() -> None:
    mixture = Affine(MATRIX)
    easy = Linear(Pool(X), [1.0, 0, 0, 0], F[:, 0].min() - 0.5)
    found = PoolScan().find(mixture, easy, seed=0, limit=5, tolerance=1e-6)
    assert found.rows is None
    assert found.worst == pytest.approx(-0.5)
    second = np.sort(F[:, 0])[1]
    tight = Linear(Pool(X), [1.0, 0, 0, 0], second)
    found = PoolScan().find(mixture, tight, seed=0, limit=5, tolerance=1e-9)
    assert len(found.violations) == 1
    assert tight.describe(found.rows, 0).startswith(f"Linear: input {F[:, 0].argmin()},")


def test_diverged_members_and_regions_are_refused() -> None:
    with raises(InvalidInput, "not-finite"):
        PoolScan().find(
            Affine(MATRIX * np.nan), Linear(Pool(X), np.ones(4), 0.0), seed=0, limit=5, tolerance=0
        )
    region = Linear(Box([0.0] * 3, [1.0] * 3), np.ones(4), 0.0)
    with raises(InvalidInput, "unsupported", "GradientAscent"):
        PoolScan().find(Affine(MATRIX), region, seed=0, limit=5, tolerance=0)


def test_default_separators() -> None:
    pool = Probability(Pool(X), Y)
    ball = Probability(Ball(np.zeros(3), 1.0), 0)
    assert isinstance(default_separator(pool, True), PoolScan)
    assert isinstance(default_separator(ball, True), GradientAscent)
    assert isinstance(default_separator(ball, False), BlackBox)
    own = BlackBox("LN_SBPLX")
    assert default_separator(Probability(Ball(np.zeros(3), 1.0), 0, separator=own), True) is own
