"""`cg4ai route`: its options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.options.shared import (
    Device,
    Force,
    GroupLimit,
    Json,
    NewFolder,
    Quiet,
    Resume,
    Seed,
    Threads,
    progress_of,
    seconds_of,
)


def route(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="SNDlib name, or a .txt, .xml, .graphml or .json file."
        ),
    ],
    *,
    demands: Annotated[int, typer.Option(help="How many of the largest demands.")] = 5,
    paths: Annotated[int, typer.Option(help="Shortest paths per demand, at most.")] = 3,
    load: Annotated[
        str,
        typer.Option(
            help="Least possible utilisation at the largest demands; none: volumes as given."
        ),
    ] = "0.99",
    demand_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Demands: source,target,volume."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="mlu, split (distance to optimal splits) or cost (of paths).")
    ] = "mlu",
    separator: Annotated[
        str, typer.Option(help="Search for overloads: ascent or nlopt.")
    ] = "ascent",
    guarantee: Annotated[
        str,
        typer.Option(
            help="attacked (a search finds no overload), certified (proven for the whole box) "
            "or shielded (corrected at inference)."
        ),
    ] = "attacked",
    hidden: Annotated[int | None, typer.Option(help="Units of a hidden layer.")] = None,
    layers: Annotated[int | None, typer.Option(help="Hidden layers.")] = None,
    out: NewFolder = None,
    time_limit: GroupLimit = None,
    lean: Annotated[
        float | None,
        typer.Option(metavar="MLU", help="MLU to give up for fewer members; 0.005 if not given."),
    ] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = 2,
    resume: Resume = False,
    force: Force = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train networks that split each demand of NETWORK over paths, for every demand vector.

    The largest demands span a box; in all of it no link may be overloaded. Prints the worst
    utilisation that a search found, the gap to optimal routing, and a plain network beside it.
    Exit code 0: no overload was found and the guarantee asked for was established; 3: not so;
    2: bad input; 1: no router came out, e.g. a time limit too short for each demand to have a
    member; 130: interrupted (continue with --resume).
    """
    from cg4ai.apps.routing.saved import Wanted
    from cg4ai.cli import route as command

    wanted = Wanted(
        network=network,
        demands=demands,
        paths=paths,
        load=command.load_of(load),
        demand_file=demand_file,
        objective=objective,  # type: ignore[arg-type]  # checked there
        separator=separator,  # type: ignore[arg-type]
        guarantee=guarantee,  # type: ignore[arg-type]
        hidden=command.layers_of(hidden, layers),
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=seconds_of(time_limit),
        lean=lean,
    )
    options = command.RouteOptions(
        out=out,
        resume=resume,
        force=force,
        progress=progress_of(json=json, quiet=quiet),
    )
    raise typer.Exit(command.run(wanted, options))
