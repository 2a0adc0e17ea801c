"""Windows of measured matrices, for a router that must split the next one before it is known.

A window is the last W demand vectors. What a router reads of it is `summarise_windows`: the last
vector, means and the spread, which on the earlier matrices foretold more than all W vectors did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.traffic import Traffic, moments_of
from cg4ai.routing.network.instance import Instance, carry_robust

RECENT = 3  # vectors of the second summary, less where windows are shorter
SUMMARIES = 4  # vectors that a window is summarised by
AT_ONCE = 1024  # windows that are summarised at once
SAME_STEP = 1e-6  # by which steps between times may differ, as a share


def make_windows(vectors: Array, length: int) -> Array:
    """Vectors (T, D) -> a view (T - W + 1, W, D): the W vectors up to each time, oldest first."""
    if len(vectors) < length:
        return np.zeros((0, length, vectors.shape[1]))
    return np.moveaxis(sliding_window_view(vectors, length, axis=0), -1, 1)


def summarise_windows(windows: Tensor) -> Tensor:
    """Windows (n, W, D) -> (n, 4 D): last vector, mean of the last three, mean, and spread."""
    recent = windows[:, -RECENT:].mean(1)
    spread = windows.std(1, correction=0)
    return torch.cat([windows[:, -1], recent, windows.mean(1), spread], dim=-1)


def summarise(vectors: Array, length: int) -> Array:
    """`summarise_windows` of all windows of vectors (T, D): (T - W + 1, 4 D)."""
    windows = make_windows(vectors, length)
    parts = [
        summarise_windows(torch.tensor(windows[first : first + AT_ONCE])).numpy()
        for first in range(0, len(windows), AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, SUMMARIES * vectors.shape[1]))


@dataclass(frozen=True, eq=False)
class MeasuredHistory:
    """Windows of W = `length` vectors with what followed them.

    `before` (T, D) are all earlier vectors in order, and `follows` (n,) the positions there of the
    vectors to learn from, each with the W vectors before it. `windows` (L, W, D) are those before
    the later vectors that judge. Vectors of zeros stand in windows, but nothing is to be split for
    them. `notes` say what is irregular.
    """

    length: int
    before: Array
    follows: IntArray
    windows: Array
    notes: tuple[str, ...] = ()

    @classmethod
    def from_traffic(
        cls, instance: Instance, earlier: Traffic, later: Traffic, *, length: int
    ) -> MeasuredHistory:
        before, after = (part.to_vectors(instance) for part in (earlier, later))
        follows = np.arange(length, len(before))
        follows = follows[before[follows].any(axis=1)]
        if len(follows) < 2:
            raise InvalidInput(
                f"windows of {length} matrices need at least {length + 2} earlier ones with "
                f"traffic, got {len(before)}: give a shorter history, a later split, or more "
                "matrices",
                code="range",
            )
        every = make_windows(np.concatenate([before[-length:], after]), length)[:-1]
        notes = tuple(_irregular([*earlier.times, *later.times]))
        return cls(length, before, follows, every[after.any(axis=1)], notes)

    @property
    def features(self) -> Array:
        """(n, 4 D): what is read before each vector to learn from."""
        return summarise(self.before, self.length)[self.follows - self.length]

    @property
    def later_features(self) -> Array:
        """(L, 4 D): what is read before each vector that judges."""
        return np.asarray(summarise_windows(torch.tensor(self.windows)).numpy())


def note_history(made: Instance, history: MeasuredHistory, *, hose: bool) -> Instance:
    """The instance with what is to be said of its windows; `hose`: node totals were left out."""
    box = "the set is the box of the demands, without limits on node totals: splits for an unknown "
    left_out = (f"{box}matrix are kept within the capacities at its corner",) if hose else ()
    noted = replace(made, notes=(*made.notes, *left_out, *history.notes))
    carry_robust(noted, made, 1.0)
    return noted


def _irregular(times: Sequence[str]) -> list[str]:
    """What windows hide: steps between times that differ, or cannot be known."""
    steps = _steps(moments_of(list(times)))
    if steps is None:
        return ["times of the traffic are texts, so whether they are evenly apart is not known"]
    if not len(steps):
        return []
    usual = Counter(np.round(steps / steps.min(), 6).tolist()).most_common(1)[0][0] * steps.min()
    other = int((np.abs(steps - usual) > SAME_STEP * usual).sum())
    if not other:
        return []
    return [
        f"{other} of {len(steps)} steps between matrices differ from the usual one ({usual:g}): "
        "windows run across such gaps as if there were none"
    ]


def _steps(moments: list[Any]) -> Array | None:
    """(T - 1,) numbers, in seconds for dates; None for texts."""
    if all(isinstance(one, datetime) for one in moments):
        first = moments[0]
        return np.diff([(one - first).total_seconds() for one in moments])
    if all(isinstance(one, float) for one in moments):
        return np.diff(moments)
    return None
