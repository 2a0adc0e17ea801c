"""Histograms: how often what was measured, with the limit that it must not pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from cg4ai.errors import InvalidInput
from cg4ai.plots.colours import BAD, SERIES
from cg4ai.plots.drawing import axis_of, legend_above, logarithmic
from cg4ai.records import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 40


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

    All share their bins. `limit`: what values must not pass is a line. `rare`: counts on a
    logarithmic scale, so that single ones can be seen.
    """
    named = values if isinstance(values, Mapping) else {"": values}
    series = {name: _finite(one) for name, one in named.items()}
    series = {name: one for name, one in series.items() if len(one)}
    if not series:
        raise InvalidInput("there is no finite value to draw a histogram of")
    ax = axis_of(ax)
    bins = _bins(np.concatenate(list(series.values())))
    for number, (name, own) in enumerate(series.items()):
        colour = SERIES[number % len(SERIES)]
        shape: Any = ("step", 1.6) if number else ("stepfilled", 0.0)
        ax.hist(own, bins.tolist(), color=colour, label=name, histtype=shape[0], linewidth=shape[1])
    if limit is not None:
        ax.axvline(limit, color=BAD, linestyle="--", linewidth=1.4, label=limit_name)
    if len(series) > 1 or limit is not None:
        legend_above(ax)
    if rare:
        logarithmic(ax)
    ax.set(xlabel=label, ylabel=counted)
    return ax


def _finite(values: ArrayLike) -> Array:
    numbers = np.asarray(values, np.float64).ravel()
    return np.asarray(numbers[np.isfinite(numbers)])


def _bins(values: Array) -> Array:
    """Edges over all values; a little room where all of them are equal."""
    low, high = float(values.min()), float(values.max())
    room = 0.0 if high > low else 0.5 * max(abs(low), 1e-6)
    return np.linspace(low - room, high + room, BINS + 1)
