"""Cells that resisted a proof and points that broke or nearly broke a rule, kept for training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cg4ai.proofs import Certification
from cg4ai.records import Array, IntArray
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from cg4ai.rules.rows import LinearRows, Rows, merged

PER_RULE = 200  # cells kept of each rule after a proof was tried
MOST = 6000  # cells remembered in all, the newest
MOST_POINTS = 4096


@dataclass(frozen=True, eq=False)
class RuleCells:
    """`rules` (m,), corners `lower` and `upper` (m, d)."""

    rules: IntArray
    lower: Array
    upper: Array

    def __len__(self) -> int:
        return len(self.rules)

    def take(self, which: IntArray) -> RuleCells:
        return RuleCells(self.rules[which], self.lower[which], self.upper[which])

    def joined(self, other: RuleCells) -> RuleCells:
        return RuleCells(
            np.concatenate([self.rules, other.rules]),
            np.concatenate([self.lower, other.lower]),
            np.concatenate([self.upper, other.upper]),
        )


def cells_of(answer: Certification, *, seed: int) -> RuleCells:
    """Some of the cells left open, as many of every rule."""
    left = answer.open_cells
    made = np.random.default_rng(seed)
    chosen = [np.empty(0, np.int64)]
    for rule in np.unique(left.rules):
        mine = np.flatnonzero((left.rules == rule) & np.isfinite(left.bounds))
        chosen.append(made.permutation(mine)[:PER_RULE])
    which = np.concatenate(chosen)
    return RuleCells(left.rules[which], left.lower[which], left.upper[which])


class CellMemory:
    """What a router must be trained on to be proven: cells by rule, and rows at points."""

    def __init__(self, requirement: Linear) -> None:
        self.requirement = requirement
        assert isinstance(requirement.region, Box)
        size = requirement.region.size
        self.cells = RuleCells(np.empty(0, np.int64), np.empty((0, size)), np.empty((0, size)))
        self.points: LinearRows | None = None

    def __len__(self) -> int:
        return len(self.cells) + (0 if self.points is None else len(self.points))

    def add(self, cells: RuleCells, violations: Mapping[int, Array]) -> None:
        joined = self.cells.joined(cells)
        self.cells = joined.take(np.arange(max(0, len(joined) - MOST), len(joined)))
        if violations:
            inputs = np.stack(list(violations.values()))
            rows = self.requirement.rows_at(inputs, np.array(list(violations), np.int64), 0)
            self.add_points(rows)

    def add_points(self, rows: Rows) -> None:
        assert isinstance(rows, LinearRows)
        rows = rows if rows.requirement == 0 else _numbered(rows)
        joined = rows if self.points is None else merged([self.points, rows])
        first = max(0, len(joined) - MOST_POINTS)
        self.points = joined.take(np.arange(first, len(joined)))


def _numbered(rows: LinearRows) -> LinearRows:
    return LinearRows(0, rows.inputs, rows.coefficients, rows.bounds, rows.index, rows.mixing)
