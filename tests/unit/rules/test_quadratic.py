"""Convex quadratic rules: values, rows, the exact step to an anchor, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from cg4ai.ensemble import saved
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import find_affine_rules
from cg4ai.rules import Ball, Box, Quadratic, squares
from cg4ai.rules.guards import Guard, guard_of
from cg4ai.rules.quadratic import QuadraticRules
from cg4ai.rules.regions import Region
from cg4ai.runs import files
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, size=(6, 2))
F = RANDOM.normal(size=(6, 3))  # outputs at X
BOX = Box([-1.0, -1.0], [1.0, 1.0])


def random_rule(seed: int, count: int = 2, rank: int = 2) -> tuple[Any, Any, Any]:
    """Matrices of low rank, vectors, and bounds that outputs of zero keep with room."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(count, 3, rank))
    return half @ half.transpose(0, 2, 1), rng.normal(size=(count, 3)), rng.uniform(0.2, 2, count)


def by_hand(square: Any, linear: Any, outputs: Any) -> Any:
    """(n, r) -> (n, L)."""
    return np.einsum("nr,lrs,ns->nl", outputs, square, outputs) + outputs @ linear.T


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3))
def test_values_slack_and_rows_follow_the_definition(seed: int, rank: int) -> None:
    square, linear, bound = random_rule(seed, rank=rank)
    requirement = Quadratic(BOX, square, bound, linear)
    requirement.check(2, 3)
    expected = by_hand(square, linear, F) - bound
    found = requirement.violations(torch.as_tensor(X), torch.as_tensor(F)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_allclose(requirement.rules.values(F) - bound, expected, atol=1e-10)
    for rule in range(2):
        rows = requirement.rows_at(X, np.full(6, rule), 0)
        short = rows.bounds - rows.values(torch.as_tensor(F)).numpy()
        np.testing.assert_allclose(short, expected[:, rule], atol=1e-10)


@pytest.mark.parametrize("shape", [(), (2,), (6, 1), (6, 2)])
def test_rules_at_listed_inputs(shape: tuple[int, ...]) -> None:
    square, linear, _ = random_rule(1)
    bound = 5 + RANDOM.uniform(size=shape)
    requirement = Quadratic(X, square, bound, linear, name="size")
    rows = requirement.rows(3)
    assert rows is not None
    assert rows.requirement == 3
    short = (rows.bounds - rows.values(torch.as_tensor(F)[rows.origin[:, 0]]).numpy()).reshape(6, 2)
    np.testing.assert_allclose(short, by_hand(square, linear, F) - bound, atol=1e-10)
    limit = np.broadcast_to(bound, (6, 2))[1, 1]
    assert requirement.describe(rows, 3) == f"size: input 1, rule 1, quadratic <= {limit:.6g}"


def test_one_rule_with_a_bound_for_each_listed_input() -> None:
    bound = np.arange(1.0, 7)
    rows = Quadratic(X, np.eye(3), bound).rows(0)
    assert rows is not None
    short = rows.bounds - rows.values(torch.as_tensor(F)).numpy()
    np.testing.assert_allclose(short, (F**2).sum(1) - bound, atol=1e-12)
    again = replace(Quadratic(X, np.eye(3), bound), name="copy").rows(0)
    assert again is not None
    np.testing.assert_array_equal(again.bounds, rows.bounds)


def test_the_rows_are_concave() -> None:
    square, linear, bound = random_rule(2)
    rows = Quadratic(X, square, bound, linear).rows(0)
    assert rows is not None
    one, other = torch.randn(2, 12, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    middle = rows.values(0.3 * one + 0.7 * other)
    assert (middle >= 0.3 * rows.values(one) + 0.7 * rows.values(other) - 1e-12).all()


# ---- the step to the anchor --------------------------------------------------------------------


def least_share(square: Any, linear: Any, bound: float, *, own: Any, anchor: Any) -> float:
    """The first t at which the segment from `own` to `anchor` is inside, by bisection."""

    def excess(t: float) -> float:
        y = (own + t * (anchor - own))[None]
        return float(by_hand(square[None], linear[None], y)[0, 0] - bound)

    if excess(0.0) <= 0:
        return 0.0
    # convex and at most 0 at the anchor: one crossing on the way to the minimum
    return float(brentq(excess, 0.0, 1.0, xtol=1e-14)) if excess(1.0) < 0 else 1.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from([0.1, 3.0, 1e4]))
def test_the_share_is_the_smallest_root(seed: int, rank: int, size: float) -> None:
    square, linear, bound = random_rule(seed, rank=rank)
    rng = np.random.default_rng(seed + 1)
    outputs, anchor = size * rng.normal(size=(4, 6, 3)), np.zeros((6, 3))
    rules = Quadratic(BOX, square, bound, linear).rules
    x = torch.as_tensor(X)
    share = rules.shares(x, torch.as_tensor(outputs), torch.as_tensor(anchor)).numpy()
    for index in np.ndindex(share.shape):
        rule = index[-1]
        expected = least_share(
            square[rule], linear[rule], bound[rule], own=outputs[index[:2]], anchor=anchor[0]
        )
        assert share[index] == pytest.approx(expected, rel=1e-8, abs=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3), st.booleans())
