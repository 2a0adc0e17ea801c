"""A run killed at any moment and resumed ends exactly like one that was left alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.runs import files

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and POSIX signals")

ENSEMBLE = ("ensemble.json", "members.safetensors")
KILLS = 20


class Worker:
    """Talks to resume_worker.py."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("resume_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def run(self, arguments: list[str], **ending: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"arguments": arguments, **ending}), file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    started = Worker()
    yield started
    started.close()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that overlap; those on the wrong side must come out right all the same."""
    folder = tmp_path_factory.mktemp("inputs")
    generator = np.random.default_rng(0)
    points = generator.normal(size=(30, 2))
    labels = points[:, 0] + 0.5 * generator.normal(size=30) > 0
    lines = [
        f"{a!r},{b!r},{'yes' if label else 'no'}"
        for (a, b), label in zip(points.tolist(), labels, strict=True)
    ]
    (folder / "data.csv").write_text("a,b,kind\n" + "\n".join(lines) + "\n")
    wrong = np.flatnonzero((points[:, 0] > 0) != labels).tolist()
    assert len(wrong) >= 2
    rules = [
        {"rule": "probability", "rows": wrong, "at_least": 0.55},
        {
            "rule": "linear",
            "box": {"lower": {"a": 1.0}},
            "coefficients": {"yes": 1},
            "at_least": 0.6,
        },
    ]
    (folder / "rules.json").write_text(json.dumps(rules))
    return folder


def command(inputs: Path, out: Path, objective: str, *further: str) -> list[str]:
    return [
        *("train", str(inputs / "data.csv"), "--target", "kind"),
        *("--rules", str(inputs / "rules.json"), "--out", str(out)),
        *("--hidden", "3", "--steps", "15", "--restarts", "2", "--iteration-limit", "3"),
        *("--set", f"objective={objective}", "--set", "cut_rounds=1", "--set", "final_rounds=2"),
        *("--quiet", *further),
    ]


def outcome(out: Path) -> dict[str, Any]:
    """All of a finished run that must not depend on kills."""
    history = [record for _, record in files.read_lines(out / "history.jsonl")]
    summary = files.read_json(out / "summary.json")
    del summary["speaks_of"]  # of a history with seconds of its own
    timed = [name for name in summary if name == "seconds" or name.endswith("_s")]
    for name in timed:
        del summary[name]
    return {
        "files": {name: (out / name).read_bytes() for name in ENSEMBLE},
        "history": [
            {name: value for name, value in record.items() if not name.endswith("_s")}
            for record in history
        ],
        "summary": summary,
        "left over": sorted(path.name for path in out.rglob(".*.tmp")),
    }


@pytest.fixture(scope="module")
def references(
    worker: Worker, inputs: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """For both objectives an uninterrupted run: how it ended, and its processor time."""
    found = {}
    for objective in ("average", "mixture"):
        out = tmp_path_factory.mktemp("reference") / "run"
        answer = worker.run(command(inputs, out, objective))
        assert answer["code"] in (0, 3)
        found[objective] = {"objective": objective, "outcome": outcome(out), **answer}
        assert len(found[objective]["outcome"]["history"]) == 3
    return found


@pytest.fixture
def reference(references: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return references["mixture"]


def test_the_same_command_gives_the_same_files(
    worker: Worker, inputs: Path, reference: dict[str, Any], tmp_path: Path
) -> None:
    worker.run(command(inputs, tmp_path / "run", reference["objective"]))
    assert outcome(tmp_path / "run") == reference["outcome"]


def test_a_killed_run_ends_the_same(
    worker: Worker, inputs: Path, reference: dict[str, Any], tmp_path: Path
) -> None:
    arguments = command(inputs, tmp_path / "run", reference["objective"], "--resume")
    kill = {"seen": str(tmp_path / "run" / "history.jsonl"), "signal": "SIGKILL"}
    assert worker.run(arguments, **kill)["killed"]
    assert worker.run(arguments)["code"] == reference["code"]
    assert outcome(tmp_path / "run") == reference["outcome"]


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("objective", ["average", "mixture"])
def test_kills_at_random_moments(
    worker: Worker,
    inputs: Path,
    references: dict[str, dict[str, Any]],
    tmp_path: Path,
    objective: str,
) -> None:
    reference = references[objective]
    draw = random.Random(1)
    landed = 0
    for number in range(KILLS // 2):
        out = tmp_path / str(number)
        arguments = command(inputs, out, reference["objective"], "--resume")
        for _ in range(1 + number % 2):
            # one moment from each slice of the run, so that kills land all over it
            share = (number + draw.random()) / (KILLS // 2)
            landed += worker.run(arguments, cpu=share * reference["cpu"])["killed"]
        assert worker.run(arguments)["code"] == reference["code"]
        assert outcome(out) == reference["outcome"], f"kill {number}"
    assert landed >= KILLS // 4


@pytest.mark.slow
@pytest.mark.guard
def test_kills_around_each_kind_of_file_operation(
    worker: Worker, inputs: Path, references: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    reference = references["average"]
    operation, landed = 0, 0
    while True:
        out = tmp_path / str(operation)
        arguments = command(inputs, out, reference["objective"], "--resume")
        if not worker.run(arguments, kill_at=operation)["killed"]:
            break  # the whole run has fewer operations
        landed += 1
        assert worker.run(arguments)["code"] == reference["code"]
        assert outcome(out) == reference["outcome"], f"operation {operation}"
        operation += 11  # prime to the operations of one checkpoint, so all kinds are met
    assert landed >= 5


def test_interrupts_keep_what_was_reached(
    worker: Worker, inputs: Path, reference: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = command(inputs, out, reference["objective"], "--resume")
    answer = worker.run(arguments, seen=str(out / "history.jsonl"), signal="SIGINT")
    assert answer["code"] == 130
    summary = json.loads((out / "summary.json").read_text())
    assert summary["stop_reason"] == "interrupted"
    assert 0 < summary["iterations"] < len(reference["outcome"]["history"])
    assert worker.run(["predict", str(out), str(inputs / "data.csv")])["code"] == 0
    assert worker.run(arguments)["code"] == reference["code"]
    assert outcome(out) == reference["outcome"]


def test_an_interrupt_before_the_first_member_can_be_resumed(
    worker: Worker, inputs: Path, reference: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = command(inputs, out, reference["objective"], "--resume")
    assert worker.run(arguments, seen=str(out / "run.json"), signal="SIGINT")["code"] == 130
    history = out / "history.jsonl"
    assert not (history.exists() and history.read_bytes())
    assert worker.run(arguments)["code"] == reference["code"]
    assert outcome(out) == reference["outcome"]


def test_a_finished_run_resumes_to_itself_and_can_be_prolonged(
    worker: Worker, inputs: Path, reference: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    short = command(inputs, out, reference["objective"], "--iteration-limit", "2")
    worker.run(short)
    assert worker.run(short)["code"] == 2  # the folder is taken
    assert worker.run([*short, "--resume"])["code"] in (0, 3)
    assert len(outcome(out)["history"]) == 2
    worker.run(command(inputs, out, reference["objective"], "--resume"))
    assert outcome(out) == reference["outcome"]


def test_other_settings_or_data_are_refused(
    worker: Worker, inputs: Path, reference: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    worker.run(command(inputs, out, reference["objective"]))
    other = command(inputs, out, reference["objective"], "--resume", "--seed", "7")
    assert worker.run(other)["code"] == 2
    assert outcome(out) == reference["outcome"]
