"""Concave rules in the master: cuts tangent to them at mixtures that break them.

A concave row `value(f) >= bound` holds exactly where all its tangents do, so a master with some of
them is a relaxation: its bounds and its infeasibility are those of the rule. Tangents are added at
the master's own mixture until that keeps the row.
"""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.colgen.pricing.reduced_cost import compute_mixture_outputs
from cg4ai.members.mixture import Mixture
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import ConcaveRows, LinearRows

TANGENT_ROUNDS = 100  # solves in a row with further tangents to concave rules
FINEST = 2e-9  # what a row may lack, by its size: linear programs are solved to 1e-9


class TangentRows:
    """The concave rows of a run in order; `slack` (m,) numbers the slack variable of each.

    Rows of one number share it: all tangents of a row, or all rows of a requirement.
    """

    def __init__(self) -> None:
        self.batches: list[ConcaveRows] = []
        self.sizes = np.empty(0)
        self.slack = np.empty(0, np.int64)
        self.source: dict[int, IntArray] = {}  # of the master's batches: the row of each tangent
        self._known: set[tuple[int, bytes]] = set()

    def __len__(self) -> int:
        return len(self.slack)

    def add(self, rows: ConcaveRows, sizes: Array, slack: IntArray) -> None:
        self.batches.append(rows)
        self.sizes = np.concatenate([self.sizes, sizes])
        self.slack = np.concatenate([self.slack, slack])

    def row(self, number: int) -> tuple[ConcaveRows, int]:
        """The batch of a row, and its place there."""
        for batch in self.batches:
            if number < len(batch):
                return batch, number
            number -= len(batch)
        raise IndexError(number)

    def find_missing_tangents(
        self, ensemble: Mixture, *, device: str, margin: float, allowed: Array
    ) -> list[tuple[LinearRows, IntArray]]:
        """Tangents at this mixture to the rows that it breaks, and the number of each row.

        Rows are asked for `margin` x size more than their bound and broken where they lack more
        than half of that, beyond `allowed` (m,): the slack that the master gives them.
        """
        found, start = [], 0
        for batch in self.batches:
            numbers = np.arange(start, start + len(batch))
            start += len(batch)
            outputs = compute_mixture_outputs(ensemble, batch.inputs, device)
            asked = margin * self.sizes[numbers]
            lacking = batch.bounds + asked - _values(batch, outputs) - allowed[numbers]
            fine = np.maximum(asked / 2, FINEST * self.sizes[numbers])
            broken = np.flatnonzero(~(lacking <= fine))
            new = np.array([j for j in broken if self._is_new(numbers[j], outputs[j])], np.int64)
            if len(new):
                found.append((batch.take(new).tangents(outputs[new]), numbers[new]))
        return found

    def room(self, ensemble: Mixture, device: str) -> Array:
        """What this mixture has to spare in each row (m,), by its size; negative where broken."""
        left = [
            _values(batch, compute_mixture_outputs(ensemble, batch.inputs, device)) - batch.bounds
            for batch in self.batches
        ]
        return np.concatenate([np.empty(0), *left]) / self.sizes

    def _is_new(self, number: int, outputs: Array) -> bool:
        """Whether this tangent was never made: one that did not move the master never will."""
        key = (int(number), outputs.tobytes())
        known = key in self._known
        self._known.add(key)
        return not known


def _values(rows: ConcaveRows, outputs: Array) -> Array:
    with torch.no_grad():
        return np.asarray(rows.values(torch.as_tensor(outputs)).numpy())
