"""Oracle projection: a plain member whose scores are projected onto the rule of the true label.

It is an oracle, for reference only: to project, one must know the answer already.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cg4ai.records import Array, IntArray
from experiments.baselines.plain import fit_plain
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Correct,
    Fitted,
    Method,
    training_grid,
)
from experiments.baselines.stacks import fitted_networks


def project_margin(scores: Array, labels: IntArray, threshold: float) -> Array:
    """Nearest scores whose label leads every other class by `threshold`: (m, r) -> (m, r).

    The label rises to some t and every rival above `t - threshold` falls to that. With the k
    highest rivals falling, t is the mean of the label and of those rivals plus the threshold; the
    right k is the first whose next rival stays below.
    """
    rows = np.arange(len(labels))
    own = scores[rows, labels]
    shifted = scores + threshold
    shifted[rows, labels] = -np.inf
    rivals = -np.sort(-shifted, axis=1)  # descending, the label itself last
    sums = own[:, None] + np.cumsum(np.column_stack([np.zeros(len(own)), rivals[:, :-1]]), axis=1)
    levels = sums / np.arange(1, scores.shape[1] + 1)  # t if k = 0, 1, ... rivals fall
    level = levels[rows, (rivals <= levels).argmax(axis=1)]
    result: Array = np.minimum(scores, level[:, None] - threshold)
    result[rows, labels] = level
    return result


def project_probability(scores: Array, labels: IntArray, threshold: float) -> Array:
    """Nearest probabilities that give the label at least `threshold`: (m, r) -> (m, r).

    Where it has less it gets exactly that, and the others are projected onto what is left.
    """
    result = scores.copy()
    short = np.flatnonzero(scores[np.arange(len(labels)), labels] < threshold)
    others = scores[short].copy()
    others[np.arange(len(short)), labels[short]] = -np.inf
    ordered = -np.sort(-others, axis=1)[:, :-1]
    excess = np.cumsum(ordered, axis=1) - (1.0 - threshold)
    cuts = excess / np.arange(1, ordered.shape[1] + 1)
    last = ordered.shape[1] - 1 - (ordered > cuts)[:, ::-1].argmax(axis=1)
    # with nothing left over no rival stays above its cut, and the highest is the cut itself
    last = np.where((ordered > cuts).any(axis=1), last, 0)
    cut = cuts[np.arange(len(short)), last]
    result[short] = np.maximum(others - cut[:, None], 0.0)
    result[short, labels[short]] = threshold
    return result


def projection(settings: BaselineSettings) -> Correct:
    project = project_margin if settings.rule == "margin" else project_probability

    def correct(scores: Array, labels: IntArray) -> Array:
        return project(scores, labels, settings.threshold)

    return correct


def fit_projection(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return fitted_networks(
        data,
        candidates,
        seed=seed,
        repeats=repeats,
        fit=fit_plain,
        correction=projection,
        note="oracle: projects onto the rule of the true label; without labels a single member",
    )


PROJECTION = Method(
    "oracle projection",
    fit_projection,
    training_grid,
    ("starts",),
    oracle=True,
)
