"""Cells that resisted a proof, remembered for training and for the master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.proofs.records import Certification
from cg4ai.records import Array, IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Ball, Box

PER_RULE = 200  # cells kept of each rule after a proof was tried
MOST = 6000  # cells remembered in all, the newest


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
    """The newest cells of a requirement, over a box or ball, that resisted a proof."""

    def __init__(self, requirement: Requirement) -> None:
        region = requirement.region
        if not isinstance(region, Box | Ball):
            raise InvalidInput(
                f"{requirement.name} is over no Box or Ball, so it has no cells to prove"
            )
        self.requirement = requirement
        size = len(region.bounds()[0])
        self.cells = RuleCells(np.empty(0, np.int64), np.empty((0, size)), np.empty((0, size)))

    def __len__(self) -> int:
        return len(self.cells)

    def add(self, cells: RuleCells) -> None:
        joined = self.cells.joined(cells)
        self.cells = joined.take(np.arange(max(0, len(joined) - MOST), len(joined)))

    def state(self) -> dict[str, NDArray[Any]]:
        """All of it as named arrays, for a checkpoint."""
        return {
            "rules": self.cells.rules,
            "lower": self.cells.lower,
            "upper": self.cells.upper,
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        self.cells = RuleCells(state["rules"], state["lower"], state["upper"])
