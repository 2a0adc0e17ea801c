"""Augmented Lagrangian: a penalty with one multiplier per hard input, raised where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cg4ai.errors import InvalidSettings
from cg4ai.protocols import Parameters
from experiments.baselines.penalty import weight_grid
from experiments.baselines.records import BaselineData, BaselineSettings, Fitted, Method
from experiments.baselines.stacks import Stack, fitted_networks


def augmented_terms(shortfall: Tensor, multipliers: Tensor, weights: Tensor) -> Tensor:
    """`sum_j (max(0, m_j + w g_j)^2 - m_j^2) / (2 w)`, g_j = threshold - value_j: (models,).

    shortfall g and multipliers m are (models, hard inputs), the weights w (models,) positive.
    """
    raised = next_multipliers(shortfall, multipliers, weights)
    return (raised.square() - multipliers.square()).sum(-1) / (2 * weights)


def next_multipliers(shortfall: Tensor, multipliers: Tensor, weights: Tensor) -> Tensor:
    """`max(0, m_j + w g_j)`: larger where the rule is violated, smaller where it holds."""
    return (multipliers + weights[:, None] * shortfall).clamp_min(0)


def fit_multipliers(stack: Stack) -> None:
    """The steps after the warm-up are shared out evenly among the rounds."""
    weights = stack.per_model(model.settings.weight for model in stack.models)
    if not bool((weights > 0).all()):
        raise InvalidSettings("weight of the augmented Lagrangian must be positive, got 0")
    multipliers = torch.zeros(len(stack.models), len(stack.hard_labels), device=weights.device)
    left = stack.warm_up()
    part = replace(left, steps=max(1, left.steps // stack.settings.rounds))

    def shortfall(parameters: Parameters) -> Tensor:
        values = stack.rule.values(stack.hard_logits(parameters), stack.hard_labels)
        return stack.rule.threshold - values

    def loss(parameters: Parameters, step: int) -> Tensor:
        terms = augmented_terms(shortfall(parameters), multipliers, weights)
        return stack.task_loss(parameters) + terms

    for _ in range(stack.settings.rounds):
        stack.train(loss, part)
        with torch.no_grad():
            multipliers = next_multipliers(shortfall(stack.parameters), multipliers, weights)


def fit_lagrangian(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return fitted_networks(data, candidates, seed=seed, repeats=repeats, fit=fit_multipliers)


LAGRANGIAN = Method(
    "augmented Lagrangian",
    fit_lagrangian,
    weight_grid,
    ("starts", "weight", "target", "warm_up", "rounds"),
    enforces=True,
)
