"""Problems with shapes: members are built so, others are refused before anything is trained."""

from typing import Any

import numpy as np
import pytest
import torch

from cg4ai import ConstrainedRegressor, Problem, Settings, solve
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.shapes import shape_members
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.networks import NetworkArchitecture, affine
from cg4ai.members.signed_networks import SignedArchitecture
from cg4ai.objectives import Supervised
from cg4ai.rules import Monotone
from raising import raises

generator = np.random.default_rng(0)
X = generator.normal(size=(60, 2))
Y = (X[:, :1] - X[:, 1:]) + 0.1 * generator.normal(size=(60, 1))
RULE = Monotone({0: -1})


def problem(**kwargs: Any) -> Problem:
    network = NetworkArchitecture(2, 1, hidden=(5,), activation="tanh", skip=True)
    pricer = GradientPricer(network, training=Training(steps=30))
    given = {"requirements": [RULE], "pricers": [pricer], "layout": Layout.single(1), **kwargs}
    return Problem(Supervised(X, Y, "squared", "mixture"), **given)


def test_the_pricer_trains_signed_networks_and_the_rule_leaves_the_master() -> None:
    made = shape_members(CompiledProblem.from_problem(problem()))
    assert isinstance(made.pricers[0].architecture, SignedArchitecture)  # type: ignore[attr-defined]
    assert not made.requirements
    assert made.kept == (RULE,)
    assert made.asked == (RULE,)
    assert shape_members(made).pricers == made.pricers


def test_a_solved_problem_says_that_it_is_constructed() -> None:
    result = solve(problem(), Settings(iteration_limit=2))
    assert result.audits[0].strength == "constructed"
    x = torch.as_tensor(X)
    moved = x + torch.tensor([1.0, 0.0])
    assert bool((result.ensemble.outputs(moved) <= result.ensemble.outputs(x) + 1e-12).all())


@pytest.mark.parametrize(("slope", "fits"), [(-1.0, True), (0.0, True), (1.0, False)])
def test_start_members_must_keep_it(slope: float, fits: bool) -> None:
    members = affine(np.array([[[slope], [3.0]]]), [[0.0]])
    given = problem(start=[(members, np.zeros(1, np.int64))])
    if fits:
        shape_members(CompiledProblem.from_problem(given))
        return
    with raises(InvalidInput, "conflict"):
        shape_members(CompiledProblem.from_problem(given))


def test_modules_of_ones_own_are_refused() -> None:
    def module() -> torch.nn.Module:
        return torch.nn.Linear(2, 1)

    with raises(InvalidInput, "unsupported", "ModuleArchitecture"):
        ConstrainedRegressor(members=module).fit(X, Y[:, 0], [RULE])


def test_a_shield_cannot_be_demanded_beside_it() -> None:
    from cg4ai.rules import Ball, Linear

    cap = Linear(Ball([0, 0], 1.0), [1.0], 2.0, "<=", name="cap")
    with raises(InvalidInput, "anchor", "Monotone"):
        solve(problem(requirements=[RULE, cap]), Settings(guarantee="shielded"))
