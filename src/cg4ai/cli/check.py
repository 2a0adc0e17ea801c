"""`cg4ai check`: verify a certificate by separate code that needs neither torch nor the certifier.

Only `cg4ai_checker` and what it imports is loaded here; its own command `cg4ai-check` is the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import run_folders


def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate written by certify, train or route.")
    ],
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="DIR",
            help="Also compare with the model in this folder.",
            autocompletion=run_folders,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Verify a certificate from its own content alone, and state what it proves.

    Every bound is recomputed, by code that is independent of the search that found the proof.
    Exit code 0: all is proven; 1: rejected; 2: the file cannot be read.
    """
    from cg4ai_checker.command import run

    raise typer.Exit(run(file, folder=folder, quiet=quiet))
