"""Baselines whose training knows the rule: L2 penalty, augmented Lagrangian and DC3.

DC3 corrects hard outputs by gradient steps on the violation, in training and at inference. That
needs the label, which is known for hard inputs alone, as part of the rule; every other input gets
the network's own output, as in the paper.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cg4ai.errors import InvalidSettings
from cg4ai.protocols import Parameters
from cg4ai.records import Array, IntArray
from experiments.baselines.records import BaselineSettings, Correct, Method, training_grid
from experiments.baselines.rule import LabelRule
from experiments.baselines.stacks import Stack, cross_entropy, networks

WEIGHTS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
TARGETS = {"margin": 1.0, "probability": 0.9}  # asking for more makes the rule itself hold
RATES = (0.1, 0.25)  # 0.25 is a full step on a margin with one rival
SOFT_WEIGHTS = (0.0, 0.1, 1.0)


# ---- L2 penalty ---------------------------------------------------------------------------------


def squared_violations(stack: Stack, logits: Tensor) -> Tensor:
    """`sum_j max(0, threshold - value_j)^2` over hard inputs, logits (models, m, r): (models,)."""
    return stack.rule.violations(logits, stack.hard_labels).square().sum(-1)


def fit_penalised(stack: Stack) -> None:
    weights = stack.per_model(model.settings.weight for model in stack.models)

    def loss(parameters: Parameters, step: int) -> Tensor:
        penalty = squared_violations(stack, stack.hard_logits(parameters))
        return stack.task_loss(parameters) + weights * penalty

    stack.train(loss, stack.warm_up())


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
    networks(fit_penalised),
    weight_grid,
    ("starts", "weight", "target", "warm_up"),
    enforces=True,
)


# ---- augmented Lagrangian: one multiplier per hard input, raised where it fails -----------------


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


LAGRANGIAN = Method(
    "augmented Lagrangian",
    networks(fit_multipliers),
    weight_grid,
    ("starts", "weight", "target", "warm_up", "rounds"),
    enforces=True,
)


# ---- DC3 ----------------------------------------------------------------------------------------


def corrected_logits(
    rule: LabelRule, logits: Tensor, labels: Tensor, *, steps: int, rates: Tensor | float
) -> Tensor:
    """`steps` gradient steps on the squared violation, differentiable: (..., m, r) -> same."""
    for _ in range(steps):
        missing = rule.violations(logits, labels).unsqueeze(-1)
        logits = logits + 2 * rates * missing * rule.slopes(logits, labels)
    return logits


def fit_corrected(stack: Stack) -> None:
    """Cross-entropy, plus cross-entropy and weighted violations of corrected hard outputs."""
    weights = stack.per_model(model.settings.soft_weight for model in stack.models)
    rates = stack.per_model(model.settings.correction_rate for model in stack.models)
    steps = stack.settings.correction_steps

    def loss(parameters: Parameters, step: int) -> Tensor:
        logits = corrected_logits(
            stack.rule,
            stack.hard_logits(parameters),
            stack.hard_labels,
            steps=steps,
            rates=rates[:, None, None],
        )
        hard = cross_entropy(logits, stack.hard_labels).mean(-1)
        return stack.task_loss(parameters) + hard + weights * squared_violations(stack, logits)

    stack.train(loss)


def correction(settings: BaselineSettings) -> Correct:
    """The correction on float64 scores; probabilities are corrected through their logarithms."""
    rule = settings.label_rule

    def correct(scores: Array, labels: IntArray) -> Array:
        given = torch.as_tensor(scores)
        smallest = torch.finfo(torch.float64).tiny
        logits = given if rule.kind == "margin" else given.clamp_min(smallest).log()
        better = corrected_logits(
            rule,
            logits,
            torch.as_tensor(labels),
            steps=settings.correction_steps,
            rates=settings.correction_rate,
        )
        result: Array = (better if rule.kind == "margin" else better.softmax(-1)).numpy()
        return result

    return correct


def dc3_grid(base: BaselineSettings) -> list[BaselineSettings]:
    return [
        replace(way, correction_rate=rate, soft_weight=weight)
        for way in training_grid(base)
        for rate in dict.fromkeys((base.correction_rate, *RATES))
        for weight in dict.fromkeys((base.soft_weight, *SOFT_WEIGHTS))
    ]


DC3 = Method(
    "DC3",
    networks(
        fit_corrected,
        correction=correction,
        note="hard inputs are corrected by their labels; other inputs are not",
    ),
    dc3_grid,
    ("starts", "soft_weight", "correction_steps", "correction_rate"),
    enforces=True,
)
