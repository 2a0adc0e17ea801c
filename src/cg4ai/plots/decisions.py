"""Decisions under rules: accuracy against the gap between groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.plots.drawing import FIRST, QUIET, SECOND, axis_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_frontier(source: Any, *, ax: Axes | None = None) -> Axes:
    """Accuracy against the gap for each tolerance, with standard errors, and without the rule.

    `source`: a classifier fitted under a `DecisionRate` or made by `postprocess`, or what its
    `frontier()` gave.
    """
    found = source.frontier() if hasattr(source, "frontier") else source
    if not hasattr(found, "points") or not hasattr(found, "unbound"):
        raise InvalidInput(
            "give a classifier fitted under a DecisionRate, or its frontier(), got "
            f"{type(source).__name__}",
            code="type",
        )
    ax = axis_of(ax)
    points = sorted(found.points, key=lambda one: one.gap)
    ax.errorbar(
        [one.gap for one in points],
        [one.accuracy for one in points],
        xerr=[one.gap_error for one in points],
        yerr=[one.accuracy_error for one in points],
        marker="o",
        color=FIRST,
        ecolor=QUIET,
        elinewidth=0.8,
        label="by tolerance",
    )
    for one in points:
        ax.annotate(
            f"{one.tolerance:g}",
            (one.gap, one.accuracy),
            xytext=(4, -11),
            textcoords="offset points",
            fontsize="small",
            color=QUIET,
        )
    plain = found.unbound
    ax.plot(plain.gap, plain.accuracy, "D", color=SECOND, label="without the rule")
    ax.set_xlim(left=min(0.0, float(np.min(ax.get_xlim()))))
    ax.set_xlabel("gap between groups, on rows that chose nothing")
    ax.set_ylabel("accuracy")
    ax.legend(frameon=False)
    return ax
