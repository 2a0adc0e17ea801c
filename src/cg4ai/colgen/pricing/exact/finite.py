"""Exact pricing over a given finite set of members: looks each one up, trains nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.listed import MemberListing, find_next_members
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.objectives import AnyObjective
from cg4ai.protocols import Members, PricerCapabilities, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult

TOLERANCE = 1e-9  # reduced costs above minus this are rounding, not improvement


class FinitePricer(PricerDefaults):
    """Prices every candidate and proposes the best `per_call` of each block.

    `candidates` are pairs of a stack of members and the block (len(members),) of each. A result
    holds members of one kind, so one call proposes from the stack with the best candidate; the
    others get their turn in later calls. The lower bound is over all candidates and is 0 for a
    block without any.
    """

    capabilities = PricerCapabilities(proves="listed members")
    fits_rows = False

    def __init__(
        self, candidates: Sequence[tuple[Members, IntArray]], *, per_call: int = 8
    ) -> None:
        if not candidates:
            raise InvalidInput(
                "a finite pricer needs at least one stack of candidate members", code="empty"
            )
        for members, blocks in candidates:
            if len(members) == 0 or len(members) != len(blocks):
                raise InvalidInput(
                    f"a stack has {len(members)} members and {len(blocks)} blocks; give one block "
                    "number for each of at least one member",
                    code="shape",
                )
        if per_call < 1:
            raise InvalidInput(f"per_call must be at least 1, got {per_call}", code="range")
        self.candidates = [
            (members, np.asarray(blocks, np.int64)) for members, blocks in candidates
        ]
        self.per_call = per_call

    def factories(self) -> Mapping[str, Any]:
        return {k: v for members, _ in self.candidates for k, v in members.factories().items()}

    def can_list(self, objective: AnyObjective, layout: Layout) -> bool:
        return True

    def list_members(
        self, request: PricingRequest, lower: Array, *, start: int, count: int, most: float
    ) -> MemberListing:
        """See `Listable`."""
        priced = self._priced(request)
        excess = np.concatenate([costs - lower[blocks] for _, blocks, costs in priced])
        wanted, beyond = find_next_members(excess, start=start, count=count, most=most)
        ends = np.cumsum([0, *(len(costs) for _, _, costs in priced)])
        stacks = []
        for (members, blocks, _), first, last in zip(priced, ends, ends[1:], strict=False):
            mine = np.sort(wanted[(wanted >= first) & (wanted < last)]) - first
            if len(mine):
                stacks.append((members.take(mine), blocks[mine]))
        return MemberListing(stacks, len(wanted), beyond)

    def _priced(self, request: PricingRequest) -> list[tuple[Members, IntArray, Array]]:
        return [
            (members, blocks, compute_reduced_costs(request, members, blocks))
            for members, blocks in self.candidates
        ]

    def price(self, request: PricingRequest) -> PricingResult:
        priced = self._priced(request)
        members, blocks, costs = min(priced, key=lambda stack: float(stack[2].min()))
        chosen = find_best_per_block(costs, blocks, limit=self.per_call, unit=request.unit)
        return PricingResult(
            members=members.take(chosen) if len(chosen) else None,
            blocks=blocks[chosen],
            groups=np.full(len(chosen), -1),
            lower_bound=self._lower_bound(priced, len(request.rows.layout)),
        )

    @staticmethod
    def _lower_bound(priced: list[tuple[Members, IntArray, Array]], count: int) -> Array:
        bound = np.full(count, np.inf)
        for _, blocks, costs in priced:
            np.minimum.at(bound, blocks, costs)
        return np.where(np.isfinite(bound), bound, 0.0)


def find_best_per_block(
    costs: Array, blocks: IntArray, *, limit: int, unit: float = 1.0
) -> IntArray:
    """Positions of the `limit` lowest negative costs of each block, best first."""
    order = np.argsort(costs, kind="stable")
    order = order[costs[order] < -TOLERANCE * unit]
    chosen = [order[blocks[order] == block][:limit] for block in np.unique(blocks[order])]
    return np.concatenate([np.empty(0, np.int64), *chosen])
