"""One shielded network for all demands: near the optimum, and safe whatever it learned."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import networkx
import numpy as np
import pytest
import torch

from cg4ai.colgen.loop import solve
from cg4ai.colgen.pricing.gradient.cuda_graphs import NotRecorded
from cg4ai.compile.problem import Problem
from cg4ai.members import ShieldedMembers
from cg4ai.routing import Instance, instance
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train import joint, problem
from cg4ai.routing.train.joint import (
    JointPricer,
    _LaidOutLesson,
    _Lesson,
    capacity_shield,
    joint_network,
)
from cg4ai.routing.train.problem import (
    capacity,
    first_request,
    routing_settings,
    shielded_problem,
)
from cg4ai.seeds import generator

TINY = Recipe(scenarios=30, priced=50, hidden=(8,), first_steps=150, later_steps=50, batch_size=64)


@pytest.fixture(scope="module")
def uneven() -> Instance:
    """Two demands: one has three paths, the other two."""
    graph = networkx.DiGraph(name="small", demands={"a": {"d": 4.0}, "b": {"d": 2.0}})
    for source, target in ("ab", "ac", "ad", "bd", "cd", "bc"):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    return instance(graph, 2, 3)


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
    assert one.fill_defaults(15, joint=True).first_steps == 2875
    assert one.fill_defaults(50, joint=True).first_steps == 4000
    assert one.fill_defaults(662, joint=True).first_steps == 500
    each = RouteSettings(network="abilene", guarantee="certified")
    assert each.fill_defaults(15, joint=each.joint).hidden == (32,)
    assert each.fill_defaults(15, joint=each.joint).rounds == 12


def test_batches_laid_out_for_recorded_steps_are_those_of_single_ones(uneven: Instance) -> None:
    stated = shielded_problem(uneven, Recipe(first_steps=10, hidden=(4,), priced=50))
    pricer = pricer_of(stated)
    request = first_request(stated, seed=3, device="cpu", attacked=False)
    lesson = _Lesson(pricer, request, generator(3), steps=10)
    data = _LaidOutLesson(lesson)
    data.lay_out(7)
    kept = data.inputs.data_ptr()
    first = data.inputs[:7].reshape(-1, 2).double().numpy()
    assert (first >= 0).all()
    assert (first <= uneven.demand_max * (1 + 1e-6)).all()
    assert not data.inputs[7:].any()
    lesson.pool = torch.full((5, data.inputs.shape[-1]), 0.25)
    data.lay_out(7)
    assert data.inputs.data_ptr() == kept  # a recorded step reads from there
    hard = (data.inputs[:7] == 0.25).all(-1).sum(1)
    assert (hard == lesson.hard).all()
    assert lesson.hard == round(0.2 * pricer.batch_size)
    parameters = pricer.architecture.initialise(1, generator(0))
    splits = pricer.architecture.forward(parameters, data.inputs[2])[0].double()
    expected = uneven.compute_utilisation(data.inputs[2].double().numpy(), splits.detach().numpy())
    found = data.loss(parameters, torch.tensor([2]))
    assert found.shape == (1,)
    assert float(found) == pytest.approx(expected.max(1).mean(), rel=1e-5)


def test_steps_that_cannot_be_recorded_are_launched_and_the_result_says_so(
    uneven: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise NotRecorded("operation not permitted when stream is capturing")

    stated = shielded_problem(uneven, replace(TINY, first_steps=20))
    request = first_request(stated, seed=3, device="cpu", attacked=False)
    usual = pricer_of(stated).price(request)
    monkeypatch.setattr(joint, "train_captured", refuse)
    monkeypatch.setattr(torch, "device", lambda name: SimpleNamespace(type="cuda"))
    found = pricer_of(stated).price(request)
    assert usual.note == ""
    assert "recording them failed: operation not permitted" in found.note
    assert found.members is not None
