"""The method as published, on the same loop: to see what the package's own recipe changes.

Squared loss on 1,000 labels, one network of 256 GELU units for one demand per iteration (or for
every demand, with `every_demand`), trained by the reduced cost alone; cuts from NLopt, one search
per arc, after column generation has ended; no anchor. Searches of arcs, and the networks of an
iteration, are jobs that `jobs` processes share. docs/routing.md lists what differs from the paper
or was left open there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.pricing.defaults import ArchitecturePricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.compile.problem import Problem
from cg4ai.layout import Layout
from cg4ai.members import concatenate
from cg4ai.members.networks import NetworkMembers
from cg4ai.objectives import AnyObjective, Supervised
from cg4ai.parallel import fan_out
from cg4ai.protocols import ArchitectureDefaults, Members, Parameters, PricingRequest
from cg4ai.records import IntArray, PricingResult
from cg4ai.routing.app import Routing, RoutingPreparation
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import (
    Guarantee,
    PathChoiceName,
    RouteSettings,
    RoutingObjective,
    SeparatorName,
)
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.routing.train.problem import capacity
from cg4ai.rules.rows import LinearRows, RowSet
from cg4ai.seeds import derive_seed
from cg4ai.settings import MOST_UNITS, Settings, hidden_setting, setting


@dataclass(frozen=True, kw_only=True)
class PaperSettings(RouteSettings):
    """The published method's own: labels to learn from, epochs of each network, iterations.

    every_demand: an iteration trains a network for every demand, in place of one demand in turn.
    """

    path_choice: PathChoiceName | None = setting("shortest")
    guarantee: Guarantee = setting("attacked")
    objective: RoutingObjective = setting("split")
    separator: SeparatorName = setting("nlopt")
    hidden: tuple[int, ...] = hidden_setting((256,), least=1, most=MOST_UNITS)
    rounds: int = hidden_setting(999, least=1)
    labels: int = hidden_setting(1000, least=1)
    epochs: int = hidden_setting(1000, least=1)
    every_demand: bool = hidden_setting(False)

    @property
    def joint(self) -> bool:
        """A network for each demand, as published."""
        return False


class PaperRouting(Routing):
    """The routing application with the published method in place of ours."""

    settings = PaperSettings

    def describe(self, prepared: RoutingPreparation) -> dict[str, Any]:
        return {**super().describe(prepared), "mode": "paper"}

    def training(self, prepared: RoutingPreparation) -> tuple[Problem, Settings]:
        asked = prepared.settings
        assert isinstance(asked, PaperSettings)
        return paper_problem(prepared.instance, asked), paper_settings(prepared.instance, asked)


def paper_settings(instance: Instance, asked: PaperSettings) -> Settings:
    """The paper's recipe, with at most 999 iterations.

    The run ends when no network of any demand improves the master and no search finds an overload:
    where an iteration asks one demand, when each in turn had nothing to offer.
    """
    return Settings.paper(
        column_limit=1_000_000,
        iteration_limit=asked.rounds,
        patience=1 if asked.every_demand else len(instance.demand_max),
        time_limit_s=asked.training_limit_s,
        seed=asked.seed,
        device=asked.device,
    )


def paper_problem(instance: Instance, asked: PaperSettings) -> Problem:
    """Objective, capacity and pricer; no members and no rows to start from.

    With the objective "cost" the labels are the splits of least total path cost.
    """
    vectors = instance.sample(asked.labels, derive_seed(asked.seed, 0, "labels"))
    best: Literal["mlu", "cost"] = "cost" if asked.objective == "cost" else "mlu"
    labels = instance.find_optimal(vectors, splits=True, objective=best).splits
    assert labels is not None
    training = Training(asked.epochs, learning_rate=1e-3, patience=50, decay=0.9, decay_after=10)
    network = SplitNetwork(instance, hidden=asked.hidden, skip=False)
    pricer = (
        EveryDemandPricer(network, training, asked.jobs)
        if asked.every_demand
        else OneDemandPricer(network, training)
    )
    return Problem(
        objective=Supervised(vectors, labels, "squared", "average"),
        requirements=(capacity(instance, asked),),
        pricers=(pricer,),
        layout=Layout(instance.blocks),
    )


@dataclass(frozen=True)
class OneDemandPricer(ArchitecturePricer):
    """Trains one member for one demand by its reduced cost; demands take turns.

    The iteration names the demand, so a resumed run goes on with the same one.
    """

    architecture: SplitNetwork
    training: Training

    def price(self, request: PricingRequest) -> PricingResult:
        return self.price_demand(request, request.iteration % len(request.rows.layout))

    def price_demand(self, request: PricingRequest, demand: int) -> PricingResult:
        """A member for this demand, trained by its own part of rows and labels."""
        alone = OneDemand(self.architecture, demand)
        pricer = GradientPricer(alone, restarts=1, training=self.training, finish=1.0)
        own = replace(
            request,
            rows=_rows_of(request.rows, demand),
            objective=_objective_of(request.objective, request.rows.layout.blocks[demand]),
            ensemble=None,
        )
        proposed = pricer.price(own)
        return replace(
            proposed,
            blocks=np.full(len(proposed.blocks), demand, np.int64),
            note=f"demand {demand}",
        )

    def make_plain_pricer(self, trainings: int) -> GradientPricer:
        """One network per demand on the labels alone, until each stops improving."""
        return GradientPricer(self.architecture, restarts=1, training=self.training, finish=1.0)


@dataclass(frozen=True)
class EveryDemandPricer(OneDemandPricer):
    """Trains one member for every demand by its reduced cost: a job each, with a seed of its own.

    Each enters by its own reduced cost.
    """

    n_jobs: int | None = None

    def price(self, request: PricingRequest) -> PricingResult:
        demands = range(len(request.rows.layout))
        asked = [
            replace(request, ensemble=None, seed=derive_seed(request.seed, demand, "demand"))
            for demand in demands
        ]
        answers = fan_out(
            self._price_one, list(zip(asked, demands, strict=True)), n_jobs=self.n_jobs, threads=1
        )
        found = [answer for answer in answers if answer.members is not None]
        members = concatenate([one.members for one in found if one.members is not None])
        return PricingResult(
            members,
            np.concatenate([one.blocks for one in found] or [np.empty(0, np.int64)]),
            np.full(sum(len(one.blocks) for one in found), -1),
        )

    def _price_one(self, job: tuple[PricingRequest, int]) -> PricingResult:
        return self.price_demand(*job)


@dataclass(frozen=True)
class OneDemand(ArchitectureDefaults):
    """The network of one demand, as an architecture of its own."""

    all_demands: SplitNetwork
    demand: int

    @property
    def input_size(self) -> int:
        return self.all_demands.input_size

    @property
    def output_size(self) -> int:
        return self.all_demands.output_size

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        demands = len(self.all_demands.instance.demand_max)
        made = self.all_demands.initialise(count * demands, generator)
        return {name: value[self.demand :: demands] for name, value in made.items()}

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self.all_demands.forward(parameters, inputs)

    def members(self, parameters: Parameters) -> NetworkMembers:
        return self.all_demands.members(parameters)

    def parameters(self, members: Members) -> Parameters | None:
        return self.all_demands.parameters(members)


def _rows_of(rows: RowSet, demand: int) -> RowSet:
    """The same rows as one demand's outputs alone see them: bounds play no part in its price."""
    own = rows.layout.blocks[demand]
    batches = []
    for batch in rows.batches:
        assert isinstance(batch, LinearRows)
        batches.append(replace(batch, coefficients=batch.coefficients[:, own]))
    return RowSet(Layout.single(len(own)), batches)


def _objective_of(objective: AnyObjective, own: IntArray) -> Supervised:
    assert isinstance(objective, Supervised)
    return replace(objective, targets=np.asarray(objective.targets, np.float64)[:, own])
