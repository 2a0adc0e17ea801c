"""Bounded changes: the bound, the capacities, and the smallest step where they need one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cg4ai.apps import CsvTable, LastAnswer, PredictionOptions, RunPredictor, read_table
from cg4ai.apps.json_tables import json_table
from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.records import Array
from cg4ai.routing import instance
from cg4ai.routing.network.description import Router
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.churn import ChurnLimit
from cg4ai.routing.operate.later_changes import judge_changes
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.granular import round_splits
from in_process import InProcess
from raising import raises

BOUND = 0.05


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance("polska", 8, 3)


def walk(made: Instance, count: int, seed: int, power: float = 3.0) -> tuple[Array, Array]:
    """Vectors near the corner of the set, and splits that fit at each of them."""
    random = np.random.default_rng(seed)
    vectors = made.demand_max * random.uniform(0, 1, (count, len(made.demand_max))) ** (1 / power)
    splits = made.find_optimal(vectors, splits=True).splits
    assert splits is not None
    return vectors, splits


def changes(made: Instance, new: Array, before: Array) -> Array:
    """(D,), one demand after the other."""
    return np.array([np.abs(new[own] - before[own]).sum() / 2 for own in made.blocks])


def mlu(made: Instance, vector: Array, split: Array) -> float:
    return float(made.compute_utilisation(vector, split).max())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bound", [0.0, 0.02, 0.3])
def test_answers_stay_near_and_yield_to_capacities_alone(
    made: Instance, bound: float, seed: int
) -> None:
    vectors, splits = walk(made, 60, seed)
    found = ChurnLimit(made, bound).limit(vectors, splits)
    assert not found.follows[0]
    assert np.array_equal(found.outputs[0], splits[0])
    assert made.compute_unrouted(found.outputs) <= 1e-12
    assert found.outputs.min() >= 0
    assert found.yielded.any()
    for row in range(1, len(vectors)):
        vector, before, now = vectors[row], found.outputs[row - 1], found.outputs[row]
        whole = changes(made, splits[row], before)
        moved = changes(made, now, before)
        assert mlu(made, vector, now) <= max(1.0, mlu(made, vector, splits[row])) + 1e-12
        assert found.changed[row] == pytest.approx(moved.max())
        assert found.moved[row] == pytest.approx(moved @ vector / vector.sum())
        share = np.minimum(1, bound / np.maximum(whole, 1e-12))[made.path_demand]
        held = before + share * (splits[row] - before)
        if not found.yielded[row]:
            np.testing.assert_allclose(moved, np.minimum(whole, bound), atol=1e-9)
            continue
        # the way from there to the new split: what is answered is its first point that fits
        assert mlu(made, vector, held) > 1
        steps = np.linspace(0, 1, 2001)
        way = held + steps[:, None] * (splits[row] - held)
        loads = made.compute_utilisation(np.tile(vector, (len(way), 1)), way).max(axis=1)
        first = int(np.argmax(loads <= 1.0))
        most = np.abs(way[first] - way[first - 1]).max()
        assert np.abs(now - way[first]).max() <= most + 1e-9


def test_splits_in_parts_move_by_whole_parts(made: Instance) -> None:
    vectors, plain = walk(made, 60, 5, power=1.0)
    splits = round_splits(plain, made.path_demand, 16)
    found = ChurnLimit(made, 0.13, parts=16).limit(vectors, splits)
    counts = 16 * found.outputs
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)
    assert made.compute_unrouted(found.outputs) <= 1e-12
    after = found.follows & ~found.yielded
    assert after.any()
    assert found.changed[after].max() <= 2 / 16 + 1e-12
    for row in range(1, len(vectors)):
        before, now = found.outputs[row - 1], found.outputs[row]
        assert (now >= np.minimum(before, splits[row]) - 1e-12).all()
        assert (now <= np.maximum(before, splits[row]) + 1e-12).all()
        whole = changes(made, splits[row], before)
        moved = changes(made, now, before)
        most = max(1.0, mlu(made, vectors[row], splits[row]))
        assert mlu(made, vectors[row], now) <= most + 1e-12
        if after[row]:
            np.testing.assert_allclose(moved, np.minimum(whole, 2 / 16), atol=1e-9)


def test_the_whole_bound_changes_nothing(made: Instance) -> None:
    vectors, splits = walk(made, 20, 0)
    found = ChurnLimit(made, 1.0).limit(vectors, splits)
    assert np.array_equal(found.outputs, splits)
    assert not found.limited.any()
    assert not found.yielded.any()


def test_splits_for_an_unknown_matrix_fit_at_the_corner(made: Instance) -> None:
    """Two splits that fit everywhere, half of one and half of the other by demand, need not."""
    roomy = replace(made, capacity=1.02 * made.capacity)
    _, splits = walk(made, 40, 1, power=400.0)
    fits = [split for split in splits if mlu(roomy, made.demand_max, split) <= 1]
    assert len(fits) > 5
    limit = ChurnLimit(roomy, 0.01, corner=made.demand_max)
    found = limit.limit(np.ones((len(fits), 8)), np.array(fits))
    corner = np.broadcast_to(made.demand_max, (len(fits), 8))
    assert roomy.compute_utilisation(corner, found.outputs).max() <= 1 + 1e-12


def test_the_answer_before_is_known_by_the_names_of_its_paths(made: Instance) -> None:
    vectors, splits = walk(made, 2, 2)
    names = tuple(map(str, range(len(made.path_demand))))
    limit = ChurnLimit(made, BOUND)
    together = limit.limit(vectors, splits)
    order = np.random.default_rng(0).permutation(len(names))
    last = LastAnswer([names[at] for at in order], splits[0][order])
    alone = limit.limit(vectors[1:], splits[1:], last, names=names)
    np.testing.assert_allclose(alone.outputs[0], together.outputs[1], atol=1e-12)
    # what was on a path that is lost goes where the new split sends it
    own = made.blocks[0]
    lost = np.flatnonzero(np.arange(len(names)) != own[0])
    fewer = LastAnswer([names[at] for at in lost], splits[0][lost])
    found = limit.limit(vectors[1:], splits[1:], fewer, names=names)
    expected = splits[0].copy()
    expected[own[0]] = 0
    expected[own] += (1 - expected[own].sum()) * splits[1][own]
    assert changes(made, found.outputs[0], expected).max() <= BOUND + 1e-12 or found.yielded[0]
    assert made.compute_unrouted(found.outputs) <= 1e-12


def test_changes_are_judged_in_order_of_time(made: Instance) -> None:
    vectors, splits = walk(made, 30, 3)
    limit, inside = ChurnLimit(made, BOUND), np.ones(30, bool)
    judged = judge_changes(limit, vectors, lambda some: splits[some], inside=inside)
    whole = limit.limit(vectors, splits)
    np.testing.assert_allclose(
        judged.mlu, made.compute_utilisation(vectors, whole.outputs).max(axis=1)
    )
    free = [
        changes(made, splits[row], splits[row - 1]) @ vectors[row] / vectors[row].sum()
        for row in range(1, 30)
    ]
    assert judged.found["mean_moved_without"] == pytest.approx(np.mean(free))
    assert judged.found["yielded"] == pytest.approx(whole.yielded.mean())
    assert judged.found["worst_utilisation"] <= 1 + 1e-9


@pytest.mark.parametrize("bound", [-0.1, 1.5, float("nan")])
def test_bounds_that_are_no_shares_are_refused(made: Instance, bound: float) -> None:
    with raises(InvalidInput, "range", "churn"):
        ChurnLimit(made, bound)


def test_a_bound_below_one_part_is_refused(made: Instance) -> None:
    with raises(InvalidInput, "range", "granularity 8"):
        ChurnLimit(made, 0.1, parts=8)
    ChurnLimit(made, 0.125, parts=8)
    ChurnLimit(made, 0.0, parts=8)
    for further in ({"granularity": 8}, {"agent_scope": "own"}, {"objective": "cost"}):
        with pytest.raises(InvalidSettings, match="churn"):
            RouteSettings.from_mapping({"network": "n", "churn": BOUND, **further})
    with raises(InvalidInput, "unsupported"):
        Router(made, agents=True).limit_changes(np.zeros((1, 8)), np.zeros((1, 24)), None, churn=1)


ROWS = [{"a->d": a, "b->d": b} for a, b in ((1, 1), (9, 1), (1, 4), (2, 2), (9, 4))]


def test_the_commands_go_on_from_an_earlier_answer(
    finished_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All rows at once, or one by one from what was written before: the same."""
    data, out = tmp_path / "rows.json", tmp_path / "whole.csv"
    data.write_text(json.dumps(ROWS))
    run = str(finished_runs / "route")
    assert main(["predict", run, str(data), "--churn", "0.05", "--output", str(out)]) == 0
    assert "churn: " in capsys.readouterr().err
    whole = read_table(out)
    for number, row in enumerate(ROWS):
        data.write_text(json.dumps([row]))
        before = ["--previous", str(tmp_path / "last.json")] if number else []
        asked = ["predict", run, str(data), "--churn", "0.05", *before, "--format", "json"]
        assert main(asked) == 0
        text = capsys.readouterr().out
        (tmp_path / "last.json").write_text(text)
        (answer,) = json.loads(text)["rows"]
        names = [name for name in answer if " via " in name]
        expected = [float(whole.cells_of(name)[number]) for name in names]
        assert [answer[name] for name in names] == pytest.approx(expected, abs=1e-12)
    for wrong in (["--no-churn", "--churn", "1"], ["--previous", str(out)], ["--churn", "2"]):
        assert main(["predict", run, str(data), *wrong]) == 2
        capsys.readouterr()


def test_a_server_keeps_the_last_answer(finished_runs: Path) -> None:
    pytest.importorskip("fastapi")
    from cg4ai.serve.service import Service
    from cg4ai.serve.web import make_app

    predictor = RunPredictor.from_folder(finished_runs / "route")
    table = read_rows(ROWS)
    whole = predictor.predict(table, PredictionOptions(churn=BOUND)).mark_rows()
    service = Service(finished_runs / "route")
    with InProcess(make_app(service)) as server:
        for row, expected in zip(ROWS, whole, strict=True):
            asked = {"rows": [{**row, "b->c": 1}], "churn": BOUND}
            answer = server.post("/predict", json=asked).json()
            assert answer["rows"][0] == pytest.approx(expected)
            assert any("b->c" in text for text in answer["warnings"])
        refused = server.post("/predict", json={"rows": ROWS, "churn": 2})
        assert refused.status_code == 422
        counted = server.get("/metrics").text
    held = sum(row["yielded"] for row in whole)
    assert f'cg4ai_changes_total{{outcome="yielded"}} {float(held)}' in counted


def read_rows(rows: list[dict[str, int]]) -> CsvTable:
    return json_table(json.loads(json.dumps(rows), parse_int=str), Path("rows"))
