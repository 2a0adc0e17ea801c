"""Training on CUDA as a replayed graph: one step is recorded once and launched as a whole.

A step of a small stack is a hundred tiny kernels, and launching them one by one from Python takes
many times longer than running them. Recording needs fixed shapes and addresses, so data for many
steps are laid out beforehand, and a step takes its own by a counter that lives on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from cg4ai.pricing.training import Pause, Training, onecycle
from cg4ai.protocols import Parameters

WARM_UP = 3  # steps run before recording, as CUDA graphs ask for


class LaidOut(Protocol):
    """A loss whose data for some steps lie ready on the device, always at the same addresses."""

    def lay_out(self, steps: int) -> None:
        """Put the data of the next `steps` steps in place."""
        ...

    def loss(self, parameters: Parameters, step: Tensor) -> Tensor:
        """The losses (models,) of step `step` () of those laid out."""
        ...


def train_captured(
    parameters: Parameters,
    laid_out: LaidOut,
    training: Training,
    *,
    segment: int,
    pause: Pause | None = None,
) -> Parameters:
    """Adam with a one-cycle rate, as `train` does it; data are laid out every `segment` steps."""
    current = {name: value.detach().clone() for name, value in parameters.items()}
    device = next(iter(current.values())).device
    step = _Step(current, laid_out.loss, training, device)
    graph: torch.cuda.CUDAGraph | None = None
    for start in range(0, training.steps, segment):
        if pause is not None:
            pause({name: value.detach() for name, value in current.items()}, start)
        count = min(segment, training.steps - start)
        laid_out.lay_out(count)
        step.within.zero_()
        if graph is None:
            graph = step.recorded()
        for _ in range(count):
            graph.replay()
    return {name: value.detach() for name, value in current.items()}


class _Step:
    """One Adam step on tensors that stay where they are."""

    def __init__(
        self,
        current: Parameters,
        loss: Callable[[Parameters, Tensor], Tensor],
        training: Training,
        device: torch.device,
    ) -> None:
        self.current, self.loss, self.decay = current, loss, training.weight_decay
        for value in current.values():
            value.requires_grad_(True)
        with torch.no_grad():
            self.first = [torch.zeros_like(value) for value in current.values()]
            self.second = [torch.zeros_like(value) for value in current.values()]
        numbers = range(training.steps + WARM_UP)
        rates = torch.tensor([onecycle(n, training) for n in numbers], dtype=torch.float64)
        powers = torch.arange(1, len(rates) + 1, dtype=torch.float64)
        self.rates = rates.float().to(device)
        self.speeds = (rates / (1 - 0.9**powers)).float().to(device)
        self.widths = (1 - 0.999**powers).float().to(device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.within = torch.zeros(1, dtype=torch.int64, device=device)

    def __call__(self) -> None:
        values = list(self.current.values())
        gradients = torch.autograd.grad(self.loss(self.current, self.within).sum(), values)
        with torch.no_grad():
            speed = self.speeds.index_select(0, self.number)
            width = self.widths.index_select(0, self.number)
            torch._foreach_lerp_(self.first, gradients, 0.1)
            torch._foreach_mul_(self.second, 0.999)
            torch._foreach_addcmul_(self.second, gradients, gradients, value=0.001)
            if self.decay:
                shrink = 1 - self.decay * self.rates.index_select(0, self.number)
                torch._foreach_mul_(values, shrink.squeeze(0))
            size = torch._foreach_div(self.second, width.squeeze(0))
            torch._foreach_sqrt_(size)
            torch._foreach_add_(size, 1e-8)
            move = torch._foreach_div(self.first, size)
            torch._foreach_mul_(move, speed.squeeze(0))
            torch._foreach_sub_(values, move)
            self.number += 1
            self.within += 1

    def recorded(self) -> torch.cuda.CUDAGraph:
        """A graph of this step; warming up leaves no trace in the parameters."""
        state = [*self.current.values(), *self.first, *self.second, self.number, self.within]
        saved = [tensor.detach().clone() for tensor in state]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.within.zero_()
                self()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self()
        with torch.no_grad():
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)
        return graph
