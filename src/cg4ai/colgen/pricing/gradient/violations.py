"""Inputs where a group in training breaks a rule, followed as it changes; a multiplier per rule.

A cold search every few hundred steps tells of a group that is long gone. A pool climbs on from
where it stands, a few steps at a time, and each rule weighs what dual ascent makes of its worst
violation there: more as long as it is broken, less once it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.protocols import Parameters
from cg4ai.records import Array, IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import Rows

PLACES = 8  # inputs of each rule
FRESH = 128  # inputs looked at in each refresh, half of them vertices
CLIMBS = 2  # steps of each input in each refresh
STRIDE = 0.25  # the first step, relative to the half-widths of the region
MOST = 0.02  # violations count no more than this when multipliers rise
FALL = 0.9  # what is left of a multiplier after a refresh that finds its rule kept
ACTIVE = 0.05  # inputs whose rule is kept by more than this are not trained on

Outputs = Callable[[Parameters, Tensor], Tensor]  # (n, d) -> (restarts, n, r), of each group


class ViolationPool:
    """`PLACES` inputs for each rule of a requirement over a region, and the rules' multipliers.

    `rate` is the step of dual ascent and `headroom` what the rules are to be kept by; several
    groups trained at once share inputs and multipliers, the worst of them counts.
    """

    def __init__(
        self,
        requirement: Requirement,
        *,
        outputs: Outputs,
        output_size: int,
        rate: float,
        headroom: float,
        seed: int,
    ) -> None:
        region = requirement.region
        assert isinstance(region, Region)
        self.requirement, self.region, self.outputs = requirement, region, outputs
        self.rate, self.headroom = rate, headroom
        self.made = torch.Generator().manual_seed(seed)
        lower, upper = region.bounds()
        self.half = torch.as_tensor((upper - lower) / 2)
        one, nothing = self._fresh(1), torch.zeros(1, output_size, dtype=torch.float64)
        rules = requirement.violations(one, nothing).shape[-1]
        self.rules: IntArray = np.repeat(np.arange(rules), PLACES)
        self.points = self._fresh(len(self.rules))
        self.steps = torch.full((len(self.rules), 1), STRIDE, dtype=torch.float64)
        self.violations = torch.full((len(self.rules),), -np.inf, dtype=torch.float64)
        self.multipliers: Array = np.zeros(rules)

    def __len__(self) -> int:
        return len(self.rules)

    def refresh(self, parameters: Parameters, known: Rows | None = None) -> None:
        """Look at fresh inputs and at `known` rows, climb, and move the multipliers."""
        inputs = self._fresh(FRESH)
        if known is not None:
            inputs = torch.cat([inputs, torch.as_tensor(known.inputs)])
        self.violations = self._values(parameters, self.points)
        self._take_in(inputs, self._all(parameters, inputs))
        for _ in range(CLIMBS):
            self._climb(parameters)
        worst = self.violations.reshape(-1, PLACES).amax(1).numpy() + self.headroom
        # groups that have hardly been trained break all rules by far, which says nothing of later
        raised = self.multipliers + self.rate * np.minimum(worst, MOST)
        self.multipliers = np.where(worst > 0, raised, FALL * self.multipliers)

    def rows(self, number: int) -> tuple[Rows, Array] | None:
        """Rows of requirement `number` that are broken or nearly, and their hinges' weights."""
        weights = self.multipliers[self.rules] / PLACES
        active = np.flatnonzero((self.violations.numpy() > -ACTIVE) & (weights > 0))
        if not len(active):
            return None
        rows = self.requirement.rows_at(self.points.numpy()[active], self.rules[active], number)
        return rows, weights[active]

    def state(self) -> dict[str, NDArray[Any]]:
        """Inputs and multipliers, for a pool of the same rules to go on from."""
        return {"points": self.points.numpy(), "multipliers": self.multipliers}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned; from nothing where it is empty."""
        if state:
            self.points = torch.as_tensor(state["points"].copy())
            self.multipliers = state["multipliers"].copy()

    def _fresh(self, count: int) -> Tensor:
        """Random inputs and vertices, half and half on average."""
        inside = self.region.sample(count, self.made)
        extreme = self.region.extremes(count, self.made)
        which = torch.randint(len(inside) + len(extreme), (count,), generator=self.made)
        return torch.cat([inside, extreme])[which]

    def _all(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, rules): how far the worst group breaks each rule at each input."""
        outputs = self.outputs(parameters, inputs)
        device = outputs.device
        found = [self.requirement.violations(inputs.to(device), one.double()) for one in outputs]
        return torch.stack(found).amax(0).cpu()

    def _values(self, parameters: Parameters, points: Tensor) -> Tensor:
        """(n,): how far each input breaks its own rule."""
        own = torch.as_tensor(self.rules)[:, None]
        with torch.no_grad():
            return self._all(parameters, points).gather(1, own)[:, 0]

    def _take_in(self, inputs: Tensor, violations: Tensor) -> None:
        """The worst of `inputs` for each rule takes the place of its least violated input."""
        best, which = violations.detach().max(0)
        least, place = self.violations.reshape(-1, PLACES).min(1)
        better = best > least
        at = (torch.arange(len(best)) * PLACES + place)[better]
        self.points[at] = inputs[which[better]]
        self.violations[at], self.steps[at] = best[better], STRIDE

    def _climb(self, parameters: Parameters) -> None:
        """One step up the slope; kept where it helps, then longer, else half as long."""
        x = self.points.clone().requires_grad_(True)
        own = torch.as_tensor(self.rules)[:, None]
        (slope,) = torch.autograd.grad(self._all(parameters, x).gather(1, own).sum(), x)
        way = torch.nan_to_num(slope * self.half).sign()
        moved = self.region.project(self.points + self.steps * self.half * way)
        reached = self._values(parameters, moved)
        better = reached > self.violations
        self.points = torch.where(better[:, None], moved, self.points)
        self.violations = torch.where(better, reached, self.violations)
        self.steps = torch.where(
            better[:, None], (1.5 * self.steps).clamp_max(1.0), 0.5 * self.steps
        ).clamp_min(1e-3)
