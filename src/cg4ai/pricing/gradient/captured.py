"""Training on CUDA as a replayed graph: one step is recorded once and launched as a whole.

A step of a small stack is a hundred tiny kernels, and launching them one by one from Python takes
many times longer than running them. Recording needs fixed shapes and addresses, so data for many
steps are laid out beforehand, and a step takes its own by a counter that lives on the device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from cg4ai.pricing.gradient.training import FusedAdam, Pause, Training, contiguous, onecycle
from cg4ai.protocols import Parameters

WARM_UP = 1  # steps run before recording, so that libraries have set themselves up


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
    models: int,
    segment: int,
    pause: Pause | None = None,
    until: float = math.inf,
) -> Parameters:
    """Adam with a one-cycle rate, as `train` does it; data are laid out every `segment` steps."""
    current = contiguous(parameters)
    step = _Step(current, laid_out.loss, training, models)
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
        if until < math.inf:
            torch.cuda.synchronize()  # the clock is to tell of steps that were taken
            if time.perf_counter() >= until:
                break
    return {name: value.detach() for name, value in current.items()}


class _Step:
    """One Adam step on tensors that stay where they are."""

    def __init__(
        self,
        current: Parameters,
        loss: Callable[[Parameters, Tensor], Tensor],
        training: Training,
        models: int,
    ) -> None:
        self.current, self.loss = current, loss
        device = next(iter(current.values())).device
        self.values = [value.requires_grad_(True) for value in current.values()]
        self.adam = FusedAdam(self.values, training, models)
        numbers = range(training.steps + WARM_UP)
        self.rates = torch.tensor([onecycle(n, training) for n in numbers], device=device)
        self.rate = torch.zeros((), device=device)
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.within = torch.zeros(1, dtype=torch.int64, device=device)

    def __call__(self) -> None:
        losses = self.loss(self.current, self.within)
        gradients = torch.autograd.grad(losses.sum(), self.values)
        self.rate.copy_(self.rates.index_select(0, self.number).squeeze(0))
        self.adam.step(gradients, self.rate)
        self.number += 1
        self.within += 1

    def recorded(self) -> torch.cuda.CUDAGraph:
        """A graph of this step; warming up leaves no trace in the parameters.

        Recorded without the context manager of torch, which empties the cache of device memory
        each time, so that all would be allocated anew.
        """
        state = [*self.values, *self.adam.state, self.number, self.within]
        saved = [tensor.detach().clone() for tensor in state]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.within.zero_()
                self()
            torch.cuda.synchronize()
            graph.capture_begin()
            self()
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.no_grad():
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)
        return graph
