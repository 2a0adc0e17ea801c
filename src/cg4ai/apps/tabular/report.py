"""A run on a table in words: what is guaranteed, and how good the mixture is beside others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cg4ai.report import wording


def report(summary: Mapping[str, Any]) -> str:
    lines = [*wording.cut_short(summary), wording.report(dict(summary))]
    if known := scores(summary):
        lines += ["", *known]
    return "\n".join(lines)


def scores(summary: Mapping[str, Any]) -> list[str]:
    """How good the mixture is beside others; with a warning where guessing is as good."""
    score = summary.get("score")
    if score is None:
        return []
    guess = "the majority" if score["name"] == "accuracy" else "the mean"
    where = "that no member was trained on" if score["held_out"] else "that members were trained on"
    lines = [
        f"{score['name']} on {score['rows']} rows {where}: {score['mixture']:.3f}{_cost(score)}; a "
        f"plain linear model {score['plain']:.3f}, always guessing {guess} {score['guess']:.3f}.",
    ]
    if score["mixture"] <= score["guess"]:
        lines.append(
            f"WARNING: this mixture is no better than always guessing {guess}; train longer "
            "(--iteration-limit, --steps), or ask less of the rules."
        )
    return lines


def _cost(score: Mapping[str, Any]) -> str:
    """What the rules cost."""
    without = score.get("without_rules")
    if without is None:
        return ""
    return f"; without the rules {without:.3f}, so they cost {without - score['mixture']:.3f}"
