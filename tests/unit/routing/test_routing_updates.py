"""Updates: a trained router on other traffic or another network, against plain recomputation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from cg4ai import Ensemble
from cg4ai.apps.folders import load_trained
from cg4ai.apps.runner import perform
from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput
from cg4ai.members.feedback import FeedbackMembers
from cg4ai.members.shielded import ShieldedArchitecture, ShieldedMembers
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.network.description import Router
from cg4ai.routing.network.instance import Instance, instance
from cg4ai.routing.operate.failure_study import load_whole_router, study
from cg4ai.routing.operate.inheriting import InstanceMapping, inherit_members
from cg4ai.routing.operate.network_change import project_set
from cg4ai.routing.operate.rerouting import Effort
from cg4ai.routing.operate.updates import (
    NothingChanged,
    UpdatePlan,
    UpdateRequest,
    UpdateRouting,
    plan_update,
)
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.joint import JointPricer
from cg4ai.routing.train.problem import shielded_problem
from cg4ai.rules import Box, Polytope
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_evaluation", "quick_disk")

TINY: dict[str, Any] = {
    "scenarios": 30,
    "priced": 50,
    "hidden": (8,),
    "first_steps": 60,
    "later_steps": 20,
    "batch_size": 64,
    "rounds": 1,
    "path_choice": "shortest",
    "validation": 50,
    "threads": 1,
}
LINKS = {"ab": 5.0, "ac": 5.0, "bd": 5.0, "cd": 5.0, "ad": 8.0}


def write_network(
    file: Path,
    links: Mapping[str, float] = LINKS,
    demands: Mapping[str, float] = {"ad": 4.0, "bd": 2.0},
    delays: Mapping[str, float] = {},
) -> str:
    """A square with a diagonal, as JSON; links and demands by the letters of their ends."""
    graph = networkx.Graph(name="square", demands={})
    for ends, volume in demands.items():
        graph.graph["demands"].setdefault(ends[0], {})[ends[1]] = volume
    for ends, capacity in links.items():
        graph.add_edge(ends[0], ends[1], capacity=capacity, length=1.0, delay=delays.get(ends, 1.0))
    file.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
    return str(file)


def write_traffic(file: Path, volumes: np.ndarray, first: int = 0) -> Path:
    """Volumes (T, 2) of a->d and b->d, at times that count on from `first`."""
    lines = [f"{first + t},a,d,{a}\n{first + t},b,d,{b}" for t, (a, b) in enumerate(volumes)]
    file.write_text("\n".join(["time,source,target,volume", *lines]) + "\n")
    return file


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("square")
    network = write_network(folder / "square.json")
    asked = RouteSettings.from_mapping({"network": network, "load": 0.6, **TINY})
    perform(APPLICATION, asked, out=folder / "run", report=False)
    return folder / "run"


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned from the first 21 of 30 matrices."""
    folder = tmp_path_factory.mktemp("measured")
    volumes = np.random.default_rng(1).uniform(1.0, 3.0, (30, 2))
    traffic = write_traffic(folder / "old.csv", volumes)
    network = write_network(folder / "square.json")
    given = {"network": network, "traffic": traffic, **TINY}
    perform(APPLICATION, RouteSettings.from_mapping(given), out=folder / "run", report=False)
    return folder / "run"


def plan(folder: Path, out: Path, **how: Any) -> UpdatePlan:
    made = plan_update(UpdateRequest(folder=folder, out=out, steps=20, **how))
    assert isinstance(made, UpdatePlan)
    return made


def find_latency(made: Instance, delays: Mapping[str, float]) -> float:
    """Of the slowest path."""
    hops = [["".join(sorted(hop)) for hop in pairwise(path)] for path in made.paths]
    return max(sum(delays.get(hop, 1.0) for hop in path) for path in hops)


def run_update(made: UpdatePlan) -> dict[str, Any]:
    outcome = perform(UpdateRouting(made), made.settings, out=made.request.out, report=False)
    assert outcome.evaluation is not None
    assert outcome.evaluation.kept
    return outcome.summary


