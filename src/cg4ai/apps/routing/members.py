"""Members that predict the splits of one demand, and the pricer that trains them jointly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.tail import GapTail
from cg4ai.members.mixture import Mixture
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.objectives import AnyObjective, Epigraph
from cg4ai.pricing.gradient.pricer import GradientPricer
from cg4ai.pricing.gradient.training import Training
from cg4ai.protocols import Members, Parameters, PricingRequest
from cg4ai.records import Array, PricingResult

NEAR = 0.1  # the corner: every demand within so much of its largest
NO_PATH = -1e4  # a logit whose softmax is exactly 0 in float64


@dataclass(frozen=True)
class SplitNetwork:
    """A network per demand: all demands in, a softmax over that demand's paths out.

    Demands with fewer paths than the most have outputs to spare: their logits are set so low that
    their share is exactly 0 and never moves.
    """

    instance: Instance
    hidden: tuple[int, ...] = (32,)
    skip: bool = True

    @cached_property
    def network(self) -> NetworkArchitecture:
        largest = self.instance.demand_max
        width = max(len(block) for block in self.instance.blocks)
        return NetworkArchitecture(
            len(largest),
            width,
            hidden=self.hidden,
            activation="gelu",
            skip=self.skip,
            output="softmax",
            shift=largest / 2,
            scale=largest / np.sqrt(12),
        )

    @property
    def input_size(self) -> int:
        return self.network.input_size

    @property
    def output_size(self) -> int:
        return self.network.output_size

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Fresh parameters; members come in the order of the demands, again and again."""
        parameters = self.network.initialise(count, generator)
        blocks = self.instance.blocks
        for number, block in enumerate(blocks):
            if len(block) < self.output_size:
                rows = slice(number, None, len(blocks))
                for name in (f"weight_{len(self.hidden)}", *(["skip"] if self.skip else [])):
                    parameters[name][rows, len(block) :] = 0.0
                parameters[f"bias_{len(self.hidden)}"][rows, len(block) :] = NO_PATH
        return parameters

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self.network.forward(parameters, inputs)

    def members(self, parameters: Parameters) -> NetworkMembers:
        return self.network.members(parameters)

    def parameters(self, members: Members) -> Parameters | None:
        return self.network.parameters(members)


@dataclass(frozen=True)
class RoutingPricer:
    """Trains one member per demand as a group: long at first, then on from the active members.

    Where the objective draws fresh demand vectors and has a tail, a share `hard` of every later
    batch comes from vectors at which the current mixture is furthest above the optimum: rare
    large gaps hardly show in a mean.
    """

    architecture: SplitNetwork
    first: Training
    later: Training
    batch_size: int = 512
    row_weight: float = 0.5
    headroom: float = 0.002
    hard: float = 0.25
    attack_every: int = 1000
    attack_weight: float = 0.02
    refresh_every: int = 20
    multiplier_rate: float = 0.02
    row_limit: int = 256
    restarts: int = 1

    def price(self, request: PricingRequest) -> PricingResult:
        warm = request.ensemble is not None and any(
            self.architecture.parameters(part.members) is not None
            for part in request.ensemble.parts
        )
        pricer = GradientPricer(
            self.architecture,
            restarts=self.restarts,
            training=self.later if warm else self.first,
            batch_size=self.batch_size,
            blend=1.0,
            row_weight=self.row_weight,
            headroom=self.headroom,
            finish=0.0,
            warm_starts=1 if warm else 0,
            attack_every=self.attack_every,
            attack_weight=self.attack_weight,
            refresh_every=self.refresh_every,
            multiplier_rate=self.multiplier_rate,
            row_limit=self.row_limit,
        )
        if warm and request.ensemble is not None:
            request = replace(request, objective=self.harder(request, request.ensemble))
        return pricer.price(request)

    def alone(self, pressure: float) -> RoutingPricer:
        """The same, but that the rows weigh more: its groups are one member of each demand."""
        return replace(self, row_weight=self.row_weight * pressure)

    def plain(self, trainings: int) -> RoutingPricer:
        """The same training without rows or attacks, over the steps of `trainings` calls."""
        steps = self.first.steps + max(0, trainings - 1) * self.later.steps
        first = replace(self.first, steps=steps)
        return replace(self, first=first, hard=0.0, attack_every=0, refresh_every=0)

    def harder(self, request: PricingRequest, ensemble: Mixture) -> AnyObjective:
        """The request's objective, with a share of every batch where `ensemble` is worst."""
        objective = request.objective
        tail = objective.tail if isinstance(objective, Epigraph) else None
        if (
            not isinstance(objective, Epigraph)
            or objective.sampler is None
            or not isinstance(tail, GapTail)
            or self.hard == 0
        ):
            return objective
        with torch.no_grad():
            worst = tail.hardest(ensemble.outputs, seed=request.seed)
        return replace(objective, sampler=_Mixed(objective.sampler, worst, share=self.hard))


Sampler = Callable[[int, torch.Generator], Tensor]


class FreshDemands:
    """Demand vectors drawn uniformly from the box, a share `corner` of them near its corner."""

    any_device = True

    def __init__(self, largest: Array, *, corner: float = 0.0) -> None:
        self.largest, self.corner = torch.as_tensor(largest), corner

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        largest = self.largest.to(generator.device)
        size = (count, len(largest))
        share = torch.rand(size, generator=generator, dtype=torch.float64, device=generator.device)
        if self.corner:
            near = share[: round(self.corner * count)]
            near.mul_(-NEAR).add_(1.0)
        return share * largest


class _Mixed:
    """Draws mostly from `fresh`, and a share of every batch from `known`."""

    def __init__(self, fresh: Sampler, known: Array, *, share: float) -> None:
        self.fresh, self.known, self.share = fresh, torch.as_tensor(known), share
        self.any_device: bool = getattr(fresh, "any_device", False)

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        old = round(self.share * count)
        device = generator.device
        pick = torch.randint(len(self.known), (old,), generator=generator, device=device)
        return torch.cat([self.fresh(count - old, generator), self.known.to(device)[pick]])
