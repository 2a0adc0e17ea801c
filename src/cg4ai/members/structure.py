"""What is known of members' outputs from their arrays alone, whatever the input.

A form says where outputs lie: `offset + slope x + basis h(x)` for equalities; in an output set, or
in a sum of hulls of points, for rules on outputs. The least that `row . y` can be in a set or in
hulls is known in closed form. Kinds of members give their forms (`cg4ai.protocols.Members`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray
from cg4ai.rules.output_sets import OutputSet

EXACT = 1e-12  # of the sizes of all terms: to which rules hold
SPREAD = 3.0  # deviations from the middle within which inputs are usual

Ends = tuple[Array, Array]  # of inputs, (d,) each


class OutputForm(NamedTuple):
    """Outputs `offset + slope x + basis h(x)`, whatever h is."""

    offset: Array
    slope: Array
    basis: Array


class SetForm(Protocol):
    """Where outputs lie at every input."""

    def compute_least(self, matrix: Array) -> Array:
        """(m,): what `matrix @ y` is at least for all outputs of the form."""
        ...

    def compute_sizes(self) -> Array:
        """(r,): of what outputs are sums of; 0 where they are exact."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As the checker reads them."""
        ...


class Hulls(NamedTuple):
    """Outputs `sum_t h_t`, each h_t a mixture of the points (V, r) whose `term` (V,) is t."""

    points: Array
    term: IntArray

    def compute_least(self, matrix: Array) -> Array:
        values = self.points @ matrix.T
        found = np.full((int(self.term.max()) + 1, len(matrix)), np.inf)
        np.minimum.at(found, self.term, values)
        return np.asarray(found.sum(0))

    def compute_sizes(self) -> Array:
        found = np.zeros((int(self.term.max()) + 1, self.points.shape[1]))
        np.maximum.at(found, self.term, np.abs(self.points))
        return np.asarray(found.sum(0))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._asdict()


class Arrangement(NamedTuple):
    """Outputs of a set: ends (r,), place in a chain and in a total (r,), values of totals (t,).

    `chain` and `total` are -1 for outputs in none; `rank` (r,) rises along a chain.
    """

    low: Array
    high: Array
    chain: IntArray
    rank: IntArray
    total: IntArray
    value: Array

    @classmethod
    def of(cls, source: OutputSet) -> Arrangement:
        size = source.output_size
        chain, rank, total = (np.full(size, -1, np.int64) for _ in range(3))
        for number, one in enumerate(source.chains):
            chain[list(one)], rank[list(one)] = number, np.arange(len(one))
        for number, single in enumerate(source.totals):
            total[list(single.outputs)] = number
        values = np.array([one.value for one in source.totals])
        return cls(source.low, source.high, chain, rank, total, values)

    def compute_least(self, matrix: Array) -> Array:
        ends = np.where(matrix > 0, self.low, self.high)
        box = np.where(matrix != 0, matrix * np.where(matrix != 0, ends, 0.0), 0.0).sum(1)
        return np.asarray(np.maximum(box, [self._tied(row) for row in matrix]))

    def _tied(self, row: Array) -> float:
        """What order or total say of a row: a difference along a chain, or a multiple of a sum."""
        read = np.flatnonzero(row)
        if len(read) == 2 and row[read].sum() == 0:
            lower, upper = read if row[read[1]] > 0 else read[::-1]
            if self.chain[lower] == self.chain[upper] >= 0 and self.rank[lower] < self.rank[upper]:
                return 0.0
        numbers = np.unique(self.total[read])
        alike = len(numbers) == 1 and numbers[0] >= 0 and len(np.unique(row[read])) == 1
        if alike and np.array_equal(read, np.flatnonzero(self.total == numbers[0])):
            return float(row[read[0]] * self.value[numbers[0]])
        return -np.inf

    def compute_sizes(self) -> Array:
        return np.zeros(len(self.low))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """High ends negated, so that none is plus infinity."""
        named = self._asdict()
        named["negated"] = -named.pop("high")
        return named


def build_probability_hulls(groups: Sequence[int]) -> Hulls:
    return Hulls(np.eye(sum(groups)), np.repeat(np.arange(len(groups)), groups))


def cross_forms(
    own: Iterable[OutputForm], anchors: Sequence[OutputForm], components: IntArray
) -> Iterator[OutputForm]:
    """Outputs of a member with one component, of several, taken from the anchor.

    A shield gives f + sum_c theta_c (g_c - f) with these as g_c: it keeps what all of them keep.
    """
    if not components.any():
        return
    for one, anchor in product(own, anchors):
        for number in range(int(components.max()) + 1):
            taken = (components == number)[:, None]
            yield OutputForm(
                np.where(taken[:, 0], anchor.offset, one.offset),
                np.where(taken, anchor.slope, one.slope),
                np.concatenate(
                    [np.where(taken, 0, one.basis), np.where(taken, anchor.basis, 0)], 1
                ),
            )


def find_leaf_hulls(arrays: dict[str, NDArray[Any]]) -> Iterator[Hulls]:
    """The values of all leaves, tree by tree, and where the sum begins; one for each member."""
    left, right, value = arrays["left"], arrays["right"], arrays["value"]
    initial, factor = arrays["initial"], arrays["factor"]
    for number in range(len(value)):
        points, terms = [initial[number][None]], [np.zeros(1, np.int64)]
        for tree in range(value.shape[1]):
            leaf = _reached_leaves(left[number, tree], right[number, tree])
            points.append(factor[number] * value[number, tree][leaf])
            terms.append(np.full(int(leaf.sum()), tree + 1))
        yield Hulls(np.concatenate(points), np.concatenate(terms))


def _reached_leaves(left: IntArray, right: IntArray) -> NDArray[np.bool_]:
    """(nodes,): leaves that are the root or some node's child; all others are padding."""
    own = np.arange(len(left))
    inner = left != own
    reached = own == 0
    reached[left[inner]] = reached[right[inner]] = True
    return np.asarray(reached & ~inner)


def find_split_ends(arrays: dict[str, NDArray[Any]], input_size: int) -> Ends:
    """Around the numbers at which trees split; -1 and 1 for inputs of which none asks."""
    low, high = -np.ones(input_size), np.ones(input_size)
    feature, threshold = arrays["feature"].ravel(), arrays["threshold"].ravel()
    inner = (arrays["left"] != arrays["right"]).ravel() & np.isfinite(threshold)
    for number in np.unique(feature[inner]):
        own = threshold[inner & (feature == number)]
        room = 0.1 + 0.1 * np.ptp(own)
        low[number], high[number] = own.min() - room, own.max() + room
    return low, high
