"""The figure of whole matrices: what a network costs, by its demands times their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.drawing import new_panels, write

# names of all would overlap: these, on the side where there is room
LABELLED = {
    "di-yuan": ((0, -14), "left"),
    "abilene": ((0, -14), "left"),
    "geant": ((5, 5), "left"),
    "germany50": ((-5, 5), "right"),
    "ta2": ((-6, 2), "right"),
}


def cost_figure(rows: Sequence[Mapping[str, Any]], target: Path) -> Path | None:
    """Seconds of processor time and mean gap against all paths; None without rows."""
    known = [row for row in rows if "processor s" in row]
    if not known:
        return None
    figure, (cost, gap) = new_panels(2)
    size = [row["paths"] for row in known]  # of all demands together
    seconds = [row["processor s"] for row in known]
    cost.loglog(size, seconds, "o")
    cost.set_ylabel("seconds of one core: training, saving, evaluation")
    gap.semilogx(size, [row["mean gap"] for row in known], "o")
    gap.axhline(0.005, color="grey", linewidth=0.8)
    gap.set_ylabel("mean MLU above the optimum")
    for panel in (cost, gap):
        panel.set_xlabel("demands x paths of each")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
    cost.yaxis.set_major_formatter("{x:g}")
    cost.set_yticks([20, 50, 100, 200], minor=False)
    cost.yaxis.set_minor_formatter("")
    for row, x, y in zip(known, size, seconds, strict=True):
        if row["network"] in LABELLED:
            place, side = LABELLED[row["network"]]
            cost.annotate(row["network"], (x, y), xytext=place, textcoords="offset points", ha=side)
    return write(figure, target)
