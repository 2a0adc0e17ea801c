"""`python -m experiments.digits`: `train`, and `reproduce`, the paper's tables and figures.

What trains and draws is imported when the command runs: other commands need none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cg4ai.cli.options import Given
from cg4ai.cli.training import train_application
from cg4ai.errors import InvalidInput
from cg4ai.settings import RunOptions
from experiments.command import (
    INTERRUPTED,
    KEPT,
    NOT_KEPT,
    Again,
    Device,
    Folder,
    Images,
    Jobs,
    Lean,
    Quiet,
    ReportOnly,
    StopAfter,
    Threads,
    say,
    silent,
)
from experiments.digits import NAME

if TYPE_CHECKING:
    from experiments.digits.reproduce import Plan
    from experiments.digits.settings import Rule
    from experiments.digits.units import Mode

QUICK_STEPS = 20
QUICK_NOTE = "Trained far too little (--quick): these figures mean nothing."


def train(given: Given, options: RunOptions) -> int:
    """Train a mixture of small networks on images of digits, with rules on listed images.

    Scenarios: plain (no rules), hard (listed images must be right), robust (attacked images too),
    correct (what the base member gets wrong), relabel (a 3 becomes a 2). Exit code 0: every
    required image is answered as demanded; 3: some are not; 2: bad input; 130: interrupted
    (continue with --resume --out DIR).
    """
    return train_application(NAME, given, options)


def reproduce(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART ...]",
            help="main, splits, sizes, methods, robust, correct, relabel, ablation or a single "
            "variant such as margin-only; all if left out.",
        ),
    ] = None,
    *,
    out: Folder = Path("reproduce-digits"),
    mode: Annotated[
        str, typer.Option(help="ours, or paper: the method as published, into the same tables.")
    ] = "ours",
    seeds: Annotated[
        list[str] | None, typer.Option(metavar="S,S", help="42,43,44 if left out.")
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="N,N", help="Training images; 100,1000 (sizes: 10 to 1000)."),
    ] = None,
    data: Images = None,
    device: Device = "cpu",
    jobs: Jobs = None,
    threads: Threads = 1,
    stop_after: StopAfter = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop training each after this time.")
    ] = None,
    lean: Lean = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Train far too little: to see that all works.")
    ] = False,
    report_only: ReportOnly = False,
    force: Again = False,
    quiet: Quiet = False,
) -> None:
    """Train and measure everything of the paper's section on digits, resuming what was stopped.

    Units run side by side, each on one thread; several commands may share DIR. Writes DIR/tables
    (our figures beside the paper's) and DIR/figures, from all that has ended there. Exit code 0:
    every required image of these parts is answered as demanded; 3: some are not, or a unit ended
    with an error, which does not end the others; 130: stopped.
    """
    from experiments.digits.reproduce import Plan
    from experiments.digits.units import SEEDS
    from experiments.side_by_side import cores, moment_after

    plan = Plan(
        out=out,
        seeds=numbers(seeds, "--seeds") if seeds else SEEDS,
        sizes=numbers(sizes, "--sizes") if sizes else None,
        data=data,
        device=device,
        threads=threads,
        quick=quick,
        mode=cast("Mode", mode),
        jobs=cores() if jobs is None else jobs,
        until=moment_after(stop_after),
        time_limit_s=time_limit,
        lean=lean,
    )
    raise typer.Exit(
        run(tuple(parts or ()), plan, report_only=report_only, force=force, quiet=quiet)
    )


def rounds(
    n: Annotated[int, typer.Option("--n", help="Training images, a multiple of 10.")] = 100,
    *,
    out: Folder = Path("digit-rounds"),
    rule: Annotated[str, typer.Option(help="margin or probability.")] = "margin",
    constraints_only: Annotated[
        bool, typer.Option("--constraints-only", help="Rows alone, no loss.")
    ] = False,
    seeds: Annotated[
        list[str] | None, typer.Option(metavar="S,S", help="42,43,44 if left out.")
    ] = None,
    group: Annotated[
        int | None, typer.Option(help="Members of a group; 1, or 2 from 300 images on.")
    ] = None,
    data: Images = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Train far too little: to see that all works.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """What small groups priced by duals add round after round, beside equal-steps controls.

    Every way is trained on the same images: groups by the duals; with equal rows; alone; one group
    of as many members; one small group for as many steps. Writes DIR/rounds.md and DIR/rounds.json.
    """
    from cg4ai.report.tables import format_markdown
    from cg4ai.runs import files, to_plain
    from experiments.digits.rounds import means_of, rows_of, studies
    from experiments.digits.settings import DigitsSettings
    from experiments.digits.units import SEEDS

    said = silent if quiet else say
    out.mkdir(parents=True, exist_ok=True)
    what = "constraints only" if constraints_only else "hard and trained"
    title = f"{QUICK_NOTE if quick else ''}n={n}, {rule}, {what}, {n} rows."
    further: dict[str, Any] = {} if group is None else {"group": group}
    further |= {"steps": QUICK_STEPS} if quick else {}
    found, text = [], ""
    for seed in numbers(seeds, "--seeds") if seeds else SEEDS:
        asked = DigitsSettings(
            n=n,
            rule=cast("Rule", rule),
            constraints_only=constraints_only,
            small_groups=True,
            seed=seed,
            data=data,
            **further,
        )
        for one in studies(asked):
            said(f"seed {seed}, {one.way}: {one.columns} members, {one.final.rows_met} rows met")
            found.append(one)
            tables = [format_markdown(means_of(found)), format_markdown(rows_of(found))]
            text = "\n\n".join([title, *tables])
            files.write_bytes(out / "rounds.md", text.encode())
            files.write_json(out / "rounds.json", {"studies": to_plain(list(map(asdict, found)))})
    print(text)


def run(names: Sequence[str], plan: Plan, *, report_only: bool, force: bool, quiet: bool) -> int:
    """Run the parts that are missing, then tables and figures of all that is there."""
    from cg4ai.report.tables import format_plain
    from experiments.digits import figures, tables
    from experiments.digits import reproduce as training
    from experiments.digits.units import ended

    outcome = training.Outcome()
    if report_only and (names or force):
        raise InvalidInput("--report-only runs nothing, so give neither parts nor --force with it")
    if report_only and not any(ended(plan.folder)):
        raise InvalidInput(
            f"{plan.folder} holds no run of `python -m experiments.digits reproduce` that has "
            "ended, so there is nothing to report"
        )
    if not report_only:
        outcome = training.reproduce(names, plan, force=force, say=silent if quiet else say)
    saved = tables.write_tables(plan.folder, note=QUICK_NOTE if plan.quick else "")
    drawn = figures.all_figures(plan.folder, plan.folder / "figures")
    print(format_plain(tables.totals(saved)))
    print(f"Tables: {plan.folder / tables.FOLDER / 'tables.md'}; figures: {len(drawn)}")
    if outcome.left:
        print(f"Left to other processes or for later: {len(outcome.left)}", file=sys.stderr)
    if outcome.interrupted:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    if outcome.failed:
        names_of_them = ", ".join(unit.name for unit in outcome.failed)
        print(f"Ended with an error: {names_of_them}", file=sys.stderr)
        return NOT_KEPT
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
