"""Single answers of a router with a proven distance from the optimum, or solved where it is large.

A run stores prices of links from dual solutions of the routing program. Whatever they are, prices
w >= 0 that sum to one prove that no routing of demands b has a maximum link utilisation below the
sum over demands of b_d times what their cheapest path costs; a few hundred of them come close to
the optimum nearly everywhere, and take a matrix product instead of a linear program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.optimal import basic_splits
from cg4ai.errors import InvalidInput
from cg4ai.records import Array

MOST_STORED = 2**18  # numbers: what a run stores of prices at most
AT_ONCE = 2**22  # numbers of products that are held at once


@dataclass(frozen=True, eq=False)
class Answers:
    """Splits (n, P), what is proven of each, and which were solved.

    `gaps` (n,): the MLU is at most so much above the optimum, as a share of it; infinite where
    nothing is known. `solved` (n,): by a linear program, in place of the router's answer.
    """

    splits: Array
    gaps: Array
    solved: NDArray[np.bool_]


class LowerBound:
    """What the optimum is at least, by prices of links (k, A)."""

    def __init__(self, instance: Instance, arc_prices: Array) -> None:
        prices = np.asarray(arc_prices, np.float64)
        if (
            prices.ndim != 2
            or prices.shape[1] != len(instance.arcs)
            or not np.isfinite(prices).all()
        ):
            raise InvalidInput(
                f"prices of links must be finite and (k, {len(instance.arcs)}), got {prices.shape}"
            )
        total = prices.sum(axis=1)
        if (prices < 0).any() or not (total > 0).all():
            raise InvalidInput("prices of links must be at least 0, and not all of a vector 0")
        per_path = (prices / total[:, None]) @ (instance.incidence / instance.capacity).T
        cheapest = [per_path[:, block].min(axis=1) for block in instance.blocks]
        self.prices: Array = np.stack(cheapest, axis=1)

    def __call__(self, vectors: Array) -> Array:
        """(n, D) -> (n,)."""
        step = max(1, AT_ONCE // len(self.prices))
        parts = [
            (vectors[first : first + step] @ self.prices.T).max(axis=1)
            for first in range(0, len(vectors), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)


def answered(
    instance: Instance,
    vectors: Array,
    splits: Array,
    *,
    bound: LowerBound | None,
    fallback: float = np.inf,
) -> Answers:
    """The router's splits (n, P) of vectors (n, D), solved anew where the gap is above `fallback`.

    Without a bound nothing is known of gaps, and all are solved where a fallback is given.
    """
    if not fallback >= 0:
        raise InvalidInput(f"fallback must be a gap of at least 0, such as 0.02, got {fallback}")
    gaps = np.full(len(vectors), np.inf)
    if bound is not None:
        reached, least = instance.utilisation(vectors, splits).max(axis=1), bound(vectors)
        known = (least > 0) | (reached == 0)
        gaps = np.where(known, np.maximum(reached / np.where(least > 0, least, 1.0) - 1, 0), np.inf)
    solved = gaps > fallback
    if solved.any():
        splits, gaps = splits.copy(), gaps.copy()
        splits[solved], gaps[solved] = basic_splits(instance, vectors[solved]), 0.0
    return Answers(splits, gaps, np.asarray(solved))
