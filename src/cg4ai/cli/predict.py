"""`cg4ai predict`: a trained mixture's predictions for the rows of a table, as CSV or JSON."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder

DRIFTED = 4  # exit code: all is predicted, and too many rows lie outside the region


class Format(StrEnum):
    """How predictions are written."""

    CSV = "csv"
    JSON = "json"


def predict(
    folder: RunFolder,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="CSV file with a header, .json file with rows by column name, or - for either "
            "from standard input.",
        ),
    ],
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write here instead of to stdout.")
    ] = None,
    written_as: Annotated[
        Format, typer.Option("--format", metavar="csv|json", help="How predictions are written.")
    ] = Format.CSV,
    details: Annotated[
        bool,
        typer.Option("--details", help="Include derived values, e.g. link utilisation."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Include slack and strength of each rule at the row, and how far a shield moved "
            "the answer.",
        ),
    ] = False,
    refuse_outside: Annotated[
        bool,
        typer.Option("--refuse-outside", help="Fail if a row lies outside the region."),
    ] = False,
    fallback: Annotated[
        float | None,
        typer.Option(
            metavar="GAP",
            help="Routers: improve or solve rows whose proven gap to the optimum is larger, and "
            "solve those outside the set. [default: that of the run]",
        ),
    ] = None,
    no_fallback: Annotated[
        bool, typer.Option("--no-fallback", help="Routers: the router's answers as they are.")
    ] = False,
    churn: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Routers: rows are in order of time; change the path of at most this share of "
            "each demand from one to the next. [default: that of the run]",
        ),
    ] = None,
    no_churn: Annotated[
        bool, typer.Option("--no-churn", help="Routers: answer each row on its own.")
    ] = False,
    previous: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --churn: earlier output, the last row of which was answered before.",
        ),
    ] = None,
    fail_on_drift: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="End with exit code 4 if a larger share of the rows lies outside the region.",
        ),
    ] = None,
    history: Annotated[
        bool,
        typer.Option(
            "--history",
            help="Routers of --history: DATA is a traffic file; answer for the step after each "
            "whole window.",
        ),
    ] = False,
    failed: Annotated[
        str | None,
        typer.Option(
            metavar="LINKS", help="Routers: answer for this failure of links, such as A-B,C-D."
        ),
    ] = None,
) -> None:
    """Predict each row of DATA. Columns are matched by name; others are ignored.

    JSON data are a list of objects, [{"size": 0.7, "age": 0.2}, ...], or {"rows": [...]}. --format
    json prints one object, the same that cg4ai serve returns for these rows.

    A model prints its prediction and scores. A router takes columns such as a->d and prints the
    share of each path of each demand. The last column, "outside the region", marks rows outside
    the regions of rules that hold most of the training data.

    --explain adds for each rule its slack and its strength at the row. Slack is the distance from
    violating the rule; it is empty where the rule does not apply to a single row. Strengths are
    those of docs/guarantees.md, or "unverified" or "violated". For a router it also adds a proven
    upper bound of the relative gap to the optimum.

    Answers of a router that are further from the optimum than the run's --fallback, by a proof, or
    that lie outside the set are improved or solved by a linear program. The first line on stderr
    counts them, and the columns improved, solved and overloaded mark them.

    Rows outside the region are summed up on stderr: how many, and for routers which demand or node
    total is exceeded most and by what factor. Exit code 4: all is written, and the share of such
    rows is above that of --fail-on-drift.

    --churn holds each answer near the one of the row before, within the capacities: an answer that
    would overload a link moves further. A line on stderr counts these, and the columns "largest
    change", "traffic moved" and "yielded" mark them.

    A router that reads a history takes rows in order of time and answers each for the step after
    it. --history reads the formats of cg4ai route --traffic instead, e.g.
    cg4ai predict RUN matrices.npz --history --output splits.csv

    --failed answers with the router of a failure that cg4ai failures has studied. Paths over failed
    links have no column then.
    """
    from cg4ai.apps.drift import format_excess
    from cg4ai.apps.json_tables import STANDARD_INPUT, read_table
    from cg4ai.apps.predictions import OF_RUN, OfRun, PredictionOptions, RunPredictor
    from cg4ai.errors import InvalidInput
    from cg4ai.report.tables import csv_text
    from cg4ai.runs import files

    if failed is not None:
        from cg4ai.routing.operate.failure_study import failed_folder

        folder = failed_folder(folder, failed)
    if no_fallback and fallback is not None:
        raise InvalidInput("give --fallback or --no-fallback, not both", code="conflict")
    if no_churn and (churn is not None or previous is not None):
        raise InvalidInput(
            "--no-churn answers each row on its own: leave out --churn and --previous, or it",
            code="conflict",
        )
    gap: OfRun = OF_RUN if fallback is None else fallback
    most: OfRun = OF_RUN if churn is None else churn
    predictor = RunPredictor.from_folder(folder)
    if previous is not None and churn is None and predictor.described.churn is None:
        raise InvalidInput(
            "--previous is the answer that the first row is held near: give --churn, which the run "
            "was trained without",
            code="missing-argument",
        )
    last = None if previous is None else predictor.read_last(previous)
    if history:
        table = predictor.described.read_history(data)
        window = predictor.described.window
        if len(table) < window:
            raise InvalidInput(
                f"{data} holds {len(table)} matrices, and the run reads the last {window}: give as "
                "many at least",
                code="range",
            )
        before = window - 1
    else:
        piped = sys.stdin.buffer.read() if str(data) == STANDARD_INPUT else None
        table, before = read_table(data, piped), 0
    asked = PredictionOptions(
        details,
        explain,
        refuse_outside,
        None if no_fallback else gap,
        None if no_churn else most,
    )
    found = predictor.predict(table, asked, before=before, last=last)
    if found.ignored:
        print(f"warning: {found.ignored}", file=sys.stderr)
    for line in found.fallback.format_lines() if found.fallback is not None else ():
        print(line, file=sys.stderr)
    for line in found.changes.format_lines() if found.changes is not None else ():
        print(line, file=sys.stderr)
    drift = found.drift
    if drift["outside"]:
        excess = format_excess(
            drift, table.format_line(before + drift["largest"]["row"]) if "largest" in drift else ""
        )
        line = f"drift: {drift['outside']} of {drift['rows']} rows ({drift['share']:.1%}) outside"
        print(f"{line}; {excess}" if excess else line, file=sys.stderr)
    for text in (found.warning, found.note):
        if text:
            print(f"warning: {text}", file=sys.stderr)
    if written_as is Format.JSON:
        text = found.as_json(predictor.digest) + "\n"
    else:
        text = csv_text(found.mark_rows())
    if output is None:
        sys.stdout.write(text)
    else:
        files.write_bytes(output, text.encode())
        print(f"{len(found.rows)} predictions written to {output}", file=sys.stderr)
    if fail_on_drift is not None and drift["share"] > fail_on_drift:
        print(
            f"error: drift: the share of rows outside, {drift['share']:.4g}, is above "
            f"--fail-on-drift {fail_on_drift:g}",
            file=sys.stderr,
        )
        raise typer.Exit(DRIFTED)
