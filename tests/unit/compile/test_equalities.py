"""Problems with equalities: every kind of member keeps them, with nothing in the master."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import cg4ai
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.estimators.estimators import ConstrainedRegressor
from cg4ai.layout import Layout
from cg4ai.members import CompletedMembers, ConstantMembers, NetworkArchitecture
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.rules import AffineBound, Box, Equality
from raising import raises

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (200, 2))
FREE = np.column_stack([np.sin(3 * X[:, 0]), X[:, 1] ** 2])
# three outputs that sum to the first input: what is learned is two-dimensional
Y = np.column_stack([FREE, X[:, 0] - FREE.sum(1)])
SUM = Equality(Box([-1.0, -1.0], [1.0, 1.0]), [1.0, 1.0, 1.0], AffineBound(0.0, [1.0, 0.0]))


@pytest.mark.parametrize("kind", ["network", "tree", "affine"])
def test_estimators_complete_every_kind_of_member(kind: str, tmp_path: Any) -> None:
    model = ConstrainedRegressor(members=kind, iteration_limit=2, random_state=0)
    model.fit(X, Y, requirements=[SUM])
    (audit,) = model.result_.audits
    assert audit.strength == "constructed"
    assert "holds (constructed) at every input" in str(audit)
    anywhere = RNG.uniform(-5, 5, (2000, 2))
    predicted = model.predict(anywhere)
    assert np.abs(predicted.sum(1) - anywhere[:, 0]).max() < 1e-12 * (1 + np.abs(predicted).max())
    assert model.result_.history[-1].rows == 0
    if kind != "affine":
        assert model.score(X, Y) > 0.5
    explained = model.ensemble_.predict(anywhere, explain=True)
    assert set(explained.by_requirement["Equality"]) == {"constructed"}
    model.ensemble_.save(tmp_path / "saved")
    again = cg4ai.load(tmp_path / "saved")
    assert np.array_equal(again.predict(anywhere, outside="ignore"), predicted)
    assert again.audit(SUM).strength == "constructed"


def ensemble_of(members: Any) -> Ensemble:
    count = len(members)
    part = Part(members, np.zeros(count, np.int64), np.full(count, 1 / count))
    return Ensemble((part,), Layout.single(members.output_size))


def test_members_that_do_not_keep_it_are_measured() -> None:
    constant = ConstantMembers([[0.5, 0.25, 0.25]], 2)
    found = ensemble_of(constant).audit(SUM)
    assert found.strength == "attacked"
    assert found.worst_violation == pytest.approx(2.0)  # 1 against the input -1
    listed = Equality(X[:5], [1.0, 1.0, 1.0], AffineBound(0.0, [1.0, 0.0]))
    assert ensemble_of(constant).audit(listed).strength == "audited"
    with raises(InvalidInput, "unsupported"):
        ensemble_of(constant).audit(SUM.extend_to_all_inputs())
    sum_to_one = Equality(None, [1.0, 1.0, 1.0], 1.0)
    assert ensemble_of(constant).audit(sum_to_one).strength == "constructed"
    other = CompletedMembers(constant, sum_to_one.completion(2).project())
    assert ensemble_of(other).audit(SUM).strength == "attacked"
    shift, scale = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    networks = NetworkArchitecture(2, 3, hidden=(4,), shift=shift, scale=scale)
    inner = networks.members(networks.initialise(2, torch.Generator().manual_seed(0)))
    folded = CompletedMembers(inner, SUM.completion().project()).fold()
    assert ensemble_of(folded).audit(SUM).strength == "constructed"


def problem(layout: Layout, rule: Equality) -> Problem:
    pricer = GradientPricer(
        NetworkArchitecture(2, layout.output_size if len(layout) == 1 else 2),
        training=Training(steps=5),
    )
    return Problem(Supervised(X, Y, "squared", kind="mixture"), [rule], [pricer], layout)


def test_equalities_that_nothing_can_keep_are_refused_before_training() -> None:
    with raises(InvalidInput, "infeasible"):
        cg4ai.solve(problem(Layout((np.array([0, 1]), np.array([2]))), SUM.extend_to_all_inputs()))
    wrong = Equality(None, [1.0, 1.0, 1.0], AffineBound(0.0, [1.0]))
    with raises(InvalidInput, "shape"):
        problem(Layout.single(3), wrong)
