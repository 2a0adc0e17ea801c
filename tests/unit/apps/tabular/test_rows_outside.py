"""Rows outside a region are warned of for the rules that are restricted to it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.apps.json_tables import json_table
from cg4ai.apps.predictions import PredictionOptions, RunPredictor
from cg4ai.cli.main import main

EVERYWHERE: list[dict[str, Any]] = [
    {"rule": "monotone", "name": "rises", "features": {"size": 1}},
    {"rule": "range", "name": "ends", "at_least": -1.0, "at_most": 3.0},
]
CAP = {"rule": "linear", "name": "cap", "box": {}, "at_most": 2.5}
LISTED = {"rule": "linear", "name": "cases", "rows": [0, 1], "at_least": -5}


def trained(folder: Path, rules: list[dict[str, Any]]) -> Path:
    made = np.random.default_rng(0)
    x = made.uniform(size=(60, 2))
    y = 3 * x[:, 0] - x[:, 1] + 0.1 * made.normal(size=60)
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]
    (folder / "house.csv").write_text("size,age,price\n" + "\n".join(lines) + "\n")
    (folder / "house.json").write_text(json.dumps(rules))
    train = ["train", str(folder / "house.csv"), "--target", "price", "--steps", "30"]
    train += ["--rules", str(folder / "house.json"), "--hidden", "4", "--iteration-limit", "2"]
    assert main([*train, "--quiet", "--threads", "1", "--out", str(folder / "run")]) == 0
    return folder / "run"


FAR = [{"size": 0.5, "age": 0.5}, {"size": 7.0, "age": 0.5}]


def test_rules_at_every_input_are_not_doubted_outside_the_training_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, [*EVERYWHERE, LISTED])
    capsys.readouterr()
    (tmp_path / "far.json").write_text(json.dumps(FAR))
    command = ["predict", str(run), str(tmp_path / "far.json"), "--refuse-outside"]
    assert main([*command, "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    found = json.loads(shown.out)
    assert found["warnings"] == []
    assert [row["outside the region"] for row in found["rows"]] == [False, False]
    assert RunPredictor.from_folder(run).described.interface().region == ""


def test_the_rules_that_say_nothing_of_a_row_are_named(tmp_path: Path) -> None:
    predictor = RunPredictor.from_folder(trained(tmp_path, [EVERYWHERE[1], CAP]))
    cells = [{name: str(value) for name, value in row.items()} for row in FAR]
    found = predictor.predict(json_table(cells, Path("rows")), PredictionOptions())
    assert found.outside.tolist() == [False, True]
    assert "in which cap was established" in found.warning
    assert "cap is not guaranteed there" in found.warning
    assert "ends" not in found.warning
    assert predictor.described.interface().region == "the region of cap"
