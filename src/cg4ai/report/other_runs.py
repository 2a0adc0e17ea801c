"""Runs that no application tells of: those that have not ended, and those that a patch made."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cg4ai.apps.folders import PATCH_OF, PATCHES
from cg4ai.apps.registry import program_of, training_command
from cg4ai.records import StopReason, Strength
from cg4ai.report.story import Finding, KeyFigure, Saved, Section, Story, Table
from cg4ai.report.wording import STOPS, counted, remarks, stopped_because

UNBOUND = (
    "The summary is not bound to this ensemble: an earlier version wrote it, which did not note of "
    "which ensemble it speaks, so what it says may be of another."
)


def unfinished(saved: Saved) -> Story:
    """A run that is going on, or was stopped: what it was told, and how far it came."""
    count, command = len(saved.history), training_command(saved.run.command)
    going = f"{command} --resume --out {shlex.quote(saved.name)}"
    parts = [
        "The run has not ended: it is going on, or was stopped; in that case continue it with "
        f"{going}, which also writes this report anew."
    ]
    if saved.ensemble is not None:
        parts.append("The mixture that it had by then is saved, and nothing was measured of it.")
    return Story(
        title=f"A run of {command} that has not ended",
        asked=("What was asked stands in the settings below.",),
        findings=(),
        figures=(KeyFigure(str(count), "iterations so far"),),
        remarks=tuple(parts),
        trained=(f"{counted(count, 'iteration')} so far.",),
        nothing="Nothing is established: the run has not ended.",
    )


def unbound(saved: Saved) -> Story:
    """A run of an earlier version, whose summary does not say of which ensemble it speaks."""
    audit = f"{program_of(saved.run.command)} audit"
    return Story(
        title=f"A run of {training_command(saved.run.command)} by an earlier version",
        asked=("What was asked stands in the settings below.",),
        findings=(),
        figures=(KeyFigure(str(len(saved.history)), "iterations"),),
        remarks=(f"{UNBOUND} {audit} {shlex.quote(saved.name)} recomputes its rules.",),
        trained=(f"{counted(len(saved.history), 'iteration')}.",),
        nothing="Nothing is claimed: the summary is not bound to the ensemble in this folder.",
    )


def patched(saved: Saved) -> Story:
    """A run with rules or cases added to an earlier one's."""
    summary = saved.summary or {}
    whole = Path(str(saved.description[PATCH_OF])).name
    about = (saved.ensemble or {}).get("about", {})
    added = [Path(str(one["file"])).name for one in about.get(PATCHES, [])]
    trained = int(summary["trained"])
    how = f"{counted(trained, 'member')} trained for it" if trained else "new weights, none trained"
    reason = stopped_because(
        StopReason(summary["stop_reason"]), single=bool(summary.get("single")), words=STOPS
    )
    return Story(
        title=f"{whole}, patched",
        asked=(
            f"Add {', '.join(added) or 'further rules'} to the run in {whole}, all of whose rules "
            "stay.",
        ),
        findings=tuple(_findings(summary)),
        figures=(
            KeyFigure(str(trained), "members trained for it"),
            KeyFigure(str(summary["active_members"]), "members with weight"),
            KeyFigure(f"{summary['total_s']:.1f} s", "whole patch"),
        ),
        remarks=(*_void(summary), *remarks(summary)),
        sections=(Section("What changed", (Table(_changes(summary)),)),),
        trained=(f"Patched by {how}; it stopped because: {reason}.",),
    )


def _findings(summary: Mapping[str, Any]) -> Iterator[Finding]:
    for audit in summary["audits"]:
        rule = _by_words(audit) if isinstance(audit, str) else audit
        kept = bool(rule["holds"])
        strength = Strength(rule["strength"]) if kept else Strength.VIOLATED
        when = "added" if rule.get("added") else "earlier"
        yield Finding(f"{rule['requirement']} ({when})", strength, kept, f"{rule['statement']}.")


def _by_words(statement: str) -> dict[str, Any]:
    """What a statement of before 0.7, when it was all that was kept, says of itself."""
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
        "Certificates of the run that was patched speak of its own mixture and are void here: "
        f"{', '.join(summary['void'])}; prove anew with cg4ai certify."
    ]
