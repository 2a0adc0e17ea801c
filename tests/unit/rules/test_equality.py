"""Equalities: solutions and null spaces against NumPy, contradictions by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.errors import InvalidInput
from cg4ai.rules import AffineBound, Box, Equality
from cg4ai.rules.equality import join_equalities
from raising import raises


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 4), extra=st.integers(0, 3))
def test_completions_are_all_solutions(seed: int, rank: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    outputs, inputs = 6, 3
    matrix = rng.normal(size=(rank + extra, rank)) @ rng.normal(size=(rank, outputs))
    offset, slope = matrix @ rng.normal(size=outputs), matrix @ rng.normal(size=(outputs, inputs))
    rule = Equality(None, matrix, AffineBound(offset, slope))
    made = rule.completion(inputs)
    assert made.basis.shape == (outputs, outputs - rank)
    across = made.basis if made.units is None else made.basis / made.units[:, None]
    assert across.T @ across == pytest.approx(np.eye(outputs - rank), abs=1e-12)
    x, z = rng.normal(size=(50, inputs)), 10 * rng.normal(size=(50, outputs - rank))
    y = made.offset + x @ made.slope.T + z @ made.basis.T
    size = np.abs(y) @ np.abs(matrix).T
    assert (np.abs(y @ matrix.T - offset - x @ slope.T) <= 1e-12 * (1 + size)).all()
    if made.units is None:  # the particular solution is the shortest: NumPy's pseudo-inverse
        assert made.offset == pytest.approx(np.linalg.pinv(matrix, rcond=1e-9) @ offset, abs=1e-8)
    assert rule.is_kept_by(made.offset, made.slope, made.basis)
    assert rule.is_kept_by(made.offset, made.slope, made.project().basis)
    assert not rule.is_kept_by(made.offset + 1e-6, made.slope, made.basis)
    assert not rule.is_kept_by(made.offset, made.slope, np.eye(outputs))


def test_redundant_rows_are_left_out_and_contradictions_refused() -> None:
    matrix = [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [2.0, 2.0, 0.0]]
    assert Equality(None, matrix, [1.0, 2.0, 2.0]).completion(4).basis.shape == (3, 1)
    with raises(InvalidInput, "infeasible", "rows 0, 2"):
        Equality(None, matrix, [1.0, 2.0, 2.1])
    slope = np.zeros((3, 2))
    slope[2, 1] = 1.0
    with raises(InvalidInput, "infeasible", "rows 0, 2"):
        Equality(None, matrix, AffineBound([1.0, 2.0, 2.0], slope))
    with raises(InvalidInput, "infeasible", "rows 0"):
        Equality(None, [[0.0, 0.0]], [1.0])
    one = Equality(None, [[1.0, 1.0]], [1.0], name="one")
    two = Equality(None, [[1.0, 1.0]], [2.0], name="two")
    with raises(InvalidInput, "infeasible"):
        join_equalities([one, two], input_size=1)
    third = Equality(None, [[1.0, -1.0]], AffineBound(0.0, [1.0]))
    both = join_equalities([one, third], input_size=1)
    assert both.basis.shape == (2, 0)
    assert both.offset == pytest.approx([0.5, 0.5])
    assert both.slope[:, 0] == pytest.approx([0.5, -0.5])


def test_sizes_are_checked() -> None:
    rule = Equality(None, [1.0, 1.0], AffineBound(0.0, [1.0, 2.0]))
    with raises(InvalidInput, "shape"):
        rule.completion(3)
    with raises(InvalidInput, "shape"):
        rule.check(3, 2)
    with raises(InvalidInput, "shape"):
        rule.check(2, 3)
    with raises(InvalidInput, "shape"):
        Equality(Box([0.0], [1.0]), [1.0, 1.0], AffineBound(0.0, [1.0, 2.0]))
    with raises(InvalidInput, "unsupported"):
        rule.violations(torch.zeros(1, 2), torch.zeros(1, 2))


def test_it_is_measured_where_its_inputs_are() -> None:
    bound = AffineBound(0.0, [1.0, 0.0])
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    y = torch.tensor([[0.25, 0.5], [1.0, 2.5]], dtype=torch.float64)
    region = Equality(Box([0.0, 0.0], [5.0, 5.0]), [[1.0, 1.0]], bound)
    missed = region.violations(x, y)
    assert missed.tolist() == [[0.25, -0.25], [-0.5, 0.5]]
    rows = Equality(x.numpy(), [[1.0, 1.0]], bound).rows(0)
    assert rows is not None
    short = rows.bounds - rows.values(y).numpy()
    assert sorted(short.tolist()) == [-0.5, -0.25, 0.25, 0.5]


@pytest.mark.parametrize("seed", range(6))
def test_equalities_over_outputs_in_other_units_are_completed(seed: int) -> None:
    """Independent rows stay independent, and every one is met to rounding in its own terms."""
    rng = np.random.default_rng(seed)
    outputs, rows = 4, 1 + seed % 3
    units = 10.0 ** rng.uniform(-9, 9, outputs)
    matrix = rng.normal(size=(rows, outputs)) / units * 10.0 ** rng.uniform(-9, 9, (rows, 1))
    bound = np.abs(matrix) @ units * rng.normal(size=rows)
    equality = Equality(None, matrix, bound)
    made = equality.completion(2)
    assert made.free_size == outputs - rows
    assert equality.is_kept_by(made.offset, made.slope, made.basis)
    whole = made.project()
    assert equality.is_kept_by(whole.offset, whole.slope, whole.basis)
    z = whole.basis @ (units * rng.normal(size=outputs))
    np.testing.assert_allclose(whole.basis @ z, z, rtol=1e-9, atol=1e-9 * np.abs(z).min())
