"""Compiling: what is made of a problem, once, and what the user stated stays as it was."""

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from cg4ai import Problem, Settings, solve
from cg4ai.colgen import loop
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.transformations import compile_problem
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.rules import Box, Equality, Linear, Monotone
from cg4ai.rules.rows import Rows

X = np.random.default_rng(0).uniform(-1, 1, (30, 2))
Y = np.column_stack([X[:, 0], 1 - X[:, 0]])
CAP = Linear(Box([-1, -1], [1, 1]), [1.0, 0.0], 0.5, "<=", name="cap")
LISTED = Linear(X[:2], [0.0, 1.0], 0.3, ">=", name="listed")
TOTAL = Equality(None, [1.0, 1.0], 1.0, name="total")
SETTINGS = Settings(iteration_limit=1)


def stated(*rules: object, **further: object) -> Problem:
    pricer = GradientPricer(NetworkArchitecture(2, 2, hidden=(4,)))
    objective = Supervised(X, Y, "squared", "mixture")
    return Problem(objective, rules, [pricer], Layout.single(2), **further)  # type: ignore[arg-type]


def start_rows(requirement: int) -> Rows:
    return LISTED.rows(requirement)


def test_each_rule_is_kept_by_the_members_or_left_to_the_master() -> None:
    problem = stated(CAP, LISTED, TOTAL)
    made = compile_problem(problem, SETTINGS)
    assert [one.name for one in made.kept] == ["cap"]
    assert [one.name for one in made.requirements] == ["listed", "total"]
    assert [one.name for one in made.asked] == ["cap", "listed", "total"]
    # audits are about the very rules that the loop has
    left = [one for one in made.asked if not any(one is other for other in made.kept)]
    assert all(one is other for one, other in zip(left, made.requirements, strict=True))
    assert made.shield is not None
    assert made.unshielded is not None
    assert made.notes


def test_what_the_user_stated_is_not_touched() -> None:
    problem = stated(CAP, LISTED, TOTAL, start_rows=[start_rows(1)])
    before = {one.name: getattr(problem, one.name) for one in fields(problem)}
    made = compile_problem(problem, SETTINGS)
    assert made.stated is problem
    assert all(getattr(problem, name) is value for name, value in before.items())
    assert [rows.requirement for rows in made.start_rows] == [0], "the place among what is left"


def test_rows_known_of_rules_that_members_keep_are_dropped() -> None:
    cut = CAP.rows_at(X[:1], np.zeros(1, np.int64), 0)
    made = compile_problem(stated(CAP, LISTED, start_rows=[cut, start_rows(1)]), SETTINGS)
    assert [rows.requirement for rows in made.start_rows] == [0]


def test_without_rules_to_build_in_nothing_is_changed() -> None:
    problem = stated(LISTED)
    assert compile_problem(problem, SETTINGS) == CompiledProblem.from_problem(problem)


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        compile_problem(stated(LISTED), SETTINGS).notes = ("more",)  # type: ignore[misc]


def test_what_no_member_can_keep_is_refused() -> None:
    rule = Monotone({0: 1}, output=0)
    with pytest.raises(InvalidInput):
        compile_problem(stated(rule, TOTAL), SETTINGS)
    blocks = replace(stated(), layout=Layout((np.array([0]), np.array([1]))))
    with pytest.raises(InvalidInput):
        compile_problem(replace(blocks, requirements=[rule]), SETTINGS)


def test_solving_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(problem: Problem, settings: Settings) -> CompiledProblem:
        made.append(problem)
        return compile_problem(problem, settings)

    monkeypatch.setattr(loop, "compile_problem", counting)
    problem = stated(CAP)
    solve(problem, SETTINGS)
    assert made == [problem]
