"""`python -m experiments.routing`: the paper's 41 routing configurations, tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.apps.routing.saved import Wanted
from cg4ai.apps.routing.separation import FEASIBLE
from cg4ai.cli.options.shared import Device, Quiet, Seed, seconds_of
from cg4ai.cli.tables import plain
from cg4ai.errors import InvalidInput
from experiments.command import (
    INTERRUPTED,
    KEPT,
    NOT_KEPT,
    Again,
    Folder,
    ReportOnly,
    Threads,
    command,
    say,
    silent,
)
from experiments.routing.figures import all_figures
from experiments.routing.reproduce import Outcome, reproduce, results, totals, write_tables


def routing(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK-D-P ...]", help="Which; all 41 and the ablation if left out."
        ),
    ] = None,
    *,
    out: Folder = Path("reproduce-routing"),
    mode: Annotated[str, typer.Option(help="ours, or paper: the method as published.")] = "ours",
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop training each after this time.")
    ] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = 2,
    report_only: ReportOnly = False,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """Train and measure every routing configuration of the paper, resuming what was stopped.

    Writes table.csv, table.md (our figures beside the paper's) and figures into DIR, from all that
    has ended there in this mode. A configuration without a result does not end the others. Exit
    code 0: each has a result and no overload was found; 3: not so; 2: bad input; 130: interrupted.
    """
    usual = Wanted(
        network="",
        mode=mode,  # type: ignore[arg-type]  # checked there
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=seconds_of(time_limit),
    )
    raise typer.Exit(
        run(configurations or (), out, usual, report_only=report_only, force=force, quiet=quiet)
    )


def run(
    names: Sequence[str], out: Path, usual: Wanted, *, report_only: bool, force: bool, quiet: bool
) -> int:
    """Run what is missing, then tables and figures of all that is there; returns the exit code."""
    outcome = Outcome()
    if report_only and (names or force):
        raise InvalidInput(
            "--report-only runs nothing, so give neither configurations nor --force with it"
        )
    if not report_only:
        outcome = reproduce(names, out, usual, force=force, say=silent if quiet else say)
    if outcome.interrupted:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    found = results(out, usual.mode, without=tuple(outcome.failed))
    if report_only:
        if not (found.summaries or found.missing):
            raise InvalidInput(f"{out} holds no run of mode {usual.mode}: check --out and --mode")
        write_tables(out, found)
    print(plain([{"": name, "value": value} for name, value in totals(found.table).items()]))
    figures = all_figures(out, out / "figures")
    print(f"Tables: {out / 'table.md'}, {out / 'table.csv'}; figures: {len(figures.made)}")
    for name, reason in figures.missing.items():
        print(f"Not drawn: {name}: {reason}")
    lacking = found.missing if report_only else tuple(outcome.failed)
    if lacking:
        print(f"No result: {', '.join(lacking)}", file=sys.stderr)
    judged = found.summaries if report_only else outcome.done
    kept = all(summary["worst_utilisation"] <= FEASIBLE for summary in judged.values())
    return KEPT if kept and not lacking else NOT_KEPT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(
        routing, "python -m experiments.routing", "abilene-5-3 polska-5-3 --out runs", arguments
    )


if __name__ == "__main__":
    sys.exit(main())
