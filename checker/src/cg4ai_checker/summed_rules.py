"""Sums of rules: where several rules of one claim together keep a limit that none states alone.

Rule l of a total says that its left side is at most its limit. Then the sum of their left sides is
at most the sum of their limits, at every input: nothing is to be proven but that this sum is within
the limit of the total. So what is decided apart, each within a share of a capacity, keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.errors import Rejected

if TYPE_CHECKING:
    from cg4ai_checker.claim import Claim

SHOWN = 3  # totals in a verdict


@dataclass(frozen=True)
class Totals:
    """`names` (T,), the total `of_rule` (L,) that each rule is part of, and `limit` (T,)."""

    names: list[str]
    of_rule: NDArray[np.int64]
    limit: Array

    def words(self) -> list[str]:
        """What follows from the rules, for the verdict."""
        lines = [
            f"{len(self.of_rule)} rules are parts of {len(self.limit)} totals, and each total "
            "keeps its limit:"
        ]
        for total in range(min(len(self.limit), SHOWN)):
            parts = np.flatnonzero(self.of_rule == total).tolist()
            rules = ", ".join(map(str, parts[:SHOWN])) + (", ..." if len(parts) > SHOWN else "")
            lines.append(
                f"Total {self.names[total]!r}: the sum of rules number {rules} <= "
                f"{float(self.limit[total])!r}"
            )
        left = len(self.limit) - SHOWN
        return [*lines, f"... and {left} more totals."] if left > 0 else lines


def checked_totals(
    names: list[str], of_rule: NDArray[np.int64], limit: Array, claim: Claim
) -> Totals:
    """The totals, or Rejected where rules do not add up to them."""
    count = len(limit)
    if len(names) != count or not count:
        raise Rejected(f"{len(names)} names are given for {count} totals")
    if not claim.plain.all() or len(claim.square_rule) or claim.quadratic is not None:
        raise Rejected(
            "only linear rules with a number for a limit are added up to totals", code="unsupported"
        )
    if not np.array_equal(np.unique(of_rule), np.arange(count)):
        raise Rejected(f"every rule is part of one of the totals 0 to {count - 1}, each has one")
    for total, name in enumerate(names):
        # math.fsum rounds the exact sum once, so above the limit it is never hidden
        parts = claim.target[of_rule == total].tolist()
        if _exceeds(parts, float(limit[total])):
            raise Rejected(
                f"the limits of the rules that {name} is made of sum to {math.fsum(parts)!r}, "
                f"above its own, {float(limit[total])!r}"
            )
    return Totals(names, of_rule, limit)


def _exceeds(parts: list[float], limit: float) -> bool:
    """Whether the exact sum of the parts is above the limit."""
    return math.fsum([*parts, -limit]) > 0


def merged_slopes(claim: Claim, totals: Totals) -> dict[tuple[int, int, int], float]:
    """The slopes of the totals by (total, output, input); Rejected if two rules share one."""
    found: dict[tuple[int, int, int], float] = {}
    for rule, output, entry, value in zip(
        totals.of_rule[claim.slope_rule].tolist(),
        claim.slope_output.tolist(),
        claim.slope_input.tolist(),
        claim.slope_value.tolist(),
        strict=True,
    ):
        if (rule, output, entry) in found:
            raise Rejected(f"two rules of the total {totals.names[rule]} bind the same output")
        found[rule, output, entry] = value
    return found


def given(value: Any) -> bool:
    """Whether a claim, as it stands in a file, has totals."""
    return isinstance(value, dict) and "totals" in value
