"""Trains many independent models at once by Adam, every step one batched call.

With `plateau` each model has a learning rate and an early stop of its own, as if it were trained
alone, which library optimisers do not offer for a stack; `onecycle` has one rate for all and uses
torch's fused kernel, much faster than the same arithmetic tensor by tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from cg4ai import clock
from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters

Schedule = Literal["plateau", "onecycle"]
SMALL_GRADIENT = 1e-5  # far above Adam's own 1e-8; losses of smaller ones get another unit
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
    keeps the last parameters: for fresh samples, where single losses are noise. Several weight
    decays take turns over the models that are trained at once.
    """

    steps: int = 1000
    learning_rate: float = 1e-2
    schedule: Schedule = "plateau"
    patience: int = 50
    decay: float = 0.9
    decay_after: int = 10
    weight_decay: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        for name, low in (("steps", 0), ("patience", 1), ("decay_after", 1)):
            if not getattr(self, name) >= low:
                raise InvalidInput(
                    f"{name} must be at least {low}, got {getattr(self, name)}", code="range"
                )
        if not self.weight_decays or not all(decay >= 0 for decay in self.weight_decays):
            raise InvalidInput(
                f"weight_decay must be one or more numbers >= 0, got {self.weight_decay}",
                code="range",
            )
        if not 0 < self.learning_rate < math.inf or not 0 < self.decay <= 1:
            raise InvalidInput(
                "learning_rate must be positive and decay lie in (0, 1], got "
                f"{self.learning_rate} and {self.decay}",
                code="range",
            )
        if self.schedule not in get_args(Schedule):
            raise InvalidInput(
                f"schedule must be one of {', '.join(get_args(Schedule))}, got {self.schedule!r}",
                code="unknown-name",
            )

    @property
    def weight_decays(self) -> tuple[float, ...]:
        decay = self.weight_decay
        return decay if isinstance(decay, tuple) else (decay,)

    def decay_of_models(self, models: int, device: torch.device) -> Tensor:
        """(models,) weight decays: several take turns."""
        decays = self.weight_decays
        return torch.tensor([decays[n % len(decays)] for n in range(models)], device=device)


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

    `until` is a moment of `clock.now` at which training ends, whatever steps are left.
    """
    rule = (_Plateau if training.schedule == "plateau" else _OneCycle)(
        make_contiguous(parameters), training, models
    )
    values = list(rule.current.values())
    unit = 1.0
    told = step_listener.get()
    for step in range(training.steps):
        if told is not None:
            told(step, training.steps)
        if pause is not None:
            pause(rule.current, step)
        for value in values:
            value.requires_grad_(True)
        losses = loss_of(rule.current, step)
        gradients = torch.autograd.grad(losses.sum(), values)
        for value in values:
            value.requires_grad_(False)
        if step == 0:
            unit = find_unit(gradients)
        if unit != 1:
            losses, gradients = losses * unit, tuple(one * unit for one in gradients)
        if rule.step(step, losses.detach(), gradients) or clock.now() >= until:
            break
    return rule.result


def find_unit(gradients: Sequence[Tensor]) -> float:
    """A power of two that brings small gradients to a size near 1, so that Adam sees no unit.

    The loss of targets in thousandths of a unit would otherwise vanish beside Adam's epsilon.
    """
    largest = max((float(one.abs().max()) for one in gradients if one.numel()), default=0.0)
    return 2.0 ** -math.floor(math.log2(largest)) if 0 < largest < SMALL_GRADIENT else 1.0


def make_contiguous(parameters: Parameters) -> Parameters:
    """Copies in order in memory, which the fused kernel takes for granted of all it is given."""
    return {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in parameters.items()
    }


class _OneCycle:
    """One learning rate for all models, which warms up and anneals; keeps the last parameters."""

    def __init__(self, current: Parameters, training: Training, models: int) -> None:
        self.current = self.result = current
        self.training = training
        self.adam = FusedAdam(list(current.values()), training, models)

    def step(self, step: int, losses: Tensor, gradients: Sequence[Tensor]) -> bool:
        self.adam.step(gradients, compute_onecycle_rate(step, self.training))
        return False


class _Plateau:
    """A learning rate and a stop for each model; keeps each model's best parameters.

    All parameters lie in one vector, of which `current` holds views: a small stack spends its time
    on the number of calls, and so there is one per operation instead of one per tensor.
    """

    def __init__(self, current: Parameters, training: Training, models: int) -> None:
        self.training = training
        self.shapes = {name: value.shape for name, value in current.items()}
        self.vector = torch.cat([value.flatten() for value in current.values()])
        self.current = self._named(self.vector)
        self.best = self.vector.clone()
        self.first = torch.zeros_like(self.vector)
        self.second = torch.zeros_like(self.vector)
        device = self.vector.device
        numbers = torch.arange(models, device=device)
        self.owner = torch.cat(  # the model that each parameter belongs to
            [numbers.repeat_interleave(value.numel() // models) for value in current.values()]
        )
        self.best_loss = torch.full((models,), math.inf, device=device)
        self.stale = torch.zeros(models, device=device)
        self.rate = torch.full((models,), training.learning_rate, device=device)
        self.decay = training.decay_of_models(models, device)[self.owner]

    def _named(self, vector: Tensor) -> Parameters:
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        return {
            name: part.view(shape).detach()
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    @property
    def result(self) -> Parameters:
        return self._named(self.best)

    def step(self, step: int, losses: Tensor, gradients: Sequence[Tensor]) -> bool:
        """Whether all models have stopped."""
        training, best = self.training, self.best_loss
        improved = losses < best - 1e-7 * best.abs().clamp(1e-6, 1e6)
        self.best_loss = torch.where(improved, losses, best)
        self.stale = (self.stale + 1) * ~improved
        drop = (self.stale > 0) & (self.stale % training.decay_after == 0)
        rate = torch.where(drop, self.rate * training.decay, self.rate)
        self.best = torch.where(improved[self.owner], self.vector, self.best)
        stopped = self.stale >= training.patience
        self.rate = rate * ~stopped
        if step % 10 == 9 and bool(stopped.all()):
            return True
        self._adam(torch.cat([gradient.flatten() for gradient in gradients]), step)
        return False

    def _adam(self, gradient: Tensor, step: int) -> None:
        """One Adam step in place, with the learning rate of each model."""
        rate = self.rate[self.owner].to(gradient.dtype)
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        if any(self.training.weight_decays):
            self.vector.addcmul_(self.vector, rate * self.decay, value=-1)
        size = (self.second / (1 - 0.999 ** (step + 1))).sqrt_().add_(1e-8)
        self.vector.addcdiv_(rate.mul_(self.first), size, value=-1 / (1 - 0.9 ** (step + 1)))


class FusedAdam:
    """Adam with decoupled weight decay, in place on `values`: torch's fused kernel.

    The values must be contiguous; see `make_contiguous`.
    """

    def __init__(self, values: list[Tensor], training: Training, models: int) -> None:
        self.values = values
        decays = training.weight_decays
        self.weight_decay = decays[0] if len(decays) == 1 else 0.0  # the kernel's: one for all
        self.own_decay: list[Tensor] = []  # for each value, where models differ
        if len(decays) > 1:
            decay = training.decay_of_models(models, values[0].device)
            self.own_decay = [_along(value, decay) for value in values]
        with torch.no_grad():
            self.first = [torch.zeros_like(value) for value in values]
            self.second = [torch.zeros_like(value) for value in values]
        self.counts = [torch.zeros((), device=value.device) for value in values]

    @property
    def state(self) -> list[Tensor]:
        return [*self.first, *self.second, *self.counts]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float | Tensor) -> None:
        for value, decay in zip(self.values, self.own_decay, strict=False):
            value.mul_(1 - rate * decay)
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


def _along(value: Tensor, of_models: Tensor) -> Tensor:
    """One number per model (models,), shaped to multiply a value (models x members, ...)."""
    repeated = of_models.repeat_interleave(len(value) // len(of_models)).to(value.dtype)
    return repeated.reshape(-1, *[1] * (value.ndim - 1))


def compute_onecycle_rate(step: int, training: Training) -> float:
    """The learning rate of a step: up over the first tenth, then down to zero along a cosine."""
    warm = max(1, training.steps // 10)
    if step < warm:
        return training.learning_rate * (step + 1) / warm
    share = (step - warm) / max(1, training.steps - warm)
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * share))
