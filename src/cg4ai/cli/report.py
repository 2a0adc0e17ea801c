"""`cg4ai report`: the page of a run, or of all runs in a folder, made from what they saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run, or one that holds several.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write here; RUN/report.html or RUN/index.html if unset."
        ),
    ] = None,
) -> None:
    """Write the report of a run as one HTML file that needs no other: open it in a browser.

    It is made from the folder alone: nothing is trained. What was asked, what was established and
    how strongly, figures of convergence, gaps and links, worst cases, members, settings, and how to
    use it. Of a folder that holds several runs, an index of them; their own reports are written
    where they are missing or older than their run. Exit code 0, or 2: bad input.
    """
    from cg4ai.report.index import write_index
    from cg4ai.report.write import write_report

    single = (folder / "run.json").exists()
    print(f"Report in {write_report(folder, out) if single else write_index(folder, out)}")
