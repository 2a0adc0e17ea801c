"""What a pricer of a class that can be listed gives: its members by how near they are to pricing.

At any duals, a choice of one member per block that meets the rows and holds member i of block g
costs at least the mixture's bound + (reduced cost of i - least reduced cost of g): that excess is
the order in which members are listed, and where it passes the gap the rest need not be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from cg4ai.layout import Layout
from cg4ai.objectives import AnyObjective
from cg4ai.protocols import Members, Pricer, PricingRequest
from cg4ai.records import Array, IntArray


@dataclass(frozen=True, slots=True)
class MemberListing:
    """Stacks of members with their blocks, and what is proven of the rest of the class.

    `count` members (or kinds of members, such as all stumps of one threshold) were gone through;
    every other has an excess of at least `beyond` (inf: there is no other). Where members are
    fitted to the rows, `inside` is what none of those gone through costs less than.
    """

    members: Sequence[tuple[Members, IntArray]]
    count: int
    beyond: float
    inside: float = np.inf


@runtime_checkable
class Listable(Pricer, Protocol):
    """A pricer whose class can be listed; `fits_rows`: new rows give other members."""

    fits_rows: bool

    def can_list(self, objective: AnyObjective, layout: Layout) -> bool: ...

    def list_members(
        self, request: PricingRequest, lower: Array, *, start: int, count: int, most: float
    ) -> MemberListing:
        """Numbers `start` to `start + count` of the class by excess, as far as that is `most`.

        `lower` (G,) is the least reduced cost of each block at the request's duals.
        """
        ...


def find_next_members(
    excess: Array, *, start: int, count: int, most: float
) -> tuple[IntArray, float]:
    """Positions of the next members, and the least excess of those that are left."""
    order = np.argsort(excess, kind="stable")
    wanted = order[start : start + count]
    wanted = wanted[excess[wanted] <= most]
    left = order[start + len(wanted) :]
    return wanted, float(excess[left[0]]) if len(left) else np.inf
