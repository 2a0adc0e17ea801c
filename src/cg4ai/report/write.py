"""Reports written: of one run into its folder, and anew where something was found out since."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import REPORT, application
from cg4ai.apps.protocol import Application
from cg4ai.errors import Cg4aiError, RunFolderError
from cg4ai.report import chapters as common
from cg4ai.report.html import FAULTS, report_page
from cg4ai.report.other_runs import patched, unbound, unfinished
from cg4ai.report.story import Saved, Story
from cg4ai.runs import files

UNWANTED = "CG4AI_NO_REPORT"
DRAWING = threading.Lock()  # runs may end in several threads, and matplotlib is for one


def write_report(
    folder: Path, out: Path | None = None, *, app: Application[Any, Any] | None = None
) -> Path:
    """Make the report of the run in `folder`; into the folder, or the file `out`.

    `app`: the run's application, where it is none of those that have a command.
    """
    saved = Saved(folder)
    story = told(saved, app)
    with readable(saved), DRAWING:
        page = report_page(saved, story)
    target = folder / REPORT if out is None else out
    files.write_bytes(target, page.encode())
    return target


def reported(folder: Path, app: Application[Any, Any] | None = None, *, wanted: bool = True) -> str:
    """Write the report of a run that has ended; returns why there is none, empty if there is.

    The run is saved by then, and must not be lost for a picture of it. Where CG4AI_NO_REPORT is set
    none is wanted: scripts that run often save the second that it takes. One of before is removed.
    """
    fault = ""
    if wanted and not os.environ.get(UNWANTED):
        try:
            write_report(folder, app=app)
            return ""
        except (*FAULTS, Cg4aiError, OSError) as error:
            fault = f"no report was written ({type(error).__name__}: {error})"
    with suppress(OSError):
        (folder / REPORT).unlink(missing_ok=True)
    return fault


def refreshed(folder: Path) -> str:
    """The same for a report that is there already, after something was found out since."""
    return reported(folder) if (folder / REPORT).exists() else ""


def told(saved: Saved, app: Application[Any, Any] | None = None) -> Story:
    """All that a run has to tell, as far as it has come."""
    with readable(saved):
        if saved.summary is None:
            story = unfinished(saved)
        elif not saved.run.bound:
            story = unbound(saved)
        elif saved.patched:
            story = patched(saved)
        else:
            story = (app or application(saved.run.command)).story(saved.summary, saved)
        chapters = (
            common.loading(saved),
            common.members(saved, story.blocks),
            common.settings(saved),
            common.time_spent(saved),
            common.training(saved, story.trained),
        )
        return replace(story, sections=(*story.sections, *chapters))


@contextmanager
def readable(saved: Saved) -> Iterator[None]:
    """What makes no sense, though its seal is whole, is an error in one line."""
    try:
        yield
    except FAULTS as error:
        if isinstance(error, Cg4aiError):
            raise
        raise RunFolderError(
            f"the files in {saved.folder} are not those of a run of {saved.run.command!r} "
            f"({type(error).__name__}: {error}); continue the run with --resume to write them anew"
        ) from error
