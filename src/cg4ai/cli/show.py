"""`cg4ai show`: settings, last iterations and result of a run folder, also while it runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cg4ai.cli.completion import RunFolder
from cg4ai.errors import RunFolderError

if TYPE_CHECKING:
    from cg4ai.apps.protocol import Application

LAST = 10
COLUMNS = ("iteration", "objective", "slack", "worst_violation", "columns", "rows", "total_s")


def show(
    folder: RunFolder,
) -> None:
    """Show the settings, the last iterations and the result of a run, finished or not."""
    from cg4ai.apps.folders import application, complete, settings_in_words
    from cg4ai.apps.registry import MOVED, is_registered, program_of, training_command, unknown
    from cg4ai.report.tables import cell, plain
    from cg4ai.runs.folder import Run

    opened = Run.open(folder, read_only=True)
    history, summary = opened.history(), opened.summary()
    print(f"{opened.command} in {folder}, created {opened.header['created']}\n")
    print("Settings")
    for name, value in settings_in_words(opened).items():
        if value not in (None, "", [], {}):
            print(f"  {name} = {value if isinstance(value, list) else cell(value, digits=12)}")
    print(f"\nHistory ({len(history)} iterations)")
    print(_indented(plain([_shown(record) for record in history[-LAST:]])))
    print()
    if summary is None or not complete(summary):
        print(
            "The run has not ended: it is going on, or was stopped; in that case continue it with "
            f"{training_command(opened.command)} --resume --out {folder}"
        )
    elif opened.command in MOVED and not is_registered(opened.command):
        print(unknown(opened.command, shlex.quote(str(folder))))
    elif not opened.bound:
        print(_unbound(summary, folder, program_of(opened.command)))
    elif is_registered(opened.command) and "evaluation_s" in summary:
        print(_report(application(opened.command), summary, folder))
        _studies(folder)
    else:
        for name, value in summary.items():
            lines = [f"{name} = {value}"]
            if name == "audits" and all(isinstance(entry, dict) for entry in value):
                lines = [entry.get("statement", "") for entry in value]
            print(_indented("\n".join(lines)))


def _studies(folder: Path) -> None:
    """What was found out about the run after its end."""
    from cg4ai.routing.operate.failure_study import FOLDER, known, report

    if (folder / FOLDER).is_dir() and (rows := known(folder)):
        print(f"\nFailures of links\n{_indented(report(rows))}")


def _unbound(summary: dict[str, Any], folder: Path, program: str) -> str:
    """Of a run of an earlier version its numbers alone, and what its ensemble itself records."""
    from cg4ai.ensemble.saved import load
    from cg4ai.report.card import recorded
    from cg4ai.report.other_runs import UNBOUND

    numbers = {name: value for name, value in summary.items() if type(value) in (int, float)} | {
        name: summary[name] for name in ("stop_reason",) if name in summary
    }
    known = [f"{one.rule}: {one.strength} ({one.words})" for one in recorded(load(folder))]
    return "\n".join(
        [
            UNBOUND,
            "Recorded in the ensemble itself:",
            _indented("\n".join(known or ["nothing"])),
            "Numbers of the summary, of whatever ensemble they are:",
            _indented("\n".join(f"{name} = {value}" for name, value in numbers.items())),
            f"Recompute the rules with {program} audit {folder}.",
        ]
    )


def _report(app: Application[Any, Any], summary: dict[str, Any], folder: Path) -> str:
    try:
        return app.report(summary)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder / 'summary.json'} is not the result of a run of {app.name!r} "
            f"({type(error).__name__}: {error}); continue the run with --resume to write it anew"
        ) from error


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): record.get(name) for name in COLUMNS} | {
        "note": record.get("note", "")
    }


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
