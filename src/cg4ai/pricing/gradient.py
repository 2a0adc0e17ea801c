"""Gradient pricing: trains differentiable members by the master's prices, many in one batch.

Members are proposed freely, in two stages: first by a guided loss (the objective, plus a hinge on
the rows weighted by the guiding duals), then by the reduced cost itself. The loop admits them only
by reduced costs recomputed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from cg4ai.ensemble import Ensemble, Part
from cg4ai.errors import InvalidInput
from cg4ai.objectives import Batch, Objective
from cg4ai.pricing.row_choice import Weighted, weighted_rows
from cg4ai.pricing.training import Training, train
from cg4ai.protocols import Architecture, Parameters, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.regions import Ball, Box
from cg4ai.requirements import Requirement
from cg4ai.rows import Layout, Rows
from cg4ai.seeds import derived_seed, generator
from cg4ai.separation import default_separator


@dataclass(frozen=True)
class GradientPricer:
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
    finish: share of the steps that minimise the reduced cost itself (1: as in the paper).
    warm_starts: how many of the restarts begin from active members instead of at random.
    output_limit: members whose outputs exceed this in size on the training or row inputs are
        scaled down to it (linear outputs only): without a bound, scaling a member would drive the
        reduced cost of margin rows to minus infinity.
    attack_every: during guided training, search the regions of all requirements for inputs that
        the group itself violates, every so many steps, and train on what is found: 0 never.
        Rows of the master alone show what the mixture violates, which an anchor may hide.
    attack_weight: of the hinge at each input found that way.
    row_limit: at most this many rows, those of largest weight, are trained on.
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
    output_limit: float | None = None
    attack_every: int = 0
    attack_weight: float = 0.2
    row_limit: int = 4096
    dtype: torch.dtype = torch.float32

    exact = False

    def __post_init__(self) -> None:
        for name, low in (("restarts", 1), ("group", 1), ("warm_starts", 0), ("row_limit", 1)):
            if getattr(self, name) < low:
                raise InvalidInput(f"{name} must be at least {low}, got {getattr(self, name)}")
        for name in ("blend", "finish"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.blend == 0:
            raise InvalidInput("blend must be positive: with 0 the new members have no effect")
        if self.warm_starts > self.restarts:
            raise InvalidInput(
                f"warm_starts must be at most restarts, got {self.warm_starts} of {self.restarts}"
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise InvalidInput(f"batch_size must be None or at least 1, got {self.batch_size}")
        if self.output_limit is not None:
            self._check_output_limit(self.output_limit)
        if self.attack_every < 0 or (self.attack_every and self.training.schedule == "plateau"):
            raise InvalidInput(
                "attack_every must be 0 or more, and needs training with schedule='onecycle': "
                "a plateau rule would keep parameters from before an attack, whose loss was lower "
                "only because the violations were not known"
            )

    def _check_output_limit(self, limit: float) -> None:
        if not limit > 0:
            raise InvalidInput(f"output_limit must be positive, got {limit}")
        scale = _output_scaling(self.architecture)
        scale(self.architecture.initialise(1, generator(0)), torch.ones(1))  # or it says why not

    def price(self, request: PricingRequest) -> PricingResult:
        made = generator(request.seed)
        layout = request.rows.layout
        trainer = _Trainer(self, request, layout, made)
        parameters = self._initial(request, layout, made)
        guided = round((1 - self.finish) * self.training.steps)
        if guided:
            stage = replace(self.training, steps=guided)
            parameters = train(
                parameters,
                trainer.guided_loss,
                stage,
                models=self.restarts,
                pause=trainer.attack if self.attack_every else None,
            )
        if guided < self.training.steps:
            stage = replace(self.training, steps=self.training.steps - guided)
            parameters = train(parameters, trainer.reduced_cost, stage, models=self.restarts)
        if self.output_limit is not None:
            parameters = trainer.limited(parameters, self.output_limit)
        per_group = self.group * len(layout)
        sound = _finite(parameters, self.restarts)
        if not len(sound):
            return PricingResult(
                None, np.empty(0, np.int64), np.empty(0, np.int64), note="training diverged"
            )
        kept = torch.as_tensor((sound[:, None] * per_group + np.arange(per_group)).ravel())
        members = self.architecture.members({n: value[kept] for n, value in parameters.items()})
        blocks = np.tile(np.arange(len(layout)), len(sound) * self.group)
        groups = np.repeat(np.arange(len(sound)), per_group)
        if per_group == 1:
            groups = np.full(len(sound), -1)
        return PricingResult(members, blocks, groups, rows=tuple(trainer.found))

    def _initial(
        self, request: PricingRequest, layout: Layout, made: torch.Generator
    ) -> Parameters:
        """Random parameters in the order (restart, member of group, block), some warm-started."""
        count = self.restarts * self.group * len(layout)
        fresh = self.architecture.initialise(count, made)
        parameters = {
            name: value.to(device=request.device, dtype=self.dtype) for name, value in fresh.items()
        }
        if self.warm_starts and request.ensemble is not None:
            for part in request.ensemble.parts:
                known = self.architecture.parameters(part.members)
                if known is not None:
                    _copy_active(parameters, known, part.blocks, part.weights, self, len(layout))
        return parameters


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
    weights: Array,
    pricer: GradientPricer,
    n_blocks: int,
) -> None:
    """Overwrite the first restarts with the active members of most weight, in turn."""
    places = pricer.warm_starts * pricer.group
    for number in range(n_blocks):
        mine = np.flatnonzero((blocks == number) & (weights > 0))
        if not len(mine):
            continue
        order = mine[np.argsort(-weights[mine], kind="stable")]
        source = order[np.arange(places) % len(order)]
        if len(order) < places:  # copies of one member would stay copies: keep the rest random
            source = order
        target = np.arange(len(source)) * n_blocks + number
        for name, value in parameters.items():
            chosen = known[name][torch.as_tensor(source)]
            value[torch.as_tensor(target)] = chosen.to(dtype=value.dtype, device=value.device)


MEMORY = 64  # batches of rows remembered in one pricing call
WINDOW = 6  # of which so many are trained on at each step


class _Trainer:
    """Everything of one pricing call that the losses need, on the right device."""

    def __init__(
        self,
        pricer: GradientPricer,
        request: PricingRequest,
        layout: Layout,
        made: torch.Generator,
    ) -> None:
        self.pricer, self.request, self.made = pricer, request, made
        self.objective: Objective = request.objective
        self.layout = layout
        self.shape = (pricer.restarts, pricer.group, len(layout))
        place = np.empty((2, layout.output_size), np.int64)
        for number, positions in enumerate(layout.blocks):
            place[0, positions], place[1, positions] = number, np.arange(len(positions))
        # equal blocks one after the other need no look-up, whose gradient is slow
        self.regular = np.array_equal(np.concatenate(layout.blocks), np.arange(place.shape[1]))
        self.block_of = torch.as_tensor(place[0], device=request.device)
        self.place_in = torch.as_tensor(place[1], device=request.device)
        self.rows, rest = weighted_rows(
            request, limit=pricer.row_limit, hinge_only=pricer.finish == 0
        )
        self.core_inputs = self._side_by_side(self.rows)
        self.found: list[Rows] = []
        self.memory: list[Weighted] = []
        if pricer.attack_every:
            for rows in rest:
                self._remember(rows)
        self.fixed = self._batch(None) if pricer.batch_size is None else None
        self.needs_objective = request.loss_weight > 0

    def _side_by_side(self, chunks: Sequence[Weighted]) -> Tensor:
        """The inputs of several batches of rows, for one forward pass."""
        width = self.request.objective.inputs.shape[1]
        inputs = [self._tensor(rows.inputs) for rows, _, _ in chunks]
        return torch.cat(inputs) if inputs else self._tensor(np.zeros((0, width)))

    def _remember(self, rows: Rows) -> None:
        hinge = np.full(len(rows), self.pricer.attack_weight / self.pricer.row_weight)
        self.memory = [*self.memory, (rows, hinge, np.zeros(len(rows)))][-MEMORY:]

    def _window(self, step: int) -> list[Weighted]:
        """A few batches of remembered rows, others at every step; rarer ones weigh more."""
        count = len(self.memory)
        if count <= WINDOW:
            return self.memory
        scale = min(count / WINDOW, 3.0)
        chosen = (self.memory[(step * WINDOW + k) % count] for k in range(WINDOW))
        return [(rows, weights * scale, guide) for rows, weights, guide in chosen]

    def attack(self, parameters: Parameters, step: int) -> None:
        """Now and then, look for inputs of the regions that each group violates, and keep them."""
        pricer = self.pricer
        if step % pricer.attack_every or (step == 0 and not pricer.warm_starts):
            return
        count = pricer.group * len(self.layout)
        blocks = np.tile(np.arange(len(self.layout)), pricer.group)
        weights = np.full(count, 1.0 / pricer.group)
        for restart in range(pricer.restarts):
            own = {
                name: value[restart * count : (restart + 1) * count]
                for name, value in parameters.items()
            }
            part = Part(pricer.architecture.members(own), blocks, weights)
            group = Ensemble((part,), self.layout, device=self.request.device)
            for number, requirement in enumerate(self.request.requirements):
                if isinstance(requirement.region, Box | Ball):
                    self._keep_violated(group, requirement, number, step)

    def _keep_violated(
        self, group: Ensemble, requirement: Requirement, number: int, step: int
    ) -> None:
        separator = default_separator(requirement, group.differentiable)
        result = separator.find(
            group,
            requirement,
            seed=derived_seed(self.request.seed, step, f"attack {number}"),
            limit=64,
            tolerance=-self.pricer.headroom / 2,
        )
        if result.rows is not None:
            rows = replace(result.rows, requirement=number)
            self.found.append(rows)
            self._remember(rows)

    def _tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, dtype=self.pricer.dtype, device=self.request.device)

    def _batch(self, size: int | None) -> tuple[Batch, Tensor | None]:
        """Training inputs, and the current mixture's outputs there if it is blended in."""
        pricer, request = self.pricer, self.request
        batch = self.objective.batch(size, self.made, device=request.device, dtype=pricer.dtype)
        if request.ensemble is None or pricer.blend == 1 or self.objective.kind == "average":
            return batch, None
        with torch.no_grad():
            now = request.ensemble.outputs(batch.inputs.to(torch.float64)).to(pricer.dtype)
        return batch, now

    def _joint(self, raw: Tensor) -> Tensor:
        """(restarts * group * blocks, n, k) -> (restarts, group, n, r)."""
        if self.layout.in_order:
            shaped = raw.reshape(*self.shape[:2], *raw.shape[1:])
            return shaped[..., : self.layout.output_size]
        shaped = raw.reshape(*self.shape, *raw.shape[1:]).transpose(2, 3)
        if self.regular and raw.shape[-1] * len(self.layout) == self.layout.output_size:
            return shaped.flatten(-2)
        return shaped[..., self.block_of, self.place_in]

    def _evaluate(
        self, parameters: Parameters, window: Sequence[Weighted], *, objective: bool
    ) -> tuple[Tensor, Tensor]:
        """The objective's part of the loss (restarts,); outputs at rows (restarts, group, k, r)."""
        inputs = torch.cat([self.core_inputs, self._side_by_side(window)])
        if not objective:
            outputs = self._joint(self.pricer.architecture.forward(parameters, inputs))
            return outputs.new_zeros(self.pricer.restarts), outputs
        batch, now = self.fixed if self.fixed is not None else self._batch(self.pricer.batch_size)
        inputs = torch.cat([batch.inputs, inputs])
        outputs = self._joint(self.pricer.architecture.forward(parameters, inputs))
        split = len(batch.inputs)
        return self._objective_loss(batch, now, outputs[:, :, :split]), outputs[:, :, split:]

    def _objective_loss(self, batch: Batch, now: Tensor | None, outputs: Tensor) -> Tensor:
        own = self.objective.kind == "average"
        loss = torch.zeros((), device=outputs.device, dtype=outputs.dtype)
        if own or self.pricer.individual:
            each = self.objective.value(batch, outputs).mean(1)
            loss = each if own else self.pricer.individual * each
        if not own:
            mean, tau = outputs.mean(1), self.pricer.blend
            if now is None:
                loss = loss + self.objective.value(batch, mean)
            else:
                loss = loss + self.objective.value(batch, (1 - tau) * now + tau * mean) / tau
        return loss

    def _row_terms(self, outputs: Tensor, chunks: Sequence[Weighted], *, hinge: bool) -> Tensor:
        """The rows' part of the loss, from each member's own row value, averaged over the group."""
        total = torch.zeros(self.pricer.restarts, device=outputs.device, dtype=outputs.dtype)
        start = 0
        for rows, weights, guide in chunks:
            here = outputs[:, :, start : start + len(rows.inputs)]
            start += len(rows.inputs)
            values = rows.values(here).mean(1)
            if not hinge:
                total = total - values @ self._tensor(guide)
            elif rows.requirement >= 0:
                short = self._tensor(rows.bounds + self.pricer.headroom) - values
                total = total + self.pricer.row_weight * short.clamp_min(0) @ self._tensor(weights)
        return total

    def guided_loss(self, parameters: Parameters, step: int) -> Tensor:
        window = self._window(step)
        loss, outputs = self._evaluate(parameters, window, objective=self.needs_objective)
        return loss + self._row_terms(outputs, [*self.rows, *window], hinge=True)

    def reduced_cost(self, parameters: Parameters, step: int) -> Tensor:
        # an epigraph objective is in the rows already: its pieces have duals
        charged = self.needs_objective and self.objective.kind != "epigraph"
        loss, outputs = self._evaluate(parameters, [], objective=charged)
        return loss + self._row_terms(outputs, self.rows, hinge=False)

    def limited(self, parameters: Parameters, limit: float) -> Parameters:
        """Scale down the output layer of members that exceed the limit on any known input."""
        scale = _output_scaling(self.pricer.architecture)
        inputs = torch.cat([self._tensor(self.objective.inputs), self.core_inputs])
        with torch.no_grad():
            largest = self.pricer.architecture.forward(parameters, inputs).abs().amax((1, 2))
            return scale(parameters, (limit / largest).clamp_max(1.0))


def _output_scaling(architecture: Architecture) -> Callable[[Parameters, Tensor], Parameters]:
    scale: Callable[[Parameters, Tensor], Parameters] | None = getattr(
        architecture, "scale_outputs", None
    )
    if scale is None:
        raise InvalidInput("output_limit needs an architecture with linear outputs")
    return scale
