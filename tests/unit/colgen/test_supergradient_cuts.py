"""Concave rules in the master are the rules themselves: their optimum is a conic solver's."""

from __future__ import annotations

from typing import Any, Literal

import clarabel
import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from cg4ai import Problem, Settings, StopReason, solve
from cg4ai.colgen import restricted_master as workspace
from cg4ai.colgen import state
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.objectives import Supervised
from cg4ai.records import Array, IntArray
from cg4ai.rules import Concave, Margin, Quadratic

AT = np.zeros((1, 1))
SETTINGS = Settings(column_limit=10_000, final_weights="vertex")


def pool(values: Array, blocks: IntArray | None = None) -> FinitePricer:
    """Constant members (M, r), all in one block unless told otherwise."""
    numbers = np.zeros(len(values), int) if blocks is None else blocks
    return FinitePricer([(ConstantMembers(values, 1), numbers)])


def given(
    values: Any, rules: Any, *, target: Any = 0.0, kind: Literal["average", "mixture"] = "mixture"
) -> Problem:
    table = np.asarray(values, float).reshape(len(values), -1)
    targets = np.broadcast_to(np.asarray(target, float), (1, table.shape[1]))
    objective = Supervised(AT, np.array(targets), kind=kind)
    return Problem(objective, rules, [pool(table)], Layout.single(table.shape[1]))


def square(outputs: Tensor) -> Tensor:
    return -outputs.square().sum(-1)


@pytest.mark.parametrize("rule", [Concave(AT, square, -0.5), Quadratic(AT, [[1.0]], bound=0.5)])
def test_members_that_break_a_rule_alone_may_keep_it_together(rule: Any) -> None:
    result = solve(given([1.0, -1.0, 0.7], [rule]), SETTINGS)
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.feasible
    assert result.objective == pytest.approx(0.0, abs=1e-8)


def test_what_only_a_mixture_keeps_is_not_infeasible() -> None:
    result = solve(given([1.0, -1.0], [Quadratic(AT, [[1.0]], bound=0.5)], target=1.0), SETTINGS)
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.feasible
    assert result.objective == pytest.approx((1 - np.sqrt(0.5)) ** 2, abs=1e-6)


def test_a_margin_is_the_rule_itself_unless_the_papers_form_is_asked_for() -> None:
    members = [[3.0, 4.0, 0.0], [3.0, 0.0, 4.0]]  # each is wrong alone, their mean is right
    by_default = solve(given(members, [Margin(AT, [0], 0.5)], target=[[3.0, 2.0, 2.0]]), SETTINGS)
    assert by_default.stop_reason is StopReason.OPTIMAL
    assert by_default.feasible
    own = given(members, [Margin(AT, [0], 0.5, form="member")], target=[[3.0, 2.0, 2.0]])
    result = solve(own, SETTINGS)
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
    assert result.bound is None
    assert result.conflict is None


def test_a_rule_that_no_mixture_keeps_is_infeasible_and_named() -> None:
    rule = Quadratic(AT, np.eye(2), bound=0.5, name="disc")
    result = solve(given([[1.0, 1.0], [2.0, 0.5]], [rule]), SETTINGS)
    assert result.stop_reason is StopReason.INFEASIBLE
    assert not result.feasible
    assert result.conflict is not None
    assert result.conflict.requirements == (0,)
    assert "disc" in str(result.conflict)


def test_several_blocks_share_a_concave_rule() -> None:
    layout = Layout((np.array([0]), np.array([1])))
    values, blocks = np.array([[2.0], [-2.0], [2.0], [-2.0]]), np.array([0, 0, 1, 1])
    objective = Supervised(AT, np.array([[2.0, 2.0]]), kind="mixture")
    rule = Quadratic(AT, np.eye(2), bound=2.0)
    result = solve(Problem(objective, [rule], [pool(values, blocks)], layout), SETTINGS)
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.feasible
    assert result.objective == pytest.approx(2.0, abs=1e-5)  # both outputs at 1


def test_a_function_without_finite_slopes_is_refused() -> None:
    rule = Concave(AT, lambda y: (y[..., 0].abs() + y[..., 1]).sqrt(), 1.0)
    with pytest.raises(InvalidInput):
        solve(given([[0.0, 0.0]], [rule]), SETTINGS)


def test_a_function_whose_gradient_is_hidden_is_refused() -> None:
    rule = Concave(AT, lambda y: -y.detach().square().sum(-1) + 0 * y[..., 0], -1.0)
    with pytest.raises(InvalidInput):
        rule.check(1, 2)


