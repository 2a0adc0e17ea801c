"""Routing certified over the whole demand box: absent paths, captive demands, several blocks."""

from itertools import product

import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.routing import anchor, instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.routing.train.problem import capacity


def router(network, *, size, share):
    """Untrained routers blended with an anchor that keeps every capacity."""
    split = SplitNetwork(network, hidden=(8,))
    count = len(network.demand_max)
    parameters = split.initialise(2 * count, torch.Generator().manual_seed(1))
    parameters["weight_0"] *= size
    members = split.members(parameters)
    static = anchor(network, network.sample(50, 0))
    table = np.zeros((count, split.output_size))
    for demand, block in enumerate(network.blocks):
        table[demand, : len(block)] = static[block]
    blocks = np.arange(count)
    return Ensemble(
        (
            Part(members, np.tile(blocks, 2), np.full(2 * count, (1 - share) / 2)),
            Part(ConstantMembers(table, count), blocks, np.full(count, share)),
        ),
        Layout(network.blocks),
    )


@pytest.mark.parametrize("paths", [3, 5])
def test_a_router_is_proven_where_it_holds_and_refuted_where_not(paths):
    network = instance("abilene", 5, paths)
    requirement = capacity(network, Recipe())
    safe = router(network, size=0.3, share=1.0 - 1e-9)
    answer = certify(safe, requirement, time_limit_s=30)
    vectors = np.concatenate([network.sample(20_000, 1), network.demand_max[None]])
    worst = network.compute_utilisation(vectors, safe.predict(vectors)).max(0)
    for proof in answer.rules:
        assert worst[proof.rule] <= proof.bound
    # the anchor may use all capacity, so that only the rounding margin can be in the way
    assert answer.excess <= 1e-8
    wild = router(network, size=1.0, share=0.0)
    answer = certify(wild, requirement, time_limit_s=30)
    assert answer.status == "refuted"
    point = answer.counterexample
    value = network.compute_utilisation(point[None], wild.predict(point[None]))
    assert value[0, answer.counterexample_rule] == pytest.approx(
        answer.counterexample_value, abs=1e-12
    )
    assert value.max() > 1.0


def test_looser_capacities_are_proven_for_networks_alone():
    network = instance("abilene", 5, 3)
    requirement = capacity(network, Recipe())
    wild = router(network, size=0.5, share=0.0)
    corners = np.array(list(product([0.0, 1.0], repeat=5))) * network.demand_max
    vectors = np.concatenate([network.sample(50_000, 1), corners])
    worst = network.compute_utilisation(vectors, wild.predict(vectors)).max(0)
    object.__setattr__(requirement, "bound", worst * 1.05 + 0.01)
    answer = certify(wild, requirement, time_limit_s=30)
    assert answer.status == "proven", str(answer)
    assert all(worst[p.rule] <= p.bound <= p.limit for p in answer.rules)
