"""Problems with rates: trained by rates that are stricter by a margin, audited by those asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.data.arrays import is_among
from cg4ai.objectives import Supervised
from cg4ai.rules import Requirement
from cg4ai.rules.rates import DecisionRate, GroupRates

SPREAD = 0.3  # standard deviation of a class's score, as it usually is; 0.5 at most


def tighten_rates(problem: CompiledProblem) -> CompiledProblem:
    """The same problem with every rate stricter by its margin, so that it holds on new inputs."""
    if not any(isinstance(one, GroupRates) and one.margin for one in problem.requirements):
        return problem
    stricter = [
        one.tighten(_spread(problem, one))
        if isinstance(one, GroupRates) and _at_held_out(problem, one) is None
        else one
        for one in problem.requirements
    ]
    return replace(problem, requirements=(*stricter, *_honest(problem)))


def _honest(problem: CompiledProblem) -> Iterator[Requirement]:
    """Rates of decisions once more where no member was trained: there none is known by heart.

    Members that solve a weighted problem of their own for every price learn the groups of their
    rows far better than weights do, so that no margin by the sizes of groups is enough.
    """
    for one in problem.requirements:
        if isinstance(one, GroupRates) and (held := _at_held_out(problem, one)) is not None:
            yield held.tighten(_spread(problem, one), sampled=True)


def _at_held_out(problem: CompiledProblem, rate: GroupRates) -> GroupRates | None:
    """A rate of decisions with a margin of its own, at inputs held out; None without such ones."""
    own = isinstance(rate, DecisionRate) and rate.margin == "auto"
    held_out = problem.stated.held_out
    if not own or held_out is None:
        return None
    return rate.restrict_to(is_among(rate.points, held_out))


def _spread(problem: CompiledProblem, rate: GroupRates) -> float:
    """Of the scores or decisions that the rate is a mean of."""
    objective = problem.objective
    targets = np.asarray(objective.targets) if isinstance(objective, Supervised) else np.empty(0)
    if isinstance(rate, DecisionRate):
        return float((targets == rate.column).std())
    if targets.ndim == 2 and rate.column < targets.shape[1]:
        return float(targets[:, rate.column].std())
    return SPREAD
