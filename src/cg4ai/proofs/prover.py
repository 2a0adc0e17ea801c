"""`Prover`: a separator that proves; the cells it cannot close are remembered for training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Mixture
from cg4ai.proofs.certify import certify
from cg4ai.proofs.records import Certification, RuleCells
from cg4ai.records import PartState, SeparationResult
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Ball, Box
from cg4ai.separation.scan import harvest
from cg4ai.solving.clock import Deadline

LEAST_S = 0.1  # a proof is tried for this long, even past its deadline
PER_RULE = 200  # cells kept of each rule after a proof was tried
MOST = 6000  # cells remembered in all, the newest


def cells_of(answer: Certification, *, seed: int) -> RuleCells:
    """Some of the cells left open, as many of every rule."""
    left = answer.open_cells
    made = np.random.default_rng(seed)
    chosen = [np.empty(0, np.int64)]
    for rule in np.unique(left.rules):
        mine = np.flatnonzero((left.rules == rule) & np.isfinite(left.bounds))
        chosen.append(made.permutation(mine)[:PER_RULE])
    which = np.concatenate(chosen)
    return left.take(which)


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


@dataclass(frozen=True, slots=True)
class ProofResult(SeparationResult):
    """Rows at the inputs that refute a rule, and all that was proven."""

    certification: Certification


class Prover:
    """Bounds all cells of the region for one mixture; what stays open goes to `memory`.

    `cells` are bounded by the first proof at most, `growth` times more by each later one: members
    trained for a proof are worth more effort. `deadline` ends a proof early.
    """

    def __init__(self, memory: CellMemory, *, cells: int, growth: float, device: str) -> None:
        self.memory, self.cells, self.growth, self.device = memory, cells, growth, device
        self.tried = 0
        self.deadline = Deadline()

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> ProofResult:
        """Rows violated at the inputs that refute a rule; none if all are proven.

        `seed` chooses among the cells left open.
        """
        if not isinstance(ensemble, Ensemble):
            raise InvalidInput(f"only ensembles can be proven, got a {type(ensemble).__name__}")
        answer = certify(
            ensemble,
            requirement,
            time_limit_s=max(LEAST_S, self.deadline.left()),
            cell_limit=int(self.cells * self.growth**self.tried),
            device=self.device,
            all_rules=True,
        )
        self.tried += 1
        self.memory.add(cells_of(answer, seed=seed))
        effort = {"search": "proof", "cells": answer.cells}
        if not answer.violations:
            return ProofResult(None, np.empty(0), answer.excess, effort, answer)
        points = np.stack(list(answer.violations.values()))
        found = harvest(
            ensemble, requirement, points, limit=limit, tolerance=tolerance, effort=effort
        )
        return ProofResult(found.rows, found.violations, found.worst, effort, answer)

    def thorough(self) -> Prover:
        return self

    def state(self) -> PartState:
        return PartState({"tried": self.tried}, self.memory.state())

    def restore(self, state: PartState) -> None:
        self.tried = int(state.values["tried"])
        self.memory.restore(state.arrays)
