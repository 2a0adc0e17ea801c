"""`cg4ai predict`: a trained mixture's predictions for the rows of a CSV file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cg4ai.apps.tabular.csvdata import read_csv
from cg4ai.cli.tables import csv_text
from cg4ai.cli.trained import Trained, load_trained
from cg4ai.records import Array
from cg4ai.runs import files


def run(folder: Path, data: Path, *, output: Path | None) -> None:
    """Write one line per row: the prediction, and for classes the score of each."""
    trained = load_trained(folder)
    inputs = read_csv(data).numbers(trained.features)
    rows = prediction_rows(trained, trained.ensemble.predict(inputs))
    text = csv_text(rows)
    if output is None:
        sys.stdout.write(text)
        return
    files.write_bytes(output, text.encode())
    print(f"{len(rows)} predictions written to {output}", file=sys.stderr)


def prediction_rows(trained: Trained, scores: Array) -> list[dict[str, Any]]:
    """`scores` (n, outputs) as rows of a table."""
    if trained.task == "regression":
        return [{trained.target: float(value)} for value in scores[:, 0]]
    best = scores[:, : len(trained.outputs)].argmax(1)
    return [
        {
            trained.target: trained.outputs[best[number]],
            **{
                f"{trained.scores} {name}": float(value)
                for name, value in zip(trained.outputs, line, strict=False)
            },
        }
        for number, line in enumerate(scores)
    ]
