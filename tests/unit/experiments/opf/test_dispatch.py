"""Flows beside a solution for angles, worst cases beside all vertices, and a study end to end."""

from itertools import product

import numpy as np
import pytest
from five_buses import FIVE
from scipy.optimize import linprog

from experiments.command import command
from experiments.opf.__main__ import work
from experiments.opf.dispatch import Dispatch, measure_violation
from experiments.opf.grid import build_grid
from experiments.opf.matpower import read_case
from experiments.opf.optimum import find_optima, search_overload
from experiments.opf.participation import (
    ParticipationRule,
    compute_worst_flows,
    find_participation,
)


@pytest.fixture
def five_text():
    return FIVE


@pytest.fixture
def five(tmp_path):
    path = tmp_path / "five.m"
    path.write_text(FIVE)
    return path


@pytest.fixture
def problem(five):
    return Dispatch(build_grid(read_case(five)), 0.1)


def flows_by_angles(dispatch, loads):
    """The oracle, written out for the five buses: B theta = injections, a dense solve."""
    lines = [  # from, to, x, tap, shift in degrees
        (0, 1, 0.06, 1, 0), (0, 3, 0.05, 1.05, 0), (0, 4, 0.04, 1, 2), (1, 2, 0.03, 1, 0),
        (2, 3, 0.08, 1, 0), (3, 4, 0.07, 0.97, 0),
    ]  # fmt: skip
    injected = np.zeros(5)
    np.add.at(injected, [0, 2, 4, 4], dispatch)
    np.subtract.at(injected, [1, 2, 3, 4], loads)
    injected[2] -= 10  # the shunt
    matrix, shifts = np.zeros((5, 5)), np.zeros(5)
    for start, end, x, tap, shift in lines:
        b = 100 / (x * tap)
        matrix[[start, end, start, end], [start, end, end, start]] += [b, b, -b, -b]
        shifts[[start, end]] += np.array([-1, 1]) * b * np.deg2rad(shift)
    angle = np.append(np.linalg.solve(matrix[:-1, :-1], (injected - shifts)[:-1]), 0.0)
    flow = [
        100 / (x * tap) * (angle[start] - angle[end] - np.deg2rad(shift))
        for start, end, x, tap, shift in lines
    ]
    return np.delete(flow, 3)  # the line without a limit


def test_flows_are_those_of_the_angles(problem):
    rng = np.random.default_rng(0)
    for _ in range(5):
        loads = problem.grid.loads * rng.uniform(0.5, 1.5, 4)
        dispatch = rng.uniform(0, 100, 4)
        dispatch[1] += loads.sum() + 10 - dispatch.sum()  # balanced
        found = problem.grid.flows(dispatch[None], loads[None])[0]
        assert np.allclose(found, flows_by_angles(dispatch, loads), atol=1e-9)


def test_flows_are_bounded_as_a_linear_program_has_it(problem):
    grid, radius = problem.grid, problem.radius
    ends = list(zip(grid.lower, grid.upper, strict=True))
    ends += list(zip(grid.loads - radius, grid.loads + radius, strict=True))
    balance = np.append(np.ones(4), -np.ones(4))[None]
    for line in range(len(grid.rate)):
        slope = np.append(grid.by_generator[line], -grid.by_load[line])
        for sign, bound in ((1, problem.extremes.largest), (-1, problem.extremes.least)):
            best = linprog(-sign * slope, A_eq=balance, b_eq=grid.fixed, bounds=ends)
            assert bound[line] == pytest.approx(-sign * best.fun + grid.constant[line], abs=1e-6)


def vertices(problem):
    signs = np.array(list(product([-1.0, 1.0], repeat=len(problem.radius))))
    return problem.loads(signs)


def test_worst_flows_are_those_of_a_vertex(problem):
    rng = np.random.default_rng(1)
    rule = ParticipationRule(rng.uniform(0, 100, 4), rng.dirichlet(np.ones(4)))
    loads = vertices(problem)
    flows = problem.grid.flows(rule.dispatch(problem, loads), loads)
    # a flow's worst size takes the middle's size and the largest change, whatever its sign
    assert np.allclose(compute_worst_flows(problem, rule), np.abs(flows).max(0), atol=1e-9)


def test_the_classical_rule_keeps_all_vertices_at_least_cost(problem):
    rule, loads = find_participation(problem), vertices(problem)
    assert rule is not None
    found = measure_violation(problem.grid, rule.dispatch(problem, loads), loads)
    assert max(found.line_mw, found.generator_mw, found.balance_mw) < 1e-6
    # the oracle: one program with rows for every vertex
    grid, moved = problem.grid, (loads - problem.grid.loads).sum(1)
    rows, limits = [], []
    for total, own in zip(moved, loads, strict=True):
        for matrix, low, high in (
            (np.eye(4), grid.lower, grid.upper),
            (
                grid.by_generator,
                grid.by_load @ own - grid.constant - grid.rate,
                grid.by_load @ own - grid.constant + grid.rate,
            ),
        ):
            both = np.hstack([matrix, total * matrix])
            rows += [both, -both]
            limits += [high, -low]
    equal = np.kron(np.eye(2), np.ones(4))
    best = linprog(
        np.append(grid.costs[:, 1], np.zeros(4)),
        np.concatenate(rows),
        np.concatenate(limits),
        equal,
        [grid.loads.sum() + grid.fixed[0], 1.0],
        bounds=(None, None),
    )
    assert grid.costs[:, 1] @ rule.base == pytest.approx(best.fun, rel=1e-6)


