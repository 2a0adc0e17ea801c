"""`GradientAscent`: climb the violation from many starts at once, inside a region."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.separation.blackbox import BlackBox
from cg4ai.colgen.separation.scan import collect_violations, get_search_region, pick_starts
from cg4ai.errors import InvalidInput
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, SeparationResult
from cg4ai.rules.regions import Ball
from cg4ai.rules.requirement import as_whole_number
from cg4ai.rules.violations import OutputModel, check_finite, region_violations, sample_candidates

if TYPE_CHECKING:
    from cg4ai.rules import Requirement


@dataclass(frozen=True)
class GradientAscent(SeparatorDefaults):
    """Projected gradient ascent with a step of its own for every start.

    Each rule gets `starts` starting points out of the centre, random inputs and up to `vertices`
    vertices (all of them if there are no more): half the most violated, half at random. A step
    that improves is taken and the next is longer, one that does not is halved. `step_size` is the
    first step relative to the region's half-width; `batch` bounds how many points climb in one
    call. From the `polish` worst points reached NLopt climbs on: its long first steps leave ridges
    where following the slope gets stuck.
    """

    takes_any_rule = True

    starts: int = 64
    steps: int = 60
    step_size: float = 0.25
    vertices: int = 256
    batch: int = 16384
    polish: int = 0

    def __post_init__(self) -> None:
        lowest = {"starts": 1, "steps": 0, "vertices": 0, "batch": 1, "polish": 0}
        for what, least in lowest.items():
            as_whole_number(getattr(self, what), what, least=least)
        if not (isinstance(self.step_size, int | float) and 0 < self.step_size <= 2):
            raise InvalidInput(f"step_size must be in (0, 2], got {self.step_size!r}", code="range")

    def find(
        self,
        ensemble: OutputModel,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        """At most `limit` distinct rows violated by more than `tolerance`, worst first."""
        region = get_search_region(requirement, "GradientAscent")
        if not ensemble.differentiable:
            raise InvalidInput(
                "GradientAscent needs members with gradients, but some of the mixture have none "
                "(trees, constants by table); use separator=BlackBox()",
                code="unsupported",
            )
        generator = torch.Generator().manual_seed(seed)
        screened = sample_candidates(region, self.vertices, generator)
        violations = region_violations(ensemble, requirement, screened)
        chosen = pick_starts(violations, self.starts, generator)
        points, rules = screened[chosen.ravel()], np.repeat(np.arange(len(chosen)), chosen.shape[1])
        climbed = [
            self._climb(ensemble, requirement, points[part], rules[part])
            for part in np.array_split(np.arange(len(points)), math.ceil(len(points) / self.batch))
        ]
        reached = np.concatenate([screened, *climbed])
        if self.polish:
            reached = np.concatenate([reached, self._polished(ensemble, requirement, reached)])
        effort: dict[str, Any] = {
            "search": "gradient ascent",
            "starts": len(points),
            "steps": self.steps,
            "screened": len(screened),
            "polished": self.polish,
            "evaluations": len(screened) + len(points) * (self.steps + 1),
            "seed": seed,
        }
        return collect_violations(
            ensemble, requirement, reached, limit=limit, tolerance=tolerance, effort=effort
        )

    def thorough(self) -> GradientAscent:
        """The same with more vertices, eight times the starts, twice the steps, and a polish."""
        return replace(
            self,
            starts=8 * self.starts,
            steps=2 * self.steps,
            vertices=max(self.vertices, 2**15),
            polish=max(self.polish, 5),
        )

    def _polished(self, ensemble: OutputModel, requirement: Requirement, points: Array) -> Array:
        """Where NLopt gets to from the worst points, each climbing the rule it breaks most."""
        violations = region_violations(ensemble, requirement, points)
        worst = np.argsort(-violations.max(axis=1), kind="stable")[: self.polish]
        rules = violations[worst].argmax(axis=1)
        return BlackBox(evaluations=200).climb(ensemble, requirement, points[worst], rules)

    def _climb(
        self, ensemble: OutputModel, requirement: Requirement, points: Array, rules: IntArray
    ) -> Array:
        """The best point reached from each start, (n, d)."""
        region = get_search_region(requirement, "GradientAscent")
        own = torch.as_tensor(rules, device=ensemble.device)[:, None]

        def value(inputs: Tensor) -> tuple[Tensor, Tensor]:
            x = inputs.detach().requires_grad_(True)
            violation = requirement.violations(x, ensemble.outputs(x)).gather(-1, own)[:, 0]
            if not violation.requires_grad:  # a rule that no output moves, such as a constant
                return violation, torch.zeros_like(x)
            (slope,) = torch.autograd.grad(violation.sum(), x, materialize_grads=True)
            return violation.detach(), slope

        lower, upper = (torch.as_tensor(end, device=ensemble.device) for end in region.bounds())
        half = (upper - lower) / 2
        euclidean = isinstance(region, Ball) and region.norm == 2
        x = torch.as_tensor(points, device=ensemble.device)
        best, slope = value(x)
        step = torch.full((len(x), 1), self.step_size, dtype=x.dtype, device=ensemble.device)
        # half of the starts move all coordinates alike, which is quick to corners; the others
        # follow the slope, which is better inside
        alike = (torch.arange(len(x), device=ensemble.device) % 2 == 0)[:, None]
        for _ in range(self.steps):
            way = _direction(slope * half, alike & (not euclidean), euclidean=euclidean)
            moved = region.approach(x + step * half * way)
            reached, new_slope = value(moved)
            better = (reached > best)[:, None]
            x = torch.where(better, moved, x)
            slope = torch.where(better, new_slope, slope)
            best = torch.where(better[:, 0], reached, best)
            step = torch.where(better, (1.5 * step).clamp_max(2.0), 0.5 * step)
        found = x.cpu().numpy()
        check_finite(best.cpu().numpy(), requirement.name)
        return np.asarray(found, dtype=np.float64)


def _direction(slope: Tensor, alike: Tensor, *, euclidean: bool) -> Tensor:
    """Steps of length one in the region's norm, up the slope (in units of half-widths)."""
    slope = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
    order = 2.0 if euclidean else math.inf
    length: Tensor = torch.linalg.vector_norm(slope, ord=order, dim=-1, keepdim=True)
    return torch.where(alike, slope.sign(), slope / length.clamp_min(1e-300))
