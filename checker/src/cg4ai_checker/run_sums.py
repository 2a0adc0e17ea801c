"""Do the members that a folder holds sum to one in groups of outputs, by how they are built?

Of a router: is all of every demand routed? One that sends nothing overloads no link, and one that
sends a half is at half of the optimum; limits on loads say nothing without this.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.equality import components
from cg4ai_checker.folder_reader import MemberState, below, member_state
from cg4ai_checker.linearised import Part
from cg4ai_checker.parts import CONFIGS, PartSource, build_part
from cg4ai_checker.region import Region
from cg4ai_checker.sums import Positions, shows_sums

if TYPE_CHECKING:
    from cg4ai_checker.run_folder import Shipped

VALUES = {"values", "value", "initial", "factor"}  # what constants and trees answer with


def sums_kept(groups: Sequence[Positions], shipped: Shipped, region: Region) -> bool:
    """Whether it is seen of every member that predicts, with all that shields do to it."""
    size = sum(map(len, shipped.layout))
    return all(
        outputs_sum(state, part.weights, groups, region, size=size)
        for state, part in zip(shipped.states, shipped.parts, strict=True)
        if part.weights.any()
    )


def outputs_sum(
    state: MemberState, weights: Array, groups: Sequence[Positions], region: Region, *, size: int
) -> bool:
    """Whether it is seen of the members of a stored stack with weights (count,) above 0.

    `groups` are numbers of outputs, ascending, of `size` in all; none of them is below 0 either.
    """
    used = np.flatnonzero(weights).tolist()
    if state.kind == "shielded":
        shield = state.config["shield"]
        own = below(state.arrays, "shield.")
        moved = components(shield, own, size)
        inner = member_state(state.config["inner"], below(state.arrays, "inner."))
        anchor = member_state(shield["anchor"], below(own, "anchor."))
        return (
            all((moved[group] == moved[group[0]]).all() for group in groups)
            and outputs_sum(inner, weights, groups, region, size=size)
            and outputs_sum(anchor, np.ones(1), groups, region, size=size)
        )
    if state.kind == "flows":  # each is divided by the sum of its group
        number = state.arrays["group"]
        return all(np.array_equal(np.flatnonzero(number == number[own[0]]), own) for own in groups)
    if state.kind == "feedback":  # its last step is the softmax of its network, of other scores
        config = state.config["network"]["config"]
        return config["output"] == "grouped" and _are_ranges(groups, config["groups"])
    if state.kind == "side by side":
        sizes = state.config["sizes"]
        return _are_ranges(groups, sizes) and all(
            _apart(state, member, sizes, region) for member in used
        )
    if state.kind not in CONFIGS:
        return False
    built = _built(state, weights, region)
    if below_zero(state):
        return False
    return all(shows_sums(built, member, groups) for member in used)


def below_zero(stack: MemberState | PartSource) -> bool:
    """Whether constants, or trees without a softmax, hold values below 0: then outputs may be."""
    alone = stack.kind == "constant" or (
        stack.kind == "tree" and stack.config["link"] == "identity"
    )
    return alone and any((stack.arrays[name] < 0).any() for name in VALUES & set(stack.arrays))


def _built(state: MemberState, weights: Array, region: Region) -> Part:
    source = PartSource(
        state.kind,
        dict(state.config),
        dict(state.arrays),
        blocks=np.zeros(len(weights), np.int64),
        weights=weights,
    )
    return build_part(source, len(region.lower), (region.lower, region.upper))


def _are_ranges(groups: Sequence[Positions], sizes: Sequence[int]) -> bool:
    """Whether each group is one of the ranges of these sizes, one after the other."""
    ends = np.cumsum([0, *sizes]).tolist()
    return {tuple(own.tolist()) for own in groups} <= {tuple(range(*one)) for one in pairwise(ends)}


def _apart(state: MemberState, member: int, sizes: Sequence[int], region: Region) -> bool:
    """Whether the networks of one member leave nothing to the outputs that they have to spare."""
    arrays: dict[str, NDArray[np.float64]] = {
        name: array if name.startswith("normalise_") else array[member]
        for name, array in below(state.arrays, "network.").items()
    }
    inner = member_state(state.config["network"], arrays)
    built = _built(inner, np.ones(len(sizes)), region)
    return all(shows_sums(built, number, [np.arange(size)]) for number, size in enumerate(sizes))
