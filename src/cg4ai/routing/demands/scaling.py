"""Capacities that are counted as a multiple of what they are, as `--scale-capacities` asks: words.

Utilisations of such a run are of counted capacities. Wherever one is shown, this says the multiple
and what it is of the real capacity. A factor of None stands for runs of earlier versions that
learned from traffic: they scaled capacities and did not keep by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FACTOR, REAL = "capacity_factor", "of_real_capacities"  # in summaries
# what of a summary is a utilisation, or a difference of two: ratios, which share names with them
# elsewhere ("worst"), are the same whatever capacities are counted
UTILISATIONS = (
    *("corner_mlu", "worst_utilisation", "mean_optimal_mlu", "mean_mlu_gap", "max_mlu_gap"),
    *("plain_worst_utilisation", "plain_mean_mlu_gap", "plain_max_mlu_gap"),
)
IN_PART: dict[str, tuple[str, ...]] = {
    "shield": ("worst", "worst_unshielded", "mean_gap", "mean_gap_unshielded"),
    "traffic": ("level", "worst_optimum"),
}
MIXES = "mixes"  # each with figures of its own
OF_MIX = ("mean_optimal_mlu", "mean_mlu_gap", "max_mlu_gap")


def factor_of(summary: Mapping[str, Any]) -> float | None:
    """What a summary says of the multiple; None where one was applied and is not known."""
    if FACTOR in summary:
        return float(summary[FACTOR])
    learned = summary.get("from_traffic", "traffic" in summary)
    return None if learned and summary.get("load") is not None else 1.0


def format_multiple(factor: float | None) -> str:
    """The capacities that are counted: empty where they are the real ones."""
    if factor == 1.0:
        return ""
    return "a scaled capacity" if factor is None else f"capacity x {factor:.5g}"


def format_scaling_suffix(factor: float | None) -> str:
    """What follows the name of a utilisation that is of counted capacities."""
    return "" if factor == 1.0 else f" of {format_multiple(factor)}"


def rule_name(factor: float | None) -> str:
    """What the rule is called that no link exceeds its capacity; older runs called all alike."""
    return "capacity" if factor is None or factor == 1.0 else format_multiple(factor)


def format_both(value: float, factor: float | None, digits: str = ".4f") -> str:
    """A utilisation, with that of the real capacity beside it where this is another."""
    text = f"{value:{digits}}"
    if factor == 1.0:
        return text
    if factor is None:
        return f"{text}{format_scaling_suffix(factor)}"
    return f"{text}{format_scaling_suffix(factor)} ({value * factor:{digits}} of the real one)"


def format_of_capacity(value: float, factor: float | None, digits: str = ".6g") -> str:
    """What a link is loaded to, as `0.5 of its capacity` where this is the real one."""
    return format_both(value, factor, digits) + (" of its capacity" if factor == 1.0 else "")


def format_notice(factor: float | None) -> list[str]:
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


def format_guarantee(words: str, factor: float | None) -> str:
    """A guarantee of counted capacities, and what it says of the real ones."""
    if factor == 1.0:
        return words
    real = "Of the real capacities nothing is said."
    if factor is not None:
        real = f"No link carries more than {factor:.5g} times its real capacity."
    if not words[:2].isupper():
        words = f"{words[0].lower()}{words[1:]}"
    return f"Of {format_multiple(factor)}: {words} {real}"


def real_figures(summary: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The utilisations of a summary, of the real capacities; parts of it as they are nested."""
    found: dict[str, Any] = _times(summary, UTILISATIONS, factor)
    for part, names in IN_PART.items():
        if inner := _times(summary.get(part) or {}, names, factor):
            found[part] = inner
    mixes = summary.get(MIXES) or {}
    if each := {mix: _times(figures, OF_MIX, factor) for mix, figures in mixes.items()}:
        found[MIXES] = each
    return found


def _times(part: Mapping[str, Any], names: tuple[str, ...], factor: float) -> dict[str, float]:
    """The figures of these names that a part of a summary has, each `factor` times."""
    known = {name: part.get(name) for name in names}
    return {name: factor * value for name, value in known.items() if isinstance(value, int | float)}
