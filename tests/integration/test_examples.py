"""The examples run, and what they claim about rules is so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLERANCE = 1e-6


def run(name: str) -> dict[str, float]:
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    numbers: dict[str, float] = module.main()
    return numbers


def test_monotone_regression() -> None:
    found = run("monotone_regression")
    assert found["plain_falls"] > 20
    assert found["plain_out_of_bounds"] > 1
    assert found["ruled_falls"] == 0
    assert found["ruled_worst_fall"] <= TOLERANCE
    assert found["ruled_out_of_bounds"] <= TOLERANCE
    assert found["ruled_error"] < found["plain_error"]


@pytest.mark.filterwarnings("ignore:Setting an? ")  # of pandas, inside Fairlearn
def test_lending_parity() -> None:
    found = run("lending_parity")
    assert found["plain_score_gap"] > 0.1
    assert found["ours_score_gap"] <= 0.02 + TOLERANCE
    assert found["ours_score_gap_new"] < 0.06
    assert found["ours_decision_gap"] < found["plain_decision_gap"]
    assert found["fairlearn_score_gap"] < 0.04
    assert found["ours_calls_differ"] == 0
    assert found["fairlearn_calls_differ"] > 0
    assert found["ours_accuracy"] > found["plain_accuracy"] - 0.05


def test_patch_misclassified() -> None:
    found = run("patch_misclassified")
    assert found["named_right_before"] == 0
    assert found["named_right_after"] == 6
    assert found["least_probability"] >= 0.6 - TOLERANCE
    assert found["test_accuracy_after"] > found["test_accuracy_before"] - 0.03
    assert found["changed"] >= found["made_right"] + found["made_wrong"]


def test_layer_pytorch() -> None:
    found = run("layer_pytorch")
    assert found["plain_broken"] > 1000
    assert found["plain_worst"] > 0.1
    assert found["ruled_broken"] == 0
    assert found["ruled_error"] < found["plain_error"]


def test_layer_lightning() -> None:
    pytest.importorskip("lightning")
    found = run("layer_lightning")
    assert found["largest"] <= 0.5
    assert found["least"] >= 0
    assert found["sum_missed"] <= TOLERANCE
    assert found["error"] < 0.05


def test_layer_huggingface() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    found = run("layer_huggingface")
    assert found["broken"] == 0
    assert found["error"] < 0.1


def test_controller() -> None:
    found = run("controller")
    assert (found["answered"], found["answered_again"], found["refused"]) == (2, 0, 1)
    assert (found["rows"], found["outside"], found["overloaded"]) == (3, 1, 1)
    assert found["by_program"] >= 1
    assert found["paths"] > 2
    assert found["sum_missed"] <= TOLERANCE


@pytest.mark.slow
@pytest.mark.guard
def test_an_example_runs_as_a_script() -> None:
    script = EXAMPLES / "patch_misclassified.py"
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "named images" in ended.stdout
    assert "6 listed inputs" in ended.stdout


def test_every_example_is_tested() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert names
    missing = [name for name in names if f'run("{name}")' not in source]
    assert missing == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it(path: Path) -> None:
    assert f"Run: python examples/{path.name}" in path.read_text(encoding="utf-8")
