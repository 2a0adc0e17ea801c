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
        typer.Option(metavar="FILE.html", help="Write here; RUN/explorer.html if left out."),
    ] = None,
    most_mb: Annotated[
        float, typer.Option(min=0, metavar="MB", help="Refuse to write a larger file.")
    ] = 5.0,
) -> None:
    """Write a page on which inputs are moved and everything that follows is seen at once.

    One HTML file, which any browser opens, without a server or a network: the model itself is
    computed in it, in double precision. Of a router: its network with every link's utilisation, a
    slider for each demand, how far from the optimum it is at most, the worst demands found for
    each link, failures that were studied, and in words what is guaranteed. Of a model: a form, the
    prediction, and every rule with its slack at that input.
    """
    from cg4ai.apps.explorer import write_explorer

    target = folder / "explorer.html" if out is None else out
    size = write_explorer(folder, target, most_mb=most_mb)
    print(f"{target} written, {size:.1f} MB: open it in a browser")
