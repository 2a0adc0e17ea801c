"""How good predictions are: calibration of classifiers, confusion of classes, values beside true.

`plot_calibration` takes an estimator; what these figures are drawn from is also theirs to be given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cg4ai.errors import InvalidInput
from cg4ai.plots.drawing import FIRST, INK, LINE, PAPER, QUIET, STEPS, axis_of, pick_evenly
from cg4ai.records import Array, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RARE = 0.05  # of a class: answers that are rarer have no colour


@dataclass(frozen=True)
class Reliability:
    """What was predicted beside what came, by bins: means (k,), shares (k,) and rows (k,)."""

    predicted: Array
    observed: Array
    counts: IntArray


def compute_reliability(
    probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 10
) -> Reliability:
    """Of probabilities (n, classes) and the positions (n,) of the true classes.

    Of two classes that of the second and how often it was the true one; of more that of the class
    answered, and how often the answer was right. Bins without a row are left out.
    """
    scores, truth = np.asarray(probabilities, np.float64), np.asarray(labels, np.int64)
    if scores.ndim != 2 or scores.shape[1] < 2 or truth.shape != (len(scores),) or not len(truth):
        raise InvalidInput(
            "calibration needs probabilities (n, classes) of two classes or more and n labels, got "
            f"{scores.shape} and {truth.shape}",
            code="shape",
        )
    if bins < 1:
        raise InvalidInput(f"bins must be at least 1, got {bins}", code="range")
    stated, came = (
        (scores[:, 1], truth == 1)
        if scores.shape[1] == 2
        else (scores.max(axis=1), truth == scores.argmax(axis=1))
    )
    place = np.clip((stated * bins).astype(np.int64), 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    used = counts > 0
    means = [np.bincount(place, weights, bins)[used] / counts[used] for weights in (stated, came)]
    return Reliability(means[0], means[1], counts[used])


def plot_calibration(model: Any, X: Any, y: Any, *, bins: int = 10, ax: Axes | None = None) -> Axes:
    """How often a classifier is right when it says so: on the diagonal, as often as it says.

    `model`: a fitted classifier with `predict_proba`; X, y: rows that it was not trained on. Points
    are larger where they stand for more rows.
    """
    classes = np.asarray(model.classes_)
    truth = np.searchsorted(classes, y).clip(0, len(classes) - 1)
    if not np.array_equal(classes[truth], np.asarray(y)):
        raise InvalidInput(
            f"y has labels that the classifier does not know: {classes[:10]}", code="unknown-name"
        )
    return draw_reliability(
        compute_reliability(model.predict_proba(X), truth, bins=bins), axis_of(ax)
    )


def draw_reliability(
    found: Reliability,
    ax: Axes,
    *,
    predicted: str = "probability stated",
    observed: str = "share that came true",
) -> Axes:
    """Shares that came beside what was stated."""
    ax.plot([0, 1], [0, 1], "--", color=QUIET, linewidth=1, label="as stated")
    ax.plot(found.predicted, found.observed, "-", color=FIRST, linewidth=1.2)
    sizes = 20 + 100 * found.counts / found.counts.max()
    ax.scatter(found.predicted, found.observed, sizes, color=FIRST, zorder=3)
    ax.set(xlabel=predicted, ylabel=observed, xlim=(-0.04, 1.04), ylim=(-0.04, 1.04))
    ax.legend(loc="upper left")
    return ax


def plot_confusion(
    labels: ArrayLike,
    answers: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """How often each true class (rows) was answered as each class (columns); positions (n,)."""
    truth, given = np.asarray(labels, np.int64), np.asarray(answers, np.int64)
    if truth.shape != given.shape or truth.ndim != 1 or not len(truth):
        raise InvalidInput(
            f"give as many answers as labels, got {truth.shape} and {given.shape}", code="shape"
        )
    count = len(names) if names is not None else int(max(truth.max(), given.max())) + 1
    names = list(map(str, range(count))) if names is None else list(names)
    table = np.zeros((count, count), np.int64)
    np.add.at(table, (truth, given), 1)
    ax = axis_of(ax)
    ax.grid(False)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    step = np.clip(np.ceil(shares * len(STEPS)).astype(int) - 1, 0, len(STEPS) - 1)
    for (row, column), number in np.ndenumerate(table):
        if not number:
            continue
        strong = step[row, column] >= 2
        if shares[row, column] >= RARE:
            sides, colour = [column - 0.48, column + 0.48], STEPS[step[row, column]]
            ax.fill_between(sides, row - 0.48, row + 0.48, color=colour, linewidth=0)
        ax.text(
            column,
            row,
            str(number),
            ha="center",
            va="center",
            color=PAPER if strong else INK,
            fontsize="small",
        )
    ax.set_xticks(range(count), names, parse_math=False)
    ax.set_yticks(range(count), names, parse_math=False)
    ax.set(xlabel="answered", ylabel="true class", xlim=(-0.6, count - 0.4))
    ax.set_ylim(count - 0.4, -0.6)
    return ax


def plot_predictions(
    actual: ArrayLike, predicted: ArrayLike, *, name: str = "", ax: Axes | None = None
) -> Axes:
    """Predicted beside actual values (n,); of many rows some, evenly over the actual values."""
    truth, given = (np.asarray(one, np.float64).ravel() for one in (actual, predicted))
    if truth.shape != given.shape or not len(truth):
        raise InvalidInput(
            f"give as many predictions as values, got {given.shape}, {truth.shape}", code="shape"
        )
    ax = axis_of(ax)
    chosen = pick_evenly(truth)
    ax.scatter(truth[chosen], given[chosen], 14, color=FIRST, alpha=0.7, linewidths=0)
    ends = [float(min(truth.min(), given.min())), float(max(truth.max(), given.max()))]
    ax.plot(ends, ends, "--", color=QUIET, linewidth=1, label="right")
    ax.set_xlabel(f"actual {name}".strip(), parse_math=False)
    ax.set_ylabel(f"predicted {name}".strip(), parse_math=False)
    ax.legend(loc="upper left")
    return ax


def plot_images(images: NDArray[Any], captions: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Square grey images (n, pixels) in [0, 1] beside each other, a caption under each."""
    count, side = len(images), int(np.sqrt(images.shape[1]))
    ax = axis_of(ax)
    ax.set_axis_off()
    for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
        left = 1.12 * place
        ax.imshow(
            1 - np.asarray(image, np.float64).reshape(side, side),
            cmap="gray",
            vmin=0,
            vmax=1,
            extent=(left, left + 1, 0, 1),
            interpolation="nearest",
        )
        ax.text(left + 0.5, -0.12, caption, ha="center", va="top", fontsize="small")
    ax.plot([0, 1.12 * count - 0.12], [-0.02, -0.02], color=LINE, linewidth=0)
    ax.set(xlim=(-0.05, 1.12 * count), ylim=(-0.75, 1.05))
    ax.set_aspect("equal")
    return ax
