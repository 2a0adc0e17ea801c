"""Quadratic programs of very many rows end where Clarabel ends, and masters use them alike."""

from dataclasses import replace

import numpy as np
import pytest
from convex_cases import squared_to

from cg4ai.colgen.master.convex import ConvexMaster, dense, sequential
from cg4ai.colgen.master.convex.dense import DenseQuadratic
from cg4ai.colgen.master.convex.program import DistanceToUniform, Program
from cg4ai.errors import SolverFailure
from cg4ai.solvers.conic import QuadraticProgram
from raising import raises

SOLVE = DenseQuadratic.solve


def case(*, seed=0, size=20, rows=60, blocks=1, penalty=10.0, shift=0.2, groups=None):
    """A program with its hessian and slope; `shift` > 0 makes rows easier to meet."""
    made = np.random.default_rng(seed)
    factor = made.normal(size=(size, size)) / size
    numbers = np.arange(size) % blocks
    program = Program(
        objective=DistanceToUniform(numbers),
        coefficients=3 * made.normal(size=(rows, size)) + shift,
        bounds=made.uniform(-0.1, 0.1, rows),
        groups=np.arange(rows) if groups is None else groups,
        blocks=numbers,
        n_blocks=blocks,
        row_tolerance=np.full(rows, 1e-9),
        penalty=penalty,
        dummy_price=1000 * penalty,
    )
    return program, factor @ factor.T, made.normal(size=size)


CASES = [
    {},
    {"seed": 1, "blocks": 3},
    {"seed": 2, "penalty": 0.01},
    {"seed": 3, "penalty": 1e4},
    {"seed": 4, "shift": 3.0},
    {"seed": 5, "size": 60, "rows": 400},
    {"seed": 6, "shift": -500.0},  # the dummy is cheaper than any member
    {"seed": 7, "rows": 1, "size": 1},
]


@pytest.mark.parametrize("changes", CASES)
def test_agrees_with_clarabel(changes):
    program, hessian, linear = case(**changes)
    rows = np.arange(len(program.bounds))
    found = DenseQuadratic.build(program, rows, hessian=hessian, linear=linear).solve()
    answer = found.answer(penalty=program.penalty, dummy_price=program.dummy_price)
    quadratic = QuadraticProgram.build(program, rows, hessian=hessian, linear=linear)
    expected = quadratic.solve()

    def cost(x):
        return x @ (quadratic.P @ x) / 2 + quadratic.q @ x

    assert cost(answer.x) == pytest.approx(cost(expected.x), rel=1e-7, abs=1e-7)
    fitting = quadratic.b - quadratic.A @ answer.x
    np.testing.assert_allclose(answer.s, fitting, atol=1e-8 * (1 + np.abs(fitting).max()))
    stationary = quadratic.P @ answer.x + quadratic.q + quadratic.A.T @ answer.z
    np.testing.assert_allclose(stationary, 0.0, atol=1e-7 * (1 + np.abs(answer.z).max()))
    inequalities = slice(quadratic.n_equal, None)
    assert np.all(answer.z[inequalities] >= 0)
    assert np.all(answer.x >= 0)
    np.testing.assert_allclose(answer.x, expected.x, atol=1e-5 * (1 + np.abs(expected.x).max()))


def test_only_many_rows_with_slacks_of_their_own_suit():
    program, _, _ = case(rows=1100)
    every = np.arange(1100)
    assert DenseQuadratic.suits(program, every)
    assert not DenseQuadratic.suits(program, every[:20])  # as few as members: Clarabel is quick
    shared, _, _ = case(rows=1100, groups=np.zeros(1100, np.int64))
    assert not DenseQuadratic.suits(shared, every)
    small, _, _ = case(rows=1000)
    assert not DenseQuadratic.suits(small, np.arange(1000))
    hard, _, _ = case(rows=1100, penalty=1.0)
    object.__setattr__(hard, "penalty", None)
    assert not DenseQuadratic.suits(hard, every)


def master(rows=300):
    made = np.random.default_rng(8)
    outputs = made.normal(size=(30, 1, 2))
    found = ConvexMaster(1, squared_to([0.3, -0.2]))
    found.add_columns(outputs, np.zeros(30, np.int64), np.empty((0, 30)))
    coefficients = made.normal(size=(rows, 30)) + 0.1
    found.add_rows(coefficients, np.full(rows, 0.05), np.full(rows, -1))
    return found


def test_a_master_of_many_rows_has_the_same_optimum(monkeypatch):
    by_clarabel = master()
    expected = by_clarabel.solve()
    for module in (dense, sequential):
        monkeypatch.setattr(module, "LARGE", 100)
    sizes = []
    monkeypatch.setattr(
        DenseQuadratic,
        "solve",
        lambda self: sizes.append(len(self.bounds)) or SOLVE(self),  # type: ignore[func-returns-value]
    )
    many = master()
    found = many.solve()
    assert max(sizes) > 100
    assert found.slack.max() > 0.01  # many rows are not met
    assert found.penalised == pytest.approx(expected.penalised, rel=1e-8)
    assert many.gap <= 1e-6 * expected.penalised
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)


def test_hard_rows_enter_few_at_a_time():
    program, _, _ = case(rows=1100, shift=-3.0)
    none, slack = np.zeros(1100, np.bool_), np.zeros(1100)
    uniform = np.full(20, 0.05)
    soft = sequential._with_violated(program, uniform, active=none, slack=slack)
    assert soft.sum() == 1000
    hard = sequential._with_violated(
        replace(program, penalty=None), uniform, active=none, slack=slack
    )
    assert hard.sum() == 50


def test_numbers_that_are_none_are_a_failure():
    program, hessian, linear = case()
    broken = DenseQuadratic.build(program, np.arange(60), hessian=hessian * np.nan, linear=linear)
    with raises(SolverFailure, "solver-status", "iterate"):
        broken.solve()
