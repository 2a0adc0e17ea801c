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
from cg4ai.members.mixture import Mixture
from cg4ai.parallel import check_jobs, count_jobs, fan_out
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, SeparationResult
from cg4ai.rules.requirement import as_whole_number
from cg4ai.rules.violations import OutputModel, check_finite, region_violations, sample_candidates
from cg4ai.seeds import derive_seed, generator

if TYPE_CHECKING:
    from cg4ai.rules import Requirement

# only methods that draw no random numbers of their own: NLopt's generator is not ours to seed
LOCAL = ("LN_COBYLA", "LN_BOBYQA", "LN_NELDERMEAD", "LN_SBPLX")
GLOBAL = ("GN_DIRECT", "GN_DIRECT_L")
LEAST_S = 1e-3  # to NLopt no seconds are no limit
PORTIONS = 2  # of the searches for each process, so that none waits long for the slowest


@dataclass(frozen=True)
class BlackBox(SeparatorDefaults):
    """One NLopt search of `evaluations` evaluations for each rule and start.

    Starts come from the centre, random inputs and up to `vertices` vertices: half the most
    violated, half at random, drawn by a seed of the rule's own. Global methods (GN_...) ignore the
    start and run once per rule. `seconds` is the most that one search takes.

    Rules are independent jobs: `n_jobs` of them are searched at a time, each in a process of its
    own, as threads would only wait for each other (None: 1, or what `joblib.parallel_config`
    says). Searches by count (`seconds` not given) find the same with any number of jobs.
    """

    takes_any_rule = True

    algorithm: str = "LN_COBYLA"
    starts: int = 8
    evaluations: int = 300
    vertices: int = 64
    seconds: float = math.inf
    n_jobs: int | None = None

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
        check_jobs(self.n_jobs)

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
        screened = sample_candidates(region, self.vertices, generator(seed))
        violations = region_violations(ensemble, requirement, screened)
        starts = 1 if self.algorithm in GLOBAL else self.starts
        chosen = np.concatenate(
            [
                pick_starts(own[:, None], starts, generator(derive_seed(seed, number, "rule")))
                for number, own in enumerate(violations.T)
            ]
        )
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
        """The best input reached from each start, (n, d); start i climbs rule `rules[i]`.

        A search looks at one input at a time, so that what it finds does not depend on which
        others its process has; on a CPU, where that is quicker.
        """
        near = ensemble.to("cpu") if isinstance(ensemble, Mixture) else ensemble
        portions = min(PORTIONS * count_jobs(self.n_jobs), len(points))
        order = np.argsort(np.arange(len(points)) % portions, kind="stable")
        parts = np.array_split(order, portions)
        found = fan_out(
            _Searches(self, near, requirement),
            [(points[part], rules[part]) for part in parts],
            n_jobs=self.n_jobs,
            threads=1,
            names=[f"the search of rules {', '.join(map(str, rules[part]))}" for part in parts],
        )
        reached = np.empty_like(points)
        reached[np.concatenate(parts)] = np.concatenate(found)
        return reached

    def thorough(self) -> BlackBox:
        """The same search with four times the starts, for a last look."""
        return replace(self, starts=4 * self.starts)

    def search(self, climb: _Climb) -> Array:
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


@dataclass(frozen=True)
class _Searches:
    """The work of one process: some points climb, each its own rule, one after the other."""

    separator: BlackBox
    ensemble: OutputModel
    requirement: Requirement

    def __call__(self, part: tuple[Array, IntArray]) -> Array:
        return np.stack(
            [
                self.separator.search(
                    _Climb(self.ensemble, self.requirement, rule=int(rule), start=point)
                )
                for point, rule in zip(*part, strict=True)
            ]
        )


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
