"""Cells of the region: rebuilt from a tree of halvings, so that together they cover the region."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai.checker.bands import Array
from cg4ai.checker.errors import Rejected

LEAF = -1


@dataclass(frozen=True)
class Cells:
    """n boxes in d dimensions: `lower` and `upper` (n, d)."""

    lower: Array
    upper: Array

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

    def take(self, which: NDArray[np.bool_]) -> Cells:
        return Cells(self.lower[which], self.upper[which])

    def split(self, most: int) -> list[Cells]:
        """The same cells in groups of at most `most`."""
        starts = range(0, len(self), most)
        return [Cells(self.lower[k : k + most], self.upper[k : k + most]) for k in starts]

    def halved(self, dimension: NDArray[np.intp]) -> Cells:
        """Both halves of every cell, each cut at the middle of its own `dimension` (n,)."""
        rows = np.arange(len(self))
        middle = self.centre[rows, dimension]
        left_upper, right_lower = self.upper.copy(), self.lower.copy()
        left_upper[rows, dimension] = middle
        right_lower[rows, dimension] = middle
        return Cells(
            np.concatenate([self.lower, right_lower]), np.concatenate([left_upper, self.upper])
        )


def check_tree(dimensions: NDArray[np.int16], size: int, *, name: str) -> int:
    """Rejected unless `dimensions` is one whole tree in preorder; returns how many leaves."""
    if len(dimensions) == 0:
        raise Rejected(f"the tree of {name} is empty")
    if dimensions.min() < LEAF or dimensions.max() >= size:
        raise Rejected(
            f"the tree of {name} halves dimensions {dimensions.min()}..{dimensions.max()}, "
            f"inputs have dimensions 0..{size - 1} (-1 marks a leaf)"
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
    lies in one of its halves.
    """
    waiting = [(lower, upper)]
    found: list[tuple[Array, Array]] = []
    for dimension in dimensions.tolist():
        low, high = waiting.pop()
        if dimension == LEAF:
            found.append((low, high))
            if len(found) == chunk:
                yield _stacked(found)
                found = []
            continue
        middle = 0.5 * (low[dimension] + high[dimension])
        left_high, right_low = high.copy(), low.copy()
        left_high[dimension] = right_low[dimension] = middle
        waiting.append((right_low, high))
        waiting.append((low, left_high))
    if found:
        yield _stacked(found)


def _stacked(found: list[tuple[Array, Array]]) -> Cells:
    return Cells(np.stack([low for low, _ in found]), np.stack([high for _, high in found]))
