"""Reports written: of one run into its folder, and anew where something was found out since."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import REPORT, find_application
from cg4ai.apps.protocol import Application
from cg4ai.errors import Cg4aiError, RunFolderError
from cg4ai.report import chapters as common
from cg4ai.report.html import FAULTS, report_page
from cg4ai.report.other_runs import tell_patched, tell_unbound, tell_unfinished
from cg4ai.report.story import SavedRun, Story
from cg4ai.runs import files

UNWANTED = "CG4AI_NO_REPORT"
MADE_OF = ("run.json", "history.jsonl", "summary.json", "ensemble.json")  # what a report says
DRAWING = threading.Lock()  # runs may end in several threads, and matplotlib is for one


def write_report(
    folder: Path, out: Path | None = None, *, app: Application[Any, Any] | None = None
) -> Path:
    """Make the report of the run in `folder`; into the folder, or the file `out`.

    `app`: the run's application, where it is none of those that have a command.
    """
    saved = SavedRun(folder)
    story = tell_story(saved, app)
    with check_readable(saved), DRAWING:
        page = report_page(saved, story)
    target = folder / REPORT if out is None else out
    files.write_bytes(target, f"{page.rstrip()}\n{mark_source(folder)}\n".encode())
    return target


def mark_source(folder: Path) -> str:
    """A comment at the end of a report: a digest of the files of the run that it was made of."""
    total = hashlib.sha256()
    for name in MADE_OF:
        content = files.read_bytes(folder / name) if (folder / name).exists() else b""
        total.update(f"{name} {len(content)}\n".encode() + content)
    return f"<!-- made of {total.hexdigest()} -->"


def try_write_report(
    folder: Path, app: Application[Any, Any] | None = None, *, wanted: bool = True
) -> str:
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


def refresh_report(folder: Path) -> str:
    """The same for a report that is there already, after something was found out since."""
    return try_write_report(folder) if (folder / REPORT).exists() else ""


def tell_story(saved: SavedRun, app: Application[Any, Any] | None = None) -> Story:
    """All that a run has to tell, as far as it has come."""
    with check_readable(saved):
        if saved.summary is None:
            story = tell_unfinished(saved)
        elif not saved.run.bound:
            story = tell_unbound(saved)
        elif saved.is_patched:
            story = tell_patched(saved)
        else:
            story = (app or find_application(saved.run.command)).story(saved.summary, saved)
        chapters = (
            common.write_loading(saved),
            common.write_members(saved, story.blocks),
            common.write_settings(saved),
            common.time_spent(saved),
            common.write_training(saved, story.trained),
        )
        return replace(story, sections=(*story.sections, *chapters))


@contextmanager
def check_readable(saved: SavedRun) -> Iterator[None]:
    """What makes no sense, though its seal is whole, is an error in one line."""
    try:
        yield
    except FAULTS as error:
        if isinstance(error, Cg4aiError):
            raise
        raise RunFolderError(
            f"the files in {saved.folder} are not those of a run of {saved.run.command!r} "
            f"({type(error).__name__}: {error}); continue the run with --resume to write them again"
        ) from error
