"""Branch and bound over the cells of one rule: batches, depth first, and the tree they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.proofs.bounds.bound import CellBound, Cells
from cg4ai.records import Array, IntArray


@dataclass(frozen=True, eq=False)
class CellBatch:
    """Cells that were just bounded: corners, bounds with margin, and where each bound grows."""

    lower: Array
    upper: Array
    bounds: Array
    direction: Array


class Search:
    """The cells of one rule. `limit` is compared with bounds that include `margin`.

    Nodes are numbered as they are made, the root is 0; node n that was halved has its children
    at `_left[n]` and `_left[n] + 1`.
    """

    def __init__(
        self, limit: float, margin: float, *, lower: Array, upper: Array, uses: int = 0
    ) -> None:
        self.limit, self.margin = limit, margin
        self.cells = 0
        self._root = (lower, upper)
        self._dimension = np.full(1, -1, np.int16)
        self._left = np.full(1, -1, np.int64)
        self._bound = np.full(1, np.inf)
        self._use = np.zeros((1, uses))  # what each node made of limits and rows, see `RuleLimits`
        self._count = 1
        self._open_nodes: IntArray = np.zeros(1, np.int64)
        self._open_lower, self._open_upper = lower[None].copy(), upper[None].copy()
        self._stuck: list[tuple[IntArray, Array, Array]] = []
        self._dealt: IntArray = np.empty(0, np.int64)  # where its first nodes stand in another

    def resume(
        self,
        dimensions: NDArray[np.int16],
        leaf_bounds: Array,
        *,
        cells: int,
        leaf_uses: Array | None = None,
    ) -> None:
        """Go on from the tree of an earlier search; leaves above the limit are open again.

        In preorder the children of a node are no neighbours: nodes are numbered anew.
        """
        lower, upper = self._root
        self._dimension = np.empty(len(dimensions), np.int16)
        self._left = np.full(len(dimensions), -1, np.int64)
        self._bound = np.full(len(dimensions), np.inf)
        self._use = np.zeros((len(dimensions), self._use.shape[1]))
        self._count, self.cells = len(dimensions), cells
        nodes, lowers, uppers = [], [], []
        stack = [(0, lower, upper)]
        made, leaf = 1, 0
        for dimension in dimensions:
            node, low, high = stack.pop()
            self._dimension[node] = dimension
            if dimension < 0:
                self._bound[node] = leaf_bounds[leaf]
                if leaf_uses is not None:
                    self._use[node] = leaf_uses[leaf]
                if leaf_bounds[leaf] > self.limit:
                    nodes.append(node)
                    lowers.append(low)
                    uppers.append(high)
                leaf += 1
                continue
            middle = 0.5 * (low[dimension] + high[dimension])
            left_high, right_low = high.copy(), low.copy()
            left_high[dimension] = right_low[dimension] = middle
            self._left[node] = made
            stack.append((made + 1, right_low, high))
            stack.append((made, low, left_high))
            made += 2
        size = len(lower)
        self._open_nodes = np.array(nodes, np.int64)
        self._open_lower = np.array(lowers).reshape(-1, size)
        self._open_upper = np.array(uppers).reshape(-1, size)

    def deal(self, count: int) -> list[Search]:
        """Hand out the waiting cells to at most `count` searches, one after the other to each.

        Old cells, which are large, and new ones are in all of them. `join` takes them back.
        """
        parts = []
        for number in range(min(count, self.waiting)):
            mine = slice(number, None, count)
            nodes, lower, upper = (
                self._open_nodes[mine],
                self._open_lower[mine],
                self._open_upper[mine],
            )
            part = Search(self.limit, self.margin, lower=self._root[0], upper=self._root[1])
            part._dimension = np.full(len(nodes), -1, np.int16)
            part._left = np.full(len(nodes), -1, np.int64)
            part._bound, part._use = self._bound[nodes], self._use[nodes]
            part._count, part._dealt = len(nodes), nodes
            part._open_nodes = np.arange(len(nodes))
            part._open_lower, part._open_upper = lower, upper
            parts.append(part)
        self._wait_for(np.empty(0, np.int64), *np.empty((2, 0, len(self._root[0]))))
        return parts

    def join(self, part: Search) -> None:
        """Take back a search that `deal` handed out, with all that it has found."""
        count, roots = part._count, part._dealt
        at = np.concatenate([roots, self._count + np.arange(count - len(roots))])
        self._grow(count - len(roots))
        left = part._left[:count]
        self._dimension[at] = part._dimension[:count]
        self._left[at] = np.where(left >= 0, at[left], -1)
        self._bound[at], self._use[at] = part._bound[:count], part._use[:count]
        self._stuck += [(at[nodes], lower, upper) for nodes, lower, upper in part._stuck]
        self._wait_for(
            np.concatenate([self._open_nodes, at[part._open_nodes]]),
            np.concatenate([self._open_lower, part._open_lower]),
            np.concatenate([self._open_upper, part._open_upper]),
        )
        self.cells += part.cells

    def _wait_for(self, nodes: IntArray, lower: Array, upper: Array) -> None:
        self._open_nodes, self._open_lower, self._open_upper = nodes, lower, upper

    @property
    def open(self) -> int:
        """Cells above the limit or not bounded yet, those too small to halve among them."""
        return self.waiting + sum(len(nodes) for nodes, _, _ in self._stuck)

    @property
    def waiting(self) -> int:
        """Open cells from which there is something to learn."""
        return len(self._open_nodes)

    @property
    def stored_bytes(self) -> int:
        """Memory of the tree and the waiting cells."""
        tree = self._dimension.nbytes + self._left.nbytes + self._bound.nbytes + self._use.nbytes
        return tree + self._open_nodes.nbytes + self._open_lower.nbytes + self._open_upper.nbytes

    @property
    def bound(self) -> float:
        """The largest bound of any leaf: proven for the whole region."""
        leaves = self._dimension[: self._count] < 0
        return float(self._bound[: self._count][leaves].max())

    def open_cells(self) -> tuple[Array, Array, Array]:
        """Corners and proven bounds of the cells left."""
        stuck = list(zip(*self._stuck, strict=True)) or [(), (), ()]
        nodes = np.concatenate([*stuck[0], self._open_nodes])
        lower = np.concatenate([*stuck[1], self._open_lower])
        upper = np.concatenate([*stuck[2], self._open_upper])
        return lower, upper, self._bound[nodes]

    def count_held_by_margin(self) -> int:
        """How many open cells would be closed if bounds had no margin for rounding."""
        return int((self.open_cells()[2] - self.margin <= self.limit).sum())

    def step(
        self,
        count: int,
        bound: Callable[[Cells], CellBound],
        *,
        outside: Callable[[Array, Array], NDArray[np.bool_]] | None = None,
    ) -> CellBatch:
        """Bound the `count` newest waiting cells and halve those that stay open; returns these.

        `outside` says which cells hold no input of the region: their bound is -inf.
        """
        take = slice(max(0, self.waiting - count), None)
        nodes = self._open_nodes[take]
        lower, upper = self._open_lower[take], self._open_upper[take]
        self._open_nodes = self._open_nodes[: take.start]
        self._open_lower = self._open_lower[: take.start]
        self._open_upper = self._open_upper[: take.start]
        self.cells += len(nodes)
        if outside is not None:
            away = outside(lower, upper)
            self._bound[nodes[away]] = -np.inf
            nodes, lower, upper = nodes[~away], lower[~away], upper[~away]
        if not len(nodes):
            nothing = np.empty((0, lower.shape[1]))
            return CellBatch(nothing, nothing, np.empty(0), nothing)
        with torch.no_grad():
            result = bound(Cells(torch.as_tensor(lower), torch.as_tensor(upper)))
        bounds = result.upper.cpu().numpy() + self.margin
        # NaN would compare as closed below; a bound that is no number proves nothing
        bounds = np.where(np.isnan(bounds), np.inf, bounds)
        better = bounds < self._bound[nodes]
        if result.use is not None:
            self._use[nodes[better]] = result.use[better]
        bounds = np.where(better, bounds, self._bound[nodes])
        self._bound[nodes] = bounds
        left = bounds > self.limit
        scores = result.scores.cpu().numpy()[left]
        self._halve(nodes[left], lower[left], upper[left], scores=scores)
        direction = result.direction.cpu().numpy()[left]
        return CellBatch(lower[left], upper[left], bounds[left], direction)

    def _halve(self, nodes: IntArray, lower: Array, upper: Array, *, scores: Array) -> None:
        """Two children each, with their parent's bound until they have their own."""
        middle = 0.5 * (lower + upper)
        # a coordinate without a float64 between its ends cannot be halved
        can = (middle > lower) & (middle < upper)
        scores = np.where(can & np.isfinite(scores), scores, np.where(can, 0.0, -np.inf))
        stuck = ~can.any(1)
        if stuck.any():  # they stay open, but bounding them again would say the same
            self._stuck.append((nodes[stuck], lower[stuck], upper[stuck]))
        nodes, lower, upper = nodes[~stuck], lower[~stuck], upper[~stuck]
        if not len(nodes):
            return
        dimension = scores[~stuck].argmax(1)
        at = middle[~stuck][np.arange(len(nodes)), dimension]
        first = self._count + 2 * np.arange(len(nodes))
        self._grow(2 * len(nodes))
        self._dimension[nodes] = dimension
        self._left[nodes] = first
        self._bound[first] = self._bound[first + 1] = self._bound[nodes]
        self._use[first] = self._use[first + 1] = self._use[nodes]
        low, high = np.repeat(lower, 2, 0), np.repeat(upper, 2, 0)
        pairs = 2 * np.arange(len(nodes))
        high[pairs, dimension] = at
        low[pairs + 1, dimension] = at
        children = np.stack([first, first + 1], 1).ravel()
        self._open_nodes = np.concatenate([self._open_nodes, children])
        self._open_lower = np.concatenate([self._open_lower, low])
        self._open_upper = np.concatenate([self._open_upper, high])

    def _grow(self, count: int) -> None:
        self._count += count
        size = len(self._bound)
        if self._count > size:
            extra = max(self._count - size, size)
            self._dimension = np.concatenate([self._dimension, np.full(extra, -1, np.int16)])
            self._left = np.concatenate([self._left, np.full(extra, -1, np.int64)])
            self._bound = np.concatenate([self._bound, np.full(extra, np.inf)])
            self._use = np.concatenate([self._use, np.zeros((extra, self._use.shape[1]))])

    def preorder(self) -> tuple[NDArray[np.int16], Array, Array]:
        """The tree as (dimensions, bounds of the leaves, their uses), lower halves first."""
        order = np.empty(self._count, np.int64)
        stack, filled = [0], 0
        left = self._left[: self._count].tolist()
        while stack:
            node = stack.pop()
            order[filled] = node
            filled += 1
            child = left[node]
            if child >= 0:
                stack += [child + 1, child]
        dimensions = self._dimension[order]
        leaves = order[dimensions < 0]
        return dimensions, self._bound[leaves], self._use[leaves]