def test_restored_outputs_keep_every_rule(seed: int, rank: int, tight: bool) -> None:
    """Also for an anchor on the boundary of a rule."""
    square, linear, bound = random_rule(seed, rank=rank)
    rng = np.random.default_rng(seed)
    anchor = 0.01 * rng.normal(size=(1, 3))
    if tight:
        bound = by_hand(square, linear, anchor)[0]
    guard = guard_of(Quadratic(BOX, square, bound, linear), 3)
    x, y = torch.as_tensor(X), torch.as_tensor(3 * rng.normal(size=(6, 3)))
    other = torch.as_tensor(anchor).expand(6, 3)
    theta = guard.theta(x, guard.rules.slack(x, y), y, other)[:, None]
    assert ((theta >= 0) & (theta <= 1)).all()
    slack = guard.rules.slack(x, y + theta * (other - y)).numpy()
    assert (slack >= -1e-11 * np.maximum(1, np.abs(bound))).all()


@pytest.mark.parametrize(
    "outputs",
    [
        [0.0, 0.0, 0.0],  # the anchor itself
        [0.0, 0.0, 9.0],  # along a direction without curvature
        [1e200, 0.0, 0.0],
        [np.inf, 0.0, 0.0],
        [np.nan, 0.0, 0.0],
        [1.0, 1.0, 0.0],
    ],
)
@pytest.mark.parametrize("bound", [0.0, 0.5])
def test_degenerate_segments_end_within_the_rule(outputs: Any, bound: float) -> None:
    guard = guard_of(Quadratic(BOX, np.diag([1.0, 1.0, 0.0]), bound, [0.0, 0.0, 1.0]), 3)
    x = torch.zeros(1, 2, dtype=torch.float64)
    y = torch.tensor([outputs], dtype=torch.float64, requires_grad=True)
    anchor = torch.zeros(1, 3, dtype=torch.float64)
    theta = guard.theta(x, guard.rules.slack(x, y), y, anchor)[:, None]
    assert 0 <= theta.item() <= 1
    restored = torch.where(theta < 1, y + theta * (anchor - y), anchor)
    assert guard.rules.slack(x, restored).min().item() >= -1e-12
    if np.isfinite(outputs).all() and max(outputs) < 1e100:
        theta.sum().backward()
        assert torch.isfinite(y.grad).all()


def test_an_anchor_that_breaks_the_rule_is_taken_whole_if_it_is_better() -> None:
    rules = Quadratic(BOX, np.eye(3), 1.0).rules
    x, one = torch.as_tensor(X), torch.ones(6, 3, dtype=torch.float64)
    assert (rules.shares(x, 10 * one, 2 * one) == 1).all()


def test_gradients_of_the_share() -> None:
    square, linear, bound = random_rule(5)
    rules = Quadratic(BOX, square, bound, linear).rules
    x = torch.as_tensor(X)
    y = torch.as_tensor(3 * F).requires_grad_(True)
    anchor = torch.as_tensor(0.01 * F).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda y, a: rules.shares(x, y, a), (y, anchor))


