"""Histograms: how often what was measured, with the limit that it must not pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cg4ai.errors import InvalidInput
from cg4ai.plots.drawing import (
    BAD,
    FIRST,
    PAPER,
    SECOND,
    SERIES,
    axis_of,
    legend_above,
    set_log_scale,
)
from cg4ai.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 40
MANY = 50  # in one bar: beside it single ones cannot be seen
ROUNDING = 1e-6  # of a limit: values this near have not passed it


def plot_histogram(
    values: ArrayLike | Mapping[str, ArrayLike],
    *,
    label: str = "value",
    counted: str = "inputs",
    limit: float | None = None,
    limit_name: str = "limit",
    rare: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """How often which value came; of several named series the first is filled, others are lines.

    All share their bins. `limit`: what values must not pass is a line, and an edge of bins: what
    reaches it, up to rounding, stands on its left. `rare`: large counts on a logarithmic scale, so
    that single ones can be seen beside them.
    """
    named = values if isinstance(values, Mapping) else {"": values}
    series = {name: _reaching(limit, _finite(one)) for name, one in named.items()}
    series = {name: one for name, one in series.items() if len(one)}
    if not series:
        raise InvalidInput("there is no finite value to draw a histogram of", code="not-finite")
    ax = axis_of(ax)
    edges = _bins(np.concatenate(list(series.values())), limit).tolist()
    for number, (name, own) in enumerate(series.items()):
        colour = SERIES[number % len(SERIES)]
        shape: Any = ("step", 1.6) if number else ("stepfilled", 0.0)
        ax.hist(own, edges, color=colour, label=name, histtype=shape[0], linewidth=shape[1])
    if limit is not None:
        ax.axvline(limit, color=BAD, linestyle="--", linewidth=1.4, label=limit_name)
    if len(series) > 1 or limit is not None:
        legend_above(ax)
    if rare and max(np.histogram(own, edges)[0].max() for own in series.values()) >= MANY:
        set_log_scale(ax)
    ax.set(xlabel=label, ylabel=counted)
    return ax


def plot_ranges(
    values: ArrayLike,
    names: Sequence[str],
    *,
    label: str = "value",
    vectors: str = "inputs",
    worst: ArrayLike | None = None,
    limit: float | None = None,
    limit_name: str = "limit",
    ax: Axes | None = None,
) -> Axes:
    """Where the values (n, k) of k named quantities lie, a bar for each, the first on top.

    Thin bars show all, thick ones nine of ten, marks the median; `worst` (k,) what else was found
    of each.
    """
    table = np.atleast_2d(np.asarray(values, np.float64))
    if table.shape[1] != len(names):
        raise InvalidInput(
            f"there are {table.shape[1]} columns of values, but {len(names)} names", code="shape"
        )
    low, fifth, half, most, high = np.percentile(table, [0, 5, 50, 95, 100], axis=0)
    places: Array = np.arange(len(names), dtype=np.float64)
    ax = axis_of(ax)
    ax.barh(places, high - low, left=low, height=0.16, color=FIRST)
    ax.barh(places, most - fifth, left=fifth, height=0.5, color=FIRST, label=f"9 of 10 {vectors}")
    ax.plot(half, places, "|", color=PAPER, markersize=9, markeredgewidth=2)
    if worst is not None:
        ax.plot(np.asarray(worst), places, "D", color=SECOND, markersize=5, label="worst found")
    if limit is not None:
        ax.axvline(limit, color=BAD, linestyle="--", linewidth=1.4, label=limit_name)
    ax.set_yticks(places, list(names), parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(left=min(0.0, float(low.min())))
    ax.set_xlabel(label)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    legend_above(ax, right=True)
    return ax


def _finite(values: ArrayLike) -> Array:
    numbers = np.asarray(values, np.float64).ravel()
    return np.asarray(numbers[np.isfinite(numbers)])


def _reaching(limit: float | None, values: Array) -> Array:
    """Values that reach the limit moved just below it, since bins include their lower edge."""
    if limit is None:
        return values
    near = np.abs(values - limit) <= ROUNDING * max(1.0, abs(limit))
    return np.where(near, np.nextafter(limit, -np.inf), values)


def _bins(values: Array, limit: float | None) -> Array:
    """Edges over all values, one of them at a limit among these; room where all are equal."""
    low, high = float(values.min()), float(values.max())
    room = 0.0 if high > low else 0.5 * max(abs(low), 1e-6)
    low, high = low - room, high + room
    if limit is None or not low < limit < high:
        return np.linspace(low, high, BINS + 1)
    width = (high - low) / BINS
    first, last = np.floor((low - limit) / width), np.ceil((high - limit) / width)
    edges = limit + width * np.arange(first, last + 1)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # whatever was rounded
    return np.asarray(edges)
