"""Problems with equalities: every member is completed to them, so that nothing is left to price."""

from __future__ import annotations

from dataclasses import replace

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput
from cg4ai.members.equalities import CompletedArchitecture, CompletedMembers
from cg4ai.protocols import Architecture, MemberChange, Members
from cg4ai.rules.equality import Completion, Equality, join_equalities
from cg4ai.rules.output_sets import OutputRule
from cg4ai.rules.reconciliation import find_balances


def find_completion(problem: CompiledProblem) -> Completion | None:
    """What keeps all equalities of the problem; None if there are none.

    With several blocks no member knows all outputs: equalities over a region or a list stay rows
    of the master, and one without inputs is refused.
    """
    equalities = [one for one in problem.requirements if isinstance(one, Equality)]
    if not equalities:
        return None
    if len(problem.layout) == 1:
        rules = [one for one in problem.requirements if isinstance(one, OutputRule)]
        rules += [one for one in problem.kept if isinstance(one, OutputRule)]
        equalities = find_balances(equalities, rules)
        return join_equalities(equalities, input_size=problem.objective.inputs.shape[1])
    for one in equalities:
        if one.inputs is None:
            raise InvalidInput(
                f"{one.name} names no inputs and ties outputs of {len(problem.layout)} blocks "
                "together, so that no member can keep it; give a region or inputs, or one block",
                code="infeasible",
            )
    return None


def _refuse_rounding(problem: CompiledProblem, completion: Completion) -> None:
    """Before anything is trained: outputs of very different units lose too many digits."""
    forms = [(one.offset, one.slope, one.basis) for one in (completion, completion.project())]
    for rule in problem.requirements:
        if isinstance(rule, Equality) and not all(rule.is_kept_by(*form) for form in forms):
            raise InvalidInput(
                f"{rule.name} ties outputs of very different sizes together, so that completed "
                "members would miss it by more than rounding; state these outputs in units in "
                "which their coefficients are alike",
                code="infeasible",
            )


def complete_members(problem: CompiledProblem) -> CompiledProblem:
    """The same problem for members that keep its equalities at every input."""
    completion = find_completion(problem)
    if completion is None:
        return problem
    _refuse_rounding(problem, completion)

    def fit_completion(inner: Members | Architecture) -> Completion:
        """For members that give what is free, or all outputs, which are then projected."""
        free = inner.output_size == completion.free_size
        return completion if free else completion.project()

    everywhere = {
        id(one): one.extend_to_all_inputs()
        for one in problem.requirements
        if isinstance(one, Equality)
    }

    def members(inner: Members) -> Members:
        return CompletedMembers(inner, fit_completion(inner))

    def architecture(inner: Architecture) -> Architecture:
        return CompletedArchitecture(inner, fit_completion(inner))

    return replace(
        problem,
        pricers=[one.with_members(MemberChange(architecture, members)) for one in problem.pricers],
        start=[(members(start), blocks) for start, blocks in problem.start],
        requirements=[everywhere.get(id(one), one) for one in problem.requirements],
        asked=tuple(everywhere.get(id(one), one) for one in problem.asked),
    )
