"""A digits run as a report tells it: required images, confusion of classes, accuracies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.ensemble.slack import Slack
from cg4ai.ensemble.verdict import describe_coverage
from cg4ai.plots.models import plot_confusion, plot_images
from cg4ai.plots.rules import plot_slack
from cg4ai.records import Array, Strength
from cg4ai.report.story import (
    Drawing,
    Finding,
    KeyFigure,
    Part,
    ReportTable,
    SavedRun,
    Section,
    Story,
)
from cg4ai.report.wording import describe_closing, describe_cut, list_remarks
from experiments.digits.report import (
    REQUIRED,
    accuracies,
    guarantee,
    scenario_lines,
    trained,
    within,
)

HARDEST = 6
TOLERANCE = 1e-7  # what a recomputed row may lack
Arrays = Mapping[str, NDArray[Any]]


def story(summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
    """Of a run that has ended; figures are drawn from its folder."""
    arrays: Arrays = {} if saved is None else saved.arrays
    return Story(
        title=f"Digits, scenario {summary['scenario']}: {summary['n']} training images",
        asked=tuple(_asked(summary)),
        findings=tuple(_findings(summary)),
        first=tuple(describe_cut(summary)),
        figures=tuple(_figures(summary)),
        closing=(
            *([] if "balls" in summary else scenario_lines(summary)),
            describe_closing(summary),
        ),
        remarks=tuple(list_remarks(summary)),
        sections=(_answers(summary, arrays), _required(summary, arrays)),
        trained=tuple(trained(summary)),
    )


def _asked(summary: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Name the digit on images of 28 x 28 pixels, learned from {summary['n']} images of "
        f"{summary['data']}."
    )
    if summary["scenario"] == "plain":
        yield "No image is required: this is a mixture without rules."
        return
    how = (
        f"lead every other class by {summary['threshold']:g}"
        if summary["rule"] == "margin"
        else f"have probability {summary['threshold']:g}"
    )
    what = "training images" if "balls" in summary else REQUIRED[summary["scenario"]]
    yield f"The class demanded must {how} or more on {what}."


def _findings(summary: Mapping[str, Any]) -> Iterator[Finding]:
    if not summary["rows"]:
        return
    kept = summary["rows_satisfied"] == summary["rows"]
    strength = Strength.AUDITED if kept else Strength.VIOLATED
    counts = {"rows": summary["rows"], "satisfied": summary["rows_satisfied"]}
    where = describe_coverage(
        Strength.AUDITED,
        f"{summary['rows']} listed images",
        holds=kept,
        worst_violation=summary["worst_violation"] or 0.0,
        **counts,
    )
    yield Finding(
        "required images",
        strength,
        kept,
        guarantee(summary),
        coverage=where.replace("inputs", "images"),
    )
    if "balls" in summary:
        broken = summary["balls_violated"]
        bounded = summary["balls_bounded"] == summary["balls"]
        near = Strength.BOUNDED if bounded else Strength.ATTACKED
        sentence, *more_lines = within(summary)
        strength = Strength.VIOLATED if broken else near
        yield Finding("images near them", strength, not broken, sentence, tuple(more_lines))


def _figures(summary: Mapping[str, Any]) -> Iterator[KeyFigure]:
    """The accuracy on test images, beside that of the plain average and of one member."""
    accuracy, *others = ((row[""], row["test accuracy"]) for row in accuracies(summary))
    yield KeyFigure(accuracy[1], "Accuracy on test images", tuple(others))


def _answers(summary: Mapping[str, Any], arrays: Arrays) -> Section:
    parts: list[Part] = [ReportTable(accuracies(summary))]
    if "test_scores" in arrays:
        labels, answers = arrays["test_labels"], arrays["test_scores"].argmax(axis=1)
        parts.append(
            Drawing(
                f"What the {len(labels):,} test images were answered as; the stronger the colour, "
                "the larger the share of their class.",
                lambda ax: plot_confusion(labels, answers, ax=ax),
                height=4.2,
            )
        )
    return Section("Answers on test images", tuple(parts))


def _required(summary: Mapping[str, Any], arrays: Arrays) -> Section:
    labels = arrays.get("required_labels", np.zeros(0))
    if not len(labels):
        return Section("Required images", ())
    scores, images = arrays["required_scores"], arrays["required_images"]
    room = leads(scores, labels, summary["rule"]) - summary["threshold"]
    shown = len(labels), summary["rows"]
    hardest = np.argsort(room, kind="stable")[:HARDEST]
    captions = [f"a {labels[one]}: {scores[one].argmax()}\n{room[one]:+.3g}" for one in hardest]
    which = "" if shown[0] == shown[1] else f", {shown[0]} of {shown[1]}"
    return Section(
        "Required images",
        (
            Drawing(
                f"By how much each required image{which} meets what is demanded; left of the line "
                "it does not.",
                lambda ax: plot_slack([Slack("required images", room)], tolerance=TOLERANCE, ax=ax),
            ),
            Drawing(
                "The required images with the least room: the class demanded, the answer, and the "
                "room.",
                lambda ax: plot_images(images[hardest], captions, ax=ax),
                height=1.7,
            ),
        ),
    )


def leads(scores: Array, labels: NDArray[Any], rule: str) -> Array:
    """(n,): how far the class demanded leads every other, or its probability."""
    own = np.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    if rule != "margin":
        return np.asarray(own)
    others = scores.copy()
    np.put_along_axis(others, labels[:, None], -np.inf, axis=1)
    return np.asarray(own - others.max(axis=1))
