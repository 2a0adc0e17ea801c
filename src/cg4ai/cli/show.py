"""`cg4ai show`: result, settings and last iterations of a run folder, also while it runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cg4ai.cli.completion import RunFolder
from cg4ai.errors import RunFolderError

if TYPE_CHECKING:
    from cg4ai.apps.protocol import Application

LAST = 10
COLUMNS = ("iteration", "objective", "slack", "worst_violation", "columns", "rows", "total_s")


def show(
    folder: RunFolder,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all details.")] = False,
) -> None:
    """Show the result, the settings and the last iterations of a run, finished or not."""
    from cg4ai.apps.folders import complete, find_application, format_settings
    from cg4ai.apps.registry import (
        MOVED,
        describe_unregistered,
        is_registered,
        program_of,
        training_command,
    )
    from cg4ai.report.story import SavedRun
    from cg4ai.report.tables import cell, format_plain
    from cg4ai.report.terminal import render_text
    from cg4ai.report.write import tell_story
    from cg4ai.runs.folder import Run

    opened = Run.open(folder, read_only=True)
    history, summary = opened.history(), opened.summary()
    print(f"{opened.command} in {folder}, created {opened.header['created']}\n")
    if summary is None or not complete(summary):
        print(
            "The run has not ended: it is running or was stopped. Continue a stopped run with "
            f"{training_command(opened.command)} --resume --out {folder}"
        )
    elif opened.command in MOVED and not is_registered(opened.command):
        print(describe_unregistered(opened.command, shlex.quote(str(folder))))
    elif not opened.bound:
        print(_unbound(summary, folder, program_of(opened.command)))
    elif is_registered(opened.command) and "evaluation_s" in summary:
        print(_result(find_application(opened.command), summary, folder, verbose=verbose))
        _studies(folder)
    elif (saved := SavedRun(folder)).is_patched:
        print(render_text(tell_story(saved), verbose=verbose))
    else:
        for name, value in summary.items():
            print(f"  {name} = {value}")
    print("\nSettings")
    for name, value in format_settings(opened).items():
        if value not in (None, "", [], {}):
            print(f"  {name} = {value if isinstance(value, list) else cell(value, digits=12)}")
    print(f"\nHistory ({len(history)} iterations)")
    print(_indented(format_plain([_shown(record) for record in history[-LAST:]])))


def _studies(folder: Path) -> None:
    """Studies that were made after the run's end."""
    from cg4ai.routing.operate.failure_study import FOLDER, format_report, read_known_outcomes

    if (folder / FOLDER).is_dir() and (rows := read_known_outcomes(folder)):
        print(f"\nFailures of links\n{_indented(format_report(rows))}")


def _unbound(summary: dict[str, Any], folder: Path, program: str) -> str:
    """Of a run of an earlier version: what its ensemble records, and the summary's numbers."""
    from cg4ai.ensemble.saved import load
    from cg4ai.report.card import list_recorded_guarantees
    from cg4ai.report.other_runs import UNBOUND

    numbers = {name: value for name, value in summary.items() if type(value) in (int, float)} | {
        name: summary[name] for name in ("stop_reason",) if name in summary
    }
    known = [
        f"{one.rule}: {one.strength} ({one.words})"
        for one in list_recorded_guarantees(load(folder))
    ]
    return "\n".join(
        [
            UNBOUND,
            "Recorded in the ensemble itself:",
            _indented("\n".join(known or ["nothing"])),
            "Numbers of the summary, which may describe another ensemble:",
            _indented("\n".join(f"{name} = {value}" for name, value in numbers.items())),
            f"Recompute the rules with {program} audit {folder}.",
        ]
    )


def _result(
    app: Application[Any, Any], summary: dict[str, Any], folder: Path, *, verbose: bool
) -> str:
    from cg4ai.report.terminal import render_text

    try:
        return render_text(app.story(summary), verbose=verbose)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder / 'summary.json'} is not the result of a run of {app.name!r} "
            f"({type(error).__name__}: {error}); continue the run with --resume to write it again"
        ) from error


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): record.get(name) for name in COLUMNS} | {
        "note": record.get("note", "")
    }


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
