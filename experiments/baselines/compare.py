"""All baselines on the same data and seed, with the paper's settings and with chosen ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.report.tables import format_markdown
from experiments.baselines.boosting import BOOSTING
from experiments.baselines.choice import tuned
from experiments.baselines.enforcing import DC3, LAGRANGIAN, PENALTY
from experiments.baselines.plain import AVERAGE, PROJECTION, SINGLE, WIDE
from experiments.baselines.records import (
    BaselineData,
    BaselineResult,
    Method,
    paper_settings,
)
from experiments.baselines.rule import RuleKind

METHODS: dict[str, Method] = {
    "single": SINGLE,
    "penalty": PENALTY,
    "lagrangian": LAGRANGIAN,
    "dc3": DC3,
    "projection": PROJECTION,
    "boosting": BOOSTING,
    "average": AVERAGE,
    "wide": WIDE,
}


@dataclass(frozen=True)
class ComparisonRow:
    """One baseline with one choice of settings ("paper" or "tuned"); shares lie in [0, 1].

    `rows_satisfied` counts hard inputs whose scores from `predict` keep the rule in float64.
    The `_given_labels` figures use the true labels at inference, for methods that can:
    DC3 at hard inputs, the oracle at hard inputs and at test inputs. None for the others.
    """

    method: str
    settings: str
    oracle: bool
    test_accuracy: float
    rows: int
    rows_satisfied: float
    rows_satisfied_given_labels: float | None
    accuracy_given_labels: float | None
    seconds: float
    choosing_s: float | None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    blur: float = 0.0  # pixels, of the first layer that was trained; 0: none


def compare(
    data: BaselineData,
    test_inputs: Any,
    test_labels: Any,
    *,
    rule: RuleKind,
    threshold: float,
    seed: int,
    augmented: bool,
    members: int,
    hidden: int = 4,
    which: Sequence[str] | None = None,
    settings: Sequence[str] = ("paper", "tuned"),
    repeats: int = 5,
    blur: float = 0.0,
    gain: float = 1.0,
    device: str = "cpu",
) -> list[ComparisonRow]:
    """Train and measure; test data is used for the measurement alone.

    `augmented` gives every baseline the soft data, otherwise none gets it. `repeats` is how often
    each candidate trains when settings are chosen; with a `blur` (see `BaselineSettings`) they are
    chosen among networks with and without it.
    """
    methods = [_method(name) for name in (METHODS if which is None else which)]
    unknown = [name for name in settings if name not in ("paper", "tuned")]
    if unknown:
        raise InvalidInput(f"settings must be of paper, tuned, got {', '.join(unknown)}")
    if augmented and data.soft_inputs is None:
        raise InvalidInput("augmented=True needs soft_inputs in the data")
    used = data if augmented else data.without_soft()
    points = arrays.as_matrix(test_inputs, "test_inputs")
    answers = arrays.as_labels(test_labels, "test_labels", len(points))
    base = paper_settings(
        rule, threshold, augmented=augmented, members=members, hidden=hidden, device=device
    )
    rows = []
    for method in methods:
        if "paper" in settings:
            result = method.train(used, base, seed=seed)
            rows.append(measured(method, result, used, test=(points, answers)))
        if "tuned" in settings:
            choice = tuned(method, used, base, seed=seed, repeats=repeats, blur=blur, gain=gain)
            result = method.train(used, choice.settings, seed=seed)
            rows.append(
                measured(method, result, used, test=(points, answers), choosing_s=choice.seconds)
            )
    return rows


def measured(
    method: Method,
    result: BaselineResult,
    data: BaselineData,
    *,
    test: tuple[Array, IntArray],
    choosing_s: float | None = None,
) -> ComparisonRow:
    """What a trained baseline reaches; `choosing_s` tells that its settings were chosen."""
    points, answers = test
    rule = result.settings.label_rule
    labels = data.hard_labels
    aided = result.fitted.correct is not None
    on_hard = result.predict(data.hard_inputs)
    given = result.predict_labelled(data.hard_inputs, labels) if aided else None
    return ComparisonRow(
        method=method.name,
        settings="paper" if choosing_s is None else "tuned",
        oracle=method.oracle,
        test_accuracy=_accuracy(result.predict(points), answers),
        rows=len(labels),
        rows_satisfied=float(rule.satisfied(on_hard, labels).mean()),
        rows_satisfied_given_labels=(
            None if given is None else float(rule.satisfied(given, labels).mean())
        ),
        accuracy_given_labels=(
            _accuracy(result.predict_labelled(points, answers), answers) if method.oracle else None
        ),
        seconds=result.seconds,
        choosing_s=choosing_s,
        chosen=method.used(result.settings),
        note=result.note,
        blur=result.settings.blur,
    )


def comparison_markdown(rows: Sequence[ComparisonRow]) -> str:
    """The rows as a Markdown table, shares in per cent."""

    def per_cent(share: float | None) -> float | None:
        return None if share is None else 100 * share

    return format_markdown(
        [
            {
                "method": f"{row.method} (oracle)" if row.oracle else row.method,
                "settings": row.settings,
                "test accuracy %": per_cent(row.test_accuracy),
                "rows satisfied %": per_cent(row.rows_satisfied),
                "rows, given labels %": per_cent(row.rows_satisfied_given_labels),
                "accuracy, given labels %": per_cent(row.accuracy_given_labels),
                "seconds": row.seconds,
                "choosing s": row.choosing_s,
                "blur": row.blur,
                "note": row.note,
            }
            for row in rows
        ],
        digits=4,
    )


def _method(name: str) -> Method:
    if name not in METHODS:
        raise InvalidInput(
            f"unknown baseline {name!r}{did_you_mean(name, METHODS)}; "
            f"use any of {', '.join(METHODS)}"
        )
    return METHODS[name]


def _accuracy(scores: Array, labels: IntArray) -> float:
    return float(np.mean(scores.argmax(axis=1) == labels))
