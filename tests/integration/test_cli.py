"""The command line: what it writes, prints and returns, for good input and bad."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import cg4ai
from cg4ai.cli import demo, demo_tumours
from cg4ai.cli.main import app, main
from cg4ai.cli.program import run_guarded
from small_network import NETWORK

pytestmark = pytest.mark.usefixtures("quick_evaluation")

DOCUMENT = Path(__file__).parents[2] / "docs" / "rules.md"
HEAVY = ("torch", "numpy", "sklearn", "pandas", "scipy", "highspy", "matplotlib", "rich")


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example of docs/rules.md, and a regression."""
    text = DOCUMENT.read_text()
    for name in ("patients.csv", "rules.json"):
        found = re.search(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (tmp_path / name).write_text(found[1])
    generator = np.random.default_rng(0)
    x = generator.uniform(size=(40, 2))
    y = 3 * x[:, 0] - x[:, 1] + 0.1 * generator.normal(size=40)
    rows = "\n".join(f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True))
    (tmp_path / "house.csv").write_text("size,age,price\n" + rows + "\n")
    (tmp_path / "house.json").write_text(
        json.dumps([{"rule": "linear", "box": {}, "at_least": 0.0, "at_most": 2.5}])
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def quick(*arguments: str) -> list[str]:
    """Options that keep training short."""
    return [*arguments, "--hidden", "4", "--steps", "40", "--restarts", "2", "--quiet"]


def house(*arguments: str) -> list[str]:
    return quick(
        *("train", "house.csv", "--target", "price", "--rules", "house.json", "--out", "run"),
        *("--iteration-limit", "3", *arguments),
    )


def test_a_former_name_of_a_setting_is_accepted_with_a_warning(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--final-weights", "vertex", "--quiet")
    assert main(house(*asked, "--set", "lean=0.1")) in (0, 3)
    assert "--set lean is called --set prune now" in capsys.readouterr().err
    stored = json.loads((work / "run" / "run.json").read_text())["settings"]
    assert stored["loop"] == {"prune": 0.1}


# ---- starting ---------------------------------------------------------------------------------


def test_a_new_process_knows_runs_of_every_application() -> None:
    """Here other tests have imported the packages already, a user's process has not."""
    code = (
        "import sys, cg4ai.cli.main; from cg4ai.apps.registry import is_registered; "
        "sys.exit(not all(map(is_registered, ('train', 'route'))))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["train", "--help"], ["serve", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from cg4ai.cli.main import main; code = main(sys.argv[1:]); "
        f"print('HEAVY', [name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "HEAVY []" in done.stdout


def test_run_as_a_module_it_tells_scripts_of_failure(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.cg4ai")
    done = subprocess.run(
        [sys.executable, "-m", "cg4ai", "check", missing],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr


def test_every_command_has_help_with_an_example() -> None:
    listed = CliRunner().invoke(app, ["--help"])
    assert listed.exit_code == 0
    for name in (
        "train",
        "predict",
        "serve",
        "audit",
        "show",
        "new-network",
        "route",
        "failures",
        "update",
        "explore",
        "export",
        "certify",
        "check",
        "demo",
        "doctor",
    ):
        assert name in listed.stdout
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0
        assert f"cg4ai {name} " in shown.stdout.split("Example")[1]


def test_the_document_names_every_command() -> None:
    document = (DOCUMENT.parent / "runs.md").read_text()
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f"| `cg4ai {name}` |" in document


def test_version() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"cg4ai {cg4ai.__version__}\n")


def test_the_installed_script_answers() -> None:
    script = Path(sys.executable).with_name("cg4ai")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == f"cg4ai {cg4ai.__version__}\n"


# ---- the documented example, from end to end --------------------------------------------------


def test_the_example_of_the_documentation(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"<!-- example: command -->\n```\ncg4ai (.*?)\n```", DOCUMENT.read_text())
    assert found is not None
    code = main([*found[1].split(), "--quiet", "--steps", "60", "--iteration-limit", "5"])
    output = capsys.readouterr().out
    assert code == 0
    assert output.startswith("All 4 rules hold.")
    assert "large and dense" in output
    assert "every input" in output
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert summary["feasible"] is True
    assert [entry["strength"] for entry in summary["audits"]] == [
        *("audited", "audited", "shielded", "audited")
    ]
    predicted = predictions(work, "patients.csv", capsys)
    truth = (work / "patients.csv").read_text().splitlines()[1:]
    malignant = [i for i, line in enumerate(truth) if line.endswith("malignant")]
    # rule 1 read from what a user gets to see
    assert all(float(predicted[i]["probability malignant"]) >= 0.6 - 1e-6 for i in malignant)
    assert all(predicted[i]["diagnosis"] == "malignant" for i in malignant)
    audit_and_show(work, capsys)


def predictions(work: Path, data: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert main(["predict", "run", data]) == 0
    printed = capsys.readouterr().out
    assert main(["predict", "run", data, "--output", "out.csv"]) == 0
    assert (work / "out.csv").read_text() == printed
    capsys.readouterr()
    header, *lines = printed.splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


def audit_and_show(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "run", "--rules", "rules.json", "--data", "patients.csv"]) == 0
    assert capsys.readouterr().out.startswith("All 4 rules hold.")
    impossible = [{"rule": "probability", "rows": [1, 2], "label": "malignant", "at_least": 1.0}]
    (work / "impossible.json").write_text(json.dumps(impossible))
    command = ["audit", "run", "--rules", "impossible.json", "--data", "patients.csv"]
    assert main(command) == 3
    assert "patients.csv, line " in capsys.readouterr().out
    assert main([*command, "--json"]) == 3
    printed = json.loads(capsys.readouterr().out)
    sizes = [one["missed_by"] for one in printed["audits"][0]["violated"]]
    assert sizes == sorted(sizes, reverse=True)
    assert main(["show", "run"]) == 0
    shown = capsys.readouterr().out
    assert "target = diagnosis" in shown
    assert "All 4 rules hold." in shown


# ---- regression and the run folder ------------------------------------------------------------


def test_regression_keeps_its_range(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(house("--json")) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["event"] for event in events[:-1]} == {"iteration", "message"}
    assert events[-1]["event"] == "result"
    summary = json.loads((work / "run" / "summary.json").read_text())
    del summary["sha256"], summary["speaks_of"]
    verdict = events[-1].pop("verdict")
    assert {"event": "result", **summary} == events[-1]
    known = [(one["requirement"], one["holds"], one["strength"]) for one in summary["audits"]]
    assert [(one["rule"], one["holds"], one["strength"]) for one in verdict["rules"]] == known
    for name in ("stop_reason", "objective", "loss", "bound", "gap", "columns", "rows", "seconds"):
        assert name in summary
    assert summary["active_members"] >= 1
    assert files_of(work / "run") >= {
        *("run.json", "history.jsonl", "summary.json", "ensemble.json"),
        "members.safetensors",
    }
    # the rule, at inputs that the run has not seen
    inputs = np.random.default_rng(1).uniform(0.05, 0.95, size=(500, 2))
    outputs = cg4ai.load(work / "run").predict(inputs)
    assert outputs.min() >= -1e-2
    assert outputs.max() <= 2.5 + 1e-2


def test_iterations_are_logged_for_tensorboard(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert main(house("--log-tensorboard", "logs")) == 2
    assert "pip install tensorboard" in capsys.readouterr().err
    assert not (work / "run").exists()
    steps: list[int] = []

    class Writer:
        def __init__(self, log_dir: str, purge_step: int | None) -> None:
            assert log_dir == "logs"

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            steps.append(step)

        def add_text(self, tag: str, text: str, step: int) -> None: ...

        def flush(self) -> None: ...

        def close(self) -> None: ...

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    assert main(house("--log-tensorboard", "logs")) == 0
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert sorted(set(steps)) == list(range(summary["iterations"]))


def test_decisions_are_predicted_as_they_were_bound(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    group = random.integers(0, 2, 300)
    x = random.normal(size=(300, 2)) + 0.8 * group[:, None]
    label = np.where(x[:, 0] + random.normal(size=300) > 0.4, "yes", "no")
    lines = [f"{a},{b},{g},{y}" for (a, b), g, y in zip(x, group, label, strict=True)]
    (work / "loans.csv").write_text("\n".join(["income,debt,group,paid", *lines]) + "\n")
    rule = {"rule": "decision_rate", "group_column": "group", "output": "yes", "tolerance": 0.05}
    (work / "equal.json").write_text(json.dumps([rule]))
    train = ["train", "loans.csv", "--target", "paid", "--ignore", "group", "--members", "tree"]
    assert main([*train, "--rules", "equal.json", "--out", "equal"]) == 0
    assert re.search(r"minus group .*; held out \S+ of \d+ \(", capsys.readouterr().out)
    assert main(["predict", "equal", "loans.csv"]) == 0
    told = capsys.readouterr().out.splitlines()
    decided = np.array([line.split(",")[0] == "yes" for line in told[1:]])
    assert abs(decided[group == 1].mean() - decided[group == 0].mean()) <= 0.05 + 1e-9
    assert main(["predict", "equal", "loans.csv"]) == 0
    assert capsys.readouterr().out.splitlines() == told
    assert main(["audit", "equal"]) == 0
    before = (work / "equal" / "ensemble.json").read_bytes()
    (work / "equal.json").write_text(
        json.dumps([rule, {"rule": "curvature", "features": {"income": 1}, "output": "yes"}])
    )
    assert main([*train, "--rules", "equal.json", "--out", "equal", "--force"]) == 2
    assert "urvature" in capsys.readouterr().err
    assert (work / "equal" / "ensemble.json").read_bytes() == before


def test_a_taken_folder_is_refused_kept_and_replaced(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(house()) == 0
    before = (work / "run" / "ensemble.json").read_bytes()
    assert main(house("--seed", "5")) == 2
    assert "--resume" in capsys.readouterr().err
    assert (work / "run" / "ensemble.json").read_bytes() == before
    assert main(house("--seed", "5", "--force")) == 0
    assert (work / "run" / "ensemble.json").read_bytes() != before


def test_unmet_rules_are_named_worst_first(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # affine members cannot be 1 and 0 at once where inputs almost coincide
    (work / "line.csv").write_text("x,y\n0,0\n1,1\n2,2\n3,3\n")
    rules = [
        {"rule": "linear", "name": "low", "rows": [0, 3], "equal": 5},
        {"rule": "linear", "name": "high", "rows": [1], "at_least": 9},
    ]
    (work / "line.json").write_text(json.dumps(rules))
    command = quick("train", "line.csv", "--target", "y", "--rules", "line.json", "--out", "run")
    code = main([*command, "--task", "regression", "--members", "affine"])
    output = capsys.readouterr().out
    assert code == 3
    assert "NOT kept" in output.splitlines()[0]
    assert "missed by" in output
    assert "line.csv, line " in output
    summary = json.loads((work / "run" / "summary.json").read_text())
    assert summary["feasible"] is False


def test_quantiles_in_a_range_are_trained_proven_and_predicted(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "house.json").write_text(json.dumps([{"rule": "range", "at_least": 0, "at_most": 2}]))
    assert main(house("--quantiles", "0.1,0.9")) == 0
    assert "Both rules hold." in capsys.readouterr().out
    assert main(["certify", "run"]) == 0
    assert main(["check", "run/certificate.cg4ai", "--run", "run"]) == 0
    assert "At every input" in capsys.readouterr().out
    assert main(["predict", "run", "house.csv"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header == "price 0.1,price 0.9,outside the region"
    values = np.array([line.split(",")[:2] for line in lines], float)
    assert (values[:, 0] <= values[:, 1]).all()
    assert values.min() >= 0
    assert values.max() <= 2


def test_show_reports_an_unfinished_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(house()) == 0
    (work / "run" / "summary.json").unlink()
    (work / "run" / "ensemble.json").unlink()
    capsys.readouterr()
    assert main(["show", "run"]) == 0
    assert "has not ended" in capsys.readouterr().out
    assert main(["predict", "run", "house.csv"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_prediction_matches_columns_by_name(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(house()) == 0
    (work / "swapped.csv").write_text("note,age,size\nx,0.2,0.7\n")
    (work / "straight.csv").write_text("size,age\n0.7,0.2\n")
    capsys.readouterr()
    assert main(["predict", "run", "swapped.csv"]) == 0
    swapped = capsys.readouterr().out
    assert main(["predict", "run", "straight.csv"]) == 0
    assert capsys.readouterr().out == swapped
    # the same columns, whatever the rows: nobody reads a table whose last one comes and goes
    assert swapped.splitlines()[0] == "price,outside the region"
    assert swapped.splitlines()[1].endswith(",no")


# ---- bad input --------------------------------------------------------------------------------

GOOD = {"data": "patients.csv", "target": "diagnosis", "rules": "rules.json", "out": "new/run"}


@pytest.mark.parametrize(
    ("changed", "further", "part"),
    [
        ({"data": "absent.csv"}, [], "absent.csv"),
        ({"target": "diagnose"}, [], "did you mean 'diagnosis'"),
        ({"rules": "absent.json"}, [], "absent.json"),
        ({"rules": "patients.csv"}, [], "not valid JSON"),
        ({"out": "patients.csv"}, [], "is a file"),
        ({"out": "taken"}, [], "not empty"),
        ({}, ["--ignore", "sx"], "did you mean 'sex'"),
        ({}, ["--task", "classify"], "did you mean 'classification'"),
        ({}, ["--members", "netwrok"], "did you mean 'network'"),
        ({}, ["--members", "relu"], "logit"),
        ({}, ["--scores", "odds"], "probability, logit"),
        ({}, ["--hidden", "4,x"], "--hidden"),
        ({}, ["--steps", "0"], "steps must be at least 1"),
        ({}, ["--restarts", "0"], "restarts must be at least 1"),
        ({}, ["--threads", "0"], "threads must lie in"),
        ({}, ["--iteration-limit", "0"], "iteration_limit"),
        ({}, ["--column-limit", "0"], "column_limit"),
        ({}, ["--time-limit", "-1"], "time_limit_s"),
        ({}, ["--final-weights", "lost"], "did you mean 'loss'"),
        ({}, ["--seed", "-1"], "seed"),
        ({}, ["--device", "abacus"], "device"),
        ({}, ["--set", "epsilon"], "name=value"),
        ({}, ["--set", "epsilom=1"], "did you mean 'epsilon'"),
        ({}, ["--set", "epsilon=-1"], "epsilon"),
        ({}, ["--set", "seed=1"], "--seed"),
        ({}, ["--set", "objective=best"], "objective"),
        ({}, ["--set", "activation=swoosh"], "activation"),
        ({}, ["--set", "learning_rate=fast"], "learning_rate"),
        ({}, ["--set", "learning_rate=-1"], "learning_rate"),
        ({}, ["--set", "batch_size=0"], "batch_size"),
        ({}, ["--set", "batch_size=1.5"], "batch_size"),
        ({}, ["--resume", "--force"], "one of them"),
        ({}, ["--hidden", "999999999999"], "hidden must lie in [1, 4096]"),
        ({}, ["--threads", "100000"], "threads must lie in [1, 256]"),
        (
            {},
            ["--steps", "0", "--seed", "-1", "--task", "clas"],
            "steps must be at least 1, got 0; ",
        ),
    ],
)
def test_bad_options_give_one_line_and_leave_nothing(
    work: Path,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, str],
    further: list[str],
    part: str,
) -> None:
    (work / "taken").mkdir()
    (work / "taken" / "mine.txt").write_text("mine")
    before = files_of(work)
    given = GOOD | changed
    arguments = ["train", given["data"], "--ignore", "sex"]
    for name in ("target", "rules", "out"):
        arguments += [f"--{name}", given[name]]
    assert main(arguments + further) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert part in lines[0]
    assert files_of(work) == before


@pytest.mark.parametrize(
    ("data", "rules", "part"),
    [
        ("size,diagnosis\n1,a\nx,b\n2,a\n", [], "line 3, column 'size'"),
        ("size,city,diagnosis\n1,Rome,a\n2,Oslo,b\nx,Oslo,b\n", [], "not a finite number"),
        ("size,diagnosis\n1,a\n2\n", [], "line 3"),
        ("size,diagnosis\n1,a\n2,a\n", [], "one class only"),
        ("diagnosis\na\nb\n", [], "no column left"),
        ("size,diagnosis\n1,a\n2,b\n", [{"rule": "margins"}], "rule 1"),
        (
            "size,diagnosis\n1,a\n2,b\n",
            [
                {"rule": "probability", "rows": [0], "label": "a", "at_least": 0.6},
                {
                    "rule": "linear",
                    "rows": [0],
                    "coefficients": {"a": 1},
                    "at_most": 0.5,
                },
            ],
            "rule 2 (linear): input 0",
        ),
    ],
)
def test_bad_data_and_rules_leave_nothing(
    work: Path, capsys: pytest.CaptureFixture[str], data: str, rules: list[Any], part: str
) -> None:
    (work / "data.csv").write_text(data)
    (work / "these.json").write_text(json.dumps(rules))
    before = files_of(work)
    command = ["train", "data.csv", "--target", "diagnosis", "--rules", "these.json"]
    assert main([*command, "--out", "run"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert part in lines[0]
    assert files_of(work) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "absent", "patients.csv"],
        ["audit", "absent", "--rules", "rules.json"],
        ["show", "absent"],
        ["show", "."],
        ["train", "patients.csv"],
        ["trian"],
    ],
)
def test_other_commands_refuse_with_code_2(
    work: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    before = files_of(work)
    assert main(arguments) == 2
    assert "error: " in capsys.readouterr().err.lower()
    assert files_of(work) == before


def test_bad_input_through_the_process(work: Path) -> None:
    options = ["--target", "a", "--rules", "rules.json", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "cg4ai.cli.main", "train", "absent.csv", *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: cannot read absent.csv")
    assert "Traceback" not in done.stderr


# ---- the demonstration ------------------------------------------------------------------------


@pytest.mark.slow
def test_demo(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--data", "cancer", "--out", "demo"]) == 0
    output = capsys.readouterr().out
    assert "Both rules hold." in output
    assert "plain network" in output
    assert "holds at every input" in next(
        line for line in output.splitlines() if line.startswith("mixture ")
    )


def test_the_tumour_demo_leaves_a_run_of_train(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a run of no application, without rules: no report, and a page that knew no slack."""
    monkeypatch.setattr(
        demo_tumours, "ASKED", {"target": "diagnosis", "steps": 20, "iteration_limit": 2}
    )
    monkeypatch.setattr(sys, "argv", ["/elsewhere/cg4ai/__main__.py"])
    assert main(["demo", "--data", "cancer", "--out", "the demo"]) in (0, 3)
    told = capsys.readouterr().out
    assert "the demo/explorer.html in a browser" in told
    assert f"{sys.executable} -m cg4ai explore 'the demo'\n" in told
    assert main(["report", "the demo"]) == 0
    assert (work / "the demo" / "report.html").stat().st_size > 10_000
    assert main(["audit", "the demo"]) in (0, 3)
    assert "155 listed inputs" in capsys.readouterr().out  # its own rules, at its own data
    assert main(["predict", "the demo", "the demo/patients.csv", "--explain"]) == 0
    assert "large and jagged" in capsys.readouterr().out.splitlines()[0]


def test_the_demo_offers_no_option_that_it_lacks(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "mine").mkdir()
    (work / "mine" / "run.json").write_text("{}")
    assert main(["demo", "--out", "mine"]) == 2
    said = capsys.readouterr().err
    assert "mine already holds a run" in said
    assert "--resume" not in said
    assert "--force" not in said


@pytest.mark.slow
@pytest.mark.guard
def test_the_demo_leaves_a_run_to_look_at(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "small.json").write_text(json.dumps(NETWORK))
    small = {"network": "small.json", "demands": 2, "threads": 1, "first_steps": 30}
    small |= {"scenarios": 20, "priced": 40, "validation": 50}
    monkeypatch.setattr(demo, "ASKED", small)
    for again in ([], ["--out", "demo-run"]):  # in place of the first
        assert main(["demo", *again]) == 0
        assert "demo-run/explorer.html in a browser" in capsys.readouterr().out
    assert (work / "demo-run" / "explorer.html").stat().st_size > 10_000
    (work / "notes").mkdir()
    (work / "notes" / "mine.txt").touch()
    assert main(["demo", "--out", "notes"]) == 2
    assert (work / "notes" / "mine.txt").exists()


def test_too_little_memory_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """It went to stdout, among the JSON lines that programs read there."""
    commands = typer.Typer(pretty_exceptions_enable=False)

    @commands.command()
    def eat() -> None:
        raise MemoryError

    assert run_guarded(commands, [], "eat") == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: there is not enough memory")
