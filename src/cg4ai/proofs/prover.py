"""`Prover`: a separator that proves; the cells it cannot close are remembered for training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Mixture
from cg4ai.proofs.cells import CellMemory, cells_of
from cg4ai.proofs.certify import certify
from cg4ai.proofs.records import Certification
from cg4ai.records import PartState, SeparationResult
from cg4ai.rules import Requirement
from cg4ai.separation.scan import harvest
from cg4ai.solving.clock import Deadline

LEAST_S = 0.1  # a proof is tried for this long, even past its deadline


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
