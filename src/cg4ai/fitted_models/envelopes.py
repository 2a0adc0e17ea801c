"""The nearest monotone function to a model of trees: the middle between two monotone envelopes.

Let g be the largest value at or below an input in a feature, h the smallest at or above it. Both
are monotone, and no monotone function is nearer to the model, in the largest difference, than
(g + h) / 2: it differs by half of the largest fall. Trees change at thresholds only, so both are
taken over finitely many inputs. Feature after feature keeps what was reached before, since the
largest or smallest of monotone functions is monotone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.model import FittedModel, Predict
from cg4ai.fitted_models.pieces import pick_number, round_down
from cg4ai.members.trees import TreeMembers
from cg4ai.records import Array

MOST_CELLS = 20_000  # inputs that the library is asked about for one answer
BATCH = 200_000  # rows that it is asked about at a time


class Envelopes:
    """`base` (n, d) -> (n, k) made monotone: rising for features of sign 1, falling for -1."""

    def __init__(
        self, model: FittedModel, base: Predict, features: Mapping[int, int], largest: float
    ) -> None:
        members = model.members
        if not isinstance(members, TreeMembers):
            raise InvalidInput(
                "only models of trees are made monotone here: train a ConstrainedRegressor or a "
                "ConstrainedClassifier with the rule instead",
                code="unsupported",
            )
        self.base, self.single, self.features = base, members.single_precision, dict(features)
        inner = members.left[0].numpy() != np.arange(members.left.shape[2])
        asked, cuts = members.feature[0].numpy(), members.threshold[0].numpy()
        self.cuts: dict[int, Array] = {}
        for feature in sorted(self.features):
            own = np.unique(cuts[inner & (asked == feature)])
            own = np.unique(round_down(own)) if self.single else own
            self.cuts[feature] = own[np.abs(own) < largest]
        self.cells = int(np.prod([len(one) + 1 for one in self.cuts.values()], dtype=float))
        if self.cells > MOST_CELLS:
            raise InvalidInput(
                f"each answer would take {self.cells:,} predictions of the model, more than "
                f"{MOST_CELLS:,}; repair fewer features, or use method='leaves'",
                code="memory",
            )

    def __call__(self, inputs: Array) -> Array:
        x = np.asarray(inputs, np.float64)
        step = max(1, BATCH // self.cells)
        parts = [self._answer(x[at : at + step]) for at in range(0, len(x), step)]
        return np.concatenate(parts) if parts else self.base(x)

    def _answer(self, x: Array) -> Array:
        """All cells of the features, then one feature after the other is reduced to its own."""
        seen = x.astype(np.float32).astype(np.float64) if self.single else x
        order = list(self.cuts)
        grid = x[:, None, :]
        for feature in order:
            values = _pick_values(self.cuts[feature])
            grown = np.repeat(grid, len(values), axis=1)
            grown[:, :, feature] = np.tile(values, grid.shape[1])
            grid = grown
        answers = self.base(grid.reshape(-1, x.shape[1]))
        shape = [len(self.cuts[feature]) + 1 for feature in order]
        table = answers.reshape(len(x), *shape, -1)
        for feature in reversed(order):
            table = self._reduce(table, feature, seen[:, feature])
        return table.reshape(len(x), -1)

    def _reduce(self, table: Array, feature: int, value: Array) -> Array:
        """(n, ..., cells of this feature, k) -> (n, ..., k)."""
        cuts, sign = self.cuts[feature], self.features[feature]
        axis = table.ndim - 2
        flipped = table if sign > 0 else np.flip(table, axis=axis)
        upper = np.maximum.accumulate(flipped, axis=axis)
        lower = np.flip(np.minimum.accumulate(np.flip(flipped, axis=axis), axis=axis), axis=axis)
        middle = 0.5 * upper + 0.5 * lower
        middle = middle if sign > 0 else np.flip(middle, axis=axis)
        cell = np.searchsorted(cuts, value, side="left")  # x <= cut lies in its cell
        index = cell.reshape(-1, *([1] * (table.ndim - 1)))
        return np.take_along_axis(middle, index, axis=axis).squeeze(axis)


def _pick_values(cuts: Array) -> Array:
    """A value in each cell: thresholds, and one beyond the last."""
    ends = [*cuts.tolist(), pick_number(float(cuts[-1]) if len(cuts) else 0.0, np.inf)]
    return np.array(ends)
