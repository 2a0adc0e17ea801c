"""The method as published end to end, with NLopt inside, and its comparison with our recipe."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import networkx
import numpy as np
import pytest

import cg4ai
from cg4ai.apps.runner import perform
from cg4ai.routing.network.instance import instance
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
