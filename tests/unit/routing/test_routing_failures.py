"""Routers of failures: safe without the failed links, kept in the run's folder, and resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from cg4ai import load
from cg4ai.apps.folders import load_trained
from cg4ai.apps.runner import perform
from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.members.feedback import FeedbackMembers
from cg4ai.members.shielded import ShieldedArchitecture, ShieldedMembers
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.network.description import Router, restore_instance
from cg4ai.routing.operate import failure_study as studies
from cg4ai.routing.operate.answers import PRICES, LowerBound
from cg4ai.routing.operate.failure_study import (
    failed_folder,
    format_report,
    is_settled,
    load_whole_router,
    study,
)
from cg4ai.routing.operate.inheriting import InstanceMapping, inherit_members
from cg4ai.routing.operate.link_failures import failure_of, reduce_instance
from cg4ai.routing.operate.rerouting import Effort, reroute
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.joint import JointPricer
from cg4ai.routing.train.problem import shielded_problem
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_evaluation")

QUICK = Effort(steps=10, validation=40, adversarial=40)
TINY: dict[str, Any] = {
    "scenarios": 30,
    "priced": 50,
    "hidden": (8,),
    "first_steps": 60,
    "later_steps": 50,
    "batch_size": 64,
    "rounds": 1,
    "validation": 50,
    "threads": 1,
    "demands": 2,
    "load": 0.6,
}


def settings(folder: Path, **more: Any) -> RouteSettings:
    """A square with a wider diagonal: a to d and b to d; e hangs on d, on no path."""
    graph = networkx.Graph(name="square", demands={"a": {"d": 4.0}, "b": {"d": 2.0}})
    for source, target in ("ab", "ac", "bd", "cd"):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    graph.add_edge("a", "d", capacity=8.0, length=1.0)
    graph.add_edge("d", "e", capacity=5.0, length=1.0)
    file = folder / "square.json"
    file.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
    return RouteSettings.from_mapping({"network": str(file), **TINY, **more})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("square")
    perform(APPLICATION, settings(folder), out=folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def studied(finished: Path) -> dict[str, dict[str, Any]]:
    rows = study(finished, "single", QUICK)
    rows += study(finished, "a-b,b-d;d-e", QUICK)
    return {row["failure"]: row for row in rows}


def test_every_failure_is_shielded_infeasible_or_disconnected(
    studied: Mapping[str, dict[str, Any]],
) -> None:
    outcomes = {name: row["outcome"] for name, row in studied.items()}
    assert outcomes == {
        "a-b": "shielded",
        "a-c": "shielded",
        "a-d": "infeasible",
        "b-d": "shielded",
        "c-d": "shielded",
        "a-b,b-d": "disconnected",
        "d-e": "unaffected",
    }
    assert is_settled(list(studied.values()))
    said = format_report(list(studied.values()))
    assert "demand b->d is left" in said
    assert "the network has no other way for b->d" in said
    assert "7 failures: 4 shielded" in said
    row = studied["a-d"]
    assert row["network_optimum"] == pytest.approx(row["level"])  # no paths would help
    assert row["text"] in said
    alike = [{**row, "failure": name} for name in ("one", "two", "three")]
    assert row["text"] not in (said := format_report(alike))  # but a table of three lines
    assert sum("a->" in line for line in said.splitlines()) == 3


def test_an_unknown_link_is_an_error_of_its_own_failure(
    finished: Path, studied: Mapping[str, Any]
) -> None:
    rows = study(finished, "b-c;b-d", QUICK)
    assert [row["outcome"] for row in rows] == ["error", "shielded"]
    assert "'b-c', which square does not have" in rows[0]["text"]
    with raises(InvalidInput, "invalid-input"):
        study(finished, "b-c", QUICK)


def test_routers_of_failures_use_no_failed_link_and_overload_none(
    finished: Path, studied: Mapping[str, dict[str, Any]]
) -> None:
    for name in ("a-b", "b-d"):
        router = load(failed_folder(finished, name))
        made = restore_instance(router.about)
        ends = set(name.split("-"))
        assert not any(ends == set(arc) for arc in made.arcs)
        corners = np.array(list(product((0.0, 1.0), repeat=2))) * made.demand_max
        vectors = np.concatenate([corners, made.sample(200, 5)])
        splits = router.predict(vectors)
        assert made.compute_unrouted(splits) < 1e-9
        assert made.compute_utilisation(vectors, splits).max() <= 1 + 1e-9
        assert studied[name]["certificate"]["accepted"]
        certificate = finished / "failures" / name / "certificate.cg4ai"
        assert main(["check", str(certificate), "--run", str(certificate.parent)]) == 0


def test_answers_under_a_failure_have_a_proven_distance_from_the_optimum(
    finished: Path, studied: Mapping[str, dict[str, Any]]
) -> None:
    """From the optimum over the paths that are left; prices of the intact network prove some."""
    for name in ("a-b", "b-d"):
        ensemble, router = load_trained(failed_folder(finished, name))
        assert isinstance(router, Router)
        vectors = router.instance.sample(200, 7)
        best = router.instance.find_optimal(vectors).mlu
        splits = ensemble.predict(vectors)
        reached = router.instance.compute_utilisation(vectors, splits).max(axis=1)
        gaps = router.improve_answers(vectors, splits).gaps
        assert (reached / best - 1 <= gaps + 1e-9).all()
        assert (reached / best - 1 >= gaps - 0.02).mean() > 0.9
        whole = load_whole_router(finished)
        left = reduce_instance(whole.instance, failure_of(name, whole.instance))
        alone = np.array(whole.router.about[PRICES])[:, left.arcs]
        alone = alone[alone.sum(axis=1) > 0]
        assert (LowerBound(router.instance, alone)(vectors) <= best * (1 + 1e-9)).all()


def test_inherited_networks_renormalise_first_answers(finished: Path) -> None:
    """Without the stages of feedback, dropping scores is dividing by what is left."""
    whole = load_whole_router(finished)
    left = reduce_instance(whole.instance, failure_of("b-d", whole.instance))
    assert left.instance is not None
    pricer = shielded_problem(left.instance, whole.settings).pricers[0]
    assert isinstance(pricer, JointPricer)
    assert isinstance(pricer.architecture, ShieldedArchitecture)
    mapping = InstanceMapping.between(whole.instance, left.instance)
    inherited = inherit_members(whole.router, mapping, pricer.architecture)
    assert inherited.weights.sum() == pytest.approx(1.0)
    # constants are passed over, and members without weight: which are used hangs on last bits
    before, number = next(
        (part.members.inner, int(np.flatnonzero(part.weights)[0]))
        for part in whole.router.used
        if isinstance(part.members, ShieldedMembers)
        and isinstance(part.members.inner, FeedbackMembers)
    )
    vectors = torch.as_tensor(whole.instance.sample(20, 3))
    whole_scores = _first_answers(before, vectors, number)
    kept_scores = _first_answers(inherited.members[0].inner, vectors)  # type: ignore[attr-defined]
    expected = whole_scores[:, left.paths]
    for block in left.instance.blocks:
        own = expected[:, block] / expected[:, block].sum(1, keepdims=True)
        assert np.allclose(kept_scores[:, block], own, atol=1e-9)


def _first_answers(members: Any, vectors: torch.Tensor, number: int = 0) -> np.ndarray:
    network = members.architecture.network
    own = {name: members.parameters[name] for name in network.shapes()}
    return np.asarray(network.forward(own, vectors)[number].detach().numpy())


def test_a_study_goes_on_where_it_stopped(
    finished: Path, studied: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(finished, copied)
    (copied / "failures" / "a-b" / "outcome.json").unlink()
    (copied / "failures" / "a-b" / "left over").touch()
    made = []
    real = reroute

    def counted(*given: Any) -> dict[str, Any]:
        made.append(given[1].name)
        return real(*given)

    monkeypatch.setattr(studies, "reroute", counted)
    rows = study(copied, "single", QUICK)
    assert made == ["a-b"]
    assert not (copied / "failures" / "a-b" / "left over").exists()
    again = {row["failure"]: row for row in rows}["a-b"]
    same = ("outcome", "mean_mlu_gap", "worst_utilisation", "level")
    assert [again[name] for name in same] == [studied["a-b"][name] for name in same]
    assert again["certificate"]["sha256"] == studied["a-b"]["certificate"]["sha256"]


def test_an_error_of_one_failure_leaves_the_others(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "run"
    shutil.copytree(finished, copied, ignore=shutil.ignore_patterns("failures"))
    real = reroute

    def broken(*given: Any) -> dict[str, Any]:
        if given[1].name == "a-d":
            raise SolverFailure("a routing program\nended")
        return real(*given)

    monkeypatch.setattr(studies, "reroute", broken)
    rows = study(copied, "a-d;a-b,b-d", QUICK)
    assert [row["outcome"] for row in rows] == ["error", "disconnected"]
    assert "a routing program ended" in format_report(rows)
    assert not is_settled(rows)


def test_there_is_no_router_for_what_was_not_studied_or_cannot_be_routed(
    finished: Path, studied: Mapping[str, Any]
) -> None:
    assert failed_folder(finished, "d-e") == finished
    assert failed_folder(finished, "d-b") == finished / "failures" / "b-d"
    with raises(InvalidInput, "infeasible"):
        failed_folder(finished, "a-d")
    with raises(InvalidInput, "unknown-name"):
        failed_folder(finished, "a-b,c-d")


@pytest.mark.parametrize(
    "kind", [{"members": "tree", "leaves": 4, "guarantee": "certified"}, {"agent_scope": "source"}]
)
def test_routers_of_other_kinds_get_one_of_their_own(tmp_path: Path, kind: dict[str, Any]) -> None:
    """Trees, and agents that do not see all demands."""
    perform(APPLICATION, settings(tmp_path, **kind), out=tmp_path / "run")
    (row,) = study(tmp_path / "run", "b-d", QUICK)
    assert row["outcome"] == "shielded"
    assert row["worst_utilisation"] <= 1
    assert row["certificate"]["accepted"]
    assert "inherited_mean_mlu_gap" not in row


def test_what_learned_from_traffic_is_measured_on_later_traffic(tmp_path: Path) -> None:
    volumes = np.random.default_rng(1).uniform(1.0, 3.0, (30, 2))
    lines = [f"{time},a,d,{a}\n{time},b,d,{b}" for time, (a, b) in enumerate(volumes)]
    traffic = tmp_path / "traffic.csv"
    traffic.write_text("\n".join(["time,source,target,volume", *lines]) + "\n")
    asked = settings(tmp_path, traffic=traffic, demands=None, load=0.4, scale_capacities="auto")
    perform(APPLICATION, asked, out=tmp_path / "run")
    (row,) = study(tmp_path / "run", "b-d", QUICK)
    assert row["outcome"] == "shielded"
    assert row["validation"] == 9  # of the later three tenths
    assert "inherited_mean_mlu_gap" in row


@pytest.mark.slow  # starts processes
def test_jobs_at_a_time_find_the_same(finished: Path, tmp_path: Path) -> None:
    found = []
    for jobs in (None, 2):
        copied = tmp_path / f"run-{jobs}"
        shutil.copytree(finished, copied, ignore=shutil.ignore_patterns("failures"))
        rows = study(copied, "a-b;b-d", QUICK, n_jobs=jobs)
        found.append([(row["mean_mlu_gap"], row["certificate"]["sha256"]) for row in rows])
    assert found[0] == found[1]


def test_a_time_limit_leaves_failures_for_later(finished: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(finished, copied, ignore=shutil.ignore_patterns("failures"))
    rows = study(copied, "a-d;b-d", QUICK, until=0.0)
    assert [row["outcome"] for row in rows] == ["left", "left"]
    assert not is_settled(rows)
    rows = study(copied, "a-d;b-d", QUICK)
    assert "left" not in [row["outcome"] for row in rows]


def test_predict_and_route_know_failures(
    finished: Path, studied: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demands = tmp_path / "demands.csv"
    demands.write_text("a->d,b->d\n1,2\n")
    assert main(["predict", str(finished), str(demands), "--failed", "b-d"]) == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert "b-d" not in header
    assert "a->d via a->d" in header
    assert main(["predict", str(finished), str(demands), "--failed", "a-d"]) == 2
    assert main(["route", "polska", "--failures", "single"]) == 2
    assert "--out" in capsys.readouterr().err
    assert main(["route", "polska", "--failures", "x-y", "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


def test_the_command_studies_a_finished_run(
    finished: Path, studied: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    effort = ["--steps", "10", "--vectors", "40", "--quiet"]
    assert main(["failures", str(finished), *effort]) == 0
    assert "5 failures: 4 shielded, 1 infeasible" in capsys.readouterr().out
    assert main(["failures", str(finished), "b-d", "--json", *effort]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "shielded"
    assert main(["failures", str(finished), "b-z", *effort]) == 2
    capsys.readouterr()
    assert main(["show", str(finished)]) == 0
    words = capsys.readouterr().out.partition("Failures of links")[2]
    assert "infeasible" in words
    assert "b-d" in words
