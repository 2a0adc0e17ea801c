"""Train a digit classifier under one scenario's rules and measure it on images it never saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.digits.data import CLASSES, PIXELS, Digits, Split, digits
from cg4ai.apps.digits.journal import Journal
from cg4ai.apps.digits.measures import accuracy, class_accuracies, robustness
from cg4ai.apps.digits.members import Rule, base_member
from cg4ai.apps.digits.problem import (
    RELABELLED,
    RELABELLED_AS,
    Demand,
    Recipe,
    Scenario,
    demand,
    digit_settings,
    digits_problem,
    listed,
    usual_recipe,
)
from cg4ai.apps.digits.separation import Attack
from cg4ai.ensemble.audit import audit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.pricing.coefficients import row_values
from cg4ai.records import Array, IntArray, IterationRecord
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result

TOLERANCE = 1e-7  # what a recomputed row may lack
STORED = 2000  # required images kept for figures


@dataclass(frozen=True)
class Prepared:
    """Everything of a run that is fixed before training."""

    split: Split
    demand: Demand
    recipe: Recipe
    settings: Settings
    base: Ensemble


@dataclass(frozen=True)
class DigitsResult:
    """A trained classifier with everything that its summary reports.

    `base` is one member trained alone as in the paper; `average` the plain average of all members;
    `required` every image that some row is about, with the answer demanded.
    """

    prepared: Prepared
    result: Result
    average: Ensemble
    required: tuple[Array, IntArray] = field(repr=False)
    summary: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(repr=False)

    @property
    def ensemble(self) -> Ensemble:
        return self.result.ensemble

    @property
    def split(self) -> Split:
        return self.prepared.split

    @property
    def base(self) -> Ensemble:
        return self.prepared.base


def train(
    scenario: Scenario = "hard",
    *,
    n: int = 100,
    rule: Rule = "margin",
    hard_per_class: int | None = None,
    constraints_only: bool = False,
    augment: bool = False,
    attacks: Sequence[Attack] = (),
    data: Digits | None = None,
    recipe: Recipe | None = None,
    hidden: int = 4,
    seed: int = 0,
    progress: Callable[[IterationRecord], None] | None = None,
) -> DigitsResult:
    """Train and measure; `recipe` replaces the usual one, its seed and device included."""
    if recipe is not None:
        recipe.check_rule(rule)
    started = time.perf_counter()
    prepared = prepare(
        scenario,
        (data or digits()).split(n, seed),
        recipe
        or usual_recipe(
            rule, n, constraints_only=constraints_only, augment=augment, seed=seed, hidden=hidden
        ),
        hard_per_class=hard_per_class,
        constraints_only=constraints_only,
        attacks=attacks,
    )
    return fit(prepared, None, prepared_s=time.perf_counter() - started, progress=progress)


def prepare(
    scenario: Scenario,
    split: Split,
    recipe: Recipe,
    *,
    hard_per_class: int | None = None,
    constraints_only: bool = False,
    attacks: Sequence[Attack] = (),
    time_limit_s: float = np.inf,
) -> Prepared:
    """Train the base member, which some scenarios are about, and collect the images."""
    base = alone(
        base_member(
            split.train_images,
            split.train_labels,
            rule=recipe.rule,
            hidden=recipe.hidden,
            seed=recipe.seed,
        )
    )
    wanted = demand(
        scenario,
        split,
        base=base,
        hard_per_class=hard_per_class,
        constraints_only=constraints_only,
        attacks=attacks,
    )
    if wanted.loss is None and recipe.copies:
        raise InvalidInput(
            "copies are further data of the loss, and with every image in the hard set there is "
            "none; leave out augment, or hard_per_class to have every image in both"
        )
    settings = digit_settings(recipe, wanted, time_limit_s=time_limit_s)
    return Prepared(split, wanted, recipe, settings, base)


def alone(member: Any) -> Ensemble:
    """One member as an ensemble."""
    return Ensemble((Part(member, np.zeros(1, np.int64), np.ones(1)),), Layout.single(CLASSES))


def fit(
    prepared: Prepared,
    run: Run | None,
    *,
    prepared_s: float = 0.0,
    progress: Callable[[IterationRecord], None] | None = None,
) -> DigitsResult:
    """Solve (or go on with the run's checkpoint) and evaluate."""
    started = time.perf_counter()
    problem = digits_problem(prepared.demand, prepared.recipe, base=prepared.base)
    journal = Journal(problem, run)

    def update(record: IterationRecord) -> None:
        journal.iteration(record)
        if progress is not None:
            progress(record)

    built_s = time.perf_counter() - started
    result = solve(journal.listen(), prepared.settings, progress=update, run=run)
    total_s = prepared_s + built_s + result.seconds
    return evaluate(prepared, result, journal, problem=problem, total_s=total_s)


def evaluate(
    prepared: Prepared, result: Result, journal: Journal, *, problem: Problem, total_s: float
) -> DigitsResult:
    """Recompute every required image, then the accuracy on the test images."""
    started = time.perf_counter()
    split, recipe, ensemble = prepared.split, prepared.recipe, result.ensemble
    average = journal.average(problem.layout)
    images, labels = required(prepared, journal)
    test_scores = ensemble.predict(split.test_images)
    kept, worst = len(labels), -np.inf
    if len(labels):
        found = audit(
            listed(images, labels, recipe, name="required"), ensemble, tolerance=TOLERANCE
        )
        kept, worst = found.satisfied, found.worst_violation
    summary: dict[str, Any] = {
        "scenario": prepared.demand.scenario,
        "rule": recipe.rule,
        "n": len(split.train),
        "seed": split.seed,
        "data": split.digits.name,
        "hidden": recipe.hidden,
        "constraints_only": prepared.demand.loss is None,
        "augment": recipe.copies > 0,
        "threshold": recipe.threshold,
        "output_limit": recipe.output_limit,
        "blur": recipe.blur,
        "columns": result.columns,
        "active_members": len(ensemble),
        "rows": len(labels),
        "rows_satisfied": kept,
        "worst_violation": worst if len(labels) else None,
        "test_accuracy": accuracy(test_scores, split.test_labels),
        "single_accuracy": accuracy(prepared.base.predict(split.test_images), split.test_labels),
        "average_accuracy": accuracy(average.predict(split.test_images), split.test_labels),
        "equal_weights": equal_weights(ensemble, result.columns),
        "train_accuracy": accuracy(ensemble.predict(split.train_images), split.train_labels),
        "class_accuracy": class_accuracies(test_scores, split.test_labels),
        "stop_reason": result.stop_reason.value,
        "iterations": len(result.history),
        "feasible_after_columns": feasible_after(result, prepared.settings),
        "fewest_columns": fewest(average, images, labels, prepared),
        "total_s": total_s,
        **result.seconds_by_step(),
        "note": result.note,
    }
    summary |= _about_scenario(prepared, ensemble, images, labels)
    summary["evaluation_s"] = time.perf_counter() - started
    arrays = {
        "train": split.train,
        "test": split.test,
        "test_labels": split.test_labels,
        "test_scores": test_scores,
        "base_test_scores": prepared.base.predict(split.test_images),
        "required_images": images[:STORED].astype(np.float32),
        "required_labels": labels[:STORED],
        "required_scores": ensemble.predict(images[:STORED])
        if len(labels)
        else images[:, :CLASSES],
        "required_base_scores": (
            prepared.base.predict(images[:STORED]) if len(labels) else images[:, :CLASSES]
        ),
    }
    return DigitsResult(prepared, result, average, (images, labels), summary, arrays)


def required(prepared: Prepared, journal: Journal) -> tuple[Array, IntArray]:
    """Every image that some row is about, in the master or not, with the answer demanded."""
    images: list[Array] = [np.empty((0, PIXELS))]
    labels: list[IntArray] = [np.empty(0, np.int64)]
    if prepared.demand.rows is not None:
        images.append(prepared.demand.rows[0])
        labels.append(prepared.demand.rows[1])
    if prepared.demand.attacks:
        found, which = journal.perturbed()
        images.append(found)
        labels.append(prepared.split.train_labels[which])
    return np.concatenate(images), np.concatenate(labels)


def equal_weights(ensemble: Ensemble, columns: int) -> bool:
    """Whether the mixture is the plain average of all members trained."""
    weights = np.concatenate([part.weights for part in ensemble.parts])
    return len(weights) == columns and bool(np.ptp(weights) <= TOLERANCE / columns)


def feasible_after(result: Result, settings: Settings) -> int | None:
    """Columns in the first master whose rows were all met; None if none was."""
    met = [
        record.columns - record.added_columns
        for record in result.history
        if record.slack <= settings.feasibility_tolerance and record.columns > record.added_columns
    ]
    if met:
        return met[0]
    return result.columns if result.slack <= settings.feasibility_tolerance else None


def fewest(average: Ensemble, images: Array, labels: IntArray, prepared: Prepared) -> int | None:
    """The first members trained, as few as can meet all rows with any weights; None if unknown."""
    from experiments.digits.fewest import MOST_ROWS, fewest_columns

    if not 0 < len(labels) <= MOST_ROWS:
        return None
    rows = listed(images, labels, prepared.recipe, name="required").rows(0)
    assert rows is not None  # images are listed
    (part,) = average.parts
    values = row_values(rows, average.layout, part.members, part.blocks, str(average.device))
    tolerance = prepared.settings.feasibility_tolerance
    return fewest_columns(values, rows.bounds, tolerance=tolerance)


def _about_scenario(
    prepared: Prepared, ensemble: Ensemble, images: Array, labels: IntArray
) -> dict[str, Any]:
    """What only this scenario reports."""
    split, base = prepared.split, prepared.base
    scenario = prepared.demand.scenario
    if scenario == "robust":
        return _robustness(prepared, ensemble)
    if scenario == "relabel":
        others = split.test_labels != RELABELLED
        pictures, truth = split.test_images[others], split.test_labels[others]
        return {
            "relabelled": f"{RELABELLED} as {RELABELLED_AS}",
            "target_answered_as_asked": accuracy(ensemble.predict(images), labels),
            "test_target_answered_as_asked": float(
                np.mean(ensemble.predict(split.test_images[~others]).argmax(1) == RELABELLED_AS)
            ),
            "other_classes_accuracy": accuracy(ensemble.predict(pictures), truth),
            "other_classes_single_accuracy": accuracy(base.predict(pictures), truth),
        }
    return {}


def _robustness(prepared: Prepared, ensemble: Ensemble) -> dict[str, float | None]:
    """How the base member (before) and the mixture (after) stand up to the same attacks."""
    split = prepared.split
    figures: dict[str, float | None] = {}
    for part, pictures, truth in (
        ("train", split.train_images, split.train_labels),
        ("test", split.test_images, split.test_labels),
    ):
        for when, mixture in (("before", prepared.base), ("after", ensemble)):
            found = robustness(mixture, pictures, truth, prepared.demand.attacks, seed=split.seed)
            figures[f"withstand_{part}_{when}"] = found.withstand
            figures[f"change_{part}_{when}"] = found.change
    return figures
