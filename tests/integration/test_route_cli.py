"""`cg4ai route` and `cg4ai reproduce routing` end to end, on small training budgets."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

import cg4ai
from cg4ai.cli import main
from cg4ai.routing import guarantee, saved, train
from cg4ai.routing.problem import Recipe

NETWORK = {
    "directed": True,
    "multigraph": False,
    "graph": {"demands": {"a": {"d": 4.0}, "b": {"d": 2.0}}},
    "nodes": [{"id": name} for name in "abcd"],
    "links": [
        {"source": s, "target": t, "capacity": 5.0, "length": 1.0}
        for s, t in ("ab", "ac", "ad", "bd", "cd", "bc")
    ],
}
KEPT, BAD_INPUT, NOT_KEPT = 0, 2, 3


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "VALIDATION", 300)
    tiny = functools.partial(
        Recipe, scenarios=30, priced=50, first_steps=60, later_steps=30, batch_size=64, starts=2
    )
    monkeypatch.setattr(saved, "Recipe", tiny)
    (tmp_path / "small.json").write_text(json.dumps(NETWORK))
    return tmp_path


def route(*further: str) -> int:
    return main(["route", "small.json", "--demands", "2", "--threads", "1", *further])


def test_route_trains_reports_and_saves(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--out", "run", "--hidden", "5", "--layers", "2") == KEPT
    shown = capsys.readouterr()
    assert "No demand vector in the box was found that overloads a link" in shown.out
    assert "plain networks" in shown.out
    assert "iteration" in shown.err
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert (summary["demands"], summary["paths"], summary["load"]) == (2, 3, 0.99)
    settings = json.loads((work / "run" / "run.json").read_text())["settings"]
    assert settings["recipe"]["hidden"] == [5, 5]
    splits = cg4ai.load("run").predict(np.array([[1.0, 0.5]]))
    assert splits.sum() == pytest.approx(2.0)
    assert main(["show", "run"]) == 0


def test_folder_in_use_resume_and_force(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--out", "run", "--quiet") == KEPT
    first = json.loads((work / "run" / "summary.json").read_text())
    assert route("--out", "run", "--quiet") == BAD_INPUT
    assert "already holds a run" in capsys.readouterr().err
    assert route("--out", "run", "--resume", "--seed", "1") == BAD_INPUT
    assert "seed: the run has 0, now 1" in capsys.readouterr().err
    assert route("--out", "run", "--resume", "--quiet") == KEPT
    again = json.loads((work / "run" / "summary.json").read_text())
    for key in ("iterations", "columns", "rows", "worst_utilisation", "mean_mlu_gap"):
        assert again[key] == first[key]
    assert route("--out", "run", "--force", "--seed", "1", "--quiet") == KEPT


def test_json_lines(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--json") == KEPT
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events][-2:] == ["message", "result"]
    assert events[-1]["worst_utilisation"] <= 1 + 1e-6


def test_an_overload_ends_with_its_own_code(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The published method after a moment of training overloads a link, and says so."""
    from cg4ai.commands import route as command

    wanted = saved.Wanted(
        network="abilene",
        mode="paper",
        threads=1,
        time_limit_s=0.5,
        recipe=Recipe(objective="split", separator="nlopt", hidden=(4,), skip=False),
    )
    monkeypatch.setattr(saved, "paper_problem", functools.partial(saved.paper_problem, epochs=3))
    assert command.run(wanted, command.RouteOptions(progress="quiet")) == NOT_KEPT
    assert "NOT KEPT: a demand vector was found that loads link" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["abilen"], "did you mean 'abilene'"),
        (["small.json", "--objective", "mlo"], "objective must be one of mlu, split, cost"),
        (["small.json", "--hidden", "0"], "--hidden must be 1 or more"),
        (["small.json", "--resume"], "--resume and --force need --out"),
        (["small.json", "--demands", "3"], "it has 2; ask for fewer"),
        (["small.json", "--demands", "2", "--load", "1.5"], "cannot be routed together"),
    ],
)
def test_bad_input(
    work: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", *arguments]) == BAD_INPUT
    assert message in capsys.readouterr().err


def test_reproduce_resumes_and_writes_tables(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "routing", "polska-5-3", "--out", "runs", "--threads", "1"]
    code = main([*arguments, "--time-limit", "1"])
    assert code in (KEPT, NOT_KEPT)
    shown = capsys.readouterr()
    assert "[1/1] polska-5-3: " in shown.err
    table = (work / "runs" / "table.md").read_text()
    assert "| polska | 5 | 3 |" in table
    summary = (work / "runs" / "polska-5-3" / "summary.json").read_bytes()
    assert main([*arguments, "--time-limit", "1"]) == code
    assert "there already" in capsys.readouterr().err
    assert (work / "runs" / "polska-5-3" / "summary.json").read_bytes() == summary
    # more time is used, on top of what was done
    assert main([*arguments, "--time-limit", "2"]) in (KEPT, NOT_KEPT)
    assert (work / "runs" / "polska-5-3" / "summary.json").read_bytes() != summary
    assert main(["reproduce", "routing", "polska-5-4"]) == BAD_INPUT


def test_a_certified_router_comes_with_a_certificate_that_another_program_accepts(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--guarantee", "certified", "--hidden", "6", "--out", "proven") == KEPT
    assert "PROVEN" in capsys.readouterr().out
    summary = json.loads((work / "proven" / "summary.json").read_text())
    assert (summary["strength"], summary["proof"]["status"]) == ("certified", "proven")
    assert main(["check", "proven/certificate.cg4ai", "--run", "proven"]) == 0
    router = cg4ai.load("proven")
    inside = np.array([[1.0, 0.5], [0.0, 0.0]])
    assert list(router.predict(inside, explain=True).labels) == ["certified", "certified"]
    outside = router.predict(np.array([[1e6, 0.0]]), explain=True)
    assert list(outside.labels) == ["unverified"]


def test_a_shielded_router_keeps_capacity_whatever_it_learned(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarantee, "SHIELD_INPUTS", 4000)
    assert route("--guarantee", "shielded", "--out", "shielded") == KEPT
    assert "shielded" in capsys.readouterr().out
    summary = json.loads((work / "shielded" / "summary.json").read_text())
    assert summary["strength"] == "shielded"
    assert summary["shield"]["worst"] <= 1 + 1e-9
    router = cg4ai.load("shielded")
    labels = router.predict(np.array([[0.5, 0.5]]), explain=True).labels
    assert list(labels) == ["shielded"]


def test_a_proof_needs_the_objective_it_trains_by(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--guarantee", "certified", "--objective", "split") == BAD_INPUT
    assert "mlu objective" in capsys.readouterr().err
    assert route("--guarantee", "proven") == BAD_INPUT
    assert "attacked, certified, shielded" in capsys.readouterr().err
