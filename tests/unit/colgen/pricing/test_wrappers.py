"""New members by one recipe; under rules, those that are there are trained on by another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.pricing.schedules import ENOUGH, TwoStagePricer
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Mixture, Part
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Duals
from cg4ai.rules.rows import LinearRows, RowSet
from cg4ai.seeds import generator

ARCHITECTURE = NetworkArchitecture(2, 1, hidden=(3,))
FRESH = GradientPricer(ARCHITECTURE, restarts=1, training=Training(steps=1))
REFINED = replace(FRESH, restarts=2)
ROW = LinearRows(0, np.zeros((1, 2)), np.ones((1, 1)), np.array([2.0]), np.zeros(1, int))


def request(members: Members | None = None, *, ruled: bool = False) -> PricingRequest:
    rows = [ROW] if ruled else []
    mixture = None
    if members is not None:
        part = Part(members, np.zeros(1, np.int64), np.ones(1))
        mixture = Mixture((part,), Layout.single(1), device="cpu")
    return PricingRequest(
        iteration=0,
        seed=0,
        duals=Duals(np.ones(len(rows)), np.ones(1)),
        guide=np.ones(len(rows)),
        rows=RowSet(Layout.single(1), rows),
        objective=Supervised(np.zeros((1, 2)), np.zeros((1, 1))),
        loss_weight=1.0,
        ensemble=mixture,
        device="cpu",
    )


def of_the_kind() -> Members:
    return ARCHITECTURE.members(ARCHITECTURE.initialise(1, generator(0)))


@pytest.mark.parametrize(
    ("asked", "once", "proposed"),
    [
        (request(), False, 1),
        (request(ruled=True), False, 1),  # nothing to refine yet
        (request(of_the_kind()), False, 1),
        (request(of_the_kind(), ruled=True), False, 2),
        (request(of_the_kind(), ruled=True), True, 2),
        (request(ConstantMembers(np.zeros((1, 1)), 2)), True, 1),  # of another kind
    ],
)
def test_members_are_refined_once_there_are_rules_and_a_mixture(
    asked: PricingRequest, once: bool, proposed: int
) -> None:
    found = TwoStagePricer((FRESH, REFINED), once=once).price(asked)
    assert found.members is not None
    assert len(found.members) == proposed


def test_dear_members_are_not_trained_a_second_time_without_rules() -> None:
    found = TwoStagePricer((FRESH, REFINED), once=True).price(request(of_the_kind()))
    assert found.members is None
    assert found.note == ENOUGH
