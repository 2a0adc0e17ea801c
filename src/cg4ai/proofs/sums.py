"""Groups of outputs that sum to one, which a certificate states beside its rules, if there are any.

They are proposed here, from groups under a softmax, from what a shield moves as one and from whole
blocks; what the checker does not see in the arrays is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Part
from cg4ai.proofs.bounds.limits import find_root_box
from cg4ai.records import Array, IntArray
from cg4ai.rules.regions import Region
from cg4ai_checker.linearised import Part as CheckedPart
from cg4ai_checker.parts import PartSource, build_part
from cg4ai_checker.sums import shows_sums


def find_sum_groups(
    ensemble: Ensemble, region: Region, likely: Sequence[Sequence[int]] = ()
) -> IntArray:
    """(r,): the number of the group that each output sums to one with, -1: none is known.

    `likely` are sets of outputs that may be such groups.
    """
    group = np.full(ensemble.output_size, -1)
    lower, upper = find_root_box(region)
    stacks = [(_built(part, lower, upper), part.blocks) for part in ensemble.used]
    count = 0
    for number, block in enumerate(ensemble.layout.blocks):
        own = [(part, int(i)) for part, of in stacks for i in np.flatnonzero(of == number)]
        for places in _proposed([part for part, _ in own], block, likely):
            shown = all(shows_sums(part, member, [places]) for part, member in own)
            if shown and (group[block[places]] < 0).all():
                group[block[places]] = count
                count += 1
    return group


def _built(part: Part, lower: Array, upper: Array) -> CheckedPart:
    """The members as the checker sees them."""
    state = part.members.state()
    arrays = {name: np.asarray(array) for name, array in state.arrays.items()}
    source = PartSource(
        state.kind, dict(state.config), arrays, blocks=part.blocks, weights=part.weights
    )
    return build_part(source, len(lower), (lower, upper))


def _proposed(
    parts: Sequence[CheckedPart], block: IntArray, likely: Sequence[Sequence[int]]
) -> Iterator[IntArray]:
    """Places within a block, ascending, that may sum to one together."""
    for part in parts:
        if len(part.groups) > 1:
            ends = np.cumsum([0, *part.groups])
            yield from (np.arange(a, b) for a, b in pairwise(ends))
            return
    for outputs in likely:
        places = np.flatnonzero(np.isin(block, outputs))
        if len(places) == len(outputs):
            yield places
    yield np.arange(len(block))
