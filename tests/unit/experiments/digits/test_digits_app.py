"""Small runs of every scenario: summaries are what predictions give; folders can be resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cg4ai
from base_members import base_members_trained_once  # noqa: F401  # a fixture for all tests here
from cg4ai.apps.explorer import write_explorer
from cg4ai.apps.runner import perform
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.records import IterationRecord
from cg4ai.report.terminal import render_text
from cg4ai.runs import files
from experiments.digits import DigitsSettings, train
from experiments.digits import __main__ as cli
from experiments.digits.app import APPLICATION, alone
from experiments.digits.data import digits
from experiments.digits.fewest import Study, TooLong, fewest_columns
from experiments.digits.members import base_member
from experiments.digits.problem import DigitLoss, demand, digit_settings, digits_problem
from experiments.digits.report import guarantee
from experiments.digits.separation import PixelFlips, broken
from experiments.digits.settings import Recipe
from experiments.digits.story import story
from raising import raises

TINY: dict[str, Any] = {
    "group": 12,
    "steps": 120,
    "learning_rate": 0.02,
    "batch_size": 32,
    "blur": 0.0,
    "gain": 1.0,
    "rounds": 3,
    "row_weight": 2.0,
    "individual": 0.3,
    "enough": 0.05,
    "threads": 1,
}
ENDS = ("train_before", "train_after", "test_before", "test_after")
KEYS = (
    *("scenario", "rule", "n", "seed", "columns", "active_members", "rows", "rows_satisfied"),
    *("worst_violation", "test_accuracy", "single_accuracy", "average_accuracy", "stop_reason"),
    "total_s",
)


class Stops:
    """A screen at which Ctrl-C is pressed after the first iteration."""

    def update(self, record: IterationRecord) -> None:
        raise KeyboardInterrupt

    def message(self, text: str) -> None: ...

    def expect(self, words: str, *, iterations: int, seconds: float) -> None: ...

    def step(self, done: int, steps: int) -> None: ...

    def close(self) -> None: ...


def test_hard_images_are_kept_and_the_folder_predicts_the_same(tmp_path: Path) -> None:
    trained = perform(Study(), DigitsSettings(n=30, seed=2, **TINY), out=tmp_path / "run")
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
    assert summary["columns"] == trained.result.columns >= summary["active_members"]
    assert 1 <= summary["fewest_columns"] <= summary["feasible_after_columns"]
    arrays = files.read_arrays(tmp_path / "run" / "arrays.safetensors")
    assert np.array_equal(arrays["test_scores"].argmax(1), answers)
    assert np.array_equal(arrays["train"], split.train)


def test_probability_rows_are_kept_from_constraints_alone() -> None:
    asked = DigitsSettings(n=20, rule="probability", constraints_only=True, **TINY)
    trained = train(asked)
    split = trained.prepared.split
    scores = trained.result.ensemble.predict(split.train_images)
    np.testing.assert_allclose(scores.sum(1), 1.0)
    assert trained.summary["rows_satisfied"] == trained.summary["rows"] == 20
    assert scores[np.arange(20), split.train_labels].min() >= 0.51
    assert trained.summary["constraints_only"]


def test_what_a_recipe_leaves_out_comes_from_its_rule() -> None:
    recipe = Recipe(rule="probability")
    assert (recipe.threshold, recipe.output_limit, recipe.headroom) == (0.51, None, 0.2)
    assert (Recipe().threshold, Recipe().output_limit, Recipe().headroom) == (0.05, 1000.0, 1.0)
    assert Recipe(output_limit=None).output_limit is None
    with raises(InvalidSettings, "invalid-settings"):
        replace(Recipe(), rule="probability")
    with raises(InvalidSettings, "invalid-settings", "margins"):
        Recipe(rule="probability", output_limit=1000.0)


def test_attacks_outside_robust_are_refused() -> None:
    def mine(mixture: object, images: np.ndarray, labels: object, *, seed: int) -> np.ndarray:
        return images

    with raises(InvalidInput, "invalid-input", "scenario"):
        train(DigitsSettings(n=10, **TINY), attacks=[mine])
    for wrong in ({"attack": "both"}, {"pixels": 99}):
        with raises(InvalidSettings, "invalid-settings", "scenario"):
            DigitsSettings(**wrong)


def test_copies_without_a_loss_are_refused() -> None:
    with raises(InvalidInput, "invalid-input", "augment"):
        train(DigitsSettings(n=20, hard_per_class=2, copies=2, **TINY))


def test_fewest_columns_by_prefix() -> None:
    values = np.array([[3.0, -1.0, -1.0, 0.0], [-1.0, -1.0, 3.0, 0.0]])
    bounds = np.array([0.5, 0.5])
    assert fewest_columns(values, bounds, tolerance=1e-7) == 3
    assert fewest_columns(values[:, ::-1], bounds, tolerance=1e-7) == 4
    assert fewest_columns(values, bounds + 0.6, tolerance=1e-7) is None
    assert fewest_columns(values[:1], bounds[:1], tolerance=1e-7) == 1
    with pytest.raises(TooLong):
        fewest_columns(values, bounds, tolerance=1e-7, within_s=0.0)


def test_corrected_and_relabelled_images() -> None:
    corrected = train(DigitsSettings(scenario="correct", n=50, hidden=2, seed=1, **TINY))
    split, base = corrected.prepared.split, corrected.prepared.base
    base_wrong = broken(base, split.train_images, split.train_labels)
    assert corrected.summary["rows"] == base_wrong.sum() > 0
    assert corrected.summary["rows_satisfied"] == corrected.summary["rows"]
    wrong = split.train_images[base_wrong]
    answers = corrected.result.ensemble.predict(wrong).argmax(1)
    np.testing.assert_array_equal(answers, split.train_labels[base_wrong])
    relabelled = train(DigitsSettings(scenario="relabel", n=50, seed=1, **TINY))
    split = relabelled.prepared.split
    threes = split.train_images[split.train_labels == 3]
    assert np.all(relabelled.result.ensemble.predict(threes).argmax(1) == 2)
    assert relabelled.summary["target_answered_as_asked"] == 1.0
    assert relabelled.summary["class_accuracy"][3] < 0.2


def test_a_few_relabelled_images_do_not_outweigh_all_others() -> None:
    asked = DigitsSettings(
        scenario="relabel", n=50, rule="probability", group=20, steps=300, seed=1, threads=1
    )
    summary = train(asked).summary
    assert summary["rows_satisfied"] == summary["rows"] == 5
    assert summary["train_accuracy"] >= 0.7  # nine of ten classes keep their labels


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("rule", ["margin", "probability"])
def test_attacked_images_are_counted_and_runs_resume(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.digits.problem.FINAL_ATTACKS", 2)
    asked = DigitsSettings(
        scenario="robust",
        rule=rule,  # type: ignore[arg-type]
        n=20,
        seed=3,
        pixels=40,
        threads=1,
        group=12,
        steps=100,
        blur=0.0,
        rounds=2,
        batch_size=32,
    )
    whole = perform(APPLICATION, asked, out=tmp_path / "whole")
    interrupting = Stops()
    with pytest.raises(KeyboardInterrupt):
        perform(APPLICATION, asked, out=tmp_path / "killed", screen=interrupting)  # type: ignore[arg-type]
    resumed = perform(APPLICATION, asked, out=tmp_path / "killed", resume=True)
    timed = [name for name in whole.summary if name.endswith("_s")]
    assert {k: v for k, v in whole.summary.items() if k not in timed} == {
        k: v for k, v in resumed.summary.items() if k not in timed
    }
    assert whole.summary["columns"] == whole.result.columns >= (13 if rule == "margin" else 12)
    # attacks on the base member and on every later mixture, each within forty pixels
    assert whole.evaluation is not None
    arrays = whole.evaluation.arrays
    images, labels = arrays["required_images"], arrays["required_labels"]
    assert 20 < whole.summary["rows"] == len(images) == len(np.unique(images, axis=0))
    sources = whole.prepared.split.train_images.astype(np.float32)
    changed = (images[:, None] != sources[None]).sum(-1)
    assert changed.min(1).max() <= 40
    np.testing.assert_array_equal(labels, whole.prepared.split.train_labels[changed.argmin(1)])
    assert whole.result.rule_rows is not None
    assert whole.result.rule_rows >= len(images)
    assert whole.summary["withstand_train_before"] <= 1.0
    # these images are stored rounded, so a page can show no slack at them, and says so
    write_explorer(tmp_path / "whole", tmp_path / "page.html")
    assert "Its images are not in this page" in (tmp_path / "page.html").read_text()
    with raises(InvalidSettings, "invalid-settings", "pixels"):
        perform(APPLICATION, replace(asked, pixels=41), out=tmp_path / "killed", resume=True)


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
    for wrong, fact in (
        (("hard", {"hard_per_class": 11}), "hard_per_class"),
        (("plain", {"constraints_only": True}), "constraints_only"),
        (("hrad", {}), "hard"),
    ):
        with raises(InvalidInput, "invalid-input", fact):
            sizes(wrong[0], **wrong[1])


def test_copies_are_soft_data_never_rows() -> None:
    split = digits().split(10, 0)
    base = alone(
        base_member(split.train_images, split.train_labels, rule="margin", hidden=4, seed=0)
    )
    asked = demand("hard", split, base=base)
    recipe = DigitsSettings(n=10, copies=3, **TINY)
    problem = digits_problem(asked, recipe, base=base)
    assert isinstance(problem.objective, DigitLoss)
    assert problem.objective.soft is not None
    assert problem.objective.soft[0].shape == (40, 784)
    np.testing.assert_array_equal(problem.objective.soft[1][10:20], split.train_labels)
    rows = problem.requirements[0].rows(0)
    assert rows is not None
    np.testing.assert_array_equal(rows.inputs, split.train_images)
    assert digit_settings(recipe, asked).final_weights == "uniform"


def _option(name: str, value: object) -> list[str]:
    return ["--threads", str(value)] if name == "threads" else ["--set", f"{name}={value}"]


def report(summary: dict[str, Any]) -> str:
    return render_text(story(summary), verbose=True)


def test_command_reports_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = [part for name, value in TINY.items() for part in _option(name, value)]
    assert cli.main(["hard", "--n", "20", *short, "--quiet", "--out", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "on the 20 listed images (recomputed)" in text
    assert "python -m experiments.digits explore" in text
    summary = files.read_json(tmp_path / "run" / "summary.json")
    if summary["equal_weights"]:
        assert "the same: this mixture weighs its members equally" in text
        assert summary["average_accuracy"] == summary["test_accuracy"]
    assert "equally" not in report({**summary, "equal_weights": False})
    said = f"at the weights of least loss: {summary['distance']}."
    assert said in report(summary)
    assert said not in text
    assert said not in report({**summary, "constraints_only": True})
    stood = {**summary, "scenario": "robust"}
    stood |= {f"change_{end}": None for end in ENDS} | {f"withstand_{end}": 1.0 for end in ENDS}
    assert "none found and none found" in report(stood)
    missed = guarantee({**summary, "rows_satisfied": 19})
    assert missed.startswith("NOT KEPT")
    assert cli.main(["hard", "--n", "15", "--quiet"]) == 2
    assert "multiple of 10" in capsys.readouterr().err
    assert cli.main(["hart", "--quiet"]) == 2
    assert "hard" in capsys.readouterr().err
    assert cli.main(["hard", "--resume"]) == 2
    assert cli.main(["hard", "--constraints-only", "--augment"]) == 2
    assert "leave out augment" in capsys.readouterr().err
    for wrong, message in (
        (["--seed", "-1"], "seed"),
        (["--device", "abacus"], "device must be cpu, cuda"),
        (["--attack", "both"], "belong to the scenario robust"),
    ):
        assert cli.main(["hard", *wrong]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.guard
def test_exact_search_bounds_the_answer_within_a_radius(tmp_path: Path) -> None:
    small = TINY | {"group": 3, "hidden": 2, "steps": 60}
    asked = DigitsSettings(scenario="robust", n=10, radius=0.005, separator="mip", radii=1, **small)
    trained = perform(Study(), asked, out=tmp_path / "run")
    summary = trained.summary
    assert (summary["balls"], summary["balls_bounded"], summary["balls_violated"]) == (10, 10, 0)
    assert trained.evaluation.kept
    assert summary["radii"][0] > 0.005
    assert summary["radii_closed"] == 1
    split, random = trained.prepared.split, np.random.default_rng(0)
    near = split.train_images + random.choice([-0.005, 0.005], size=(200, 10, 784))
    outputs = trained.result.ensemble.predict(np.clip(near, 0, 1).reshape(-1, 784))
    assert (outputs.argmax(1).reshape(200, 10) == split.train_labels).all()
    assert "10 bounded" in report(summary)
    for wrong in ({"scenario": "hard", "radius": 0.1}, {"scenario": "robust", "separator": "mip"}):
        with pytest.raises(ValueError, match="radius"):
            DigitsSettings(**wrong)
