"""Problems with shapes (`Monotone`, `Curvature`): every member is built so that it keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.output_sets import find_output_set
from cg4ai.ensemble.shapes import find_obstacle
from cg4ai.errors import InvalidInput
from cg4ai.members import slopes as moves
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.members.signed_networks import SignedArchitecture
from cg4ai.protocols import Architecture, MemberChange, Members
from cg4ai.rules.equality import Equality
from cg4ai.rules.output_sets import OutputSet
from cg4ai.rules.shapes import Shape


def find_shapes(problem: CompiledProblem) -> tuple[Shape, ...]:
    return tuple(one for one in problem.requirements if isinstance(one, Shape))


def shape_members(problem: CompiledProblem) -> CompiledProblem:
    """The same problem for members that keep its shapes at every input; others are refused."""
    shapes = find_shapes(problem)
    if not shapes:
        return problem
    _check(problem, shapes)

    def members(inner: Members) -> Members:
        return inner

    def architecture(inner: Architecture) -> Architecture:
        if isinstance(inner, SignedArchitecture):
            return inner
        if not isinstance(inner, NetworkArchitecture):
            raise InvalidInput(
                f"{shapes[0].name} cannot be built into members of {type(inner).__name__}; use "
                "networks, trees or boosting",
                code="unsupported",
            )
        return SignedArchitecture(inner, shapes)

    change = MemberChange(architecture, members)
    return problem.with_kept_rules(
        shapes,
        pricers=tuple(one.with_shapes(shapes).with_members(change) for one in problem.pricers),
    )


def _check(problem: CompiledProblem, shapes: Sequence[Shape]) -> None:
    """Refuse what does not go together with shapes, before anything is trained."""
    first = shapes[0].name
    if len(problem.layout) > 1:
        raise InvalidInput(
            f"{first} is for members that give all outputs, these fill {len(problem.layout)} "
            "blocks; use one block",
            code="unsupported",
        )
    for one in problem.requirements:
        if isinstance(one, Equality):
            raise InvalidInput(
                f"{first} and {one.name} cannot both be kept by construction: completing outputs "
                "to an equality moves them with the input; state the equality as Linear(..., '==') "
                "at listed inputs",
                code="infeasible",
            )
    source = find_output_set(problem)
    if source is not None:
        _check_set(source, shapes, problem.objective.inputs.shape[1])
    for number, (members, _) in enumerate(problem.start):
        for shape in shapes:
            if reason := find_obstacle(members, shape):
                raise InvalidInput(
                    f"start members {number} do not keep {shape.name} by how they are built: "
                    f"{reason}; leave them out, or build them so",
                    code="conflict",
                )
    for pricer in problem.pricers:
        for asked in iterate_pricers(pricer):
            by_gradients = asked.trained_architecture() is not None
            if not (asked.inner_parts() or by_gradients or asked.capabilities.keeps_shapes):
                raise InvalidInput(
                    f"{first} cannot be built into what {type(asked).__name__} makes; use networks "
                    "(hidden=() for linear ones), trees or boosting",
                    code="unsupported",
                )


def _check_set(source: OutputSet, shapes: Sequence[Shape], input_size: int) -> None:
    """Refuse shapes that mapping outputs into a set would not keep."""
    size = source.output_size
    if any(shape.logits for shape in shapes):
        raise InvalidInput(
            f"{shapes[0].name} is about logits, which a Range or Ordered would change",
            code="unsupported",
        )
    targets = moves.find_output_moves(shapes, size, input_size)
    after = moves.map_into_set(targets, source)
    for output in range(size):
        beyond = after[output] & ~targets[output]
        if beyond.any():
            feature = int(np.flatnonzero(beyond.any(axis=-1))[0])
            raise InvalidInput(
                f"{shapes[0].name} cannot be kept beside the other rules on outputs: output "
                f"{output} is sorted with others, clamped or made to sum, which changes how it "
                f"moves with feature {feature}; outputs in order need the same signs, a sum none, "
                "and what is convex everywhere can have a lower end alone, what is concave an "
                "upper one, unless it is constant",
                code="infeasible",
            )