def test_where_cuts_leave_a_rest_weights_move_into_the_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workspace, "TANGENT_ROUNDS", 1)
    monkeypatch.setattr(state, "WHOLE_ROUNDS", 1)
    values = np.array([[3.0, 0.0], [0.0, 3.0], [-3.0, -1.0], [0.1, 0.2]])
    rule = Quadratic(AT, np.eye(2), bound=1.0)
    problem = given(values, [rule], target=[[3.0, 2.5]])
    result = solve(problem, Settings(final_weights="uniform", iteration_limit=2))
    outputs = result.ensemble.predict(AT)[0]
    assert outputs @ outputs <= 1.0 + 1e-6
    assert result.stop_reason is not StopReason.OPTIMAL


def conic_optimum(values: Array, target: Array, rules: list[tuple[Array, Array, float]]) -> float:
    """Least |W'w - target|^2 over the simplex under y'Qy + a.y <= b; inf if there is none."""
    unit = float(np.abs(values).max())
    if unit != 1.0:  # solved where numbers are near 1
        scaled = [
            (unit**2 * square_part, unit * linear, bound) for square_part, linear, bound in rules
        ]
        return unit**2 * conic_optimum(values / unit, target / unit, scaled)
    count, size = values.shape
    blocks, right, cones = [np.ones((1, count))], [np.ones(1)], [clarabel.ZeroConeT(1)]
    blocks.append(-np.eye(count))
    right.append(np.zeros(count))
    cones.append(clarabel.NonnegativeConeT(count))
    for square_part, linear, bound in rules:
        # |F'y|^2 <= t with t = b - a.y, as a second-order cone of (t + 1, t - 1, 2 F'y)
        eigen, vectors = np.linalg.eigh(square_part)
        factor = vectors * np.sqrt(np.maximum(eigen, 0.0))
        falling = values @ linear
        blocks.append(np.vstack([falling, falling, -2 * (values @ factor).T]))
        right.append(np.concatenate([[bound + 1, bound - 1], np.zeros(size)]))
        cones.append(clarabel.SecondOrderConeT(2 + size))
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_feas = options.tol_gap_abs = options.tol_gap_rel = 1e-10
    P = sparse.csc_matrix(np.triu(2 * values @ values.T))
    A = sparse.csc_matrix(np.vstack(blocks))
    q = -2 * values @ target
    answer = clarabel.DefaultSolver(P, q, A, np.concatenate(right), cones, options).solve()
    if "PrimalInfeasible" in str(answer.status):
        return np.inf
    return float(np.sum((values.T @ np.array(answer.x) - target) ** 2))


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_random_rules_agree_with_a_conic_solver(seed: int) -> None:
    agrees(seed)


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_random_rules_agree_with_a_conic_solver(seed: int) -> None:
    agrees(seed)


def agrees(seed: int) -> None:
    """Objective, bound and feasibility of a random problem, in random units, are the solver's."""
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(1, 6)), int(rng.integers(2, 12))
    unit = 10.0 ** rng.integers(-3, 4)
    values, target = (unit * rng.normal(size=shape) for shape in ((count, size), size))
    stated, rules = [], []
    for _ in range(rng.integers(1, 4)):
        root = rng.normal(size=(size, size)) / unit
        matrix, linear = root @ root.T, rng.normal(size=size) / unit
        middle = values.mean(0)
        bound = float(middle @ matrix @ middle + linear @ middle + rng.uniform(-2.0, 1.0))
        least = -0.25 * linear @ np.linalg.solve(matrix, linear)
        bound = max(bound, float(least) + 0.01)
        stated.append((matrix, linear, bound))
        rules.append(Quadratic(AT, matrix, linear=linear, bound=bound))
    best = conic_optimum(values, target, stated)
    result = solve(given(values, rules, target=target), SETTINGS)
    if np.isinf(best):
        assert not result.feasible
        assert result.stop_reason in (StopReason.INFEASIBLE, StopReason.NO_IMPROVING_COLUMN)
        return
    assert result.feasible
    assert result.stop_reason is not StopReason.INFEASIBLE
    if result.stop_reason is StopReason.OPTIMAL:
        assert result.objective == pytest.approx(best, rel=1e-5, abs=1e-7 * unit**2)
    assert result.bound is None or result.bound <= best + 1e-6 * max(1.0, best)
    outputs = result.ensemble.outputs(torch.zeros(1, 1, dtype=torch.float64)).numpy()[0]
    for matrix, linear, bound in stated:
        assert outputs @ matrix @ outputs + linear @ outputs <= bound + 1e-6 * abs(bound)
