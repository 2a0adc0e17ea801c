"""`cg4ai demo`: its options and help; the work is in demo_routing.py and demo_tumours.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.errors import InvalidInput


def demo(
    *,
    data: Annotated[
        str, typer.Option(help="routing, or cancer: a tumour classifier under rules.")
    ] = "routing",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the trained mixture here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
) -> None:
    """Train a router of the network Abilene that overloads no link, beside one that may."""
    if data == "cancer":
        from cg4ai.cli import demo_tumours

        raise typer.Exit(demo_tumours.run(out, seed=seed))
    if data != "routing":
        raise InvalidInput(f"--data must be routing or cancer, got {data!r}")
    from cg4ai.cli import demo_routing

    raise typer.Exit(demo_routing.run(out, seed=seed))
