"""The least value of a sum of pieces over a region: best-first branch and bound, in exact numbers.

A cell is bounded by the sum of what its pieces are at least, owner by owner. Where the pieces that
attain this meet, the bound is the value there; where they do not, the cell is cut between two.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cg4ai.clock import now
from cg4ai.fitted_models.pieces import Pieces
from cg4ai.records import Array, IntArray

SLIP = 2.0**-48  # of the sizes added: far more than the rounding of a quick sum
CUTS_TRIED = 3


@dataclass
class CutTree:
    """Cells cut in two: feature and value of each node's cut, and its children; -1 for cells."""

    feature: list[int] = field(default_factory=lambda: [-1])
    value: list[float] = field(default_factory=lambda: [0.0])
    children: list[tuple[int, int]] = field(default_factory=lambda: [(-1, -1)])

    def cut(self, node: int, feature: int, value: float) -> tuple[int, int]:
        first = len(self.feature)
        self.feature[node], self.value[node] = feature, value
        self.children[node] = (first, first + 1)
        self.feature += [-1, -1]
        self.value += [0.0, 0.0]
        self.children += [(-1, -1)] * 2
        return first, first + 1

    def preorder(self) -> tuple[list[int], list[float]]:
        feature, value, waiting = [], [], [0]
        while waiting:
            node = waiting.pop()
            feature.append(self.feature[node])
            value.append(self.value[node])
            if self.feature[node] >= 0:
                waiting += reversed(self.children[node])
        return feature, value


@dataclass(frozen=True, eq=False)
class Least:
    """`bound`: no value is below it. `attained`: the least value found, in the cell `low`, `high`.

    `proven` says that no value is below the target, by `cuts`.
    """

    bound: float
    proven: bool
    attained: float
    low: Array
    high: Array
    cuts: CutTree
    cells: int


@dataclass(order=True)
class _Cell:
    bound: float
    order: int
    node: int = field(compare=False)
    which: NDArray[np.intp] = field(compare=False)
    low: Array = field(compare=False)
    high: Array = field(compare=False)


def find_least(
    pieces: Pieces, target: Fraction, *, cell_limit: int = 10_000, until: float = math.inf
) -> Least:
    """Search until no cell can hold a value below the target, the least is found, or a limit."""
    return _Search(pieces, target).run(cell_limit, until)


