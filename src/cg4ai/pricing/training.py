"""Trains many independent models at once: Adam with a learning rate and early stop per model.

Library optimisers share one learning rate and one stopping rule among all models of a stack; here
each keeps its own, as if it had been trained alone, while every step stays one batched call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters

Schedule = Literal["plateau", "onecycle"]
LossOf = Callable[[Parameters, int], Tensor]  # (parameters, step) -> (models,)
Pause = Callable[[Parameters, int], None]  # called before a step, parameters without gradients


@dataclass(frozen=True, slots=True)
class Training:
    """How long and how fast to train.

    `plateau` is the paper's rule for full batches: stop a model after `patience` steps without
    improvement, multiply its learning rate by `decay` after every `decay_after` such steps, and
    keep its best parameters. `onecycle` warms up over the first tenth, then anneals to zero and
    keeps the last parameters: for fresh samples, where single losses are noise.
    """

    steps: int = 1000
    learning_rate: float = 1e-2
    schedule: Schedule = "plateau"
    patience: int = 50
    decay: float = 0.9
    decay_after: int = 10
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name, low in (("steps", 0), ("patience", 1), ("decay_after", 1), ("weight_decay", 0)):
            if not getattr(self, name) >= low:
                raise InvalidInput(f"{name} must be at least {low}, got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf or not 0 < self.decay <= 1:
            raise InvalidInput(
                "learning_rate must be positive and decay lie in (0, 1], got "
                f"{self.learning_rate} and {self.decay}"
            )
        if self.schedule not in get_args(Schedule):
            raise InvalidInput(
                f"schedule must be one of {', '.join(get_args(Schedule))}, got {self.schedule!r}"
            )


def train(
    parameters: Parameters,
    loss_of: LossOf,
    training: Training,
    *,
    models: int,
    pause: Pause | None = None,
) -> Parameters:
    """Minimise each model's loss; every tensor's leading axis is models x members per model."""
    current = {name: value.detach().clone() for name, value in parameters.items()}
    best = {name: value.clone() for name, value in current.items()}
    first = {name: torch.zeros_like(value) for name, value in current.items()}
    second = {name: torch.zeros_like(value) for name, value in current.items()}
    device = next(iter(current.values())).device
    best_loss = torch.full((models,), math.inf, device=device)
    stale = torch.zeros(models, device=device)
    rate = torch.full((models,), training.learning_rate, device=device)
    plateau = training.schedule == "plateau"
    for step in range(training.steps):
        if pause is not None:
            pause(current, step)
        for value in current.values():
            value.requires_grad_(True)
        losses = loss_of(current, step)
        gradients = torch.autograd.grad(losses.sum(), list(current.values()))
        with torch.no_grad():
            for value in current.values():
                value.requires_grad_(False)
            if plateau:
                improved = losses < best_loss - 1e-7 * best_loss.abs().clamp(1e-6, 1e6)
                best_loss = torch.where(improved, losses, best_loss)
                stale = torch.where(improved, torch.zeros_like(stale), stale + 1)
                drop = (stale > 0) & (stale % training.decay_after == 0)
                rate = torch.where(drop, rate * training.decay, rate)
                for name, value in current.items():
                    best[name] = _choose(improved, value, best[name])
                rate = torch.where(stale >= training.patience, torch.zeros_like(rate), rate)
                if step % 10 == 9 and bool((stale >= training.patience).all()):
                    break
            else:
                rate = torch.full_like(rate, onecycle(step, training))
            _adam(
                current,
                dict(zip(current, gradients, strict=True)),
                first,
                second,
                step,
                rate,
                training.weight_decay,
            )
    return best if plateau else current


def _choose(which: Tensor, new: Tensor, old: Tensor) -> Tensor:
    mask = which.repeat_interleave(len(new) // len(which))
    return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def onecycle(step: int, training: Training) -> float:
    """The learning rate of a step: up over the first tenth, then down to zero along a cosine."""
    warm = max(1, training.steps // 10)
    if step < warm:
        return training.learning_rate * (step + 1) / warm
    share = (step - warm) / max(1, training.steps - warm)
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * share))


def _adam(
    current: Parameters,
    gradients: Parameters,
    first: Parameters,
    second: Parameters,
    step: int,
    rate: Tensor,
    weight_decay: float,
) -> None:
    """One Adam step in place, with the learning rate of each model."""
    correction1, correction2 = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
    for name, value in current.items():
        gradient = gradients[name]
        first[name].lerp_(gradient, 0.1)
        second[name].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        per_member = rate.repeat_interleave(len(value) // len(rate)).to(value.dtype)
        shaped = per_member.reshape(-1, *[1] * (value.ndim - 1))
        if weight_decay:
            value.mul_(1 - shaped * weight_decay)
        size = (second[name] / correction2).sqrt_().add_(1e-8)
        value.sub_(shaped / correction1 * first[name] / size)
