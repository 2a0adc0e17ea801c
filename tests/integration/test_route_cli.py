"""`cg4ai route` and `cg4ai reproduce routing` end to end, on small training budgets."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from cg4ai.apps.runner import perform
from cg4ai.cli.main import main
from cg4ai.proofs import solve_certified as certified
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.proofs.pricer import ProofTraining
from cg4ai.proofs.prover import Prover
from cg4ai.routing import app as routing
from cg4ai.routing.app import Routing
from cg4ai.routing.network.description import restore_instance
from cg4ai.routing.prove import ratio_proof
from cg4ai.runs import files
from cg4ai_checker import Rejected
from experiments.routing import reproduce
from experiments.routing.__main__ import main as experiment
from experiments.routing.paper_mode import PaperRouting, PaperSettings
from small_network import NETWORK, TINY

pytestmark = pytest.mark.usefixtures("quick_evaluation")

KEPT, BAD_INPUT, NOT_KEPT, INTERRUPTED = 0, 2, 3, 130


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.json").write_text(json.dumps(NETWORK))
    return tmp_path


MEASURED: dict[str, Any] = {  # an evaluation in a moment, of trainings that a limit ends
    "scenarios": 30,
    "priced": 200,
    "validation": 200,
}
SHORT = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]


def route(*further: str) -> int:
    return main(["route", "small.json", "--demands", "2", "--threads", "1", *SHORT, *further])


def test_route_trains_reports_and_saves(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--out", "run", "--hidden", "5,5", "--baseline") == KEPT
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1].startswith("Saved in run.")
    assert "The rule holds." in shown.out
    assert "plain networks" in shown.out
    assert "iteration" in shown.err
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert (summary["demands"], summary["paths"], summary["load"]) == (2, 3, 0.99)
    settings = json.loads((work / "run" / "run.json").read_text())["settings"]
    assert settings["hidden"] == [5, 5]
    splits = cg4ai.load("run").predict(np.array([[1.0, 0.5]]))
    assert splits.sum() == pytest.approx(2.0)
    assert main(["show", "run"]) == 0


def test_folder_in_use_resume_and_force(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--out", "run", "--quiet") == KEPT
    first = json.loads((work / "run" / "summary.json").read_text())
    assert route("--out", "run", "--quiet") == BAD_INPUT
    shown = capsys.readouterr().err
    assert "already holds a run" in shown
    assert "--force" in shown
    assert route("--out", "run", "--resume", "--seed", "1") == BAD_INPUT
    assert "seed: the run has 0, now 1" in capsys.readouterr().err
    assert route("--out", "run", "--resume", "--quiet") == KEPT
    again = json.loads((work / "run" / "summary.json").read_text())
    for key in ("iterations", "columns", "rows", "worst_utilisation", "mean_mlu_gap"):
        assert again[key] == first[key]
    assert route("--out", "run", "--force", "--seed", "1", "--quiet") == KEPT


def test_volumes_as_given(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--load", "none", "--objective", "cost", "--baseline", "--verbose"]
    assert route(*asked, "--out", "run", "--quiet") == KEPT
    shown = capsys.readouterr().out
    assert "the network's volumes as given" in shown
    assert "constant split" in shown
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert (summary["load"], summary["scale"], summary["demand_max"]) == (None, 1.0, [4.0, 2.0])
    assert summary["plain_mean_cost_gap"] >= -1e-9


def test_longer_links_are_another_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--out", "run", "--quiet") == KEPT
    links = NETWORK["links"]
    assert isinstance(links, list)
    longer = NETWORK | {"links": [link | {"length": 2.0} for link in links]}
    (work / "small.json").write_text(json.dumps(longer))
    assert route("--out", "run", "--quiet", "--resume") == BAD_INPUT
    assert "other data: path_length differ" in capsys.readouterr().err


def test_interrupted_while_evaluating(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The router is there already, and the command that is printed goes on."""
    with monkeypatch.context() as patch:
        patch.setattr(routing, "evaluate", interrupted)
        assert route("--out", "run", "--quiet") == INTERRUPTED
    assert "continue with: cg4ai route --resume --out run" in capsys.readouterr().err
    before = cg4ai.load("run").predict(np.array([[1.0, 0.5]]))
    (work / "small.json").unlink()  # the folder knows the network
    assert main(["route", "--resume", "--out", "run"]) == KEPT
    np.testing.assert_array_equal(cg4ai.load("run").predict(np.array([[1.0, 0.5]])), before)


