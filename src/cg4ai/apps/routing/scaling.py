"""Capacities that are counted as a multiple of what they are, as `--scale-capacities` asks: words.

Utilisations of such a run are of counted capacities. Wherever one is shown, this says the multiple
and what it is of the real capacity. A factor of None stands for runs of earlier versions that
learned from traffic: they scaled capacities and did not keep by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FACTOR, REAL = "capacity_factor", "of_real_capacities"  # in summaries
UTILISATIONS = (
    *("corner_mlu", "worst_utilisation", "mean_optimal_mlu", "mean_mlu_gap", "max_mlu_gap"),
    *("plain_worst_utilisation", "plain_mean_mlu_gap", "plain_max_mlu_gap"),
    *("level", "worst_optimum", "worst", "worst_unshielded", "mean_gap", "mean_gap_unshielded"),
)


def factor_of(summary: Mapping[str, Any]) -> float | None:
    """What a summary says of the multiple; None where one was applied and is not known."""
    if FACTOR in summary:
        return float(summary[FACTOR])
    learned = summary.get("from_traffic", "traffic" in summary)
    return None if learned and summary.get("load") is not None else 1.0


def multiple(factor: float | None) -> str:
    """The capacities that are counted: empty where they are the real ones."""
    if factor == 1.0:
        return ""
    return "a scaled capacity" if factor is None else f"capacity x {factor:.5g}"


def counted(factor: float | None) -> str:
    """What follows the name of a utilisation that is of counted capacities."""
    return "" if factor == 1.0 else f" of {multiple(factor)}"


def rule_name(factor: float | None) -> str:
    """What the rule is called that no link exceeds its capacity; older runs called all alike."""
    return "capacity" if factor is None or factor == 1.0 else multiple(factor)


def both(value: float, factor: float | None, digits: str = ".4f") -> str:
    """A utilisation, with that of the real capacity beside it where this is another."""
    text = f"{value:{digits}}"
    if factor == 1.0:
        return text
    if factor is None:
        return f"{text}{counted(factor)}"
    return f"{text}{counted(factor)} ({value * factor:{digits}} of the real one)"


def of_capacity(value: float, factor: float | None, digits: str = ".6g") -> str:
    """What a link is loaded to, as `0.5 of its capacity` where this is the real one."""
    return both(value, factor, digits) + (" of its capacity" if factor == 1.0 else "")


def said_first(factor: float | None) -> list[str]:
    """The first line of a result whose capacities are not those of the network."""
    if factor == 1.0:
        return []
    if factor is None:
        return [
            "SCALED CAPACITIES: this run, of an earlier version, counted the capacity of every "
            "link as a multiple of what it is and did not keep by how much. Utilisations and "
            "guarantees are of these capacities, not of the real ones."
        ]
    return [
        f"SCALED CAPACITIES: every link is counted with {factor:.5g} times its capacity, as "
        "--scale-capacities asked. Utilisations and guarantees are of these capacities; of the "
        f"real ones, utilisations are {factor:.5g} times as large."
    ]


def kept(words: str, factor: float | None) -> str:
    """A guarantee of counted capacities, and what it says of the real ones."""
    if factor == 1.0:
        return words
    real = "Of the real capacities nothing is said."
    if factor is not None:
        real = f"No link carries more than {factor:.5g} times its real capacity."
    if not words[:2].isupper():
        words = f"{words[0].lower()}{words[1:]}"
    return f"Of {multiple(factor)}: {words} {real}"


def real_figures(summary: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The utilisations of a summary, of the real capacities; parts of it as they are nested."""
    found: dict[str, Any] = {}
    for name, value in summary.items():
        if name in UTILISATIONS and isinstance(value, int | float):
            found[name] = factor * value
        elif isinstance(value, Mapping) and (inner := real_figures(value, factor)):
            found[name] = inner
    return found
