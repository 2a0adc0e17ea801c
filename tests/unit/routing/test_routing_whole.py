"""Whole matrices: hundreds of demands are read, trained, guaranteed and measured with little."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch

from cg4ai.cli.main import main
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.errors import InvalidInput
from cg4ai.members import layers
from cg4ai.proofs.certificate import CERTIFICATE_FILE
from cg4ai.routing import Instance, Utilisation, instance
from cg4ai.routing.demands.sets import FreshDemands
from cg4ai.routing.network.sndlib import load_by_name
from cg4ai.routing.options import ALL, demands_of
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train import effort as sizes
from cg4ai.routing.train.joint import JointPricer, joint_network
from cg4ai.routing.train.problem import capacity, first_request, shielded_problem
from cg4ai.rules.guards import guard_of
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_evaluation")


@pytest.fixture(scope="module")
def geant() -> Instance:
    return instance("geant", "all", 3)


def test_all_demands_of_a_network_are_taken(geant: Instance) -> None:
    assert len(geant.demand_max) == len(load_by_name("geant").volumes) == 462
    assert not any("largest are routed" in note for note in geant.notes)


def test_the_option_takes_a_number_or_all() -> None:
    assert demands_of("all") == demands_of(" ALL ") == ALL
    assert demands_of("12") == 12
    for text in ("0", "-1", "some", "1.5", "9" * 30):
        with raises(InvalidInput, "range"):
            demands_of(text)


def test_up_to_75_paths_nothing_is_less_than_before() -> None:
    for budget, wanted in (
        (sizes.SOLVED, 10_000),
        (sizes.PRICED, 5000),
        (sizes.TIMED, 1000),
        (sizes.SCENARIOS, 300),
        (sizes.SCREENED, 50_000),
        (sizes.SHIELDED, 20_000),
    ):
        assert sizes.count_affordable(wanted, budget, 75) == wanted
        assert sizes.count_affordable(wanted, budget, 4446) < wanted
        assert sizes.count_affordable(50, budget, 20_000) == 50
        assert sizes.count_affordable(50, budget, 10**9) == 20  # each is a program of all paths
    assert [sizes.joint_rate(demands) for demands in (5, 15, 30)] == [0.02] * 3
    assert sizes.joint_rate(1482) == 0.01
    steps = [sizes.joint_steps(demands) for demands in (5, 15, 50, 132, 662, 1482)]
    assert steps == [4875, 8625, 4000, 1515, 500, 1037]


def test_on_a_gpu_few_demands_take_fewer_steps_of_larger_batches() -> None:
    assert not sizes.is_joint_wide(5, "cpu")
    assert not sizes.is_joint_wide(132, "cuda")
    assert sizes.is_joint_wide(15, "cuda:1")
    assert sizes.joint_steps(15, wide=True) == 8625 // 2
    assert sizes.joint_batch(wide=True) == 4 * sizes.joint_batch() == 1536
    assert sizes.joint_batch(mixed=False) == 256
    assert sizes.joint_rate(15, wide=True) > sizes.joint_rate(15)


def test_given_numbers_of_vectors_stay_as_they_are() -> None:
    asked = RouteSettings(network="geant")
    assert asked.fill_sample_sizes(1386).validation == 1443
    assert asked.fill_sample_sizes(45).validation == 10_000
    given = replace(asked, validation=7)
    assert given.fill_sample_sizes(10**6) == given


def test_utilisation_network_and_rule_agree_on_a_sparse_network(geant: Instance) -> None:
    """Three sparse products, beside the dense one of the instance."""
    made = np.random.default_rng(0)
    splits = made.uniform(size=(6, len(geant.path_demand)))
    vectors = geant.sample(6, 1)
    wanted = geant.compute_utilisation(vectors, splits)
    b, y = torch.as_tensor(vectors), torch.as_tensor(splits)
    np.testing.assert_allclose(Utilisation(geant).values(b, y).numpy(), wanted, rtol=1e-12)
    loads = joint_network(geant, hidden=(4,), stages=1).loads
    flows = (splits * vectors[:, loads.source]).T
    np.testing.assert_allclose(loads.of(torch.as_tensor(flows)).numpy().T, wanted, rtol=1e-12)
    rule = capacity(geant, Recipe())
    rule.check(len(geant.demand_max), len(geant.path_demand))
    rules = guard_of(rule, len(geant.path_demand)).rules
    np.testing.assert_allclose(rules.slack(b, y).numpy(), 1 - wanted, rtol=1e-9, atol=1e-12)
    given = rules.with_tensors(rules.tensors(torch.device("cpu")))
    np.testing.assert_allclose(given.slack(b, y).numpy(), 1 - wanted, rtol=1e-9, atol=1e-12)


def test_a_softmax_over_uneven_groups_is_that_of_each_group() -> None:
    groups = (3, 3, 2, 3, 1, 1, 2, 2)
    values = torch.randn(2, sum(groups), 5, dtype=torch.float64)
    parts = torch.split(values, list(groups), dim=1)
    wanted = torch.cat([part.softmax(1) for part in parts], dim=1)
    assert torch.equal(layers.apply_grouped_softmax(values, groups), wanted)


def test_memory_of_a_network_grows_with_demands_and_not_with_their_square(geant: Instance) -> None:
    shapes = joint_network(geant, hidden=(64, 64), stages=3).shapes()
    assert "skip" not in shapes
    paths, arcs = geant.incidence.shape
    total = sum(int(np.prod(shape)) for shape in shapes.values())
    assert total < 64 * (462 + 64 + paths) + paths + 3 * paths * arcs + 500
    assert "skip" in joint_network(instance("polska", "all"), hidden=(8,), stages=1).shapes()


def test_few_steps_of_a_whole_network_come_near_the_optimum(geant: Instance) -> None:
    """Thirty steps leave far less than the constant split that training starts from."""
    problem = shielded_problem(geant, Recipe(scenarios=100, priced=100, batch_size=64))
    (pricer,) = problem.pricers
    assert isinstance(pricer, JointPricer)
    pricer = replace(pricer, first=Training(30, 0.01, "onecycle"), hard=0.0)
    asked = first_request(problem, seed=0, device="cpu", attacked=False)
    trained = pricer.price(asked).members
    assert trained is not None
    vectors = geant.sample(50, 5)
    best = geant.find_optimal(vectors).mlu
    (anchor, _), *_ = problem.start
    found, start = (
        float(
            (
                geant.compute_utilisation(
                    vectors, members.outputs(torch.as_tensor(vectors))[0].numpy()
                ).max(axis=1)
                - best
            ).mean()
        )
        for members in (trained, anchor)
    )
    assert found < 0.5 * start
    corner = torch.as_tensor(geant.demand_max[None])
    assert (
        geant.compute_utilisation(corner.numpy(), trained.outputs(corner)[0].numpy()).max()
        <= 1 + 1e-9
    )


def test_fresh_demands_are_made_on_the_device_of_their_generator_once(
    geant: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, made = FreshDemands(geant.region), torch.Generator().manual_seed(0)
    first = fresh(4, made)
    moved = []
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **__: moved.append(self))
    assert fresh(4, made).shape == first.shape == (4, 462)
    assert not moved


def test_a_whole_network_runs_from_command_to_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every step of a run with all demands of a small network of uneven path counts."""
    graph = networkx.Graph(name="ring")
    nodes = [f"n{number}" for number in range(7)]
    for number, node in enumerate(nodes):
        graph.add_edge(node, nodes[(number + 1) % 7], capacity=10.0, length=1.0)
    graph.add_edge("n0", "n3", capacity=10.0, length=1.5)
    graph.graph["demands"] = {
        one: {other: 1.0 + (3 * i + 5 * j) % 4 for j, other in enumerate(nodes) if other != one}
        for i, one in enumerate(nodes)
    }
    source = tmp_path / "ring.json"
    source.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
    out = tmp_path / "run"
    few = {"first_steps": 60, "later_steps": 20, "batch_size": 64, "scenarios": 30, "priced": 100}
    few |= {"validation": 100}
    options = [part for one in few.items() for part in ("--set", "{}={}".format(*one))]
    code = main(["route", str(source), "--demands", "all", "--out", str(out), "--quiet", *options])
    assert code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["demands"] == 42
    assert summary["strength"] == "shielded"
    assert summary["validation"] == 100
    assert main(["check", str(out / CERTIFICATE_FILE)]) == 0
    capsys.readouterr()
