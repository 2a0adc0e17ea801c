"""What all searches share, from inputs to rows, and the smallest: `PoolScan` looks at every row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, SeparationResult
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import compute_shortfall
from cg4ai.rules.violations import (
    OutputModel,
    check_finite,
    predictions,
    region_violations,
)

if TYPE_CHECKING:
    from cg4ai.rules import Requirement

NEAR = 1e-2  # inputs this close, relative to the half-widths of the region, count as one


def pick_starts(screened: Array, starts: int, generator: torch.Generator) -> IntArray:
    """Which candidates each rule starts from, (rules, starts): half the worst, half random.

    `screened` (n, rules) holds the violations of the candidates.
    """
    count, rules = screened.shape
    starts = min(starts, count)
    best = math.ceil(starts / 2)
    ranked = np.argsort(np.ascontiguousarray(-screened.T), axis=1, kind="stable")
    chosen = [
        best + torch.randperm(count - best, generator=generator)[: starts - best].numpy()
        for _ in range(rules)
    ]
    rest = np.take_along_axis(ranked, np.stack(chosen), axis=1)
    return np.concatenate([ranked[:, :best], rest], axis=1)


def get_search_region(requirement: Requirement, separator: str) -> Region:
    """The region that is searched, or an error that names the right separator."""
    region = requirement.region
    if not isinstance(region, Region):
        raise InvalidInput(
            f"{separator} searches a Box, Ball or Polytope, but {requirement.name} lists its "
            "inputs; use PoolScan",
            code="unsupported",
        )
    return region


def collect_violations(
    mixture: OutputModel,
    requirement: Requirement,
    inputs: Array,
    *,
    limit: int,
    tolerance: float,
    effort: Mapping[str, Any],
) -> SeparationResult:
    """The distinct violations among all rules at those `inputs` (n, d) in the region, worst first.

    When there are more than `limit`, the worst of every rule goes before the second of any: rows
    of different rules help the master more than neighbours do.
    """
    region = get_search_region(requirement, "harvest")
    inside = region.contains(inputs)  # steps in a region that is flat may leave it
    inputs = inputs[inside] if inside.any() else region.middle[None]
    violations = region_violations(mixture, requirement, inputs)
    worst = float(violations.max())
    point, rule = np.nonzero(violations > tolerance)
    size = violations[point, rule]
    lower, upper = region.bounds()
    half = np.maximum((upper - lower) / 2, 1e-300)
    order = np.argsort(-size, kind="stable")
    kept = _distinct(inputs / half, point[order], rule[order], limit)
    chosen = order[kept]
    if len(chosen) == 0:
        return SeparationResult(None, np.empty(0), worst, effort)
    rows = requirement.rows_at(inputs[point[chosen]], rule[chosen], -1)
    return SeparationResult(rows, size[chosen], worst, effort)


def _distinct(scaled: Array, point: IntArray, rule: IntArray, limit: int) -> IntArray:
    """Positions to keep of (point, rule) pairs given worst first; the order is kept.

    Goes round the rules: each keeps its worst input that is left and drops that one's neighbours.
    """
    left = [np.flatnonzero(rule == one) for one in np.unique(rule)]
    kept: list[int] = []
    while left and len(kept) < limit:
        left.sort(key=lambda positions: int(positions[0]))
        following = []
        for positions in left[: limit - len(kept)]:
            kept.append(int(positions[0]))
            away = np.abs(scaled[point[positions]] - scaled[point[positions[0]]]).max(axis=1)
            following.append(positions[away > NEAR])
        left = [positions for positions in following if len(positions)]
    return np.array(sorted(kept), dtype=np.int64)


@dataclass(frozen=True)
class PoolScan(SeparatorDefaults):
    """Exact on a finite list: what it does not report is not violated."""

    def find(
        self,
        ensemble: OutputModel,
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
                f"{requirement.region}; use GradientAscent or BlackBox",
                code="unsupported",
            )
        with torch.no_grad():
            values = rows.values(predictions(ensemble, rows.inputs)).numpy()
        violations = compute_shortfall(rows.bounds, values)
        check_finite(violations, requirement.name)
        worst = float(violations.max())
        order = np.argsort(-violations, kind="stable")[:limit]
        order = order[violations[order] > tolerance]
        effort = {"search": "scan", "evaluations": len(rows.inputs), "rows": len(rows)}
        found = rows.take(order) if len(order) else None
        return SeparationResult(found, violations[order], worst, effort)
