"""Compiles a problem: rules become structure of the members where they can, once, before the loop.

`TRANSFORMATIONS` is all that is done, in this order; each has a file of its own and takes and
returns a `CompiledProblem`. What none of them takes up is left to the rows of the master.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.equalities import completed
from cg4ai.compile.margins import tightened
from cg4ai.compile.output_sets import arranged
from cg4ai.compile.problem import Problem, refuse_inexact
from cg4ai.compile.shapes import shaped
from cg4ai.compile.shield import through_shield
from cg4ai.compile.votes import voted
from cg4ai.settings import Settings

TRANSFORMATIONS: tuple[Callable[[CompiledProblem], CompiledProblem], ...] = (
    voted,  # rules on decisions: members vote, and the error rate is the loss
    shaped,  # `Monotone`, `Curvature`: members are built so
    completed,  # `Equality`: members are completed to it
    arranged,  # `Range`, `Ordered`, `SumTo`: outputs are mapped into their set
    tightened,  # rates: stricter by their margin, so that they hold on new inputs
    through_shield,  # rules over regions: members stand behind a shield, where an anchor exists
)


def compile_problem(problem: Problem, settings: Settings) -> CompiledProblem:
    """The problem for members that keep by construction what they can.

    What no member can keep, and what pricers and separators cannot handle, is refused.
    """
    compiled = CompiledProblem.as_stated(problem, settings.guarantee)
    for transformation in TRANSFORMATIONS:
        compiled = transformation(compiled)
    refuse_inexact(compiled)
    _check(compiled)
    return compiled


def _check(compiled: CompiledProblem) -> None:
    """What was made of a problem must be one as well: its members fit, its pricers can price it."""
    replace(
        compiled.stated,
        objective=compiled.objective,
        requirements=compiled.requirements,
        pricers=compiled.pricers,
        start=compiled.start,
        start_rows=compiled.start_rows,
    )
