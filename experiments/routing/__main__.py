"""`python -m experiments.routing`: the paper's 41 routing configurations, tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.report.tables import format_plain
from cg4ai.routing.prove.attack import FEASIBLE
from experiments.command import (
    INTERRUPTED,
    KEPT,
    NOT_KEPT,
    Again,
    Device,
    Folder,
    Jobs,
    Lean,
    Quiet,
    ReportOnly,
    Seed,
    StopAfter,
    Threads,
    command,
    say,
    silent,
)
from experiments.routing.figures import all_figures
from experiments.routing.reproduce import (
    APPLICATIONS,
    Outcome,
    Plan,
    reproduce,
    totals,
    write_tables,
)
from experiments.side_by_side import cores, moment_after


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
    ours: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="For --mode paper: our runs, to stand beside; each may train ten times as long.",
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    jobs: Jobs = None,
    threads: Threads = 1,
    stop_after: StopAfter = None,
    lean: Lean = False,
    guarantee: Annotated[
        str, typer.Option(help="Of mode ours: shielded, attacked or certified.")
    ] = "shielded",
    baseline: Annotated[
        bool, typer.Option(help="Also train and measure plain networks of equal effort.")
    ] = True,
    report_only: ReportOnly = False,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """Train and measure every routing configuration of the paper, resuming what was stopped.

    Writes table.csv, table.md (our figures beside the paper's) and figures into DIR, from all that
    has ended there in this mode. A configuration without a result does not end the others. Exit
    code 0: each has a result and no overload was found; 3: not so; 2: bad input; 130: interrupted.
    """
    if mode not in APPLICATIONS:
        raise InvalidInput(
            f"--mode must be ours or paper, got {mode!r}{did_you_mean(mode, APPLICATIONS)}"
        )
    usual: dict[str, Any] = {"seed": seed, "device": device, "threads": threads}
    usual["baseline"] = baseline
    if mode == "ours":
        usual["guarantee"] = guarantee
    elif guarantee != "shielded":
        raise InvalidInput("--guarantee is about mode ours: the published method is attacked")
    if time_limit is not None:
        usual["training_limit_s"] = time_limit
    plan = Plan(
        out,
        usual,
        mode,
        ours=ours,
        jobs=cores() if jobs is None else jobs,
        until=moment_after(stop_after),
        lean=lean,
    )
    names = tuple(configurations or ())
    raise typer.Exit(run(names, plan, report_only=report_only, force=force, quiet=quiet))


def run(names: Sequence[str], plan: Plan, *, report_only: bool, force: bool, quiet: bool) -> int:
    """Run what is missing, then tables and figures of all that is there; returns the exit code."""
    outcome, out, mode = Outcome(), plan.out, plan.mode
    if report_only and (names or force):
        raise InvalidInput(
            "--report-only runs nothing, so give neither configurations nor --force with it"
        )
    if not report_only:
        tell = silent if quiet else say
        outcome = reproduce(names, plan, force=force, say=tell)
    if outcome.interrupted:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    found = plan.results(tuple(outcome.failed))
    if report_only:
        if not (found.summaries or found.missing):
            raise InvalidInput(f"{out} holds no run of mode {mode}: check --out and --mode")
        write_tables(out, found)
    print(format_plain([{"": name, "value": value} for name, value in totals(found.table).items()]))
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
