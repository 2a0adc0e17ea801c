"""How good a trained digit classifier is: required images, accuracies, attacks withstood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai import clock
from cg4ai.apps.protocol import Evaluation
from cg4ai.clock import Review
from cg4ai.colgen.result import Result
from cg4ai.colgen.separation.radius import Radius, largest_radius
from cg4ai.ensemble.audit import audit
from cg4ai.ensemble.claims import record_audited
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.records import Array, IntArray, Strength
from cg4ai.rules.regions import Box
from cg4ai.rules.violations import OutputModel
from experiments.digits.data import CLASSES, PIXELS, Split
from experiments.digits.journal import Journal
from experiments.digits.problem import RELABELLED, RELABELLED_AS, Demand, listed
from experiments.digits.separation import Attack, broken, checked
from experiments.digits.settings import DigitsSettings

TOLERANCE = 1e-7  # what a recomputed row may lack


@dataclass(frozen=True)
class Prepared:
    """Everything of a run that is fixed before training."""

    settings: DigitsSettings
    split: Split
    demand: Demand
    base: Ensemble


def evaluate(prepared: Prepared, result: Result, journal: Journal, review: Review) -> Evaluation:
    """Recompute every required image, then the accuracy on the test images."""
    split, asked, ensemble = prepared.split, prepared.settings, result.ensemble
    review.begin_step("required images and test images")  # a moment's work, whatever the time
    images, labels = required(prepared, journal)
    kept, worst = len(labels), None
    if len(labels):
        rule = listed(images, labels, asked, name="required images")
        found = audit(rule, ensemble, tolerance=TOLERANCE)
        kept, worst = found.satisfied, found.worst_violation
        if kept == len(labels):
            record_audited(ensemble, rule, tolerance=TOLERANCE)
    scores = ensemble.predict(split.test_images)
    summary: dict[str, Any] = {
        **_about(prepared),
        "rows": len(labels),
        "rows_satisfied": kept,
        "worst_violation": worst,
        **_accuracies(prepared, result, journal, scores),
        "feasible_after_columns": feasible_after(result, TOLERANCE),
        **_about_scenario(prepared, ensemble, images, labels, review),
        **_within(prepared, result, review),
    }
    everything = kept == len(labels) and not summary.get("balls_violated")
    return Evaluation(summary, everything, _arrays(prepared, ensemble, images, labels, scores))


def _about(prepared: Prepared) -> dict[str, Any]:
    asked, split = prepared.settings, prepared.split
    return {
        "scenario": asked.scenario,
        "rule": asked.rule,
        "n": len(split.train),
        "seed": split.seed,
        "data": split.digits.name,
        "hidden": asked.hidden,
        "hard_per_class": asked.hard_per_class,
        "constraints_only": prepared.demand.loss is None,
        "augment": asked.copies > 0,
        "threshold": asked.threshold,
        "output_limit": asked.output_limit,
        "blur": asked.blur,
        "threads": asked.threads,
        **(
            {"attack": {"name": asked.attack, "pixels": asked.pixels}}
            if prepared.demand.attacks
            else {}
        ),
    }


def _accuracies(
    prepared: Prepared, result: Result, journal: Journal, scores: Array
) -> dict[str, Any]:
    split, average = prepared.split, journal.average(result.ensemble.layout)
    truth = split.test_labels
    return {
        "test_accuracy": accuracy(scores, truth),
        "single_accuracy": accuracy(prepared.base.predict(split.test_images), truth),
        "average_accuracy": accuracy(average.predict(split.test_images), truth),
        "equal_weights": equal_weights(result.ensemble, result.columns),
        "train_accuracy": accuracy(result.ensemble.predict(split.train_images), split.train_labels),
        "class_accuracy": class_accuracies(scores, truth),
    }


def _arrays(
    prepared: Prepared, ensemble: Ensemble, images: Array, labels: IntArray, scores: Array
) -> dict[str, NDArray[Any]]:
    """What figures are drawn from: positions of images, scores, and the required images."""
    split, base = prepared.split, prepared.base
    images, labels = images[: prepared.settings.stored], labels[: prepared.settings.stored]
    none = images[:, :CLASSES]
    return {
        "train": split.train,
        "test": split.test,
        "test_labels": split.test_labels,
        "test_scores": scores,
        "base_test_scores": base.predict(split.test_images),
        "required_images": images.astype(np.float32),
        "required_labels": labels,
        "required_scores": ensemble.predict(images) if len(labels) else none,
        "required_base_scores": base.predict(images) if len(labels) else none,
    }


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


def feasible_after(result: Result, tolerance: float) -> int | None:
    """Columns in the first master whose rows were all met; None if none was."""
    met = [
        record.columns - record.added_columns
        for record in result.history
        if record.slack <= tolerance and record.columns > record.added_columns
    ]
    if met:
        return met[0]
    return result.columns if result.slack <= tolerance else None


def _about_scenario(
    prepared: Prepared, ensemble: Ensemble, images: Array, labels: IntArray, review: Review
) -> dict[str, Any]:
    """What only this scenario reports."""
    split, base = prepared.split, prepared.base
    scenario = prepared.demand.scenario
    if prepared.demand.attacks:
        return _robustness(prepared, ensemble, review)
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


def _robustness(prepared: Prepared, ensemble: Ensemble, review: Review) -> dict[str, float | None]:
    """How the base member (before) and the mixture (after) stand up to the same attacks."""
    split = prepared.split
    figures: dict[str, float | None] = {}
    longest_s = 0.0
    for part, pictures, truth in (
        ("train", split.train_images, split.train_labels),
        ("test", split.test_images, split.test_labels),
    ):
        for when, mixture in (("before", prepared.base), ("after", ensemble)):
            what = f"attacks on {part} images, {when} training under rules"
            if not review.begin_step(what, needed=longest_s):
                continue
            started = clock.now()
            found = robustness(mixture, pictures, truth, prepared.demand.attacks, seed=split.seed)
            figures[f"withstand_{part}_{when}"] = found.withstand
            figures[f"change_{part}_{when}"] = found.change
            longest_s = max(longest_s, clock.now() - started)
    return figures


def _within(prepared: Prepared, result: Result, review: Review) -> dict[str, Any]:
    """What is known within the radius of each training image, and the exact radii asked for."""
    wanted, asked, split = prepared.demand, prepared.settings, prepared.split
    figures: dict[str, Any] = {}
    if wanted.radius:
        found = result.audits[1:]
        figures = {
            "radius": wanted.radius,
            "separator": asked.separator,
            "balls": len(found),
            "balls_bounded": sum(one.strength == Strength.BOUNDED for one in found),
            "balls_violated": sum(not one.holds for one in found),
        }
    measured: list[Radius] = []
    for image, label in zip(split.train_images, split.train_labels, strict=True):
        longest_s, number = max((one.seconds for one in measured), default=0.0), len(measured)
        if number == asked.radii or not review.begin_step(f"radius {number}", needed=longest_s):
            break
        measured.append(exact_radius(result.ensemble, image, int(label)))
    if measured:
        proven = np.array([one.proven for one in measured])
        figures |= {
            "radii": proven.tolist(),
            "radii_broken": [None if one.other is None else one.broken for one in measured],
            "radii_closed": sum(one.closed for one in measured),
            "radii_s": sum(one.seconds for one in measured),
        }
    return figures


def exact_radius(
    mixture: OutputModel, image: Array, label: int, *, seconds: float = math.inf
) -> Radius:
    """The largest change of every pixel, pixels staying in [0, 1], that keeps the answer."""
    whole = Box(np.zeros(PIXELS), np.ones(PIXELS))
    return largest_radius(mixture, image, label, within=whole, seconds=seconds)


def accuracy(scores: Array, labels: IntArray) -> float:
    """Share of images whose highest score is that of their label."""
    return float(np.mean(scores.argmax(1) == labels))


def class_accuracies(scores: Array, labels: IntArray) -> list[float]:
    """The accuracy on each class, 0 to 9."""
    return [accuracy(scores[labels == c], labels[labels == c]) for c in range(CLASSES)]


@dataclass(frozen=True, slots=True)
class Robustness:
    """`withstand`: share of images answered right as they are and after every attack.

    `change`: mean Euclidean size, over pixels, of the smallest perturbation found for each image
    that was answered right before; None if none was found.
    """

    withstand: float
    change: float | None


def robustness(
    mixture: OutputModel, images: Array, labels: IntArray, attacks: Sequence[Attack], *, seed: int
) -> Robustness:
    """Attack this very mixture with every attack, on every image."""
    right = ~broken(mixture, images, labels)
    smallest = np.full(len(images), np.inf)
    for number, attack in enumerate(attacks):
        found = checked(attack, mixture, images, labels, seed + number)
        size = np.linalg.norm(found - images, axis=1)
        smallest = np.where(broken(mixture, found, labels), np.minimum(smallest, size), smallest)
    fooled = right & np.isfinite(smallest)
    change = float(smallest[fooled].mean()) if fooled.any() else None
    return Robustness(float((right & ~fooled).mean()), change)
