"""A finished run of any application answers predict, audit, show and certify, and resumes alone."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import cg4ai
from cg4ai.cli.main import main
from cg4ai.routing.operate.failure_study import load_whole_router
from cg4ai.runs.files import read_json, write_json
from cg4ai.runs.folder import SPEAKS_OF
from experiments.digits.__main__ import main as digits_main
from finished_runs import ROUTE, sets
from small_network import NETWORK


@pytest.fixture(scope="module")
def runs(finished_runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the finished runs: tests here certify and resume them."""
    return Path(
        shutil.copytree(finished_runs, tmp_path_factory.mktemp("applications"), dirs_exist_ok=True)
    )


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def in_csv(value: object) -> str:
    """A value of JSON as it stands in a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value) if isinstance(value, float) else str(value)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_router_predicts_splits_by_name_and_utilisations(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demands.csv").write_text("b->d,a->d,note\n0.5,1.0,x\n0,0,y\n")
    assert main(["predict", str(runs / "route"), str(tmp_path / "demands.csv"), "--details"]) == 0
    shown = capsys.readouterr()
    first, second = table(shown.out)
    assert "of 2 answers are the router's" in shown.err
    splits = cg4ai.load(runs / "route").predict(np.array([[1.0, 0.5]]))[0]
    own = [float(value) for name, value in first.items() if name.startswith("a->d via ")]
    assert own == splits[: len(own)].tolist()
    assert sum(own) == pytest.approx(1)
    assert "a->d via a->d" in first
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


@pytest.mark.parametrize("name", ["train", "route"])
def test_predictions_in_json_are_those_in_csv(
    runs: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = {"train": "age,size", "route": "a->d,b->d"}[name]
    rows = [dict(zip(head.split(","), pair, strict=True)) for pair in ((0.4, 0.25), (900, 0))]
    piped = {
        "csv": "\n".join([head, "0.4,0.25", "900,0"]),
        "json": json.dumps(rows),
    }
    written = {}
    for read in piped:
        for form in ("csv", "json"):
            stream = io.TextIOWrapper(io.BytesIO(piped[read].encode()))
            monkeypatch.setattr("sys.stdin", stream)
            asked = ["--format", form, "--details", "--explain"]
            assert main(["predict", str(runs / name), "-", *asked]) == 0
            shown = capsys.readouterr()
            written[read, form] = shown.out
            where = "line 3" if read == "csv" else "row 2"
            assert "1 of 2 rows lie outside the region" in shown.err
            assert f"first on {where} of standard input" in shown.err
    assert written["csv", "csv"] == written["json", "csv"]
    content = json.loads(written["json", "json"], parse_constant=lambda word: pytest.fail(word))
    assert [row["outside the region"] for row in content["rows"]] == [False, True]
    assert len(content["warnings"]) == 1
    assert content["model"] == digest_of(runs / name / "ensemble.json")
    for plain, row in zip(table(written["csv", "csv"]), content["rows"], strict=True):
        assert list(plain) == list(row)
        for column, text in plain.items():
            assert text == in_csv(row[column])


def test_json_files_are_read_and_written(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.json").write_text('{"rows": [{"size": 0.5, "age": 0.5}]}')
    command = ["predict", str(runs / "train"), str(tmp_path / "in.json"), "--format", "json"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert list(json.loads(printed)["rows"][0]) == ["price", "outside the region"]
    assert main([*command, "--output", str(tmp_path / "out.json")]) == 0
    assert (tmp_path / "out.json").read_text() == printed


@pytest.mark.parametrize(
    ("name", "document", "words"),
    [
        ("train", '[{"size": 1}]', "no column 'age'"),
        ("train", '[{"size": 1, "ago": 1}]', "did you mean 'ago'"),
        ("train", '[{"size": 1, "age": "old"}]', "row 1, column 'age' is 'old', not a finite"),
        ("train", "[", "is not valid JSON"),
        ("route", '[{"a->d": 1, "b->d": -2}]', "row 1, column 'b->d' is -2, but demands are"),
        ("digits", '[{"pixel 0": 0}]', "no column 'pixel 1'"),
    ],
)
def test_bad_rows_get_one_line(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    document: str,
    words: str,
) -> None:
    (tmp_path / "in.json").write_text(document)
    assert main(["predict", str(runs / name), str(tmp_path / "in.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_fallback_is_for_routers(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", str(runs / "train"), str(runs / "house.csv"), "--fallback", "0.1"]
    assert main(command) == 2
    assert "a fallback is for routers" in capsys.readouterr().err


def test_a_router_is_audited_over_its_box_and_at_demands(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(runs / "route")]) == 0
    assert "The rule holds." in capsys.readouterr().out
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
    assert "Trained in" in capsys.readouterr().out
    again = ["--resume", "--out", str(runs / name)]
    assert (digits_main(again) if name == "digits" else main([name, *again])) == 0
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


def test_a_trained_table_says_how_good_it_is_beside_others(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(runs / "train")]) == 0
    shown = capsys.readouterr().out
    assert "R2 on 20 unseen rows" in shown
    assert "linear model" in shown
    score = json.loads((runs / "train" / "summary.json").read_text())["score"]
    assert score["plain"] > 0.8 > 0.1 > score["guess"]
    # the only rule holds over a box and is kept by a shield: what that costs is told all the same
    assert score["without_rules"] is not None
    assert f"without rules {score['without_rules']:.3f}" in shown


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
    assert main(["show", "--verbose", str(folder)]) == 0
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


@pytest.fixture
def older(runs: Path, tmp_path: Path) -> Path:
    """The router as a version with other settings left it."""
    folder = Path(shutil.copytree(runs / "route", tmp_path / "older"))
    header = read_json(folder / "run.json")
    settings = header["settings"]
    for former, name in (("lean", "prune"), ("sees", "agent_scope"), ("least", "min_demand")):
        settings[former] = settings.pop(name)
    settings |= {"stages": 3, "starts": 8, "attack_starts": 64, "layers": None}
    write_json(folder / "run.json", header)
    summary = read_json(folder / "summary.json")
    summary["sees"] = summary.pop("agent_scope")
    del summary[SPEAKS_OF]
    write_json(folder / "summary.json", summary)
    return folder


def test_runs_of_versions_with_other_settings_are_read(
    older: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demands.csv").write_text("a->d,b->d\n1.0,0.5\n")
    printed = []
    for folder in (older, runs / "route"):
        assert main(["predict", str(folder), str(tmp_path / "demands.csv")]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert main(["show", str(older)]) == 0
    shown = capsys.readouterr().out
    assert "agent_scope = all" in shown
    assert "attack_starts = 64" in shown  # what it was started with
    assert main(["report", str(older)]) == 0
    assert main(["explore", str(older), "--out", str(tmp_path / "older.html")]) == 0
    assert load_whole_router(older).settings == load_whole_router(runs / "route").settings


def test_runs_of_versions_with_other_settings_are_not_resumed(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", "--resume", "--out", str(older)]) != 0
    told = capsys.readouterr().err
    assert "was started by a version with other settings" in told
    assert "attack_starts" in told
