"""Drift: how many inputs lie outside the region of a guarantee, and what they exceed most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.records import Array, IntArray

NAMED = 5  # limits that a summary lists
FACTOR = "factor"
AT_LIMIT = 1 - 1e-9  # a limit that is exceeded by rounding alone is, too


@dataclass(frozen=True, eq=False)
class Excess:
    """Of inputs (n,) which limit of the region each exceeds most, and by what factor.

    `worst` (n,) counts into the names `limits`. `factors` (n,) are at most 1 inside, and infinite
    where a limit of zero is exceeded.
    """

    limits: Sequence[str]
    worst: IntArray
    factors: Array


def summarise_drift(outside: NDArray[np.bool_], excess: Excess | None) -> dict[str, Any]:
    """Of rows (n,), those outside: how many, the largest excess, and what is exceeded most often.

    `excess`: of the same rows; None where a region has no names for its limits. Rows that are
    outside for another reason than a limit are in the first count alone.
    """
    found: dict[str, Any] = {
        "rows": len(outside),
        "outside": int(outside.sum()),
        "share": float(outside.mean()) if len(outside) else 0.0,
    }
    if excess is None:
        return found
    beyond = np.flatnonzero(outside & (excess.factors >= AT_LIMIT))
    if not len(beyond):
        return found
    factors, worst = excess.factors[beyond], excess.worst[beyond]
    first = int(factors.argmax())
    found["largest"] = {
        "limit": excess.limits[int(worst[first])],
        FACTOR: _finite(factors[first]),
        "row": int(beyond[first]),
    }
    found["by_limit"] = [
        {
            "limit": excess.limits[number],
            "rows": rows,
            FACTOR: _finite(factors[worst == number].max()),
        }
        for number, rows in Counter(worst.tolist()).most_common(NAMED)
    ]
    return found


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def format_excess(found: Mapping[str, Any], where: str = "") -> str:
    """What a summary says of the excess, in words; empty where it says nothing.

    `where`: the place of the row of the largest excess, such as `line 3`.
    """
    if "largest" not in found:
        return ""
    largest = found["largest"]
    place = f" ({where})" if where else ""
    often = ", ".join(f"{one['limit']} ({one['rows']})" for one in found["by_limit"])
    return (
        f"exceeded most: {largest['limit']}, by a factor of {format_factor(largest[FACTOR])}"
        f"{place}; counted by the limit that they exceed most: {often}"
    )


def format_factor(factor: float | None) -> str:
    """`1.31`, or `infinity` where the limit is zero."""
    return "infinity" if factor is None else f"{factor:.3g}"
