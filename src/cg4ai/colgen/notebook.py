"""A result as notebooks show it: what is established about each rule, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cg4ai.pages import escaped
from cg4ai.records import Strength

if TYPE_CHECKING:
    from cg4ai.colgen.result import Result
    from cg4ai.ensemble.audit import Audit

# readable on light and on dark notebooks, which do not say which they are
GOOD, WARN, BAD = "#1b8a5a", "#b26a00", "#d03a3a"
TONES = {Strength.VIOLATED: BAD, Strength.UNVERIFIED: WARN, Strength.ATTACKED: WARN}


def result_html(result: Result) -> str:
    """One element without scripts or style sheets; every text of the user's is escaped."""
    first, *more = result.outcome()
    audits = "".join(map(_audit, result.audits)) or "<li>no rules: nothing is guaranteed</li>"
    further = "".join(f"<div>{escaped(line)}</div>" for line in (*more, *result.further()))
    return (
        '<div style="font-family: sans-serif; font-size: 0.9em; max-width: 60em; margin: 0.5em 0">'
        f'<ul style="list-style: none; margin: 0; padding: 0">{audits}</ul>'
        f"<details><summary>{escaped(first)}</summary>{further}</details></div>"
    )


def _audit(audit: Audit) -> str:
    strength = audit.strength if audit.holds else Strength.VIOLATED
    tone = WARN if audit.doubtful else TONES.get(strength, GOOD)
    badge = (
        f"border: 1px solid {tone}; color: {tone}; border-radius: 1em; padding: 0 0.6em; "
        "font-weight: bold"
    )
    first, *more = str(audit).splitlines()
    lines = "".join(f"<div>{escaped(line.strip())}</div>" for line in more)
    return (
        f'<li style="margin: 0.3em 0"><span style="{badge}">{escaped(strength)}</span> '
        f"{escaped(first)}{lines}</li>"
    )
