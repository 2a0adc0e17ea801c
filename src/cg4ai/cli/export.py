"""`cg4ai export`: a finished run as files that other programs run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import run_folders


def export(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Folder that route wrote.", autocompletion=run_folders),
    ],
    *,
    agents: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New folder: one policy per node, as JSON."),
    ] = None,
) -> None:
    """Write what a run has trained as files that other programs run.

    --agents DIR takes a router that was trained with --sees own or source apart: a file for each
    node that sends, and policy.py, which computes the node's splits from it with NumPy alone.
    """
    from cg4ai.apps.folders import trained
    from cg4ai.errors import InvalidInput

    if agents is None:
        raise InvalidInput("nothing to export: name a folder with --agents DIR")
    ensemble, described = trained(folder)
    taken_apart = getattr(described, "export_agents", None)
    if taken_apart is None:
        raise InvalidInput(
            f"{folder} is no run of cg4ai route: --agents takes routers apart, node by node"
        )
    for line in taken_apart(ensemble, agents):
        print(line)
