"""Predictions for a table: what is unknown or beyond all numbers, and giving up on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.apps.json_tables import json_table
from cg4ai.apps.predictions import OUTSIDE, TOGETHER, PredictionOptions, RunPredictor
from cg4ai.errors import RunFolderError
from cg4ai.routing.network.description import Router
from raising import raises

WHERE = Path("the rows")


def table(*rows: dict[str, str]) -> Any:
    return json_table(list(rows), WHERE)


def test_loads_beyond_all_numbers_are_unknown_in_json(finished_runs: Path) -> None:
    """They overflowed with a warning, which is an error to some."""
    loaded = RunPredictor.from_folder(finished_runs / "route")
    assert isinstance(loaded.described, Router)
    made = loaded.described.instance
    narrow = replace(loaded.described, instance=replace(made, capacity=made.capacity / 1e3))
    predictor = RunPredictor(loaded.ensemble, narrow, "digest")
    found = predictor.predict(
        table({"a->d": "1e308", "b->d": "1e308"}), PredictionOptions(details=True, fallback=None)
    )
    (row,) = json.loads(found.as_json("digest"))["rows"]
    assert row["mlu"] is None
    assert row["outside the region"] is True


def test_answers_name_paths_and_count_what_a_shield_moved(finished_runs: Path) -> None:
    """One row, answered by itself, and in a table: the same but for rounding."""
    predictor = RunPredictor.from_folder(finished_runs / "route")
    assert predictor.ensemble.answers_singly
    rows = [{"a->d": str(volume), "b->d": "1.5"} for volume in (0.0, 2.0, 3.9, 4.0, 11.0)]
    together = predictor.predict(table(*rows), PredictionOptions(), count_moved=True)
    moved = 0
    for row, known in zip(rows, together.rows, strict=True):
        found = predictor.predict(table(row), PredictionOptions(), count_moved=True)
        assert found.moved is not None
        moved += found.moved
        answer = json.loads(found.as_json("digest"))
        assert answer["paths"] == {k: list(v) for k, v in predictor.described.paths.items()}
        assert {**answer["rows"][0]} == pytest.approx({**known, OUTSIDE: row["a->d"] == "11.0"})
    assert moved == together.moved


def test_rows_are_solved_in_portions_and_it_is_asked_between_them_whether_to_go_on(
    finished_runs: Path,
) -> None:
    predictor = RunPredictor.from_folder(finished_runs / "route")
    rows = [{"a->d": str(9 - number / 100), "b->d": "4"} for number in range(2 * TOGETHER + 1)]
    asked = 0

    def pause() -> None:
        nonlocal asked
        asked += 1

    whole = predictor.predict(
        table(*rows), PredictionOptions(fallback=0.0, details=True), pause=pause
    )
    assert asked >= 3
    assert len(whole.rows) == len(rows)
    assert all(row["above the optimum at most"] <= 1e-9 for row in whole.rows)
    alone = predictor.predict(table(rows[-1]), PredictionOptions(fallback=0.0, details=True))
    assert alone.rows[0]["mlu"] == pytest.approx(whole.rows[-1]["mlu"], abs=1e-9)

    class Enough(Exception):
        pass

    def enough() -> None:
        raise Enough

    with pytest.raises(Enough):
        predictor.predict(table(*rows), PredictionOptions(), pause=enough)


def test_answers_outside_the_set_come_from_the_program_and_are_counted(finished_runs: Path) -> None:
    """By default; the last row is outside and cannot be carried, the one before can."""
    predictor = RunPredictor.from_folder(finished_runs / "route")
    assert isinstance(predictor.described, Router)
    made = predictor.described.instance
    largest = made.demand_max
    vectors = np.array([0.5 * largest, [1.01 * largest[0], 0.1], 2 * largest])
    rows = table(*({"a->d": str(a), "b->d": str(b)} for a, b in vectors.tolist()))
    found = predictor.predict(rows, PredictionOptions(details=True))
    best = made.find_optimal(vectors).mlu
    assert best[1] < 1 < best[2]
    for row, mlu in zip(found.rows[1:], best[1:], strict=True):
        assert row["mlu"] == pytest.approx(mlu, rel=1e-6)
        assert row["above the optimum at most"] <= 1e-6
        assert row["solved"]
        assert row["overloaded"] == (mlu > 1 + 1e-6)
    data = json.loads(found.as_json("digest"))["fallback"]
    assert (data["gap"], data["outside"], data["outside_overloaded"]) == (0.02, 2, 1)
    assert data["router"] + data["improved"] + data["solved"] == 3
    assert "neighbouring" in data["statement"]
    plain = predictor.predict(rows, PredictionOptions(fallback=None))
    expected = predictor.ensemble.predict(vectors, outside="ignore")
    assert np.array([list(row.values()) for row in plain.rows]) == pytest.approx(expected)
    assert json.loads(plain.as_json("digest"))["fallback"]["gap"] is None


def test_runs_of_agents_costs_or_earlier_versions_answer_as_they_are(finished_runs: Path) -> None:
    predictor = RunPredictor.from_folder(finished_runs / "route")
    assert isinstance(predictor.described, Router)
    rows = table({"a->d": "99", "b->d": "1"})
    for change, why in (
        ({"agents": True}, "all demands at once"),
        ({"bound": None}, "no prices of links"),
        ({"gap": None}, "switched off"),  # by --fallback none, or before it was usual
    ):
        other = replace(predictor, described=replace(predictor.described, **change))
        found = other.predict(rows, PredictionOptions())
        assert "solved" not in found.rows[0]
        assert found.fallback is not None
        assert why in found.fallback.as_data()["why"]
        assert bool(found.fallback.format_lines()) == (why != "switched off")


def test_a_run_that_changes_while_it_is_read_is_not_taken(
    finished_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = iter(["one", "other"])
    monkeypatch.setattr("cg4ai.apps.predictions.read_digest", lambda folder: next(digests))
    with raises(RunFolderError, "altered"):
        RunPredictor.from_folder(finished_runs / "train")
