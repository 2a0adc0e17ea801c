"""`cg4ai reproduce routing`: the paper's configurations, with tables and figures like its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cg4ai.report.routing_figures import all_figures
from cg4ai.report.tables import plain
from cg4ai.routing.reproduce import NAMES, reproduce, totals
from cg4ai.routing.saved import FEASIBLE, Wanted

KEPT, NOT_KEPT, INTERRUPTED = 0, 3, 130


def run(names: Sequence[str], out: Path, usual: Wanted, *, force: bool, quiet: bool) -> int:
    """Run what is missing, then write tables and figures; returns the exit code."""

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    summaries = reproduce(names, out, usual, force=force, say=say)
    if summaries is None:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    table = {name: summary for name, summary in summaries.items() if name in NAMES}
    print(plain([{"": name, "value": value} for name, value in totals(table).items()]))
    figures = all_figures(out, out / "figures")
    print(f"Tables: {out / 'table.md'}, {out / 'table.csv'}; figures: {len(figures)}")
    kept = all(summary["worst_utilisation"] <= FEASIBLE for summary in summaries.values())
    return KEPT if kept else NOT_KEPT
