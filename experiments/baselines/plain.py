"""Baselines whose training knows no rule: one member, the mean of many, one network as wide as all.

The oracle projection is such a member, too, whose scores are projected onto the rule of the true
label. It is for reference only: to project, one must know the answer already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cg4ai.members import NetworkMembers
from cg4ai.records import Array, IntArray
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Correct,
    Fitted,
    Method,
    training_grid,
)
from experiments.baselines.stacks import Model, Stack, mixture_predictor, networks, train_networks


def fit_plain(stack: Stack) -> None:
    """Cross-entropy alone."""
    stack.train(lambda parameters, step: stack.task_loss(parameters))


fit_single = networks(fit_plain)


def fit_average(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    """All members of all candidates in as few stacks as their schedules allow."""
    sizes = [settings.members for settings in candidates for _ in range(repeats)]
    models = [
        Model(settings, repeat * settings.members + member)
        for settings in candidates
        for repeat in range(repeats)
        for member in range(settings.members)
    ]
    trained = train_networks(data, models, seed=seed, fit=fit_plain)
    fitted = []
    for size, end in zip(sizes, np.cumsum(sizes), strict=True):
        members = NetworkMembers.concatenate(trained[end - size : end])
        weights = np.full(size, 1.0 / size)
        fitted.append(Fitted(mixture_predictor(members, weights), members, weights))
    return fitted


def fit_wide(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    wide = [replace(settings, hidden=settings.hidden * settings.members) for settings in candidates]
    return fit_single(data, wide, seed, repeats)


SINGLE = Method("single member", fit_single, training_grid, ("starts",))
AVERAGE = Method("uniform average", fit_average, training_grid, ("members",))
WIDE = Method("wide network", fit_wide, training_grid, ("members",))


# ---- the oracle ---------------------------------------------------------------------------------


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


PROJECTION = Method(
    "oracle projection",
    networks(
        fit_plain,
        correction=projection,
        note="oracle: projects onto the rule of the true label; without labels a single member",
    ),
    training_grid,
    ("starts",),
    oracle=True,
)
