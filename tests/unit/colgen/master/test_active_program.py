"""What HiGHS holds of a master: rows and columns leave and return, and every status is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from linear_programs import one_block, random_master

from cg4ai.colgen.master import OWN_SLACK, LinearMaster
from cg4ai.errors import SolverFailure
from cg4ai.solvers.highs import LinearProgram
from raising import raises


def test_idle_rows_leave_and_the_basis_stays():
    master = random_master(1, rows=2000, columns=40, row_age_limit=1, column_age_limit=1)
    first = master.solve()
    assert first.solver_iterations > 100
    assert first.active_rows < 2000
    counts = [master.solve() for _ in range(4)]
    assert counts[0].solver_iterations == 0
    assert counts[-1].active_rows < first.active_rows
    assert all(later.penalised == pytest.approx(first.penalised, rel=1e-10) for later in counts)
    # Deleting rows and columns kept the basis: still nothing to do.
    assert counts[-1].solver_iterations <= 2


def test_one_more_column_is_cheaper_from_the_old_basis_than_from_scratch():
    master = random_master(1, rows=2000, columns=40)
    first = master.solve()
    better = np.random.default_rng(2).normal(0.3, 1, (2000, 1))
    better += 0.1 * (first.duals.rows[:, None] > 0)
    master.add_columns(np.array([0.2]), np.array([0]), better)
    warm = master.solve()
    assert warm.weights[-1] > 0
    scratch = LinearMaster(1)
    costs = np.append(np.random.default_rng(1).random(40), 0.2)
    scratch.add_columns(costs, np.zeros(41, int), np.empty((0, 41)))
    scratch.add_rows(master.coefficients, np.zeros(2000), np.full(2000, OWN_SLACK))
    cold = scratch.solve()
    assert warm.penalised == pytest.approx(cold.penalised, rel=1e-8)
    assert warm.solver_iterations < 0.7 * cold.solver_iterations


def test_columns_set_aside_return_when_they_improve():
    master = LinearMaster(1, column_age_limit=0)
    master.add_columns(np.array([0.0, 1.0]), np.array([0, 0]), np.empty((0, 2)))
    for _ in range(3):
        solution = master.solve()
    assert solution.active_columns == 1
    master.add_rows(np.array([[-1.0, 0.0]]), np.array([0.0]), np.array([OWN_SLACK]))
    solution = master.solve()
    np.testing.assert_allclose(solution.weights, [0, 1], atol=1e-12)
    assert solution.active_columns == 2


def scripted(monkeypatch, statuses):
    """HiGHS runs for real, but these statuses are reported in turn."""
    waiting, attempt = iter(statuses), LinearProgram._attempt
    monkeypatch.setattr(
        LinearProgram,
        "_attempt",
        lambda self, method: replace(attempt(self, method), status=next(waiting)),
    )


@pytest.mark.parametrize(
    "status",
    [
        "kInfeasible",
        "kUnbounded",
        "kUnboundedOrInfeasible",
        "kIterationLimit",
        "kTimeLimit",
        "kSolveError",
        "kUnknown",
        "kInterrupt",
    ],
)
def test_every_other_status_is_a_failure_that_names_it(monkeypatch, status):
    master = one_block()
    master.solve()
    scripted(monkeypatch, [status] * 3)
    with raises(SolverFailure, "solver-status", status):
        master.solve()


def test_a_failed_warm_start_is_repeated_from_scratch_and_counted(monkeypatch):
    master = one_block()
    master.solve()
    scripted(monkeypatch, ["kSolveError", "kOptimal"])
    assert master.solve().objective == pytest.approx(2.0)
    assert master.cold_restarts == 1
    assert LinearMaster.restore(master.state()).cold_restarts == 1


def test_a_cold_failure_is_not_repeated(monkeypatch):
    master = one_block()
    scripted(monkeypatch, ["kSolveError"])
    with raises(SolverFailure, "solver-status", "kSolveError"):
        master.solve()
    assert master.cold_restarts == 0


def test_a_stuck_solve_is_repeated_from_scratch_then_by_an_interior_point(monkeypatch):
    master = one_block()
    master.solve()
    scripted(monkeypatch, ["kIterationLimit", "kIterationLimit", "kOptimal"])
    assert master.solve().objective == pytest.approx(2.0)
    assert master.cold_restarts == 2


def test_probabilities_do_not_send_a_restored_master_in_circles():
    """Entries from 1e-12 to 1, all members equally good: degenerate and badly scaled."""
    generator = np.random.default_rng(0)
    logits = generator.normal(5, 5, (60, 1)) + generator.normal(0, 10, (60, 60))
    table = 1.0 / (1.0 + np.exp(-logits))
    master = LinearMaster(1)
    master.add_rows(np.empty((60, 0)), np.full(60, 0.51), np.full(60, OWN_SLACK))
    master.solve()
    master = LinearMaster.restore(master.state())
    master.add_columns(np.zeros(60), np.zeros(60, int), table)
    master = LinearMaster.restore(master.state())
    solution = master.solve()
    assert solution.slack.max() <= 1e-9
    assert solution.solver_iterations < 1000
    assert master.cold_restarts == 0
