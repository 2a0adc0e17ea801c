"""`cg4ai check`: verify a certificate by separate code that needs neither torch nor the certifier.

Only `cg4ai_checker` and what it imports is loaded here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import run_folders

PROVEN, REJECTED = 0, 1


def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate that certify or route wrote.")
    ],
    *,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="DIR",
            help="Also compare with the mixture stored here.",
            autocompletion=run_folders,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Verify FILE from its own content alone, and say what it proves.

    Every bound is recomputed by code that shares nothing with the search that found the proof.
    Exit code 0: all is proven; 1: rejected; 2: the file cannot be read.
    """
    raise typer.Exit(run(file, folder=folder, quiet=quiet))


def run(file: Path, *, folder: Path | None, quiet: bool) -> int:
    """Print what is proven, or why not; returns the exit code, 0 only if all is proven."""
    from cg4ai_checker import Rejected
    from cg4ai_checker import verdict as verify
    from cg4ai_checker.run_folder import compare

    live = sys.stderr.isatty() and not quiet

    def show(done: int, rules: int) -> None:
        print(f"\r{done} of {rules} rules proven", end="", file=sys.stderr, flush=True)

    try:
        verdict = verify(file, progress=show if live else None)
        said = [] if folder is None else compare(verdict.claim, folder)
    except Rejected as error:
        print(f"REJECTED: {error}", file=sys.stderr)
        return REJECTED
    finally:
        if live:
            print(file=sys.stderr)
    print(verdict)
    for line in said:
        print(f"  {line}")
    if folder is None:
        print(
            "  Whether that mixture is the one you use: compare with --run DIR, the folder it is "
            "loaded from."
        )
    return PROVEN
