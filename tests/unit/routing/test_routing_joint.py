"""One shielded network for all demands: near the optimum, and safe whatever it learned."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace

import networkx
import numpy as np
import pytest
import torch

from cg4ai.colgen.loop import solve
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members import Part, ShieldedMembers
from cg4ai.records import StopReason
from cg4ai.routing import Instance, instance
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train import problem
from cg4ai.routing.train.joint import JointPricer, capacity_shield, joint_network
from cg4ai.routing.train.problem import (
    attacked_problem,
    capacity,
    first_request,
    routing_settings,
    shielded_problem,
)
from small_network import make_small_graph

TINY = Recipe(scenarios=30, priced=50, hidden=(8,), first_steps=150, later_steps=50, batch_size=64)


@pytest.fixture(scope="module")
def uneven() -> Instance:
    """Two demands: one has three paths, the other two."""
    return instance(make_small_graph(), 2, 3)


def test_on_a_gpu_there_are_as_many_networks_for_all_demands_as_on_the_processor(
    uneven: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There half the groups of networks for each demand take twice the steps; these did not."""
    usual = {joint: routing_settings(uneven, Recipe(), joint=joint) for joint in (True, False)}
    monkeypatch.setattr(problem, "is_on_gpu", lambda recipe: True)
    assert routing_settings(uneven, Recipe(), joint=True) == usual[True]
    assert routing_settings(uneven, Recipe()).iteration_limit == usual[False].iteration_limit / 2
    assert pricer_of(shielded_problem(uneven, TINY)).later.steps == TINY.later_steps


def test_shares_of_a_demand_sum_to_one_where_the_shield_acts() -> None:
    """Its two paths have no link in common, so no rule ties them together."""
    graph = networkx.DiGraph(name="apart", demands={"a": {"d": 4.0}})
    for source, target in ("ab", "bd", "ac", "cd"):
        graph.add_edge(source, target, capacity=3.0, length=1.0)
    made = instance(graph, 1, 2)
    shield = capacity_shield(made, capacity(made, TINY), made.sample(30, 1))
    vectors = torch.as_tensor(made.demand_max[None])
    kept = shield.repair_outputs(vectors, torch.tensor([[1.0, 0.0]], dtype=torch.float64)).numpy()
    assert made.compute_utilisation(vectors.numpy(), np.array([[1.0, 0.0]])).max() > 1.5
    assert made.compute_utilisation(vectors.numpy(), kept).max() <= 1.0
    assert kept.sum() == pytest.approx(1.0)


def pricer_of(stated: Problem) -> JointPricer:
    pricer = stated.pricers[0]
    assert isinstance(pricer, JointPricer)
    return pricer


def corners(made: Instance) -> np.ndarray:
    shares = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], float)
    return np.concatenate([shares * made.demand_max, made.sample(500, 3)])


def test_it_comes_near_the_optimum_and_every_vector_is_safe(uneven: Instance) -> None:
    problem = shielded_problem(uneven, TINY)
    result = solve(problem, routing_settings(uneven, TINY, joint=True))
    vectors = corners(uneven)
    explained = result.ensemble.predict(vectors, explain=True)
    assert (explained.labels == "shielded").all()
    loads = uneven.compute_utilisation(vectors, explained.outputs).max(axis=1)
    assert loads.max() <= 1 + 1e-9
    assert (loads - uneven.find_optimal(vectors).mlu).mean() < 0.02
    for block in uneven.blocks:
        np.testing.assert_allclose(explained.outputs[:, block].sum(axis=1), 1.0)


def test_untrained_networks_are_safe_as_well(uneven: Instance) -> None:
    architecture = pricer_of(shielded_problem(uneven, TINY)).architecture
    parameters = architecture.initialise(20, torch.Generator().manual_seed(0))
    wild = {name: 10 * value for name, value in parameters.items()}
    members = architecture.members(wild)
    assert isinstance(members, ShieldedMembers)
    vectors = corners(uneven)
    splits = members.outputs(torch.as_tensor(vectors)).numpy()
    bare = members.inner.outputs(torch.as_tensor(vectors)).numpy()
    assert max(uneven.compute_utilisation(vectors, one).max() for one in bare) > 1.1
    assert max(uneven.compute_utilisation(vectors, one).max() for one in splits) <= 1 + 1e-9


def test_loads_of_the_network_are_utilisations(uneven: Instance) -> None:
    """What the network answers to is what the instance says its splits cause."""
    loads = joint_network(uneven, hidden=(4,), stages=1).loads
    splits = np.random.default_rng(0).uniform(size=len(uneven.path_demand))
    vector = uneven.sample(1, 5)
    own = loads.matrix @ (splits * vector[0][loads.source])
    np.testing.assert_allclose(own, uneven.compute_utilisation(vector, splits[None])[0])


