"""How much memory bounding takes per cell, so that a batch of cells fits into what is allowed."""

from __future__ import annotations

from collections.abc import Sequence

from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.proofs.bounds.terms import RuleTerms
from cg4ai.proofs.bounds.trees import PIECES, TreeBound

MEMORY_LIMIT = 4 * 2**30  # bytes: half for a batch, half for trees and open cells
NUMBER = 8  # bytes
SQUARES = 6  # (d, d) arrays of a cell alive at once: the sum, its halves, sizes, products
SLOPES = 6  # (terms, d) arrays of a cell alive at once


def cell_bytes(
    terms: RuleTerms, parts: Sequence[Part], trees: TreeBound | None, *, input_size: int
) -> int:
    """About what one more cell in a batch costs."""
    numbers = SQUARES * input_size**2 + SLOPES * len(terms.base_at) * input_size
    for group in terms.groups:
        members = parts[group.part].members
        if isinstance(members, NetworkMembers):
            hidden = members.architecture.hidden
            # slopes of the units of all hidden layers but the first depend on the cell
            wide = sum(hidden) * max(hidden[1:], default=1) + sum(hidden[1:]) * input_size
            numbers += len(group.weights_at) * (
                max(wide, members.output_size) + SLOPES * input_size
            )
    if trees is not None:
        for stack in trees.stacks:
            size, count, nodes, outputs = stack.members.value.shape
            numbers += count * nodes * (3 * input_size + 2 * outputs)  # member after member
            numbers += size * (count * nodes // NUMBER + 2 * PIECES * outputs)
            numbers += 5 * PIECES * input_size
    return NUMBER * numbers
