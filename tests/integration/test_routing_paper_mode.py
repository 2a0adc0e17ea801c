"""The method as published end to end, with NLopt inside, and its comparison with our recipe."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx
import numpy as np
import pytest

import cg4ai
from cg4ai import solve
from cg4ai.apps.runner import perform
from cg4ai.routing.network.instance import instance
from cg4ai.runs import files
from experiments.routing import published
from experiments.routing.paper_mode import PaperRouting, PaperSettings

pytestmark = pytest.mark.usefixtures("quick_evaluation")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
QUICK: dict[str, Any] = {
    "validation": 200,
}
SHORT = {
    **QUICK,
    "scenarios": 30,
    "priced": 50,
    "first_steps": 60,
    "later_steps": 30,
    "batch_size": 64,
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small network."""
    monkeypatch.chdir(tmp_path)
    graph = networkx.DiGraph(demands={"a": {"d": 4.0}, "b": {"d": 2.0}})
    for source, target, capacity in ("ab9", "ac5", "ad3", "bd4", "cd5", "bc2"):
        graph.add_edge(source, target, capacity=float(capacity), length=1.0)
    (tmp_path / "small.json").write_text(json.dumps(networkx.node_link_data(graph, edges="edges")))
    return tmp_path


def test_nlopt_cuts_after_column_generation_and_keeps_what_it_cut(work: Path) -> None:
    asked = PaperSettings(
        network="small.json", demands=2, threads=1, rounds=24, labels=60, epochs=40, **QUICK
    )
    routed = perform(PaperRouting(), asked, out=work / "run")
    history = routed.result.history
    journal = [json.loads(line) for line in (work / "run" / "cuts.jsonl").read_text().splitlines()]
    assert all(record.added_columns <= 1 for record in history)
    cuts = [record.iteration for record in history if record.added_rows]
    # the worst cut only, and none before every demand in turn had nothing to offer
    assert cuts
    assert all(record.added_rows <= 1 for record in history)
    assert all(history[number].added_columns == 0 for number in cuts)
    # each was found by NLopt and is a real overload of the mixture of its time
    made = instance("small.json", 2, 3)
    vectors = np.array([line["demands"] for line in journal])
    assert np.all((vectors >= 0) & (vectors <= made.demand_max))
    assert min(line["utilisation"] for line in journal) > 1
    assert cg4ai.load(work / "run").about["mode"] == "paper"
    assert routed.summary["objective"] == "split"
    assert routed.summary["rows"] == len(cuts)
    # what was cut stays cut, up to the slack that the master says is left
    router = cg4ai.load(work / "run")
    excess = made.compute_utilisation(vectors, router.predict(vectors)).max() - 1
    assert excess <= routed.result.slack + 1e-6


def load_benchmark(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_comparison_with_the_published_method(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = load_benchmark("bench_routing_paper")
    usual = {"ours": SHORT, "paper": {**QUICK, "labels": 60, "epochs": 40}}
    options = ["--configurations", "polska-2-2", "--factor", "1", "--out", "runs", "--threads", "1"]
    text = benchmark.main(options, usual=usual)
    assert text in capsys.readouterr().out
    assert (work / "runs" / "comparison.md").read_text() == text
    lines = [line for line in text.splitlines() if line.startswith("| polska-2-2")]
    assert [line.split("|")[2].strip() for line in lines] == ["ours", "as published"]
    # what has ended is read, not run again
    assert benchmark.main(options, usual=usual) == text


def test_every_demand_is_priced_by_a_job_of_its_own(work: Path) -> None:
    asked = PaperSettings(
        network="small.json",
        demands=2,
        threads=1,
        rounds=4,
        labels=40,
        epochs=20,
        every_demand=True,
        **QUICK,
    )
    task = PaperRouting().problem(PaperRouting().prepare(asked, None))
    assert task.settings.n_jobs is None
    one, two = (
        solve(
            PaperRouting().problem(PaperRouting().prepare(each, None)).problem,
            replace(task.settings, n_jobs=each.jobs),
        )
        for each in (asked, replace(asked, jobs=2))
    )
    assert [record.added_columns for record in one.history][:1] == [2]
    assert [(a.objective, a.columns, a.rows) for a in one.history] == [
        (b.objective, b.columns, b.rows) for b in two.history
    ]


def test_what_a_run_has_reached_is_told_before_its_end(tmp_path: Path) -> None:
    name = "polska-5-3"
    assert published.Reached(name, tmp_path / "nothing").row()["#iter"] == 0
    folder = tmp_path / name
    folder.mkdir()
    record = {"columns": 9, "rows": 2, "slack": 0.1, "total_s": 5.0, "separation_s": 1.5}
    whole = "\n".join(json.dumps(one) for one in ({**record, "columns": 4}, record)) + "\n"
    (folder / "history.jsonl").write_text(whole + '{"torn":')  # another process is writing it
    cuts = "".join(json.dumps({"utilisation": value}) + "\n" for value in (1.3, 1.1))
    (folder / "cuts.jsonl").write_text(cuts)
    row = published.Reached(name, folder).row()
    assert (row["#iter"], row["#cols"], row["#rows"], row["separation s"]) == (2, 9, 2, 3.0)
    assert (row["overload found, last"], row["most"], row["ended"]) == (1.1, 1.3, "running")
    assert (row["paper #iter"], row["paper #cols"], row["paper #rows"]) == (211, 115, 128)
    summary = {"stop_reason": "no_improving_column", "worst_utilisation": 1.0, "mean_mlu_gap": 0.2}
    files.write_json(folder / "summary.json", summary)
    row = published.Reached(name, folder).row()
    assert (row["ended"], row["mean gap"]) == ("as the paper's", 0.2)
    published.write_progress([name], tmp_path, jobs=2, seconds=7)
    assert json.loads((tmp_path / "progress.json").read_text()) == [row]
    assert name in (tmp_path / "progress.md").read_text()


def test_the_quickest_of_the_paper() -> None:
    assert published.quickest(3) == ["france-10-3", "abilene-5-3", "france-5-5"]
