"""A run on a table, described: the rules and their margins, scores, calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.ensemble.slack import Slack
from cg4ai.plots.distributions import plot_histogram
from cg4ai.plots.models import (
    Reliability,
    compute_reliability,
    draw_reliability,
    plot_confusion,
    plot_predictions,
)
from cg4ai.plots.rules import plot_slack
from cg4ai.records import Array, Strength
from cg4ai.report import wording
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

OUTSIDE = (
    "Rules over a region do not cover rows outside it. cg4ai predict marks such rows; with "
    "--explain it names the rules that cover each row."
)
NAMED = 12  # features that are listed
TIGHTEST = 12  # rules whose margins are drawn
MOST_CLASSES = 15  # that a figure of confusion has room for
Arrays = Mapping[str, NDArray[Any]]


def make_tabular_story(summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
    """Of a run that has ended; figures and the data's names are in its folder."""
    audits, outputs = summary["audits"], summary.get("outputs", [])
    findings = tuple(map(_finding, audits))
    over_regions = any(
        one["strength"] in ("attacked", "shielded", "bounded", "certified") for one in audits
    )
    return Story(
        title=_title(saved),
        asked=() if saved is None else (_asked(saved, len(audits)),),
        findings=findings,
        first=tuple(wording.describe_cut(summary)),
        figures=tuple(_figures(summary)),
        closing=(wording.describe_closing(summary),),
        remarks=(
            *wording.class_names(findings, outputs),
            *_no_better(summary),
            *wording.list_remarks(summary),
        ),
        sections=(
            _rules(audits, {} if saved is None else saved.arrays, over_regions),
            *([] if saved is None else [_predictions(saved, summary.get("chances", []))]),
        ),
        trained=tuple(_trained(summary)),
    )


def _finding(entry: Mapping[str, Any]) -> Finding:
    """Of a table, listed inputs are rows."""
    found = wording.finding_of(entry)
    if entry["strength"] != Strength.AUDITED:
        return found
    return replace(found, coverage=found.coverage.replace("inputs", "rows"))


def _title(saved: SavedRun | None) -> str:
    if saved is None:
        return "Model of a table"
    return f"{saved.description['task'].capitalize()} of {saved.description['target']}"


def _asked(saved: SavedRun, rules: int) -> str:
    about, settings = saved.description, saved.settings
    features = [str(name) for name in about["features"]]
    named = ", ".join(features[:NAMED])
    more = f" and {len(features) - NAMED} more" if len(features) > NAMED else ""
    outputs = about["outputs"]
    what = f"the class of a row ({', '.join(map(str, outputs[:NAMED]))})"
    if about["task"] == "regression":
        what = f"the number {about['target']}"
        if len(outputs) > 1:
            what = f"{len(outputs)} quantiles of {about['target']}"
    return (
        f"Predict {what} from {named}{more}. The data are {Path(str(settings['data'])).name}, the "
        f"{wording.format_count(rules, 'rule')} those of {Path(str(settings['rules'])).name}."
    )


def _figures(summary: Mapping[str, Any]) -> Iterator[KeyFigure]:
    """The score on rows that no member was trained on, with what it compares to."""
    score = summary.get("score")
    if score is None:
        return
    beside = {"without rules": score.get("without_rules"), "linear model": score["plain"]}
    beside[_guess(score)] = score["guess"]
    where = "unseen rows" if score["held_out"] else "rows of training"
    yield KeyFigure(
        _value(score, score["mixture"]),
        f"{score['name'][:1].upper()}{score['name'][1:]} on {score['rows']:,} {where}",
        tuple((label, _value(score, one)) for label, one in beside.items() if one is not None),
    )


def _value(score: Mapping[str, Any], value: float) -> str:
    return f"{100 * value:.1f} %" if score["name"] == "accuracy" else f"{value:.3f}"


def _guess(score: Mapping[str, Any]) -> str:
    return "majority" if score["name"] == "accuracy" else "mean"


def _no_better(summary: Mapping[str, Any]) -> list[str]:
    """A warning where guessing is as good."""
    score = summary.get("score")
    if score is None or score["mixture"] > score["guess"]:
        return []
    return [
        f"WARNING: the mixture is no better than always guessing the {_guess(score)}. Train longer "
        "(--iteration-limit, --steps) or relax the rules."
    ]


