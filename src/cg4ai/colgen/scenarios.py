"""The scenarios of an epigraph objective inside a run: its own, and the tail found on the way."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cg4ai.objectives import Epigraph
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import LinearRows

TOLERANCE = 1e-7


class Scenarios:
    """Which pieces the master has of each scenario, and what every column gives there.

    `inputs` (s, d), and `read` what pieces read there; `levels` (s,) are what a scenario's largest
    piece may reach at no cost, the floor for the objective's own; `outputs` (columns, s, r) are the
    columns' in all outputs.
    """

    def __init__(self, objective: Epigraph, device: str) -> None:
        self.objective = objective
        self.device = device
        self.own = len(objective.inputs)
        self.inputs = objective.inputs
        self.read = objective.read
        self.levels = np.full(self.own, float(objective.floor))
        self.in_master = np.zeros((self.own, objective.pieces.count), bool)
        self.outputs: Tensor | None = None

    @property
    def costs(self) -> Array:
        """What a unit of each scenario's variable costs in the master."""
        tail = self.objective.tail
        own = np.full(self.own, 1.0 / self.own)
        found = len(self.inputs) - self.own
        return np.concatenate([own, np.full(found, 0.0 if tail is None else tail.weight)])

    def add_columns(self, outputs: Tensor) -> None:
        self.outputs = outputs if self.outputs is None else torch.cat([self.outputs, outputs])

    def extend(self, inputs: Array, levels: Array, outputs: Tensor | None) -> None:
        """More scenarios, with the outputs (columns, k, r) of all columns there."""
        self.inputs = np.concatenate([self.inputs, inputs])
        self.read = self.inputs  # an objective with targets has no tail
        self.levels = np.concatenate([self.levels, levels])
        none = np.zeros((len(inputs), self.in_master.shape[1]), bool)
        self.in_master = np.concatenate([self.in_master, none])
        if outputs is not None and self.outputs is not None:
            self.outputs = torch.cat([self.outputs, outputs], dim=1)

    def find_missing_rows(self, weights: Array, unit: float) -> LinearRows | None:
        """The rows that the master lacks to see this mixture's value; marked as known to it.

        What is short by less than a share of the `unit` of the objective counts as seen.
        """
        if self.outputs is None:
            return None
        floor = self.objective.floor
        tolerance = TOLERANCE * unit if self.in_master.any() else 0.0
        values = self._values(weights) - (self.levels - floor)[:, None]
        known = np.where(self.in_master, values, floor).max(axis=1)
        which = values.argmax(axis=1)
        short = np.flatnonzero(values.max(axis=1) > np.maximum(known, floor) + tolerance)
        if not len(short):
            return None
        self.in_master[short, which[short]] = True
        return self.rows(short, which[short])

    def group_means(self, weights: Array) -> Array:
        """(g,): the mean of this mixture's largest piece over each group of own scenarios.

        Empty where the objective names no groups.
        """
        groups = self.objective.groups
        if groups is None:
            return np.empty(0)
        largest = self._values(weights)[: self.own].max(axis=1)
        return np.asarray(np.bincount(groups, largest) / np.bincount(groups))

    def _values(self, weights: Array) -> Array:
        """(s, pieces): those of this mixture at every scenario."""
        assert self.outputs is not None
        mixing = torch.as_tensor(weights, device=self.device)
        used = torch.nonzero(mixing).squeeze(1)
        mixture = torch.einsum("m,mnr->nr", mixing[used], self.outputs[used])
        read = torch.as_tensor(self.read, device=self.device)
        return np.asarray(self.objective.pieces.values(read, mixture).cpu().numpy())

    def rows(self, scenarios: IntArray, which: IntArray) -> LinearRows:
        """Rows `t_s - piece >= floor - level` without the variable, which the master adds."""
        inputs = self.inputs[scenarios]
        return LinearRows(
            requirement=-1,
            inputs=inputs,
            coefficients=-self.objective.pieces.coefficients(self.read[scenarios], which),
            bounds=self.objective.floor - self.levels[scenarios],
            index=np.arange(len(scenarios)),
            origin=np.stack([scenarios, which], axis=1),
        )