def test_a_time_limit_shortens_the_training_and_says_so(
    uneven: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = shielded_problem(uneven, replace(TINY, first_steps=100_000))
    asked = first_request(problem, seed=0, device="cpu", attacked=False)
    readings = itertools.count()  # a clock that goes on by 0.01 at every look
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings) / 100)
    found = problem.pricers[0].price(replace(asked, until=1.0))
    (steps,) = re.findall(r"(\d+) of 100000 steps", found.note)
    assert int(steps) <= 100


def test_later_networks_go_on_from_the_first(uneven: Instance) -> None:
    """Trained for one more step, a later network is nearly the first one."""
    recipe = replace(TINY, later_steps=1, rounds=1)
    problem = shielded_problem(uneven, recipe)
    result = solve(problem, routing_settings(uneven, recipe, joint=True))
    asked = first_request(problem, seed=7, device="cpu", attacked=False)
    again = problem.pricers[0].price(replace(asked, ensemble=result.ensemble)).members
    assert again is not None
    vectors = torch.as_tensor(uneven.sample(50, 1))
    moved = (again.outputs(vectors)[0] - result.ensemble.outputs(vectors)).abs()
    assert float(moved.mean()) < 0.05


def test_plain_is_the_same_network_without_its_shield(uneven: Instance) -> None:
    pricer = pricer_of(shielded_problem(uneven, TINY))
    plain = pricer.make_plain_pricer(3)
    assert plain.first.steps == 150 + 2 * 50
    members = plain.architecture.members(plain.architecture.initialise(1, torch.Generator()))
    assert not isinstance(members, ShieldedMembers)


def test_usual_settings_depend_on_the_kind_of_network() -> None:
    one = RouteSettings(network="abilene")
    assert one.fill_defaults(15, joint=one.joint).hidden == (64, 64)
    assert one.fill_defaults(15, joint=True).first_steps == 8625
    assert one.fill_defaults(15, joint=True).later_steps == 1437
    attacked = RouteSettings(network="abilene", guarantee="attacked")
    assert attacked.fill_defaults(15, joint=attacked.joint) == replace(
        one, guarantee="attacked"
    ).fill_defaults(15, joint=True)
    assert one.fill_defaults(50, joint=True).first_steps == 4000
    assert one.fill_defaults(662, joint=True).first_steps == 500
    each = RouteSettings(network="abilene", guarantee="certified")
    assert each.fill_defaults(15, joint=each.joint).hidden == (32,)
    assert each.fill_defaults(15, joint=each.joint).rounds == 12


def test_later_networks_minimise_the_loss_of_the_blend(uneven: Instance) -> None:
    """Beside a mixture that is wrong on one side, half a new network makes up for it."""
    stated = shielded_problem(uneven, replace(TINY, later_steps=300))
    pricer = replace(pricer_of(stated), hard=0.0)
    request = first_request(stated, seed=3, device="cpu", attacked=False)
    first = replace(pricer, first=replace(pricer.first, steps=3)).price(request).members
    assert first is not None
    poor = Ensemble((Part(first, np.zeros(1, np.int64), np.ones(1)),), stated.layout, device="cpu")
    request = replace(request, ensemble=poor)
    residual = pricer.price(request).members
    alone = replace(pricer, blend=1.0).price(request).members
    assert residual is not None
    assert alone is not None
    vectors = uneven.sample(400, 8)
    x = torch.as_tensor(vectors)

    def mean_mlu(splits: torch.Tensor) -> float:
        return float(uneven.compute_utilisation(vectors, splits.numpy()).max(1).mean())

    before = poor.outputs(x)
    halves = [(before + one.outputs(x)[0]) / 2 for one in (residual, alone)]
    assert mean_mlu(halves[0]) < mean_mlu(halves[1])
    assert mean_mlu(halves[0]) < mean_mlu(before)


def test_attacked_networks_are_members_of_one_block_with_rows(uneven: Instance) -> None:
    stated = attacked_problem(uneven, TINY)
    assert len(stated.layout) == 1
    result = solve(stated, routing_settings(uneven, TINY, joint=True))
    assert result.rule_rows is not None
    assert result.rule_rows > 0
    assert all(record.worst_violation is not None for record in result.history)
    assert not any(isinstance(part.members, ShieldedMembers) for part in result.ensemble.parts)
    vectors = corners(uneven)
    loads = uneven.compute_utilisation(vectors, result.ensemble.predict(vectors)).max(axis=1)
    assert loads.max() <= 1 + 1e-6
    assert (loads - uneven.find_optimal(vectors).mlu).mean() < 0.02


def test_rounds_end_when_a_network_hardly_improves_the_mixture(uneven: Instance) -> None:
    recipe = replace(TINY, rounds=50)
    settings = routing_settings(uneven, recipe, joint=True)
    result = solve(shielded_problem(uneven, recipe), settings)
    assert len(result.history) < 50
    if result.stop_reason is StopReason.STALLED:
        before, last = (record.objective for record in result.history[-2:])
        fell = before - last + result.history[-1].raised
        assert fell < settings.improvement_tolerance * last
