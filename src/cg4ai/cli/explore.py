"""`cg4ai explore`: a finished run as one page that opens without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder


def explore(
    folder: RunFolder,
    *,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="File to write; default: RUN/explorer.html."),
    ] = None,
    most_mb: Annotated[
        float, typer.Option(min=0, metavar="MB", help="Refuse to write a larger file.")
    ] = 5.0,
) -> None:
    """Write an interactive page: change an input and see what the model answers.

    The page is one HTML file that opens in any browser, without a server or a network. It computes
    the model itself, in double precision. For a router it shows the network with every link's
    utilisation, a slider for each demand, a bound of the distance from the optimum, the worst
    demands found for each link, studied failures, and the guarantee. For a model it shows a form,
    the prediction, and every rule with its slack.
    """
    from cg4ai.apps.explorer import write_explorer

    target = folder / "explorer.html" if out is None else out
    size = write_explorer(folder, target, most_mb=most_mb)
    print(f"{target} written, {size:.1f} MB: open it in a browser")
