"""A run on a table as a report tells it: every rule and its room, scores, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.tabular.report import scores
from cg4ai.ensemble.slack import Slack
from cg4ai.plots.distributions import plot_histogram
from cg4ai.plots.models import (
    Reliability,
    draw_reliability,
    plot_confusion,
    plot_predictions,
    reliability,
)
from cg4ai.plots.rules import plot_slack
from cg4ai.records import Array, Strength
from cg4ai.report.story import Drawing, Finding, KeyFigure, Part, Saved, Section, Story, Table
from cg4ai.report.wording import audit_row, counted, remarks, trained, violated

OUTSIDE = (
    "Rules over a region say nothing of rows outside it. Where a region holds most of the training "
    "data, cg4ai predict marks rows outside; with --explain it says of each row which rule holds."
)
NAMED = 12  # features that are listed
TIGHTEST = 12  # rules whose room is drawn
MOST_CLASSES = 15  # that a figure of confusion has room for
Arrays = Mapping[str, NDArray[Any]]


def story(saved: Saved) -> Story:
    """Of a run that has ended."""
    summary, about = saved.summary or {}, saved.description
    audits = summary["audits"]
    over_regions = any(
        one["strength"] in ("attacked", "shielded", "bounded", "certified") for one in audits
    )
    return Story(
        title=f"{_task(about).capitalize()} of {about['target']}",
        asked=tuple(_asked(saved, len(audits))),
        findings=tuple(map(_finding, audits)),
        figures=tuple(_figures(summary)),
        remarks=(
            *[text for text in scores(summary) if text.startswith("WARNING")],
            *remarks(summary),
            *([OUTSIDE] if over_regions else []),
        ),
        sections=(_rules(audits, saved.arrays, summary), _predictions(saved)),
        trained=tuple(trained(summary)),
    )


def _task(about: Mapping[str, Any]) -> str:
    return str(about["task"])


def _asked(saved: Saved, rules: int) -> Iterator[str]:
    about, settings = saved.description, saved.settings
    features = [str(name) for name in about["features"]]
    named = ", ".join(features[:NAMED])
    more = f" and {len(features) - NAMED} more" if len(features) > NAMED else ""
    outputs = about["outputs"]
    what = f"which of {len(outputs)} classes ({', '.join(map(str, outputs[:NAMED]))}) a row is of"
    if _task(about) == "regression":
        what = f"the number {about['target']}"
        if len(outputs) > 1:
            what = f"{len(outputs)} quantiles of {about['target']}"
    yield (
        f"Predict {what}, from {named}{more}; learned from {Path(str(settings['data'])).name}, "
        f"under {counted(rules, 'rule')} of {Path(str(settings['rules'])).name}."
    )


def _finding(entry: Mapping[str, Any]) -> Finding:
    kept = bool(entry["holds"])
    return Finding(
        rule=str(entry["requirement"]),
        strength=Strength(entry["strength"]) if kept else Strength.VIOLATED,
        kept=kept,
        statement=f"{entry['statement']}.",
        more=tuple(violated(entry)),
    )


def _figures(summary: Mapping[str, Any]) -> Iterator[KeyFigure]:
    met = sum(bool(one["holds"]) for one in summary["audits"])
    doubtful = sum(bool(one.get("doubtful")) for one in summary["audits"])
    likely = f", {doubtful} of them likely violated on new rows" if doubtful else ""
    yield KeyFigure(f"{met} of {len(summary['audits'])}", f"rules met{likely}")
    score = summary.get("score")
    if score is not None:
        where = "held-out rows" if score["held_out"] else "rows of training"
        yield KeyFigure(f"{score['mixture']:.3f}", f"{score['name']} on {score['rows']:,} {where}")
        if score.get("without_rules") is not None:
            yield KeyFigure(f"{score['without_rules']:.3f}", "without the rules")
        yield KeyFigure(f"{score['plain']:.3f}", "a plain linear model")
        guess = "the majority" if score["name"] == "accuracy" else "the mean"
        yield KeyFigure(f"{score['guess']:.3f}", f"always guessing {guess}")
    yield KeyFigure(f"{summary['active_members']}", "members with weight")
    yield KeyFigure(f"{summary['total_s'] + summary['evaluation_s']:.0f} s", "whole run")


# ---- rules --------------------------------------------------------------------------------------


def _rules(
    audits: Sequence[Mapping[str, Any]], arrays: Arrays, summary: Mapping[str, Any]
) -> Section:
    if not audits:
        return Section("Rules", ())
    parts: list[Part] = [Table([audit_row(entry) for entry in audits], digits=3)]
    slacks = [
        Slack(str(entry["requirement"]), arrays[f"slack_{number}"], _least_found(entry))
        for number, entry in enumerate(audits)
        if f"slack_{number}" in arrays
    ]
    roomy = [slack for slack in slacks if len(slack.values)]
    shown = sorted(roomy, key=_tightness)[:TIGHTEST]
    if shown:
        which = "" if len(shown) == len(roomy) else f" (the {TIGHTEST} tightest of {len(roomy)})"
        tolerance = max(float(entry["tolerance"]) for entry in audits)
        parts.append(
            Drawing(
                f"What is left to the bound of each rule{which}: at its listed rows, or at rows of "
                "the data that lie in its region, where a mark is the least that a search of the "
                "region found. Left of the line it is missed.",
                lambda ax: plot_slack(shown, tolerance=tolerance, ax=ax),
                height=1.1 + 0.72 * len(shown),
            )
        )
    parts += [Table(rows) for entry in audits if (rows := _rates(entry))]
    broken = not all(entry["holds"] for entry in audits)
    if broken and len(outputs := summary.get("outputs", [])) > 1:
        names = ", ".join(f"{number} = {name}" for number, name in enumerate(outputs))
        parts.append(f"Classes, as rows that are missed count them: {names}.")
    return Section("Rules", tuple(parts))


def _tightness(slack: Slack) -> float:
    """What is left at the tightest row, in shares of the most."""
    least = slack.values.min() if slack.found is None else min(slack.found, slack.values.min())
    return float(least / (np.abs(slack.values).max() or 1.0))


def _least_found(entry: Mapping[str, Any]) -> float | None:
    """What a search of the rule's region came to; listed rows are all there are."""
    if entry["strength"] in (Strength.AUDITED, Strength.CONSTRUCTED):
        return None
    return -float(entry["worst_violation"])


