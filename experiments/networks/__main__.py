"""`python -m experiments.networks`: all demands of every SNDlib network, one table, one figure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.errors import InvalidInput
from cg4ai.report.tables import format_plain
from experiments.command import (
    KEPT,
    NOT_KEPT,
    Device,
    Folder,
    Quiet,
    ReportOnly,
    Seed,
    Threads,
    command,
    say,
    silent,
)
from experiments.networks.figures import cost_figure
from experiments.networks.whole import MOST_DEMANDS, Plan, rows_of, run_all, write_tables


def networks(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK ...]", help="Which; all if left out.")
    ] = None,
    *,
    out: Folder = Path("networks"),
    most_demands: Annotated[
        int, typer.Option(metavar="N", help="Networks with more demands are left out, and said.")
    ] = MOST_DEMANDS,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = 1,
    report_only: ReportOnly = False,
    quiet: Quiet = False,
) -> None:
    """Train, check and measure routers of all demands of each network, those of few first.

    Writes whole.csv, whole.md and whole.png into DIR; a run that is there is not run again. Exit
    code 0: every network has a router that is guaranteed, or more demands than asked for; 3: not
    so; 2: bad input.
    """
    plan = Plan(out, {"seed": seed, "device": device, "threads": threads}, most_demands)
    if report_only:
        if wanted:
            raise InvalidInput("--report-only runs nothing, so give no networks with it")
        rows = rows_of(out, plan)
        write_tables(out, rows)
    else:
        rows = run_all(wanted or (), plan, say=silent if quiet else say)
    print(format_plain(rows))
    drawn = cost_figure(rows, out / "whole.png")
    print(f"Tables: {out / 'whole.md'}, {out / 'whole.csv'}; figure: {drawn or 'none'}")
    left = [row for row in rows if row["demands"] <= most_demands]
    kept = all(row.get("guaranteed") == "yes" for row in left)
    raise typer.Exit(KEPT if kept else NOT_KEPT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(
        networks, "python -m experiments.networks", "abilene geant --out runs", arguments
    )


if __name__ == "__main__":
    sys.exit(main())