def assert_guaranteed(out: Path) -> Router:
    """No link is overloaded at corners, peaks and random vectors of the set; the proof is good."""
    ensemble, router = load_trained(out)
    assert isinstance(router, Router)
    made = router.instance
    lower, upper = made.region.bounds()
    corners = np.array(list(product((0.0, 1.0), repeat=len(lower)))) * (upper - lower) + lower
    inside = corners[made.region.contains(corners)]
    peaks = made.region.peaks(np.random.default_rng(0).exponential(size=(20, len(lower)))).inputs
    vectors = np.concatenate([inside, peaks, made.sample(200, 9)])
    splits = ensemble.predict(vectors, outside="ignore")
    sums = np.add.reduceat(splits, [block[0] for block in made.blocks], axis=1)
    assert np.allclose(sums, 1.0, atol=1e-9)
    capacity = dict(zip(made.arcs, made.capacity, strict=True))
    loads: dict[tuple[str, str], np.ndarray] = {}
    for number, path in enumerate(made.paths):
        flow = vectors[:, made.path_demand[number]] * splits[:, number]
        for hop in pairwise(path):
            loads[hop] = loads.get(hop, 0.0) + flow
    assert max((load / capacity[hop]).max() for hop, load in loads.items()) <= 1 + 1e-9
    assert main(["check", str(out / "certificate.cg4ai"), "--run", str(out)]) == 0
    return router


def get_networks(router: Ensemble) -> list[FeedbackMembers]:
    """The active networks of a router, one each, without shields."""
    return [
        bare.take(np.array([number]))
        for part in router.used
        for bare in [part.members.inner if isinstance(part.members, ShieldedMembers) else None]
        if isinstance(bare, FeedbackMembers)
        for number in np.flatnonzero(part.weights)
    ]


def carry(folder: Path, new: Instance) -> list[FeedbackMembers]:
    """The networks of a run in another instance, without training."""
    whole = load_whole_router(folder)
    pricer = shielded_problem(new, whole.settings).pricers[0]
    assert isinstance(pricer, JointPricer)
    assert isinstance(pricer.architecture, ShieldedArchitecture)
    mapping = InstanceMapping.between(whole.instance, new)
    found = inherit_members(whole.router, mapping, pricer.architecture)
    return [member.inner for member in found.members]  # type: ignore[attr-defined]


def answer(network: FeedbackMembers, vectors: np.ndarray, *, first: bool = False) -> np.ndarray:
    """Splits (n, P); `first`: before the network has looked at loads."""
    x = torch.as_tensor(vectors)
    if not first:
        return np.asarray(network.outputs(x)[0])
    own = network.architecture.network
    weights = {name: network.parameters[name] for name in own.shapes()}
    return np.asarray(own.forward(weights, x)[0].detach())


def test_on_the_same_network_networks_are_carried_over_as_they_are(finished: Path) -> None:
    whole = load_whole_router(finished)
    vectors = whole.instance.sample(30, 1)
    old, new = get_networks(whole.router), carry(finished, whole.instance)
    assert len(old) == len(new) > 0
    for one, other in zip(old, new, strict=True):
        assert np.array_equal(answer(one, vectors), answer(other, vectors))


def test_a_wider_set_changes_no_prediction(finished: Path) -> None:
    """Networks normalise by their set; what they compute must not depend on it."""
    whole = load_whole_router(finished)
    wider = replace(whole.instance, demand_max=whole.instance.demand_max * [1.3, 2.0])
    vectors = whole.instance.sample(30, 1)
    for one, other in zip(get_networks(whole.router), carry(finished, wider), strict=True):
        assert np.allclose(answer(one, vectors), answer(other, vectors), atol=1e-5)


