"""The normal form against the requirements' own violations."""

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.proofs import AffineCoefficients, find_affine_rules
from cg4ai.routing import Utilisation, instance
from cg4ai.routing.train.utilisation import PathCost
from cg4ai.rules import Concave, Linear, Margin, Probability
from cg4ai.rules.regions import Ball, Box
from raising import raises

BOX = Box([-1.0, 0.0], [1.0, 2.0])
MATRIX = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 1.0]])


def agrees(requirement, outputs_size, points):
    """value - limit is the requirement's own violation."""
    rules = find_affine_rules(requirement, output_size=outputs_size)
    outputs = np.random.default_rng(0).normal(size=(len(points), outputs_size))
    expected = requirement.violations(torch.as_tensor(points), torch.as_tensor(outputs)).numpy()
    got = rules.values(points, outputs) - rules.limit
    if got.shape != expected.shape:  # a margin asked of the worst class only
        got = got.max(1, keepdims=True)
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("sense", ["<=", ">=", "=="])
def test_linear_rules_have_the_sign_of_their_sense(sense):
    points = np.random.default_rng(1).uniform(-1, 1, (5, 2))
    agrees(Linear(BOX, MATRIX, [0.3, 0.7], sense=sense), 3, points)


@pytest.mark.parametrize("form", ["member", "pairwise"])
def test_margins_and_probabilities(form):
    points = np.random.default_rng(1).uniform(-1, 1, (5, 2))
    agrees(Margin(BOX, 1, 0.2, form=form), 4, points)
    agrees(Probability(Ball([0.0, 0.0], 1.0), 2, 0.6), 3, points)


@pytest.mark.parametrize("functional", [Utilisation, PathCost])
def test_routing_offers_its_coefficients_as_affine_functions(functional):
    network = instance("abilene", 5, 3)
    rules = functional(network)
    box = Box(np.zeros(5), network.demand_max)
    limit = np.ones(rules.count)
    agrees(
        Linear(box, rules, limit, sense="<="), len(network.path_demand), network.sample(4, seed=2)
    )


class Doubled:
    """One rule with coefficient 1 + x_0 that can claim to be something else."""

    count = 1

    def __init__(self, slope):
        self.slope = slope

    def values(self, inputs, outputs):
        return ((1 + inputs[..., :1]) * outputs).sum(-1, keepdim=True)

    def coefficients(self, inputs, which):
        return np.repeat(1 + inputs[:, :1], 2, axis=1)

    def affine(self):
        zero = np.zeros(2, np.int64)
        return AffineCoefficients(np.ones((1, 2)), zero, np.arange(2), zero, np.full(2, self.slope))


def test_an_affine_form_that_disagrees_is_refused():
    agrees(Linear(BOX, Doubled(1.0), 1.0), 2, np.array([[0.5, 1.0]]))
    with raises(InvalidInput, "conflict", "disagrees"):
        find_affine_rules(Linear(BOX, Doubled(1.1), 1.0), output_size=2)


def test_what_cannot_be_certified_is_said():
    class Unknown(Doubled):
        affine = None

    with raises(InvalidInput, "unsupported"):
        find_affine_rules(Linear(BOX, Unknown(1.0), 1.0), output_size=2)
    with raises(InvalidInput, "unsupported"):
        find_affine_rules(Linear([[0.0, 0.0]], [1.0, 1.0], 0.0), output_size=2)
    with raises(InvalidInput, "unsupported", "Linear"):
        find_affine_rules(Concave(BOX, lambda outputs: outputs.amin(-1), 0.5), output_size=2)
