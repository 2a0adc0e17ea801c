"""Which rules a mixture keeps by the structure of its members; of equalities, by their arrays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cg4ai.ensemble import shapes
from cg4ai.ensemble.output_sets import keeps_set
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.equality import Equality
from cg4ai.rules.output_sets import OutputRule
from cg4ai.rules.shapes import Shape

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble


Pointwise = Equality | OutputRule  # rules about the outputs at one input
Built = Pointwise | Shape  # rules that members keep by construction


class OutputForm(NamedTuple):
    """Outputs `offset + slope x + basis h(x)`, whatever h is."""

    offset: Array
    slope: Array
    basis: Array


def is_constructed(ensemble: Ensemble, rule: Built) -> bool:
    """Whether every member that is used keeps it at every input, but for rounding."""
    if isinstance(rule, OutputRule):
        return keeps_set(ensemble, rule)
    if isinstance(rule, Shape):
        return shapes.keeps(ensemble, rule)
    forms = find_forms(ensemble)
    return bool(forms) and all(rule.is_kept_by(*form) for form in forms)


def find_forms(ensemble: Ensemble) -> list[OutputForm]:
    """Those of all members that are used, and of the anchor; none where a member has no form."""
    anchor = ensemble.anchor
    parts = [*ensemble.used, *(() if anchor is None else anchor.used)]
    found = [list(_forms(part.members)) for part in parts]
    if len(ensemble.layout) > 1 or not all(found):
        return []
    return [form for forms in found for form in forms]


def _forms(members: Members) -> Iterator[OutputForm]:
    """One for each member, or one for all; none where the members have no such form."""
    if isinstance(members, ShieldedMembers):
        own, anchors = (list(_forms(one)) for one in (members.inner, members.shield.anchor))
        if own and anchors:
            yield from (*own, *anchors, *_crossed(own, anchors, members.shield.blending.components))
    elif isinstance(members, CompletedMembers):
        made = members.completion
        yield OutputForm(made.offset, made.slope, made.basis)
    elif isinstance(members, ConstantMembers):
        for values in members.values.cpu().numpy():
            size = len(values)
            yield OutputForm(values, np.zeros((size, members.input_size)), np.zeros((size, 0)))
    elif isinstance(members, NetworkMembers) and not members.architecture.softmax_groups:
        yield from _network_forms(members)


def _crossed(
    own: list[OutputForm], anchors: list[OutputForm], components: IntArray
) -> Iterator[OutputForm]:
    """Outputs of a member with one component, of several, taken from the anchor.

    A shield gives f + sum_c theta_c (g_c - f) with these as g_c: it keeps what all of them keep.
    """
    if not components.any():
        return
    for one, anchor in product(own, anchors):
        for number in range(int(components.max()) + 1):
            taken = (components == number)[:, None]
            yield OutputForm(
                np.where(taken[:, 0], anchor.offset, one.offset),
                np.where(taken, anchor.slope, one.slope),
                np.concatenate(
                    [np.where(taken, 0, one.basis), np.where(taken, anchor.basis, 0)], 1
                ),
            )


def _network_forms(members: NetworkMembers) -> Iterator[OutputForm]:
    """The last layer and what skips the others, in units of the inputs."""
    shape = members.architecture
    shift = np.zeros(shape.input_size) if shape.shift is None else shape.shift
    scale = np.ones(shape.input_size) if shape.scale is None else shape.scale
    arrays = {name: value.cpu().numpy() for name, value in members.parameters.items()}
    for number in range(len(members)):
        basis, offset = arrays[f"weight_{shape.depth}"][number], arrays[f"bias_{shape.depth}"]
        slope = np.zeros((shape.output_size, shape.input_size))
        if shape.skip:
            slope = arrays["skip"][number]
        elif shape.depth == 0:
            slope, basis = basis, np.zeros((shape.output_size, 0))
        slope = slope / scale
        yield OutputForm(offset[number] - slope @ shift, slope, basis)
