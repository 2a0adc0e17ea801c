"""Problems with rules on outputs at every input: members are arranged to keep them, none is priced.

Ranges, orders and sums are one convex set of outputs; every member is mapped into it. Beside
equalities the set is that of both (`rules.reconciliation`).
"""

from __future__ import annotations

import numpy as np

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.problem import find_softmax_groups
from cg4ai.errors import InvalidInput
from cg4ai.members.output_sets import ArrangedArchitecture, ArrangedMembers
from cg4ai.members.reconciled import ReconciledArchitecture, ReconciledMembers
from cg4ai.objectives import Supervised
from cg4ai.protocols import Architecture, MemberChange, Members
from cg4ai.records import Array
from cg4ai.rules.equality import Equality
from cg4ai.rules.output_sets import OutputRule, OutputSet, join_output_rules
from cg4ai.rules.reconciliation import reconcile


def find_output_set(problem: CompiledProblem) -> OutputSet | None:
    """The set of outputs that keep all such rules; None without one. What cannot be is refused."""
    asked = [*problem.kept, *problem.requirements]
    rules = [one for one in asked if isinstance(one, OutputRule)]
    if not rules:
        return None
    names = " and ".join(one.name for one in rules)
    if len(problem.layout) > 1:
        raise InvalidInput(
            f"{names}: members fill {len(problem.layout)} blocks, so that none knows all outputs; "
            "state the rule as Linear over a Box, or use one block",
            code="unsupported",
        )
    if find_softmax_groups(problem):
        raise InvalidInput(
            f"{names}: the outputs are probabilities, which lie in [0, 1] and sum to 1 as they "
            "are; set scores='logit' to bind logits, or bind probabilities by Linear over a Box",
            code="unsupported",
        )
    return join_output_rules(rules, problem.layout.output_size)


def arrange_members(problem: CompiledProblem) -> CompiledProblem:
    """The same problem for members that keep its rules on outputs at every input."""
    source = find_output_set(problem)
    if source is None:
        return problem
    rules = [one for one in problem.requirements if isinstance(one, OutputRule)]
    equalities = [one for one in problem.requirements if isinstance(one, Equality)]
    balanced = None
    if equalities:  # members are completed to these already
        size = problem.objective.inputs.shape[1]
        balanced = reconcile(
            equalities, rules, input_size=size, reference=_usual_outputs(problem.objective)
        )

    def members(inner: Members) -> Members:
        if balanced is not None:
            return ReconciledMembers(inner, balanced)
        return ArrangedMembers(inner, source)

    def architecture(inner: Architecture) -> Architecture:
        if balanced is not None:
            return ReconciledArchitecture(inner, balanced)
        return ArrangedArchitecture(inner, source)

    return problem.with_kept_rules(
        rules,
        pricers=tuple(
            one.with_members(MemberChange(architecture, members)) for one in problem.pricers
        ),
        start=tuple((members(start), blocks) for start, blocks in problem.start),
    )


def _usual_outputs(objective: object) -> Array | None:
    """(r,): the mean of the labels, where these are outputs."""
    if not isinstance(objective, Supervised) or np.ndim(objective.targets) != 2:
        return None
    return np.asarray(np.asarray(objective.targets, np.float64).mean(axis=0))
