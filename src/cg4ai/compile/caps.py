"""Problems with shapes and rules over regions: outputs are clamped to limits that keep the shapes.

A shield moves outputs by a step that depends on the input, and monotone outputs do not stay so.
Where a rule bounds single outputs over a box there is another way: `rules.caps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.output_sets import find_output_set
from cg4ai.compile.problem import find_softmax_groups
from cg4ai.errors import InvalidInput
from cg4ai.members import slopes as moves
from cg4ai.members.capped import CappedArchitecture, CappedMembers
from cg4ai.protocols import Architecture, MemberChange, Members
from cg4ai.rules import Requirement
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.caps import Caps, Unfit, build_caps, compute_gap, join_caps
from cg4ai.rules.equality import Equality
from cg4ai.rules.output_sets import OutputSet
from cg4ai.rules.regions import Region
from cg4ai.rules.shapes import Shape

ALLOWED_GAP = 1e-9  # of the limits' sizes, by which a lower one may lie above an upper one


def cap_members(problem: CompiledProblem) -> CompiledProblem:
    """The problem with members behind limits that keep its shapes and its rules over boxes.

    Rules for which there are no such limits stay, and a note says why; rules that contradict each
    other beside the shapes are refused.
    """
    shapes = [one for one in problem.kept if isinstance(one, Shape)]
    ruled = [
        one
        for one in problem.requirements
        if isinstance(one.region, Region) and not isinstance(one, Equality)
    ]
    asked = problem.guarantee != "attacked" and problem.stated.phases is None
    if not (shapes and ruled and asked):
        return problem
    source = find_output_set(problem)
    found: list[tuple[Requirement, Caps]] = []
    notes = []
    for rule in ruled:
        try:
            found.append((rule, _build(problem, rule, shapes, source)))
        except Unfit as reason:
            notes.append(f"{rule.name} has no limits that keep {shapes[0].name}: {reason}")
    if not found:
        return replace(problem, notes=(*problem.notes, *notes))
    caps = join_caps([one for _, one in found])
    names = [rule.name for rule, one in found for _ in range(len(one.output))]
    _refuse_contradictions(caps, names, shapes, source)

    def members(inner: Members) -> Members:
        return CappedMembers(inner, caps)

    def architecture(inner: Architecture) -> Architecture:
        return CappedArchitecture(inner, caps)

    return problem.with_kept_rules(
        [rule for rule, _ in found],
        pricers=tuple(
            one.with_members(MemberChange(architecture, members)) for one in problem.pricers
        ),
        start=tuple((members(start), blocks) for start, blocks in problem.start),
        notes=(*problem.notes, *notes),
    )


def _build(
    problem: CompiledProblem, rule: Requirement, shapes: Sequence[Shape], source: OutputSet | None
) -> Caps:
    rules, size = rule.normal_form, problem.layout.output_size
    if not isinstance(rules, AffineRules):
        raise Unfit("it is not linear in the outputs")
    if any(shape.logits or shape.ordered for shape in shapes):
        raise Unfit("the shape is about several outputs together")
    groups = find_softmax_groups(problem)
    if not groups:
        may = moves.find_output_moves(shapes, size, rules.input_size)
        return build_caps(rules, rule.region, may, source)
    named = {shape.output for shape in shapes}
    share = shapes[0].output
    if len(groups) > 1 or not isinstance(share, int) or (size > 2 and len(named) > 1):
        raise Unfit("the shapes are about several classes")
    allowed = np.ones((rules.input_size, 4), bool)
    for shape in shapes:
        own = moves.find_allowed_moves([shape], rules.input_size)
        allowed &= own if shape.output == share else own[..., moves.OPPOSITE]
    may = np.repeat(allowed[None], size, axis=0)
    return build_caps(rules, rule.region, may, None, share=share)


def _refuse_contradictions(
    caps: Caps, names: Sequence[str], shapes: Sequence[Shape], source: OutputSet | None
) -> None:
    """Refuse limits that no output of these shapes can keep together, or beside its range."""
    ends = _ends(caps, source)
    for one, name in enumerate(names):
        output, side = int(caps.output[one]), int(caps.side[one])
        end, reached = ends[0 if side > 0 else 1][output], caps.find_extremes(one, -side)
        if np.isfinite(end) and side * (reached - end) < -_tolerance(reached, end):
            raise InvalidInput(
                f"{name} and {shapes[0].name} leave output {output} no numbers: with the shape it "
                f"would be {'at most' if side > 0 else 'at least'} {reached:g} at some inputs, and "
                f"it is {'at least' if side > 0 else 'at most'} {end:g}; change one of them",
                code="infeasible",
            )
    uppers, lowers = np.flatnonzero(caps.side > 0), np.flatnonzero(caps.side < 0)
    for upper in uppers:
        for lower in lowers[caps.output[lowers] == caps.output[upper]]:
            gap = compute_gap(caps, int(lower), int(upper))
            sizes = np.abs(caps.offset[[lower, upper]]).max()
            if gap > _tolerance(float(sizes), 0.0):
                both = dict.fromkeys((names[int(lower)], names[int(upper)]))
                raise InvalidInput(
                    f"{' and '.join(both)} contradict {shapes[0].name}: output "
                    f"{int(caps.output[upper])} would be at least {gap:.4g} above its upper limit "
                    "at some inputs, because the shape carries limits from one input to others; "
                    "change one of them",
                    code="infeasible",
                )


def _ends(caps: Caps, source: OutputSet | None) -> tuple[np.ndarray, np.ndarray]:
    """(r,) each: the ends of the outputs' ranges."""
    size = caps.output_size
    if caps.share is not None:
        return np.zeros(size), np.ones(size)
    if source is None:
        return np.full(size, -np.inf), np.full(size, np.inf)
    return source.low, source.high


def _tolerance(one: float, other: float) -> float:
    finite = [abs(size) for size in (one, other) if np.isfinite(size)]
    return ALLOWED_GAP * max(1.0, *finite) if finite else 0.0
