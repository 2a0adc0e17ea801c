"""Training on CUDA as a replayed graph: one step is recorded once and launched as a whole.

A step of a small stack is a hundred tiny kernels, and launching them one by one from Python takes
many times longer than running them. Recording needs fixed shapes and addresses, so data for many
steps are laid out beforehand, and a step takes its own by a counter that lives on the device.
"""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cg4ai import clock
from cg4ai.colgen.pricing.gradient import losses
from cg4ai.colgen.pricing.gradient.losses import ATTACK_ROWS, WINDOW, Trainer
from cg4ai.colgen.pricing.gradient.rows import SimpleRows, join_rows
from cg4ai.colgen.pricing.gradient.training import (
    FusedAdam,
    Pause,
    Training,
    compute_onecycle_rate,
    find_unit,
    make_contiguous,
)
from cg4ai.errors import Cg4aiError
from cg4ai.objectives import Batch, draws_on_any_device
from cg4ai.parallel import use_own_stream
from cg4ai.protocols import Parameters
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import LinearRows

RECORDING = threading.Lock()
WARM_UP = 1  # steps run before recording, so that libraries have set themselves up
PARTS = ("inputs", "targets", "weights")  # of a batch
NOW = "now"  # the mixture's outputs at its inputs
ROW_PARTS = ("row_inputs", "row_coefficients", "row_needed", "row_weights")


class NotRecorded(Cg4aiError, RuntimeError):
    """A step does what no graph can hold; the parameters are as they were before."""


def build_segmented_training(
    trainer: Trainer, segment: int, steps: int
) -> SegmentedTraining | None:
    """The guided loss with fixed shapes, where its parts allow that."""
    every = [*trainer.rows, *trainer.memory]
    linear = all(isinstance(rows, SimpleRows) for rows in every)
    if (
        not linear
        or trainer.draws is not None
        or not _attacks_find_simple_rows(trainer)
        or trainer.pricer.batch_size is None
        or not trainer.needs_objective
        or (trainer.blends and trainer.sampled is None)
    ):
        return None
    attacks = 1 + steps // segment if trainer.pricer.attack_every else 0
    found = attacks * ATTACK_ROWS * max(1, len(trainer.request.requirements))
    if trainer.pools:  # what attacks find goes there
        found = sum(len(pool) for pool in trainer.pools.values())
    else:
        found *= trainer.pricer.restarts
    known = sum(len(rows.needed) for rows in every)
    return SegmentedTraining(trainer, segment, known + found)


def _attacks_find_simple_rows(trainer: Trainer) -> bool:
    """Whether all that attacks can find while training is linear rows of one input each."""
    if not trainer.pricer.attack_every:
        return True
    one, first = trainer.objective.inputs[:1], np.zeros(1, np.int64)
    attacked = [r for r in trainer.request.requirements if isinstance(r.region, Region)]
    found = [requirement.rows_at(one, first, 0) for requirement in attacked]
    return all(isinstance(rows, LinearRows) and rows.index is not None for rows in found)


class SegmentedTraining:
    """The guided loss of a trainer on buffers that keep their shapes and addresses.

    `lay_out` puts the data of the next steps in place, `segment` of them at most.

    All remembered rows take part in every step, with the weight that the windows of
    `compute_guided_loss` give them on average; places not in use have weight zero.
    """

    def __init__(self, trainer: Trainer, segment: int, capacity: int) -> None:
        self.trainer, self.segment = trainer, segment
        self.capacity = max(1, capacity)
        self.buffers: dict[str, Tensor] = {}
        self.on_device: torch.Generator | None = None
        if draws_on_any_device(trainer.objective.sampler):
            seed = int(torch.randint(2**62, (1,), generator=trainer.made))
            self.on_device = torch.Generator(trainer.request.device).manual_seed(seed)

    def lay_out(self, steps: int) -> None:
        for name, values in self._batches(steps).items():
            self._place(name, values, self.segment)
        for name, values in self._rows().items():
            self._place(name, values, self.capacity)

    def _batches(self, steps: int) -> dict[str, Tensor]:
        """The batch of each step, stacked; where the sampler allows it, drawn at once."""
        trainer, size = self.trainer, self.trainer.pricer.batch_size
        assert size is not None
        if trainer.sampled is not None:
            return trainer.sampled.lay_out(steps, self.on_device or trainer.made)
        if self.on_device is None:
            drawn = [trainer.batch(size)[0] for _ in range(steps)]
            return {
                name: torch.stack([getattr(batch, name) for batch in drawn])
                for name in PARTS
                if getattr(drawn[0], name) is not None
            }
        place, dtype = trainer.request.device, losses.TRAINED_IN
        batch = trainer.objective.batch(steps * size, self.on_device, device=place, dtype=dtype)
        order = torch.randperm(steps * size, generator=self.on_device, device=place)
        return {"inputs": batch.inputs[order].reshape(steps, size, -1)}

    def _place(self, name: str, values: Tensor, length: int) -> None:
        if name not in self.buffers:
            self.buffers[name] = values.new_zeros(length, *values.shape[1:])
        buffer = self.buffers[name]
        buffer[: len(values)] = values
        buffer[len(values) :] = 0

    def _rows(self) -> dict[str, Tensor]:
        trainer = self.trainer
        share = min(1.0, 3.0 * WINDOW / max(1, len(trainer.memory)))
        remembered = (rows.scale(share) for rows in trainer.memory)
        every = join_rows([*trainer.rows, *remembered, *trainer.pooled])
        if not every:
            width = trainer.request.objective.inputs.shape[1]
            shapes = ((0, width), (0, trainer.layout.output_size), (0,), (0,))
            return {
                name: trainer.tensor(np.zeros(shape))
                for name, shape in zip(ROW_PARTS, shapes, strict=True)
            }
        (rows,) = every
        assert isinstance(rows, SimpleRows)
        parts = rows.spread()
        values = (parts.inputs, parts.coefficients, parts.needed, parts.hinge)
        return dict(zip(ROW_PARTS, values, strict=True))

    def loss(self, parameters: Parameters, step: Tensor) -> Tensor:
        """The losses (models,) of step `step` (1,) of those laid out."""
        trainer, held = self.trainer, self.buffers
        own = {name: held[name].index_select(0, step)[0] for name in PARTS if name in held}
        batch = Batch(own["inputs"], own.get("targets"), own.get("weights"))
        inputs = torch.cat([batch.inputs, held["row_inputs"]])
        outputs = trainer.joint(trainer.pricer.architecture.forward(parameters, inputs))
        own_outputs, at_rows = torch.split(
            outputs, [len(batch.inputs), len(held["row_inputs"])], dim=2
        )
        now = held[NOW].index_select(0, step)[0] if NOW in held else None
        loss = trainer.compute_objective_loss(batch, now, own_outputs)
        values = trainer.average_over_group((at_rows * held["row_coefficients"]).sum(-1))
        return loss + (held["row_needed"] - values).clamp_min(0) @ held["row_weights"]


