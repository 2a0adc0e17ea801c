"""Options that several commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataFile = Annotated[Path, typer.Argument(metavar="DATA.csv", help="CSV file with a header.")]
RulesFile = Annotated[
    Path, typer.Option("--rules", metavar="RULES.json", help="Rules to keep; see docs/rules.md.")
]
NewFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="New folder for the run.")]
GroupLimit = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Train no group after this time.")
]
Images = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="MNIST IDX files; the 5,000 built-in images if unset."),
]
Seed = Annotated[int, typer.Option(help="The same seed trains the same members.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Threads = Annotated[int, typer.Option(help="CPU threads; no more than cores are free.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue a run that was stopped or killed.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Progress and result as JSON lines on stdout.")]


def progress_of(*, json: bool, quiet: bool) -> str:
    """How progress is shown."""
    return "json" if json else "quiet" if quiet else "auto"


def seconds_of(limit: float | None) -> float:
    """A time limit as settings have it."""
    return float("inf") if limit is None else limit
