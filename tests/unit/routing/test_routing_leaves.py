"""Trees as routers: safe at every vector, better with more leaves, and answered for by a proof."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidSettings
from cg4ai.members.trees import TreeMembers
from cg4ai.routing.app import APPLICATION, RoutingPreparation
from cg4ai.routing.network.instance import Instance, instance
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.optimal import best_split, make_safe_rows_at, utilisation_per_share
from cg4ai.routing.train.rare_demands import LeastMlu
from cg4ai.routing.train.trees import TreeGrower
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_evaluation")


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance("abilene", 4, 3)


@pytest.fixture(scope="module")
def least(made: Instance) -> LeastMlu:
    return LeastMlu(made, made.sample(500, 1))


def mean_gap(made: Instance, least: LeastMlu, tree: TreeMembers) -> float:
    vectors = made.sample(3000, 7)
    splits = tree.outputs(torch.as_tensor(vectors))[0].numpy()
    reached = made.compute_utilisation(vectors, splits).max(axis=1)
    return float((reached - least(torch.as_tensor(vectors)).numpy()).mean())


def test_a_leaf_s_split_is_that_of_the_whole_program(made: Instance) -> None:
    """Least mean of the largest of `beside + share * utilisation`, all rows stated at once."""
    generator = np.random.default_rng(3)
    vectors, corner = made.sample(12, 5) * 0.5, made.demand_max * 0.5
    arcs, paths, count = len(made.arcs), len(made.path_demand), len(vectors)
    beside, share, limit = generator.uniform(0, 0.5, (count, arcs)), 0.4, 0.7
    safe = make_safe_rows_at(made, corner)
    split = best_split(made, vectors, safe=safe, limit=limit, share=share, beside=beside)
    reached = (beside + share * made.compute_utilisation(vectors, split)).max(axis=1).mean()
    loads = utilisation_per_share(made)
    rows, bounds = [np.hstack([0.5 * loads.T, np.zeros((arcs, count))])], [np.full(arcs, limit)]
    for number, vector in enumerate(vectors / made.demand_max):
        level = np.zeros((arcs, count))
        level[:, number] = -1.0
        rows.append(np.hstack([share * (vector[made.path_demand][:, None] * loads).T, level]))
        bounds.append(-beside[number])
    sums = np.zeros((len(made.demand_max), paths + count))
    sums[made.path_demand, np.arange(paths)] = 1.0
    best = linprog(
        np.concatenate([np.zeros(paths), np.full(count, 1 / count)]),
        np.vstack(rows),
        np.concatenate(bounds),
        sums,
        np.ones(len(sums)),
    )
    assert reached == pytest.approx(best.fun, abs=1e-6)
    assert made.compute_utilisation(corner, split).max() <= limit + 1e-9


def test_more_leaves_lose_less_and_none_overloads_a_link(made: Instance, least: LeastMlu) -> None:
    nursery = TreeGrower(made, least)
    trees = [nursery.grow(count, seed=0, until=math.inf) for count in (1, 8, 32)]
    gaps = [mean_gap(made, least, tree) for tree in trees]
    assert gaps[0] > 1.5 * gaps[1] > 1.5 * gaps[2]
    tree = trees[-1]
    cuts = tree.threshold[tree.left != torch.arange(tree.left.shape[2])]
    assert len(cuts) == 31
    grid = [
        np.unique([0.0, one, *tree.threshold[tree.feature == demand].tolist()])
        for demand, one in enumerate(made.demand_max.tolist())
    ]
    corners = np.array(list(itertools.product(*grid)))
    splits = tree.outputs(torch.as_tensor(corners))[0].numpy()
    assert made.compute_utilisation(corners, splits).max() <= 1.0
    totals = np.add.reduceat(splits, [block[0] for block in made.blocks], axis=1)
    np.testing.assert_allclose(totals, 1.0, atol=1e-12)


@pytest.mark.parametrize("members", ["tree", "both"])
def test_trained_routers_keep_what_was_asked(made: Instance, members: str) -> None:
    small = {"leaves": 4, "rounds": 2, "scenarios": 40, "priced": 200, "first_steps": 20}
    guarantee = "certified" if members == "tree" else "shielded"
    asked = RouteSettings(network="abilene", members=members, guarantee=guarantee, **small)  # type: ignore[arg-type]
    task = APPLICATION.problem(RoutingPreparation(asked, made))
    solved = task.solver(task.problem, task.settings, progress=None, run=None)
    result = solved.result
    vectors = np.concatenate([made.sample(500, 3), made.demand_max[None]])
    assert made.compute_utilisation(vectors, result.ensemble.predict(vectors)).max() <= 1.0 + 1e-9
    if members == "tree":
        assert solved.proof is not None
        assert solved.proof.status == "proven"
        assert solved.proof.strength == "certified"


def test_shielded_trees_are_measured_like_networks(made: Instance) -> None:
    """Their shield was attacked along slopes, which trees have none of."""
    small = {"leaves": 2, "rounds": 1, "scenarios": 20, "priced": 100, "threads": 1}
    few = {"validation": 100}
    asked = RouteSettings(network="abilene", demands=3, members="tree", **small, **few)  # type: ignore[arg-type]
    outcome = perform(APPLICATION, asked)
    assert outcome.summary["strength"] == "shielded"
    assert outcome.summary["shield"]["worst"] <= 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"guarantee": "attacked"},
        {"objective": "cost"},
        {"baseline": True},
        {"members": "both", "guarantee": "certified"},
    ],
)
def test_what_trees_cannot_do_is_refused(settings: dict[str, object]) -> None:
    with raises(InvalidSettings, "invalid-settings"):
        RouteSettings(**{"network": "abilene", "members": "tree", **settings})  # type: ignore[arg-type]
