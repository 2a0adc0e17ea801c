"""Reports written: of one run into its folder, and anew where something was found out since."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import REPORT, application
from cg4ai.apps.protocol import Application
from cg4ai.apps.reports import common
from cg4ai.apps.reports.html import FAULTS, report_page
from cg4ai.apps.reports.others import patched, unfinished
from cg4ai.apps.reports.story import Saved, Story
from cg4ai.errors import Cg4aiError, RunFolderError
from cg4ai.runs import files

UNWANTED = "CG4AI_NO_REPORT"


def write_report(
    folder: Path, out: Path | None = None, *, app: Application[Any, Any] | None = None
) -> Path:
    """Make the report of the run in `folder`; into the folder, or the file `out`.

    `app`: the run's application, where it is none of those that have a command.
    """
    saved = Saved(folder)
    target = folder / REPORT if out is None else out
    page = report_page(saved, told(saved, app))
    files.write_bytes(target, page.encode())
    return target


def reported(folder: Path, app: Application[Any, Any] | None = None) -> str:
    """Write the report of a run that has ended; returns why there is none, empty if there is.

    The run is saved by then, and must not be lost for a picture of it. Where CG4AI_NO_REPORT is set
    none is wanted: scripts that run often save the second that it takes.
    """
    if os.environ.get(UNWANTED):
        return ""
    try:
        write_report(folder, app=app)
    except (*FAULTS, Cg4aiError, OSError) as error:
        return f"no report was written ({type(error).__name__}: {error})"
    return ""


def refreshed(folder: Path) -> str:
    """The same for a report that is there already, after something was found out since."""
    return reported(folder) if (folder / REPORT).exists() else ""


def told(saved: Saved, app: Application[Any, Any] | None = None) -> Story:
    """All that a run has to tell, as far as it has come."""
    if saved.summary is None:
        story = unfinished(saved)
    elif saved.patched:
        story = patched(saved)
    else:
        try:
            story = (app or application(saved.run.command)).story(saved)
        except FAULTS as error:
            if isinstance(error, Cg4aiError):
                raise
            raise RunFolderError(
                f"{saved.folder / 'summary.json'} is not the result of a run of "
                f"{saved.run.command!r} ({type(error).__name__}: {error}); continue the run with "
                "--resume to write it anew"
            ) from error
    return replace(
        story,
        sections=(
            *story.sections,
            common.training(saved, story.trained),
            common.time_spent(saved),
            common.members(saved, story.blocks),
            common.settings(saved),
            common.loading(saved),
        ),
    )
