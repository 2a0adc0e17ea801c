"""What a command knows of a trained mixture beside its members: names of features and outputs.

`train` stores it in the ensemble's own `about`, so that the folder is all that the other commands
need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.tabular.csvdata import CsvTable
from cg4ai.apps.tabular.rulefile import Subject
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import load
from cg4ai.errors import RunFolderError
from cg4ai.records import Array


@dataclass(frozen=True)
class Trained:
    """A mixture with the names that its inputs and outputs had in the training data."""

    ensemble: Ensemble
    features: tuple[str, ...]
    outputs: tuple[str, ...]
    lower: Array
    upper: Array
    target: str
    task: str
    scores: str

    def subject(self, table: CsvTable | None) -> Subject:
        """For rules: ranges are those of the training data, rows those of `table`."""
        return Subject(
            features=self.features,
            outputs=self.outputs,
            lower=self.lower,
            upper=self.upper,
            target=self.target,
            classification=self.task == "classification",
            table=table,
        )


def about(subject: Subject, *, scores: str) -> dict[str, Any]:
    """What `load_trained` reads back."""
    return {
        "features": list(subject.features),
        "outputs": list(subject.outputs),
        "lower": subject.lower.tolist(),
        "upper": subject.upper.tolist(),
        "target": subject.target,
        "task": "classification" if subject.classification else "regression",
        "scores": scores,
    }


def load_trained(folder: Path) -> Trained:
    """The mixture of a run folder that `cg4ai train` has written."""
    if not folder.is_dir():
        raise RunFolderError(f"{folder} is no folder: name one that cg4ai train has written")
    unfinished = (folder / "run.json").exists() and not (folder / "ensemble.json").exists()
    if unfinished:
        raise RunFolderError(
            f"the run in {folder} has not ended, so there is no mixture yet: continue it with "
            "cg4ai train ... --resume"
        )
    ensemble = load(folder)
    known: Mapping[str, Any] = ensemble.about
    try:
        return Trained(
            ensemble=ensemble,
            features=tuple(known["features"]),
            outputs=tuple(known["outputs"]),
            lower=np.array(known["lower"], np.float64),
            upper=np.array(known["upper"], np.float64),
            target=str(known["target"]),
            task=str(known["task"]),
            scores=str(known["scores"]),
        )
    except KeyError as error:
        raise RunFolderError(
            f"the ensemble in {folder} does not say its {error}: it was not trained by cg4ai "
            "train; use cg4ai.load in Python instead"
        ) from error
