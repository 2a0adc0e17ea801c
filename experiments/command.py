"""What the commands of the experiments share: options, exit codes, one line per error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cg4ai.cli.program import run_guarded

KEPT, NOT_KEPT, INTERRUPTED = 0, 3, 130

Folder = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")]
Seed = Annotated[int, typer.Option(help="The same seed trains the same members.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Images = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="MNIST IDX files; the 5,000 built-in images if unset."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Threads = Annotated[int, typer.Option(help="CPU threads of each run.")]
Jobs = Annotated[
    int | None, typer.Option(metavar="N", help="Runs at once; as many as cores if left out.")
]
StopAfter = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="End then; the same command goes on later."),
]
Lean = Annotated[
    bool, typer.Option("--lean", help="Keep figures of runs that have ended, not their members.")
]
ReportOnly = Annotated[
    bool, typer.Option("--report-only", help="Only tables and figures of what is there.")
]
Again = Annotated[bool, typer.Option("--force", help="Run again what is there.")]


def command(
    work: Callable[..., Any], name: str, example: str, arguments: Sequence[str] | None = None
) -> int:
    """Run one command with `arguments` (the process's own if None); returns its exit code."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(
        epilog=f"\b\nExample:\n  {name} {example}",
        context_settings={"help_option_names": ["-h", "--help"]},
    )(work)
    return run_guarded(app, arguments, name)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def silent(text: str) -> None:
    pass
