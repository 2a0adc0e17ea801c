"""`cg4ai new-network`: a network file of one's own, checked, for `cg4ai route`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import complete_networks

NEW_NETWORK_EXAMPLES = """\b
Examples:
  cg4ai new-network topology.graphml --capacity LinkSpeedRaw --demands gravity --out mine.json
  cg4ai new-network links.csv --demands matrix.csv --out mine.json
  cg4ai new-network graph.gml --default-capacity 10 --directed --out mine.json
  cg4ai new-network topozoo/Aarnet --default-capacity 10 --demands gravity --out aarnet.json
"""


def new_network(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .graphml, .gml, .json or .csv file of links, or a name of topohub.",
            autocompletion=complete_networks,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="NET.json", help="The file to write.")],
    demands: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="own (those of FILE), a .csv (source,target,volume, or a matrix), gravity or "
            "uniform: a model of them.",
            autocompletion=lambda incomplete: [
                word for word in ("own", "gravity", "uniform") if word.startswith(incomplete)
            ],
        ),
    ] = "own",
    load: Annotated[
        float, typer.Option(help="Of gravity and uniform: how full the busiest link is at best.")
    ] = 0.8,
    paths: Annotated[int, typer.Option(help="Shortest paths per demand to try.", min=1)] = 3,
    capacity: Annotated[
        str, typer.Option(metavar="NAME", help="What FILE calls the capacity of a link.")
    ] = "capacity",
    default_capacity: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="That of links without one.")
    ] = None,
    length: Annotated[
        str, typer.Option(metavar="NAME", help="What FILE calls the length of a link.")
    ] = "length",
    directed: Annotated[
        bool | None,
        typer.Option(
            "--directed/--undirected",
            help="Links are one way, or both; as FILE says if not given.",
            show_default=False,
        ),
    ] = None,
    refuse_parallel: Annotated[
        bool, typer.Option("--refuse-parallel", help="Refuse parallel links instead of adding.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace NET.json.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
) -> None:
    """Check the network in FILE and write it as JSON that cg4ai route reads.

    Names and order stay. Loops are left out and parallel links added up; what else is amiss (no
    capacities, parts that are not connected, units that differ) is said, and refused where no
    router could be trained. Also says how full the busiest link is at the demands under the best
    routing, and prints a command to train with. CSV: columns source,target,capacity and maybe
    length and both (yes or no). Coordinates: pos, longitude and latitude, or x and y of the nodes.
    Exit code 0: written; 2: refused.
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
