"""Trains many independent models at once by Adam, every step one batched call.

With `plateau` each model has a learning rate and an early stop of its own, as if it were trained
alone, which library optimisers do not offer for a stack; `onecycle` has one rate for all and uses
torch's fused kernel, much faster than the same arithmetic tensor by tensor.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters

Schedule = Literal["plateau", "onecycle"]
LossOf = Callable[[Parameters, int], Tensor]  # (parameters, step) -> (models,)
Pause = Callable[[Parameters, int], None]  # called before a step, parameters without gradients
# told (steps done, steps in all) while a group is trained, for whoever watches
step_listener: ContextVar[Callable[[int, int], None] | None] = ContextVar(
    "step_listener", default=None
)


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
    until: float = math.inf,
) -> Parameters:
    """Minimise each model's loss; every tensor's leading axis is models x members per model.

    `until` is a moment of `time.perf_counter` at which training ends, whatever steps are left.
    """
    current = contiguous(parameters)
    rule = (_Plateau if training.schedule == "plateau" else _OneCycle)(current, training, models)
    told = step_listener.get()
    for step in range(training.steps):
        if told is not None:
            told(step, training.steps)
        if pause is not None:
            pause(current, step)
        for value in current.values():
            value.requires_grad_(True)
        losses = loss_of(current, step)
        gradients = torch.autograd.grad(losses.sum(), list(current.values()))
        for value in current.values():
            value.requires_grad_(False)
        if rule.step(step, losses.detach(), gradients) or time.perf_counter() >= until:
            break
    return rule.result


def contiguous(parameters: Parameters) -> Parameters:
    """Copies in order in memory, which the fused kernel takes for granted of all it is given."""
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in parameters.items()
    }


class _OneCycle:
    """One learning rate for all models, which warms up and anneals; keeps the last parameters."""

    def __init__(self, current: Parameters, training: Training, models: int) -> None:
        self.result, self.training = current, training
        self.adam = FusedAdam(list(current.values()), training.weight_decay)

    def step(self, step: int, losses: Tensor, gradients: Sequence[Tensor]) -> bool:
        self.adam.step(gradients, onecycle(step, self.training))
        return False


class _Plateau:
    """A learning rate and a stop for each model; keeps each model's best parameters."""

    def __init__(self, current: Parameters, training: Training, models: int) -> None:
        self.current, self.training = current, training
        self.result = {name: value.clone() for name, value in current.items()}
        self.first = {name: torch.zeros_like(value) for name, value in current.items()}
        self.second = {name: torch.zeros_like(value) for name, value in current.items()}
        device = next(iter(current.values())).device
        self.best_loss = torch.full((models,), math.inf, device=device)
        self.stale = torch.zeros(models, device=device)
        self.rate = torch.full((models,), training.learning_rate, device=device)

    def step(self, step: int, losses: Tensor, gradients: Sequence[Tensor]) -> bool:
        """Whether all models have stopped."""
        training, best = self.training, self.best_loss
        improved = losses < best - 1e-7 * best.abs().clamp(1e-6, 1e6)
        self.best_loss = torch.where(improved, losses, best)
        self.stale = torch.where(improved, torch.zeros_like(self.stale), self.stale + 1)
        drop = (self.stale > 0) & (self.stale % training.decay_after == 0)
        rate = torch.where(drop, self.rate * training.decay, self.rate)
        for name, value in self.current.items():
            self.result[name] = _choose(improved, value, self.result[name])
        stopped = self.stale >= training.patience
        self.rate = torch.where(stopped, torch.zeros_like(rate), rate)
        if step % 10 == 9 and bool(stopped.all()):
            return True
        own = dict(zip(self.current, gradients, strict=True))
        _adam(self.current, own, self.first, self.second, step, self.rate, training.weight_decay)
        return False


class FusedAdam:
    """Adam with decoupled weight decay, in place on `values`: torch's fused kernel.

    The values must be contiguous; see `contiguous`.
    """

    def __init__(self, values: list[Tensor], weight_decay: float) -> None:
        self.values, self.weight_decay = values, weight_decay
        with torch.no_grad():
            self.first = [torch.zeros_like(value) for value in values]
            self.second = [torch.zeros_like(value) for value in values]
        self.counts = [torch.zeros((), device=value.device) for value in values]

    @property
    def state(self) -> list[Tensor]:
        return [*self.first, *self.second, *self.counts]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float | Tensor) -> None:
        adamw(
            self.values,
            # torch's kernel for CPUs takes the memory of any other layout for this one
            [gradient.contiguous() for gradient in gradients],
            self.first,
            self.second,
            [],
            self.counts,
            foreach=False,
            capturable=isinstance(rate, Tensor),
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )


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
