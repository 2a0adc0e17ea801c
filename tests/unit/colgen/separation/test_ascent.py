"""GradientAscent and BlackBox against closed forms and grids."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config
from scipy.optimize import linprog
from torch import Tensor

from cg4ai.colgen.separation import BlackBox, GradientAscent
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.mixture import Mixture, Part
from cg4ai.rules import Concave, Linear, Margin, Probability
from cg4ai.rules.regions import Ball, Box, Polytope
from raising import raises


class Function:
    device = torch.device("cpu")

    def __init__(
        self, function: Callable[[torch.Tensor], torch.Tensor], *, differentiable: bool = True
    ) -> None:
        self.function = function
        self.differentiable = differentiable

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.function(inputs)


RANDOM = np.random.default_rng(2)
D = 8
MATRIX = RANDOM.normal(size=(D, 3))
SHIFT = RANDOM.normal(size=3)
AFFINE = Function(lambda x: x @ torch.as_tensor(MATRIX) + torch.as_tensor(SHIFT))
LOWER = -RANDOM.uniform(0.5, 2, D)
UPPER = RANDOM.uniform(0.5, 2, D)
RULES = np.array([[1.0, 0, 0], [0, -1.0, 2.0]])
SEARCHES = [GradientAscent(starts=8, steps=60), BlackBox(starts=2, evaluations=400)]


def search(separator: Any, mixture: Any, requirement: Any, limit: int = 20) -> Any:
    return separator.find(mixture, requirement, seed=5, limit=limit, tolerance=1e-6)


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_affine_over_a_box_peaks_at_the_known_vertex(separator: Any) -> None:
    requirement = Linear(Box(LOWER, UPPER), RULES, [0.0, 0.0])
    found = search(separator, AFFINE, requirement)
    slopes = -MATRIX @ RULES.T
    vertices = np.where(slopes > 0, UPPER[:, None], LOWER[:, None])
    highest = (slopes * vertices).sum(0) - RULES @ SHIFT
    rule = int(highest.argmax())
    assert found.worst == pytest.approx(highest.max(), abs=1e-6)
    assert np.allclose(found.rows.inputs[0], vertices[:, rule], atol=1e-5)
    assert np.all(np.diff(found.violations) <= 0)
    for one in range(2):  # each rule's own peak is reached
        mine = found.violations[found.rows.origin[:, 1] == one]
        assert mine.max() == pytest.approx(highest[one], abs=1e-5)


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_affine_over_a_polytope_reaches_the_linear_program(separator: Any) -> None:
    limits = np.abs(RANDOM.normal(size=(4, D)))
    region = Polytope(Box(LOWER, UPPER), limits, limits @ (0.6 * LOWER + 0.4 * UPPER))
    found = search(separator, AFFINE, Linear(region, RULES[1], 10.0))
    slope = -MATRIX @ RULES[1]
    best = linprog(
        -slope,
        A_ub=limits,
        b_ub=region.limit,
        bounds=list(zip(LOWER, UPPER, strict=True)),
    )
    highest = 10.0 - RULES[1] @ SHIFT - best.fun
    assert region.contains(found.rows.inputs).all()
    assert found.worst <= highest + 1e-9
    reach = float(np.abs(slope) @ (np.asarray(UPPER) - LOWER))  # of the box
    close = 1e-6 if isinstance(separator, GradientAscent) else 0.02 * reach
    assert found.worst == pytest.approx(highest, abs=close)


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
@pytest.mark.parametrize("norm", [2, math.inf])
def test_affine_over_a_ball_has_a_closed_form(separator: Any, norm: float) -> None:
    centre = RANDOM.normal(size=D)
    ball = Ball(centre, 0.7, norm)
    found = search(separator, AFFINE, Linear(ball, RULES[1], 10.0))
    slope = -MATRIX @ RULES[1]
    dual = np.abs(slope).sum() if norm == math.inf else np.linalg.norm(slope)
    highest = 10.0 + centre @ slope - RULES[1] @ SHIFT + 0.7 * dual
    close = 1e-6 if isinstance(separator, GradientAscent) else 1e-2 * float(dual)
    assert found.worst <= highest + 1e-9
    assert found.worst == pytest.approx(highest, abs=close)
    assert ball.contains(found.rows.inputs).all()


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_many_peaks_against_a_grid(separator: Any) -> None:
    def bumpy(x: torch.Tensor) -> torch.Tensor:
        height = torch.sin(3 * x[:, 0]) * torch.cos(4 * x[:, 1]) + 0.1 * x[:, 0]
        return torch.stack([height, -height], -1)

    box = Box([-2.0, -2.0], [2.0, 2.0])
    found = search(separator, Function(bumpy), Linear(box, [1.0, 0.0], 0.5, "<="))
    axis = np.linspace(-2, 2, 801)
    grid = torch.as_tensor(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2))
    highest = float(bumpy(grid)[:, 0].max()) - 0.5
    assert found.worst == pytest.approx(highest, abs=2e-4)
    if isinstance(separator, GradientAscent):  # several peaks, not copies of one
        apart = np.abs(found.rows.inputs[:, None] - found.rows.inputs[None]).max(-1)
        assert len(found.rows) >= 3
        assert apart[~np.eye(len(apart), dtype=bool)].min() > 0.01


def test_narrow_interior_peak_is_climbed_to_precision() -> None:
    peak = torch.linspace(-0.5, 0.5, D, dtype=torch.float64)
    scales = torch.logspace(0, 1.5, D, dtype=torch.float64)
    hill = Function(lambda x: -(scales * (x - peak).square()).sum(-1, keepdim=True))
    box = Box(-np.ones(D), np.ones(D))
    found = search(GradientAscent(starts=32, steps=200), hill, Linear(box, [1.0], -0.5, "<="))
    assert found.worst == pytest.approx(0.5, abs=2e-3)


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_nothing_found_where_nothing_is(separator: Any) -> None:
    box = Box(LOWER, UPPER)
    corner = float((np.abs(MATRIX[:, 0]) * np.maximum(-LOWER, UPPER)).sum() + abs(SHIFT[0]))
    found = search(separator, AFFINE, Linear(box, RULES[0], -corner - 0.1))
    assert found.rows is None
    assert len(found.violations) == 0
    assert found.worst <= -0.1
    assert found.effort["seed"] == 5


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_same_seed_same_answer(separator: Any) -> None:
    requirement = Margin(Box(LOWER, UPPER), 1, 0.1, form="pairwise", classes=3)
    one, other = (search(separator, AFFINE, requirement) for _ in range(2))
    assert np.array_equal(one.rows.inputs, other.rows.inputs)
    assert np.array_equal(one.violations, other.violations)


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_rows_repeat_the_violations_and_keep_within_the_limit(separator: Any) -> None:
    for requirement in (
        Margin(Box(LOWER, UPPER), 0, 0.1, classes=3),
        Concave(Ball(np.zeros(D), 1.0), lambda f: f.amin(-1), 1.0),
        Probability(Box(LOWER, UPPER), 2, 0.9, classes=3),
    ):
        found = search(separator, AFFINE, requirement, limit=4)
        assert 1 <= len(found.rows) <= 4
        outputs = AFFINE.outputs(torch.as_tensor(found.rows.inputs))
        again = found.rows.bounds - found.rows.values(outputs).numpy()
        assert np.allclose(again, found.violations, atol=1e-12)
        assert found.rows.requirement == -1


def test_every_rule_is_represented_before_any_is_repeated() -> None:
    rules = np.array([[1.0, 0, 0], [0.1, 0, 0], [0, 0.01, 0]])
    found = search(GradientAscent(starts=8), AFFINE, Linear(Box(LOWER, UPPER), rules, 1.0), limit=3)
    assert sorted(found.rows.origin[:, 1]) == [0, 1, 2]


def test_black_box_on_a_step_function() -> None:
    steps = Function(lambda x: torch.floor(4 * x[:, :1]) / 4, differentiable=False)
    box = Box([0.0, 0.0], [0.99, 0.0])  # the second coordinate is fixed
    requirement = Linear(box, [1.0], 0.5, "<=")
    for algorithm in ("LN_COBYLA", "LN_NELDERMEAD", "LN_SBPLX", "LN_BOBYQA", "GN_DIRECT_L"):
        found = search(BlackBox(algorithm, evaluations=80), steps, requirement)
        assert found.worst == pytest.approx(0.25)
        assert box.contains(found.rows.inputs).all()
    with raises(InvalidInput, "unsupported", "BlackBox"):
        search(GradientAscent(), steps, requirement)


def test_black_box_ends_after_its_seconds() -> None:
    asked: list[int] = []

    def slow(x: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        time.sleep(0.02)
        return torch.sin(x[:, :1])

    box = Box(np.zeros(4), np.ones(4))
    hasty = BlackBox(starts=1, evaluations=1000, seconds=0.1)
    assert search(hasty, Function(slow), Linear(box, [1.0], 0.5, "<=")).worst > 0
    assert len(asked) < 100


def test_black_box_finds_the_same_with_any_number_of_jobs() -> None:
    mixture = Mixture(
        (Part(affine(MATRIX[None], SHIFT[None]), np.zeros(1, np.int64), np.ones(1)),),
        Layout.single(3),
    )
    rules = np.random.default_rng(4).normal(size=(7, 3))
    requirement = Linear(Box(LOWER, UPPER), rules, 5.0)
    serial, two, three = (
        search(BlackBox(starts=2, evaluations=60, n_jobs=jobs), mixture, requirement)
        for jobs in (None, 2, 3)
    )
    for other in (two, three):
        assert np.array_equal(serial.rows.inputs, other.rows.inputs)
        assert np.array_equal(serial.rows.origin, other.rows.origin)
        assert np.array_equal(serial.violations, other.violations)
    with parallel_config(n_jobs=2):
        assert search(BlackBox(starts=2, evaluations=60), mixture, requirement).worst == two.worst


def test_a_single_point_region() -> None:
    requirement = Linear(Box(UPPER, UPPER), RULES[0], 100.0)
    expected = 100.0 - RULES[0] @ (UPPER @ MATRIX + SHIFT)
    for separator in SEARCHES:
        found = search(separator, AFFINE, requirement)
        assert found.worst == pytest.approx(expected)
        assert len(found.rows) == 1


@pytest.mark.parametrize("separator", SEARCHES, ids=["ascent", "black box"])
def test_diverged_members_and_lists_are_refused(separator: Any) -> None:
    broken = Function(lambda x: x[:, :1] * torch.nan)
    with raises(InvalidInput, "not-finite"):
        search(separator, broken, Linear(Box(LOWER, UPPER), [1.0], 0.0))
    with raises(InvalidInput, "unsupported", "PoolScan"):
        search(separator, AFFINE, Linear(UPPER[None], RULES[0], 0.0))


def test_an_error_of_the_mixture_is_not_swallowed() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        if len(x) == 1:
            raise RuntimeError("out of memory")
        return x

    with pytest.raises(RuntimeError, match="out of memory"):
        search(BlackBox(), Function(fails), Linear(Box(LOWER, UPPER), np.ones(D), 0.0))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: GradientAscent(starts=0), "range"),
        (lambda: GradientAscent(steps=-1), "range"),
        (lambda: GradientAscent(step_size=0.0), "range"),
        (lambda: BlackBox("LN_COBILA"), "unknown-name"),
        (lambda: BlackBox("GN_CRS2_LM"), "unknown-name"),
        (lambda: BlackBox(evaluations=0), "range"),
        (lambda: BlackBox(n_jobs=0), "range"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], Any], code: str) -> None:
    with raises(InvalidInput, code):
        make()


def test_polish_never_finds_less_and_is_part_of_the_thorough_search() -> None:
    requirement = Linear(Box(-np.ones(2), np.ones(2)), [1.0], 0.5, "<=")
    requirement.check(2, 1)

    class Ridge:
        """|x0 - x1| makes a ridge that slopes run into; the top is at the corner (1, 1)."""

        device = torch.device("cpu")
        differentiable = True

        def outputs(self, inputs: Tensor) -> Tensor:
            x, y = inputs[:, 0], inputs[:, 1]
            return (x + y - 5 * (x - y).abs())[:, None]

    plain = GradientAscent(starts=2, steps=3, vertices=0)
    polished = replace(plain, polish=3)
    assert plain.thorough().polish > 0
    worst = [
        search.find(Ridge(), requirement, seed=1, limit=5, tolerance=0.0).worst
        for search in (plain, polished)
    ]
    assert worst[1] > worst[0]
