"""The normal form: values, slack, rows and worst cases agree, and what is stored comes back."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import cg4ai
from cg4ai.errors import InvalidInput
from cg4ai.rules import Linear, Margin, Probability
from cg4ai.rules.affine import ARRAYS, AffineRules, find_affine_rules
from cg4ai.rules.bounds import AffineBound
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.peaks import minimise_maximum
from cg4ai.rules.regions import Ball, Box, Region, region_of
from raising import raises

INPUTS, OUTPUTS = 3, 4
NUMBERS = ("constant", "limit", "value", "tilt")


def random_rules(seed: int, *, count: int = 5, share: float = 0.4) -> AffineRules:
    rng = np.random.default_rng(seed)
    rule, output, entry = np.nonzero(rng.random((count, OUTPUTS, INPUTS)) < share)
    return AffineRules(
        rng.normal(size=(count, OUTPUTS)),
        rng.normal(size=count),
        rule,
        output,
        entry,
        rng.normal(size=len(rule)),
        INPUTS,
    )


def with_bounds(rules: AffineRules, seed: int) -> AffineRules:
    """The same coefficients with bounds of one to three pieces that depend on the input."""
    rng = np.random.default_rng(seed)
    piece = np.repeat(np.arange(len(rules)), rng.integers(1, 4, len(rules)))
    return replace(
        rules,
        limit=rng.normal(size=len(piece)),
        tilt=rng.normal(size=(len(piece), INPUTS)),
        piece=piece,
    )


def bound_by_hand(rules: AffineRules, rule: int, x: Any) -> float:
    own = rules.piece == rule
    return float(max(rules.limit[own] + rules.tilt[own] @ x))


def by_hand(rules: AffineRules, rule: int, x: Any, y: Any) -> float:
    """The value of one rule from its definition."""
    slope = np.zeros((OUTPUTS, INPUTS))
    own = rules.rule == rule
    slope[rules.output[own], rules.input[own]] = rules.value[own]
    return float(((rules.constant[rule] + slope @ x) * y).sum())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.1, 1.0]), st.booleans())
def test_values_slack_and_rows_follow_the_definition(seed: int, share: float, plain: bool) -> None:
    rules = random_rules(seed, share=share)
    if not plain:
        rules = with_bounds(rules, seed)
    assert rules.plain == plain
    rng = np.random.default_rng(seed + 1)
    x, y = rng.normal(size=(6, INPUTS)), rng.normal(size=(2, 6, OUTPUTS))
    expected = np.array(
        [[[by_hand(rules, j, x[n], own[n]) for j in range(5)] for n in range(6)] for own in y]
    )
    np.testing.assert_allclose(rules.values(x, y[0]), expected[0], atol=1e-12)
    slack = rules.slack(torch.as_tensor(x), torch.as_tensor(y)).numpy()
    bounds = np.array([[bound_by_hand(rules, j, x[n]) for j in range(5)] for n in range(6)])
    np.testing.assert_allclose(slack, bounds - expected, atol=1e-12)
    np.testing.assert_allclose(rules.bounds(x), bounds, atol=1e-12)
    which = rng.integers(0, 5, 6)
    rows = rules.rows(x, which, 7)
    values = rows.values(torch.as_tensor(y[1])).numpy()
    short = rows.bounds - values
    np.testing.assert_allclose(-short, slack[1][np.arange(6), which], atol=1e-12)
    assert rows.requirement == 7


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(
        [
            Box([-1.0, 0.0, 2.0], [1.0, 3.0, 2.0]),
            Ball([0.0, 1.0, 2.0], 0.5),
            Ball([0.0, 1.0, 2.0], 0.5, np.inf),
        ]
    ),
)
def test_the_worst_of_constant_outputs_is_reached_and_never_exceeded(
    seed: int, region: Region
) -> None:
    rules = random_rules(seed)
    y = np.random.default_rng(seed).normal(size=OUTPUTS)
    slack, points, _ = rules.worst(y, region)
    assert region.contains(points).all()
    at = rules.limit - rules.values(points, np.tile(y, (5, 1)))
    np.testing.assert_allclose(np.diag(at), slack, atol=1e-10)
    sample = region.sample(200, torch.Generator().manual_seed(seed))
    elsewhere = rules.slack(sample, torch.as_tensor(np.tile(y, (200, 1)))).numpy()
    assert (elsewhere >= slack - 1e-10).all()


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([Box([-1.0, 0.0, 2.0], [1.0, 3.0, 2.0]), Ball([0.0, 1.0, 2.0], 0.5, np.inf)]),
    st.booleans(),
)
def test_the_worst_of_affine_outputs_over_piecewise_bounds(
    seed: int, region: Region, plain: bool
) -> None:
    rules = random_rules(seed, share=0.0)
    if not plain:
        rules = with_bounds(rules, seed)
    rng = np.random.default_rng(seed)
    slopes, offsets = rng.normal(size=(OUTPUTS, INPUTS)), rng.normal(size=OUTPUTS)
    slack, points, _ = rules.worst_affine(slopes, offsets, region)
    assert region.contains(points).all()

    def left(x: Any) -> Any:
        return rules.bounds(x) - rules.values(x, x @ slopes.T + offsets)

    np.testing.assert_allclose(np.diag(left(points)), slack, atol=1e-7)
    sample = region.sample(500, torch.Generator().manual_seed(seed)).numpy()
    assert (left(sample) >= slack - 1e-10).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 5))
def test_the_worst_of_pieces_over_a_ball_against_a_smooth_program(
    seed: int, size: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    ball = Ball(rng.normal(size=size), rng.uniform(0.1, 2))
    offsets, slopes = rng.normal(size=count), rng.normal(size=(count, size))
    least, point = minimise_maximum(offsets, slopes, ball)
    assert ball.contains(point[None]).all()
    found = minimize(
        lambda z: z[-1],
        np.append(ball.centre, (offsets + slopes @ ball.centre).max()),
        constraints=[
            {"type": "ineq", "fun": lambda z: z[-1] - offsets - slopes @ z[:-1]},
            {
                "type": "ineq",
                "fun": lambda z: ball.radius**2 - ((z[:-1] - ball.centre) ** 2).sum(),
            },
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert least == pytest.approx(found.fun, abs=1e-6)
    sample = ball.sample(2000, torch.Generator().manual_seed(seed)).numpy()
    assert ((offsets + sample @ slopes.T).max(axis=1) >= least - 1e-12).all()


def test_products_of_affine_outputs_and_affine_coefficients_have_no_closed_form() -> None:
    rules = random_rules(0, share=0.4)
    slopes = np.zeros((OUTPUTS, INPUTS))
    assert rules.closed_form(slopes).all()
    slopes[1] = 1.0
    touched = np.isin(np.arange(len(rules)), rules.rule[rules.output == 1])
    np.testing.assert_array_equal(rules.closed_form(slopes), ~touched)
    with raises(InvalidInput, "unsupported"):
        rules.worst_affine(slopes, np.ones(OUTPUTS), Box([0.0] * 3, [1.0] * 3))


def test_gradients_of_the_slack_follow_the_largest_piece() -> None:
    rules = with_bounds(random_rules(4), 4)
    x = torch.randn(3, INPUTS, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, OUTPUTS, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rules.slack, (x, y))


@pytest.mark.parametrize("plain", [True, False])
def test_the_slack_of_rules_with_given_tensors_is_the_same(plain: bool) -> None:
    rules = random_rules(5) if plain else with_bounds(random_rules(5), 5)
    given = rules.tensors(torch.device("cpu"))
    x, y = torch.randn(2, 4, 4, dtype=torch.float64, generator=torch.manual_seed(0))
    x = x[:, :INPUTS]
    assert torch.equal(rules.with_tensors(given).slack(x, y), rules.slack(x, y))
    doubled = given | {"limit": given["limit"] + 1.0}
    np.testing.assert_allclose(rules.with_tensors(doubled).slack(x, y), rules.slack(x, y) + 1.0)


def test_what_is_stored_comes_back_and_has_the_same_digest() -> None:
    rules = with_bounds(random_rules(1), 1)
    again = AffineRules.from_arrays(rules.arrays, input_size=INPUTS)
    assert again.digest == rules.digest
    assert set(again.arrays) == set(ARRAYS)
    for name in ARRAYS:
        changed = {**rules.arrays, name: rules.arrays[name].copy()}
        changed[name].flat[0] += 1 if name in NUMBERS else 0
        same = AffineRules.from_arrays(changed, input_size=INPUTS).digest == rules.digest
        assert same == (name not in NUMBERS)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rule": [0, 0], "output": [1, 1], "input": [2, 2], "value": [1e60, 1.0]}, "duplicate"),
        ({"rule": [5], "output": [0], "input": [0], "value": [1.0]}, "range"),
        ({"rule": [0], "output": [-1], "input": [0], "value": [1.0]}, "range"),
        ({"rule": [0], "output": [0], "input": [3], "value": [1.0]}, "range"),
        ({"rule": [0.5], "output": [0], "input": [0], "value": [1.0]}, "not-finite"),
        ({"value": [1.0, 2.0, 3.0]}, "invalid-input"),
        ({"limit": np.zeros(4)}, "shape"),
        ({"tilt": np.zeros((5, 2))}, "shape"),
        ({"piece": [0, 1, 1, 2, 3]}, "shape"),
        ({"piece": [0, 2, 1, 3, 4]}, "shape"),
        ({"piece": [1, 2, 3, 4, 5]}, "shape"),
        ({"constant": np.full((5, OUTPUTS), np.nan)}, "not-finite"),
    ],
)
def test_arrays_that_make_no_rules_are_refused(change: dict[str, Any], code: str) -> None:
    arrays = random_rules(1).arrays | {name: np.array(value) for name, value in change.items()}
    with raises(InvalidInput, code):
        AffineRules.from_arrays(arrays, input_size=INPUTS)


def test_repeated_slopes_of_a_functional_are_refused_before_anything_is_trained() -> None:
    """They would cancel or not, depending on the order in which they are summed."""

    class Cancelling:
        count = 1

        def values(self, inputs: Any, outputs: Any) -> Any:
            return (inputs * outputs).sum(-1, keepdim=True)

        def coefficients(self, inputs: Any, which: Any) -> Any:
            return inputs

        def affine(self) -> AffineCoefficients:
            zero = np.zeros(3, np.int64)
            return AffineCoefficients(
                np.zeros((1, 1)), zero, zero, zero, np.array([1e60, 1, -1e60])
            )

    rule = Linear(Box([0.0], [1.0]), Cancelling(), 1.0, "<=")
    with raises(InvalidInput, "duplicate"):
        rule.check(1, 1)


@pytest.mark.parametrize(
    "requirement",
    [
        Linear(Box([0.0], [1.0]), [[1.0, 2.0, 3.0]], 0.5, "=="),
        Probability(Ball([0.0], 1.0), 1, 0.7),
        Margin(Box([0.0], [1.0]), 2, 0.1, form="pairwise"),
    ],
)
def test_rows_violations_and_normal_form_of_a_rule_are_one(requirement: Any) -> None:
    rules = find_affine_rules(requirement, output_size=3)
    rng = np.random.default_rng(0)
    x, y = rng.random((4, 1)), rng.normal(size=(4, 3))
    found = requirement.violations(torch.as_tensor(x), torch.as_tensor(y)).numpy()
    np.testing.assert_allclose(found, rules.values(x, y) - rules.limit, atol=1e-12)
    for rule in range(len(rules)):
        rows = requirement.rows_at(x, np.full(4, rule), 0)
        short = rows.bounds - rows.values(torch.as_tensor(y)).numpy()
        np.testing.assert_allclose(short, found[:, rule], atol=1e-12)


@pytest.mark.parametrize(
    "region", [Box([0.0, -1.0], [1.0, 2.5]), Ball([0.5, 0.25], 2.0), Ball([0.5, 0.1], 2.0, np.inf)]
)
def test_a_region_comes_back_from_its_record(region: Region) -> None:
    again = region_of(region.record())
    assert again.record() == region.record()
    np.testing.assert_array_equal(again.bounds(), region.bounds())


def test_damaged_records_of_regions_are_refused() -> None:
    for record in (
        {"kind": "cone"},
        {"kind": "ball", "centre": [0.0], "radius": 1.0, "norm": 3},
        {"kind": "box", "lower": [1.0], "upper": [0.0]},
    ):
        with pytest.raises(InvalidInput):
            region_of(record)


def test_the_normal_form_is_spelled_out_in_one_file() -> None:
    """No other file of the package lists these arrays (the checker shares no code)."""
    package = Path(cg4ai.__file__).parent
    spelled = re.compile(r'"rule".{0,80}"output".{0,80}"input".{0,80}"value"', re.DOTALL)
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if spelled.search(path.read_text()) and "checker" not in path.parts
    }
    assert found == {"rules/affine.py", "proofs/rule_forms.py"}  # the latter names them in a file


def test_the_digest_is_of_names_shapes_and_bytes() -> None:
    rules = random_rules(3)
    total = hashlib.sha256()
    for name in ("constant", "limit", "rule", "output", "input", "value", "tilt", "piece"):
        array = rules.arrays[name]
        total.update(f"{name} {array.shape}".encode() + array.tobytes())
    assert rules.digest == total.hexdigest()


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (2.0, [2.0, 2.0]),
        ([1.0, 2.0], [1.0, 2.0]),
        (AffineBound([1.0, 2.0], [[0.0, 1.0], [3.0, 0.0]]), [1.5, 3.5]),
    ],
)
def test_bounds_may_be_numbers_or_depend_on_the_input(bound: Any, expected: list[float]) -> None:
    coefficients = AffineCoefficients.fixed(np.eye(2))
    rules = AffineRules.of(coefficients, bound, "<=", input_size=2)
    slack = rules.slack(torch.full((1, 2), 0.5, dtype=torch.float64), torch.zeros(1, 2).double())
    np.testing.assert_allclose(slack[0], expected)
