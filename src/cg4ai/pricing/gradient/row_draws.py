"""Rows drawn anew at every training step: a step costs the same however many rows there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from cg4ai.pricing.gradient.row_choice import Weighted, concave_joined
from cg4ai.pricing.gradient.row_tensors import ReadyRows, SimpleRows
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import ConcaveRows


def chances(weights: Array, count: int) -> Array:
    """The chance of each row to be drawn, `min(1, c * weight)`, where c makes the sum `count`.

    The heaviest rows are certain. Where no more than `count` weights are positive, all those are.
    """
    positive = weights > 0
    if positive.sum() <= count:
        return positive.astype(np.float64)
    falling = np.sort(weights)[::-1]
    left = np.cumsum(falling[::-1])[::-1]  # left[k]: the weight of all but the k heaviest
    certain = int(np.argmax((count - np.arange(count)) * falling[:count] <= left[:count]))
    return np.asarray(np.minimum(1.0, weights * ((count - certain) / left[certain])))


def draw(chance: Array, made: torch.Generator) -> IntArray:
    """Different rows, as many as the chances sum to, each with its own chance.

    Systematic sampling: the chances are laid end to end in random order, and a comb with teeth one
    apart picks.
    """
    order = torch.randperm(len(chance), generator=made).numpy()
    ends = np.cumsum(chance[order])
    offset = float(torch.rand((), generator=made, dtype=torch.float64))
    teeth = offset + np.arange(round(float(ends[-1])))
    at = np.searchsorted(ends, teeth, side="right")
    return np.sort(order[np.minimum(at, len(order) - 1)])  # rounding may end before the last tooth


class RowDraws:
    """At most `limit` of the known rows for each step.

    A row drawn with chance p weighs 1/p times as much, so that the mean over draws of any sum over
    rows of weight x something is the sum over all rows. Rows of most weight are in every step with
    the weight they have; so are those that sum over many inputs, which are few.
    """

    def __init__(
        self,
        known: Sequence[Weighted],
        limit: int,
        *,
        ready: Callable[[Weighted], ReadyRows],
        hinge_only: bool,
    ) -> None:
        made = [(entry, ready(entry)) for entry in concave_joined(known)]
        single = [pair for pair in made if _one_input_each(pair[1])]
        self.always = [rows for _, rows in made if not _one_input_each(rows)]
        self.single = [r.spread() if isinstance(r, SimpleRows) else r for _, r in single]
        ranks = [w if hinge_only else np.maximum(w, g) for (_, w, g), _ in single]
        rank = np.concatenate([np.empty(0), *ranks])
        self.chance = chances(rank, max(1, limit - sum(len(r.needed) for r in self.always)))
        self.starts = np.cumsum([0, *(len(rows.needed) for rows in self.single)])

    @property
    def known(self) -> list[ReadyRows]:
        return [*self.always, *self.single]

    def drawn(self, made: torch.Generator) -> list[ReadyRows]:
        """The rows of one step."""
        if not self.single:
            return self.always
        picked = draw(self.chance, made)
        cuts = np.searchsorted(picked, self.starts)
        parts = [
            rows.drawn(picked[first:last] - start, 1.0 / self.chance[picked[first:last]])
            for rows, start, first, last in zip(
                self.single, self.starts[:-1], cuts[:-1], cuts[1:], strict=True
            )
            if last > first
        ]
        return [*self.always, *parts]


def _one_input_each(rows: ReadyRows) -> bool:
    return isinstance(rows, SimpleRows) or isinstance(rows.rows, ConcaveRows)
