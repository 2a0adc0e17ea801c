"""L2 penalty: cross-entropy plus the squared violations of the rule, at a fixed weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from cg4ai.protocols import Parameters
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Fitted,
    Method,
    training_grid,
)
from experiments.baselines.stacks import Stack, fitted_networks

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

    stack.train(loss, stack.warm_up())


def fit_penalty(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return fitted_networks(data, candidates, seed=seed, repeats=repeats, fit=fit_penalised)


def weight_grid(base: BaselineSettings) -> list[BaselineSettings]:
    """Every weight, at once or after a warm-up, for the rule's threshold or a larger one."""
    larger = max(base.threshold, TARGETS[base.rule])
    ways = training_grid(base)
    return [
        replace(way, weight=weight, target=target, warm_up=warm_up)
        for way in (ways[0], ways[2])
        for target, warm_up in ((base.target, base.warm_up), (base.target, 0.5), (larger, 0.5))
        for weight in dict.fromkeys((base.weight, *WEIGHTS))
    ]


PENALTY = Method(
    "L2 penalty",
    fit_penalty,
    weight_grid,
    ("starts", "weight", "target", "warm_up"),
    enforces=True,
)
