"""A digits run in words: accuracies, what is guaranteed, where the time went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cg4ai.records import StopReason
from cg4ai.report.wording import STOPS, describe_optimality, describe_seconds, describe_stop

STOPPED = {
    **STOPS,
    StopReason.NO_IMPROVING_COLUMN: "no further group improved the mixture, or none was trained "
    "because all rows were met and the loss left little to gain",
}
REQUIRED = {
    "plain": "no image is required: this is a mixture without rules",
    "hard": "images of the hard set",
    "robust": "perturbed images that an attack found during training",
    "correct": "training images that the base member answers wrongly",
    "relabel": "training images of a 3, to be answered 2",
}


def accuracies(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Test accuracies, a row for each classifier."""
    return [
        {"": name, "test accuracy": f"{100 * summary[key]:.2f} %"}
        for name, key in (
            ("this mixture", "test_accuracy"),
            (_average_name(summary), "average_accuracy"),
            ("one member alone (base)", "single_accuracy"),
        )
    ]


def trained(summary: Mapping[str, Any]) -> list[str]:
    """How training ended, how many members there are, and the seconds of each step.

    The optimality gap is that of the weights of least loss: those returned may be closer to equal.
    """
    loss = "mean loss over the training images at the weights of least loss"
    return [
        describe_stop(summary, STOPPED),
        f"Members: {summary['columns']} trained, {summary['active_members']} in the mixture.",
        *([] if summary["constraints_only"] else describe_optimality(summary, loss)),
        describe_seconds(summary, searching="attacks and scans"),
    ]


def guarantee(summary: Mapping[str, Any]) -> str:
    """What was established, and how; never more than that."""
    what = "training images" if "balls" in summary else REQUIRED[summary["scenario"]]
    if not summary["rows"]:
        return "No image is required, so nothing is guaranteed."
    count = f"{summary['rows_satisfied']} of {summary['rows']}"
    rule = "lead every other class by" if summary["rule"] == "margin" else "have probability"
    scale = (
        f" (logits of a member are at most {summary['output_limit']:g} there)"
        if summary["output_limit"]
        else ""
    )
    verdict = "Kept" if summary["rows_satisfied"] == summary["rows"] else "NOT KEPT"
    others = "" if "balls" in summary else " Nothing is said about other images."
    return (
        f"{verdict} (audited): at {count} {what}, the class demanded was recomputed to {rule} "
        f"{summary['threshold']:g} or more{scale}.{others}"
    )


def _average_name(summary: Mapping[str, Any]) -> str:
    same = " (the same: this mixture weighs its members equally)"
    return "plain average of its members" + (same if summary.get("equal_weights") else "")


def _size(change: float | None) -> str:
    return "none found" if change is None else f"{change:.2f}"


def within(summary: Mapping[str, Any]) -> list[str]:
    """What is known of images near those of training."""
    lines = []
    if "balls" in summary:
        verdict = "NOT KEPT" if summary["balls_violated"] else "Kept"
        lines.append(
            f"{verdict}: the same lead within {summary['radius']:g} of every pixel; of "
            f"{summary['balls']} training images {summary['balls_bounded']} bounded (a solver's "
            f"bound excludes every violation), {summary['balls_violated']} found violated, the "
            "others searched only."
        )
    if "radii" in summary:
        radii = sorted(summary["radii"])
        lines.append(
            f"Exact radius that keeps the answer, {len(radii)} training images: least "
            f"{radii[0]:.4f}, median {radii[len(radii) // 2]:.4f}, largest {radii[-1]:.4f}; "
            f"{summary['radii_closed']} closed to 0.01 %, {summary['radii_s']:.0f} s."
        )
    return lines


def scenario_lines(summary: Mapping[str, Any]) -> list[str]:
    """What only this scenario reports."""
    if "balls" in summary:
        return within(summary)
    if summary["scenario"] == "robust":
        return [
            f"Withstand the attack, {part} images: {100 * summary[f'withstand_{part}_before']:.1f}"
            f" % of the base member's, {100 * summary[f'withstand_{part}_after']:.1f} % of this "
            f"mixture's answers; mean size of what breaks them: "
            f"{_size(summary[f'change_{part}_before'])} and "
            f"{_size(summary[f'change_{part}_after'])}."
            for part in ("train", "test")
            if f"withstand_{part}_after" in summary
        ]
    if summary["scenario"] == "relabel":
        return [
            f"Digits {summary['relabelled']}: "
            f"{100 * summary['target_answered_as_asked']:.1f} % of the required images, "
            f"{100 * summary['test_target_answered_as_asked']:.1f} % of the test images of that "
            "class. Accuracy on the other classes: "
            f"{100 * summary['other_classes_accuracy']:.2f} %, base member "
            f"{100 * summary['other_classes_single_accuracy']:.2f} %."
        ]
    return []
