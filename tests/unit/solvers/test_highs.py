"""The wrapper of HiGHS against scipy and hand-solved programs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

from cg4ai.errors import SolverFailure
from cg4ai.solvers.highs import BASIC, INFEASIBLE, OPTIMAL, LinearProgram
from raising import raises


def rectangle() -> LinearProgram:
    """min -x - 2 y with x + y <= 3, y <= 2: (1, 2), worth -5; one more unit of each row: -1."""
    program = LinearProgram(1e-9)
    program.add_columns(np.array([-1.0, -2.0]), np.zeros(2), sparse.csc_matrix((0, 2)))
    rows = sparse.csr_matrix([[1.0, 1.0], [0.0, 1.0]])
    program.add_rows(np.full(2, -np.inf), np.array([3.0, 2.0]), rows)
    return program


def test_values_duals_and_reduced_costs_have_the_signs_they_claim():
    program = rectangle()
    assert program.run().status == OPTIMAL
    solution = program.solution()
    np.testing.assert_allclose(solution.values, [1, 2])
    np.testing.assert_allclose(solution.duals, [-1, -1])
    np.testing.assert_allclose(solution.reduced_costs, [0, 0], atol=1e-12)
    assert program.objective() == pytest.approx(-5)
    program.change_row_bounds(np.full(2, -np.inf), np.array([4.0, 2.0]))
    assert program.run().status == OPTIMAL
    assert program.objective() == pytest.approx(-6)


def test_programs_that_grow_and_shrink_agree_with_scipy():
    generator = np.random.default_rng(0)
    costs, matrix = generator.random(6), generator.random((4, 6))
    program = LinearProgram(1e-9)
    program.add_columns(costs[:5], np.zeros(5), sparse.csc_matrix((0, 5)))
    program.add_rows(np.ones(4), np.full(4, np.inf), sparse.csr_matrix(matrix[:, :5]))
    program.run()
    program.add_columns(costs[5:], np.zeros(1), sparse.csc_matrix(matrix[:, 5:]))
    program.run(primal=True)
    assert program.objective() == pytest.approx(linprog(costs, A_ub=-matrix, b_ub=-np.ones(4)).fun)
    program.delete(np.array([1]), np.array([0, 3]))
    program.change_costs(costs[[1, 2, 4, 5]] + 1)
    program.run(primal=True)
    left = np.delete(np.delete(matrix, 1, 0), [0, 3], 1)
    expected = linprog(costs[[1, 2, 4, 5]] + 1, A_ub=-left, b_ub=-np.ones(3)).fun
    assert program.objective() == pytest.approx(expected)


def test_a_basis_moves_to_another_program_and_saves_its_iterations():
    first, second = rectangle(), rectangle()
    assert len(first.basis()[0]) == 0
    assert first.run().iterations > 0
    columns, rows = first.basis()
    assert (columns == BASIC).all()
    second.set_basis(columns, rows)
    assert second.run().iterations == 0


def test_infeasible_is_an_answer_where_it_is_expected_and_repeated_elsewhere():
    program = rectangle()
    program.run()
    program.change_row_bounds(np.array([4.0, -np.inf]), np.array([5.0, -1.0]))
    assert program.run(answers=(OPTIMAL, INFEASIBLE)).status == INFEASIBLE
    assert program.cold_restarts == 0
    assert program.run().status == INFEASIBLE
    assert program.cold_restarts == 1
    program.change_row_bounds(np.full(2, -np.inf), np.array([3.0, 2.0]))
    assert program.run().status == OPTIMAL


def test_entries_too_small_for_the_solver_are_left_out():
    program = rectangle()
    program.add_rows(np.ones(1), np.full(1, np.inf), sparse.csr_matrix([[1.0, 1e-13]]))
    program.add_columns(np.ones(1), np.zeros(1), sparse.csc_matrix([[1e-13], [0.0], [-1e-300]]))
    assert program.run().status == OPTIMAL
    np.testing.assert_allclose(program.solution().values, [1, 2, 0])


def test_a_refused_call_is_a_failure_that_names_it():
    with raises(SolverFailure, "solver-status", "setBasis"):
        rectangle().set_basis(np.zeros(3, int), np.zeros(2, int))


def test_iterations_are_limited_by_size_and_a_stuck_run_still_ends_at_the_optimum(monkeypatch):
    generator = np.random.default_rng(0)
    costs, matrix = generator.random(40), generator.random((30, 40))
    expected = linprog(costs, A_ub=-matrix, b_ub=-np.ones(30)).fun

    def solved() -> LinearProgram:
        program = LinearProgram(1e-9)
        program.add_columns(costs, np.zeros(40), sparse.csc_matrix((0, 40)))
        program.add_rows(np.ones(30), np.full(30, np.inf), sparse.csr_matrix(matrix))
        assert program.run(primal=True).status == OPTIMAL
        assert program.objective() == pytest.approx(expected)
        return program

    assert solved().cold_restarts == 0
    monkeypatch.setattr("cg4ai.solvers.highs.MOST_ITERATIONS", 1)
    monkeypatch.setattr("cg4ai.solvers.highs.MOST_PER_LINE", 0)
    one, other = solved(), solved()
    assert one.cold_restarts == 2
    np.testing.assert_array_equal(one.solution().values, other.solution().values)
    assert len(one.basis()[0]) == 40  # crossover leaves a basis to go on from
    assert one.run().iterations == 0
