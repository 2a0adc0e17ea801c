"""DC3: gradient steps on the violation correct each hard output, in training and at inference.

A correction needs the label. It is known for hard inputs alone, as part of the rule, so only they
are corrected; every other input gets the network's own output, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cg4ai.protocols import Parameters
from cg4ai.records import Array, IntArray
from experiments.baselines.penalty import squared_violations
from experiments.baselines.records import (
    BaselineData,
    BaselineSettings,
    Correct,
    Fitted,
    Method,
    training_grid,
)
from experiments.baselines.rule import LabelRule
from experiments.baselines.stacks import Stack, cross_entropy, fitted_networks

RATES = (0.1, 0.25)  # 0.25 is a full step on a margin with one rival
SOFT_WEIGHTS = (0.0, 0.1, 1.0)


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


def fit_dc3(
    data: BaselineData, candidates: Sequence[BaselineSettings], seed: int, repeats: int
) -> list[Fitted]:
    return fitted_networks(
        data,
        candidates,
        seed=seed,
        repeats=repeats,
        fit=fit_corrected,
        correction=correction,
        note="hard inputs are corrected by their labels; other inputs are not",
    )


def dc3_grid(base: BaselineSettings) -> list[BaselineSettings]:
    return [
        replace(way, correction_rate=rate, soft_weight=weight)
        for way in training_grid(base)
        for rate in dict.fromkeys((base.correction_rate, *RATES))
        for weight in dict.fromkeys((base.soft_weight, *SOFT_WEIGHTS))
    ]


DC3 = Method(
    "DC3",
    fit_dc3,
    dc3_grid,
    ("starts", "soft_weight", "correction_steps", "correction_rate"),
    enforces=True,
)