def test_new_and_dropped_demands_of_zero_change_no_first_answer(
    finished: Path, tmp_path: Path
) -> None:
    whole = load_whole_router(finished)
    volumes = np.random.default_rng(0).uniform(0.1, 4.0, 20)
    alone = np.column_stack([volumes, np.zeros(20)])
    for name, demands in (
        ("more", {"ad": 4.0, "bd": 2.0, "cb": 1.0}),
        ("fewer", {"ad": 4.0}),
        ("other", {"cb": 1.0, "ad": 2.0}),
    ):
        file = write_network(tmp_path / f"{name}.json", demands=demands)
        new = instance(file, len(demands), 3, load=0.5)
        vectors = np.zeros((20, len(demands)))
        vectors[:, new.demand_names.index("a->d")] = volumes
        own = [new.paths.index(path) for path in whole.instance.paths[:3]]
        for one, other in zip(get_networks(whole.router), carry(finished, new), strict=True):
            expected = answer(one, alone, first=True)[:, :3]
            assert np.allclose(answer(other, vectors, first=True)[:, own], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("links", "demands", "words"),
    [
        ({**LINKS, "ad": 6.0}, {"ad": 4.0, "bd": 2.0}, "1 link of another capacity (a-d)"),
        ({**LINKS, "bc": 3.0}, {"ad": 4.0, "bd": 2.0}, "1 link added (b-c)"),
        ({k: v for k, v in LINKS.items() if k != "bd"}, {"ad": 4.0, "bd": 2.0}, "1 link removed"),
        (LINKS, {"ad": 4.0, "cb": 1.0}, "1 demand added (c->b)"),
    ],
)
def test_a_changed_network_has_a_router_with_a_new_guarantee(
    finished: Path, tmp_path: Path, links: dict[str, float], demands: dict[str, float], words: str
) -> None:
    before = {file: file.read_bytes() for file in finished.rglob("*") if file.is_file()}
    network = write_network(tmp_path / "new.json", links, demands)
    made = plan(finished, tmp_path / "new", network=network)
    summary = run_update(made)
    assert words in "; ".join(summary["update"]["changes"])
    assert summary["update"]["kept_networks"] >= 1
    assert summary["update"]["after"]["worst_utilisation"] <= 1
    router = assert_guaranteed(tmp_path / "new")
    capacity = {
        frozenset(arc): c
        for arc, c in zip(router.instance.arcs, router.instance.capacity, strict=True)
    }
    assert all(links["".join(sorted(arc))] == value for arc, value in capacity.items())
    assert router.instance.demand_names == ["->".join(ends) for ends in demands]
    assert {file: file.read_bytes() for file in before} == before


def test_the_router_before_is_the_old_one_on_the_paths_that_are_left(
    finished: Path, tmp_path: Path
) -> None:
    links = {name: value for name, value in LINKS.items() if name != "bd"}
    made = plan(finished, tmp_path / "new", network=write_network(tmp_path / "new.json", links))
    vectors = made.instance.sample(10, 3)
    old = made.whole.instance
    splits = made.whole.router.predict(vectors)
    left = [number for number, path in enumerate(old.paths) if ("b", "d") not in pairwise(path)]
    expected = splits[:, left]
    for demand in range(2):
        own = old.path_demand[left] == demand
        expected[:, own] /= expected[:, own].sum(axis=1, keepdims=True)
    assert np.allclose(made.predict_before(vectors), expected)


def test_a_network_that_cannot_carry_the_set_is_refused_or_the_set_made_smaller(
    finished: Path, tmp_path: Path
) -> None:
    network = write_network(tmp_path / "half.json", dict.fromkeys(LINKS, 2.0))
    with raises(InvalidInput, "infeasible"):
        plan(finished, tmp_path / "new", network=network)
    made = plan(finished, tmp_path / "new", network=network, shrink=True)
    summary = run_update(made)
    assert any("THE SET IS SMALLER" in note for note in summary["notes"])
    router = assert_guaranteed(tmp_path / "new")
    assert router.instance.level == pytest.approx(0.99)


