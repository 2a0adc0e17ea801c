"""Train members on one part of the data and weigh them on the rest, so that mixtures generalise.

The master's objective is the loss on rows that no member was trained on: a member that has merely
learnt its training rows by heart does not price out, and enters only where a requirement needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from cg4ai.colgen.pricing.defaults import WrappingPricer
from cg4ai.data.arrays import is_among
from cg4ai.objectives import LossFunction, Supervised
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult
from cg4ai.rules.rates import GroupRates
from cg4ai.rules.rows import LinearRows, Rows, RowSet

Kind = Literal["average", "mixture"]


@dataclass(frozen=True)
class HeldOutPricer(WrappingPricer):
    """Asks `inner` to train on `training` in place of the objective that the master weighs by.

    Rates are priced at the inputs that are not among those `held_out` (n, d): members that are
    trained to keep a rate learn by heart the inputs that it is the mean over. Bounds that `inner`
    may prove hold for its own data alone, so they are dropped.
    """

    inner: Pricer
    training: Supervised
    held_out: Array
    _known: dict[int, tuple[GroupRates, LinearRows]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def price(self, request: PricingRequest) -> PricingResult:
        # The block duals are in units of the other data: by them a pricer would hold back members
        # that the master wants. A high worth lets it propose all; the loop admits by the true one.
        worth = 1e6 * (1.0 + np.abs(request.duals.blocks))
        duals = replace(request.duals, blocks=worth)
        rows = RowSet(
            request.rows.layout, [self._trained_on(rows, request) for rows in request.rows.batches]
        )
        proposed = self.inner.price(
            replace(request, objective=self.training, duals=duals, rows=rows)
        )
        return replace(proposed, lower_bound=None)

    def for_decisions(self) -> Pricer:
        return self.inner.for_decisions()

    def _trained_on(self, rows: Rows, request: PricingRequest) -> Rows:
        """The rows of a rate at its inputs that are not held out; other rows as they are."""
        number = rows.requirement
        rule = request.requirements[number] if 0 <= number < len(request.requirements) else None
        if not isinstance(rule, GroupRates):
            return rows
        known = self._known.get(number)
        if known is None or known[0] is not rule:
            kept = rule.restrict_to(~is_among(rule.points, self.held_out))
            known = (rule, rule.rows(number) if kept is None else kept.rows(number))
            self._known[number] = known
        return known[1]


@dataclass(frozen=True, slots=True)
class LabelledData:
    """Inputs (n, d), targets (n, r) numbers or (n,) classes, weights (n,) > 0."""

    inputs: Array
    targets: Array | IntArray
    weights: Array

    @property
    def classification(self) -> bool:
        return self.targets.ndim == 1

    def take(self, positions: IntArray) -> LabelledData:
        return LabelledData(
            self.inputs[positions], self.targets[positions], self.weights[positions]
        )

    def objective(self, loss: str | LossFunction, kind: Kind) -> Supervised:
        """The mean loss over these rows."""
        weights = None if np.all(self.weights == self.weights[0]) else self.weights
        return Supervised(self.inputs, self.targets, loss, kind, weights)

    def thin(self, most: int) -> LabelledData:
        """At most so many of the rows, evenly spread over them."""
        count = len(self.inputs)
        if count <= most:
            return self
        return self.take(np.linspace(0, count - 1, most).astype(np.int64))


def join_rows(parts: Sequence[LabelledData]) -> LabelledData:
    """All rows one after the other."""
    return LabelledData(
        np.concatenate([part.inputs for part in parts]),
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )


def merge_rows(data: LabelledData) -> LabelledData:
    """Equal rows as one row with their total weight, rows of weight zero left out.

    A weight of two then means exactly what two copies do, the order of the rows means nothing, and
    no copy of a row that is trained on is among those held out.
    """
    data = data.take(np.flatnonzero(data.weights > 0))
    plain = np.column_stack([data.inputs, data.targets]).astype(np.float64) + 0.0  # no -0.0
    keys = np.ascontiguousarray(plain).view(np.dtype((np.void, plain.itemsize * plain.shape[1])))
    _, first, which = np.unique(keys.ravel(), return_index=True, return_inverse=True)
    weights = np.zeros(len(first))
    np.add.at(weights, which.ravel(), data.weights)
    return LabelledData(data.inputs[first], data.targets[first], weights)


def draw_folds(data: LabelledData, folds: int, generator: np.random.Generator) -> IntArray:
    """(n,): the fold of each row; those of each class are spread over them alike."""
    shuffled = generator.permutation(len(data.inputs))
    if data.classification:
        shuffled = shuffled[np.argsort(data.targets[shuffled], kind="stable")]
    found = np.empty(len(shuffled), np.int64)
    found[shuffled] = np.arange(len(shuffled)) % folds
    return found


def split_rows(
    data: LabelledData, fraction: float, generator: np.random.Generator
) -> tuple[LabelledData, LabelledData]:
    """(to train on, to weigh by): about `fraction` of the rows, of each class alike, are held out.

    Of a class with fewer than 1 / fraction rows none is held out: members must have seen it.
    """
    count = len(data.inputs)
    shuffled = generator.permutation(count)
    if data.classification:
        shuffled = shuffled[np.argsort(data.targets[shuffled], kind="stable")]
        labels = data.targets[shuffled]
        rank = np.arange(count) - np.searchsorted(labels, labels)
    else:
        rank = np.arange(count)
    held = np.floor((rank + 1) * fraction) > np.floor(rank * fraction)
    return data.take(np.sort(shuffled[~held])), data.take(np.sort(shuffled[held]))
