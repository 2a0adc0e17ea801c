"""`cg4ai report`: the page of a run, or of all runs in a folder, made from what they saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of several.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File to write; default: RUN/report.html or RUN/index.html."
        ),
    ] = None,
) -> None:
    """Write the report of a run as one HTML file that opens in any browser.

    The report is made from the folder alone; nothing is trained. It shows whether the rules hold
    and how that was established, figures, worst cases, members and settings. For a folder with
    several runs an index is written, and reports that are missing or out of date. Exit code 0:
    written; 2: bad input.
    """
    from cg4ai.report.index import write_index
    from cg4ai.report.write import write_report

    single = (folder / "run.json").exists()
    print(f"Report in {write_report(folder, out) if single else write_index(folder, out)}")