def test_new_traffic_widens_the_set_and_is_learned(learned: Path, tmp_path: Path) -> None:
    old = load_whole_router(learned).instance
    volumes = np.random.default_rng(2).uniform(1.5, 3.5, (20, 2))
    volumes[0] = 4.2, 1.0
    traffic = write_traffic(tmp_path / "new.csv", volumes, first=30)
    made = plan(learned, tmp_path / "new", traffic=traffic)
    assert made.instance.region.contains(volumes).all()
    assert made.instance.region.contains(old.sample(100, 0)).all()
    assert made.instance.demand_max[0] == pytest.approx(1.25 * 4.2)  # the headroom of the run
    assert type(made.instance.region) is type(old.region)
    summary = run_update(made)
    assert summary["traffic"]["later"] == 6
    assert summary["update"]["before"]["mean_ratio"] >= 1 - 1e-9
    assert_guaranteed(tmp_path / "new")
    # the folder moved elsewhere knows what it learned: for failures, and for the next update
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "new", moved)
    (row,) = study(moved, "b-d", Effort(steps=5, validation=20, adversarial=20))
    assert row["outcome"] in ("shielded", "infeasible")
    with raises(InvalidInput, "range"):
        plan(moved, tmp_path / "again", traffic=traffic)
    later = write_traffic(tmp_path / "later.csv", volumes, first=60)
    assert plan(moved, tmp_path / "again", traffic=later).measured is not None


def test_traffic_of_a_run_that_did_not_learn_from_any_widens_its_set(
    finished: Path, tmp_path: Path
) -> None:
    old = load_whole_router(finished).instance
    volumes = np.random.default_rng(2).uniform(1.0, 3.0, (10, 2))
    volumes[0] = 1.2 * old.demand_max[0] / old.scale, 1.0
    made = plan(finished, tmp_path / "new", traffic=write_traffic(tmp_path / "t.csv", volumes))
    held = np.maximum(old.demand_max, old.scale * volumes.max(axis=0))
    assert made.instance.demand_max == pytest.approx(held)
    summary = run_update(made)
    assert summary["update"]["after"]["mean_ratio"] >= 1 - 1e-9
    assert_guaranteed(tmp_path / "new")


def test_what_answers_and_paths_keep_is_kept_by_an_update(tmp_path: Path) -> None:
    """Multiples of 1/4, no fallback, and paths of at most 3.5 ms, one of which is now longer."""
    given = {"load": 0.6, "granularity": 4, "fallback": None, "max_latency": 3.5}
    network = write_network(tmp_path / "square.json")
    asked = RouteSettings.from_mapping({"network": network, **TINY, **given})
    asked = replace(asked, path_choice="generated")
    perform(APPLICATION, asked, out=tmp_path / "run", report=False)
    before = load_whole_router(tmp_path / "run").instance
    delays = {"ab": 2.8}
    changed = write_network(tmp_path / "new.json", LINKS | {"ad": 7.0}, delays=delays)
    summary = run_update(plan(tmp_path / "run", tmp_path / "out", network=changed))
    assert summary["granularity"]["parts"] == 4
    router = assert_guaranteed(tmp_path / "out")
    made = router.instance
    assert router.fallback is None
    assert find_latency(made, delays) <= 3.5 < find_latency(before, delays)
    vectors = made.sample(50, 3)
    ensemble, _ = load_trained(tmp_path / "out")
    answers = router.finish_outputs(vectors, ensemble.predict(vectors))
    assert np.abs(4 * answers - np.round(4 * answers)).max() < 1e-9


def test_a_measured_run_keeps_its_set_on_another_network(learned: Path, tmp_path: Path) -> None:
    old = load_whole_router(learned).instance
    network = write_network(tmp_path / "new.json", {**LINKS, "ad": 6.5})
    made = plan(learned, tmp_path / "new", network=network)
    assert np.allclose(made.instance.region.bounds(), old.region.bounds())
    run_update(made)
    assert_guaranteed(tmp_path / "new")


