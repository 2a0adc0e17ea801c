"""The figure of whole matrices: what a network costs, by its demands times their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.drawing import new_panels, write


def cost_figure(rows: Sequence[Mapping[str, Any]], target: Path) -> Path | None:
    """Seconds of processor time and mean gap against all paths; None without rows."""
    known = [row for row in rows if "processor s" in row]
    if not known:
        return None
    figure, (cost, gap) = new_panels(2)
    size = [row["paths"] for row in known]  # of all demands together
    cost.loglog(size, [row["processor s"] for row in known], "o", label="whole run, processor")
    cost.loglog(size, [row["training s"] for row in known], "x", label="training, wall clock")
    cost.set_ylabel("seconds")
    cost.legend()
    gap.semilogx(size, [row["mean gap"] for row in known], "o")
    gap.axhline(0.005, color="grey", linewidth=0.8)
    gap.set_ylabel("mean MLU above the optimum")
    for panel in (cost, gap):
        panel.set_xlabel("demands x paths of each")
    for row, x in zip(known, size, strict=True):
        cost.annotate(
            row["network"],
            (x, row["processor s"]),
            xytext=(4, -8),  # not on top of the point
            textcoords="offset points",
            fontsize=7,
        )
    return write(figure, target)
