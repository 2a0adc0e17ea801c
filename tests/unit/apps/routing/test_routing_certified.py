"""Certified routers: cells that resist, weights that keep them, and a run that ends proven."""

import numpy as np
import pytest
import torch

from cg4ai.apps.routing import instance
from cg4ai.apps.routing.cells import MOST, CellMemory, RuleCells, cells_of
from cg4ai.apps.routing.certified import ProofRecipe, certified
from cg4ai.apps.routing.problem import Recipe, routing_problem
from cg4ai.apps.routing.proof_training import ProofTraining, train_against_bound
from cg4ai.apps.routing.proof_weights import weigh
from cg4ai.apps.routing.train import routing_settings
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Part
from cg4ai.proofs import CellBounds, certify
from cg4ai.proofs.records import Certification, OpenCells
from cg4ai.records import StopReason
from cg4ai.seeds import generator

RECIPE = Recipe(
    scenarios=30, priced=100, hidden=(6,), first_steps=150, later_steps=30, batch_size=64, starts=2
)
QUICK = ProofRecipe(
    rounds=6, cells=20_000, training=ProofTraining(steps=60, batch_size=64, cells=32, points=32)
)


@pytest.fixture(scope="module")
def abilene():
    return instance("abilene", 5, 3)


@pytest.fixture(scope="module")
def problem(abilene):
    return routing_problem(abilene, RECIPE)


def rough_group(problem, sharpness=4.0):
    """Untrained members, sharpened so that they overload links and resist proofs."""
    architecture = problem.pricers[0].architecture
    count = len(problem.layout)
    parameters = architecture.initialise(count, generator(3))
    parameters["weight_1"][:, :3] *= sharpness
    return architecture.members(parameters)


def alone(members, problem):
    count = len(problem.layout)
    return Ensemble((Part(members, np.arange(count), np.ones(count)),), problem.layout)


def upper_cells(requirement):
    """For every link the cells between 0.9 and 1, and 0.8 and 0.9, of all largest demands."""
    rules = np.arange(len(requirement.bound))
    top = np.tile(requirement.region.upper, (len(rules), 1))
    return RuleCells(
        np.concatenate([rules, rules]),
        np.concatenate([0.9 * top, 0.8 * top]),
        np.concatenate([top, 0.9 * top]),
    )


def test_a_certified_run_ends_with_a_proof_of_its_own_mixture(abilene, problem):
    outcome = certified(problem, routing_settings(abilene, RECIPE), recipe=QUICK)
    assert outcome.result.stop_reason is StopReason.PROVEN
    assert outcome.certification.status == "proven"
    # another proof of the same mixture, from scratch, agrees; and no input breaks the rule
    again = certify(outcome.result.ensemble, problem.requirements[0], time_limit_s=60)
    assert again.status == "proven"
    demands = np.concatenate([abilene.sample(2000, 1), abilene.demand_max[None]])
    loads = abilene.utilisation(demands, outcome.result.ensemble.predict(demands))
    assert loads.max() <= 1.0


def test_a_run_that_may_not_go_on_says_what_resists(abilene, problem):
    recipe = ProofRecipe(rounds=1, cells=5, training=QUICK.training)
    outcome = certified(problem, routing_settings(abilene, RECIPE), recipe=recipe)
    assert outcome.result.stop_reason is StopReason.ITERATION_LIMIT
    assert "not proven" in outcome.result.note
    assert len(outcome.certification.open_cells) > 0


def test_training_lowers_the_bound_on_the_cells_it_is_given(problem):
    members = rough_group(problem)
    requirement = problem.requirements[0]
    memory = CellMemory(requirement)
    memory.add(upper_cells(requirement), {})
    cells = memory.cells
    training = ProofTraining(
        steps=80, batch_size=32, cells=64, points=32, bound_weight=50.0, coarse=10.0
    )
    trained = train_against_bound(
        members, problem.pricers[0], problem, memory=memory, training=training, seed=1
    )

    def excess(group):
        bounds = CellBounds(alone(group, problem), requirement)
        with torch.no_grad():
            upper = bounds.upper(cells.rules, cells.lower, cells.upper).numpy()
        return np.maximum(upper - 1.0, 0.0).mean()

    assert excess(trained) < 0.5 * excess(members)


def test_the_master_gives_the_anchors_what_a_group_cannot_be_shown_to_keep(abilene, problem):
    members = rough_group(problem)
    requirement = problem.requirements[0]
    memory = CellMemory(requirement)
    memory.add(upper_cells(requirement), {})
    anchors = [stack for stack, _ in problem.start]
    settings = routing_settings(abilene, RECIPE)
    weighed = weigh(
        problem, settings, anchors=anchors, groups=[members], memory=memory, coarse=np.inf
    )
    assert weighed.slack < 1e-6
    bounds = CellBounds(weighed.ensemble, requirement)
    cells = memory.cells
    with torch.no_grad():
        upper = bounds.upper(cells.rules, cells.lower, cells.upper).numpy()
    assert upper.max() <= 1.0 + 1e-4
    free = weigh(
        problem,
        settings,
        anchors=anchors,
        groups=[members],
        memory=CellMemory(requirement),
        coarse=0.0,
    )
    assert free.objective <= weighed.objective + 1e-9


def test_cells_are_taken_evenly_from_the_rules_that_resist():
    rules = np.array([0] * 500 + [4] * 3)
    size = len(rules)
    cells = OpenCells(rules, np.zeros((size, 2)), np.ones((size, 2)), np.full(size, 1.5))
    cells.bounds[500] = np.inf  # nothing is known of this one
    answer = Certification("unknown", (), None, None, None, cells, 9, 0.1, "")
    taken = cells_of(answer, seed=3)
    assert np.bincount(taken.rules).tolist() == [200, 0, 0, 0, 2]


def test_memory_keeps_the_newest(abilene, problem):
    memory = CellMemory(problem.requirements[0])
    for number in range(4):
        rules = np.full(MOST // 3, number)
        ends = np.zeros((len(rules), 5))
        memory.add(RuleCells(rules, ends, ends), {})
    assert len(memory.cells) == MOST
    assert set(memory.cells.rules) == {1, 2, 3}
    memory.add(RuleCells(rules[:0], ends[:0], ends[:0]), {2: abilene.demand_max})
    assert memory.points is not None
    np.testing.assert_array_equal(memory.points.inputs, abilene.demand_max[None])
