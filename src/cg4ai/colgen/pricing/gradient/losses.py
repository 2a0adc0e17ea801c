"""The losses by which gradient pricing proposes members, with the inputs found while training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.pricing.gradient.batches import (
    CurrentMixture,
    SampledBatches,
    find_priced_scenarios,
)
from cg4ai.colgen.pricing.gradient.rows import (
    ReadyRows,
    RowDraws,
    Weighted,
    join_rows,
    prepare_rows,
    select_weighted_rows,
)
from cg4ai.colgen.pricing.gradient.violations import ViolationPool
from cg4ai.colgen.pricing.reduced_cost import compute_mixture_outputs
from cg4ai.colgen.separation import training_separator
from cg4ai.members.mixture import Mixture, Part
from cg4ai.objectives import AnyObjective, Batch, Epigraph, Supervised
from cg4ai.protocols import Parameters, PricingRequest
from cg4ai.records import Array
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import Rows
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.pricing.gradient.pricer import GradientPricer

MEMORY = 64  # batches of rows remembered in one pricing call
WINDOW = 6  # of which so many are trained on at each step
ATTACK_ROWS = 64  # rows kept of one attack at most
ATTACK_WEIGHT = 0.02  # of the hinge at each input found, where they are not followed
MULTIPLIER_RATE = 0.02  # step of the dual ascent on violations at inputs that are followed
TRAINED_IN = torch.float32
CHUNK = 8192  # inputs at which all members are evaluated at once


class Trainer:
    """Everything of one pricing call that the losses need, on the right device."""

    def __init__(
        self,
        pricer: GradientPricer,
        request: PricingRequest,
        made: torch.Generator,
    ) -> None:
        self.pricer, self.request, self.made = pricer, request, made
        self.objective: AnyObjective = request.objective
        self.layout = layout = request.rows.layout
        self.shape = (pricer.restarts, pricer.group, len(layout))
        places = layout.places(pricer.architecture.output_size)
        self.places = None if places is None else torch.as_tensor(places, device=request.device)
        core, rest = select_weighted_rows(
            request,
            limit=None if pricer.draws_rows else pricer.row_limit,
            hinge_only=pricer.finish == 0,
        )
        self.draws: RowDraws | None = None
        if sum(len(rows) for rows, _, _ in core) > pricer.row_limit:
            self.draws = RowDraws(
                core, pricer.row_limit, ready=self._ready, hinge_only=pricer.finish == 0
            )
            self.rows = self.draws.known_rows
        else:
            self.rows = [self._ready(entry) for entry in core]
        self.found: list[Rows] = []
        self.note = ""  # what the result is to say of the training
        self.memory: list[ReadyRows] = []
        if pricer.attack_every:
            for rows in rest:
                self._remember(rows)
        self.pools = self._pools() if pricer.refresh_every else {}
        self.pooled: list[ReadyRows] = []
        self.sampled = self._sampled()
        self.fixed = self.batch(None) if pricer.batch_size is None else None
        self.needs_objective = request.loss_weight > 0
        only_rules = isinstance(self.objective, Supervised) and self.objective.loss == "none"
        self.has_loss = not only_rules
        self._together: tuple[Sequence[Tensor], Tensor] | None = None

    @property
    def blends(self) -> bool:
        """Whether groups are trained on the loss of their blend with the current mixture."""
        pricer, ensemble = self.pricer, self.request.ensemble
        return ensemble is not None and pricer.blend < 1 and self.objective.kind != "average"

    def _sampled(self) -> SampledBatches | None:
        """For fresh inputs that the mixture is evaluated at, or rare ones that are searched for."""
        pricer, objective, request = self.pricer, self.objective, self.request
        if isinstance(objective, Epigraph) and objective.targets is not None:
            return None  # they are drawn step by step, with their targets
        weighs_tail = isinstance(objective, Epigraph) and pricer.prices_tail
        priced = find_priced_scenarios(request) if weighs_tail else None
        wanted = self.blends or pricer.tail_share > 0 or (priced is not None and len(priced.duals))
        if objective.sampler is None or pricer.batch_size is None or not wanted:
            return None
        current = None
        if self.blends:
            assert request.ensemble is not None
            current = CurrentMixture(
                request.ensemble, pricer.architecture, device=request.device, dtype=TRAINED_IN
            )
        return SampledBatches(
            objective,
            pricer.batch_size,
            current=current,
            share=pricer.tail_share,
            begin=round(pricer.tail_from * pricer.training.steps),
            priced=priced,
            made=self.made,
            device=request.device,
            dtype=TRAINED_IN,
            seed=request.seed,
        )

    def _pools(self) -> dict[int, ViolationPool]:
        """Of every requirement over a region, by its number."""
        return {
            number: ViolationPool(
                requirement,
                outputs=self._group_outputs,
                output_size=self.layout.output_size,
                rate=MULTIPLIER_RATE,
                headroom=self.pricer.headroom,
                seed=derive_seed(self.request.seed, number, "pool"),
            )
            for number, requirement in enumerate(self.request.requirements)
            if isinstance(requirement.region, Region)
        }

    def _group_outputs(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        x = inputs.to(dtype=TRAINED_IN, device=self.request.device)
        return self.average_over_group(self.joint(self.pricer.architecture.forward(parameters, x)))

    def _ready(self, entry: Weighted) -> ReadyRows:
        pricer = self.pricer
        return prepare_rows(entry, self.tensor, headroom=pricer.headroom, weight=pricer.row_weight)

    def _remember(self, rows: Rows) -> None:
        found = self._hinged(rows, np.full(len(rows), ATTACK_WEIGHT))
        self.memory = [*self.memory, found][-MEMORY:]

    def _hinged(self, rows: Rows, weights: Array) -> ReadyRows:
        """Rows whose hinges weigh so much, whatever those of the master do."""
        return self._ready((rows, weights / self.pricer.row_weight, np.zeros(len(rows))))

    def _of_step(self) -> list[ReadyRows]:
        """The rows of the master that are trained on at one step: all, or those drawn."""
        if not self.pricer.draws_rows:
            return self.rows
        rows = self.rows if self.draws is None else self.draws.draw_rows(self.made)
        return [entry.sample_inputs(self.made) for entry in rows]

    def _window(self, step: int) -> list[ReadyRows]:
        """A few batches of remembered rows, others at every step; rarer ones weigh more."""
        count = len(self.memory)
        if count <= WINDOW:
            return self.memory
        scale = min(count / WINDOW, 3.0)
        return [self.memory[(step * WINDOW + k) % count].scale(scale) for k in range(WINDOW)]

    def search(self, parameters: Parameters, step: int) -> None:
        """Look for violated inputs and for rare ones, now and then; called before every step."""
        if self.pricer.attack_every:
            self.attack(parameters, step)
        if self.sampled is not None:
            self.sampled.search(parameters, step, self._blended_outputs)

    def _blended_outputs(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (restarts, n, r): what the objective is taken of."""
        own = self._group_outputs(parameters, inputs)
        current = None if self.sampled is None else self.sampled.current
        return own if current is None else self.blend_outputs(current(inputs), own)

    def blend_outputs(self, now: Tensor, own: Tensor) -> Tensor:
        """(1 - tau) mixture + tau group."""
        tau = self.pricer.blend
        return (1 - tau) * now + tau * own

    def attack(self, parameters: Parameters, step: int) -> None:
        """Now and then, look for inputs of the regions that each group violates, and keep them."""
        pricer, before = self.pricer, len(self.found)
        if step % pricer.attack_every == 0 and (step or pricer.warm_starts):
            self._search(parameters, step)
        if pricer.refresh_every and step % pricer.refresh_every == 0:
            self._refresh(parameters, self.found[before:])

    def _refresh(self, parameters: Parameters, found: Sequence[Rows]) -> None:
        """Let the pools follow the group; `found` are rows that a search has just brought."""
        self.pooled = []
        for number, pool in self.pools.items():
            own = [rows for rows in found if rows.requirement == number]
            pool.refresh(parameters, own[0] if own else None)
            rows = pool.rows(number)
            if rows is not None:
                self.pooled.append(self._hinged(*rows))

    def _search(self, parameters: Parameters, step: int) -> None:
        pricer = self.pricer
        count = pricer.group * len(self.layout)
        blocks = np.tile(np.arange(len(self.layout)), pricer.group)
        weights = np.full(count, 1.0 / pricer.group)
        for restart in range(pricer.restarts):
            own = {
                name: value[restart * count : (restart + 1) * count]
                for name, value in parameters.items()
            }
            part = Part(pricer.architecture.members(own), blocks, weights)
            group = Mixture((part,), self.layout, device=self.request.device)
            for number, requirement in enumerate(self.request.requirements):
                if isinstance(requirement.region, Region):
                    self._keep_violated(group, requirement, number, step)

    def _keep_violated(
        self, group: Mixture, requirement: Requirement, number: int, step: int
    ) -> None:
        separator = training_separator(requirement, group.differentiable)
        result = separator.find(
            group,
            requirement,
            seed=derive_seed(self.request.seed, step, f"attack {number}"),
            limit=ATTACK_ROWS,
            tolerance=attack_tolerance(self.pricer.headroom),
        )
        if result.rows is not None:
            rows = replace(result.rows, requirement=number)
            self.found.append(rows)
            if not self.pools:
                self._remember(rows)

    def tensor(self, array: Array) -> Tensor:
        return torch.as_tensor(array, dtype=TRAINED_IN, device=self.request.device)

    def batch(self, size: int | None) -> tuple[Batch, Tensor | None]:
        """Training inputs, and the current mixture's outputs there if it is blended in."""
        pricer, request = self.pricer, self.request
        if self.sampled is not None and size is not None:
            return self.sampled.next(pricer.training.steps)
        batch = self.objective.batch(size, self.made, device=request.device, dtype=TRAINED_IN)
        if request.ensemble is None or not self.blends:
            return batch, None
        if batch.positions is not None:
            return batch, self._now[batch.positions.to(request.device)]
        with torch.no_grad():
            now = request.ensemble.outputs(batch.inputs.to(torch.float64)).to(TRAINED_IN)
        return batch, now

    @cached_property
    def _now(self) -> Tensor:
        """The current mixture's outputs at all inputs of the objective, which batches are from."""
        assert self.request.ensemble is not None
        inputs, device = self.objective.inputs, self.request.device
        return self.tensor(compute_mixture_outputs(self.request.ensemble, inputs, device))

    def joint(self, raw: Tensor) -> Tensor:
        """(restarts * group * blocks, n, k) -> (restarts, group, n, r)."""
        shaped = raw.reshape(*self.shape, *raw.shape[1:]).transpose(2, 3).flatten(-2)
        return shaped if self.places is None else shaped.index_select(-1, self.places)

    def _evaluate(
        self, parameters: Parameters, rows: Sequence[ReadyRows], *, objective: bool
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The objective's part of the loss (restarts,); outputs at each batch of rows.

        Outputs are (restarts, group, k, r).
        """
        inputs = [entry.inputs for entry in rows]
        if not objective:
            nothing = self.tensor(np.zeros(self.pricer.restarts))
            return nothing, self._outputs(parameters, inputs) if inputs else []
        batch, now = self.fixed if self.fixed is not None else self.batch(self.pricer.batch_size)
        own, *others = self._outputs(parameters, [batch.inputs, *inputs])
        return self.compute_objective_loss(batch, now, own), others

    def _outputs(self, parameters: Parameters, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Outputs at each of several sets of inputs, by one forward pass."""
        outputs = self.joint(self.pricer.architecture.forward(parameters, self._joined(inputs)))
        # one split: a slice each would make its gradient a whole tensor of zeros first
        return torch.split(outputs, [len(part) for part in inputs], dim=2)

    def _joined(self, inputs: Sequence[Tensor]) -> Tensor:
        """All of them in one; those of the step before, as with whole data, are joined once."""
        if len(inputs) == 1:
            return inputs[0]
        known = self._together
        if known is None or len(known[0]) != len(inputs) or any(map(_differ, known[0], inputs)):
            known = self._together = (inputs, torch.cat(list(inputs)))
        return known[1]

    def compute_objective_loss(self, batch: Batch, now: Tensor | None, outputs: Tensor) -> Tensor:
        own = self.objective.kind == "average"
        loss = torch.zeros((), device=outputs.device, dtype=outputs.dtype)
        if own or self.pricer.individual:
            each = self.average_over_group(self.objective.value(batch, outputs))
            loss = each if own else self.pricer.individual * each
        if not own:
            mean, tau = self.average_over_group(outputs), self.pricer.blend
            if now is None:
                loss = loss + self.objective.value(batch, mean)
            else:
                loss = loss + self.objective.value(batch, self.blend_outputs(now, mean)) / tau
        return loss

    def average_over_group(self, values: Tensor) -> Tensor:
        """The mean over the members of each group: (restarts, group, ...) -> (restarts, ...)."""
        return values.squeeze(1) if self.pricer.group == 1 else values.mean(1)

    def _row_terms(
        self, outputs: Sequence[Tensor], rows: Sequence[ReadyRows], *, hinge: bool
    ) -> Tensor:
        """The rows' part of the loss, from each member's own row value, averaged over the group."""
        total = self.tensor(np.zeros(self.pricer.restarts))
        for here, entry in zip(outputs, rows, strict=True):
            values = self.average_over_group(entry.values(here))
            if hinge:
                total = total + (entry.needed - values).clamp_min(0) @ entry.hinge
            else:
                total = total - values @ entry.guide
        return total

    def compute_guided_loss(self, parameters: Parameters, step: int) -> Tensor:
        rows = join_rows([*self._of_step(), *self._window(step), *self.pooled])
        loss, outputs = self._evaluate(parameters, rows, objective=self.needs_objective)
        return loss + self._row_terms(outputs, rows, hinge=True) if rows else loss

    def compute_reduced_cost(self, parameters: Parameters, step: int) -> Tensor:
        rows = self._of_step()
        # an epigraph objective is in the rows already, once there are any: its pieces have duals
        priced = self.objective.kind == "epigraph" and bool(rows)
        charged = self.needs_objective and self.has_loss and not priced
        loss, outputs = self._evaluate(parameters, rows, objective=charged)
        return loss + self._row_terms(outputs, rows, hinge=False) if rows else loss

    def limit_outputs(self, parameters: Parameters, limit: float) -> Parameters:
        """Scale down the output layer of members that exceed the limit on any known input."""
        architecture = self.pricer.architecture
        known = [self.objective.inputs]
        if self.pricer.limit_inputs is not None:
            known.append(self.pricer.limit_inputs)
        inputs = torch.cat([*map(self.tensor, known), *(r.inputs for r in self.rows)])
        with torch.no_grad():
            sizes = [
                architecture.forward(parameters, part).abs().amax((1, 2))
                for part in torch.split(inputs, CHUNK)
            ]
            most = torch.stack(sizes).amax(0)
            return architecture.scale_outputs(parameters, (limit / most).clamp_max(1.0))


def _differ(one: Tensor, other: Tensor) -> bool:
    return one is not other


def attack_tolerance(headroom: float) -> float:
    """Attacks while training keep near misses, too: within half of what training aims at."""
    return -headroom / 2
