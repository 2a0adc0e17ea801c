"""Baselines that know no rule: one member, the mean of many, and one network as wide as all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cg4ai.members import NetworkMembers
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Fitted,
    Method,
    training_grid,
)
from experiments.baselines.stacks import (
    Model,
    Stack,
    fitted_networks,
    mixture_predictor,
    train_networks,
)


def fit_plain(stack: Stack) -> None:
    """Cross-entropy alone."""
    stack.train(lambda parameters, step: stack.task_loss(parameters))


def _fitted(members: NetworkMembers) -> Fitted:
    weights = np.full(len(members), 1.0 / len(members))
    return Fitted(mixture_predictor(members, weights), members, weights)


def fit_single(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return fitted_networks(data, candidates, seed=seed, repeats=repeats, fit=fit_plain)


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
    ends = np.cumsum(sizes)
    return [
        _fitted(NetworkMembers.concatenate(trained[end - size : end]))
        for size, end in zip(sizes, ends, strict=True)
    ]


def fit_wide(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    wide = [replace(settings, hidden=settings.hidden * settings.members) for settings in candidates]
    return fit_single(data, wide, seed, repeats)


SINGLE = Method(
    "single member",
    fit_single,
    training_grid,
    ("starts",),
)
AVERAGE = Method(
    "uniform average",
    fit_average,
    training_grid,
    ("members",),
)
WIDE = Method(
    "wide network",
    fit_wide,
    training_grid,
    ("members",),
)
