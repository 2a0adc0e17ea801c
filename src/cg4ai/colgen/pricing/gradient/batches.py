"""Batches of a sampled objective: fresh inputs with the mixture's outputs there, and rare ones.

Residual pricing trains a group on the loss of (1 - tau) mixture + tau group, so it must know what
the mixture gives at every input. That is computed for many steps at once, in the precision of
training, and used more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.members.mixture import Mixture
from cg4ai.objectives import AnyObjective, Batch, Epigraph
from cg4ai.protocols import Architecture, Members, Parameters, PricingRequest
from cg4ai.records import Array
from cg4ai.seeds import derive_seed

LAID_OUT = 100  # steps whose inputs are drawn at once,
PASSES = 5  # and used so often where the mixture must be evaluated at them
CHUNK = 4096  # inputs at which it is evaluated at once
SEARCHED = 250  # steps between two searches for rare inputs; twice as many where all that is in
# the mixture must be evaluated at what is looked at
SCREENED, KEPT = 16_384, 512  # inputs looked at in each search, and kept of it at most
REMEMBERED = 4  # searches whose findings are trained on
Predict = Callable[[Parameters, Tensor], Tensor]  # (n, d) -> (restarts, n, r)


class CurrentMixture:
    """The outputs of a mixture in the precision of training, without gradients.

    Members that the pricer's architecture knows are evaluated in that precision, which takes half
    the time; all others as they predict.
    """

    def __init__(
        self, ensemble: Mixture, architecture: Architecture, *, device: str, dtype: torch.dtype
    ) -> None:
        self.ensemble, self.architecture, self.dtype = ensemble, architecture, dtype
        self.known: list[tuple[Parameters, Tensor]] = []
        self.others: list[tuple[Members, Tensor]] = []
        plain = len(ensemble.layout) == 1 and ensemble.shield_digest is None
        self.plain = plain and ensemble.layout.places(ensemble.output_size) is None
        for part in ensemble.used if self.plain else ():
            parameters = architecture.parameters(part.members)
            weights = torch.tensor(part.weights, dtype=dtype, device=device)
            if parameters is None:
                self.others.append((part.members, weights))
            else:
                cast = {name: value.to(device, dtype) for name, value in parameters.items()}
                self.known.append((cast, weights))

    def __call__(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, r)."""
        with torch.no_grad():
            return torch.cat([self._evaluate(part) for part in torch.split(inputs, CHUNK)])

    def _evaluate(self, inputs: Tensor) -> Tensor:
        if not self.plain:
            return self.ensemble.outputs(inputs.to(torch.float64)).to(self.dtype)
        exact = inputs.to(torch.float64) if self.others else inputs
        found = [
            (weights, self.architecture.forward(parameters, inputs))
            for parameters, weights in self.known
        ]
        found += [(weights, one.outputs(exact).to(self.dtype)) for one, weights in self.others]
        return torch.stack([torch.einsum("m,mnr->nr", *one) for one in found]).sum(0)


@dataclass(frozen=True, slots=True)
class PricedScenarios:
    """The scenarios that a tail brought into the master, `inputs` (k, d), and their duals (k,).

    A dual is what a unit of the scenario's largest piece costs the master now: between 0, where
    the mixture is below its level, and the weight of the tail.
    """

    inputs: Array
    duals: Array


def find_priced_scenarios(request: PricingRequest) -> PricedScenarios:
    """Those of positive dual; the objective's own are left out, since fresh inputs replace them."""
    objective = request.objective
    assert isinstance(objective, Epigraph)
    inputs: dict[int, Array] = {}
    duals: dict[int, float] = {}
    for rows, prices in zip(
        request.rows.batches, request.rows.split(request.duals.rows), strict=True
    ):
        if rows.requirement >= 0 or rows.origin is None:
            continue
        for at in np.flatnonzero((prices > 0) & (rows.origin[:, 0] >= len(objective.inputs))):
            scenario = int(rows.origin[at, 0])
            inputs[scenario] = rows.inputs[at]
            duals[scenario] = duals.get(scenario, 0.0) + float(prices[at])
    width = objective.inputs.shape[1]
    return PricedScenarios(
        np.array(list(inputs.values())).reshape(-1, width), np.array(list(duals.values()))
    )