def interrupted(*given: object, **named: object) -> None:
    raise KeyboardInterrupt


def test_json_lines(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert route("--json") == KEPT
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events][-2:] == ["message", "result"]
    assert events[-1]["worst_utilisation"] <= 1 + 1e-6


def test_an_overload_ends_with_its_own_code(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The published method after a moment of training overloads a link, and says so."""
    asked = PaperSettings(
        network="abilene", threads=1, hidden=(4,), rounds=8, epochs=3, labels=200, **MEASURED
    )
    outcome = perform(PaperRouting(), asked, out=work / "run")
    assert outcome.evaluation is not None
    assert not outcome.evaluation.kept
    print(Routing().story(outcome.summary).headline)
    assert "NOT kept" in capsys.readouterr().out
    assert json.loads((work / "run" / "summary.json").read_text())["strength"] == "violated"
    assert main(["show", "run"]) == 0
    assert "VIOLATED: a demand vector loads link" in capsys.readouterr().out


def test_no_router_at_all_is_a_failure(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The published method needs an iteration per demand before there is a mixture."""
    arguments = ["abilene-5-3", "--mode", "paper", "--time-limit", "1e-6"]
    assert experiment([*arguments, "--out", "runs", "--threads", "1"]) == NOT_KEPT
    assert "before every block had a member" in capsys.readouterr().err
    assert "| abilene | 5 | 3 | no result |" in (work / "runs" / "table.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["abilen"], "did you mean 'abilene'"),
        (["small.json", "--objective", "mlo"], "objective must be one of mlu, split, cost"),
        (["small.json", "--hidden", "0"], "hidden must lie in [1, 4096], got 0"),
        (["small.json", "--resume"], "--resume and --force need --out"),
        (["small.json", "--demands", "3"], "it has 2; ask for fewer"),
        (["small.json", "--demands", "2", "--load", "1.5"], "cannot be routed together"),
        (["small.json", "--load", "much"], "load must be a number"),
        (["big.json", "--demands", "2", "--load", "none"], "must cross them: a->d 4"),
        (["small.json", "--device", "tpu"], "device must be cpu, cuda"),
        (["small.json", "--seed", "-1"], "seed must lie in"),
        (["small.json", "--time-limit", "0"], "time_limit_s must be at least"),
        (["small.json", "--prune", "2"], "prune must lie in [0, 1], got 2"),
        (["small.json", "--prune", "0.1", "--guarantee", "certified"], "prune has no meaning"),
        (["small.json", "--hidden", "999999999999"], "hidden must lie in [1, 4096]"),
        (["small.json", "--threads", "100000"], "threads must lie in [1, 256], got 100000"),
        (["--demands", "2"], "network is missing"),
        (["flat.json", "--demands", "2", "--objective", "cost"], "needs path lengths"),
    ],
)
def test_bad_input(
    work: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    links = NETWORK["links"]
    assert isinstance(links, list)
    flat = NETWORK | {"links": [link | {"length": 0.0} for link in links]}
    (work / "flat.json").write_text(json.dumps(flat))
    big = NETWORK | {"graph": {"demands": {"a": {"d": 40.0}, "b": {"d": 2.0}}}}
    (work / "big.json").write_text(json.dumps(big))
    assert main(["route", *arguments]) == BAD_INPUT
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.guard
def test_reproduce_resumes_and_writes_tables(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = reproduce.wanted
    # so that the limit ends it on any machine
    endless = {"first_steps": 10**6, "later_steps": 10**6}
    monkeypatch.setattr(
        reproduce,
        "wanted",
        lambda name, given, mode: usual(name, {**MEASURED, **endless, **given}, mode),
    )
    arguments = ["polska-5-3", "--out", "runs", "--threads", "1", "--no-baseline"]
    code = experiment([*arguments, "--time-limit", "1"])
    assert code in (KEPT, NOT_KEPT)
    shown = capsys.readouterr()
    assert "[1/1] polska-5-3: " in shown.err
    table = (work / "runs" / "table.md").read_text()
    assert "| polska | 5 | 3 |" in table
    summary = (work / "runs" / "polska-5-3" / "summary.json").read_bytes()
    assert json.loads(summary)["stop_reason"] == "time_limit"
    assert experiment([*arguments, "--time-limit", "1"]) == code
    assert "there already" in capsys.readouterr().err
    assert (work / "runs" / "polska-5-3" / "summary.json").read_bytes() == summary
    # more time is used, on top of what was done
    assert experiment([*arguments, "--time-limit", "2"]) in (KEPT, NOT_KEPT)
    assert (work / "runs" / "polska-5-3" / "summary.json").read_bytes() != summary
    assert experiment(["polska-5-4"]) == BAD_INPUT


def test_a_certified_router_comes_with_a_certificate_that_another_program_accepts(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--guarantee", "certified", "--hidden", "6", "--out", "proven") == KEPT
    assert "(proven; verify with cg4ai check)" in capsys.readouterr().out
    summary = json.loads((work / "proven" / "summary.json").read_text())
    assert (summary["strength"], summary["proof"]["status"]) == ("certified", "proven")
    assert main(["check", "proven/certificate.cg4ai", "--run", "proven"]) == 0
    router = cg4ai.load("proven")
    inside = np.array([[1.0, 0.5], [0.0, 0.0]])
    assert list(router.predict(inside, explain=True).labels) == ["certified", "certified"]
    outside = router.predict(np.array([[1e6, 0.0]]), explain=True)
    assert list(outside.labels) == ["unverified"]


def test_a_proven_router_is_on_disk_before_it_is_evaluated(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(routing, "evaluate", interrupted)
        asked = ("--guarantee", "certified", "--hidden", "6", "--out", "proven", "--quiet")
        assert route(*asked) == INTERRUPTED
    assert "continue with: cg4ai route --resume --out proven" in capsys.readouterr().err
    assert main(["check", "proven/certificate.cg4ai", "--run", "proven"]) == 0
    before = {path.name: path.read_bytes() for path in Path("proven").glob("members*")}
    assert main(["route", "--resume", "--out", "proven", "--quiet"]) == KEPT
    assert {path.name: path.read_bytes() for path in Path("proven").glob("members*")} == before
    assert main(["check", "proven/certificate.cg4ai", "--run", "proven"]) == 0


def test_an_interrupted_certified_run_continues(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in the second round: the first has a checkpoint, and the end is the same."""
    stubborn = partial(ProofRecipe, rounds=2, cells=5_000, close=-1e-9)  # goes on once proven
    monkeypatch.setattr(certified, "ProofRecipe", stubborn)
    monkeypatch.setattr(certified, "ProofTraining", partial(ProofTraining, steps=60))
    asked = ("--guarantee", "certified", "--hidden", "6", "--quiet")
    assert route(*asked, "--out", "whole") == KEPT
    find, calls = Prover.find, iter(range(10))

    def pressed(*given: Any, **named: Any) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return find(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Prover, "find", pressed)
        assert route(*asked, "--out", "run") == INTERRUPTED
    shown = capsys.readouterr().err
    assert "interrupted; continue with: cg4ai route --resume --out run" in shown
    assert len((work / "run" / "history.jsonl").read_text().splitlines()) == 1
    assert main(["route", "--resume", "--out", "run", "--quiet"]) == KEPT
    assert main(["check", "run/certificate.cg4ai", "--run", "run"]) == 0
    inputs = np.random.default_rng(0).random((50, 2))
    np.testing.assert_array_equal(
        cg4ai.load("run").predict(inputs), cg4ai.load("whole").predict(inputs)
    )


def test_a_shielded_router_keeps_capacity_whatever_it_learned(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--out", "shielded") == KEPT  # the guarantee that nobody needs to ask for
    assert "(by a shield; verify with cg4ai check)" in capsys.readouterr().out
    assert main(["check", "shielded/certificate.cg4ai", "--run", "shielded"]) == 0
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


def test_route_proves_a_ratio_to_the_optimum(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ratio = ("--min-demand", "0.2", "--ratio", "auto", "--ratio-leaves", "3")
    assert route("--out", "run", "--verbose", *ratio) == KEPT
    shown = capsys.readouterr().out
    assert "x the optimum" in shown
    summary = json.loads((work / "run" / "summary.json").read_text())
    inner = [part.members.state().config["inner"]["config"] for part in cg4ai.load("run").used]
    flows = sum(one["inner"]["kind"] == "flows" for one in inner)
    networks = summary["active_members"] - flows
    assert f"beside 1 flow anchor; {networks} network" in shown
    assert summary["ratio_proof"]["status"] == "proven"
    assert main(["check", "run/ratio.cg4ai", "--run", "run"]) == 0
    assert "behind a shield with these flows" in capsys.readouterr().out
    assert main(["check", "run/certificate.cg4ai", "--run", "run"]) == 0


def test_answers_say_how_far_they_are_from_the_optimum(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--out", "run") == KEPT
    about = cg4ai.load("run").about
    names, largest = about["demands"], about["demand_max"]
    rows = [[share * one for one in largest] for share in (0.3, 0.9)]
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    (work / "demands.csv").write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    assert main(["predict", "run", "demands.csv", "--explain"]) == 0
    shown = capsys.readouterr().out.splitlines()
    at = shown[0].split(",").index("above the optimum at most")
    gaps = [float(line.split(",")[at]) for line in shown[1:]]
    assert all(0 <= gap <= 0.02 for gap in gaps)  # of the run's own fallback
    assert main(["predict", "run", "demands.csv", "--no-fallback"]) == 0
    plain = capsys.readouterr()
    assert "solved" not in plain.out + plain.err
    assert main(["predict", "run", "demands.csv", "--no-fallback", "--fallback", "1"]) == BAD_INPUT
    capsys.readouterr()
    assert main(["predict", "run", "demands.csv", "--fallback", "0", "--details"]) == 0
    shown = capsys.readouterr().out.splitlines()
    columns = [line.split(",") for line in shown]
    mlu = [float(line[columns[0].index("mlu")]) for line in columns[1:]]
    best = restore_instance(about).find_optimal(np.array(rows)).mlu
    assert mlu == pytest.approx(best, abs=1e-6)


def test_rounded_answers_keep_the_capacities_whatever_gives_them(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The router, the program at every vector, and vectors outside; recomputed from flows."""
    assert route("--out", "run", "--granularity", "6") == KEPT
    assert "multiples of 1/6" in capsys.readouterr().out
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert summary["granularity"]["parts"] == 6
    assert summary["granularity"]["worst_utilisation"] <= 1
    assert main(["check", "run/certificate.cg4ai", "--run", "run"]) == 0
    about = cg4ai.load("run").about
    made = restore_instance(about)
    vectors = np.concatenate([made.sample(20, 3), made.demand_max[None], 2 * made.sample(5, 4)])
    lines = [",".join(about["demands"]), *(",".join(map(str, row)) for row in vectors.tolist())]
    (work / "demands.csv").write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    for option in (["--no-fallback"], ["--fallback", "0"], ["--explain"]):
        assert main(["predict", "run", "demands.csv", "--format", "json", *option]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        splits = np.array([list(row.values())[: len(made.path_demand)] for row in rows])
        assert splits * 6 == pytest.approx(np.round(splits * 6), abs=1e-9)
        assert made.compute_unrouted(splits) < 1e-9
        loads = made.compute_utilisation(vectors, splits).max(axis=1)
        assert (loads[:21] <= 1 + 1e-12).all()
        if option != ["--no-fallback"]:  # the distance is that of the rounded splits
            above = np.array([row["above the optimum at most"] for row in rows])
            best = made.find_optimal(vectors).mlu
            assert (loads / best - 1 <= above + 1e-6).all()


def test_too_coarse_splits_are_refused_before_training(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--out", "coarse", "--granularity", "1") == BAD_INPUT
    error = capsys.readouterr().err
    enough = int(re.search(r"--granularity (\d+)", error)[1])
    assert not (work / "coarse").exists()
    assert route("--out", "fine", "--granularity", str(enough)) == KEPT


def test_drift_is_summed_up_and_ends_with_a_code_of_its_own(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--out", "run", "--hose", "0.7") == KEPT
    about = cg4ai.load("run").about
    made = restore_instance(about)
    rows = 0.5 * np.tile(made.demand_max, (4, 1))
    rows[2, 1] = 1.5 * made.demand_max[1]
    rows[3] = made.demand_max  # every demand fits, their sums do not
    lines = [",".join(about["demands"]), *(",".join(map(str, row)) for row in rows.tolist())]
    (work / "demands.csv").write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    command = ["predict", "run", "demands.csv", "--format", "json", "--fail-on-drift"]
    assert main([*command, "0.5"]) == 0
    drift = json.loads(capsys.readouterr().out)["drift"]
    assert drift["share"] == 0.5
    assert drift["largest"] == {
        "limit": about["demands"][1],
        "factor": pytest.approx(1.5),
        "row": 2,
    }
    assert sorted(one["rows"] for one in drift["by_limit"]) == [1, 1]
    assert main([*command, "0.4"]) == 4
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["rows"]) == 4  # all is written
    assert about["demands"][1] in shown.err
    assert main([*command, "1.5"]) == BAD_INPUT


@pytest.mark.parametrize("ratio", ["1", "1.0001"])
def test_a_ratio_that_is_not_reached_is_said_and_not_kept(
    work: Path, capsys: pytest.CaptureFixture[str], ratio: str
) -> None:
    """One cell from a thousandth of the demands on, by its own summary; 1 is no auto."""
    asked = ("--min-demand", "0.001", "--ratio", ratio, "--ratio-leaves", "1")
    assert route("--out", "run", *asked) == NOT_KEPT
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert summary["ratio"] > float(ratio)
    shown = capsys.readouterr().out
    assert f"MLU at most {summary['ratio']:g} x the optimum" in shown
    assert f"NOT the {ratio} asked for" in shown


def test_where_no_distance_from_the_optimum_is_proven_one_line_says_why(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert route("--out", "run") == KEPT
    about = cg4ai.load("run").about
    lines = [",".join(about["demands"]), ",".join(map(str, about["demand_max"]))]
    (work / "demands.csv").write_text("\n".join(lines) + "\n")
    record = files.read_json(work / "run" / "ensemble.json")
    record["about"].pop("arc_prices")  # as a run of an earlier version
    files.write_json(work / "run" / "ensemble.json", record)
    capsys.readouterr()
    assert main(["predict", "run", "demands.csv", "--explain"]) == 0
    assert "no prices of links are stored" in capsys.readouterr().err
    assert main(["predict", "run", "demands.csv", "--explain", "--format", "json"]) == 0
    assert "no prices of links" in json.loads(capsys.readouterr().out)["warnings"][0]
    assert main(["predict", "run", "demands.csv", "--explain", "--fallback", "0"]) == 0
    assert "prices" not in capsys.readouterr().err


def test_a_ratio_is_said_without_a_folder(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--min-demand", "0.2", "--ratio", "auto", "--ratio-leaves", "3", "--verbose")
    assert route(*asked) == KEPT
    assert "accepted by the checker; --out keeps the proof" in capsys.readouterr().out


def test_a_ratio_that_the_checker_rejects_is_not_kept(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejecting(data: bytes) -> None:
        raise Rejected("not today")

    monkeypatch.setattr(ratio_proof, "verdict", rejecting)
    asked = ("--min-demand", "0.2", "--ratio", "3", "--ratio-leaves", "1")
    assert route("--out", "run", *asked) == NOT_KEPT
    assert "at every demand vector of the set (NOT PROVEN)" in capsys.readouterr().out
    assert not (work / "run" / "ratio.cg4ai").exists()


@pytest.mark.parametrize("ratio", ["0", "0.9", "nan", "wide"])
def test_what_is_no_ratio_is_refused(
    work: Path, capsys: pytest.CaptureFixture[str], ratio: str
) -> None:
    assert route("--min-demand", "0.2", "--ratio", ratio) == BAD_INPUT
    assert "at least 1" in capsys.readouterr().err


def test_former_names_of_options_are_accepted_but_not_shown(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former = ("--least", "0.2", "--sees", "source", "--lean", "0.01")
    assert route("--out", "former", "--quiet", *former) == KEPT
    told = capsys.readouterr().err
    for old, new in (("least", "min-demand"), ("sees", "agent-scope"), ("lean", "prune")):
        assert f"--{old} is called --{new} now" in told
    today = ("--min-demand", "0.2", "--agent-scope", "source", "--prune", "0.01")
    assert route("--out", "today", "--quiet", *today) == KEPT
    assert "is called" not in capsys.readouterr().err
    stored = [json.loads((work / one / "run.json").read_text()) for one in ("former", "today")]
    assert stored[0]["settings"] == stored[1]["settings"]
    assert route("--lean", "0.01", "--prune", "0.01") == BAD_INPUT
    assert "lean is the former name of prune; give one" in capsys.readouterr().err
    assert route("--set", "lean=0.01") == BAD_INPUT
    assert "use --prune for this setting" in capsys.readouterr().err
    assert main(["route", "--help"]) == KEPT
    shown = capsys.readouterr().out
    assert "--prune" in shown
    assert "--lean" not in shown