def test_rules_say_what_the_grid_says(problem):
    rng = np.random.default_rng(2)
    x, u = rng.uniform(-1, 1, (50, 4)), rng.uniform(-0.5, 1.5, (50, 3))
    problem.limits.check(4, 3)
    slack = problem.limits.normal_form.limit + x @ problem.limits.normal_form.tilt.T
    slack = slack - u @ problem.limits.normal_form.constant.T
    dispatch, loads = problem.dispatch(u), problem.loads(x)
    kept = problem.kept
    flows = problem.grid.flows(dispatch, loads)[:, kept] / problem.grid.rate[kept]
    expected = np.concatenate([1 - u, u, 1 - flows, 1 + flows], axis=1)
    assert np.allclose(slack, expected, atol=1e-9)
    missed = problem.balance.compute_violation(x, u)
    short = dispatch.sum(1) - loads.sum(1) - problem.grid.fixed[0]
    assert np.allclose(missed * problem.span.max(), np.abs(short), atol=1e-9)


@pytest.mark.parametrize("squared", [0.0, 0.05])
def test_optima_are_those_of_another_solver(five, five_text, squared):
    five.write_text(five_text.replace("3 0 10 5;", f"3 {squared} 10 5;"))
    problem = Dispatch(build_grid(read_case(five)), 0.1)
    grid, loads = problem.grid, vertices(problem)[:6]
    found = find_optima(problem, loads)
    assert found.feasible.all()
    violation = measure_violation(grid, found.dispatch, loads)
    assert max(violation.line_mw, violation.generator_mw, violation.balance_mw) < 1e-6
    for own, cost in zip(loads, found.costs, strict=True):
        level = grid.by_load @ own - grid.constant
        best = np.inf
        for first in np.linspace(20, 250, 2301) if squared else [None]:
            ends = list(zip(grid.lower, grid.upper, strict=True))
            if first is not None:
                ends[0] = (first, first)
            answer = linprog(
                grid.costs[:, 1],
                np.vstack([grid.by_generator, -grid.by_generator]),
                np.append(grid.rate + level, grid.rate - level),
                np.ones((1, 4)),
                [own.sum() + grid.fixed[0]],
                bounds=ends,
            )
            if answer.status == 0:
                best = min(best, answer.fun + squared * (first or 0.0) ** 2)
        assert cost == pytest.approx(best, rel=1e-4 if squared else 1e-7)
        if squared:
            break


def test_loads_that_no_dispatch_serves_are_found(five, five_text):
    tight = five_text.replace("1 4 0 0.05 0 130", "1 4 0 0.05 0  60")
    five.write_text(tight.replace("3 4 0 0.08 0 100", "3 4 0 0.08 0  35"))
    problem = Dispatch(build_grid(read_case(five)), 0.5)
    worst = search_overload(problem, starts=4, seed=0)
    optima = find_optima(problem, vertices(problem))
    assert not optima.feasible.all()
    assert worst.share > 0
    assert not find_optima(problem, worst.loads[None]).feasible[0]


def test_a_study_ends_in_a_proven_predictor_near_the_optimum(five, capsys):
    arguments = ["--steps", "300", "--tests", "50", "--looked-at", "1000", "--quiet"]
    assert command(work, "opf", "five.m", [str(five), *arguments]) == 0
    out, _told = capsys.readouterr()
    assert "accepted" in out
    assert "guaranteed" in out
    line = next(row for row in out.splitlines() if row.startswith("| 0 "))
    names = [cell.strip() for cell in out.splitlines()[0].split("|")]
    cells = dict(zip(names, (cell.strip() for cell in line.split("|")), strict=True))
    assert float(cells["mean %"]) < 0.2
    assert float(cells["line MW"]) == float(cells["generator MW"]) == 0
    assert float(cells["balance MW"]) < 1e-9


def test_what_cannot_be_served_is_said(five, capsys):
    arguments = ["--spread", "1.5", "--tests", "5", "--quiet", "--steps", "1"]
    assert command(work, "opf", "five.m", [str(five), *arguments]) == 3
    assert "impossible" in capsys.readouterr().out


def test_bad_files_are_one_line(tmp_path, capsys):
    assert command(work, "opf", "five.m", [str(tmp_path / "none.m")]) not in (0, 3)
    assert capsys.readouterr().err.count("\n") == 1
