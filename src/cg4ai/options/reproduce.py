"""`cg4ai reproduce`: its sub-commands, their options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.options.shared import (
    Device,
    Images,
    Quiet,
    Seed,
    seconds_of,
)

app = typer.Typer(
    help="Repeat the experiments of the paper.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")]
Threads = Annotated[int, typer.Option(help="CPU threads.")]
ReportOnly = Annotated[
    bool, typer.Option("--report-only", help="Only tables and figures of what is there.")
]
Again = Annotated[bool, typer.Option("--force", help="Run again what is there.")]


@app.command(
    "routing",
    short_help="The 41 routing configurations.",
    epilog="\b\nExample:\n  cg4ai reproduce routing abilene-5-3 polska-5-3 --out runs",
)
def reproduce_routing(
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
    from cg4ai.commands import reproduce as command
    from cg4ai.routing.saved import Wanted

    usual = Wanted(
        network="",
        mode=mode,  # type: ignore[arg-type]  # checked there
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=seconds_of(time_limit),
    )
    raise typer.Exit(
        command.run(
            configurations or (), out, usual, report_only=report_only, force=force, quiet=quiet
        )
    )


@app.command(
    "digits",
    short_help="The experiments on digits.",
    epilog="\b\nExample:\n  cg4ai reproduce digits main --seeds 42 --sizes 100 --out runs",
)
def reproduce_digits(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART ...]",
            help="main, splits, sizes, methods, robust, correct, relabel or a single variant such "
            "as margin-only; all if left out.",
        ),
    ] = None,
    *,
    out: Folder = Path("reproduce-digits"),
    seeds: Annotated[
        list[str] | None, typer.Option(metavar="S,S", help="42,43,44 if left out.")
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="N,N", help="Training images; 100,1000 (sizes: 10 to 1000)."),
    ] = None,
    data: Images = None,
    device: Device = "cpu",
    threads: Threads = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="Train far too little: to see that all works.")
    ] = False,
    report_only: ReportOnly = False,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """Train and measure everything of the paper's section on digits, resuming what was stopped.

    Several processes may share DIR: each takes what no other is at. Writes DIR/tables (our figures
    beside the paper's) and DIR/figures, from all that has ended there. Exit code 0: every required
    image of these parts is answered as demanded; 3: some are not.
    """
    from cg4ai.commands import reproduce as command
    from cg4ai.digits.reproduce import Plan
    from cg4ai.digits.units import SEEDS

    plan = Plan(
        out=out,
        seeds=command.numbers(seeds, "--seeds") if seeds else SEEDS,
        sizes=command.numbers(sizes, "--sizes") if sizes else None,
        data=data,
        device=device,
        threads=threads,
        quick=quick,
    )
    raise typer.Exit(
        command.run_digits(
            tuple(parts or ()), plan, report_only=report_only, force=force, quiet=quiet
        )
    )
