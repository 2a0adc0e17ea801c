"""Training a group of routing members against the bound that a proof uses, on cells that resist."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.apps.routing.cells import CellMemory, RuleCells
from cg4ai.apps.routing.members import RoutingPricer
from cg4ai.apps.routing.tail import GapTail
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.objectives import Epigraph
from cg4ai.pricing.gradient.training import Training, train
from cg4ai.proofs import CellBounds
from cg4ai.protocols import Parameters
from cg4ai.seeds import derived_seed, generator
from cg4ai.solving.problem import Problem

CHUNK = 512
SELDOM = 2e-4  # what a cell that is kept counts beside excesses when cells are drawn


@dataclass(frozen=True)
class ProofTraining:
    """The loss: mean MLU + bound_weight x mean hinge of the bound on cells + the same at points.

    A hinge counts what exceeds the limit less `headroom`. Cells with an excess above `coarse` do
    not count until they come below: halving closes them sooner than training. `cells` and
    `points` are drawn at every step, and `batch_size` fresh demand vectors, `hard` of them where
    the group is worst.
    """

    steps: int = 250
    learning_rate: float = 0.002
    batch_size: int = 512
    hard: float = 0.25
    cells: int = 128
    points: int = 256
    bound_weight: float = 2.0
    point_weight: float = 5.0
    headroom: float = 0.002
    coarse: float = 0.015


def train_against_bound(
    members: NetworkMembers,
    pricer: RoutingPricer,
    problem: Problem,
    *,
    memory: CellMemory,
    training: ProofTraining,
    seed: int,
) -> NetworkMembers:
    """A new group that starts from `members`, one for each demand."""
    loss = _Loss(members, pricer, problem, memory=memory, training=training, seed=seed)
    found = pricer.architecture.parameters(members)
    assert found is not None
    start = {name: value.float() for name, value in found.items()}
    schedule = Training(training.steps, training.learning_rate, "onecycle")
    trained = train(start, loss, schedule, models=1)
    return pricer.architecture.members(trained)


class _Loss:
    def __init__(
        self,
        members: NetworkMembers,
        pricer: RoutingPricer,
        problem: Problem,
        *,
        memory: CellMemory,
        training: ProofTraining,
        seed: int,
    ) -> None:
        objective = problem.objective
        assert isinstance(objective, Epigraph)
        assert objective.sampler is not None
        self.pricer, self.objective, self.memory = pricer, objective, memory
        self.sampler, self.training = objective.sampler, training
        self.device = members.device
        count = len(problem.layout)
        part = Part(members, np.arange(count), np.ones(count))
        alone = Ensemble((part,), problem.layout, device=members.device)
        self.bounds = CellBounds(alone, problem.requirements[0])
        self.limits = torch.as_tensor(self.bounds.rules.limit, device=members.device)
        self.made = generator(seed)
        self.blocks = torch.as_tensor(
            np.concatenate([np.full(len(own), n) for n, own in enumerate(problem.layout.blocks)])
        )
        self.places = torch.as_tensor(
            np.concatenate([np.arange(len(own)) for own in problem.layout.blocks])
        )
        order = np.argsort(np.concatenate(problem.layout.blocks))
        self.blocks, self.places = self.blocks[order], self.places[order]
        self.worst = self._worst(alone, seed)
        self.priority = self._priorities()
        if memory.points is not None:
            rows = memory.points
            self.point_inputs = self._tensor(rows.inputs[rows.index])
            self.point_coefficients = self._tensor(rows.coefficients)
            self.point_bounds = self._tensor(rows.bounds)

    def _worst(self, alone: Ensemble, seed: int) -> Tensor:
        tail = self.objective.tail
        assert isinstance(tail, GapTail)
        with torch.no_grad():
            vectors = tail.hardest(alone.outputs, seed=derived_seed(seed, 0, "proof"))
        return self._tensor(vectors)

    def _priorities(self) -> Tensor:
        """How often each cell is drawn: by its excess, those that are kept now and then."""
        cells = self.memory.cells
        found = [torch.empty(0, dtype=torch.float64)]
        for start in range(0, len(cells), CHUNK):
            part = cells.take(np.arange(start, min(start + CHUNK, len(cells))))
            with torch.no_grad():
                found.append(self._hinges(part, None).cpu())
        return torch.cat(found) + SELDOM

    def _hinges(self, cells: RuleCells, parameters: Parameters | None) -> Tensor:
        """(m,): by how much the bound of each cell exceeds what it should be, if not coarse."""
        given = None if parameters is None else {0: parameters}
        upper = self.bounds.upper(cells.rules, cells.lower, cells.upper, parameters=given)
        allowed = self.limits[torch.as_tensor(cells.rules)] - self.training.headroom
        excess = (upper - allowed).clamp_min(0)
        return torch.where(excess > self.training.coarse, 0.0, excess)

    def _tensor(self, array: object) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.device)

    def _splits(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        outputs = self.pricer.architecture.forward(parameters, inputs)
        return outputs[self.blocks, :, self.places].T

    def _picked(self, count: int, among: int) -> Tensor:
        return torch.randint(among, (count,), generator=self.made)

    def __call__(self, parameters: Parameters, step: int) -> Tensor:
        options = self.training
        old = round(options.hard * options.batch_size)
        fresh = self._tensor(self.sampler(options.batch_size - old, self.made))
        inputs = torch.cat([fresh, self.worst[self._picked(old, len(self.worst))]])
        splits = self._splits(parameters, inputs)
        loss = self.objective.pieces.values(inputs, splits).amax(-1).mean()
        if len(self.memory.cells):
            loss = loss + options.bound_weight * self._cell_hinge(parameters).float()
        if self.memory.points is not None:
            loss = loss + options.point_weight * self._point_hinge(parameters)
        return loss.reshape(1)

    def _cell_hinge(self, parameters: Parameters) -> Tensor:
        drawn = torch.multinomial(
            self.priority, self.training.cells, replacement=True, generator=self.made
        )
        hinges = self._hinges(self.memory.cells.take(drawn.numpy()), parameters)
        self.priority[drawn] = hinges.detach().cpu() + SELDOM
        return hinges.mean()

    def _point_hinge(self, parameters: Parameters) -> Tensor:
        which = self._picked(self.training.points, len(self.point_bounds))
        splits = self._splits(parameters, self.point_inputs[which])
        values = (splits * self.point_coefficients[which]).sum(-1)
        short = self.point_bounds[which] + self.training.headroom - values
        return short.clamp_min(0).mean()
