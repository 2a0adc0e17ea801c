"""Members that predict the splits of one demand, as proofs want them, and their first training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen import (
    AnyObjective,
    ArchitecturePricer,
    Epigraph,
    GradientPricer,
    PricingRequest,
    PricingResult,
    Probe,
    Training,
    draws_on_any_device,
)
from cg4ai.data import Array
from cg4ai.members import (
    ArchitectureDefaults,
    InputMask,
    Members,
    Mixture,
    NetworkArchitecture,
    NetworkMembers,
    Parameters,
)
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import AgentScope
from cg4ai.routing.train.agents import compute_sight
from cg4ai.routing.train.rare_demands import GapTail

NO_PATH = -1e4  # a logit whose softmax is exactly 0 in float64


@dataclass(frozen=True)
class SplitNetwork(ArchitectureDefaults):
    """A network per demand: demands in, a softmax over that demand's paths out.

    Of demands that it does not see, as `scope` says, its weights are exactly zero. Demands with
    fewer paths than the most have outputs to spare: their logits are set so low that their share is
    exactly 0 and never moves.
    """

    instance: Instance
    hidden: tuple[int, ...] = (32,)
    skip: bool = True
    scope: AgentScope = "all"

    @cached_property
    def sight(self) -> InputMask | None:
        """What each network sees, where that is not all."""
        return None if self.scope == "all" else InputMask(compute_sight(self.instance, self.scope))

    @cached_property
    def network(self) -> NetworkArchitecture:
        lower, upper = self.instance.region.bounds()
        width = max(len(block) for block in self.instance.blocks)
        return NetworkArchitecture(
            len(upper),
            width,
            hidden=self.hidden,
            activation="gelu",
            skip=self.skip,
            output="softmax",
            shift=(lower + upper) / 2,
            scale=(upper - lower) / np.sqrt(12),
        )

    @property
    def input_size(self) -> int:
        return self.network.input_size

    @property
    def output_size(self) -> int:
        return self.network.output_size

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        """Fresh parameters; members come in the order of the demands, again and again."""
        parameters = self.mask_parameters(self.network.initialise(count, generator))
        blocks = self.instance.blocks
        for number, block in enumerate(blocks):
            if len(block) < self.output_size:
                rows = slice(number, None, len(blocks))
                for name in (f"weight_{len(self.hidden)}", *(["skip"] if self.skip else [])):
                    parameters[name][rows, len(block) :] = 0.0
                parameters[f"bias_{len(self.hidden)}"][rows, len(block) :] = NO_PATH
        return parameters

    def mask_parameters(self, parameters: Parameters) -> Parameters:
        """With zeros for what is not seen; so gradients there are zero, and it stays zero."""
        return parameters if self.sight is None else self.sight.mask_parameters(parameters)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self.network.forward(self.mask_parameters(parameters), inputs)

    def members(self, parameters: Parameters) -> NetworkMembers:
        return self.network.members(parameters)

    def parameters(self, members: Members) -> Parameters | None:
        return self.network.parameters(members)


@dataclass(frozen=True)
class RoutingPricer(ArchitecturePricer):
    """Trains the first group of a run that is to be proven: one member per demand, from scratch.

    Later groups are trained on their bounds (`cg4ai.proofs`), by the objective that
    `make_harder_objective` gives: a share `hard` of every batch comes from vectors at which the
    current mixture is furthest above the optimum, since rare large gaps hardly show in a mean.
    `later` are the steps of such a group, by which plain networks are trained as long.
    """

    architecture: SplitNetwork
    first: Training
    later: Training
    batch_size: int = 512
    row_weight: float = 0.5
    headroom: float = 0.002
    hard: float = 0.25
    attack_every: int = 1000
    refresh_every: int = 20
    row_limit: int = 256
    group: int = 1

    def price(self, request: PricingRequest) -> PricingResult:
        pricer = GradientPricer(
            self.architecture,
            restarts=1,
            group=self.group,
            training=self.first,
            batch_size=self.batch_size,
            blend=1.0,
            row_weight=self.row_weight,
            headroom=self.headroom,
            finish=0.0,
            attack_every=self.attack_every,
            refresh_every=self.refresh_every,
            row_limit=self.row_limit,
        )
        return pricer.price(request)

    def for_estimate(self, probe: Probe) -> GradientPricer:
        """Half of the members go on from active ones; rows are drawn, as many as a batch has."""
        onwards = GradientPricer(
            self.architecture,
            training=self.later,
            batch_size=self.batch_size,
            restarts=1,
            blend=1.0,
            row_limit=self.batch_size,
        )
        return onwards.for_estimate(probe)

    def make_plain_pricer(self, trainings: int) -> RoutingPricer:
        """The same training without rows or attacks, over the steps of `trainings` calls."""
        steps = self.first.steps + max(0, trainings - 1) * self.later.steps
        first = replace(self.first, steps=steps)
        return replace(self, first=first, hard=0.0, attack_every=0, refresh_every=0)

    def make_harder_objective(self, request: PricingRequest, ensemble: Mixture) -> AnyObjective:
        """The request's objective, with a share of every batch where `ensemble` is worst."""
        objective = request.objective
        if not isinstance(objective, Epigraph) or objective.sampler is None or self.hard == 0:
            return objective
        tail = objective.tail
        if not isinstance(tail, GapTail):
            return objective
        with torch.no_grad():
            worst = tail.find_hardest(
                ensemble.outputs, seed=request.seed, screened=tail.most, kept=tail.most // 100
            )
        return replace(objective, sampler=_MixedSampler(objective.sampler, worst, share=self.hard))


Sampler = Callable[[int, torch.Generator], Tensor]


class _MixedSampler:
    """Draws mostly from `fresh`, and a share of every batch from `known`."""

    def __init__(self, fresh: Sampler, known: Array, *, share: float) -> None:
        self.fresh, self.known, self.share = fresh, torch.as_tensor(known), share
        self.any_device = draws_on_any_device(fresh)

    def __call__(self, count: int, generator: torch.Generator) -> Tensor:
        old = round(self.share * count)
        device = generator.device
        pick = torch.randint(len(self.known), (old,), generator=generator, device=device)
        return torch.cat([self.fresh(count - old, generator), self.known.to(device)[pick]])
