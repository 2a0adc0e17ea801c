"""Reports of small runs of every application: whole pages, true to their run, whatever names."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.apps.folders import ARRAYS
from cg4ai.cli.main import main
from cg4ai.errors import RunFolderError
from cg4ai.report import write
from cg4ai.report.write import UNWANTED, try_write_report, write_report
from cg4ai.runs.files import (
    append_lines,
    read_arrays,
    read_json,
    read_lines,
    write_arrays,
    write_json,
)
from cg4ai.runs.folder import Run
from experiments.digits.__main__ import main as digits_main
from pages_read import Page
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_evaluation")

HOSTILE = '<script>alert("1")</script> & $x_1$'
NODES = ["a", 'b"><b>', "c & co", "d"]
RULES = [
    {"rule": "probability", "name": f"cases {HOSTILE}", "rows": [0, 1, 2], "at_least": 0.55},
    {
        "rule": "linear",
        "name": "corner",
        "box": {"lower": {HOSTILE: 0.9}},
        "coefficients": {"yes": 1},
        "at_least": 0.1,
    },
]
ROUTE = (
    *("scenarios=30", "priced=50", "first_steps=60", "later_steps=30", "batch_size=64"),
    "validation=200",
)
DIGITS = ("group=2", "steps=20", "rounds=1", "batch_size=32", "blur=0.0")
KINDS = ("train", "route", "digits", "patched")


def network(positions: bool = True) -> dict[str, Any]:
    places = [(0.0, 0.0), (1.0, 1.0), (1.0, -1.0), (2.0, 0.0)]
    ends = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (1, 2)]
    return {
        "directed": True,
        "graph": {"demands": {NODES[0]: {NODES[3]: 4.0}, NODES[1]: {NODES[3]: 2.0}}},
        "nodes": [
            {"id": name, **({"pos": place} if positions else {})}
            for name, place in zip(NODES, places, strict=True)
        ],
        "links": [
            {"source": NODES[a], "target": NODES[b], "capacity": 5.0, "length": 1.0}
            for a, b in ends
        ],
    }


def sets(pairs: tuple[str, ...]) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


@pytest.fixture(scope="module", autouse=True)
def wanted() -> Iterator[None]:
    """Reports are wanted here; see conftest.py."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(UNWANTED)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each application, and a patched one."""
    folder = tmp_path_factory.mktemp("reports")
    x = np.random.default_rng(0).uniform(size=(40, 2))
    lines = [f"{a},{b},{'yes' if a + b > 1 else 'no'}" for a, b in x.tolist()]
    header = f'"{HOSTILE.replace(chr(34), chr(34) * 2)}",age,answer'
    (folder / "data.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "rules.json").write_text(json.dumps(RULES))
    (folder / "more.json").write_text(json.dumps([{**RULES[0], "name": "more", "rows": [3]}]))
    (folder / "net.json").write_text(json.dumps(network()))
    common = ["--quiet", "--threads", "1", "--out"]
    train = ["train", str(folder / "data.csv"), "--target", "answer", "--steps", "60"]
    train += ["--rules", str(folder / "rules.json"), "--hidden", "4", "--iteration-limit", "3"]
    route = ["route", str(folder / "net.json"), "--demands", "2", "--hidden", "6", "--baseline"]
    commands = {
        "train": train,
        "route": [*route, "--guarantee", "attacked", *sets(ROUTE)],
    }
    for name, command in commands.items():
        assert main([*command, *common, str(folder / name)]) in (0, 3)
    images = ["hard", "--n", "20", *sets(DIGITS), *common, str(folder / "digits")]
    assert digits_main(images) in (0, 3)
    added = ["patch", str(folder / "train"), "--add", str(folder / "more.json")]
    assert main([*added, "--out", str(folder / "patched")]) in (0, 3)
    return folder


def page_of(run: Path) -> Page:
    return Page((run / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Any:
    """A run that a test may change."""

    def copy(name: str) -> Path:
        shutil.copytree(runs / name, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_every_run_writes_a_whole_page_with_figures(runs: Path, kind: str) -> None:
    text = (runs / kind / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    page.check_references()
    assert page.counts["svg"] == page.counts["figure"] >= (1 if kind == "patched" else 4)
    assert "could not be drawn" not in page.words
    assert "script" not in page.counts
    assert not any(one.endswith(".html") for one in page.values("href"))
    assert len(text) < 400_000
    for title in ("What was asked", "What was established", "How training went", "How to use it"):
        assert title in page.texts["h2"]
    assert f'cg4ai.load("{kind}")' in page.words
    program = "python -m experiments.digits" if kind == "digits" else "cg4ai"
    for command in ("predict", "audit", "explore", "serve", "export"):
        assert f"{program} {command} {kind}" in page.words
    assert str(runs.parent) not in text  # it is sent around, and folders are nobody else's


def test_a_table_report_states_every_rule_as_the_terminal_does(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, summary = page_of(runs / "train"), read_json(runs / "train" / "summary.json")
    assert main(["show", "--verbose", str(runs / "train")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for entry in summary["audits"]:
        assert entry["statement"] in page.words
        assert entry["statement"] in shown
        strength = entry["strength"] if entry["holds"] else "violated"
        assert strength in page.texts["span"]
    assert HOSTILE in page.words
    assert f"{100 * summary['score']['mixture']:.1f} %" in page.texts["dd"]


def test_a_router_report_has_its_gaps_links_and_worst_vectors(runs: Path) -> None:
    page, summary = page_of(runs / "route"), read_json(runs / "route" / "summary.json")
    assert f"{summary['mean_mlu_gap']:.4f}" in page.texts["dd"]
    assert f"{summary['max_mlu_gap']:.4f}" in page.texts["span"]
    assert f"{summary['worst_utilisation']:.4f}" in page.texts["dd"]
    assert "not proven" in page.words  # a search is none
    for node in NODES:
        assert node in page.texts["text"]
    arrays = read_arrays(runs / "route" / ARRAYS)
    mlu, best = arrays["gap_mlu"][0]
    assert mlu - best == pytest.approx(summary["max_mlu_gap"])
    assert arrays["link_worst"].max() == pytest.approx(summary["worst_utilisation"])
    assert f"{mlu:.4g}" in page.texts["td"]
    assert "Beside plain networks" in page.texts["h2"]


def test_a_digits_report_counts_confusions_and_required_images(runs: Path) -> None:
    page, summary = page_of(runs / "digits"), read_json(runs / "digits" / "summary.json")
    assert f"on the {summary['rows']} listed images" in page.words
    arrays = read_arrays(runs / "digits" / ARRAYS)
    labels, answers = arrays["test_labels"], arrays["test_scores"].argmax(1)
    table = np.zeros((10, 10), int)
    np.add.at(table, (labels, answers), 1)
    drawn = [text for text in page.texts["text"] if text.isdecimal()]
    for count in table[table > 0]:
        assert str(count) in drawn
    assert any(one.startswith("data:image/png;base64,i") for one in page.values("href"))


def bind(run: Path) -> None:
    """Let the summary speak of the files as they are now."""
    with Run.open(run) as opened:
        opened.finish(opened.summary(compared=False) or {})


def test_an_objective_that_is_not_yet_there_is_an_empty_cell(copied: Any) -> None:
    run = copied("train")
    history = [record for _, record in read_lines(run / "history.jsonl")]
    history[0]["objective"] = float("inf")
    (run / "history.jsonl").unlink()
    append_lines(run / "history.jsonl", history)
    bind(run)
    write_report(run)
    assert "inf" not in page_of(run).texts["td"]


def test_a_patched_report_says_what_was_added(runs: Path) -> None:
    page, summary = page_of(runs / "patched"), read_json(runs / "patched" / "summary.json")
    assert "more (added)" in page.texts["strong"]
    assert f"cases {HOSTILE} (earlier)" in page.texts["strong"]
    for audit in summary["audits"]:
        assert audit["statement"] in page.words
    assert "more.json" in page.words


def test_older_patches_kept_statements_alone(copied: Any) -> None:
    run = copied("patched")
    summary = read_json(run / "summary.json")
    statements = [audit["statement"] for audit in summary["audits"]]
    write_json(run / "summary.json", {**summary, "audits": statements})
    write_report(run)
    page = page_of(run)
    for entry in summary["audits"]:
        assert entry["statement"] in page.words
        expected = entry["strength"] if entry["holds"] else "violated"
        assert expected in page.texts["span"]


def test_older_routers_kept_neither_loads_nor_positions(copied: Any) -> None:
    run = copied("route")
    header = read_json(run / "run.json")
    del header["settings"]["description"]["positions"]
    write_json(run / "run.json", header)
    kept = {k: v for k, v in read_arrays(run / ARRAYS).items() if not k.startswith(("link", "gap"))}
    kept.pop("worst_vector")
    write_arrays(run / ARRAYS, kept)
    bind(run)
    write_report(run)
    page = page_of(run)
    assert "This run kept no loads of links" in page.words
    assert "positions of its nodes are not known" in page.words
    assert "could not be drawn" not in page.words
    for node in NODES:
        assert node in page.texts["text"]


def test_runs_without_arrays_say_what_was_not_measured(copied: Any) -> None:
    for kind in ("route", "train", "digits"):
        run = copied(kind)
        (run / ARRAYS).unlink()
        write_report(run)
        page_of(run).check_references()
    assert "It was not measured: the time was over" in page_of(run.parent / "route").words


def test_a_report_can_be_written_elsewhere(runs: Path, tmp_path: Path) -> None:
    assert main(["report", str(runs / "train"), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == (runs / "train" / "report.html").read_text()


def test_a_run_that_was_stopped_says_how_to_go_on(copied: Any) -> None:
    run = copied("train")
    for name in ("summary.json", "ensemble.json", ARRAYS):
        (run / name).unlink()
    assert main(["report", str(run)]) == 0
    page = page_of(run)
    assert "Not ended" in page.texts["span"]
    assert "cg4ai train --resume --out train" in page.words
    assert "Nothing is established" in page.words
    history = (run / "history.jsonl").read_text().splitlines()
    assert f"{len(history)} iteration" in page.words  # how far it came
    assert page.texts["dd"][0] == str(len(history))
    common = {"stop_reason": "interrupted", "iterations": 2}
    write_json(run / "summary.json", common)
    write_report(run)
    assert "Not ended" in page_of(run).texts["span"]


def test_without_matplotlib_it_is_a_page_without_figures(
    copied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied("route")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(run)]) == 0
    page = page_of(run)
    assert "svg" not in page.counts
    assert "pip install 'cg4ai[plots]'" in page.words
    assert "What was established" in page.texts["h2"]


def test_one_figure_that_fails_leaves_the_others(copied: Any) -> None:
    run = copied("route")
    arrays = read_arrays(run / ARRAYS)
    write_arrays(run / ARRAYS, arrays | {"link_worst": np.zeros(3)})
    bind(run)
    write_report(run)
    page = page_of(run)
    assert page.words.count("could not be drawn") == 2
    assert page.counts["svg"] >= 5


def test_a_report_that_fails_loses_nothing_of_the_run(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise ValueError("no ink")

    monkeypatch.setattr(write, "report_page", broken)
    asked = ["train", str(runs / "data.csv"), "--target", "answer", "--steps", "20", "--quiet"]
    asked += ["--rules", str(runs / "rules.json"), "--hidden", "2", "--iteration-limit", "1"]
    code = main([*asked, "--threads", "1", "--out", str(tmp_path / "run")])
    shown = capsys.readouterr()
    assert "no report was written (" in shown.err
    assert "ValueError: no ink" in shown.err
    summary = read_json(tmp_path / "run" / "summary.json")
    assert code == (0 if summary["feasible"] else 3)
    assert not (tmp_path / "run" / "report.html").exists()
    assert "report.html" not in shown.out


def test_no_report_is_written_where_none_is_wanted(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = ["patch", str(runs / "train"), "--add", str(runs / "more.json"), "--no-report"]
    main([*added, "--out", str(tmp_path / "patched")])
    assert (tmp_path / "patched" / "summary.json").exists()
    assert not (tmp_path / "patched" / "report.html").exists()
    monkeypatch.setenv(UNWANTED, "1")
    main([*added[:-1], "--out", str(tmp_path / "again")])
    assert (tmp_path / "again" / "summary.json").exists()
    assert not (tmp_path / "again" / "report.html").exists()


def test_summaries_that_make_no_sense_are_refused_in_one_line(
    copied: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copied("digits")
    summary = read_json(run / "summary.json")
    bound = {"speaks_of": summary["speaks_of"]}
    write_json(run / "summary.json", {"stop_reason": "optimal", "scenario": 3, **bound})
    assert main(["report", str(run)]) == 2
    assert "are not those of a run of 'digits'" in capsys.readouterr().err
    assert "no report was written (RunFolderError" in try_write_report(run)
    assert not (run / "report.html").exists()  # that of before would be of another run
    write_json(run / "summary.json", summary)
    record = read_json(run / "ensemble.json")
    damaged: list[dict[str, Any]] = [{"members": 3}, {"weights": [[None]]}, {"blocks": []}]
    for wrong in damaged:
        write_json(run / "ensemble.json", record | wrong)
        bind(run)
        assert main(["report", str(run)]) == 2
        assert "are not those of a run of 'digits'" in capsys.readouterr().err


# ---- the index ----------------------------------------------------------------------------------


def test_an_index_lists_all_runs_with_links_that_lead_somewhere(copied: Any) -> None:
    folder = copied("route").parent
    copied("train")
    (folder / "nested & more" / "deep").mkdir(parents=True)
    shutil.move(folder / "train", folder / "nested & more" / "deep" / "train")
    (folder / "route" / "report.html").unlink()
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{}")
    assert main(["report", str(folder)]) == 0
    page = Page((folder / "index.html").read_text())
    assert page.texts["a"] == ["nested & more/deep/train", "route"]
    for link in page.values("href"):
        assert (folder / re.sub("%20", " ", link).replace("%26", "&")).exists()
    assert "broken" in page.texts["td"]
    assert "attacked" in page.texts["td"]
    assert "3 runs in" in page.words


def test_reports_that_are_older_than_their_run_are_made_anew(copied: Any) -> None:
    run = copied("digits")
    before = (run / "report.html").read_text()
    (run / "report.html").write_text("old")
    summary = read_json(run / "summary.json")
    write_json(run / "summary.json", summary)
    assert main(["report", str(run.parent), "--out", str(run.parent / "all.html")]) == 0
    assert (run / "report.html").read_text() == before
    assert not (run.parent / "index.html").exists()
    assert "digits/report.html" in Page((run.parent / "all.html").read_text()).values("href")


def test_reports_are_compared_with_their_run_by_content_not_by_times(copied: Any) -> None:
    run = copied("train")
    report, own = run / "report.html", (run / "report.html").read_text()
    os.utime(report, (1, 1))  # as after copying without times
    assert main(["report", str(run.parent)]) == 0
    assert report.stat().st_mtime == 1
    report.write_text("of another run, and newer")
    assert main(["report", str(run.parent)]) == 0
    assert report.read_text() == own


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    with raises(RunFolderError, "bad-file", "run.json"):
        write_report(tmp_path)


# ---- what was found out since -------------------------------------------------------------------


def test_a_proof_and_a_study_of_failures_stand_in_the_report(copied: Any) -> None:
    table, router = copied("train"), copied("route")
    assert main(["certify", str(table), "--quiet"]) == 0
    page = page_of(table)
    assert "certificate.cg4ai" in page.words
    assert "corner is proven at every input" in page.words
    assert "Failures of links" not in page_of(router).texts["h2"]
    study = ["failures", str(router), "a-d", "--steps", "0", "--vectors", "20", "--quiet"]
    assert main(study) in (0, 3)
    page = page_of(router)
    assert "Failures of links" in page.texts["h2"]
    assert "a-d" in page.texts["td"]
