"""Inputs that follow a group in training, and the multipliers that its violations make."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cg4ai.colgen.pricing.gradient import losses
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.pricing.gradient.violations import FALL, PLACES, ViolationPool
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Mixture, Part
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from cg4ai.rules.rows import RowSet
from raising import raises

SQUARE = Box(np.zeros(2), np.ones(2))
RULES = Linear(SQUARE, np.eye(2), [1.0, 5.0], sense="<=", name="limits")
PEAK = torch.tensor([0.3, 0.7], dtype=torch.float64)


def hill(parameters, x):
    """The first output peaks inside the square at 1.2, the second is at most 2 at a corner."""
    first = 1.2 - 4.0 * ((x - PEAK) ** 2).sum(-1)
    return parameters["height"] * torch.stack([first, x.sum(-1)], -1)[None]


def pool():
    return ViolationPool(RULES, outputs=hill, output_size=2, rate=0.5, headroom=0.01, seed=4)


def refreshed(count, height=1.0, made=None):
    made = pool() if made is None else made
    for _ in range(count):
        made.refresh({"height": torch.tensor(height, dtype=torch.float64)})
    return made


def test_the_worst_input_of_every_rule_is_found_by_climbing():
    made = refreshed(12)
    worst = made.violations.reshape(2, PLACES).amax(1).numpy()
    np.testing.assert_allclose(worst, [0.2, -3.0], atol=1e-3)
    at = made.points[int(made.violations[:PLACES].argmax())]
    np.testing.assert_allclose(at, PEAK, atol=0.02)


def test_multipliers_rise_while_a_rule_is_broken_and_fall_once_it_is_kept():
    made = refreshed(5)
    raised = made.multipliers.copy()
    assert raised[0] > 0
    assert raised[1] == 0
    refreshed(3, height=0.5, made=made)
    assert made.multipliers[0] == pytest.approx(raised[0] * FALL**3)


def test_rows_are_those_of_broken_rules_with_the_weight_of_their_multiplier():
    made = refreshed(6)
    rows, weights = made.rows(7)
    assert rows.requirement == 7
    assert set(rows.origin[:, 1]) == {0}
    assert weights.sum() == pytest.approx(made.multipliers[0] * len(weights) / PLACES)
    assert pool().rows(7) is None


def test_the_same_seed_gives_the_same_pool():
    one, other = refreshed(4), refreshed(4)
    np.testing.assert_array_equal(one.points, other.points)
    np.testing.assert_array_equal(one.multipliers, other.multipliers)


ARCHITECTURE = NetworkArchitecture(2, 1, hidden=(8,), activation="tanh")
INPUTS = np.random.default_rng(0).random((200, 2))
LIMIT = Linear(SQUARE, np.ones((1, 1)), 1.2, sense="<=", name="limit")


def trained(**changes):
    """Learn the sum of the inputs, which is 2 in a corner where 1.2 is allowed."""
    pricer = GradientPricer(
        ARCHITECTURE,
        restarts=1,
        training=Training(400, 0.02, "onecycle"),
        batch_size=64,
        blend=1.0,
        headroom=0.005,
        finish=0.0,
    )
    pricer = replace(pricer, **changes)
    LIMIT.check(2, 1)
    rows = RowSet(Layout.single(1))
    request = PricingRequest(
        iteration=0,
        seed=1,
        duals=Duals(np.zeros(0), np.zeros(1)),
        guide=np.zeros(0),
        rows=rows,
        objective=Supervised(INPUTS, INPUTS.sum(1, keepdims=True), "squared", "mixture"),
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
        requirements=(LIMIT,),
    )
    members = pricer.price(request).members
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Mixture((part,), rows.layout, device="cpu")


def largest(mixture):
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 41)] * 2), -1).reshape(-1, 2)
    with torch.no_grad():
        return float(mixture.outputs(torch.as_tensor(grid)).max())


def test_training_with_a_pool_keeps_the_rule_nearly(monkeypatch):
    monkeypatch.setattr(losses, "MULTIPLIER_RATE", 0.5)
    free = largest(trained())
    kept = largest(trained(attack_every=200, refresh_every=10))
    assert free > 1.7
    assert kept < 1.23


@pytest.mark.parametrize("attack_every", [100, 0])
def test_refreshes_that_miss_attacks_are_refused(attack_every):
    with raises(InvalidInput, "conflict", attack_every):
        GradientPricer(
            ARCHITECTURE,
            training=Training(10, schedule="onecycle"),
            attack_every=attack_every,
            refresh_every=30,
        )
