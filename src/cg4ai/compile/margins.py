"""Problems with rates: trained by rates that are stricter by a margin, audited by those asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.objectives import Supervised
from cg4ai.rules.rates import GroupRates

SPREAD = 0.3  # standard deviation of a class's score, as it usually is; 0.5 at most


def tighten_rates(problem: CompiledProblem) -> CompiledProblem:
    """The same problem with every rate stricter by its margin, so that it holds on new inputs."""
    if not any(isinstance(one, GroupRates) and one.margin for one in problem.requirements):
        return problem
    stricter = [
        one.tighten(_spread(problem, one)) if isinstance(one, GroupRates) else one
        for one in problem.requirements
    ]
    return replace(problem, requirements=tuple(stricter))


def _spread(problem: CompiledProblem, rate: GroupRates) -> float:
    """Of the scores that the rate is a mean of."""
    objective = problem.objective
    targets = np.asarray(objective.targets) if isinstance(objective, Supervised) else np.empty(0)
    if targets.ndim == 2 and rate.column < targets.shape[1]:
        return float(targets[:, rate.column].std())
    return SPREAD
