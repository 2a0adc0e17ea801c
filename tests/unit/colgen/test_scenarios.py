"""Scenarios of an epigraph objective: rows the master lacks, and tails counted in on the way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai.colgen.loop import solve
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.colgen.result import MemberPruner
from cg4ai.colgen.scenarios import Scenarios
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.problem import Problem
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.objectives import Epigraph
from cg4ai.settings import Settings

X = np.array([[1.0], [2.0], [4.0]])
MEMBERS = np.array([[1.0, 0.2], [0.1, 1.0], [0.7, 0.6]])


class Scaled:
    """Two pieces: the input times each of the two outputs."""

    count = 2

    def values(self, inputs, outputs):
        return inputs * outputs

    def coefficients(self, inputs, which):
        return inputs * np.eye(2)[which]


class OneTail:
    """Always the input 3, whose largest piece should stay below `level`."""

    def __init__(self, level, weight):
        self.level, self.weight, self.calls = level, weight, 0

    def find(self, predict, *, seed):
        self.calls += 1
        value = (3.0 * predict(torch.tensor([[3.0]], dtype=torch.float64))).max()
        if float(value) <= self.level or self.calls > 1:
            return np.empty((0, 1)), np.empty(0)
        return np.array([[3.0]]), np.array([self.level])

    def find_hardest(self, predict, *, seed, screened, kept):
        return np.array([[3.0]])


def problem(tail):
    members = ConstantMembers(MEMBERS, 1)
    return Problem(
        objective=Epigraph(X, Scaled(), tail=tail),
        requirements=(),
        pricers=(FinitePricer([(members, np.zeros(3, np.int64))]),),
        layout=Layout.single(2),
        start=((members, np.zeros(3, np.int64)),),
    )


def by_linprog(level, weight):
    """min mean t_s + weight * e over weights w: t_s >= x_s (w.member)_k, e >= 3 (.)_k - level."""
    cost = np.concatenate([np.zeros(3), np.full(3, 1 / 3), [weight]])
    rows, bounds = [], []
    for s, x in enumerate([1.0, 2.0, 4.0, 3.0]):
        for k in range(2):
            row = np.concatenate([x * MEMBERS[:, k], np.zeros(4)])
            row[3 + s] = -1.0
            rows.append(row)
            bounds.append(level if s == 3 else 0.0)
    sums = np.array([[1.0] * 3 + [0.0] * 4])
    answer = linprog(cost, A_ub=rows, b_ub=bounds, A_eq=sums, b_eq=[1.0])
    return answer.fun


def test_only_rows_that_the_master_lacks_are_given_once():
    scenarios = Scenarios(Epigraph(X, Scaled()), "cpu")
    assert scenarios.find_missing_rows(np.ones(1), 1.0) is None  # no column yet
    scenarios.add_columns(torch.as_tensor(MEMBERS[:, None, :]).expand(3, 3, 2))
    rows = scenarios.find_missing_rows(np.array([1.0, 0.0, 0.0]), 1.0)
    np.testing.assert_array_equal(rows.origin, [[0, 0], [1, 0], [2, 0]])
    assert scenarios.find_missing_rows(np.array([1.0, 0.0, 0.0]), 1.0) is None
    other = scenarios.find_missing_rows(np.array([0.0, 1.0, 0.0]), 1.0)
    np.testing.assert_array_equal(other.origin[:, 1], [1, 1, 1])


def test_a_tail_is_part_of_the_objective_from_then_on():
    tail = OneTail(level=1.0, weight=0.5)
    result = solve(problem(tail), Settings(seed=1))
    assert tail.calls >= 1
    assert result.objective == pytest.approx(by_linprog(1.0, 0.5), abs=1e-7)


def test_a_level_that_is_kept_costs_nothing():
    result = solve(problem(OneTail(level=9.0, weight=0.5)), Settings(seed=1))
    assert result.objective == pytest.approx(by_linprog(9.0, 0.5), abs=1e-7)


def test_a_tail_with_a_floor_has_the_same_meaning():
    objective = Epigraph(X, Scaled(), floor=-5.0, tail=OneTail(1.0, 0.5))
    scenarios = Scenarios(objective, "cpu")
    scenarios.extend(np.array([[3.0]]), np.array([1.0]), None)
    rows = scenarios.rows(np.array([0, 3]), np.array([0, 1]))
    # t = floor + excess: the row asks t - piece >= floor - level
    np.testing.assert_allclose(rows.bounds, [0.0, -6.0])
    np.testing.assert_allclose(scenarios.costs, [1 / 3, 1 / 3, 1 / 3, 0.5])


class OneOrOther:
    """Output 0 where the input is below zero, else output 1."""

    count = 1

    def values(self, inputs, outputs):
        return torch.where(inputs < 0, outputs[..., :1], outputs[..., 1:])

    def coefficients(self, inputs, which):
        return np.where(inputs < 0, [[1.0, 0.0]], [[0.0, 1.0]])


@pytest.mark.parametrize(("grouped", "kept"), [(False, [1.0, 0.0]), (True, [0.85, 0.15])])
def test_what_fewer_members_cost_is_bounded_in_every_group(grouped, kept):
    """A mean over many inputs hides what a few of another kind lose."""
    inputs = np.concatenate([np.full(99, -1.0), [1.0]])[:, None]
    members = ConstantMembers(np.array([[1.0, 1.0], [1.0, 0.2]]), 1)
    blocks = np.zeros(2, np.int64)
    groups = (inputs[:, 0] > 0).astype(np.int64) if grouped else None
    stated = Problem(
        objective=Epigraph(inputs, OneOrOther(), groups=groups),
        requirements=(),
        pricers=(FinitePricer([(members, blocks)]),),
        layout=Layout.single(2),
        start=((members, blocks),),
    )
    work = Workspace(
        CompiledProblem.from_problem(stated), Settings(prune=0.05, final_weights="vertex")
    )
    work.start()
    mixed = replace(
        work.solve_master(), weights=np.array([0.85, 0.15]), objective=0.9988, penalised=0.9988
    )
    alone = replace(mixed, weights=np.array([1.0, 0.0]), objective=1.0, penalised=1.0)
    pruner = MemberPruner(
        work, 0.05, solve=lambda: alone if len(pruner.barred) else mixed, unmet=lambda _: False
    )
    np.testing.assert_array_equal(pruner.prune(mixed).weights, kept)
    if grouped:
        np.testing.assert_allclose(work.scenarios.group_means(mixed.weights), [1.0, 0.88])
