"""Networks of splits, and the pricer that trains one per demand as a group."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals
from cg4ai.routing import Instance, instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.members import RoutingPricer, SplitNetwork
from cg4ai.routing.train.problem import routing_problem
from cg4ai.rules.rows import RowSet
from cg4ai.seeds import generator
from small_network import make_small_graph


@pytest.fixture(scope="module")
def uneven() -> Instance:
    """Two demands: one has three paths, the other two."""
    made = instance(make_small_graph(), 2, 3)
    assert sorted(len(block) for block in made.blocks) == [2, 3]
    return made


def test_splits_sum_to_one_and_missing_paths_get_nothing(uneven: Instance) -> None:
    network = SplitNetwork(uneven, hidden=(4,))
    members = network.members(network.initialise(4, generator(0)))
    outputs = members.outputs(torch.as_tensor(uneven.sample(6, 0))).numpy()
    for number in range(4):
        size = len(uneven.blocks[number % 2])
        np.testing.assert_allclose(outputs[number, :, :size].sum(-1), 1.0)
        assert np.all(outputs[number, :, size:] == 0.0)


def _request(problem: object, iteration: int = 0) -> PricingRequest:
    layout = problem.layout  # type: ignore[attr-defined]
    return PricingRequest(
        iteration=iteration,
        seed=3,
        duals=Duals(np.zeros(0), np.zeros(len(layout))),
        guide=np.zeros(0),
        rows=RowSet(layout),
        objective=problem.objective,  # type: ignore[attr-defined]
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
    )


def test_training_comes_near_the_optimum(uneven: Instance) -> None:
    recipe = Recipe(scenarios=50, priced=50, hidden=(8,), first_steps=400, batch_size=128)
    problem = routing_problem(uneven, recipe)
    proposed = problem.pricers[0].price(_request(problem))
    assert proposed.members is not None
    assert proposed.blocks.tolist() == [0, 1]
    assert len(set(proposed.groups.tolist())) == 1
    vectors = uneven.sample(300, 9)
    outputs = proposed.members.outputs(torch.as_tensor(vectors)).numpy()
    splits = np.concatenate([outputs[d, :, : len(b)] for d, b in enumerate(uneven.blocks)], axis=1)
    predicted = uneven.compute_utilisation(vectors, splits).max(axis=1)
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in uneven.blocks])
    naive = uneven.compute_utilisation(vectors, even).max(axis=1)
    best = uneven.find_optimal(vectors).mlu
    assert (predicted - best).mean() < 0.3 * (naive - best).mean()


def test_plain_trains_as_long_without_attacks(uneven: Instance) -> None:
    pricer = RoutingPricer(SplitNetwork(uneven), Training(100), Training(10))
    plain = pricer.make_plain_pricer(4)
    assert plain.first.steps == 130
    assert (plain.attack_every, plain.hard) == (0, 0.0)
    assert pricer.make_plain_pricer(0).first.steps == 100
