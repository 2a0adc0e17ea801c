"""Turns a problem with rules over regions into one whose members are trained through a shield.

Rules over a region that bind one output vector at a time leave the master: every member is moved
into the set of outputs that keep them (`members.shielded`). What is left to the master are listed
inputs, rules that tie inputs together, and rules for which no anchor exists. docs/mathematics.md
says what that does to the theory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.output_sets import find_output_set
from cg4ai.compile.problem import find_softmax_groups
from cg4ai.errors import InvalidInput
from cg4ai.members.shielded import Shield, ShieldedArchitecture, ShieldedMembers
from cg4ai.objectives import Objective
from cg4ai.protocols import Architecture, MemberChange, Members
from cg4ai.records import IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.equality import Equality
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Region
from cg4ai.rules.shapes import Shape

if TYPE_CHECKING:
    from cg4ai.anchors.affine_maps import AffineMap


def shield_members(problem: CompiledProblem) -> CompiledProblem:
    """The problem with its members behind a shield, where that is asked for and can be done.

    What stands against it is noted, and the master keeps the rule, by rows where it is broken; with
    the guarantee "shielded" it is an error. Phases of the problem's own keep rules their own way.
    """
    if problem.guarantee == "attacked" or problem.stated.phases is not None:
        return problem
    ruled = [
        one
        for one in problem.requirements
        if isinstance(one.region, Region) and not isinstance(one, Equality)
    ]
    if not ruled:
        return problem
    # few problems need an anchor, and what finds one
    from cg4ai.anchors.search import Anchor, NoAnchor
    from cg4ai.compile.anchor import choose_anchor
    from cg4ai.members.affine_maps import build_affine_member

    obstacle = _obstacle(problem)
    if not obstacle:
        found = choose_anchor(problem, ruled)
        obstacle = found.reason if isinstance(found, NoAnchor) else ""
    if obstacle and problem.guarantee == "shielded":
        raise InvalidInput(
            f"no shield is possible, but guarantee='shielded' asks for one: {obstacle}",
            code="anchor",
        )
    if obstacle:
        return replace(
            problem, notes=(*problem.notes, f"no shield, rows of the master instead: {obstacle}")
        )
    assert isinstance(found, Anchor)
    how = "constant" if found.map.is_constant else "affine"
    note = f"{how} anchor with room {found.room:.3g}, by closed form"
    guards = tuple(guard_of(one, problem.layout.output_size) for one in ruled)
    shield = Shield(build_affine_member(found.map), guards, _coupled(problem))
    return _shielded(problem, shield, ruled, note, unit=_measure_unit(problem, found.map))


def _coupled(problem: CompiledProblem) -> tuple[tuple[int, ...], ...]:
    """Sets of outputs that must move together: tied by an equality, or sharing probability."""
    tied = [
        np.flatnonzero(row)
        for one in problem.requirements
        if isinstance(one, Equality)
        for row in one.matrix
    ]
    inside = find_output_set(problem)
    tied += [np.array(one) for one in ([] if inside is None else inside.tied_outputs)]
    groups = find_softmax_groups(problem)
    ends = np.cumsum([0, *groups])
    tied += [np.arange(first, last) for first, last in pairwise(ends)] if groups else []
    return _merge_sets(tied, problem.layout.output_size)


def _merge_sets(sets: Sequence[IntArray], size: int) -> tuple[tuple[int, ...], ...]:
    """The sets with those that share outputs made one: each output is in one set at most."""
    if not sets:
        return ()
    owner = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    outputs = np.concatenate(sets)
    graph = sparse.csr_matrix((np.ones(len(outputs)), (owner, outputs)), (len(sets), size))
    # a set and its outputs are neighbours: as many entries as the sets have
    both = sparse.block_array([[None, graph], [graph.T, None]])
    _, labels = connected_components(both, directed=False)
    own = labels[len(sets) :]
    return tuple(
        tuple(np.flatnonzero(own == label).tolist()) for label in dict.fromkeys(labels[: len(sets)])
    )


def _obstacle(problem: CompiledProblem) -> str:
    """Why members cannot be put into a frame one by one; empty if they can."""
    shapes = [one.name for one in problem.kept if isinstance(one, Shape)]
    if shapes:
        return f"a shield would break {shapes[0]}, because its step depends on the input"
    if find_output_set(problem) is not None and any(
        isinstance(one, Equality) for one in problem.requirements
    ):
        return "outputs are reconciled with balances and ranges, which a shield's anchor may break"
    if len(problem.layout) > 1:
        return f"members fill {len(problem.layout)} blocks, and a rule couples these"
    exact = [
        [type(one).__name__ for one in iterate_pricers(pricer) if one.capabilities.proves]
        for pricer in problem.pricers
    ]
    if all(exact):  # beside a pricer that proves nothing there are no bounds to lose
        return f"{exact[0][0]} proves bounds for members as they are"
    return ""


def _measure_unit(problem: CompiledProblem, anchor: AffineMap) -> float:
    """How far the outputs of an anchor of least loss vary, a power of two; 1 if they do not.

    Labels would say more of the units that outputs are in: with them it is 1, too.
    """
    if not isinstance(problem.objective, Objective):
        return 1.0
    spread = anchor.slopes * problem.objective.inputs.std(axis=0)
    size = float(np.sqrt(np.square(spread).sum(1).mean()))
    return float(2.0 ** np.round(np.log2(size))) if 0 < size < np.inf else 1.0


def _shielded(
    problem: CompiledProblem,
    shield: Shield,
    kept: Sequence[Requirement],
    note: str,
    *,
    unit: float,
) -> CompiledProblem:
    """The problem with shielded members, and without the rules that these keep.

    Outputs of the members that are trained are in multiples of `unit`.
    """

    def members(inner: Members) -> Members:
        return ShieldedMembers(inner, shield)

    free = not find_softmax_groups(problem) and find_output_set(problem) is None

    def architecture(inner: Architecture) -> Architecture:
        own = inner if unit == 1 else inner.set_output_unit(unit)
        return ShieldedArchitecture(own, shield, holds_length=free)

    return problem.with_kept_rules(
        kept,
        pricers=tuple(
            one.with_members(MemberChange(architecture, members)) for one in problem.pricers
        ),
        start=tuple((members(start), blocks) for start, blocks in problem.start),
        notes=(*problem.notes, note),
        shield=shield,
        unshielded=problem,
    )
