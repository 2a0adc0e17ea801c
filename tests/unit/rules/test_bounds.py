"""Coefficients and bounds that depend on the input, in lists and over regions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.rules import AffineBound, AffineCoefficients, Box, Largest, Linear, Smallest
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, size=(6, 4))
F = RANDOM.normal(size=(6, 3))  # outputs at X
BOX = Box(-np.ones(4), np.ones(4))
MATRIX = RANDOM.normal(size=(2, 3))
OFFSET, SLOPE = RANDOM.normal(size=2), RANDOM.normal(size=(2, 4))
MOVING = RANDOM.normal(size=(2, 3, 4))


def shortfalls(requirement: Linear) -> Any:
    """(6, L) by how much each rule is missed at X by outputs F, from the requirement's rows."""
    requirement.check(4, 3)
    if requirement.over_region:
        found = requirement.violations(torch.as_tensor(X), torch.as_tensor(F)).numpy()
        for rule in range(found.shape[1]):
            rows = requirement.rows_at(X, np.full(6, rule), 0)
            short = rows.bounds - rows.values(torch.as_tensor(F)).numpy()
            np.testing.assert_allclose(short, found[:, rule], atol=1e-12)
        return found
    rows = requirement.rows(0)
    assert rows is not None
    short = rows.bounds - rows.values(torch.as_tensor(F)).numpy()
    sides = 2 if requirement.sense == "==" else 1
    return np.concatenate(short.reshape(sides, 6, -1), axis=1)


def several(place: Any) -> Any:
    return MATRIX if isinstance(place, Box) else MATRIX[None]


@pytest.mark.parametrize("place", [BOX, X], ids=["box", "list"])
@pytest.mark.parametrize("sense", [">=", "<=", "=="])
def test_a_bound_affine_in_the_input(place: Any, sense: str) -> None:
    below = OFFSET + X @ SLOPE.T - F @ MATRIX.T
    expected = {">=": [below], "<=": [-below], "==": [below, -below]}[sense]
    found = shortfalls(Linear(place, several(place), AffineBound(OFFSET, SLOPE), sense))
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), atol=1e-12)


@pytest.mark.parametrize("place", [BOX, X], ids=["box", "list"])
def test_largest_and_smallest_of_pieces_are_mirror_images(place: Any) -> None:
    pieces = [0.3, AffineBound(OFFSET, SLOPE), AffineBound(-0.5, SLOPE[0])]
    each = [np.full((6, 2), 0.3), OFFSET + X @ SLOPE.T, (X @ SLOPE[0] - 0.5)[:, None] + [0, 0]]
    values = F @ MATRIX.T
    found = shortfalls(Linear(place, several(place), Largest(pieces), "<="))
    np.testing.assert_allclose(found, values - np.max(each, axis=0), atol=1e-12)
    found = shortfalls(Linear(place, several(place), Smallest(pieces), ">="))
    np.testing.assert_allclose(found, np.min(each, axis=0) - values, atol=1e-12)


@pytest.mark.parametrize("place", [BOX, X], ids=["box", "list"])
def test_coefficients_affine_in_the_input(place: Any) -> None:
    coefficients = AffineCoefficients.dense(MATRIX, MOVING)
    values = np.einsum("mlr,mr->ml", MATRIX + np.einsum("lrd,md->mlr", MOVING, X), F)
    found = shortfalls(Linear(place, coefficients, AffineBound(OFFSET, SLOPE), "<="))
    np.testing.assert_allclose(found, values - OFFSET - X @ SLOPE.T, atol=1e-12)
    one = shortfalls(Linear(place, AffineCoefficients.dense(MATRIX[0], MOVING[0]), 0.5))
    np.testing.assert_allclose(one, 0.5 - values[:, :1], atol=1e-12)


def test_one_rule_of_a_list_has_a_bound_affine_in_the_input() -> None:
    requirement = Linear(X, MATRIX[0], AffineBound(1.0, SLOPE[0]), "<=", name="cap")
    expected = F @ MATRIX[0] - 1 - X @ SLOPE[0]
    np.testing.assert_allclose(shortfalls(requirement)[:, 0], expected, atol=1e-12)
    text = requirement.describe(requirement.rows(0), 2)
    assert text.startswith("cap: input 2, ")
    assert text.endswith(f"<= {1 + X[2] @ SLOPE[0]:.6g}")


def test_copies_keep_bounds_that_depend_on_the_input() -> None:
    rule = Linear(BOX, MATRIX, AffineBound(OFFSET, SLOPE))
    again = replace(rule, name="copy", inputs=Box(np.zeros(4), np.ones(4)))
    np.testing.assert_array_equal(shortfalls(again), shortfalls(rule))
    with raises(InvalidInput, "shape"):
        replace(rule, inputs=Box(np.zeros(3), np.ones(3)))


class Unknown:
    """A functional without affine()."""

    count = 1

    def values(self, inputs: Any, outputs: Any) -> Any:
        return outputs[..., :1]

    def coefficients(self, inputs: Any, which: Any) -> Any:
        return np.eye(1, 3).repeat(len(which), 0)


def sparse(place: int, value: Any) -> AffineCoefficients:
    """Slopes of one rule, output and input of the same number."""
    at = np.full(len(value), place)
    return AffineCoefficients(MATRIX, at, at, at, value)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: AffineBound([[1.0]], [1.0]), "shape"),
        (lambda: AffineBound(1.0, 2.0), "shape"),
        (lambda: AffineBound(np.nan, [1.0]), "not-finite"),
        (lambda: Largest([]), "type"),
        (lambda: Largest(1.0), "type"),
        (lambda: Largest([Smallest([1.0])]), "type"),
        (lambda: Linear(BOX, MATRIX, AffineBound(0.0, np.ones(3))), "shape"),
        (lambda: Linear(BOX, MATRIX, AffineBound(np.ones(3), np.ones(4))), "shape"),
        (lambda: Linear(BOX, MATRIX, Largest([1.0]), ">="), "unsupported"),
        (lambda: Linear(BOX, MATRIX, Smallest([1.0]), "<="), "unsupported"),
        (lambda: Linear(BOX, MATRIX, Largest([1.0]), "=="), "unsupported"),
        (lambda: Linear(BOX, Unknown(), AffineBound(0.0, np.ones(4))), "unsupported"),
        (lambda: AffineCoefficients.dense(MATRIX, MOVING[0]), "shape"),
        (
            lambda: sparse(0, np.ones(2)),
            "duplicate",
        ),
        (
            lambda: sparse(2, np.ones(1)),
            "range",
        ),
        (lambda: sparse(0, np.array([np.nan])), "not-finite"),
        (lambda: Linear(X, AffineCoefficients.dense([1.0], np.ones((1, 5))), 0.0).rows(0), "shape"),
        (lambda: AffineCoefficients.dense(MATRIX, MOVING[:, :2]), "shape"),
        (
            lambda: Linear(BOX, AffineCoefficients.dense([1.0], np.ones((1, 5))), 0.0).check(4, 1),
            "shape",
        ),
    ],
)
def test_refused(make: Any, code: str) -> None:
    with raises(InvalidInput, code):
        make()
