"""L2 penalty: cross-entropy plus the squared violations of the rule, at a fixed weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from cg4ai.baselines.records import (
    BaselineData,
    BaselineSettings,
    Fitted,
    Method,
    training_grid,
)
from cg4ai.baselines.stacks import Stack, fitted_networks
from cg4ai.protocols import Parameters

WEIGHTS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
TARGETS = {"margin": 1.0, "probability": 0.9}  # asking for more makes the rule itself hold


def squared_violations(stack: Stack, logits: Tensor) -> Tensor:
    """`sum_j max(0, threshold - value_j)^2` over hard inputs, logits (models, m, r): (models,)."""
    return stack.rule.violations(logits, stack.hard_labels).square().sum(-1)


def fit_penalised(stack: Stack) -> None:
    weights = stack.per_model(model.settings.weight for model in stack.models)

    def loss(parameters: Parameters, step: int) -> Tensor:
        penalty = squared_violations(stack, stack.hard_logits(parameters))
        return stack.task_loss(parameters) + weights * penalty

    stack.train(loss)


def fit_penalty(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return fitted_networks(data, candidates, seed=seed, repeats=repeats, fit=fit_penalised)


def weight_grid(base: BaselineSettings) -> list[BaselineSettings]:
    """Every weight with every way to train, for the rule's threshold and for a larger one."""
    larger = max(base.threshold, TARGETS[base.rule])
    return [
        replace(way, weight=weight, target=target)
        for way in training_grid(base)
        for target in (base.target, larger)
        for weight in dict.fromkeys((base.weight, *WEIGHTS))
    ]


PENALTY = Method(
    "L2 penalty",
    fit_penalty,
    weight_grid,
    ("weight", "target"),
    enforces=True,
    about="cross-entropy + weight x squared violations",
)
