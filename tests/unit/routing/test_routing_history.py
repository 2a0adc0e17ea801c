"""Routers that read the last matrices and split the next: windows, guarantee, run, prediction."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog

from cg4ai import solve
from cg4ai.apps.json_tables import read_table
from cg4ai.apps.predictions import AFTER, WINDOW, PredictionOptions, RunPredictor
from cg4ai.apps.runner import perform
from cg4ai.cli.main import main
from cg4ai.colgen import Epigraph
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError
from cg4ai.routing import Traffic
from cg4ai.routing.app import Routing
from cg4ai.routing.demands.history import MeasuredHistory, make_windows, summarise
from cg4ai.routing.demands.measured import measured_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.history_router import HistoryRouter, restore_history_router
from cg4ai.routing.operate.later_history import invent_windows
from cg4ai.routing.pages.judged_traffic import DOTE, LIMITED, OF_MEAN, OURS
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.history_problem import (
    TailUtilisation,
    add_shifted_pairs,
    capacity_of_splits,
    fill_history_defaults,
    history_problem,
    pair_windows,
)
from cg4ai.routing.train.problem import routing_settings
from cg4ai.routing.train.utilisation import Utilisation
from cg4ai_checker import Rejected, Unreadable, check
from cg4ai_checker.run_folder import compare
from cg4ai_checker.run_routing import compare_capacities
from in_process import InProcess
from raising import raises

NODES = tuple("ABCD")
LENGTH = 3
LINKS = "source,target,capacity\nA,B,10\nB,C,10\nC,D,10\nD,A,10\nA,C,10\n"


def ring() -> networkx.Graph:
    graph = networkx.Graph(name="ring")
    for line in LINKS.splitlines()[1:]:
        source, target, capacity = line.split(",")
        graph.add_edge(source, target, capacity=float(capacity))
    return graph


def traffic(count: int = 60, size: float = 1.0) -> Traffic:
    """Waves that the last matrices foretell, in numbered steps."""
    random = np.random.default_rng(0)
    phase, level = random.uniform(0, 6, (4, 4)), random.uniform(0.3, 1, (4, 4))
    wave = 1 + 0.8 * np.sin(np.arange(count)[:, None, None] / 5 + phase)
    matrices = size * level * wave * random.lognormal(0, 0.05, (count, 4, 4))
    matrices[:, range(4), range(4)] = 0.0
    return Traffic(tuple(map(str, range(count))), NODES, matrices)


def write_traffic(folder: Path, given: Traffic) -> Path:
    np.savez(
        folder / "t.npz", matrices=given.matrices, nodes=list(given.nodes), times=list(given.times)
    )
    return folder / "t.npz"


@pytest.fixture(scope="module")
def made() -> Instance:
    return measured_instance(ring(), traffic(), paths=2, hose=False)


@pytest.fixture(scope="module")
def tight() -> Instance:
    """Hardly any room is left at the largest demands, so that shields act."""
    return measured_instance(ring(), traffic(), paths=2, hose=False, scale_capacities="auto")


def largest_load(instance: Instance, split: NDArray[np.float64]) -> float:
    """Over all vectors of the box and all links: one linear program for each, by SciPy."""
    flows = np.zeros((len(instance.arcs), len(instance.demand_max)))
    for path, demand in enumerate(instance.path_demand):
        flows[:, demand] += split[path] * instance.incidence[path] / instance.capacity
    lower, upper = instance.region.bounds()
    ends = np.column_stack([lower, upper])
    return max(-linprog(-row, bounds=ends, method="highs").fun for row in flows)


# ---- windows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "length"), [(5, 1), (7, 3), (4, 4), (3, 5)])
def test_windows_and_their_summaries(count: int, length: int) -> None:
    vectors = np.random.default_rng(1).uniform(size=(count, 2))
    windows = make_windows(vectors, length)
    known = [vectors[first : first + length] for first in range(count - length + 1)]
    assert len(windows) == len(known)
    found = summarise(vectors, length)
    assert found.shape == (len(known), 8)
    for window, own, said in zip(windows, known, found, strict=True):
        np.testing.assert_array_equal(window, own)
        mean = own.mean(axis=0)
        spread = np.sqrt(((own - mean) ** 2).mean(axis=0))
        expected = np.concatenate([own[-1], own[-3:].mean(axis=0), mean, spread])
        np.testing.assert_allclose(said, expected, atol=1e-12)


def test_every_matrix_has_the_ones_before_it(made: Instance) -> None:
    whole = traffic()
    silent = whole.matrices.copy()
    silent[[20, 50]] = 0.0  # nothing is to be split there, but windows know of it
    earlier, later = replace(whole, matrices=silent).split("40")
    history = MeasuredHistory.from_traffic(made, earlier, later, length=LENGTH)
    vectors = replace(whole, matrices=silent).to_vectors(made)
    assert history.follows.tolist() == [t for t in range(LENGTH, 40) if t != 20]
    features = history.features
    for row, t in enumerate(history.follows):
        np.testing.assert_allclose(features[row], summarise(vectors[t - LENGTH : t], LENGTH)[0])
    judged = [t for t in range(40, 60) if t != 50]
    assert len(history.windows) == len(judged)
    for window, t in zip(history.windows, judged, strict=True):
        np.testing.assert_array_equal(window, vectors[t - LENGTH : t])
    assert history.notes == ()


@pytest.mark.parametrize(
    ("times", "note"),
    [
        ([*range(30), *range(31, 61)], "1 of 59 steps"),
        ([f"2004-03-01T{h:02}:{m:02}" for h in range(15) for m in range(0, 60, 15)], ""),
        ([f"t{k:02}" for k in range(60)], "texts"),
    ],
)
def test_irregular_times_are_said(made: Instance, times: list[Any], note: str) -> None:
    whole = traffic()
    other = Traffic(tuple(map(str, times)), NODES, whole.matrices)
    earlier, later = other.split(0.7)
    (*found,) = MeasuredHistory.from_traffic(made, earlier, later, length=LENGTH).notes
    assert len(found) == bool(note)
    assert all(note in one for one in found)


def test_windows_longer_than_the_data_are_refused(made: Instance) -> None:
    earlier, later = traffic(20).split("10")
    with raises(InvalidInput, "range"):
        MeasuredHistory.from_traffic(made, earlier, later, length=9)
    assert len(MeasuredHistory.from_traffic(made, earlier, later, length=8).follows) == 2


@pytest.mark.parametrize(
    "further",
    [{"history": 0}, {"traffic": None}, {"failures": "single"}, {"guarantee": "attacked"}],
)
def test_settings_that_history_contradicts(further: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"network": "n", "traffic": Path("t.npz"), "history": 3}
    RouteSettings(**asked)
    with pytest.raises(InvalidSettings):
        RouteSettings(**(asked | further))


# ---- the problem --------------------------------------------------------------------------------


def history_of(instance: Instance) -> MeasuredHistory:
    return MeasuredHistory.from_traffic(instance, *traffic().split("45"), length=LENGTH)


def test_targets_are_the_next_vectors_over_their_optimum(made: Instance) -> None:
    history = history_of(made)
    pairs = pair_windows(made, history)
    after = history.before[history.follows]
    best = made.find_optimal(after).mlu
    np.testing.assert_allclose(pairs.targets, after / best[:, None])
    np.testing.assert_allclose(made.find_optimal(pairs.targets).mlu, 1.0)


def test_shifted_windows_go_with_what_follows_them(made: Instance) -> None:
    """Each pair is multiplied by one factor for each demand: of its source times of its target."""
    pairs = pair_windows(made, history_of(made))
    more = add_shifted_pairs(made, pairs, seed=0)
    count, demands = pairs.fitted, len(made.demand_max)
    np.testing.assert_array_equal(more.targets[:count], pairs.targets[:count])
    np.testing.assert_allclose(made.find_optimal(more.targets).mlu, 1.0)
    factors = more.features[count : 2 * count] / pairs.features[:count]
    for part in range(1, 4):
        own = factors[:, part * demands : (part + 1) * demands]
        np.testing.assert_allclose(own, factors[:, :demands])
    shifted = factors[:, :demands] * pairs.targets[:count]
    moved = more.targets[count : 2 * count]
    np.testing.assert_allclose(
        shifted / shifted.sum(axis=1)[:, None], moved / moved.sum(axis=1)[:, None]
    )


def test_the_tail_counts_beyond_its_level(made: Instance) -> None:
    """By the formula, and each coefficient by the value that it gives."""
    random = np.random.default_rng(0)
    pieces = TailUtilisation(made, level=0.7, weight=2.0)
    vectors = made.sample(5, 1) / made.find_optimal(made.sample(5, 1)).mlu[:, None]
    splits = random.dirichlet(np.ones(2), (5, len(made.blocks))).reshape(5, -1)
    values = pieces.values(torch.as_tensor(vectors), torch.as_tensor(splits)).numpy()
    mlu = made.compute_utilisation(vectors, splits).max(axis=1)
    np.testing.assert_allclose(values.max(axis=1), mlu + 2 * np.maximum(mlu - 0.7, 0))
    for which in range(pieces.count):
        own = pieces.coefficients(vectors, np.full(5, which))
        np.testing.assert_allclose((own * splits).sum(axis=1), values[:, which], atol=1e-12)


def test_the_master_weighs_by_what_follows(made: Instance) -> None:
    """Its objective is that of the mixture at held-out windows, recomputed."""
    history = history_of(made)
    recipe = fill_history_defaults(RouteSettings(network="ring", first_steps=60, rounds=2))
    problem = history_problem(made, history, recipe)
    objective = problem.objective
    assert isinstance(objective, Epigraph)
    assert objective.targets is not None
    result = solve(problem, routing_settings(made, recipe, joint=True, prune=0.0))
    splits = result.ensemble.predict(objective.inputs)
    pieces = objective.pieces
    assert isinstance(pieces, TailUtilisation)
    mlu = made.compute_utilisation(objective.targets, splits).max(axis=1)
    value = mlu + pieces.weight * np.maximum(mlu - pieces.level, 0)
    assert result.objective == pytest.approx(value.mean(), rel=1e-4)
    alone = problem.start[0][0].outputs(torch.as_tensor(objective.inputs))[0].numpy()
    fixed = made.compute_utilisation(objective.targets, alone).max(axis=1)
    assert mlu.mean() < fixed.mean()


def test_targets_of_an_objective_are_checked(made: Instance) -> None:
    pieces, inputs = Utilisation(made), np.zeros((3, 2))
    with raises(InvalidInput, "shape"):
        Epigraph(inputs, pieces, targets=np.zeros((2, 12)))
    tail: Any = SimpleNamespace(weight=1.0)
    with raises(InvalidInput, "conflict"):
        Epigraph(inputs, pieces, targets=np.zeros((3, 12)), tail=tail)


def test_every_split_fits_every_vector_of_the_set(tight: Instance) -> None:
    """Whatever the window: recomputed by linear programs. Without the shield it would not fit."""
    recipe = fill_history_defaults(RouteSettings(network="ring", first_steps=40, rounds=1))
    problem = history_problem(tight, history_of(tight), recipe)
    router = solve(problem, routing_settings(tight, recipe, joint=True)).ensemble
    windows = invent_windows(tight, seed=3)[::100]
    splits = router.predict(windows, outside="ignore")
    assert tight.compute_unrouted(splits) < 1e-8
    assert max(largest_load(tight, split) for split in splits) <= 1 + 1e-9
    plain = router.unshielded.predict(windows, outside="ignore")
    if np.abs(plain - splits).max() > 0:
        assert max(largest_load(tight, split) for split in plain) > 1


def test_rules_are_the_loads_at_the_corner(tight: Instance) -> None:
    rule = capacity_of_splits(tight)
    splits = np.random.default_rng(0).dirichlet(np.ones(2), (5, 12)).reshape(5, -1)
    for split in splits:
        most = (rule.coefficients @ split[: len(tight.path_demand)]).max()
        assert most == pytest.approx(largest_load(tight, split[: len(tight.path_demand)]))
    hosed = measured_instance(ring(), traffic(), paths=2)
    with raises(InvalidInput, "unsupported"):
        capacity_of_splits(hosed)


# ---- a whole run --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, quick_evaluation: pytest.MonkeyPatch
) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("history")
    (folder / "ring.csv").write_text(LINKS)
    asked = RouteSettings(
        network=str(folder / "ring.csv"),
        traffic=write_traffic(folder, traffic()),
        history=LENGTH,
        paths=2,
        first_steps=60,
        rounds=1,
        baseline=True,
        threads=1,
        churn=0.01,
    )
    outcome = perform(Routing(), asked, out=folder / "run")
    assert outcome.evaluation is not None
    assert outcome.evaluation.kept
    return folder / "run"


def test_a_run_is_judged_beside_what_knows_as_little(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["strength"] == "shielded"
    found = summary["traffic"]["ratio"]
    assert {OURS, DOTE, OF_MEAN, "previous optimum", "best static split"} <= {*found}
    assert all(row["mean"] >= 1 - 1e-9 for row in found.values())
    assert summary["history"]["length"] == LENGTH
    assert summary["worst_utilisation"] <= 1 + 1e-9
    changes = summary["churn"]
    assert 0 < changes["held"] + changes["yielded"] <= 1
    assert changes["mean_moved"] < changes["mean_moved_without"]
    assert changes["worst_utilisation"] <= 1 + 1e-9
    assert f"{OURS}, {LIMITED} 1 %" in found


def test_ratios_are_of_windows_alone(finished: Path) -> None:
    """Recomputed from the traffic file and the saved run."""
    predictor = RunPredictor.from_folder(finished)
    described = predictor.described
    assert isinstance(described, HistoryRouter)
    vectors = traffic().to_vectors(described.instance)
    later = range(42, 60)
    windows = np.concatenate([summarise(vectors[t - LENGTH : t], LENGTH) for t in later])
    splits = predictor.ensemble.predict(windows)
    mlu = described.instance.compute_utilisation(vectors[42:], splits).max(axis=1)
    ratio = mlu / described.instance.find_optimal(vectors[42:]).mlu
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["traffic"]["ratio"][OURS]["mean"] == pytest.approx(ratio.mean())
    assert summary["traffic"]["ratio"][OURS]["worst"] == pytest.approx(ratio.max())


def test_the_checker_compares_the_rules_with_the_network(finished: Path) -> None:
    claim = check((finished / "certificate.cg4ai").read_bytes()).claim
    assert any("whatever matrices were read" in said for said in compare(claim, finished))
    about = json.loads((finished / "ensemble.json").read_text())["about"]
    compare_capacities(claim, about, "a folder")
    for name, value in (
        ("constant", 0.5 * claim.constant),
        ("limit", 2 * claim.limit),
        ("everywhere", False),
    ):
        other = copy.copy(claim)
        object.__setattr__(other, name, value)
        with pytest.raises(Rejected):
            compare_capacities(other, about, "a folder")
    twice = [2 * volume for volume in about["demand_max"]]
    damaged: list[dict[str, Any]] = [{"demand_max": twice}, {"history": {"length": "3"}}]
    for more in (*damaged, {"history": {}}):
        with pytest.raises((Rejected, Unreadable)):
            compare_capacities(claim, about | more, "a folder")


def test_files_of_traffic_are_answered_after_each_window(finished: Path, tmp_path: Path) -> None:
    data = write_traffic(tmp_path, traffic(8))
    out = tmp_path / "splits.json"
    arguments = ["predict", str(finished), str(data), "--history", "--details", "--format", "json"]
    arguments += ["--no-churn"]
    assert main([*arguments, "--output", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row[AFTER] for row in rows] == ["2", "3", "4", "5", "6", "7"]
    predictor = RunPredictor.from_folder(finished)
    described = predictor.described
    assert isinstance(described, HistoryRouter)
    vectors = traffic(8).to_vectors(described.instance)
    expected = predictor.ensemble.predict(summarise(vectors, LENGTH))
    names = described.interface().outputs
    found = np.array([[row[name] for name in names] for row in rows])
    np.testing.assert_allclose(found, expected, atol=1e-9)
    most = [value for name, value in rows[0].items() if name.startswith("utilisation at most")]
    assert max(most) == pytest.approx(largest_load(described.instance, expected[0]))
    short = write_traffic(tmp_path, traffic(LENGTH - 1))
    assert main(["predict", str(finished), str(short), "--history"]) == 2


def test_rows_before_a_whole_window_have_the_fixed_split(finished: Path, tmp_path: Path) -> None:
    predictor = RunPredictor.from_folder(finished)
    described = predictor.described
    assert isinstance(described, HistoryRouter)
    table = table_of(described, 5, tmp_path)
    found = predictor.predict(table, PredictionOptions(explain=True, churn=None))
    names = described.interface().outputs
    splits = np.array([[row[name] for name in names] for row in found.rows])
    assert [row[WINDOW] for row in found.rows] == [1, 2, 3, 3, 3]
    np.testing.assert_array_equal(splits[:2], np.tile(described.fixed, (2, 1)))
    assert np.abs(splits[2:] - described.fixed).max(axis=1).min() > 0
    assert "2 of 5 rows" in found.note
    with raises(InvalidInput, "unsupported"):
        predictor.predict(table, PredictionOptions(fallback=0.1))


def test_successive_splits_change_little_and_fit_the_whole_set(
    finished: Path, tmp_path: Path
) -> None:
    predictor = RunPredictor.from_folder(finished)
    described = predictor.described
    assert isinstance(described, HistoryRouter)
    rows = predictor.predict(table_of(described, 12, tmp_path), PredictionOptions()).rows
    splits = np.array([[row[name] for name in described.interface().outputs] for row in rows])
    changes = np.add.reduceat(np.abs(np.diff(splits, axis=0)), described.instance.starts, axis=1)
    yielded = np.array([row["yielded"] for row in rows[1:]])
    assert changes[~yielded].max() / 2 <= 0.01 + 1e-9
    assert max(largest_load(described.instance, split) for split in splits) <= 1 + 1e-9


def table_of(described: HistoryRouter, count: int, folder: Path) -> Any:
    vectors = traffic(count).to_vectors(described.instance)
    lines = [",".join(map(repr, row)) for row in vectors.tolist()]
    (folder / "rows.csv").write_text("\n".join([",".join(described.instance.demand_names), *lines]))
    return read_table(folder / "rows.csv")


def test_a_server_keeps_the_window(finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from cg4ai.serve.service import Service
    from cg4ai.serve.web import make_app

    predictor = RunPredictor.from_folder(finished)
    described = predictor.described
    assert isinstance(described, HistoryRouter)
    whole = predictor.predict(table_of(described, 6, tmp_path), PredictionOptions()).mark_rows()
    names = described.instance.demand_names
    vectors = traffic(6).to_vectors(described.instance).tolist()
    rows = [dict(zip(names, one, strict=True)) for one in vectors]
    answers: list[Any] = []
    with InProcess(make_app(Service(finished))) as caller:
        for part in (rows[:1], rows[1:2], rows[2:5], rows[5:]):
            wrong = caller.post("/predict", json={"rows": [{names[0]: 1.0}]})
            assert wrong.status_code == 422  # and is no part of the window
            answers += caller.post("/predict", json={"rows": part}).json()["rows"]
    for one, other in zip(answers, whole, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name] == pytest.approx(other[name], abs=1e-12) for name in one)


def test_what_needs_the_demands_is_refused(finished: Path, tmp_path: Path) -> None:
    assert main(["explore", str(finished)]) == 2
    assert main(["failures", str(finished)]) == 2
    assert main(["export", str(finished), "--agents", str(tmp_path / "nodes")]) == 2


@pytest.mark.parametrize("record", [None, {}, {"length": 0}, {"length": "3"}, {"length": 4.0}])
def test_a_damaged_history_is_refused(finished: Path, record: Any) -> None:
    predictor = RunPredictor.from_folder(finished)
    described = predictor.described
    assert isinstance(described, HistoryRouter)
    with pytest.raises(RunFolderError):
        restore_history_router(described.instance, record, predictor.ensemble)
