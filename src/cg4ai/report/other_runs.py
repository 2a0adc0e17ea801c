"""Runs that no application describes: those that have not ended, and those that a patch made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import PATCH_OF, PATCHES
from cg4ai.apps.registry import program_of, training_command
from cg4ai.records import Strength
from cg4ai.report.story import Finding, KeyFigure, ReportTable, SavedRun, Section, Story
from cg4ai.report.wording import (
    describe_closing,
    describe_stop,
    finding_of,
    format_count,
    list_remarks,
)

UNBOUND = (
    "The summary is not bound to this ensemble. An earlier version wrote it without a record of "
    "the ensemble, so it may describe another."
)
SETTINGS = ("The settings below say what was asked.",)


def tell_unfinished(saved: SavedRun) -> Story:
    """A run that is going on or was stopped: its settings, and how far it is."""
    count, command = len(saved.history), training_command(saved.run.command)
    going = f"{command} --resume --out {shlex.quote(saved.name)}"
    parts = [f"The run is going on or was stopped. Continue a stopped run with {going}."]
    if saved.ensemble is not None:
        parts.append("Its latest mixture is saved; it was not evaluated.")
    return Story(
        title=f"A run of {command} that has not ended",
        asked=SETTINGS,
        findings=(),
        figures=(KeyFigure(str(count), "iterations so far"),),
        remarks=tuple(parts),
        trained=(f"{format_count(count, 'iteration')} so far.",),
        nothing="Nothing is established: the run has not ended.",
    )


def tell_unbound(saved: SavedRun) -> Story:
    """A run of an earlier version, whose summary does not name the ensemble it describes."""
    audit = f"{program_of(saved.run.command)} audit"
    return Story(
        title=f"A run of {training_command(saved.run.command)} by an earlier version",
        asked=SETTINGS,
        findings=(),
        figures=(KeyFigure(str(len(saved.history)), "iterations"),),
        remarks=(f"{UNBOUND} {audit} {shlex.quote(saved.name)} recomputes its rules.",),
        trained=(f"{format_count(len(saved.history), 'iteration')}.",),
        nothing="Nothing is claimed: the summary is not bound to the ensemble in this folder.",
    )


def tell_patched(saved: SavedRun) -> Story:
    """A run with rules or cases added to an earlier one's."""
    summary = saved.summary or {}
    whole = Path(str(saved.description[PATCH_OF])).name
    about = (saved.ensemble or {}).get("about", {})
    added = [Path(str(one["file"])).name for one in about.get(PATCHES, [])]
    trained = int(summary["trained"])
    how = f"{format_count(trained, 'new member')}" if trained else "new weights, no new members"
    return Story(
        title=f"{whole}, patched",
        asked=(
            f"Add {', '.join(added) or 'further rules'} to the run in {whole} and keep all its "
            "rules.",
        ),
        findings=tuple(_findings(summary)),
        closing=(f"Patched with {how}. {describe_closing(summary)}",),
        remarks=(*_void(summary), *list_remarks(summary)),
        sections=(Section("What changed", (ReportTable(_changes(summary)),)),),
        trained=(describe_stop(summary),),
    )


def _findings(summary: Mapping[str, Any]) -> Iterator[Finding]:
    for audit in summary["audits"]:
        entry = _by_words(audit) if isinstance(audit, str) else audit
        when = "added" if entry.get("added") else "earlier"
        yield finding_of(entry, rule=f"{entry['requirement']} ({when})")


def _by_words(statement: str) -> dict[str, Any]:
    """The fields of a statement, which is all that versions before 0.7 kept."""
    strengths = [one for one in Strength if f"({one})" in statement]
    name = statement.partition(" holds (")[0].partition(" is violated (")[0]
    return {
        "requirement": name.partition(" was attacked over ")[0],
        "strength": strengths[0] if strengths else Strength.ATTACKED,
        "holds": " is violated (" not in statement,
        "statement": statement,
    }


def _changes(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "at": name,
            "inputs": found["inputs"],
            "answers that changed": found["answers"],
            "outputs moved by, mean": found["mean"],
            "largest": found["largest"],
        }
        for name, found in summary["changes"].items()
    ]


def _void(summary: Mapping[str, Any]) -> list[str]:
    if not summary.get("void"):
        return []
    return [
        "Certificates of the original run are void, since they are about its own mixture: "
        f"{', '.join(summary['void'])}. Prove the rules again with cg4ai certify."
    ]
