"""Small runs of every scenario: summaries are what predictions give; folders can be resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cg4ai
from cg4ai.apps.digits import train
from cg4ai.apps.digits.data import digits
from cg4ai.apps.digits.members import base_member
from cg4ai.apps.digits.problem import (
    DigitLoss,
    Recipe,
    demand,
    digit_settings,
    digits_problem,
    usual_recipe,
)
from cg4ai.apps.digits.saved import Wanted, open_run, prepared_run, train_and_save
from cg4ai.apps.digits.separation import PixelFlips, broken
from cg4ai.apps.digits.train import alone
from cg4ai.cli import digits as command
from cg4ai.cli import main as cli
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.runs import files
from experiments.digits.fewest import fewest_columns

TINY = Recipe(group=12, steps=120, learning_rate=0.02, batch_size=32, blur=0.0, rounds=3)
ENDS = ("train_before", "train_after", "test_before", "test_after")
KEYS = (
    *("scenario", "rule", "n", "seed", "columns", "active_members", "rows", "rows_satisfied"),
    *("worst_violation", "test_accuracy", "single_accuracy", "average_accuracy", "stop_reason"),
    "total_s",
)


def test_hard_images_are_kept_and_the_folder_predicts_the_same(tmp_path: Path) -> None:
    wanted = Wanted(n=30, seed=2, threads=1, recipe=TINY)
    prepared = prepared_run(wanted)
    with open_run(tmp_path / "run", wanted, prepared, resume=False, force=False) as run:
        trained = train_and_save(wanted, prepared, run)
    assert trained is not None
    summary = files.read_json(tmp_path / "run" / "summary.json")
    assert set(KEYS) <= set(summary)
    assert summary["rows"] == summary["rows_satisfied"] == 30
    split = digits().split(30, 2)
    loaded = cg4ai.load(tmp_path / "run")
    both = np.concatenate([split.train_images, split.test_images[:5]])
    labelled = loaded.predict(both, explain=True).labels
    assert labelled.tolist() == ["audited"] * 30 + ["unverified"] * 5
    scores = loaded.predict(split.train_images)
    own = scores[np.arange(30), split.train_labels]
    scores[np.arange(30), split.train_labels] = -np.inf
    lead = own - scores.max(axis=1)
    assert lead.min() >= 0.05
    assert summary["worst_violation"] == pytest.approx(0.05 - lead.min())
    answers = loaded.predict(split.test_images).argmax(1)
    assert summary["test_accuracy"] == np.mean(answers == split.test_labels)
    assert summary["columns"] == len(trained.average) >= summary["active_members"]
    assert 1 <= summary["fewest_columns"] <= summary["feasible_after_columns"]
    arrays = files.read_arrays(tmp_path / "run" / "arrays.safetensors")
    assert np.array_equal(arrays["test_scores"].argmax(1), answers)
    assert np.array_equal(arrays["train"], split.train)


def test_probability_rows_are_kept_from_constraints_alone() -> None:
    recipe = replace(TINY, rule="probability", threshold=0.51, output_limit=None, headroom=0.2)
    trained = train("hard", n=20, rule="probability", constraints_only=True, recipe=recipe)
    scores = trained.ensemble.predict(trained.split.train_images)
    np.testing.assert_allclose(scores.sum(1), 1.0)
    assert trained.summary["rows_satisfied"] == trained.summary["rows"] == 20
    assert scores[np.arange(20), trained.split.train_labels].min() >= 0.51
    assert trained.summary["constraints_only"]


def test_a_recipe_for_the_other_rule_is_refused() -> None:
    for ask in (
        lambda: train("hard", rule="probability", recipe=TINY),
        lambda: Wanted(rule="probability", recipe=TINY),
    ):
        with pytest.raises(InvalidInput, match="for the rule margin, asked for is probability"):
            ask()


def test_what_a_recipe_leaves_out_comes_from_its_rule() -> None:
    recipe = Recipe(rule="probability")
    assert (recipe.threshold, recipe.output_limit, recipe.headroom) == (0.51, None, 0.2)
    assert (Recipe().threshold, Recipe().output_limit, Recipe().headroom) == (0.05, 1000.0, 1.0)
    assert Recipe(output_limit=None).output_limit is None
    with pytest.raises(InvalidInput, match=r"between 0\.5 and 1"):
        replace(Recipe(), rule="probability")
    with pytest.raises(InvalidInput, match="scale of margins"):
        Recipe(rule="probability", output_limit=1000.0)


def test_attacks_outside_robust_are_refused() -> None:
    def mine(m: object, x: np.ndarray, y: np.ndarray, *, seed: int) -> np.ndarray:
        return x

    with pytest.raises(InvalidInput, match="belong to the scenario robust, got hard"):
        train("hard", n=10, recipe=TINY, attacks=[mine])
    for wrong in ({"attack": "both"}, {"pixels": 9999}):
        with pytest.raises(InvalidInput, match="belong to the scenario robust"):
            Wanted(**wrong)  # type: ignore[arg-type]


def test_copies_without_a_loss_are_refused() -> None:
    with pytest.raises(InvalidInput, match="leave out augment"):
        train("hard", n=20, hard_per_class=2, recipe=replace(TINY, copies=2))


def test_fewest_columns_by_prefix() -> None:
    values = np.array([[3.0, -1.0, -1.0, 0.0], [-1.0, -1.0, 3.0, 0.0]])
    bounds = np.array([0.5, 0.5])
    assert fewest_columns(values, bounds, tolerance=1e-7) == 3
    assert fewest_columns(values[:, ::-1], bounds, tolerance=1e-7) == 4
    assert fewest_columns(values, bounds + 0.6, tolerance=1e-7) is None
    assert fewest_columns(values[:1], bounds[:1], tolerance=1e-7) == 1


def test_corrected_and_relabelled_images() -> None:
    corrected = train("correct", n=50, recipe=replace(TINY, hidden=2), seed=1)
    base_wrong = broken(corrected.base, corrected.split.train_images, corrected.split.train_labels)
    assert corrected.summary["rows"] == base_wrong.sum() > 0
    assert corrected.summary["rows_satisfied"] == corrected.summary["rows"]
    wrong = corrected.split.train_images[base_wrong]
    answers = corrected.ensemble.predict(wrong).argmax(1)
    np.testing.assert_array_equal(answers, corrected.split.train_labels[base_wrong])
    relabelled = train("relabel", n=50, recipe=TINY, seed=1)
    threes = relabelled.split.train_images[relabelled.split.train_labels == 3]
    assert np.all(relabelled.ensemble.predict(threes).argmax(1) == 2)
    assert relabelled.summary["target_answered_as_asked"] == 1.0
    assert relabelled.summary["class_accuracy"][3] < 0.2


def test_a_few_relabelled_images_do_not_outweigh_all_others() -> None:
    usual = usual_recipe("probability", 50, constraints_only=False, augment=False, seed=1)
    recipe = replace(usual, group=20, steps=300)
    summary = train("relabel", n=50, rule="probability", recipe=recipe, seed=1).summary
    assert summary["rows_satisfied"] == summary["rows"] == 5
    assert summary["train_accuracy"] >= 0.7  # nine of ten classes keep their labels


@pytest.mark.parametrize("rule", ["margin", "probability"])
def test_attacked_images_are_counted_and_runs_resume(rule: str, tmp_path: Path) -> None:
    usual = Wanted(scenario="robust", rule=rule, n=20, seed=3)  # type: ignore[arg-type]
    recipe = replace(usual.usual(), group=12, steps=200, blur=0.0, rounds=3, batch_size=32)
    wanted = replace(usual, pixels=40, threads=1, recipe=recipe)
    prepared = prepared_run(wanted)
    with open_run(tmp_path / "whole", wanted, prepared, resume=False, force=False) as run:
        whole = train_and_save(wanted, prepared, run)
    with open_run(tmp_path / "killed", wanted, prepared, resume=False, force=False) as run:
        shorter = replace(prepared, settings=replace(prepared.settings, iteration_limit=1))
        train_and_save(wanted, shorter, run)
    with open_run(tmp_path / "killed", wanted, prepared, resume=True, force=False) as run:
        resumed = train_and_save(wanted, prepared, run)
    assert whole is not None
    assert resumed is not None
    timed = [name for name in whole.summary if name.endswith("_s")]
    assert {k: v for k, v in whole.summary.items() if k not in timed} == {
        k: v for k, v in resumed.summary.items() if k not in timed
    }
    assert whole.summary["columns"] == len(whole.average) >= (13 if rule == "margin" else 12)
    # attacks on the base member and on every later mixture, each within forty pixels
    images, labels = whole.arrays["required_images"], whole.arrays["required_labels"]
    assert 20 < whole.summary["rows"] == len(images) == len(np.unique(images, axis=0))
    sources = whole.split.train_images.astype(np.float32)
    changed = (images[:, None] != sources[None]).sum(-1)
    assert changed.min(1).max() <= 40
    np.testing.assert_array_equal(labels, whole.split.train_labels[changed.argmin(1)])
    assert whole.result.rows == len(images)
    assert whole.summary["withstand_train_before"] <= 1.0
    other = replace(wanted, pixels=41)
    with pytest.raises(InvalidSettings, match="pixels: the run has 40, now 41"):
        open_run(tmp_path / "killed", other, prepared, resume=True, force=False)


def test_scenarios_ask_for_what_they_say() -> None:
    split = digits().split(100, 0)
    x, y = split.train_images, split.train_labels
    base = alone(base_member(x[:10], y[:10], rule="margin", hidden=4, seed=0))

    def sizes(scenario: str, **options: object) -> tuple[int | None, int | None]:
        asked = demand(scenario, split, base=base, **options)  # type: ignore[arg-type]
        loss, rows = asked.loss, asked.rows
        return None if loss is None else len(loss[0]), None if rows is None else len(rows[0])

    assert sizes("plain") == (100, None)
    assert sizes("hard") == (100, 100)
    assert sizes("hard", constraints_only=True) == (None, 100)
    assert sizes("hard", hard_per_class=0) == (100, None)
    assert sizes("hard", hard_per_class=2) == (80, 20)
    assert sizes("hard", hard_per_class=10) == (None, 100)
    assert sizes("correct") == (100, int(broken(base, x, y).sum()))
    relabel = demand("relabel", split, base=base)
    assert relabel.rows is not None
    assert relabel.loss is not None
    assert relabel.rows[1].tolist() == [2] * 10
    np.testing.assert_array_equal(relabel.loss[1], y)
    assert demand("robust", split, base=base).attacks == (PixelFlips(),)
    two = demand("hard", split, base=base, hard_per_class=2)
    assert two.rows is not None
    assert two.loss is not None
    assert np.bincount(two.rows[1]).tolist() == [2] * 10
    assert not (two.rows[0][:, None] == two.loss[0][None]).all(-1).any()  # disjoint
    for wrong, message in (
        (("hard", {"hard_per_class": 11}), "between 0 and the 10"),
        (("plain", {"constraints_only": True}), "belong to the scenario hard"),
        (("hrad", {}), "did you mean 'hard'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            sizes(wrong[0], **wrong[1])  # type: ignore[arg-type]


def test_copies_are_soft_data_never_rows() -> None:
    split = digits().split(10, 0)
    base = alone(
        base_member(split.train_images, split.train_labels, rule="margin", hidden=4, seed=0)
    )
    asked = demand("hard", split, base=base)
    recipe = replace(TINY, copies=3)
    problem = digits_problem(asked, recipe, base=base)
    assert isinstance(problem.objective, DigitLoss)
    assert problem.objective.soft is not None
    assert problem.objective.soft[0].shape == (40, 784)
    np.testing.assert_array_equal(problem.objective.soft[1][10:20], split.train_labels)
    rows = problem.requirements[0].rows(0)
    assert rows is not None
    np.testing.assert_array_equal(rows.inputs, split.train_images)
    assert digit_settings(recipe, asked).final_weights == "uniform"


def test_command_reports_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Wanted(n=20, threads=1, recipe=TINY)
    options = command.DigitsOptions(out=tmp_path / "run", progress="quiet")
    assert command.run(wanted, options) == 0
    text = capsys.readouterr().out
    assert "Kept (audited): at 20 of 20 images of the hard set" in text
    assert "cg4ai.load(" in text
    summary = files.read_json(tmp_path / "run" / "summary.json")
    if summary["equal_weights"]:
        assert "the same: this mixture weighs its members equally" in text
        assert summary["average_accuracy"] == summary["test_accuracy"]
    assert "equally" not in command.report({**summary, "equal_weights": False})
    stood = {**summary, "scenario": "robust"}
    stood |= {f"change_{end}": None for end in ENDS} | {f"withstand_{end}": 1.0 for end in ENDS}
    assert "none found and none found" in command.report(stood)
    missed = command.guarantee({**summary, "rows_satisfied": 19})
    assert missed.startswith("NOT KEPT")
    assert cli.main(["digits", "hard", "--n", "15", "--quiet"]) == 2
    assert "multiple of 10" in capsys.readouterr().err
    assert cli.main(["digits", "hart", "--quiet"]) == 2
    assert "did you mean 'hard'" in capsys.readouterr().err
    assert cli.main(["digits", "hard", "--resume"]) == 2
    assert cli.main(["digits", "hard", "--constraints-only", "--augment"]) == 2
    assert "leave out augment" in capsys.readouterr().err
    for wrong, message in (
        (["--seed", "-1"], "seed"),
        (["--device", "abacus"], "device must be cpu, cuda"),
        (["--attack", "both"], "belong to the scenario robust"),
    ):
        assert cli.main(["digits", "hard", *wrong]) == 2
        assert message in capsys.readouterr().err
