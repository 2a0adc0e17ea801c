"""Sets of demand vectors fitted to measured traffic, what they contain, and their worst optimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cg4ai import clock
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.sets import DemandSet, node_totals
from cg4ai.routing.train.optimal import DualPrices
from cg4ai.rules import Box, Polytope

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

HEADROOM = 1.25  # times what was seen: of later matrices more lie inside
# of what its nodes send or receive: what a demand may grow to that was hardly seen. Node totals
# bound the worst case, so that this widens the set for next to nothing
UNSEEN = 0.1
NOTHING = 1e-9  # of the largest demand: no demand is allowed less
STARTS = 20  # of the search for the worst optimum
CLIMBS = 20  # steps of each, at most; a few do
GAIN = 1e-6  # relative, below which a climb ends


def from_traffic(
    vectors: Array,
    ends: Sequence[tuple[str, str]],
    *,
    cover: float = 1.0,
    headroom: float = HEADROOM,
    hose: bool = True,
    budget: bool = False,
    least: float = 0.0,
) -> DemandSet:
    """The set of demand vectors like the measured `vectors` (T, D).

    `ends` are (source, target) of each demand. A demand is at most `headroom` times the largest
    that was seen, or a tenth of what its source may send and its target receive in all where
    that is more; and at least `least` times the smallest seen. With `hose` what a node sends, and
    what it receives, is at most `headroom` times the most that it did at one time; with `budget`
    so is the sum of all demands. With `cover` below 1 smaller figures that were seen take the
    place of these, just high enough that this share of the vectors is inside without headroom.
    """
    seen = _checked(vectors, ends, cover=cover, headroom=headroom, least=least)
    rows = node_totals(ends) if hose else []
    rows += [np.ones(seen.shape[1])] if budget else []
    matrix = np.array(rows).reshape(-1, seen.shape[1])
    ranked, totals = np.sort(seen, axis=0), np.sort(seen @ matrix.T, axis=0)
    rank = _covering(np.hstack([seen, seen @ matrix.T]), np.hstack([ranked, totals]), cover)
    upper = np.maximum(ranked[rank], UNSEEN * _smaller_total(seen, ends, rank))
    upper = headroom * np.maximum(upper, NOTHING * upper.max())
    box = Box(np.minimum(least * ranked[len(seen) - 1 - rank], upper), upper)
    if not rows:
        return box
    return Polytope(box, matrix, np.maximum(headroom * totals[rank], matrix @ box.lower))


def _checked(
    vectors: Array, ends: Sequence[tuple[str, str]], *, cover: float, headroom: float, least: float
) -> Array:
    seen = np.asarray(vectors, np.float64)
    if seen.ndim != 2 or not len(seen) or seen.shape[1] != len(ends):
        raise InvalidInput(
            f"measured demand vectors of {len(ends)} demands have shape (T, {len(ends)}) with T at "
            f"least 1, got {seen.shape}",
            code="shape",
        )
    if not np.all(np.isfinite(seen)) or np.any(seen < 0) or not seen.any():
        raise InvalidInput(
            "measured demands must be finite and at least 0, and not all 0", code="not-finite"
        )
    for what, value, low, high in (
        ("cover", cover, 0.0, 1.0),
        ("headroom", headroom, 1e-6, 1e6),
        ("least", least, 0.0, 1.0),
    ):
        if not low <= value <= high:
            raise InvalidInput(
                f"{what} must be from {low:g} to {high:g}, got {value}", code="range"
            )
    return seen


def _smaller_total(seen: Array, ends: Sequence[tuple[str, str]], rank: int) -> Array:
    """(D,): the smaller of what a demand's source sends in all and what its target receives."""
    smaller = np.full(len(ends), np.inf)
    for side in (0, 1):
        for node in {pair[side] for pair in ends}:
            own = np.array([pair[side] == node for pair in ends])
            total = np.sort(seen[:, own].sum(axis=1))[rank]
            smaller[own] = np.minimum(smaller[own], total)
    return smaller


def _covering(values: Array, ranked: Array, cover: float) -> int:
    """The least rank such that a share `cover` of rows of `values` is nowhere above its figures.

    `ranked` are the values sorted in each column; at the highest rank all rows are inside.
    """
    low, high = 0, len(values) - 1
    while low < high:
        rank = (low + high) // 2
        share = (values <= ranked[rank]).all(axis=1).mean()
        low, high = (low, rank) if share >= cover else (rank + 1, high)
    return high


def compute_contained_share(region: DemandSet, vectors: Array) -> float:
    """The share of `vectors` (T, D) that the set contains."""
    return float(region.contains(np.asarray(vectors, np.float64)).mean())


@dataclass(frozen=True, eq=False)
class WorstOptimum:
    """The largest optimal MLU of a set lies between `found`, at `vector` (D,), and `bound`.

    The bound is what the best constant split keeps on the whole set.
    """

    found: float
    bound: float
    vector: Array


def worst_optimum(
    instance: Instance, known: Array | None = None, *, starts: int = STARTS, seed: int = 0
) -> WorstOptimum:
    """Searched for by climbing from vectors `known` (k, D) in the set and from random edges of it.

    The optimal MLU is a convex function of the demands, and its dual prices are its slope: the
    vector of the set at which they are worth most has an optimum no lower, and so on.
    """
    region = instance.region
    slopes = np.random.default_rng(seed).exponential(size=(starts, region.size))
    begin = region.peaks(slopes / instance.demand_max).inputs
    if known is not None:
        inside = known[region.contains(known)]
        begin = np.concatenate([inside, begin])
    prices = DualPrices(instance)
    best, vector = -1.0, begin[0]
    for start in begin:
        value, reached = _climbed(instance, prices, start)
        if value > best:
            best, vector = value, reached
    return WorstOptimum(best, max(best, instance.level), vector)


def _climbed(instance: Instance, prices: DualPrices, vector: Array) -> tuple[float, Array]:
    """The optimum at the end of a climb, and where that is."""
    value, slope = prices.compute_at(vector)
    for _ in range(CLIMBS):
        clock.refuse_overtime("the search for the worst optimum")
        higher = instance.region.peaks(slope[None]).inputs[0]
        above, slope = prices.compute_at(higher)
        if above <= value * (1 + GAIN):
            break
        value, vector = above, higher
    return value, vector
