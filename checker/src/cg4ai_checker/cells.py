"""Cells of the region: rebuilt from a tree of halvings, so that together they cover the region."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.errors import Rejected

LEAF = -1


@dataclass(frozen=True)
class Cells:
    """n boxes in d dimensions: `lower` and `upper` (n, d).

    `shares` (n, p), where the rule has p limits, and `multipliers` (n, k), where the region has k
    rows, say how each cell makes use of them.
    """

    lower: Array
    upper: Array
    shares: Array | None = None
    multipliers: Array | None = None

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def centre(self) -> Array:
        return 0.5 * (self.lower + self.upper)

    @property
    def radius(self) -> Array:
        """At least the distance from the rounded centre to either end."""
        centre = self.centre
        return np.maximum(self.upper - centre, centre - self.lower) * (1 + 2.0**-50)

    def take(self, which: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Cells:
        return Cells(
            self.lower[which],
            self.upper[which],
            None if self.shares is None else self.shares[which],
            None if self.multipliers is None else self.multipliers[which],
        )

    def split(self, most: int) -> list[Cells]:
        """The same cells in groups of at most `most`."""
        return [self.take(slice(k, k + most)) for k in range(0, len(self), most)]

    def halved(self, dimension: NDArray[np.intp]) -> Cells:
        """Both halves of every cell, each cut at the middle of its own `dimension` (n,)."""
        rows = np.arange(len(self))
        middle = self.centre[rows, dimension]
        left_upper, right_lower = self.upper.copy(), self.lower.copy()
        left_upper[rows, dimension] = middle
        right_lower[rows, dimension] = middle
        return Cells(
            np.concatenate([self.lower, right_lower]),
            np.concatenate([left_upper, self.upper]),
            None if self.shares is None else np.tile(self.shares, (2, 1)),
            None if self.multipliers is None else np.tile(self.multipliers, (2, 1)),
        )


def check_tree(dimensions: NDArray[np.int16], size: int, *, name: str) -> int:
    """Rejected unless `dimensions` is one whole tree in preorder; returns how many leaves."""
    if len(dimensions) == 0:
        raise Rejected(f"the tree of {name} is empty", code="empty")
    if dimensions.min() < LEAF or dimensions.max() >= size:
        raise Rejected(
            f"the tree of {name} halves dimensions {dimensions.min()}..{dimensions.max()}, "
            f"inputs have dimensions 0..{size - 1} (-1 marks a leaf)",
            code="range",
        )
    inner = dimensions != LEAF
    # subtrees still to be read after each node: none only after the very last
    open_after = 1 + np.cumsum(np.where(inner, 1, -1))
    if open_after[-1] != 0 or (open_after[:-1] <= 0).any():
        raise Rejected(f"the tree of {name} is cut off or has surplus nodes")
    return int(len(dimensions) - inner.sum())


def leaf_cells(
    dimensions: NDArray[np.int16], lower: Array, upper: Array, *, chunk: int
) -> Iterator[Cells]:
    """The leaves of a checked tree over the box `lower`, `upper` (d,), in order, `chunk` at once.

    Each inner node cuts its cell at the exact float64 middle, so every float64 input of a cell
    lies in one of its halves. Only what the cuts above a leaf changed is kept, three numbers for
    each, so that a tree as deep as it has nodes takes little memory.
    """
    low, high = lower.copy(), upper.copy()
    above: list[_Cut] = []
    found: list[tuple[Array, Array]] = []
    for dimension in dimensions.tolist():
        if dimension != LEAF:
            end = float(high[dimension])
            high[dimension] = 0.5 * (low[dimension] + high[dimension])
            above.append((dimension, end, False))
            continue
        found.append((low.copy(), high.copy()))
        if len(found) == chunk:
            yield _stacked(found)
            found = []
        _next_half(above, low, high)
    if found:
        yield _stacked(found)


# a dimension, the end that its cut replaced, and whether its upper half is being visited
_Cut = tuple[int, float, bool]


def _next_half(above: list[_Cut], low: Array, high: Array) -> None:
    """After a leaf: undo the cuts that are done, and go over to the upper half of the next."""
    while above:
        dimension, end, upper_half = above.pop()
        if upper_half:
            low[dimension] = end
            continue
        middle, high[dimension] = float(high[dimension]), end
        above.append((dimension, float(low[dimension]), True))
        low[dimension] = middle
        return


def _stacked(found: list[tuple[Array, Array]]) -> Cells:
    return Cells(np.stack([low for low, _ in found]), np.stack([high for _, high in found]))
