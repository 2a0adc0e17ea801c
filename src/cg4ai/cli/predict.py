"""`cg4ai predict`: a trained mixture's predictions for the rows of a CSV file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

OUTSIDE = "outside the region"
ABOVE = "above the optimum at most"
IMPROVED, SOLVED = "improved", "solved"


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that train, route or digits wrote.")
    ],
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="CSV file with a header.")],
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write here instead of to stdout.")
    ] = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="What follows, too: of a router each link's utilisation."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Of each rule its slack at the row and how strongly it is kept there; and how far "
            "a shield moved the answer.",
        ),
    ] = False,
    refuse_outside: Annotated[
        bool,
        typer.Option("--refuse-outside", help="No predictions where the guarantee does not hold."),
    ] = False,
    fallback: Annotated[
        float | None,
        typer.Option(
            metavar="GAP",
            help="Of a router: improve or solve rows whose proven gap to the optimum is larger.",
        ),
    ] = None,
    failed: Annotated[
        str | None,
        typer.Option(
            metavar="LINKS", help="Of a router: what it does while these fail, such as A-B,C-D."
        ),
    ] = None,
) -> None:
    """Predict each row of DATA.csv; columns are matched by name, further ones are ignored.

    A model gives its prediction and scores, a router the share of each path of each demand
    (columns are demands, such as a->d), a digit classifier the digit (columns pixel 0 to 783). Rows
    outside the region of a guarantee are marked in a column of their own. With --explain a rule's
    slack is how far the answer is from breaking it, empty where it says nothing of that row alone;
    strengths are those of docs/guarantees.md, or "violated". With --failed the router of a failure
    answers that cg4ai failures has studied; paths over failed links have no column then. Of a
    router --explain also says how far above the optimum the answer is at most, as a share, proven
    by prices of links that the run has stored.
    """
    from cg4ai.apps.csvdata import read_csv
    from cg4ai.apps.explaining import explained
    from cg4ai.apps.folders import trained
    from cg4ai.apps.patching import rules_added
    from cg4ai.apps.tables import csv_text
    from cg4ai.errors import InvalidInput
    from cg4ai.runs import files

    if failed is not None:
        from cg4ai.apps.routing.failures import failed_folder

        folder = failed_folder(folder, failed)
    ensemble, described = trained(folder)
    table = read_csv(data)
    inputs = described.inputs(table)
    beyond = described.outside(inputs)
    if beyond.any():
        first = table.lines[int(beyond.argmax())]
        text = (
            f"{beyond.sum()} of {len(beyond)} rows lie outside the region in which the rules were "
            f"established, first on line {first} of {data}: nothing is guaranteed there"
        )
        if refuse_outside:
            raise InvalidInput(f"{text}; correct them, or leave out --refuse-outside")
        print(f"warning: {text}", file=sys.stderr)
    found = ensemble.predict(inputs, explain=explain, outside="ignore")
    outputs = found.outputs if explain else found
    proven: list[dict[str, Any]] = []
    if fallback is not None or explain:
        outputs, proven = against_optimum(described, inputs, outputs, fallback)
    if explain and outputs is not found.outputs:
        found = replace(found, outputs=outputs)
    rows = described.predictions(inputs, outputs, details=details)
    if explain:
        stated = [*described.stated(table), *rules_added(ensemble, described)]
        told = explained(ensemble, stated, inputs, found)
        rows = [{**row, **more} for row, more in zip(rows, told, strict=True)]
    if proven:
        rows = [{**row, **more} for row, more in zip(rows, proven, strict=True)]
    if beyond.any():
        rows = [{**row, OUTSIDE: bool(mark)} for row, mark in zip(rows, beyond, strict=True)]
    text = csv_text(rows)
    if output is None:
        sys.stdout.write(text)
        return
    files.write_bytes(output, text.encode())
    print(f"{len(rows)} predictions written to {output}", file=sys.stderr)


def against_optimum(
    described: Any, inputs: Any, outputs: Any, fallback: float | None
) -> tuple[Any, list[dict[str, Any]]]:
    """Outputs, some of them solved instead, and columns on their distance from the optimum.

    Nothing changes where predictions are no routes.
    """
    import numpy as np

    from cg4ai.apps.routing.description import Router
    from cg4ai.errors import InvalidInput

    if not isinstance(described, Router):
        if fallback is not None:
            raise InvalidInput("--fallback is for routers, whose answers can be solved instead")
        return outputs, []
    given = np.asarray(outputs)
    answers = described.answered(inputs, given, fallback=np.inf if fallback is None else fallback)
    gaps = ["" if np.isinf(gap) else float(gap) for gap in answers.gaps]
    columns: dict[str, list[Any]] = {ABOVE: gaps}
    if fallback is not None:
        columns[IMPROVED] = answers.improved.tolist()
        columns[SOLVED] = answers.solved.tolist()
    rows = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    changed = answers.improved.any() or answers.solved.any()
    return (answers.splits if changed else outputs), rows
