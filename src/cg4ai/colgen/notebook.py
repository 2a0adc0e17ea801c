"""A result as notebooks show it: whether the rules hold, the loss and the time; details to open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cg4ai.ensemble.verdict import format_headline
from cg4ai.pages import escape
from cg4ai.records import Strength

if TYPE_CHECKING:
    from cg4ai.colgen.result import Result
    from cg4ai.ensemble.audit import Audit

# readable on light and on dark notebooks, which do not say which they are
GOOD, WARN, BAD = "#1b8a5a", "#b26a00", "#d03a3a"
TONES = {Strength.VIOLATED: BAD, Strength.UNVERIFIED: WARN, Strength.ATTACKED: WARN}


def render_result(result: Result) -> str:
    """One element without scripts or style sheets; every text of the user's is escaped."""
    first = [*result.cut_short(), format_headline([one.verdict for one in result.audits])]
    statements = [line for one in result.audits for line in str(one).splitlines()]
    return (
        '<div style="font-family: sans-serif; font-size: 0.9em; max-width: 60em; margin: 0.5em 0">'
        f"{_lines(first)}"
        f'<ul style="list-style: none; margin: 0; padding: 0">'
        f"{''.join(map(_audit, result.audits))}</ul>"
        f"{_lines([*result.score_and_time(), *result.warnings()])}"
        f"<details><summary>Details</summary>{_lines([*statements, *result.details()])}</details>"
        "</div>"
    )


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"<div>{escape(text.strip())}</div>" for text in texts)


def _audit(audit: Audit) -> str:
    found = audit.verdict
    strength = found.strength if found.holds else Strength.VIOLATED
    tone = WARN if found.doubtful else TONES.get(strength, GOOD)
    badge = (
        f"border: 1px solid {tone}; color: {tone}; border-radius: 1em; padding: 0 0.6em; "
        "font-weight: bold"
    )
    return (
        f'<li style="margin: 0.3em 0"><span style="{badge}">{escape(strength)}</span> '
        f"<strong>{escape(found.rule)}</strong>: {escape(found.coverage)}"
        f"{_lines([*audit.describe_missed(), *audit.rate_lines()])}</li>"
    )
