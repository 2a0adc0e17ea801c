"""`cg4ai predict`: a trained mixture's predictions for the rows of a CSV file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

OUTSIDE = "outside the region"


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
) -> None:
    """Predict each row of DATA.csv; columns are matched by name, further ones are ignored.

    A model gives its prediction and scores, a router the share of each path of each demand
    (columns are demands, such as a->d), a digit classifier the digit (columns pixel 0 to 783). Rows
    outside the region of a guarantee are marked in a column of their own. With --explain a rule's
    slack is how far the answer is from breaking it, empty where it says nothing of that row alone;
    strengths are those of docs/guarantees.md, or "violated".
    """
    from cg4ai.apps.csvdata import read_csv
    from cg4ai.apps.explaining import explained
    from cg4ai.apps.folders import trained
    from cg4ai.apps.patching import rules_added
    from cg4ai.apps.tables import csv_text
    from cg4ai.errors import InvalidInput
    from cg4ai.runs import files

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
    rows = described.predictions(inputs, outputs, details=details)
    if explain:
        stated = [*described.stated(table), *rules_added(ensemble, described)]
        told = explained(ensemble, stated, inputs, found)
        rows = [{**row, **more} for row, more in zip(rows, told, strict=True)]
    if beyond.any():
        rows = [{**row, OUTSIDE: bool(mark)} for row, mark in zip(rows, beyond, strict=True)]
    text = csv_text(rows)
    if output is None:
        sys.stdout.write(text)
        return
    files.write_bytes(output, text.encode())
    print(f"{len(rows)} predictions written to {output}", file=sys.stderr)
