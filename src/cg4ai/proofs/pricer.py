"""`ProofPricer`: trains members against the bound that a proof uses, on cells that resist.

The first group is trained by the pricer within, by objective and attacks; each later one starts
from the group before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.gradient.rows import ReadyRows, prepare_rows
from cg4ai.colgen.pricing.gradient.training import Training, train
from cg4ai.colgen.pricing.gradient.violations import ViolationPool
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.layout import Layout
from cg4ai.members import restore as restore_members
from cg4ai.members.mixture import Mixture, Part
from cg4ai.objectives import AnyObjective, Batch
from cg4ai.proofs.cell_bounds import CellBounds
from cg4ai.proofs.prover import CellMemory
from cg4ai.proofs.records import Certification, RuleCells
from cg4ai.protocols import Architecture, Members, Parameters, Pricer, PricingRequest
from cg4ai.records import MemberState, PartState, PricingResult
from cg4ai.rules.rows import LinearRows, Rows, RowSet, merge_batches
from cg4ai.seeds import derive_seed, generator

CHUNK = 512
MOST_POINTS = 1024  # of rows known, whose inputs are looked at before training
FOLLOWED = "pool "  # before the names of the pool's arrays among those of the group
SELDOM = 2e-4  # what a cell that is kept counts beside excesses when cells are drawn

Harder = Callable[[PricingRequest, Mixture], AnyObjective]


@dataclass(frozen=True)
class ProofTraining:
    """The loss: objective + weight x mean hinge of the bound on cells + hinges at inputs.

    A hinge counts what exceeds the limit less `headroom`; that of wide cells too, since it is what
    makes members smooth enough to be proven in few cells. Its weight is `bound_weight` at first:
    times `easier` after a proof, times `harder` after one that left cells open. `cells` are drawn
    at every step, and `batch_size` inputs for the objective. The inputs of the other hinges
    follow the group every `refresh_every` steps, with multipliers by dual ascent of step
    `multiplier_rate` (see `ViolationPool`), from one group to the next.
    """

    steps: int = 700
    learning_rate: float = 0.006
    batch_size: int = 512
    cells: int = 64
    bound_weight: float = 0.1
    easier: float = 0.5
    harder: float = 2.0
    refresh_every: int = 20
    multiplier_rate: float = 0.5
    headroom: float = 0.002


class ProofPricer(PricerDefaults):
    """Proposes one group at a time, a member for every block.

    `inner` trains the first group and `architecture` is that of its members. `harder`, if given,
    says for a request and the group before which objective the next one is trained by. An
    architecture whose members do not see all inputs has `mask_parameters`, which bounds apply.
    """

    def __init__(
        self,
        inner: Pricer,
        architecture: Architecture,
        *,
        memory: CellMemory,
        training: ProofTraining,
        harder: Harder | None = None,
    ) -> None:
        self.inner, self.architecture, self.harder = inner, architecture, harder
        self.memory, self.training = memory, training
        self.bound_weight = training.bound_weight
        self.latest: Members | None = None
        self.followed: dict[str, NDArray[Any]] = {}  # inputs and multipliers of the pool

    def price(self, request: PricingRequest) -> PricingResult:
        if self.latest is None:
            return self._first(request)
        layout = request.rows.layout
        latest = self.latest.to(request.device)
        each = len(latest) // len(layout)
        blocks = np.tile(np.arange(len(layout)), each)
        part = Part(latest, blocks, np.full(len(blocks), 1 / each))
        alone = Ensemble((part,), layout, device=request.device)
        if self.harder is not None:
            request = replace(request, objective=self.harder(request, alone))
        loss = _Loss(self, request, alone)
        self.latest = self._trained(latest, loss, until=request.until)
        self.followed = loss.pool.state()
        return PricingResult(self.latest, blocks, np.zeros(len(blocks), np.int64))

    @property
    def group_size(self) -> int:
        """How many members a group has, of all blocks together."""
        return 0 if self.latest is None else len(self.latest)

    def for_estimate(self, probe: Probe) -> Pricer:
        """As the pricer within: a proof has no part in the objective."""
        return self.inner.for_estimate(probe)

    def inner_parts(self) -> Sequence[Pricer]:
        return (self.inner,)

    def map_inner(self, change: Callable[[Pricer], Pricer]) -> ProofPricer:
        made = copy.copy(self)
        made.inner = change(self.inner)
        return made

    def trained_architecture(self) -> Architecture:
        return self.architecture

    def adapt(self, answer: Certification) -> None:
        """Ask for less where a proof went through, for more where cells were left open.

        Cells of rules that are refuted say nothing: no bound could close them.
        """
        if answer.status == "proven":
            self.bound_weight *= self.training.easier
        elif any(proof.status == "unknown" for proof in answer.rules):
            self.bound_weight *= self.training.harder

    def state(self) -> PartState:
        """The latest group, which the next one starts from, and what cells and inputs weigh."""
        if self.latest is None:
            return PartState()
        group = self.latest.state()
        return PartState(
            {
                "kind": group.kind,
                "config": dict(group.config),
                "bound_weight": self.bound_weight,
            },
            {**group.arrays, **{FOLLOWED + name: a for name, a in self.followed.items()}},
        )

    def restore(self, state: PartState) -> None:
        self.latest = None
        if state.values:
            self.bound_weight = state.values["bound_weight"]
            kind, config = state.values["kind"], state.values["config"]
            own = {n: a for n, a in state.arrays.items() if not n.startswith(FOLLOWED)}
            self.latest = restore_members(MemberState(kind, config, own))
            self.followed = {
                name.removeprefix(FOLLOWED): array
                for name, array in state.arrays.items()
                if name.startswith(FOLLOWED)
            }

    def _first(self, request: PricingRequest) -> PricingResult:
        proposed = self.inner.price(request)
        count = len(request.rows.layout)
        if not _whole_groups(proposed, count):
            raise SolverFailure(
                "the first group of a certified run must have as many members of each of the "
                f"{count} blocks, in order; its pricer proposed {proposed.blocks.tolist()}"
            )
        self.latest = proposed.members
        return proposed

    def _trained(self, members: Members, loss: _Loss, *, until: float) -> Members:
        found = self.architecture.parameters(members)
        if found is None:
            raise InvalidInput(
                "the first group is of another architecture than the proof pricer was given; "
                "give the architecture of the pricer within",
                code="conflict",
            )
        start = {name: value.float() for name, value in found.items()}
        schedule = Training(self.training.steps, self.training.learning_rate, "onecycle")
        trained = train(start, loss, schedule, models=1, pause=loss.refresh, until=until)
        return self.architecture.members(trained)


class _Loss:
    """What one training minimises, on the device of the group that it starts from."""

    def __init__(self, pricer: ProofPricer, request: PricingRequest, alone: Ensemble) -> None:
        self.architecture, self.options = pricer.architecture, pricer.training
        self.bound_weight = pricer.bound_weight
        self.objective, self.device = request.objective, request.device
        self.made = generator(request.seed)
        self.cells = pricer.memory.cells
        self.bounds = CellBounds(alone, pricer.memory.requirement)
        self.limits = torch.as_tensor(self.bounds.rules.limit, device=self.device)
        self.blocks = len(alone.layout)
        self.places = _places(alone.layout, self.architecture.output_size, self.device)
        self.priority = self._priorities()
        self.known = _newest(request.rows)
        self.pooled: ReadyRows | None = None
        self.pool = ViolationPool(
            pricer.memory.requirement,
            outputs=lambda parameters, x: self._outputs(parameters, self._tensor(x))[None],
            output_size=alone.output_size,
            rate=self.options.multiplier_rate,
            headroom=self.options.headroom,
            seed=derive_seed(request.seed, 0, "pool"),
        )
        self.pool.restore(pricer.followed)

    def refresh(self, parameters: Parameters, step: int) -> None:
        """Now and then, let the inputs where rules are broken follow the group."""
        if step % self.options.refresh_every:
            return
        self.pool.refresh(parameters, self.known if step == 0 else None)
        found = self.pool.rows(0)
        self.pooled = None
        if found is not None:
            rows, weights = found
            entry = (rows, weights, np.zeros(len(rows)))
            self.pooled = prepare_rows(
                entry, self._tensor, headroom=self.options.headroom, weight=1.0
            )

    def __call__(self, parameters: Parameters, step: int) -> Tensor:
        batch = self._batch()
        loss = self.objective.value(batch, self._outputs(parameters, batch.inputs))
        if len(self.cells):
            loss = loss + self.bound_weight * self._cell_hinge(parameters).float()
        if self.pooled is not None:
            loss = loss + _hinges_at(self.pooled, self._outputs(parameters, self.pooled.inputs))
        return loss.reshape(1)

    def _batch(self) -> Batch:
        size = self.options.batch_size
        return self.objective.batch(size, self.made, device=self.device, dtype=torch.float32)

    def _tensor(self, array: object) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.device)

    def _outputs(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, r): all outputs of the group, in the order of the layout."""
        outputs = self.architecture.forward(parameters, inputs)
        each = outputs.reshape(-1, self.blocks, *outputs.shape[1:]).mean(0)
        side_by_side = each.transpose(0, 1).flatten(1)
        return side_by_side if self.places is None else side_by_side[:, self.places]

    def _priorities(self) -> Tensor:
        """How often each cell is drawn: by its excess, those that are kept now and then."""
        found = [torch.empty(0, dtype=torch.float64)]
        for start in range(0, len(self.cells), CHUNK):
            part = self.cells.take(np.arange(start, min(start + CHUNK, len(self.cells))))
            with torch.no_grad():
                found.append(self._hinges(part, None).cpu())
        return torch.cat(found) + SELDOM

    def _hinges(self, cells: RuleCells, parameters: Parameters | None) -> Tensor:
        """(m,): by how much the bound of each cell exceeds what it should be."""
        given = None if parameters is None else {0: self.architecture.mask_parameters(parameters)}
        upper = self.bounds.upper(cells.rules, cells.lower, cells.upper, parameters=given)
        limits = self.limits[torch.as_tensor(cells.rules, device=self.device)]
        return (upper - limits + self.options.headroom).clamp_min(0)

    def _cell_hinge(self, parameters: Parameters) -> Tensor:
        drawn = torch.multinomial(
            self.priority, self.options.cells, replacement=True, generator=self.made
        )
        hinges = self._hinges(self.cells.take(drawn.numpy()), parameters)
        self.priority[drawn] = hinges.detach().cpu() + SELDOM
        return hinges.mean()


def _hinges_at(rows: ReadyRows, outputs: Tensor) -> Tensor:
    return (rows.needed - rows.values(outputs)).clamp_min(0) @ rows.hinge


def _whole_groups(proposed: PricingResult, blocks: int) -> bool:
    """Whether every block has equally many members, block after block, again and again."""
    if proposed.members is None or not len(proposed.blocks):
        return False
    return np.array_equal(proposed.blocks, np.arange(len(proposed.blocks)) % blocks) and (
        len(proposed.blocks) % blocks == 0
    )


def _newest(rows: RowSet) -> Rows | None:
    """The newest rows of requirements at single inputs, where there are any."""
    known = [
        batch
        for batch in rows.batches
        if batch.requirement >= 0 and isinstance(batch, LinearRows) and batch.index is not None
    ]
    if not known:
        return None
    every = merge_batches(known)
    return every.take(np.arange(max(0, len(every) - MOST_POINTS), len(every)))


def _places(layout: Layout, width: int, device: str) -> Tensor | None:
    places = layout.places(width)
    return None if places is None else torch.as_tensor(places, device=device)
