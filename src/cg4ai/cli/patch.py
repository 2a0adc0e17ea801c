"""`cg4ai patch`: rules or wrongly answered cases added to a finished run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder

KEPT, NOT_KEPT = 0, 3


def patch(
    folder: RunFolder,
    *,
    add: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="File with rules or cases, in the format of --rules of train.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the patched run; default: RUN-patched."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA.csv", help="Further inputs at which to report changed predictions."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Write no report.html, which takes about a second.")
    ] = False,
) -> None:
    """Add rules or cases to the run in RUN without training again. RUN is not changed.

    Existing members get new weights. Further members are trained only if these do not suffice, or
    where the application needs some. Earlier rules are kept, and changed predictions are reported.
    Exit code 0: all rules hold; 3: some do not; 2: bad input.
    """
    from cg4ai.apps.patches import patch_run
    from cg4ai.apps.runner import describe_saved
    from cg4ai.runs import files

    target = out or folder.with_name(f"{folder.name}-patched")
    made = patch_run(folder, add, out=target, data=data, report=not no_report)
    if json:
        sys.stdout.write(files.json_line(made.summary).decode())
    else:
        print(made)
        print(f"\n{describe_saved(target, made.command)}")
    if made.unreported:
        print(made.unreported, file=sys.stderr)
    raise typer.Exit(KEPT if made.kept else NOT_KEPT)