def _rates(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rates that a rule binds, also on rows that no member was trained on."""
    return [
        {
            str(entry["requirement"]): rate["group"],
            "value": rate["value"],
            "rows": rate["count"],
            **_held_out(rate.get("held_out")),
        }
        for rate in entry.get("rates", [])
    ]


def _held_out(found: Mapping[str, Any] | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "held out": found["value"],
        "rows held out": found["count"],
        "95 % interval": f"{found['low']:.4g} to {found['high']:.4g}",
    }


# ---- predictions --------------------------------------------------------------------------------


def _predictions(saved: Saved) -> Section:
    summary, about, arrays = saved.summary or {}, saved.description, saved.arrays
    parts: list[Part] = [text[:1].upper() + text[1:] for text in scores(summary)]
    if "judged_outputs" in arrays:
        outputs, targets = arrays["judged_outputs"], arrays["judged_targets"]
        if _task(about) == "classification":
            parts += _of_classes(outputs, targets, about)
        elif len(about["outputs"]) > 1:
            parts += _of_quantiles(outputs, targets, saved)
        else:
            parts += _of_numbers(outputs[:, 0], targets.reshape(len(outputs), -1)[:, 0], about)
    return Section("How good predictions are", tuple(parts))


def _of_classes(outputs: Array, targets: Array, about: Mapping[str, Any]) -> list[Part]:
    labels = targets.astype(np.int64).ravel()
    names = [str(name) for name in about["outputs"]]
    stated = outputs[:, : max(2, len(names))]
    if about.get("scores") == "logit":
        stated = np.exp(stated - stated.max(axis=1, keepdims=True))
        stated = stated / stated.sum(axis=1, keepdims=True)
    found = reliability(stated, labels)
    what = f"rows were {names[1]}" if len(names) == 2 else "the answer was right"
    drawings: list[Part] = [
        Drawing(
            f"How often {what} where that was stated with a probability: on the diagonal, as often "
            "as stated. Larger points stand for more rows.",
            lambda ax: draw_reliability(found, ax),
        )
    ]
    if len(names) <= MOST_CLASSES:
        drawings.append(
            Drawing(
                "What rows of each class were answered as.",
                lambda ax: plot_confusion(labels, stated.argmax(axis=1), names=names, ax=ax),
                height=min(4.6, 1.8 + 0.4 * len(names)),
            )
        )
    return drawings


def _of_numbers(predicted: Array, actual: Array, about: Mapping[str, Any]) -> list[Part]:
    name = str(about["target"])
    return [
        Drawing(
            "Predicted beside actual values.",
            lambda ax: plot_predictions(actual, predicted, name=name, ax=ax),
        ),
        Drawing(
            "What predictions miss: predicted minus actual.",
            lambda ax: plot_histogram(
                predicted - actual, label="predicted minus actual", counted="rows", ax=ax
            ),
        ),
    ]


def _of_quantiles(outputs: Array, targets: Array, saved: Saved) -> list[Part]:
    levels = np.array([float(level) for level in saved.settings.get("quantiles") or ()])
    if len(levels) != outputs.shape[1]:
        return []
    truth = targets.reshape(len(outputs), -1)[:, :1]
    below = (truth <= outputs).mean(axis=0)
    found = Reliability(levels, below, np.full(len(levels), len(outputs)))
    return [
        Drawing(
            "The share of actual values that lie below each predicted quantile; on the diagonal it "
            "is the share that was asked for.",
            partial(_covered, found),
        )
    ]


def _covered(found: Reliability, ax: Any) -> None:
    draw_reliability(found, ax, predicted="quantile asked for", observed="share below it")
