"""`PoolScan`: evaluate every row of a finite pool and report the most violated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.records import SeparationResult
from cg4ai.rules.evaluation import Predictor, predictions, refuse_not_finite
from cg4ai.rules.rows import shortfall

if TYPE_CHECKING:
    from cg4ai.rules import Requirement


@dataclass(frozen=True)
class PoolScan:
    """Exact on a finite list: what it does not report is not violated."""

    def thorough(self) -> PoolScan:
        """A scan leaves nothing out already."""
        return self

    def find(
        self,
        ensemble: Predictor,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        """At most `limit` rows violated by more than `tolerance`, worst first."""
        rows = requirement.rows(-1)
        if rows is None:
            raise InvalidInput(
                f"PoolScan needs a finite list, but {requirement.name} holds over "
                f"{requirement.region}; use GradientAscent or BlackBox"
            )
        with torch.no_grad():
            values = rows.values(predictions(ensemble, rows.inputs)).numpy()
        violations = shortfall(rows.bounds, values)
        refuse_not_finite(violations, requirement.name)
        worst = float(violations.max())
        order = np.argsort(-violations, kind="stable")[:limit]
        order = order[violations[order] > tolerance]
        effort = {"search": "scan", "evaluations": len(rows.inputs), "rows": len(rows)}
        found = rows.take(order) if len(order) else None
        return SeparationResult(found, violations[order], worst, effort)
