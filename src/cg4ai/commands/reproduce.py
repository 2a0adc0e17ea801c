"""`cg4ai reproduce`: the paper's experiments, with tables and figures like its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cg4ai.errors import InvalidInput
from cg4ai.report.routing_figures import all_figures
from cg4ai.report.tables import plain
from cg4ai.routing.reproduce import Outcome, reproduce, results, totals, write_tables
from cg4ai.routing.saved import Wanted
from cg4ai.routing.separation import FEASIBLE

if TYPE_CHECKING:
    from cg4ai.digits.reproduce import Plan

KEPT, NOT_KEPT, INTERRUPTED = 0, 3, 130
QUICK_NOTE = "Trained far too little (--quick): these figures mean nothing."


def run(
    names: Sequence[str], out: Path, usual: Wanted, *, report_only: bool, force: bool, quiet: bool
) -> int:
    """Run what is missing, then tables and figures of all that is there; returns the exit code."""
    outcome = Outcome()
    if report_only and (names or force):
        raise InvalidInput(
            "--report-only runs nothing, so give neither configurations nor --force with it"
        )
    if not report_only:
        outcome = reproduce(names, out, usual, force=force, say=_quiet if quiet else _say)
    if outcome.interrupted:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    found = results(out, usual.mode, without=tuple(outcome.failed))
    if report_only:
        if not (found.summaries or found.missing):
            raise InvalidInput(f"{out} holds no run of mode {usual.mode}: check --out and --mode")
        write_tables(out, found)
    print(plain([{"": name, "value": value} for name, value in totals(found.table).items()]))
    figures = all_figures(out, out / "figures")
    print(f"Tables: {out / 'table.md'}, {out / 'table.csv'}; figures: {len(figures.made)}")
    for name, reason in figures.missing.items():
        print(f"Not drawn: {name}: {reason}")
    lacking = found.missing if report_only else tuple(outcome.failed)
    if lacking:
        print(f"No result: {', '.join(lacking)}", file=sys.stderr)
    judged = found.summaries if report_only else outcome.done
    kept = all(summary["worst_utilisation"] <= FEASIBLE for summary in judged.values())
    return KEPT if kept and not lacking else NOT_KEPT


def run_digits(
    names: Sequence[str], plan: Plan, *, report_only: bool, force: bool, quiet: bool
) -> int:
    """Run the parts that are missing, then tables and figures of all that is there."""
    from cg4ai.digits import reproduce as experiments
    from cg4ai.digits.units import ended
    from cg4ai.report import digits_figures, digits_tables

    outcome = experiments.Outcome()
    if report_only and (names or force):
        raise InvalidInput("--report-only runs nothing, so give neither parts nor --force with it")
    if report_only and not any(ended(plan.folder)):
        raise InvalidInput(
            f"{plan.folder} holds no run of `cg4ai reproduce digits` that has ended, so there is "
            "nothing to report"
        )
    if not report_only:
        outcome = experiments.reproduce(names, plan, force=force, say=_quiet if quiet else _say)
    saved = digits_tables.write_tables(plan.folder, note=QUICK_NOTE if plan.quick else "")
    figures = digits_figures.all_figures(plan.folder, plan.folder / "figures")
    print(plain(digits_tables.totals(saved)))
    print(f"Tables: {plan.folder / digits_tables.FOLDER / 'tables.md'}; figures: {len(figures)}")
    if outcome.left:
        print(f"Left to other processes or for later: {len(outcome.left)}", file=sys.stderr)
    if outcome.interrupted:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    kept = all(
        summary["rows_satisfied"] == summary["rows"]
        for summary in outcome.done.values()
        if "rows" in summary
    )
    return KEPT if kept else NOT_KEPT


def numbers(texts: Sequence[str], name: str) -> tuple[int, ...]:
    """Whole numbers of an option that may be repeated, and hold several with commas."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InvalidInput(f"{name} must be whole numbers such as 42,43, got {' '.join(texts)!r}")
    return tuple(int(part) for part in parts)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _quiet(text: str) -> None:
    pass