class _Search:
    def __init__(self, pieces: Pieces, target: Fraction) -> None:
        self.pieces, self.target, self.aim = pieces, target, float(target)
        self.open: list[_Cell] = []
        self.cuts, self.cells = CutTree(), 0
        self.attained = math.inf
        self.best = (pieces.low, pieces.high)
        self.closed = math.inf

    def run(self, cell_limit: int, until: float) -> Least:
        pieces = self.pieces
        if not pieces.owners:
            return self._answer(0.0, proven=self.target <= 0)
        self._add(0, np.arange(len(pieces.owner)), pieces.low, pieces.high)
        while self.open:
            worst = self.open[0]
            if self.attained <= worst.bound:  # the least value of all
                return self._answer(worst.bound, proven=False)
            if self.cells >= cell_limit or now() > until:
                return self._answer(worst.bound, proven=False)
            self._halve(heapq.heappop(self.open))
        return self._answer(min(self.closed, self.attained), proven=self.attained >= self.aim)

    def _answer(self, bound: float, *, proven: bool) -> Least:
        return Least(bound, proven, self.attained, *self.best, self.cuts, self.cells)

    def _add(self, node: int, which: NDArray[np.intp], low: Array, high: Array) -> float:
        """Bound a cell; it is closed, or waits."""
        pieces = self.pieces
        meets = ((pieces.lower[which] < high) & (pieces.upper[which] > low)).all(axis=1)
        which = which[meets]
        self.cells += 1
        chosen = self._choose(which)
        bound = self._sum(chosen)
        if bound >= self.aim and self._surely(chosen, bound):
            self.closed = min(self.closed, bound)
            return bound
        self._dive(which, low, high)
        heapq.heappush(self.open, _Cell(bound, self.cells, node, which, low, high))
        return bound

    def _starts(self, which: NDArray[np.intp]) -> NDArray[np.intp]:
        owner = self.pieces.owner[which]
        return np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))

    def _choose(self, which: NDArray[np.intp]) -> NDArray[np.intp]:
        """The least piece of each owner; of equal ones the first."""
        value, starts = self.pieces.value[which], self._starts(which)
        least = np.repeat(
            np.minimum.reduceat(value, starts), np.diff(np.append(starts, len(which)))
        )
        hits = np.flatnonzero(value == least)
        owner = self.pieces.owner[which[hits]]
        return np.asarray(which[hits[np.append(True, owner[1:] != owner[:-1])]])

    def _sum(self, chosen: NDArray[np.intp]) -> float:
        return math.fsum(self.pieces.value[chosen])

    def _surely(self, chosen: NDArray[np.intp], bound: float) -> bool:
        """Whether the exact sum is at least the target, too."""
        sizes = float(np.abs(self.pieces.value[chosen]).sum())
        if bound - SLIP * (sizes + abs(self.aim)) > self.aim:
            return True
        return sum((self.pieces.exact[at] for at in chosen.tolist()), Fraction(0)) >= self.target

    def _dive(self, which: NDArray[np.intp], low: Array, high: Array) -> None:
        """A value that is attained: owners in turn, those with most at stake first."""
        pieces = self.pieces
        starts = self._starts(which)
        value = pieces.value[which]
        gaps = np.maximum.reduceat(value, starts) - np.minimum.reduceat(value, starts)
        ends = np.append(starts[1:], len(which))
        total = []
        for number in np.argsort(-gaps, kind="stable").tolist():
            own = which[starts[number] : ends[number]]
            if len(own) > 1:
                own = own[((pieces.lower[own] < high) & (pieces.upper[own] > low)).all(axis=1)]
            at = own[int(pieces.value[own].argmin())]
            low, high = np.maximum(low, pieces.lower[at]), np.minimum(high, pieces.upper[at])
            total.append(float(pieces.value[at]))
        found = math.fsum(total)
        if found < self.attained:
            self.attained, self.best = found, (low, high)

    def _halve(self, cell: _Cell) -> None:
        """Cut it where its least pieces do not meet."""
        pieces, which = self.pieces, cell.which
        chosen = self._choose(which)
        top = pieces.lower[chosen].max(axis=0)
        bottom = pieces.upper[chosen].min(axis=0)
        apart = np.flatnonzero(top >= bottom)
        if not len(apart):  # they meet, and rounding alone kept the dive from it
            low, high = np.maximum(cell.low, top), np.minimum(cell.high, bottom)
            self.attained, self.best = cell.bound, (low, high)
            heapq.heappush(self.open, cell)
            return
        column, cut = self._pick_cut(cell, apart, top, bottom)
        left, right = self.cuts.cut(cell.node, int(pieces.used[column]), cut)
        below, above = cell.high.copy(), cell.low.copy()
        below[column] = above[column] = cut
        self._add(left, which, cell.low, below)
        self._add(right, which, above, cell.high)

    def _pick_cut(
        self, cell: _Cell, apart: IntArray, top: Array, bottom: Array
    ) -> tuple[int, float]:
        """The cut after which the lower of both bounds is highest."""
        if len(apart) > CUTS_TRIED:
            # features in which most pieces differ say most
            spread = [len(np.unique(self.pieces.lower[cell.which, column])) for column in apart]
            apart = apart[np.argsort(spread, kind="stable")[-CUTS_TRIED:]]
        best, chosen = -math.inf, (int(apart[0]), float(bottom[apart[0]]))
        for column in apart.tolist():
            for cut in {float(bottom[column]), float(top[column])}:
                if not cell.low[column] < cut < cell.high[column]:
                    continue
                own = cell.which
                left = own[self.pieces.lower[own, column] < cut]
                right = own[self.pieces.upper[own, column] > cut]
                bounds = (self._bound(left), self._bound(right))
                score = min(bounds) + 1e-3 * max(bounds)
                if score > best:
                    best, chosen = score, (column, cut)
        return chosen

    def _bound(self, which: NDArray[np.intp]) -> float:
        return float(np.minimum.reduceat(self.pieces.value[which], self._starts(which)).sum())
