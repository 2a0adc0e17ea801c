"""One model in place of a mixture: against brute force, with cuts, limits, resumed runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cg4ai import Problem, Settings, StopReason, solve
from cg4ai.colgen.loop import patch
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, affine
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.records import IterationRecord
from cg4ai.rules import Box, Linear, Margin
from cg4ai.runs.folder import Run
from experiments.single.cases import SETTINGS, brute_force, random_case
from raising import raises


@pytest.mark.parametrize("seed", range(12))
def test_of_a_finite_class_it_is_the_best_there_is(seed: int) -> None:
    case = random_case(seed)
    best = brute_force(case).objective
    result = solve(case.problem, SETTINGS)
    assert result.single is not None
    if best is None:
        assert result.stop_reason is StopReason.INFEASIBLE
        assert not result.single.met
        return
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.feasible
    assert result.objective == pytest.approx(best, abs=1e-6)
    assert len(result.ensemble) == len(case.problem.layout)
    assert result.single.bound == pytest.approx(best, abs=1e-5)
    assert result.single.mixture <= best + 1e-6


def _constants(*values: float) -> Problem:
    """The constants nearest to 0 of which the outputs at two inputs are to be 1 and -1."""
    stack = ConstantMembers(np.array(values).reshape(-1, 2), 1)
    return Problem(
        Supervised(np.zeros((1, 1)), np.zeros((1, 2)), "squared", "average"),
        [Linear([[0.0]], [[1.0, 0.0]], 1.0), Linear([[0.0]], [[0.0, 1.0]], 1.0)],
        [FinitePricer([(stack, np.zeros(len(stack), np.int64))])],
        Layout.single(2),
    )


def test_rows_that_a_mixture_meets_and_no_single_member() -> None:
    problem = _constants(3.0, 0.0, 0.0, 3.0)
    assert solve(problem, Settings()).feasible
    result = solve(problem, Settings(single_model=True))
    assert result.stop_reason is StopReason.INFEASIBLE
    assert not result.feasible
    assert len(result.ensemble) == 1
    assert "proven: no single model" in str(result)
    assert result.single is not None
    assert result.single.missed == 1
    assert result.single.lacking == pytest.approx(1.0, abs=1e-6)


def test_a_longer_way_is_taken_where_only_it_meets_the_rows() -> None:
    result = solve(_constants(3.0, 0.0, 0.0, 3.0, 5.0, 5.0), Settings(single_model=True))
    assert result.stop_reason is StopReason.OPTIMAL
    np.testing.assert_allclose(result.ensemble.predict(np.zeros((1, 1))), [[5.0, 5.0]])
    assert result.objective == pytest.approx(50.0)


def test_of_a_patched_run_it_is_one_model_again() -> None:
    problem = _constants(3.0, 0.0, 2.0, 2.0, 5.0, 5.0)
    settings = Settings(single_model=True)
    (part,) = solve(problem, settings).ensemble.parts
    added = Linear([[0.0]], [[1.0, 1.0]], 8.0)
    whole = replace(problem, requirements=(*problem.requirements, added))
    result = patch(whole, [(part.members, part.blocks)], settings)
    assert result.feasible
    assert len(result.ensemble) == 1
    np.testing.assert_allclose(result.ensemble.predict(np.zeros((1, 1))), [[5.0, 5.0]])


def _lines(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-1, 1, count)[:, None]
    return x, 2 * x + 0.5


def test_a_mixture_of_affine_members_is_one_affine_member() -> None:
    x, y = _lines(20)
    cap = Linear(np.array([[1.0]]), [[1.0]], 2.0, "<=")
    problem = Problem(
        Supervised(x, y, "squared", "mixture"), [cap], [AffinePricer(1, 1)], Layout.single(1)
    )
    mixture = solve(problem, Settings(iteration_limit=400))
    result = solve(problem, Settings(single_model=True, iteration_limit=400))
    assert len(result.ensemble) == 1
    assert result.feasible
    assert result.single is not None
    assert result.single.proven
    assert result.loss <= mixture.loss + 1e-6
    assert result.bound is not None
    assert result.bound <= result.objective


def _network_problem(seed: int = 0) -> Problem:
    made = np.random.default_rng(seed)
    x = made.normal(size=(60, 2))
    y = (x.sum(1) + 0.3 * made.normal(size=60) > 0).astype(np.int64)
    pricer = GradientPricer(
        NetworkArchitecture(2, 2, hidden=(6,)), restarts=3, group=4, training=Training(60)
    )
    rule = Margin(x[:25], y[:25], 0.05, classes=2)
    objective = Supervised(x, y, "cross_entropy", "mixture")
    return Problem(objective, [rule], [pricer], Layout.single(2))


def test_trained_members_meet_the_rows_alone() -> None:
    result = solve(_network_problem(), Settings(single_model=True, iteration_limit=12))
    assert len(result.ensemble) == 1
    assert result.feasible
    assert result.single is not None
    assert result.single.met
    assert not result.single.proven
    assert "an estimate" in str(result.single)
    assert result.bound is None


class _Killed(Exception):
    """Ends a run from outside."""


def test_a_resumed_run_ends_with_the_same_model(tmp_path: Path) -> None:
    settings = Settings(single_model=True, iteration_limit=4)

    def kill(record: IterationRecord) -> None:
        if record.iteration == 6:  # four for the mixture, then the turn of one model
            raise _Killed

    whole = solve(_network_problem(), settings, run=Run.create(tmp_path / "whole", "solve", {}))
    with Run.create(tmp_path / "cut", "solve", {}) as cut, pytest.raises(_Killed):
        solve(_network_problem(), settings, run=cut, progress=kill)
    resumed = solve(_network_problem(), settings, run=Run.open(tmp_path / "cut"))
    x = np.random.default_rng(3).normal(size=(5, 2))
    assert whole.single == resumed.single
    np.testing.assert_array_equal(whole.ensemble.predict(x), resumed.ensemble.predict(x))


def test_rules_over_regions_hold_for_the_one_model() -> None:
    """The cheapest member breaks the rule at a corner that no listed input shows."""
    slopes = np.array([[[2.0]], [[0.5]], [[1.0]]])
    stack = affine(slopes, np.zeros((3, 1)))
    x, _ = _lines(5)
    problem = Problem(
        Supervised(x / 2, 2 * x / 2, "squared", "average"),
        [Linear(Box([-1.0], [1.0]), [[1.0]], 1.5, "<=")],
        [FinitePricer([(stack, np.zeros(3, np.int64))])],
        Layout.single(1),
    )
    result = solve(problem, Settings(single_model=True, guarantee="attacked"))
    assert result.feasible
    np.testing.assert_allclose(result.ensemble.predict(np.ones((1, 1))), [[1.0]])


def test_losses_that_are_no_sum_over_blocks_are_refused() -> None:
    stack = ConstantMembers(np.array([[0.0], [1.0]]), 1)
    problem = Problem(
        Supervised(np.zeros((1, 1)), np.zeros(1, np.int64), "cross_entropy", "mixture"),
        [],
        [FinitePricer([(stack, np.array([0, 1]))])],
        Layout((np.array([0]), np.array([1]))),
    )
    with raises(InvalidInput, "unsupported"):
        solve(problem, Settings(single_model=True))