class SampledBatches:
    """Draws the batches of one training: `size` inputs each, and the scenarios priced beside them.

    `share` of the `size` inputs are rare ones, at which the tail of the objective is worst for
    what is in training; they are searched for from step `begin` on. `current` is None where the
    group is trained on its own loss.
    """

    def __init__(
        self,
        objective: AnyObjective,
        size: int,
        *,
        current: CurrentMixture | None,
        share: float,
        begin: int,
        priced: PricedScenarios | None,
        made: torch.Generator,
        device: str,
        dtype: torch.dtype,
        seed: int,
    ) -> None:
        self.objective, self.size, self.current = objective, size, current
        self.made, self.device, self.dtype, self.seed = made, device, dtype, seed
        self.tail = objective.tail if share > 0 else None
        self.rare = round(share * size)
        self.next_search = begin
        self.pause = SEARCHED if current is None else 2 * SEARCHED
        self.found: list[tuple[Tensor, Tensor | None]] = []
        self.pool: tuple[Tensor, Tensor | None] | None = None
        self.priced: tuple[Tensor, Tensor | None] | None = None
        self.weights: Tensor | None = None
        if priced is not None and len(priced.duals):
            inputs = torch.tensor(priced.inputs, dtype=dtype, device=device)
            self.priced = inputs, self._mix(inputs)
            each = torch.full((size,), 1.0 / size, dtype=dtype, device=device)
            duals = torch.tensor(priced.duals, dtype=dtype, device=device)
            self.weights = torch.cat([each, duals])
        self._fresh: tuple[Tensor, Tensor | None] | None = None
        self._order, self._place, self._passes = torch.empty(0, 0, dtype=torch.int64), 0, 0

    def _mix(self, inputs: Tensor) -> Tensor | None:
        return None if self.current is None else self.current(inputs)

    def next(self, steps: int) -> tuple[Batch, Tensor | None]:
        """The batch of one step and the mixture's outputs there; `steps` are those of the training.

        Fresh inputs are drawn for many steps; several kinds that a sampler puts in order are mixed.
        """
        fresh = self.size - (0 if self.pool is None else self.rare)
        if self._place >= len(self._order) or self._order.shape[1] != fresh:
            self._refill(min(LAID_OUT, steps), fresh)
        assert self._fresh is not None
        picked = self._order[self._place].to(self._fresh[0].device)
        self._place += 1
        parts = [(self._fresh[0][picked], _at(self._fresh[1], picked))]
        if self.pool is not None:
            rare = torch.randint(len(self.pool[0]), (self.rare,), generator=self.made)
            rare = rare.to(self.pool[0].device)
            parts.append((self.pool[0][rare], _at(self.pool[1], rare)))
        if self.priced is not None:
            parts.append(self.priced)
        inputs = torch.cat([part for part, _ in parts])
        now = [mixed for _, mixed in parts if mixed is not None]
        return Batch(inputs, None, self.weights), torch.cat(now) if now else None

    def _refill(self, steps: int, fresh: int) -> None:
        if self._passes == 0 or self._fresh is None:
            drawn = self.objective.batch(
                steps * self.size, self.made, device=self.device, dtype=self.dtype
            )
            self._fresh = drawn.inputs, self._mix(drawn.inputs)
            self._passes = 1 if self.current is None else PASSES
        self._passes -= 1
        count = len(self._fresh[0])
        order = torch.randperm(count, generator=self.made)[: count // fresh * fresh]
        self._order, self._place = order.reshape(-1, fresh), 0

    def lay_out(self, steps: int, made: torch.Generator) -> dict[str, Tensor]:
        """The same of many steps, stacked: "inputs" (steps, n, d), "now" and "weights" if any.

        All are drawn at once, on the generator's device where the objective's sampler can.
        """
        fresh = self.size - (0 if self.pool is None else self.rare)
        drawn = self.objective.batch(steps * fresh, made, device=self.device, dtype=self.dtype)
        order = torch.randperm(steps * fresh, generator=made, device=made.device)
        inputs = drawn.inputs[order.to(drawn.inputs.device)]
        parts = [(inputs, self._mix(inputs))]
        if self.pool is not None:
            size = (steps * self.rare,)
            rare = torch.randint(len(self.pool[0]), size, generator=made, device=made.device)
            rare = rare.to(self.pool[0].device)
            parts.append((self.pool[0][rare], _at(self.pool[1], rare)))
        if self.priced is not None:
            parts.append((_repeat(self.priced[0], steps), _repeat_some(self.priced[1], steps)))
        stacked = {"inputs": _stack([part for part, _ in parts], steps)}
        now = [mixed for _, mixed in parts if mixed is not None]
        if now:
            stacked["now"] = _stack(now, steps)
        if self.weights is not None:
            stacked["weights"] = self.weights.expand(steps, -1)
        return stacked

    def search(self, parameters: Parameters, step: int, predict: Predict) -> None:
        """Now and then, look for inputs at which what is in training is worst."""
        if self.tail is None or step < self.next_search:
            return
        self.next_search = step + self.pause
        with torch.no_grad():
            groups = len(predict(parameters, self._known_inputs()))
            for group in range(groups):
                self._search_one(parameters, step, predict, group=group, kept=KEPT // groups)
        self.found = self.found[: REMEMBERED * groups]
        if not self.found:
            return
        now = [mixed for _, mixed in self.found if mixed is not None]
        self.pool = torch.cat([one for one, _ in self.found]), torch.cat(now) if now else None

    def _known_inputs(self) -> Tensor:
        one = np.asarray(self.objective.inputs[:1])
        return torch.tensor(one, dtype=self.dtype, device=self.device)

    def _search_one(
        self, parameters: Parameters, step: int, predict: Predict, *, group: int, kept: int
    ) -> None:
        assert self.tail is not None

        def outputs(inputs: Tensor) -> Tensor:
            cast = inputs.to(self.device, self.dtype)
            return predict(parameters, cast)[group].to(torch.float64)

        worst = self.tail.find_hardest(
            outputs,
            seed=derive_seed(self.seed, step, f"rare {group}"),
            screened=SCREENED,
            kept=max(1, kept),
        )
        if len(worst):
            inputs = torch.tensor(worst, dtype=self.dtype, device=self.device)
            self.found.insert(0, (inputs, self._mix(inputs)))


def _at(values: Tensor | None, picked: Tensor) -> Tensor | None:
    return None if values is None else values[picked]


def _repeat(values: Tensor, steps: int) -> Tensor:
    return values.repeat(steps, 1)


def _repeat_some(values: Tensor | None, steps: int) -> Tensor | None:
    return None if values is None else _repeat(values, steps)


def _stack(parts: list[Tensor], steps: int) -> Tensor:
    """Parts (steps * k, ...) of each step side by side: (steps, sum of k, ...)."""
    return torch.cat([part.reshape(steps, -1, part.shape[-1]) for part in parts], dim=1)