def _trained(summary: Mapping[str, Any]) -> Iterator[str]:
    """How training ended, and what came of it."""
    yield wording.describe_stop(summary)
    yield (
        f"Members: {summary['columns']} trained, {summary['active_members']} in the mixture. Its "
        f"loss on the data is {summary['loss']:.5g}."
    )
    yield from wording.describe_optimality(
        summary, f"the objective (here {summary['objective']:.5g})"
    )
    if summary.get("shield"):
        yield f"{summary['shield'].capitalize()}."
    yield wording.describe_seconds(summary)


# ---- rules --------------------------------------------------------------------------------------


def _rules(audits: Sequence[Mapping[str, Any]], arrays: Arrays, over_regions: bool) -> Section:
    if not audits:
        return Section("Rules", ())
    parts: list[Part] = [ReportTable([wording.audit_row(entry) for entry in audits], digits=3)]
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
                f"Margin to the bound of each rule{which}, at its listed rows or at rows of the "
                "data in its region. A mark is the smallest margin that a search of the region "
                "found. Left of the line the rule is violated.",
                lambda ax: plot_slack(shown, tolerance=tolerance, ax=ax),
                height=1.1 + 0.72 * len(shown),
            )
        )
    parts += [ReportTable(rows) for entry in audits if (rows := _rates(entry))]
    if over_regions:
        parts.append(OUTSIDE)
    return Section("Rules", tuple(parts))


def _tightness(slack: Slack) -> float:
    """The smallest margin as a share of the largest."""
    least = slack.values.min() if slack.found is None else min(slack.found, slack.values.min())
    return float(least / (np.abs(slack.values).max() or 1.0))


def _least_found(entry: Mapping[str, Any]) -> float | None:
    """The smallest margin that a search of the rule's region found; None for listed rows."""
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


def _predictions(saved: SavedRun, chances: Sequence[Mapping[str, Any]]) -> Section:
    about, arrays = saved.description, saved.arrays
    parts: list[Part] = []
    if "judged_outputs" in arrays:
        outputs, targets = arrays["judged_outputs"], arrays["judged_targets"]
        if about["task"] == "classification":
            parts += [ReportTable(list(chances), digits=3)] if chances else []
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
    found = compute_reliability(stated, labels)
    what = f"rows were {names[1]}" if len(names) == 2 else "the answer was right"
    parts: list[Part] = [
        Drawing(
            f"How often {what}, by the predicted probability. On the diagonal, predictions are "
            "calibrated. Larger points stand for more rows.",
            lambda ax: draw_reliability(found, ax),
        ),
        ReportTable(
            [
                {"mean probability": stated, "share of rows": share, "rows": int(rows)}
                for stated, share, rows in zip(
                    found.predicted, found.observed, found.counts, strict=True
                )
            ],
            digits=3,
        ),
    ]
    if len(names) <= MOST_CLASSES:
        parts.append(
            Drawing(
                "Predicted classes of the rows of each class.",
                lambda ax: plot_confusion(labels, stated.argmax(axis=1), names=names, ax=ax),
                height=min(4.6, 1.8 + 0.4 * len(names)),
            )
        )
    return parts


def _of_numbers(predicted: Array, actual: Array, about: Mapping[str, Any]) -> list[Part]:
    name = str(about["target"])
    return [
        Drawing(
            "Predicted and actual values.",
            lambda ax: plot_predictions(actual, predicted, name=name, ax=ax),
        ),
        Drawing(
            "Errors: predicted minus actual.",
            lambda ax: plot_histogram(
                predicted - actual, label="predicted minus actual", counted="rows", ax=ax
            ),
        ),
    ]


def _of_quantiles(outputs: Array, targets: Array, saved: SavedRun) -> list[Part]:
    levels = np.array([float(level) for level in saved.settings.get("quantiles") or ()])
    if len(levels) != outputs.shape[1]:
        return []
    truth = targets.reshape(len(outputs), -1)[:, :1]
    below = (truth <= outputs).mean(axis=0)
    found = Reliability(levels, below, np.full(len(levels), len(outputs)))
    return [
        Drawing(
            "Share of actual values below each predicted quantile. On the diagonal it is the share "
            "that was asked for.",
            partial(_covered, found),
        )
    ]


def _covered(found: Reliability, ax: Any) -> None:
    draw_reliability(found, ax, predicted="quantile asked for", observed="share below it")
