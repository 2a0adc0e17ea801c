"""The command line of digits: made from the package's, for runs that the package does not know."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import cg4ai
from cg4ai.runs.files import read_json, write_json
from experiments.digits import PROGRAM, digits
from experiments.digits.__main__ import app, main


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def run(finished_runs: Path) -> Path:
    """A finished run of digits, to be read."""
    return finished_runs / "digits"


def test_every_command_has_help_with_an_example() -> None:
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0
    for name in ("show", "predict", "audit", "certify", "explore", "report", "export", "patch"):
        assert f"  {name} " in listed.stdout
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert f"{PROGRAM} {name} " in shown.stdout.split("Example")[1]
    for name in ("train", "hard", "--augment"):  # the scenario, or an option, in place of train
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert f"{PROGRAM} hard --n 100" in shown.stdout.split("Example")[1]
    shown = CliRunner().invoke(app, ["reproduce", "--help"])
    assert f"{PROGRAM} reproduce main " in shown.stdout.split("Example")[1]


def test_a_digit_classifier_predicts_and_is_audited_by_images(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = digits().split(20, 0)
    header = ",".join([*(f"pixel {number}" for number in range(784)), "label"])
    lines = [
        ",".join([*map(str, image.tolist()), str(label)])
        for image, label in zip(split.train_images, split.train_labels, strict=True)
    ]
    (tmp_path / "images.csv").write_text("\n".join([header, *lines]) + "\n")
    assert main(["predict", str(run), str(tmp_path / "images.csv")]) == 0
    rows = table(capsys.readouterr().out)
    assert [int(row["digit"]) for row in rows] == split.train_labels.tolist()
    assert {"logit 0", "logit 9"} <= set(rows[0])
    assert main(["predict", str(run), str(tmp_path / "images.csv"), "--explain"]) == 0
    explained = table(capsys.readouterr().out)
    for row in explained:
        scores = sorted(float(value) for name, value in row.items() if name.startswith("logit "))
        slack = scores[-1] - scores[-2]
        assert 0 <= float(row["required images: slack"]) <= slack + 1e-9
        assert row["required images: strength"] == "audited"
    # without answers images are compared with those that the run requires
    images = [line.rpartition(",")[0] for line in (header, *lines[:3], ",".join(["0.5"] * 785))]
    (tmp_path / "bare.csv").write_text("\n".join(images) + "\n")
    assert main(["predict", str(run), str(tmp_path / "bare.csv"), "--explain"]) == 0
    *known, other = table(capsys.readouterr().out)
    for row, same in zip(known, explained, strict=False):
        slack = float(same["required images: slack"])
        assert float(row["required images: slack"]) == pytest.approx(slack, abs=1e-9)
    assert (other["required images: slack"], other["required images: strength"]) == (
        "",
        "unverified",
    )
    for further in ([], ["--data", str(tmp_path / "images.csv")]):
        assert main(["audit", str(run), *further]) == 0
        assert "on the 20 listed inputs (recomputed)" in capsys.readouterr().out


def test_there_is_nothing_to_prove(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", str(run)]) == 2
    assert "nothing is left to prove" in capsys.readouterr().err


def test_the_package_alone_says_whose_run_it_is(run: Path, tmp_path: Path) -> None:
    """And shows what it knows of it; its ensemble is read by all."""
    code = "import sys; from cg4ai.cli.main import main; sys.exit(main(sys.argv[1:]))"

    def alone(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
        )

    shown = alone("show", str(run))
    assert shown.returncode == 0, shown.stderr
    assert f"{PROGRAM} show {run}" in shown.stdout
    (tmp_path / "images.csv").write_text("pixel 0\n0.5\n")
    refused = alone("predict", str(run), str(tmp_path / "images.csv"))
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert PROGRAM in line
    assert alone("digits", "hard").returncode == 2
    assert cg4ai.load(run).predict(np.zeros((2, 784))).shape == (2, 10)


def test_an_unfinished_run_is_continued_here(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = Path(shutil.copytree(run, tmp_path / "run"))
    summary = read_json(stopped / "summary.json")
    write_json(stopped / "summary.json", summary | {"stop_reason": "interrupted"})
    assert main(["show", str(stopped)]) == 0
    assert f"{PROGRAM} train --resume --out {stopped}" in capsys.readouterr().out
