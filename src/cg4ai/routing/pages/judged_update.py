"""What a summary says of an update: what has changed, was kept and trained, and what it brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cg4ai.report import format_count

OF_NETWORK, OF_SET = "on the changed network", "on the new set"


def describe_update(summary: Mapping[str, Any]) -> list[str]:
    """What has changed, what was kept of the old router and what was trained; empty for others."""
    if "update" not in summary:
        return []
    update = summary["update"]
    changes = "; ".join(update["changes"])
    lines = [f"Update of {update['of']} by new {update['by']}: {changes}."]
    kept, trained = update["kept_networks"], update["trained_networks"]
    if kept:
        steps = f" by {update['steps']} steps" if trained else ""
        lines.append(
            f"Kept: the weights of {format_count(kept, 'network')}. Trained: "
            f"{format_count(trained, 'further network')}{steps}. New: the safe constant split and "
            "its shield."
        )
    else:
        lines.append("NO NETWORK COULD BE CARRIED OVER: all were trained anew.")
    if update["certificate_accepted"] is False:
        lines.append("THE GUARANTEE IS NOT RE-ESTABLISHED: the checker accepted no certificate.")
    return lines


def describe_before(summary: Mapping[str, Any]) -> list[str]:
    """The old router where the new one is judged, and the new one; empty where there is none."""
    if "update" not in summary:
        return []
    update = summary["update"]
    where = OF_NETWORK if update["by"] == "network" else OF_SET
    before, after = update["before"], update["after"]
    lines = []
    if "mean_mlu_gap" in before:
        lines.append(
            f"Mean MLU above the optimum {where}: {before['mean_mlu_gap']:.4f} before the update "
            f"(largest {before['max_mlu_gap']:.4f}), {after['mean_mlu_gap']:.4f} after it (largest "
            f"{after['max_mlu_gap']:.4f})."
        )
    if before.get("mean_ratio") is not None:
        lines.append(
            f"Mean MLU over the optimum on later matrices: {before['mean_ratio']:.4f} before the "
            f"update (worst {before['worst_ratio']:.4f}), {after['mean_ratio']:.4f} after it "
            f"(worst {after['worst_ratio']:.4f})."
        )
    lines.append(
        f"Worst link utilisation at these vectors and the edge of the set: "
        f"{before['worst_utilisation']:.4f} before, {after['worst_utilisation']:.4f} after."
    )
    return lines


def format_original(summary: Mapping[str, Any]) -> str:
    """How long training the run that was updated took, where that is known."""
    seconds = summary.get("update", {}).get("original_s")
    return "" if seconds is None else f" The run that was updated was trained in {seconds:.0f} s."
