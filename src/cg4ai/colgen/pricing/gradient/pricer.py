"""Gradient pricing: trains differentiable members by the master's prices, many in one batch.

Members are proposed freely, in two stages: first by a guided loss (the objective, plus a hinge on
the rows weighted by the guiding duals), then by the reduced cost itself. The loop admits them only
by reduced costs recomputed in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from cg4ai.colgen.pricing.defaults import ArchitecturePricer
from cg4ai.colgen.pricing.gradient import losses
from cg4ai.colgen.pricing.gradient.cuda_graphs import (
    NotRecorded,
    build_segmented_training,
    train_captured,
)
from cg4ai.colgen.pricing.gradient.losses import Trainer
from cg4ai.colgen.pricing.gradient.training import Training, train
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.protocols import Architecture, Parameters, PricerCapabilities, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.seeds import generator

RECORDED_ON = "cuda"  # where launching a step takes longer than running it
WARM_ROWS = 4096  # of the data, by whose loss members are chosen to be trained on
SEGMENT = 200  # steps whose data are laid out at a time on CUDA, where no attack comes between


@dataclass(frozen=True)
class GradientPricer(ArchitecturePricer):
    """Trains `restarts` groups of `group` members (per block) for the given duals.

    With group 1 and one block each member stands alone. A larger group is trained on the loss of
    its mean; with several blocks a group spans all of them. Groups are proposed whole.

    training: steps, learning rate, schedule.
    batch_size: None trains on all data of the objective at each step; a number draws that many
        (fresh ones, where the objective has a sampler).
    blend: share tau of the new group in the mixture (1 - tau) * current + tau * new whose loss is
        minimised, for objectives `mixture` and `epigraph`; 1 trains the group on its own loss.
    individual: weight of each member's own loss beside that of the mean.
    row_weight, headroom: weight of the hinge sum_j w_j max(0, bound_j + headroom - row_j), where
        the w_j are the guiding duals scaled to sum to one.
    finish: share of the steps that minimise the reduced cost itself (1: as in the paper). They are
        left out while there are no rows: it would be the guided loss once more.
    warm_starts: how many of the restarts begin from active members instead of at random.
    warm_by: which of those: of most "weight", or of least "loss" on the objective's data, each
        alone, for which there must be one block.
    output_limit: members whose outputs exceed this in size on the training or row inputs, or on
        `limit_inputs` (n, d), are scaled down to it (linear outputs only): without a bound, scaling
        a member would drive the reduced cost of margin rows to minus infinity.
    attack_every: during guided training, search the regions of all requirements for inputs that
        the group itself violates, every so many steps, and train on what is found: 0 never.
        Rows of the master alone show what the mixture violates, which an anchor may hide.
    refresh_every: 0, or every so many steps, of which `attack_every` must be a multiple: follow
        the inputs found as the group changes, and give each rule a multiplier by dual ascent on
        its worst violation there (see `ViolationPool`).
    tail_share: of every batch of an epigraph objective with a tail, and with a sampler, the share
        of inputs at which the group in training, blended as above, is worst: rare inputs of large
        value hardly show in a mean. They are searched for again and again, from the share
        `tail_from` of the steps on: at first every input is served badly.
    prices_tail: count in the scenarios that the tail brought into the master, with their duals.
    row_limit: at most this many rows of the master are in one training step. Of more, every step
        draws as many: row j with chance p_j = min(1, c w_j), where w_j is its weight, and it then
        weighs 1/p_j times as much, so that the mean over draws is the hinge over all rows and the
        heaviest are in every step (see `RowDraws`). Only those of largest weight are trained on
        where losses must not be noise (schedule "plateau"), or where with attacks the others are
        remembered like inputs found.
    """

    architecture: Architecture
    restarts: int = 4
    group: int = 1
    training: Training = field(default_factory=Training)
    batch_size: int | None = None
    blend: float = 0.5
    individual: float = 0.0
    row_weight: float = 2.0
    headroom: float = 0.05
    finish: float = 0.5
    warm_starts: int = 0
    warm_by: Literal["weight", "loss"] = "weight"
    output_limit: float | None = None
    limit_inputs: Array | None = None
    attack_every: int = 0
    refresh_every: int = 0
    tail_share: float = 0.0
    tail_from: float = 0.0
    prices_tail: bool = False
    row_limit: int = 4096

    def __post_init__(self) -> None:
        for name, low in (("restarts", 1), ("group", 1), ("warm_starts", 0), ("row_limit", 1)):
            if getattr(self, name) < low:
                raise InvalidInput(
                    f"{name} must be at least {low}, got {getattr(self, name)}", code="range"
                )
        for name in ("blend", "finish", "tail_share", "tail_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(
                    f"{name} must lie in [0, 1], got {getattr(self, name)}", code="range"
                )
        if self.blend == 0:
            raise InvalidInput(
                "blend must be positive: with 0 the new members have no effect", code="range"
            )
        if self.warm_starts > self.restarts:
            raise InvalidInput(
                f"warm_starts must be at most restarts, got {self.warm_starts} of {self.restarts}",
                code="range",
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise InvalidInput(
                f"batch_size must be None or at least 1, got {self.batch_size}", code="range"
            )
        if self.output_limit is not None:
            self._check_output_limit(self.output_limit)
        if self.attack_every < 0 or (self.attack_every and self.training.schedule == "plateau"):
            raise InvalidInput(
                "attack_every must be 0 or more, and needs training with schedule='onecycle': a "
                "plateau schedule would keep parameters from before an attack, whose loss does not "
                "include the violations found",
                code="conflict",
            )

        searched = self.attack_every > 0 and self.attack_every % max(1, self.refresh_every) == 0
        if self.refresh_every < 0 or (self.refresh_every and not searched):
            raise InvalidInput(
                "refresh_every must be 0, or divide attack_every, got "
                f"{self.refresh_every} and {self.attack_every}",
                code="conflict",
            )

    @property
    def capabilities(self) -> PricerCapabilities:
        return PricerCapabilities(fits_data=True)

    @property
    def draws_rows(self) -> bool:
        """Whether rows beyond `row_limit` are drawn, instead of left out or remembered."""
        return self.training.schedule == "onecycle" and not self.attack_every

    def for_estimate(self, probe: Probe) -> GradientPricer:
        """Trains on the reduced cost itself, each member alone; half go on from active ones."""
        steps = probe.steps(self.training.steps, models=self.restarts * self.group)
        return replace(
            self,
            restarts=probe.restarts,
            group=1,
            training=replace(self.training, steps=steps),
            individual=0.0,
            finish=1.0,
            warm_starts=(probe.restarts + 1) // 2,
            warm_by="weight",
            attack_every=0,
            refresh_every=0,
            tail_share=0.0,
        )

    def for_single_models(self, pressure: float) -> GradientPricer:
        """Trains on each member's own loss and the hinge on the rows, one on from the best."""
        return replace(
            self,
            group=1,
            blend=1.0,
            individual=0.0,
            finish=0.0,
            warm_starts=1,
            row_weight=self.row_weight * pressure,
        )

    def _check_output_limit(self, limit: float) -> None:
        if not limit > 0:
            raise InvalidInput(f"output_limit must be positive, got {limit}", code="range")
        started = self.architecture.initialise(1, generator(0))
        self.architecture.scale_outputs(started, torch.ones(1))  # or it says why not

    def price(self, request: PricingRequest) -> PricingResult:
        made = generator(request.seed)
        layout = request.rows.layout
        trainer = Trainer(self, request, made)
        parameters = self._initial(request, layout, made)
        guided = round((1 - self.finish) * self.training.steps)
        if guided:
            stage = replace(self.training, steps=guided)
            parameters = self._guided(trainer, parameters, stage)
        if guided < self.training.steps and (len(request.rows) or not guided):
            stage = replace(self.training, steps=self.training.steps - guided)
            parameters = train(
                parameters,
                trainer.compute_reduced_cost,
                stage,
                models=self.restarts,
                until=request.until,
            )
        if self.output_limit is not None:
            parameters = trainer.limit_outputs(parameters, self.output_limit)
        per_group = self.group * len(layout)
        sound = _finite(parameters, self.restarts)
        lost = self.restarts - len(sound)
        diverged = f"{lost} of {self.restarts} trainings diverged" if lost else ""
        note = "; ".join(filter(None, (diverged, trainer.note)))
        if not len(sound):
            return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64), note=note)
        kept = torch.as_tensor((sound[:, None] * per_group + np.arange(per_group)).ravel())
        members = self.architecture.members({n: value[kept] for n, value in parameters.items()})
        blocks = np.tile(np.arange(len(layout)), len(sound) * self.group)
        groups = np.repeat(np.arange(len(sound)), per_group)
        if per_group == 1:
            groups = np.full(len(sound), -1)
        return PricingResult(members, blocks, groups, note=note, rows=tuple(trainer.found))

    def _guided(self, trainer: Trainer, parameters: Parameters, stage: Training) -> Parameters:
        pause = trainer.search if self.attack_every or self.tail_share else None
        until = trainer.request.until
        recorded = torch.device(trainer.request.device).type == RECORDED_ON
        if recorded and stage.schedule == "onecycle":
            data = build_segmented_training(
                trainer, self.refresh_every or self.attack_every or SEGMENT, stage.steps
            )
            if data is not None:
                try:
                    return train_captured(
                        parameters,
                        data,
                        stage,
                        models=self.restarts,
                        pause=pause,
                        until=until,
                    )
                except NotRecorded as error:
                    trainer.note = (
                        "steps were launched one by one, which takes longer: CUDA cannot record "
                        f"the loss as a graph ({error}); make its tensors once, outside of it"
                    )
                    warnings.warn(trainer.note, FitWarning, stacklevel=2)
                    parameters = {name: value.detach() for name, value in parameters.items()}
        return train(
            parameters,
            trainer.compute_guided_loss,
            stage,
            models=self.restarts,
            pause=pause,
            until=until,
        )

    def _initial(
        self, request: PricingRequest, layout: Layout, made: torch.Generator
    ) -> Parameters:
        """Random parameters in the order (restart, member of group, block), some warm-started."""
        count = self.restarts * self.group * len(layout)
        fresh = self.architecture.initialise(count, made)
        parameters = {
            name: value.to(device=request.device, dtype=losses.TRAINED_IN)
            for name, value in fresh.items()
        }
        if self.warm_starts and request.ensemble is not None:
            for part in request.ensemble.parts:
                known = self.architecture.parameters(part.members)
                if known is not None:
                    rank = self._rank(part, request, made)
                    _copy_active(parameters, known, part.blocks, rank, self, len(layout))
        return parameters

    def _rank(self, part: Part, request: PricingRequest, made: torch.Generator) -> Array:
        """(k,) numbers by which active members are trained on, the largest first."""
        if self.warm_by == "weight":
            return part.weights
        objective = request.objective
        batch = objective.batch(WARM_ROWS, made, device=request.device, dtype=torch.float64)
        with torch.no_grad():
            losses = objective.value(batch, part.members.outputs(batch.inputs))
        rank = np.empty(len(part.weights))
        rank[np.argsort(losses.cpu().numpy(), kind="stable")] = np.arange(len(rank), 0, -1)
        return rank


def _finite(parameters: Parameters, restarts: int) -> IntArray:
    """The restarts whose training did not diverge."""
    sound = np.ones(restarts, bool)
    for value in parameters.values():
        sound &= value.isfinite().reshape(restarts, -1).all(1).cpu().numpy()
    return np.flatnonzero(sound)


def _copy_active(
    parameters: Parameters,
    known: Parameters,
    blocks: IntArray,
    rank: Array,
    pricer: GradientPricer,
    n_blocks: int,
) -> None:
    """Overwrite the first restarts with the active members of highest rank, in turn."""
    places = pricer.warm_starts * pricer.group
    for number in range(n_blocks):
        mine = np.flatnonzero((blocks == number) & (rank > 0))
        if not len(mine):
            continue
        order = mine[np.argsort(-rank[mine], kind="stable")]
        source = order[np.arange(places) % len(order)]
        if len(order) < places:  # copies of one member would stay copies: keep the rest random
            source = order
        target = np.arange(len(source)) * n_blocks + number
        for name, value in parameters.items():
            chosen = known[name][torch.as_tensor(source)]
            value[torch.as_tensor(target)] = chosen.to(dtype=value.dtype, device=value.device)
