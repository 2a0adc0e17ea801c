"""How much room rules have: the distribution of what is left to their bounds."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.plots.drawing import BAD, FIRST, QUIET, SECOND, axis_of
from cg4ai.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cg4ai.ensemble.slack import Slack
    from cg4ai.rules import Requirement

BINS = 30
HEIGHT = 0.72  # of a rule's row
LONGEST = 26  # letters of a name in one line


def plot_slack(
    source: Any,
    requirements: Requirement | Sequence[Requirement] = (),
    inputs: Any = None,
    *,
    tolerance: float = 1e-6,
    ax: Axes | None = None,
) -> Axes:
    """How much room each rule has, a row of bars for each; what is missed lies left of the line.

    `source`: a fitted estimator or an ensemble, with the requirements and, for rules over regions,
    the `inputs` (n, d) to look at; or what their `slack` gave. One rule is drawn in its own units,
    several each in shares of its largest room; beside it stands what is left at its tightest row.
    What lacks less than `tolerance` counts as met, as in audits. A mark is the least that a search
    found.
    """
    slacks = _slacks(source, requirements, inputs)[::-1]
    ax = axis_of(ax)
    one = len(slacks) == 1
    drawn = [_counted(slack.values, tolerance) for slack in slacks]
    for place, values in enumerate(drawn):
        if not len(values):
            ax.text(0.02, place, "no room to show", va="center", color=QUIET, fontsize="small")
            continue
        scale = 1.0 if one else float(np.abs(values).max()) or 1.0
        _bars(ax, values / scale, place)
        if (found := slacks[place].found) is not None:
            ax.plot(found / scale, place - 0.4, "D", color=SECOND, markersize=6)
    ax.axvline(0.0, color=BAD, linestyle="--", linewidth=1.4)
    labels = [_label(slack, values) for slack, values in zip(slacks, drawn, strict=True)]
    if one:
        ax.set_yticks([])
        ax.set_title(labels[0].replace("\n", ", "), loc="left", parse_math=False)
    else:
        ax.set_yticks(np.arange(len(slacks)) - 0.1, labels, parse_math=False)
    ax.set_ylim(-0.55, len(slacks) - 0.45)
    ax.set_xlabel("room to the bound" if one else "room to the bound, of each rule's largest")
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    return ax


def _slacks(source: Any, requirements: Any, inputs: Any) -> list[Slack]:
    rules = list(requirements) if isinstance(requirements, Sequence) else [requirements]
    if hasattr(source, "slack"):
        found = [source.slack(rule, inputs) for rule in rules]
    else:
        found = list(source) if isinstance(source, Sequence) else [source]
    if not found or not all(hasattr(slack, "values") for slack in found):
        raise InvalidInput(
            "give an estimator or ensemble and the requirements to look at, or what its slack() "
            f"gave, got {type(source).__name__} and {len(rules)} requirements",
            code="type",
        )
    return found


def _bars(ax: Axes, values: Array, place: int) -> None:
    """A histogram that stands on its row; one edge lies at the bound."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    width = (high - low) / BINS or 1.0 / BINS
    first, last = int(np.floor(low / width)), int(np.ceil(high / width)) or 1
    edges = width * np.arange(first, last + 1)
    counts, _ = np.histogram(values, edges)
    heights = HEIGHT * counts / counts.max()
    missed = edges[1:] <= 1e-12
    for chosen, colour in ((~missed, FIRST), (missed, BAD)):
        ax.bar(
            edges[:-1][chosen],
            heights[chosen],
            width=width,
            bottom=place - 0.45,
            align="edge",
            color=colour,
            edgecolor="none",
        )


def _counted(values: Array, tolerance: float) -> Array:
    """Those that are numbers; what counts as met is."""
    numbers = values[np.isfinite(values)]
    return np.where((numbers < 0) & (numbers >= -tolerance), 0.0, numbers)


def _label(slack: Slack, values: Array) -> str:
    """The rule's name, and what is left at its tightest row."""
    name = textwrap.fill(textwrap.shorten(slack.requirement, 2 * LONGEST), LONGEST)
    if not len(values):
        return name
    least = float(values.min()) if slack.found is None else min(slack.found, float(values.min()))
    missed = float((values < 0).mean())
    more = f", {missed:.1%} missed" if missed else ""
    return f"{name}\nleast {least:.3g}{more}"