# ---- bounds over regions, files ----------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([BOX, Ball([0.0, 1.0], 0.5)]))
def test_the_slack_of_affine_outputs_is_never_stated_too_high(seed: int, region: Region) -> None:
    square, linear, bound = random_rule(seed)
    rules = Quadratic(BOX, square, bound, linear).rules
    rng = np.random.default_rng(seed)
    slopes, offsets = 0.3 * rng.normal(size=(3, 2)), rng.normal(size=3)
    slack, points, _ = rules.worst_affine(slopes, offsets, region)
    assert region.contains(points).all()
    sample = region.sample(500, torch.Generator().manual_seed(seed)).numpy()
    assert (rules.limit - rules.values(sample @ slopes.T + offsets) >= slack - 1e-10).all()
    assert not rules.closed_form(slopes).any()
    fixed = rules.worst(offsets, region).slack
    np.testing.assert_allclose(fixed, rules.limit - rules.values(offsets[None])[0], atol=1e-10)
    assert rules.closed_form(0 * slopes).all()


def test_a_guard_comes_back_from_what_is_stored() -> None:
    square, linear, bound = random_rule(7)
    guard = guard_of(Quadratic(BOX, square, bound, linear, name="energy"), 3)
    again = Guard.from_record(guard.record(), guard.arrays(), {})
    assert again.key == guard.key
    x, y = torch.as_tensor(X), torch.as_tensor(F)
    assert torch.equal(again.rules.slack(x, y), guard.rules.slack(x, y))
    moved = guard.rules.with_tensors(guard.rules.tensors(torch.device("cpu")))
    assert torch.equal(moved.slack(x, y), guard.rules.slack(x, y))
    other = QuadraticRules(guard.rules.square, linear, bound + 1, 2)
    assert other.digest != guard.rules.digest


def test_single_precision_stays_single() -> None:
    square, linear, bound = random_rule(7)
    rules = Quadratic(BOX, square, bound, linear).rules
    x, y = torch.as_tensor(X).float(), torch.as_tensor(F).float()
    assert rules.shares(x, y, 0 * y).dtype == rules.slack(x, y).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((BOX, np.ones(3), 1.0), "shape"),
        ((BOX, np.ones((2, 3)), 1.0), "shape"),
        ((BOX, np.diag([1.0, 1.0, -0.5]), 1.0), "not-convex"),
        ((BOX, np.eye(3), 1.0, np.ones(2)), "shape"),
        ((BOX, np.eye(3), [1.0, 2.0]), "shape"),
        ((X, np.eye(3), np.ones(5)), "shape"),
        ((X, np.ones((2, 3, 3)), np.ones(6)), "shape"),
        ((BOX, np.eye(3), -1.0), "infeasible"),
        ((BOX, np.eye(3), -1.0, [1.0, 0, 0]), "infeasible"),
        ((BOX, [[np.nan]], 1.0), "not-finite"),
    ],
)
def test_refused(arguments: tuple[Any, ...], code: str) -> None:
    with raises(InvalidInput, code):
        Quadratic(*arguments)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.0, 9.0]))
def test_no_term_is_lost_whatever_the_units(seed: int, size: int, rank: int, spread: float) -> None:
    """Against exact fractions: entry by entry, and never less than the rule as given."""
    rng = np.random.default_rng(seed)
    half = rng.integers(-3, 4, (size, rank)) if seed % 2 else rng.normal(size=(size, rank))
    units = 10.0 ** rng.uniform(-spread, spread, size)
    square = half @ half.T * np.outer(units, units)
    rules = Quadratic(BOX, square, 1e40).rules
    diagonal = np.diag(square)
    entries = [[Fraction(one) for one in row] for row in square.tolist()]
    for i, j in np.ndindex(square.shape):
        squares = sum(Fraction(a) * Fraction(b) for a, b in rules.factor[0][[i, j]].T.tolist())
        missed = float(squares - (entries[i][j] + entries[j][i]) / 2)
        assert abs(missed) <= 1e-13 * np.sqrt(diagonal[i] * diagonal[j])
    assert (rules.rest <= 1e-13 * diagonal).all()
    outputs = rng.normal(size=size) / units
    y = [Fraction(one) for one in outputs.tolist()]
    exact = sum(entries[i][j] * y[i] * y[j] for i, j in np.ndindex(square.shape))
    scale = float(np.abs(square * np.outer(outputs, outputs)).sum())
    assert rules.values(outputs[None])[0, 0] == pytest.approx(float(exact), abs=1e-13 * scale)


