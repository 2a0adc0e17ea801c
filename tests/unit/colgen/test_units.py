"""Rules in other units: the same optimum, the same verdicts, tolerances of the rule's own size."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai import ConstrainedRegressor, Problem, Result, Settings, StopReason, solve
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.ensemble.audit import audit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.records import Array
from cg4ai.rules import AffineCoefficients, Linear, Quadratic

AT = np.zeros((1, 1))


def given(values: Array, rules: Any, targets: Array) -> Problem:
    """Constant members (M, r), whose own squared errors are averaged."""
    pool = FinitePricer([(ConstantMembers(values, 1), np.zeros(len(values), int))])
    return Problem(Supervised(AT, targets), rules, [pool], Layout.single(values.shape[1]))


def least_cost(values: Array, targets: Array, matrix: Array, bounds: Array) -> float:
    costs = ((values - targets) ** 2).sum(1)
    found = linprog(
        costs, A_ub=-matrix @ values.T, b_ub=-bounds, A_eq=np.ones((1, len(values))), b_eq=[1.0]
    )
    assert found.status == 0
    return float(found.fun)


def made(seed: int) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(8, 3))
    matrix = rng.normal(size=(4, 3))
    inside = rng.dirichlet(np.ones(8)) @ values
    return values, rng.normal(size=(1, 3)), matrix, matrix @ inside - rng.uniform(0, 0.2, 4)


@pytest.mark.parametrize("unit", [1e-9, 1e-5, 1e-2, 1.0, 1e4, 1e9])
@pytest.mark.parametrize("seed", range(4))
def test_rows_in_any_unit_end_within_the_gap_that_is_asked_for(unit: float, seed: int) -> None:
    values, targets, matrix, bounds = made(seed)
    rule = Linear(AT, unit * matrix[None], unit * bounds[None])
    result = solve(given(values, [rule], targets), Settings(final_weights="vertex"))
    best = least_cost(values, targets, matrix, bounds)
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.gap is not None
    assert result.gap <= 1e-6 * max(1.0, abs(result.objective))
    assert result.feasible
    assert result.objective == pytest.approx(best, abs=2e-6)
    assert result.bound is not None
    assert result.bound <= best + 1e-7


@pytest.mark.parametrize("apart", [1e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 1e-2])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_run_is_never_infeasible_and_feasible(apart: float, unit: float) -> None:
    rules = [
        Linear(AT, [1.0], unit * (1 + apart), name="above"),
        Linear(AT, [1.0], unit, "<=", name="below"),
    ]
    problem = given(unit * np.array([[0.0], [2.0]]), rules, unit * np.ones((1, 1)))
    result = solve(problem, Settings(final_weights="vertex"))
    assert (result.stop_reason is StopReason.INFEASIBLE) <= (not result.feasible)
    if apart >= 1e-5:
        assert result.stop_reason is StopReason.INFEASIBLE
    if apart <= 1e-7:
        assert result.feasible


@pytest.mark.parametrize("slack", ["row", "shared"])
@pytest.mark.parametrize("seed", range(5))
def test_an_infeasible_run_returns_what_misses_the_rows_least(slack: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, matrix = rng.normal(size=(8, 3)), rng.normal(size=(5, 3))
    bounds = matrix @ values.mean(0) + rng.uniform(5, 20, 5)
    rule = Linear(AT, matrix[None], bounds[None], slack=slack)
    targets = 40 * rng.normal(size=(1, 3))  # a loss for which a little more slack would pay
    result = solve(given(values, [rule], targets), Settings(final_weights="vertex"))
    assert result.stop_reason is StopReason.INFEASIBLE
    slacks = np.eye(5) if slack == "row" else np.ones((5, 1))
    count = slacks.shape[1]
    least = linprog(
        np.concatenate([np.zeros(8), np.ones(count)]),
        A_ub=-np.hstack([matrix @ values.T, slacks]),
        b_ub=-bounds,
        A_eq=np.concatenate([np.ones(8), np.zeros(count)])[None],
        b_eq=[1.0],
    )
    outputs = result.ensemble.predict(AT)[0]
    missed = np.maximum(bounds - matrix @ outputs, 0.0)
    total = missed.sum() if slack == "row" else missed.max()
    assert total == pytest.approx(float(least.fun), rel=1e-6)


def constant(value: float) -> Ensemble:
    part = Part(ConstantMembers([[value]], 1), np.zeros(1, int), np.ones(1))
    return Ensemble((part,), Layout.single(1))


@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1.0, 1e6])
def test_audits_judge_by_the_size_of_the_rule(unit: float) -> None:
    for rule in (
        Linear(AT, [1.0], unit, "<="),
        Linear(AT, [1 / unit], 1.0, "<="),
        Quadratic(AT, [[1.0]], bound=unit**2),
    ):
        assert audit(rule, constant(unit * (1 + 1e-8))).holds
        assert not audit(rule, constant(unit * (1 + 1e-4))).holds


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["average", "mixture"])
def test_outputs_in_any_unit_have_the_same_optimum(unit: float, seed: int, kind: str) -> None:
    values, targets, matrix, bounds = made(seed)
    rule = Linear(AT, matrix[None] / unit, bounds[None])
    pool = FinitePricer([(ConstantMembers(unit * values, 1), np.zeros(len(values), int))])

    def solved(one: Problem) -> Result:
        return solve(one, Settings(final_weights="vertex"))

    objective = Supervised(AT, unit * targets, kind=kind)  # type: ignore[arg-type]
    result = solved(Problem(objective, [rule], [pool], Layout.single(3)))
    same = given(values, [Linear(AT, matrix[None], bounds[None])], targets)
    if kind == "mixture":
        same = replace(same, objective=Supervised(AT, targets, kind="mixture"))
    best = solved(same).objective
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.feasible
    assert result.objective / unit**2 == pytest.approx(best, abs=3e-6)
    assert result.bound is not None
    assert result.bound / unit**2 <= best + 3e-6


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1.0, 1e6, 1e9])
def test_epigraphs_in_any_unit_have_the_same_optimum(unit: float) -> None:
    values = np.array([[2.0, -1.0], [-1.0, 2.0]])
    objective = Epigraph(AT, AffineCoefficients.fixed(np.eye(2)))
    pool = FinitePricer([(ConstantMembers(unit * values, 1), np.zeros(2, int))])
    result = solve(
        Problem(objective, [], [pool], Layout.single(2)), Settings(final_weights="vertex")
    )
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.objective / unit == pytest.approx(0.5, abs=1e-6)
    assert result.bound is not None
    assert result.bound / unit <= 0.5 + 1e-9


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(5))
def test_one_member_of_each_block_in_any_unit_is_the_best_choice(unit: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, blocks = rng.normal(size=(8, 1)), np.repeat([0, 1], 4)
    targets = rng.normal(size=(1, 2))
    pool = FinitePricer([(ConstantMembers(unit * values, 1), blocks)])
    layout = Layout((np.array([0]), np.array([1])))
    disc = Quadratic(AT, np.eye(2) / unit**2, bound=2.0)
    problem = Problem(Supervised(AT, unit * targets, kind="mixture"), [disc], [pool], layout)
    result = solve(problem, Settings(single_model=True, final_weights="vertex"))
    pairs = [np.array([a, b]) for a in values[:4, 0] for b in values[4:, 0] if a**2 + b**2 <= 2]
    if not pairs:
        assert result.stop_reason is StopReason.INFEASIBLE
        return
    best = min(float(np.sum((pair - targets) ** 2)) for pair in pairs)
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.objective / unit**2 == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("members", ["stump", "affine"])
@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e3, 1e5, 1e7])
def test_fits_keep_rules_and_lose_as_much_in_any_unit(members: str, unit: float) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (40, 2))

    def fitted(unit: float) -> ConstrainedRegressor:
        rule = Linear(x[:10], [1.0], unit / 2, "<=")
        model = ConstrainedRegressor(
            members=members, validation_fraction=0, random_state=0, iteration_limit=8
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # of the limit on iterations
            return model.fit(x, 2 * unit * x[:, 0], requirements=[rule])

    model, usual = fitted(unit), fitted(1.0)
    assert model.result_.feasible
    assert model.predict(x[:10]).max() <= unit / 2 * (1 + 1e-6)
    lost = np.mean((model.predict(x) / unit - 2 * x[:, 0]) ** 2)
    assert lost <= 1.05 * np.mean((usual.predict(x) - 2 * x[:, 0]) ** 2)
