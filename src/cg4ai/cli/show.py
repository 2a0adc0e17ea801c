"""`cg4ai show`: settings, last iterations and result of a run folder, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cg4ai.cli.tables import cell, plain
from cg4ai.cli.wording import report
from cg4ai.runs.folder import Run

LAST = 10
COLUMNS = ("iteration", "objective", "slack", "worst_violation", "columns", "rows", "total_s")


def run(folder: Path) -> None:
    """Print the run; reads only, so a run that goes on is not disturbed."""
    opened = Run.open(folder, read_only=True)
    history = opened.history()
    summary = opened.summary()
    print(f"{opened.command} in {folder}, created {opened.header['created']}\n")
    print("Settings")
    for name, value in opened.settings.items():
        print(f"  {name} = {value if isinstance(value, list) else cell(value, digits=12)}")
    print(f"\nHistory ({len(history)} iterations)")
    print(_indented(plain([_shown(record) for record in history[-LAST:]])))
    if summary is None:
        print(
            "The run has not ended: it is going on, or was killed; in that case repeat its "
            "command with --resume."
        )
    elif "stop_reason" in summary and "audits" in summary:
        print(report(summary))
    else:
        print(_indented("\n".join(f"{name} = {value}" for name, value in summary.items())))


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): record.get(name) for name in COLUMNS} | {
        "note": record.get("note", "")
    }


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
