"""Problems with rules on decisions: these bind no scores, so that the master never sees them.

The loop finds the mixture of scores that all other rules bind. How it decides is chosen at the end
(`cg4ai.colgen.decisions`), by scores that the same pricers train.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.objectives import Supervised
from cg4ai.rules import DecisionRate, OutputRule, Requirement
from cg4ai.rules.regions import Region


def set_decisions_apart(problem: CompiledProblem) -> CompiledProblem:
    """The same problem without its rules on decisions, which are still asked for.

    Where rules over regions stand beside them, a constant member for each class takes part in
    decisions: a class on which even these agree is one that the other rules ask for.
    """
    ruled = [one for one in problem.requirements if isinstance(one, DecisionRate)]
    if not ruled:
        return problem
    _check(problem, ruled[0])
    others = [one for one in problem.requirements if not isinstance(one, DecisionRate)]
    made = replace(problem.with_kept_rules(ruled), kept=problem.kept)
    if others:
        names = " and ".join(one.name for one in others)
        note = f"{names}: about scores; decisions have thresholds, which {ruled[0].name} binds"
        made = replace(made, notes=(*made.notes, note))
    if decides_by_agreement(problem):
        classes = problem.layout.output_size
        constant = ConstantMembers(np.eye(classes), problem.objective.inputs.shape[1])
        made = replace(made, start=[(constant, np.zeros(classes, np.int64)), *made.start])
    return made


def decides_by_agreement(problem: CompiledProblem) -> bool:
    """Whether rules that every member keeps may say which class is decided for."""
    return any(
        isinstance(one.region, Region) or isinstance(one, OutputRule) for one in problem.asked
    )


def _check(problem: CompiledProblem, rule: Requirement) -> None:
    objective = problem.objective
    labels = objective.labels
    if not isinstance(objective, Supervised) or labels is None or labels.ndim != 1:
        raise InvalidInput(
            f"{rule.name} is about decisions between classes, and this objective has no class "
            "labels; for numbers use Rate",
            code="unsupported",
        )
    if len(problem.layout) > 1:
        raise InvalidInput(
            f"{rule.name} is about decisions of one predictor, got {len(problem.layout)} blocks",
            code="unsupported",
        )
