"""`BlackBox`: the paper's search without gradients (NLopt), for trees and other step functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cg4ai.colgen.separation.scan import collect_violations, get_search_region, pick_starts
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.extras import import_optional
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, SeparationResult
from cg4ai.rules.requirement import as_whole_number
from cg4ai.rules.violations import OutputModel, check_finite, region_violations, sample_candidates

if TYPE_CHECKING:
    from cg4ai.rules import Requirement

# only methods that draw no random numbers of their own: NLopt's generator is not ours to seed
LOCAL = ("LN_COBYLA", "LN_BOBYQA", "LN_NELDERMEAD", "LN_SBPLX")
GLOBAL = ("GN_DIRECT", "GN_DIRECT_L")
LEAST_S = 1e-3  # to NLopt no seconds are no limit


@dataclass(frozen=True)
class BlackBox(SeparatorDefaults):
    """One NLopt search of `evaluations` evaluations for each rule and start.

    Starts come from the centre, random inputs and up to `vertices` vertices: half the most
    violated, half at random. Global methods (GN_...) ignore the start and run once per rule.
    Searches run one by one: threads only waited for each other. `seconds` is the most that one of
    them takes.
    """

    algorithm: str = "LN_COBYLA"
    starts: int = 8
    evaluations: int = 300
    vertices: int = 64
    seconds: float = math.inf

    def __post_init__(self) -> None:
        if self.algorithm not in LOCAL + GLOBAL:
            hint = did_you_mean(str(self.algorithm), LOCAL + GLOBAL)
            raise InvalidInput(
                f"unknown algorithm {self.algorithm!r}{hint}; use one of "
                f"{', '.join(LOCAL + GLOBAL)}",
                code="unknown-name",
            )
        for what in ("starts", "evaluations"):
            as_whole_number(getattr(self, what), what, least=1)
        as_whole_number(self.vertices, "vertices", least=0)

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
        region = get_search_region(requirement, "BlackBox")
        generator = torch.Generator().manual_seed(seed)
        screened = sample_candidates(region, self.vertices, generator)
        violations = region_violations(ensemble, requirement, screened)
        starts = 1 if self.algorithm in GLOBAL else self.starts
        chosen = pick_starts(violations, starts, generator)
        rules = np.repeat(np.arange(len(chosen)), chosen.shape[1])
        points = self.climb(ensemble, requirement, screened[chosen.ravel()], rules)
        effort: dict[str, Any] = {
            "search": f"NLopt {self.algorithm}",
            "starts": len(rules),
            "evaluations": self.evaluations * len(rules) + len(screened),
            "seed": seed,
        }
        reached = np.concatenate([screened, points])
        return collect_violations(
            ensemble, requirement, reached, limit=limit, tolerance=tolerance, effort=effort
        )

    def climb(
        self, ensemble: OutputModel, requirement: Requirement, points: Array, rules: IntArray
    ) -> Array:
        """The best input reached from each start, (n, d); start i climbs rule `rules[i]`."""
        climbs = [
            _Climb(ensemble, requirement, rule=int(rule), start=point)
            for rule, point in zip(rules, points, strict=True)
        ]
        return np.stack([self._search(climb) for climb in climbs])

    def thorough(self) -> BlackBox:
        """The same search with four times the starts, for a last look."""
        return replace(self, starts=4 * self.starts)

    def _search(self, climb: _Climb) -> Array:
        """The most violated input seen by one search, (d,)."""
        free = climb.free
        if len(free) == 0:
            return climb.best_input
        nlopt = import_optional("nlopt")
        # raised when a search cannot go on; the best point seen before that is kept
        ended = (nlopt.RoundoffLimited, getattr(nlopt, "runtime_error", RuntimeError))
        optimiser = nlopt.opt(getattr(nlopt, self.algorithm), len(free))
        optimiser.set_lower_bounds(np.zeros(len(free)))
        optimiser.set_upper_bounds(np.ones(len(free)))
        optimiser.set_initial_step(0.25)
        optimiser.set_maxeval(self.evaluations)
        if math.isfinite(self.seconds):
            optimiser.set_maxtime(max(self.seconds, LEAST_S))
        optimiser.set_xtol_abs(1e-9)
        optimiser.set_max_objective(climb)
        start = (climb.best_input - climb.lower)[free] / climb.width[free]
        try:
            optimiser.optimize(np.clip(start, 0.0, 1.0))
        except ended:
            if optimiser.last_optimize_result() == nlopt.FORCED_STOP:  # the mixture itself failed
                raise
        return climb.best_input


class _Climb:
    """The objective in unit coordinates; remembers the best input it was asked about."""

    def __init__(
        self, ensemble: OutputModel, requirement: Requirement, *, rule: int, start: Array
    ) -> None:
        self.ensemble, self.requirement, self.rule = ensemble, requirement, rule
        self.region = get_search_region(requirement, "BlackBox")
        self.lower, upper = self.region.bounds()
        self.width = upper - self.lower
        self.free = np.flatnonzero(self.width > 0)
        self.best_input = start
        self.best_value = -np.inf

    def __call__(self, unit: Array, gradient: Array) -> float:
        if not np.isfinite(unit).all():  # COBYLA asks about such points when its model degenerates
            return -1e300
        point = self.best_input.copy()
        point[self.free] = self.lower[self.free] + unit * self.width[self.free]
        inputs = self.region.pull(torch.as_tensor(point)[None])
        with torch.no_grad():
            found = self.requirement.violations(inputs, self.ensemble.outputs(inputs))
        value = float(found[0, self.rule])
        check_finite(np.array([value]), self.requirement.name)
        if value > self.best_value:
            self.best_value, self.best_input = value, inputs[0].numpy()
        return value
