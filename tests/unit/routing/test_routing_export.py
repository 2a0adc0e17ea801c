"""Exported agents: files apart that give the router's splits, and routers that cannot be parted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cg4ai.cli.main import main
from cg4ai.colgen.loop import solve
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.routing import Instance, instance
from cg4ai.routing.network.description import Router, describe_instance
from cg4ai.routing.operate import policy
from cg4ai.routing.operate.export import policies_of
from cg4ai.routing.operate.policy_onnx import onnx_model
from cg4ai.routing.settings import AgentScope, Recipe
from cg4ai.routing.train.agents import agents_of
from cg4ai.routing.train.problem import routing_problem, routing_settings, shielded_problem
from raising import raises
from small_network import make_shared_graph

TINY = Recipe(
    scenarios=20,
    priced=30,
    hidden=(6,),
    first_steps=60,
    later_steps=30,
    batch_size=32,
)


@pytest.fixture(scope="module")
def network() -> Instance:
    """Three demands of two nodes, one of them with a name that is none for a file."""
    return instance(make_shared_graph("a/1"), 3, 3, load=0.99)


Routers = Callable[[AgentScope, bool], Ensemble]


@pytest.fixture(scope="module")
def routers(network: Instance) -> Routers:
    """What sees so much, shielded or not; each trained once."""

    @cache
    def router(scope: AgentScope, shielded: bool) -> Ensemble:
        recipe = replace(TINY, agent_scope=scope, rounds=2 if shielded else 1)
        stated = shielded_problem if shielded else routing_problem
        settings = routing_settings(network, recipe, joint=shielded, prune=0.0)
        return solve(stated(network, recipe), settings).ensemble

    return router


@pytest.mark.parametrize(
    ("scope", "shielded"), [("own", True), ("source", True), ("own", False), ("source", False)]
)
def test_policies_together_are_the_router(
    network: Instance, routers: Routers, scope: AgentScope, shielded: bool
) -> None:
    trained = routers(scope, shielded)
    above = network.demand_max * np.random.default_rng(1).uniform(0, 2, (500, 3))
    vectors = np.concatenate([network.sample(500, 3), network.demand_max[None], above])
    whole = trained.predict(vectors, outside="ignore")
    for one, node in zip(policies_of(network, trained), agents_of(network, "source"), strict=True):
        again = json.loads(json.dumps(one))  # as it is read from a file
        found = policy.shares(again, vectors[:, list(node.demands)])
        own = np.isin(network.path_demand, node.demands)
        assert np.abs(found - whole[:, own]).max() < 1e-12
        reads = {
            at for term in one["terms"] for part in term["parts"] for at in part.get("reads", [])
        }
        assert reads <= set(range(len(node.demands)))
        assert (one["shield"] is not None) == shielded


def test_the_shield_of_a_policy_acts_as_the_routers(network: Instance, routers: Routers) -> None:
    """At splits far outside the budgets, where networks that are trained do not go."""
    trained = routers("source", True)
    (one, *_), node = policies_of(network, trained), agents_of(network, "source")[0]
    members = trained.used[0].members
    assert isinstance(members, ShieldedMembers)
    shield = members.shield
    vectors = network.sample(200, 5)
    vectors[:20] = network.demand_max
    vectors[100:] *= np.random.default_rng(1).uniform(0, 3, (100, 3))  # many beyond the box
    wild = np.zeros((200, len(network.path_demand)))
    for block in network.blocks:
        wild[np.arange(200), block[np.random.default_rng(0).integers(len(block), size=200)]] = 1
    kept = shield.repair_outputs(torch.as_tensor(vectors), torch.as_tensor(wild)).numpy()
    own = np.isin(network.path_demand, node.demands)
    found = policy._kept(one, vectors[:, list(node.demands)], wild[:, own])
    assert np.abs(found - kept[:, own]).max() < 1e-12
    assert np.abs(found - wild[:, own]).max() > 0.1


@pytest.mark.parametrize("shielded", [True, False])
def test_a_file_that_was_read_gives_what_its_plain_data_gives(
    network: Instance, routers: Routers, tmp_path: Path, shielded: bool
) -> None:
    """Reading makes arrays, once; vectors are inside and beyond the box, where the shield acts."""
    vectors = network.sample(100, 5) * np.repeat([1.0, 3.0], 50)[:, None]
    policies = policies_of(network, routers("source", shielded))
    for one, node in zip(policies, agents_of(network, "source"), strict=True):
        file = tmp_path / "agent.json"
        file.write_text(json.dumps(one))
        read, own = policy.load(file), vectors[:, list(node.demands)]
        together = policy.shares(one, own)
        np.testing.assert_array_equal(policy.shares(read, own), together)
        alone = np.concatenate([policy.shares(read, row[None]) for row in own])
        np.testing.assert_allclose(alone, together, atol=1e-12)


def test_the_command_writes_files_that_run_alone(
    network: Instance, routers: Routers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = routers("source", True)
    trained = Ensemble(trained.parts, trained.layout, about=dict(trained.about))
    trained.about.update({"application": "routing", **describe_instance(network)})
    trained.save(tmp_path / "run")
    target = tmp_path / "agents"
    assert main(["export", str(tmp_path / "run"), "--agents", str(target)]) == 0
    assert "2 agents" in capsys.readouterr().out
    names = {path.name for path in target.iterdir() if path.suffix != ".onnx"}
    assert names == {"agent-a_1.json", "agent-b.json", "policy.py", "README.md"}
    node = agents_of(network, "source")[0]
    volumes = network.demand_max[list(node.demands)] / 2
    done = subprocess.run(
        [sys.executable, "-I", "policy.py", "agent-a_1.json", *map(str, volumes)],
        cwd=target,
        capture_output=True,
        text=True,
        check=True,
    )
    printed = [float(line.split()[0]) for line in done.stdout.splitlines()]
    whole = trained.predict(network.demand_max[None] / 2)[0]
    assert printed == pytest.approx(whole[np.isin(network.path_demand, node.demands)], abs=1e-6)

    assert main(["export", str(tmp_path / "run"), "--agents", str(target)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "run")]) == 2
    assert "--agents DIR" in capsys.readouterr().err


@pytest.mark.parametrize("shielded", [True, False])
def test_routers_that_see_all_are_refused_with_the_reason(
    network: Instance, routers: Routers, shielded: bool, tmp_path: Path
) -> None:
    trained = routers("all", shielded)
    why = "looks at whole loads" if shielded else "what splits"
    with raises(InvalidInput, "unsupported", why):
        Router(network).export_agents(trained, tmp_path / "agents")
    assert not (tmp_path / "agents").exists()


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="cg4ai agent"):
        policy.load(tmp_path / "other.json")


def test_onnx_models_are_the_policies(network: Instance, routers: Routers) -> None:
    """In a runtime, which has no error function of doubles: certified agents have GELU networks."""
    runtime = pytest.importorskip("onnxruntime")
    for shielded in (True, False):
        for one in policies_of(network, routers("source", shielded)):
            volumes = np.random.default_rng(0).uniform(0, 2, (50, len(one["demands"])))
            volumes = np.concatenate([volumes, np.ones((1, len(one["demands"])))]) * one["upper"]
            session = runtime.InferenceSession(onnx_model(one), providers=["CPUExecutionProvider"])
            (found,) = session.run(None, {"demands": volumes})
            assert np.abs(found - policy.shares(one, volumes)).max() < 1e-12
