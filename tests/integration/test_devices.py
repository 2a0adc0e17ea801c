"""Every application trains, evaluates and saves with members on another device than the CPU."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor

import cg4ai
from cg4ai import settings
from cg4ai.cli.main import main
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, from_sklearn
from cg4ai.members.mixture import Mixture, Part
from elsewhere import DEVICE, NAME, Elsewhere, is_elsewhere
from experiments.digits.__main__ import main as digits_main


@pytest.fixture(autouse=True)
def _any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings ask torch for its devices, and torch does not know this one.

    Training is short: where tensors are is the question, not what is learnt.
    """
    monkeypatch.setattr(settings, "device_fault", lambda device: "")
    monkeypatch.setattr(
        Training,
        "__post_init__",
        lambda self: object.__setattr__(self, "steps", min(self.steps, 20)),
    )


def run_elsewhere(
    out: Path, *arguments: str, program: Callable[[list[str]], int] = main, **sizes: int
) -> None:
    """Train by a command and check that members were elsewhere and that all was evaluated."""
    small = [word for name, size in sizes.items() for word in ("--set", f"{name}={size}")]
    with Elsewhere() as mode:
        code = program([*arguments, *small, "--out", str(out), "--device", NAME, "--quiet"])
    assert code in (0, 3)  # 3: trained too little to keep the rule, which is not the question
    assert mode.moved > 100
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["cut"] == []
    assert cg4ai.load(out).device.type == "cpu"


def test_what_a_gpu_refuses_is_refused() -> None:
    with Elsewhere():
        there = torch.ones(3, device=NAME)
        assert there.device == DEVICE
        assert (there + 1).device == DEVICE
        assert there.cpu().device.type == "cpu"
        assert not is_elsewhere(there.cpu())
        with pytest.raises(RuntimeError, match="tensors on xpu:0 and on cpu"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="move it with"):
            there.numpy()


def test_a_mixture_lives_where_its_members_do() -> None:
    """The plain average of members trained on a GPU was said to be on the CPU."""
    with Elsewhere():
        members = ConstantMembers(np.ones((1, 2)), input_size=3).to(NAME)
        part = Part(members, np.zeros(1, np.int64), np.ones(1))
        mixture = Mixture((part,), Layout.single(2))
        assert mixture.device == DEVICE
        outputs = mixture.outputs(torch.zeros(4, 3, dtype=torch.float64))
        assert outputs.device.type == "cpu"
        assert outputs.numpy().tolist() == [[1, 1]] * 4
        moved: Any = Mixture((part,), Layout.single(2), device="cpu").parts[0].members
        assert moved.device.type == "cpu"


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [("hard", "margin"), ("robust", "margin"), ("hard", "probability")],
)
def test_digits(scenario: str, rule: str, tmp_path: Path) -> None:
    arguments = [scenario, "--rule", rule, "--n", "10", "--hidden", "2", "--threads", "1"]
    run_elsewhere(tmp_path / "run", *arguments, program=digits_main, rounds=1, group=5)


@pytest.mark.parametrize("guarantee", ["attacked", "shielded", "certified"])
def test_routing(guarantee: str, tmp_path: Path) -> None:
    network = tmp_path / "triangle.json"
    edges = [{"source": a, "target": b, "capacity": 10} for a, b in ("ab", "bc", "ca")]
    nodes = [{"id": name} for name in "abc"]
    graph = {"demands": {"a": {"b": 4}, "b": {"c": 3}}}
    network.write_text(
        json.dumps({"graph": graph, "nodes": nodes, "edges": edges}), encoding="utf-8"
    )
    run_elsewhere(
        tmp_path / "run", "route", str(network), "--paths", "2", "--hidden", "4",
        "--guarantee", guarantee, "--baseline", "--threads", "1", rounds=2, scenarios=20,
        priced=50, validation=200,
    )  # fmt: skip


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_tabular(task: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    target = x @ [1.0, -2.0] if task == "regression" else (x[:, 0] > x[:, 1]).astype(int)
    lines = ["a,b,y", *(f"{a},{b},{t}" for (a, b), t in zip(x, target, strict=True))]
    data, rules = tmp_path / "data.csv", tmp_path / "rules.json"
    data.write_text("\n".join(lines), encoding="utf-8")
    rule = {"rule": "linear", "box": {}, "at_most": 2}
    if task == "classification":
        rule = {"rule": "rate", "output": "1", "mean_at_most": 0.9}
    rules.write_text(json.dumps([rule]), encoding="utf-8")
    run_elsewhere(
        tmp_path / "run", "train", str(data), "--target", "y", "--task", task,
        "--rules", str(rules), "--steps", "20", "--iteration-limit", "2",
    )  # fmt: skip


def test_batches() -> None:
    inputs = np.random.default_rng(0).normal(size=(12_000, 3))
    rule = cg4ai.rules.Linear(inputs[:10], [1.0], 1.0, "<=")
    model = cg4ai.ConstrainedRegressor(
        members="network", hidden=(4,), steps=30, iteration_limit=3, device=NAME, random_state=0
    )
    with Elsewhere() as there, warnings.catch_warnings():
        warnings.simplefilter("ignore", cg4ai.FitWarning)
        model.fit(cg4ai.data.Batches(inputs, inputs[:, 0] ** 2, keep=10_000), requirements=[rule])
    assert there.moved > 30  # every batch
    assert model.audit_[0].holds


def test_certification_of_trees() -> None:
    """Bounds of trees are computed in NumPy, wherever the trees are."""
    x = np.random.default_rng(0).uniform(size=(40, 2))
    tree = from_sklearn(DecisionTreeRegressor(max_depth=3).fit(x, x.sum(1)))
    part = Part(tree, np.zeros(1, np.int64), np.ones(1))
    rule = cg4ai.rules.Linear(cg4ai.rules.Box([0, 0], [1, 1]), [1.0], 3.0, "<=")
    with Elsewhere():
        ensemble = cg4ai.Ensemble((part,), Layout.single(1))
        assert cg4ai.certify(ensemble, rule, device=NAME).status == "proven"
