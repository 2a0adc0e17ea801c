"""What a summary says of measured traffic of later times, as sentences and rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from cg4ai.apps import format_excess
from cg4ai.report import format_count
from cg4ai.routing.demands.scaling import format_both

OURS, PLAIN = "this router", "plain network"  # names of rows
OPTIMUM = "optimum"
BEFORE = "the router before"  # of an update
STATIC = "best static split"
LIMITED = "changes of at most"  # and how much of each demand
HELD = "router with bounded changes"
DOTE = "plain network on the window (DOTE)"
FIXED = "fixed split of the shield"
OF_MEAN = "optimum of the mean of the window"
LEARNED = 300  # earlier vectors that static splits are made for, at most
PREVIOUS = 500  # later vectors at which the optimum of the one before is tried, at most


def make_rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row for each router and routing: MLU over the optimum on the later matrices."""
    return [
        {"": name, **{key: f"{value:.4f}" for key, value in row.items()}}
        for name, row in found["ratio"].items()
    ]


def describe_judged_traffic(found: Mapping[str, Any], factor: float | None = 1.0) -> list[str]:
    """The matrices learned from and judged on, and the set that was made of the first."""
    first, last, begin, end = found["times"]
    worst = ""
    if "worst_optimum" in found:
        worst = f"; the worst optimum found in it is {format_both(found['worst_optimum'], factor)}"
    judged = found.get("judged", found["later"])  # older summaries: all
    few = "" if judged == found["later"] else f" MLUs are of {judged} of them."
    return [
        f"Learned from {format_count(found['earlier'], 'matrix')} ({first} to {last}), judged on "
        f"{format_count(found['later'], 'later one')} ({begin} to {end}), {_inside(found)}{few}",
        *_drift(found),
        *_left_out(found),
        f"The best constant split keeps {format_both(found['level'], factor)} on the whole "
        f"set{worst}.",
    ]


def _inside(found: Mapping[str, Any]) -> str:
    """How many of the later matrices the guarantee covers."""
    later = found["later"]
    inside = round(found["inside"] * later)
    outside = "the router answers there too, but the guarantee does not cover"
    if inside == later:
        return "all of which lie in the set." if later > 1 else "which lies in the set."
    if inside == 0:
        if later == 1:
            return f"which lies outside the set: {outside} it."
        return f"all of which lie outside the set: {outside} them."
    left = later - inside
    others = "The other one lies" if left == 1 else f"The other {left} lie"
    return (
        f"{inside} of which ({found['inside']:.1%}) lie in the set. {others} outside: {outside} "
        f"{'it' if left == 1 else 'them'}."
    )


def _drift(found: Mapping[str, Any]) -> list[str]:
    """What later matrices outside the set exceed; older summaries do not say."""
    words = format_excess(found.get("drift", {}))
    return [f"Drift: {words}."] if words else []


def _left_out(found: Mapping[str, Any]) -> list[str]:
    """What of the matrices is not judged; older summaries do not say."""
    lines = []
    if found.get("elsewhere"):
        partial = found["partial"]
        verb = "counts" if partial == 1 else "count"
        such = (
            f"; {format_count(partial, 'later matrix')} with such traffic {verb} as outside the set"
        )
        lines.append(
            f"{found['elsewhere']:.2%} of the later traffic is between nodes that no demand joins "
            f"and is not routed{such if partial else ''}."
        )
    if found["earlier"] > LEARNED and not found["ratio"].keys().isdisjoint((STATIC, "COPE")):
        lines.append(
            f"Static splits and COPE are made for {LEARNED} of the earlier matrices, evenly over "
            "time."
        )
    if found.get("judged", found["later"]) > PREVIOUS and "previous optimum" in found["ratio"]:
        lines.append(f"The previous optimum is tried at {PREVIOUS} of the later matrices.")
    earlier, later = found.get("silent", (0, 0))
    if earlier or later:
        lines.append(
            "Without any traffic of the demands, and left out: "
            f"{format_count(earlier, 'earlier matrix')} and {format_count(later, 'later one')}."
        )
    return lines


# ---- over time ----------------------------------------------------------------------------------


def get_mlu_over_time(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """MLUs (n,) on the later matrices that were solved, by routing; older runs kept fewer."""
    stored = {OURS: "later_mlu", OPTIMUM: "later_optimal_mlu", STATIC: "later_static_mlu"}
    stored |= {HELD: "later_held_mlu"}
    return {name: arrays[key] for name, key in stored.items() if key in arrays}


def unpack_times(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The times of these matrices, from rows of UTF-8 bytes; none where a run kept none."""
    if "later_times" not in arrays:
        return []
    return [bytes(row).rstrip(b"\0").decode("utf-8") for row in arrays["later_times"]]
