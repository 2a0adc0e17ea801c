"""Options of `cg4ai route` that are more than one word or number, read from their text."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from cg4ai.errors import InvalidInput

HISTORY = "history"  # in descriptions and summaries: what is said of windows
ALL = 0  # demands: every one that there is
AUTO = 0.0  # ratio: the least that the cells reach
CAPACITIES_AUTO = "auto"  # scale_capacities: what the load asks for
MOST_PARTS = 4096  # granularity: beyond it rounding hardly shows
LEAST_FACTOR, LARGEST_FACTOR = 1e-9, 1e9


def sizes_of(text: str) -> tuple[int, ...]:
    """Hidden layer sizes from the text of an option."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isdecimal() and len(part) < 20 for part in parts):
        raise InvalidInput(
            f"hidden must be layer sizes such as 32 or 32,16, got {text!r}", code="type"
        )
    return tuple(int(part) for part in parts)


def load_of(text: str) -> float | None:
    """The option --load: a number, or none for the volumes as they are."""
    return _read_number_or_none(text, "load must be a number above 0 and at most 1, or none")


def fallback_of(text: str) -> float | None:
    """The option --fallback: a gap, or none for the router's answers as they are."""
    return _read_number_or_none(text, "fallback must be a gap of at least 0, such as 0.02, or none")


def churn_of(text: str) -> float | None:
    """The option --churn: a share, or none for answers that may change by any."""
    return _read_number_or_none(text, "churn must be a share from 0 to 1, such as 0.05, or none")


def churn_fault(bound: float, parts: int | None = None) -> str:
    """What is wrong with a bound of changes of splits in multiples of 1/parts; empty if nothing."""
    if not 0 <= bound <= 1:
        return f"churn must be a share from 0 to 1 of each demand, such as 0.05, got {bound}"
    if parts is None or bound == 0 or bound * parts >= 1 - 1e-9:
        return ""
    return (
        f"churn {bound:g} is less than one part of granularity {parts}: ask for at least "
        f"{1 / parts:.4g}, for 0 (no change unless a link would be overloaded), or for a finer "
        "granularity"
    )


def _read_number_or_none(text: str, expected: str) -> float | None:
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{expected}, got {text!r}", code="range") from None


def demands_of(text: str) -> int:
    """The option --demands: how many, or all."""
    if text.strip().lower() == "all":
        return ALL
    if not text.strip().isdecimal() or len(text) > 18 or int(text) == ALL:
        raise InvalidInput(
            f"demands must be a whole number of at least 1, or all, got {text!r}", code="range"
        )
    return int(text)


def ratio_of(text: str) -> float:
    """The option --ratio: a number, or auto for the least that the cells reach."""
    if text.strip().lower() == "auto":
        return AUTO
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number >= 1:
        raise InvalidInput(
            f"ratio must be a number of at least 1, such as 1.2, or auto, got {text!r}",
            code="range",
        )
    return number


def factor_of(text: str) -> float | str:
    """The option --scale-capacities: a number, or auto."""
    if text.strip().lower() == CAPACITIES_AUTO:
        return CAPACITIES_AUTO
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(factor_fault(text)) from None


def factor_fault(value: Any) -> str:
    """What is wrong with a multiple of capacities; empty if nothing is."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if value == CAPACITIES_AUTO or (is_number and LEAST_FACTOR <= value <= LARGEST_FACTOR):
        return ""
    return (
        f"scale_capacities must be a factor from {LEAST_FACTOR:g} to {LARGEST_FACTOR:g}, or "
        f"{CAPACITIES_AUTO}, got {value!r}"
    )
