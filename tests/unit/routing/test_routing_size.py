"""Networks of thousands of demands: what is sparse is the same, what cannot be is refused early."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput
from cg4ai.guarantees import AffineMap, check_given
from cg4ai.members import FeedbackArchitecture, restore
from cg4ai.routing import instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import Recipe, RouteSettings
from cg4ai.routing.train import effort, size_limits
from cg4ai.routing.train.agents import AgentLoads
from cg4ai.routing.train.joint import joint_network
from cg4ai.routing.train.optimal import make_loads, utilisation_per_share
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import guard_of
from raising import raises
from small_network import NETWORK, TINY


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("size") / "net.json"
    path.write_text(json.dumps(NETWORK))
    return path


@pytest.fixture(scope="module")
def network(file: Path) -> Instance:
    return instance(file, "all", 3)


def test_sparse_loads_are_the_dense_ones(network: Instance) -> None:
    assert (make_loads(network).toarray() == utilisation_per_share(network)).all()


def test_blocks_are_the_paths_of_each_demand(network: Instance) -> None:
    for demand, block in enumerate(network.blocks):
        assert block.tolist() == np.flatnonzero(network.path_demand == demand).tolist()


def test_feedback_by_gains_begins_as_by_matrices(
    network: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before training a matrix of first answers is a gain times what each path adds to links."""
    usual = joint_network(network, hidden=(4,))
    monkeypatch.setattr(effort, "MOST_FEEDBACK", 0)
    small = joint_network(network, hidden=(4,))
    assert small.gains
    assert not usual.gains
    stacks = [
        one.members(one.initialise(2, torch.Generator().manual_seed(0))) for one in (usual, small)
    ]
    sizes = [sum(value.numel() for value in one.parameters.values()) for one in stacks]
    assert sizes[1] < sizes[0]
    inputs = torch.as_tensor(network.sample(5, seed=0))
    wanted, found = (one.outputs(inputs) for one in stacks)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert torch.equal(restore(stacks[1].state()).outputs(inputs), found)
    dense = stacks[1].with_tensors(stacks[1].tensors())  # as exports compute it
    torch.testing.assert_close(dense.outputs(inputs), found, rtol=1e-12, atol=1e-12)
    assert not stacks[0].compatible(stacks[1])


def test_feedback_by_gains_follows_its_formula(network: Instance) -> None:
    usual = joint_network(network, hidden=(4,), stages=1)
    assert usual.first is not None
    own = FeedbackArchitecture(usual.network, usual.loads, 1, gains=True)
    made = own.initialise(1, torch.Generator().manual_seed(1))
    made["gain_0"] = torch.linspace(-1, 1, own.output_size)[None]
    matrix = usual.loads.matrix
    whole = made["gain_0"][0].double().numpy()[:, None] * (matrix / matrix.max(0)).T
    other = {name: value for name, value in made.items() if name != "gain_0"}
    other["feedback_0"] = torch.as_tensor(whole)[None]
    inputs = torch.as_tensor(network.sample(5, seed=0))
    wanted = usual.members(other).outputs(inputs)
    torch.testing.assert_close(own.members(made).outputs(inputs), wanted, rtol=1e-12, atol=1e-12)


def test_steps_of_thousands_of_demands_are_bounded() -> None:
    for demands in (2500, 14_000, 40_000):
        assert effort.joint_steps(demands) == effort.MOST_STEPS
        assert effort.joint_batch(demands=demands) * demands <= effort.BATCH_DEMANDS
    assert effort.joint_batch(demands=10**6) == effort.LEAST_BATCH
    assert effort.joint_batch(demands=5000) == effort.joint_batch()
    assert [effort.count_restarts(paths) for paths in (15, 5000, 10_000, 10**6)] == [8, 8, 4, 1]


def test_pairs_of_agents_and_links_are_counted(network: Instance) -> None:
    for scope in ("own", "source"):
        counted = size_limits.count_agent_links(network, by_source=scope == "source")
        assert counted == AgentLoads(network, scope).count


@pytest.mark.parametrize(
    ("asked", "limit", "value"),
    [
        ({"agent_scope": "own"}, "MOST_AGENT_FIGURES", 10),
        ({"agent_scope": "source"}, "MOST_AGENT_FIGURES", 10),
        ({"guarantee": "certified"}, "MOST_OWN_NETWORKS", 1),
        ({"members": "tree"}, "MANY_PATHS", 3),
        ({"baseline": True}, "MANY_PATHS", 3),
        ({"objective": "split"}, "MANY_PATHS", 3),
    ],
)
def test_what_grows_too_fast_is_refused(
    network: Instance,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, object],
    limit: str,
    value: int,
) -> None:
    settings = RouteSettings(network="x", **asked)  # type: ignore[arg-type]
    size_limits.refuse_too_large(network, settings)
    monkeypatch.setattr(size_limits, limit, value)
    with raises(InvalidInput, "memory"):
        size_limits.refuse_too_large(network, settings)
    size_limits.refuse_too_large(network, RouteSettings(network="x"))


def test_large_studies_of_failures_are_refused(
    network: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_limits.refuse_large_study(network, 100)
    monkeypatch.setattr(size_limits, "MOST_FAILED_PATHS", 3 * len(network.path_demand))
    size_limits.refuse_large_study(network, 3)
    with raises(InvalidInput, "memory", "up to 3"):
        size_limits.refuse_large_study(network, 4)


def test_a_constant_split_is_checked_without_a_slope_for_each_demand(network: Instance) -> None:
    """D x P slopes of zero were multiplied by every rule: minutes, and gigabytes, for brain."""
    split = network.robust.split
    known = AffineMap.constant(split, len(network.demand_max))
    assert known.slopes.strides == (0, 0)
    assert known.is_constant
    assert (known.at(np.ones((2, len(network.demand_max)))) == split).all()
    dense = AffineMap(np.array(known.slopes), known.offsets)
    guard = guard_of(capacity(network, Recipe()), len(split))
    found = [check_given((guard,), one).room for one in (known, dense)]
    assert found[0] == found[1]


def test_a_router_too_large_for_a_certificate_says_so(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shielded all the same, with feedback by gains, and is read and shown again."""
    monkeypatch.setattr(effort, "MOST_FEEDBACK", 0)
    for module in ("app", "evaluate"):
        monkeypatch.setattr(f"cg4ai.routing.{module}.describe_unproven", lambda made: "none at all")
    out = tmp_path / "run"
    asked = ["route", str(file), "--out", str(out), "--threads", "1"]
    for name, value in (TINY | {"rounds": 1}).items():
        asked += ["--set", f"{name}={value}"]
    assert main(asked) == 0
    assert not (out / "certificate.cg4ai").exists()
    assert "none at all" in (out / "summary.json").read_text()
    demands = tmp_path / "d.csv"
    demands.write_text("a->d,b->d\n1,1\n")
    assert main(["predict", str(out), str(demands)]) == 0


def test_what_is_not_certified_is_said(network: Instance) -> None:
    assert size_limits.describe_unproven(network) is None
    many = 20_000
    large = replace(network, demand_max=np.ones(many), path_demand=np.arange(many))
    assert size_limits.describe_unproven(large) is not None
