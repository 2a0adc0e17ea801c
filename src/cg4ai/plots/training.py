"""How a run went: convergence by iterations, seconds by steps, weights of members."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.plots.drawing import (
    FIRST,
    PAPER,
    QUIET,
    SECOND,
    SERIES,
    axis_of,
    legend_above,
    set_log_scale,
    whole_numbers,
)
from cg4ai.plots.sources import STEPS, Record, WeightedMember, history_of, seconds_of, weights_of
from cg4ai.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Quantity = Literal["objective", "slack", "columns", "rows"]
LABELS = {
    "objective": "objective",
    "slack": "what rows lack",
    "columns": "members trained",
    "rows": "rows in the master",
}
MET = 1e-12  # what rows lack by rounding
DECADES = 100.0  # values further apart are drawn on a logarithmic scale
RULES_ENTER = "training under the rules"
MOST_BARS = 24  # of blocks
MOST_MEMBERS = 150
MOST_MARKS = 60


def plot_convergence(
    source: Any,
    what: Quantity = "objective",
    *,
    tolerance: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """One quantity by iterations: `objective` (with its bound), `slack`, `columns` or `rows`.

    `source`: a result, a fitted estimator, a run folder or the records of a history. `slack` is
    what the worst row of the master lacks, beside it the worst violation that a search found;
    what is below `tolerance` counts as met.
    """
    if what not in LABELS:
        raise InvalidInput(
            f"what must be one of {', '.join(LABELS)}, got {what!r}", code="unknown-name"
        )
    records = history_of(source)
    ax = axis_of(ax)
    ax.set(xlabel="iteration", ylabel=LABELS[what])
    whole_numbers(ax.xaxis)
    if not records:
        return _said(ax, "no iteration has ended")
    if what == "slack":
        return _slack(ax, records, tolerance)
    if what == "objective":
        return _objective(ax, records)
    mark = _mark("o-", records)
    ax.plot(*_series(records, what), mark, color=FIRST, markersize=4, drawstyle="steps-post")
    ax.set_ylim(bottom=0)
    whole_numbers(ax.yaxis)
    return ax


def _objective(ax: Axes, records: Sequence[Record]) -> Axes:
    x, y = _series(records, "objective")
    if not len(x):
        return _said(ax, "no mixture was weighed yet")
    ax.plot(x, y, _mark("o-", records), color=FIRST, markersize=4, label="objective")
    bounds = _series(records, "bound")
    if len(bounds[0]):
        ax.plot(*bounds, "--", color=SECOND, label="proven bound")
    if y.min() > 0 and y.max() > DECADES * y.min():
        set_log_scale(ax)
    entered = [one["iteration"] for one in records if RULES_ENTER in (one.get("note") or "")]
    if entered:  # those before it are of mixtures that need not keep the rules
        ax.axvline(entered[0] + 0.5, color=QUIET, linestyle=":", linewidth=1.2, label="rules enter")
    if entered or len(bounds[0]):
        legend_above(ax)
    return ax


def has_violation(records: Sequence[Record], tolerance: float | None = None) -> bool:
    """Whether in some iteration a row lacked something, or a search found a violation."""
    met = MET if tolerance is None else tolerance
    return any((_series(records, name)[1] > met).any() for name in ("slack", "worst_violation"))


def _slack(ax: Axes, records: Sequence[Record], tolerance: float | None) -> Axes:
    met = MET if tolerance is None else tolerance
    named = [
        ("lacking in the master", _mark("o-", records), FIRST, *_series(records, "slack")),
        (
            "worst violation found",
            _mark("s--", records),
            SECOND,
            *_series(records, "worst_violation"),
        ),
    ]
    shown = [one for one in named if (one[-1] > met).any()]
    if not shown:
        return _said(ax, "every row was met in every iteration")
    least = min(float(one[-1][one[-1] > met].min()) for one in shown)
    most = max(float(one[-1].max()) for one in shown)
    decades = most > DECADES * least
    for name, mark, colour, at, values in shown:
        # a logarithmic scale has no place for what is met: it stands at the lower edge
        heights = np.maximum(values, least / 3 if decades else 0.0)
        ax.plot(at, heights, mark, color=colour, markersize=4, label=name)
    if decades:
        set_log_scale(ax)
    if tolerance is not None and least / 3 <= tolerance <= 3 * most:
        ax.axhline(tolerance, color=QUIET, linestyle=":", label="counts as met")
    ax.set_xlim(*_around(np.array([one["iteration"] for one in records])))
    legend_above(ax)
    return ax


def _mark(style: str, records: Sequence[Record]) -> str:
    """A line with marks; of many iterations the line alone."""
    return style if len(records) <= MOST_MARKS else style.lstrip("os")


def _series(records: Sequence[Record], name: str) -> tuple[Array, Array]:
    """Iterations and finite values."""
    known = [
        (one["iteration"], float(one[name]))
        for one in records
        if isinstance(one.get(name), int | float) and math.isfinite(one[name])
    ]
    numbers = np.array(known, np.float64).reshape(-1, 2)
    return numbers[:, 0], numbers[:, 1]


def _around(iterations: Array) -> tuple[float, float]:
    room = max(0.5, 0.05 * float(np.ptp(iterations)))
    return float(iterations.min()) - room, float(iterations.max()) + room


def _said(ax: Axes, words: str) -> Axes:
    """An axis with nothing to draw says so."""
    ax.grid(False)
    ax.set_axis_off()
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=QUIET)
    return ax


def plot_time(source: Any, *, ax: Axes | None = None) -> Axes:
    """Where the seconds went: of a result, a fitted estimator, a run folder or a summary."""
    seconds = seconds_of(source)
    names = [name for name in STEPS if name in seconds][::-1]
    ax = axis_of(ax)
    values = [seconds[name] for name in names]
    bars = ax.barh([STEPS[name] for name in names], values, color=FIRST, height=0.65)
    labels = ["<0.1 s" if value < 0.05 else f"{value:.1f} s" for value in values]
    ax.bar_label(bars, labels, padding=3, fontsize="small")
    ax.margins(x=0.15)
    ax.set_xlabel("seconds")
    ax.grid(False, axis="y")
    return ax


def plot_weights(
    source: Any, *, names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """The weights of all members, largest first: of an ensemble, a result, an estimator, a folder.

    Of a mixture in several blocks, which sum to one each, a bar for each block; `names` are theirs.
    """
    members = sorted(weights_of(source), key=lambda one: -one.weight)
    ax = axis_of(ax)
    kinds = list(dict.fromkeys(one.kind for one in members))
    colour = {kind: SERIES[number % len(SERIES)] for number, kind in enumerate(kinds)}
    blocks = sorted({one.block for one in members})
    if len(blocks) > 1:
        _blocks(ax, members, blocks, names, colour)
    else:
        _one_block(ax, members, colour)
    if len(kinds) > 1:
        for kind in kinds:
            ax.plot([], [], color=colour[kind], linewidth=8, solid_capstyle="butt", label=kind)
        legend_above(ax)
    return ax


def _one_block(ax: Axes, members: Sequence[WeightedMember], colour: dict[str, str]) -> None:
    shown = members[:MOST_MEMBERS]
    colours = [colour[one.kind] for one in shown]
    ax.bar(range(1, len(shown) + 1), [one.weight for one in shown], color=colours)
    ax.set(xlabel="member, largest weight first", ylabel="weight")
    ax.set_ylim(bottom=0)
    whole_numbers(ax.xaxis)
    ax.grid(False, axis="x")
    if len(members) > MOST_MEMBERS:
        ax.set_title(f"the {MOST_MEMBERS} largest of {len(members)}")


def _blocks(
    ax: Axes,
    members: Sequence[WeightedMember],
    blocks: Sequence[int],
    names: Sequence[str] | None,
    colour: dict[str, str],
) -> None:
    for place, block in enumerate(blocks[:MOST_BARS]):
        left = 0.0
        for one in (one for one in members if one.block == block):
            # the edge tells members of one kind apart
            ax.barh(place, one.weight, left=left, color=colour[one.kind], edgecolor=PAPER)
            left += one.weight
    shown = [f"block {block}" if names is None else names[block] for block in blocks[:MOST_BARS]]
    ax.set_yticks(range(len(shown)), shown, parse_math=False)
    ax.set_xlabel("weight")
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    if len(blocks) > MOST_BARS:
        ax.set_title(f"the first {MOST_BARS} of {len(blocks)} blocks")
