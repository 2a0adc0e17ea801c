"""`Difference`: rows against differences written out by hand, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cg4ai.data import transform_requirement
from cg4ai.errors import InvalidInput
from cg4ai.rules import Box, Difference, Pool
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 4))
F = RANDOM.normal(size=(6, 3))  # outputs at X
PAIRS = [(0, 1), (5, 2), (3, 3)]


def values(requirement: Difference, outputs: np.ndarray) -> np.ndarray:
    requirement.check(4, outputs.shape[-1])
    rows = requirement.rows(7)
    assert rows.requirement == 7
    return rows.values(torch.as_tensor(outputs)).numpy()


def test_rows_are_second_minus_first() -> None:
    expected = [F[1, 2] - F[0, 2], F[2, 2] - F[5, 2], 0.0]
    assert np.allclose(values(Difference(X, PAIRS, output=2), F), expected)


def test_between_pairs_two_lists() -> None:
    requirement = Difference.between(X[:3], X[3:], [0.1, 0.2, 0.3], output=1, name="rising")
    assert np.allclose(values(requirement, F), F[3:, 1] - F[:3, 1])
    assert np.allclose(requirement.rows(0).bounds, [0.1, 0.2, 0.3])
    assert requirement.name == "rising"


def test_some_rows_keep_their_meaning() -> None:
    requirement = Difference(X, PAIRS, output=2)
    requirement.check(4, 3)
    rows = requirement.rows(0).take(np.array([1]))
    assert len(rows.inputs) == 2
    outputs = torch.as_tensor(F[[2, 5]])  # the inputs it needs, in the order of the list
    assert rows.values(outputs).item() == pytest.approx(F[2, 2] - F[5, 2])
    assert requirement.describe(rows, 0) == "Difference: f2 at input 2 minus input 5 >= 0"


def test_a_pipeline_moves_both_ends_of_a_pair() -> None:
    pipeline = make_pipeline(StandardScaler(), StandardScaler()).fit(X)
    inner = transform_requirement(Difference(X, PAIRS), pipeline)
    assert isinstance(inner, Difference)
    assert np.allclose(inner.points, pipeline[0].transform(X))
    assert np.array_equal(inner.pairs, PAIRS)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((Box([0.0], [1.0]), [(0, 1)]), "type"),
        ((Pool(X), [(0, 1)]), "type"),
        ((X, [(0, 6)]), "range"),
        ((X, [(-1, 2)]), "range"),
        ((X, [(0.5, 2)]), "range"),
        ((X, [(0, 1, 2)]), "shape"),
        ((X, [(2, 2)], 0.1), "infeasible"),
        ((X, [(0, 1)], [0.0, 1.0]), "shape"),
        ((X, np.zeros((5001, 2))), "memory"),
    ],
)
def test_refuses(arguments: tuple[Any, ...], code: str) -> None:
    with raises(InvalidInput, code):
        Difference(*arguments)


def test_refuses_unequal_lists_and_missing_outputs() -> None:
    with raises(InvalidInput, "shape"):
        Difference.between(X[:2], X[:3])
    with raises(InvalidInput, "range", "output 3"):
        Difference(X, PAIRS, output=3).check(4, 3)