class SegmentedLoss(Protocol):
    """The loss of a training whose data are laid out for `segment` steps at a time."""

    @property
    def segment(self) -> int: ...

    def lay_out(self, steps: int) -> None:
        """Put the data of the next steps where a recorded step looks for them."""
        ...

    def loss(self, parameters: Parameters, step: Tensor) -> Tensor:
        """The losses (models,) of step `step` (1,) of those laid out."""
        ...


def train_captured(
    parameters: Parameters,
    data: SegmentedLoss,
    training: Training,
    *,
    models: int,
    pause: Pause | None = None,
    until: float = math.inf,
) -> Parameters:
    """Adam with a one-cycle rate, as `train` does it; its data are laid out every so many steps.

    `NotRecorded` where a step cannot be recorded, such as one whose loss makes a tensor of numbers
    in Python: `train` takes it.
    """
    current = make_contiguous(parameters)
    step = _AdamStep(current, data.loss, training, models)
    graph: torch.cuda.CUDAGraph | None = None
    for start in range(0, training.steps, data.segment):
        if pause is not None:
            pause({name: value.detach() for name, value in current.items()}, start)
        count = min(data.segment, training.steps - start)
        data.lay_out(count)
        step.within.zero_()
        if graph is None:
            graph = step.record()
        for _ in range(count):
            graph.replay()
        if until < math.inf:
            # the clock is to tell of steps that were taken; other streams are others' business
            torch.cuda.current_stream().synchronize()
            if clock.now() >= until:
                break
    return {name: value.detach() for name, value in current.items()}


class _AdamStep:
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
        self.rates = torch.tensor(
            [compute_onecycle_rate(n, training) for n in numbers], device=device
        )
        self.rate = torch.zeros((), device=device)
        self.unit = 1.0
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.within = torch.zeros(1, dtype=torch.int64, device=device)

    def __call__(self) -> None:
        losses = self.loss(self.current, self.within)
        gradients = torch.autograd.grad(losses.sum(), self.values)
        if self.unit != 1:
            gradients = tuple(one * self.unit for one in gradients)
        self.rate.copy_(self.rates.index_select(0, self.number).squeeze(0))
        self.adam.step(gradients, self.rate)
        self.number += 1
        self.within += 1

    def record(self) -> torch.cuda.CUDAGraph:
        """A graph of this step; warming up, or failing, leaves no trace in the parameters.

        Recorded without the context manager of torch, which empties the cache of device memory
        each time, so that all would be allocated anew. What other threads do meanwhile is allowed.
        """
        state = [*self.values, *self.adam.state, self.number, self.within]
        saved = [tensor.detach().clone() for tensor in state]
        graph = torch.cuda.CUDAGraph()
        try:
            with use_own_stream(self.number.device):
                losses = self.loss(self.current, self.within)
                self.unit = find_unit(torch.autograd.grad(losses.sum(), self.values))
                for _ in range(WARM_UP):
                    self.within.zero_()
                    self()
                torch.cuda.current_stream().synchronize()
                with _uncollected():
                    self._record(graph)
        finally:
            with torch.no_grad():
                for tensor, value in zip(state, saved, strict=True):
                    tensor.copy_(value)
        return graph

    def _record(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            try:
                self()
            except BaseException:
                # a recording left open would fail all that comes after it; that it failed is known
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what torch raises for calls that no graph can hold
            first = str(error).strip().partition("\n")[0]
            raise NotRecorded(first or type(error).__name__) from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """One thread at a time, while no garbage is collected: freeing a graph would end recording."""
    with RECORDING:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()