@pytest.mark.parametrize(
    "square",
    [
        np.diag([1.0, -1e-14]),
        [[0.0, 1e-20], [1e-20, 1.0]],
        [[1.0, 1 + 1e-9], [1 + 1e-9, 1.0]],
        [[1e-20, 1.0], [1.0, 1e19]],
        np.diag([1e200, 1.0]),
    ],
)
def test_squares_that_are_not_convex_or_out_of_range_are_refused(square: Any) -> None:
    with pytest.raises(InvalidInput):
        Quadratic(BOX, square, 1.0)


def test_guards_of_earlier_versions_are_read_where_their_factor_is_whole(tmp_path: Path) -> None:
    square, linear, bound = np.array([[2.0, 0.5], [0.5, 1.0]]), np.zeros(2), 4.0
    part = Part(ConstantMembers([[0.0, 0.0]], 2), np.zeros(1, int), np.ones(1))
    plain = Ensemble((part,), Layout.single(2))
    shielded = plain.apply_shield(
        ConstantMembers([[0.0, 0.0]], 2), Quadratic(BOX, square, bound, linear)
    )
    described = saved.describe(shielded)
    arrays = {name: array for name, array in described.arrays.items() if "square" not in name}
    for columns in (2, 1):
        factor = np.linalg.cholesky(square)[None, :, :columns]
        digest = files.write_arrays(tmp_path / saved.ARRAYS, arrays | {"guard.0.factor": factor})
        header = {"format": saved.FORMAT, "version": saved.VERSION, "arrays": digest}
        files.write_json(tmp_path / saved.RECORD, header | described.record)
        if columns == 2:
            again = saved.describe(saved.load(tmp_path)).arrays["guard.0.square"]
            np.testing.assert_allclose(again, square[None], atol=1e-12)
        else:
            with pytest.raises(InvalidInput):  # a term may have been left out
                saved.load(tmp_path)


def test_rounding_in_the_matrix_and_rules_without_least_value_are_accepted() -> None:
    half = np.random.default_rng(0).normal(size=(3, 2))
    Quadratic(BOX, half @ half.T, 1.0)
    Quadratic(BOX, np.diag([1.0, 1.0, 0.0]), -5.0, [0.0, 0.0, 1.0])


def test_sizes_are_checked_and_no_affine_form_is_pretended() -> None:
    requirement = Quadratic(BOX, np.eye(3), 1.0)
    with raises(InvalidInput, "shape"):
        requirement.check(2, 2)
    with raises(InvalidInput, "unsupported"):
        find_affine_rules(requirement, output_size=3)


@pytest.mark.parametrize("spread", [0, 8])
@pytest.mark.parametrize("rank", [1, 4, 9])
def test_what_a_factor_misses_is_found_in_twice_the_digits(rank: int, spread: float) -> None:
    rng = np.random.default_rng(rank)
    root = rng.normal(size=(9, rank)) * 10.0 ** rng.uniform(-spread, 0, (9, rank))
    square = root @ root.T
    missed = squares._residual(square, root)
    for i, j in np.ndindex(9, 9):
        terms = [
            Fraction(a) * Fraction(b)
            for a, b in zip(root[i].tolist(), root[j].tolist(), strict=True)
        ]
        exact = float(Fraction(square.item(i, j)) - sum(terms))
        assert missed.item(i, j) == pytest.approx(exact, rel=1e-9, abs=1e-30)
    whole = np.rint(8 * root)
    assert not squares._residual(whole @ whole.T, whole).any()


@pytest.mark.parametrize("count", [1, 2])
def test_squares_that_are_all_zero_leave_a_linear_rule(count: int) -> None:
    square, linear = np.zeros((count, 3, 3)), np.ones((count, 3))
    rules = QuadraticRules(square, linear, np.full(count, 2.0), input_size=2)
    found = rules.worst_affine(np.ones((3, 2)), np.zeros(3), BOX)
    np.testing.assert_allclose(found.slack, -4.0)  # 3 (x_1 + x_2) reaches 6
