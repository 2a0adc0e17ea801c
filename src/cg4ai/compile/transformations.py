"""Compiles a problem: rules become structure of the members where they can, once, before the loop.

`TRANSFORMATIONS` is all that is done, in this order; each has a file of its own and takes and
returns a `CompiledProblem`. What none of them takes up is left to the rows of the master.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cg4ai.compile.caps import cap_members
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.decisions import set_decisions_apart
from cg4ai.compile.equalities import complete_members
from cg4ai.compile.margins import tighten_rates
from cg4ai.compile.output_sets import arrange_members
from cg4ai.compile.problem import Problem, check_exact_separation
from cg4ai.compile.shapes import shape_members
from cg4ai.compile.shield import shield_members
from cg4ai.settings import Settings

TRANSFORMATIONS: tuple[Callable[[CompiledProblem], CompiledProblem], ...] = (
    set_decisions_apart,  # rules on decisions bind no scores: they are left to the end
    shape_members,  # `Monotone`, `Curvature`: members are built so
    complete_members,  # `Equality`: members are completed to it
    cap_members,  # shapes beside rules over boxes: limits that keep the shapes
    arrange_members,  # `Range`, `Ordered`, `SumTo`: outputs are mapped into their set
    tighten_rates,  # rates: stricter by their margin, so that they hold on new inputs
    shield_members,  # rules over regions: members stand behind a shield, where an anchor exists
)


def compile_problem(problem: Problem, settings: Settings) -> CompiledProblem:
    """The problem for members that keep by construction what they can.

    What no member can keep, and what pricers and separators cannot handle, is refused.
    """
    compiled = CompiledProblem.from_problem(problem, settings.guarantee)
    for transformation in TRANSFORMATIONS:
        compiled = transformation(compiled)
    check_exact_separation(compiled)
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