def test_nothing_new_writes_nothing(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = write_network(tmp_path / "same.json")
    found = plan_update(UpdateRequest(folder=finished, out=tmp_path / "new", network=network))
    assert isinstance(found, NothingChanged)
    command = ["update", str(finished), "--network", network, "--out", str(tmp_path / "new")]
    assert main(command) == 0
    assert "Nothing has changed" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_bad_input_is_refused(finished: Path, learned: Path, tmp_path: Path) -> None:
    other = write_network(tmp_path / "other.json", {"xy": 1.0}, {"xy": 0.5})
    volumes = np.random.default_rng(0).uniform(1, 2, (5, 2))
    early = write_traffic(tmp_path / "early.csv", volumes, first=20)
    unknown = tmp_path / "unknown.csv"
    unknown.write_text("time,source,target,volume\n40,a,z,1\n41,a,z,1\n")
    huge = write_traffic(tmp_path / "huge.csv", 100 * volumes, first=40)
    out = tmp_path / "new"
    for folder, how, code in (
        (finished, {}, "missing-argument"),
        (finished, {"network": other, "traffic": early}, "conflict"),
        (finished, {"network": other}, "unknown-name"),
        (learned, {"network": other}, "unknown-name"),
        (learned, {"traffic": early}, "range"),
        (learned, {"traffic": unknown}, "unknown-name"),
        (learned, {"traffic": huge}, "infeasible"),
        (learned, {"traffic": huge, "shrink": True}, "conflict"),
    ):
        with raises(InvalidInput, code):
            plan(folder, out, **how)
    with raises(InvalidInput, "exists"):
        plan(finished, finished, network=other)
    assert not out.exists()


@pytest.mark.parametrize(
    "kind",
    [
        {"members": "tree", "guarantee": "certified"},
        {"agent_scope": "source"},
        {"guarantee": "attacked"},
        {"ratio": 1.2, "min_demand": 0.1},
    ],
)
def test_other_kinds_of_runs_are_refused_early(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: dict[str, Any]
) -> None:
    from cg4ai.routing.operate import updates

    whole = load_whole_router(finished)
    other = replace(whole, settings=replace(whole.settings, **kind))
    monkeypatch.setattr(updates, "load_whole_router", lambda folder: other)
    with raises(InvalidInput, "unsupported"):
        plan(finished, tmp_path / "new", network="any.json")


def test_the_command_goes_on_where_it_was_interrupted_and_overwrites_nothing(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    network = write_network(tmp_path / "new.json", {**LINKS, "ad": 6.0})
    out = tmp_path / "new"
    command = ["update", str(finished), "--network", network, "--out", str(out), "--steps", "20"]
    command += ["--quiet", "--no-report"]

    def interrupt(*given: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JointPricer, "price", interrupt)
        assert main(command) == 130
    assert "cg4ai" in capsys.readouterr().err
    assert main([*command[:-4], "--steps", "30", "--quiet"]) == 2
    assert "--steps 20" in capsys.readouterr().err
    assert main(["route", "--resume", "--out", str(out)]) == 2  # it is no run of its own
    assert "cg4ai update" in capsys.readouterr().err
    assert main(command) == 0
    assert "Update of" in capsys.readouterr().out
    assert main(command) == 2
    assert main([*command, "--force", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["update"]["certificate_accepted"]


def test_a_set_without_some_demands_is_that_of_the_others() -> None:
    made = np.random.default_rng(0)
    region = Polytope(
        Box(np.full(4, 0.1), np.ones(4)), np.array([[1.0, 1, 0, 0], [0, 1, 1, 1]]), [1.2, 2.0]
    )
    left = project_set(region, np.array([0, 2]))
    vectors = made.uniform(0, 1.2, (200, 2))
    whole = np.full((200, 4), 0.1)
    whole[:, [0, 2]] = vectors
    assert np.array_equal(left.contains(vectors), region.contains(whole))


def test_a_granularity_that_no_longer_fits_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Halves fit the square as it was; the smaller links want finer splits."""
    network = write_network(tmp_path / "square.json")
    asked = RouteSettings.from_mapping(
        {"network": network, "load": 0.6, "granularity": 2, **TINY, "first_steps": 5}
    )
    perform(APPLICATION, asked, out=tmp_path / "run", report=False)
    before = load_whole_router(tmp_path / "run").instance
    worst = before.level
    links = {name: value * worst / 0.985 for name, value in LINKS.items()}
    changed = write_network(tmp_path / "new.json", links)
    code = main(["update", str(tmp_path / "run"), "--network", changed, "--steps", "5"])
    assert code == 2
    assert "train anew" in capsys.readouterr().err
    assert not (tmp_path / "run-updated").exists()
