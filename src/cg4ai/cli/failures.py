"""`cg4ai failures`: what a trained router does where links fail, one failure after the other."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cg4ai import clock
from cg4ai.cli.completion import run_folders

SETTLED, NOT_SETTLED = 0, 3
STEPS, VECTORS = 300, 2000


def failures(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder that route wrote.", autocompletion=run_folders),
    ],
    which: Annotated[
        str,
        typer.Argument(
            metavar="WHICH",
            help="single (every link, one at a time), links such as A-B,C-D that fail together "
            "(several such groups by semicolons), or a .csv or .json file of failures.",
        ),
    ] = "single",
    *,
    steps: Annotated[
        int,
        typer.Option(min=0, help="Further training steps for each failure; 0: none."),
    ] = STEPS,
    vectors: Annotated[
        int,
        typer.Option(
            min=1, help="Demand vectors at which each router is compared with the optimum."
        ),
    ] = VECTORS,
    seed: Annotated[int, typer.Option(min=0, help="The same seed trains the same members.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Failures studied at a time; -1: one per core.")
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option(min=0, metavar="S", help="Skip failures that are not done by then."),
    ] = math.inf,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON line for each failure instead of the table."),
    ] = False,
) -> None:
    """Make a router for each failure of links of the router in RUN.

    Paths over failed links are removed. If the remaining paths can carry every demand vector of the
    set, a router is trained for them, behind a shield of its own. If not, a linear program proves
    that no routing over them can. Writes RUN/failures: a table, and a router and certificate for
    each failure. The same command continues an interrupted study. Exit code 0: each failure is
    routed with a guarantee or proven impossible; 3: some are not; 2: bad input; 130: interrupted.
    """
    from cg4ai.routing.operate.rerouting import Effort
    from cg4ai.settings import device_fault

    if fault := device_fault(device):
        raise typer.BadParameter(fault)
    effort = Effort(steps=steps, validation=vectors, adversarial=vectors, seed=seed, device=device)
    until = clock.wall() + time_limit
    raise typer.Exit(run(folder, which, effort, jobs=jobs, until=until, quiet=quiet, json=json))


def run(
    folder: Path,
    which: str,
    effort: Any,
    *,
    jobs: int | None,
    until: float,
    quiet: bool,
    json: bool,
) -> int:
    """Study, and print what came out; returns the exit code."""
    from cg4ai.report.write import refresh_report
    from cg4ai.routing.operate.failure_study import ROUTED, format_report, is_settled, study
    from cg4ai.runs import files

    def heard(row: Mapping[str, Any]) -> None:
        if json:
            sys.stdout.write(files.json_line({"event": "failure", **row}).decode())
            sys.stdout.flush()
        elif not quiet:
            print(f"failure {row['failure']}: {row['outcome']}", file=sys.stderr, flush=True)

    rows = study(folder, which, effort, n_jobs=jobs, until=until, heard=heard)
    if fault := refresh_report(folder):
        print(fault, file=sys.stderr)
    if not json:
        print(format_report(rows))
        routed = next((row["failure"] for row in rows if row["outcome"] in ROUTED), None)
        trial = f"; try: cg4ai predict {folder} DATA.csv --failed {shlex.quote(routed or '')}"
        print(f"\nSaved in {folder / 'failures'}{trial if routed else ''}")
    return SETTLED if is_settled(rows) else NOT_SETTLED
