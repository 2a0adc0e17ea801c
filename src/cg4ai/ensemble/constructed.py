"""Which equalities a mixture keeps by the structure of its members, read from their arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cg4ai.members.completed import CompletedMembers
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.protocols import Members
from cg4ai.records import Array
from cg4ai.rules.equality import Equality

if TYPE_CHECKING:
    from cg4ai.ensemble.ensemble import Ensemble


class _Form(NamedTuple):
    """Outputs `offset + slope x + basis h(x)`, whatever h is."""

    offset: Array
    slope: Array
    basis: Array


def constructed(ensemble: Ensemble, equality: Equality) -> bool:
    """Whether every member that is used keeps it at every input, but for rounding."""
    anchor: Ensemble | None = getattr(ensemble, "anchor", None)  # of a shielded mixture
    parts = [*ensemble.used, *(() if anchor is None else anchor.used)]
    return len(ensemble.layout) == 1 and all(_keeps(part.members, equality) for part in parts)


def _keeps(members: Members, equality: Equality) -> bool:
    if isinstance(members, ShieldedMembers):  # between two outputs that keep it
        return _keeps(members.inner, equality) and _keeps(members.shield.anchor, equality)
    forms = list(_forms(members))
    return bool(forms) and all(equality.kept_by(*form) for form in forms)


def _forms(members: Members) -> Iterator[_Form]:
    """One for each member, or one for all; none where the members have no such form."""
    if isinstance(members, CompletedMembers):
        made = members.completion
        yield _Form(made.offset, made.slope, made.basis)
    elif isinstance(members, ConstantMembers):
        for values in members.values.cpu().numpy():
            size = len(values)
            yield _Form(values, np.zeros((size, members.input_size)), np.zeros((size, 0)))
    elif isinstance(members, NetworkMembers) and not members.architecture.softmax_groups:
        yield from _network_forms(members)


def _network_forms(members: NetworkMembers) -> Iterator[_Form]:
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
        yield _Form(offset[number] - slope @ shift, slope, basis)
