"""`cg4ai update`: a trained router goes on after a change of traffic or network."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cg4ai import clock
from cg4ai.cli.completion import RunFolder

STEPS = 300


def update(
    folder: RunFolder,
    *,
    traffic: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="New matrices, as route --traffic reads them, to learn and hold."
        ),
    ] = None,
    split: Annotated[
        str,
        typer.Option(
            metavar="TIME|SHARE", help="Where the new matrices are split; later ones only judge."
        ),
    ] = "0.7",
    network: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The changed network, any file that route reads."),
    ] = None,
    demand_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="With --network: the demands of the network."),
    ] = None,
    shrink: Annotated[
        bool,
        typer.Option(
            "--shrink",
            help="With --network: where it cannot carry the set, make that smaller, and say so.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the updated run; default: RUN-updated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier run in that folder.")
    ] = False,
    steps: Annotated[
        int, typer.Option(min=1, help="Training steps of the further network.")
    ] = STEPS,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of sampling and training; that of RUN if not given.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; that of RUN if not given.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="That of RUN if not given.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="Bounds training and evaluation.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Progress and result as JSON lines on stdout.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the details of the result, too.")
    ] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no report.html, which takes about a second.")
    ] = False,
) -> None:
    """Update the router in RUN after a change, in a fraction of the time of training.

    --traffic widens the guaranteed set as far as needed to hold new matrices, and learns from them.
    --network takes over changed capacities and added or removed links and demands; paths that still
    exist are kept. The trained networks go on from their weights, one more is trained, and the
    guarantee is proven anew. RUN is not changed. The same command continues an interrupted update.

    Exit code 0: the guarantee is established again, or nothing has changed; 3: it is not, or an
    overload was found; 2: bad input, such as a set that the network cannot carry; 1: no router was
    found; 130: interrupted.
    """
    started = clock.now()
    from cg4ai.apps.runner import ChosenSettings, execute_run
    from cg4ai.cli.progress import make_progress
    from cg4ai.errors import RunFolderError
    from cg4ai.routing.operate.updates import (
        NothingChanged,
        UpdateRequest,
        UpdateRouting,
        can_continue,
        plan_update,
    )
    from cg4ai.settings import RunOptions

    target = out or folder.with_name(f"{folder.resolve().name}-updated")
    resume = not force and can_continue(target, folder, steps)
    if not (force or resume) and (target / "run.json").exists():
        raise RunFolderError(
            f"{target} already holds a run: replace it with --force, or choose another --out",
            code="exists",
        )
    changed: dict[str, Any] = {
        "seed": seed,
        "device": device,
        "threads": threads,
        "time_limit_s": time_limit,
    }
    plan = plan_update(
        UpdateRequest(
            folder=folder,
            out=target,
            traffic=traffic,
            network=network,
            demand_file=demand_file,
            split=split,
            shrink=shrink,
            steps=steps,
            changed={name: value for name, value in changed.items() if value is not None},
        )
    )
    if isinstance(plan, NothingChanged):
        print(plan.text)
        return
    options = RunOptions(
        out=target,
        resume=resume,
        force=force,
        quiet=quiet,
        json=json,
        verbose=verbose,
        no_report=no_report,
    )
    again = shlex.join(["cg4ai", *(word for word in sys.argv[1:] if word != "--force")])
    mode = "json" if json else "quiet" if quiet else "auto"
    with make_progress(mode) as screen:
        code = execute_run(
            UpdateRouting(plan),
            lambda: ChosenSettings(plan.settings),
            options,
            screen,
            started=started,
            again=again,
        )
    raise typer.Exit(code)
