"""`cg4ai new-network`: a network file of one's own, checked, for `cg4ai route`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import complete_networks


def new_network(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .graphml, .gml, .json, .csv or .graph file, or a name of topohub.",
            autocompletion=complete_networks,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="NET.json", help="The file to write.")],
    demands: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="own (those of FILE), a .csv (source,target,volume, or a matrix) or .demands "
            "file, or the models gravity and uniform.",
            autocompletion=lambda incomplete: [
                word for word in ("own", "gravity", "uniform") if word.startswith(incomplete)
            ],
        ),
    ] = "own",
    load: Annotated[
        float,
        typer.Option(
            help="For gravity and uniform: utilisation of the busiest link under the best routing."
        ),
    ] = 0.8,
    paths: Annotated[int, typer.Option(help="Shortest paths per demand to try.", min=1)] = 3,
    capacity: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the capacity of a link in FILE.")
    ] = "capacity",
    default_capacity: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Capacity of links without one.")
    ] = None,
    length: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the length of a link in FILE.")
    ] = "length",
    directed: Annotated[
        bool | None,
        typer.Option(
            "--directed/--undirected",
            help="Links are used in one direction or in both; default: as FILE states.",
            show_default=False,
        ),
    ] = None,
    refuse_parallel: Annotated[
        bool,
        typer.Option(
            "--refuse-parallel", help="Refuse parallel links instead of adding their capacities."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace NET.json.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check the network in FILE and write it as JSON that cg4ai route reads.

    Names and order of nodes are kept. Loops are removed and parallel links are added up, with a
    note. Other faults (missing capacities, disconnected parts, different units) are reported, and
    refused where no router could be trained. Prints the utilisation of the busiest link under the
    best routing, and a command to train with. Columns of a CSV: source,target,capacity and
    optionally length and both (yes or no). Coordinates of nodes: pos, longitude and latitude, or x
    and y. Exit code 0: written; 2: refused.
    """
    from cg4ai.routing.network.links import ReadingOptions
    from cg4ai.routing.network.new_network import new_network as made
    from cg4ai.runs.files import json_line

    reading = ReadingOptions(
        capacity=capacity,
        default=default_capacity,
        length=length,
        directed=directed,
        parallel="refuse" if refuse_parallel else "add",
    )
    written = made(file, out, reading=reading, demands=demands, load=load, paths=paths, force=force)
    print(json_line(written.as_data()).decode().rstrip() if json else written)
