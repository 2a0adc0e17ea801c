"""A finished run of any application answers predict, audit, show and certify, and resumes alone."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cg4ai
from cg4ai.apps.digits import digits
from cg4ai.cli.main import main
from cg4ai.runs.files import read_json, write_json
from small_network import NETWORK

ROUTE = (
    *("scenarios=30", "priced=50", "first_steps=60", "later_steps=30", "batch_size=64"),
    *("starts=2", "rounds=3", "validation=200", "attack_starts=4", "attack_vectors=500"),
)
DIGITS = ("group=12", "steps=120", "learning_rate=0.02", "batch_size=32", "blur=0.0", "rounds=2")


def sets(pairs: tuple[str, ...]) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `train`, `route` and `digits`, and the data of the first."""
    folder = tmp_path_factory.mktemp("applications")
    made = np.random.default_rng(0)
    x = made.uniform(size=(60, 2))
    y = 3 * x[:, 0] - x[:, 1] + 0.1 * made.normal(size=60)
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x.tolist(), y.tolist(), strict=True)]
    (folder / "house.csv").write_text("size,age,price\n" + "\n".join(lines) + "\n")
    rules = [{"rule": "linear", "name": "range", "box": {}, "at_least": -0.5, "at_most": 2.5}]
    (folder / "house.json").write_text(json.dumps(rules))
    (folder / "small.json").write_text(json.dumps(NETWORK))
    common = ["--quiet", "--threads", "1", "--out"]
    train = ["train", str(folder / "house.csv"), "--target", "price", "--steps", "60"]
    train += ["--rules", str(folder / "house.json"), "--hidden", "4", "--iteration-limit", "3"]
    route = ["route", str(folder / "small.json"), "--demands", "2", "--hidden", "6"]
    for name, command in (
        ("train", train),
        ("route", [*route, *sets(ROUTE)]),
        ("digits", ["digits", "hard", "--n", "20", *sets(DIGITS)]),
    ):
        assert main([*command, *common, str(folder / name)]) == 0
    (folder / "small.json").unlink()  # from now on the folder of the run must do
    return folder


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_router_predicts_splits_by_name_and_utilisations(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demands.csv").write_text("b->d,a->d,note\n0.5,1.0,x\n0,0,y\n")
    assert main(["predict", str(runs / "route"), str(tmp_path / "demands.csv"), "--details"]) == 0
    shown = capsys.readouterr()
    first, second = table(shown.out)
    assert shown.err == ""
    splits = cg4ai.load(runs / "route").predict(np.array([[1.0, 0.5]]))[0]
    own = [float(value) for name, value in first.items() if name.startswith("a->d via ")]
    assert own == splits[: len(own)].tolist()
    assert sum(own) == pytest.approx(1)
    assert "a->d via a-d" in first
    loads = [float(value) for name, value in first.items() if name.startswith("utilisation ")]
    assert float(first["mlu"]) == max(loads) > 0
    assert float(second["mlu"]) == 0


def test_predictions_are_explained_by_the_rules_of_their_run(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demands.csv").write_text("b->d,a->d\n0.5,1.0\n900,900\n")
    command = ["predict", str(runs / "route"), str(tmp_path / "demands.csv")]
    assert main([*command, "--details", "--explain"]) == 0
    first, second = table(capsys.readouterr().out)
    assert float(first["capacity: slack"]) == pytest.approx(1 - float(first["mlu"]))
    assert first["capacity: strength"] == "shielded"
    assert (second["capacity: slack"], second["capacity: strength"]) == ("", "unverified")
    assert 0 <= float(first["moved by the shield"]) <= 1
    assert main(["predict", str(runs / "train"), str(runs / "house.csv"), "--explain"]) == 0
    for row in table(capsys.readouterr().out):
        price = float(row["price"])
        assert float(row["range, at least: slack"]) == pytest.approx(price + 0.5)
        assert float(row["range, at most: slack"]) == pytest.approx(2.5 - price)
        assert row["range, at most: strength"] == "shielded"


def test_inputs_outside_the_region_are_marked_warned_of_once_and_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Demands 1.3 times the box gave a utilisation of 1.29 without a word."""
    box = json.loads((runs / "route" / "summary.json").read_text())["demand_max"]
    inside, outside = ",".join(map(str, box)), ",".join(str(1.3 * value) for value in box)
    (tmp_path / "demands.csv").write_text(f"a->d,b->d\n{inside}\n{outside}\n")
    command = ["predict", str(runs / "route"), str(tmp_path / "demands.csv")]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert [row["outside the region"] for row in table(shown.out)] == ["no", "yes"]
    assert shown.err.count("warning") == 1
    assert "1 of 2 rows" in shown.err
    assert main([*command, "--refuse-outside"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "line 3" in shown.err


def test_a_digit_classifier_predicts_and_is_audited_by_images(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = digits().split(20, 0)
    header = ",".join([*(f"pixel {number}" for number in range(784)), "label"])
    lines = [
        ",".join([*map(str, image.tolist()), str(label)])
        for image, label in zip(split.train_images, split.train_labels, strict=True)
    ]
    (tmp_path / "images.csv").write_text("\n".join([header, *lines]) + "\n")
    assert main(["predict", str(runs / "digits"), str(tmp_path / "images.csv")]) == 0
    rows = table(capsys.readouterr().out)
    assert [int(row["digit"]) for row in rows] == split.train_labels.tolist()
    assert {"logit 0", "logit 9"} <= set(rows[0])
    assert main(["predict", str(runs / "digits"), str(tmp_path / "images.csv"), "--explain"]) == 0
    explained = table(capsys.readouterr().out)
    for row in explained:
        scores = sorted(float(value) for name, value in row.items() if name.startswith("logit "))
        slack = scores[-1] - scores[-2]
        assert 0 <= float(row["required images: slack"]) <= slack + 1e-9
        assert row["required images: strength"] == "audited"
    for further in ([], ["--data", str(tmp_path / "images.csv")]):
        assert main(["audit", str(runs / "digits"), *further]) == 0
        assert "20 of 20" in capsys.readouterr().out


def test_a_router_is_audited_over_its_box_and_at_demands(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(runs / "route")]) == 0
    assert "1 of 1 requirements met" in capsys.readouterr().out
    (tmp_path / "demands.csv").write_text("a->d,b->d\n1,1\n100,100\n")
    asked = ["audit", str(runs / "route"), "--data", str(tmp_path / "demands.csv")]
    assert main(asked) == 3
    shown = capsys.readouterr().out
    assert "demands.csv, line 3, outside the region of the guarantee" in shown
    assert "capacity: link a->" in shown
    assert main([*asked, "--rules", "mine.json"]) == 2


@pytest.mark.parametrize("name", ["train", "route", "digits"])
def test_runs_are_shown_and_resumed_by_their_folder_alone(
    runs: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (runs / name / "members.safetensors").read_bytes()
    assert main(["show", str(runs / name)]) == 0
    assert "Stopped after" in capsys.readouterr().out
    assert main([name, "--resume", "--out", str(runs / name)]) == 0
    shown = capsys.readouterr()
    assert "resuming after" in shown.err
    assert "training" in shown.err  # in words, before the first iteration ends
    assert (runs / name / "members.safetensors").read_bytes() == before
    other = "route" if name != "route" else "train"
    assert main([other, "--resume", "--out", str(runs / name)]) == 2
    assert f"holds a run of '{name}'" in capsys.readouterr().err


def test_rules_are_proven_wherever_a_run_carries_some(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "route"):
        code = main(["certify", str(runs / name), "--time-limit", "5", "--quiet"])
        assert code in (0, 1)
        assert any(word in capsys.readouterr().out for word in ("PROVEN", "UNKNOWN", "REFUTED"))
    assert main(["certify", str(runs / "digits")]) == 2
    assert "nothing is left to prove" in capsys.readouterr().err


def test_a_trained_table_says_how_good_it_is_beside_others(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(runs / "train")]) == 0
    shown = capsys.readouterr().out
    assert "R2 on 20 rows that no member was trained on" in shown
    assert "a plain linear model" in shown
    score = json.loads((runs / "train" / "summary.json").read_text())["score"]
    assert score["plain"] > 0.8 > 0.1 > score["guess"]
    # the only rule holds over a box and is kept by a shield: what that costs is told all the same
    assert score["without_rules"] is not None
    assert f"without the rules {score['without_rules']:.3f}, so they cost" in shown


def test_a_mixture_that_knows_nothing_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every answer "no" came back as feasible without a word."""
    noise = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{a},{b},{'no' if i % 6 else 'yes'}" for i, (a, b) in enumerate(noise.tolist())]
    (tmp_path / "noise.csv").write_text("a,b,sick\n" + "\n".join(lines) + "\n")
    (tmp_path / "rules.json").write_text("[]")
    command = ["train", str(tmp_path / "noise.csv"), "--target", "sick", "--steps", "20"]
    command += ["--rules", str(tmp_path / "rules.json"), "--iteration-limit", "1", "--quiet"]
    assert main(command) == 0
    assert "no better than always guessing the majority" in capsys.readouterr().out


def test_a_file_of_demands_means_all_of_them_and_what_is_changed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.json").write_text(json.dumps(NETWORK))
    pairs = [("a", "d"), ("b", "d"), ("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]
    lines = [f"{s},{t},{1 + number}" for number, (s, t) in enumerate(pairs)]
    (tmp_path / "demands.csv").write_text("source,target,volume\n" + "\n".join(lines) + "\n")
    command = ["route", str(tmp_path / "small.json"), "--threads", "1", *sets(ROUTE)]
    command += ["--demand-file", str(tmp_path / "demands.csv")]
    assert main([*command, "--out", str(tmp_path / "all")]) in (0, 3)
    assert "multiplied by" in capsys.readouterr().err
    assert json.loads((tmp_path / "all" / "summary.json").read_text())["demands"] == 6
    assert main([*command, "--demands", "2", "--out", str(tmp_path / "two")]) in (0, 3)
    assert "of 6 demands the 2 largest" in capsys.readouterr().err


def test_a_router_proven_afterwards_is_shown_as_such(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` ended with a KeyError once `certify` had written the certificate."""
    folder = tmp_path / "proven"
    shutil.copytree(runs / "route", folder)
    summary = read_json(folder / "summary.json")
    entry = {"file": "certificate.cg4ai", "sha256": "0" * 64, "cells": 12, "seconds": 0.5}
    write_json(folder / "summary.json", {**summary, "strength": "certified", "certificate": entry})
    assert main(["show", str(folder)]) == 0
    assert "certified: 12 cells bounded in 0.5 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "name", "value", "command"),
    [
        ("summary.json", "stop_reason", "../../etc/passwd", "show"),
        ("summary.json", "total_s", {"a": 1}, "show"),
        ("summary.json", "shield", True, "show"),
        ("ensemble.json", "demand_max", 1e308, "audit"),
        ("ensemble.json", "paths", {"a": 1}, "audit"),
        ("ensemble.json", "path_demand", [0], "audit"),
        ("ensemble.json", "capacity", [1.0], "audit"),
    ],
)
def test_sealed_nonsense_about_a_router_gets_one_line(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    name: str,
    value: object,
    command: str,
) -> None:
    folder = tmp_path / "hostile"
    shutil.copytree(runs / "route", folder)
    content = read_json(folder / file)
    (content if file == "summary.json" else content["about"])[name] = value
    write_json(folder / file, content)
    assert main([command, str(folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_all_seconds_of_a_run_are_in_its_summary(runs: Path) -> None:
    """The network that digits train alone was in the total and in no step."""
    for name in ("route", "digits"):
        summary = read_json(runs / name / "summary.json")
        steps = [summary[f"{step}_s"] for step in ("preparing", "pricing", "separation", "master")]
        assert sum(steps) + summary["other_s"] == pytest.approx(summary["total_s"], rel=0.02)
