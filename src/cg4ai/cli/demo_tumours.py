"""`cg4ai demo --data cancer`: a classifier that keeps two rules, beside one that need not.

The data come with scikit-learn (569 patients), so nothing is downloaded.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

from cg4ai.apps.runner import (
    INTERRUPTED,
    KEPT,
    NOT_KEPT,
    describe_saved,
    perform,
    print_interrupted,
)
from cg4ai.apps.tabular.app import APPLICATION
from cg4ai.apps.tabular.settings import TrainSettings
from cg4ai.cli.progress import make_progress
from cg4ai.colgen.separation import default_separator
from cg4ai.ensemble.audit import Audit, audit
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning
from cg4ai.estimators.estimators import ConstrainedClassifier
from cg4ai.records import Array, IntArray, Strength
from cg4ai.report.tables import format_plain
from cg4ai.report.terminal import render_text
from cg4ai.rules import Requirement
from cg4ai.runs import files
from cg4ai.runs.folder import Run

CLASSES = ("benign", "malignant")  # in the order of the alphabet, as `cg4ai train` numbers them
MALIGNANT = 1
PATIENTS, RULES = "patients.csv", "rules.json"
ASKED: dict[str, Any] = {"target": "diagnosis"}  # all else as `cg4ai train` has it
FEATURES = (
    "worst radius",
    "worst texture",
    "worst smoothness",
    "worst concave points",
    "worst symmetry",
)
RADIUS, CONCAVITY = 20.0, 0.2  # no patient of the data with at least these has a benign tumour

INTRODUCTION = """\
A tumour classifier is trained on {train} patients; {unseen} more are held out. Features:
  {names}

Two rules, which a good score does not imply:
  1. The probability of "malignant" is at least 0.6 for every malignant tumour in the data.
  2. It is at least 0.9 for EVERY tumour with worst radius >= {radius:g} and worst concave points
     >= {concavity:g}, whatever its other features in the range of the data.

A mixture of networks is trained under the rules, and a plain network without them.
"""


@dataclass(frozen=True)
class _Study:
    """Patients to train on and patients kept back."""

    inputs: Array
    labels: IntArray
    unseen_inputs: Array
    unseen_labels: IntArray


def run(folder: Path, *, seed: int, force: bool) -> int:
    """Train both, compare them, say what is guaranteed; returns the exit code.

    The mixture is a run of `cg4ai train`, whose data and rules lie in its folder, too.
    """
    torch.set_num_threads(1)  # the networks are tiny: more threads only wait for each other
    study = _study(seed)
    Run.create(folder, APPLICATION.name, {}, force=force).close()  # refuses what is not free
    files.write_bytes(folder / PATIENTS, _table(study).encode())
    files.write_bytes(folder / RULES, json.dumps(_rules(), indent=2).encode())
    print(
        INTRODUCTION.format(
            train=len(study.labels),
            unseen=len(study.unseen_labels),
            names=", ".join(FEATURES),
            radius=RADIUS,
            concavity=CONCAVITY,
        ),
        flush=True,
    )
    settings = TrainSettings(data=folder / PATIENTS, rules=folder / RULES, seed=seed, **ASKED)
    with make_progress() as screen:
        outcome = perform(APPLICATION, settings, out=folder, force=True, screen=screen)
    if outcome.evaluation is None:
        print_interrupted(APPLICATION.name, folder)
        return INTERRUPTED
    mixture, rules = outcome.result.ensemble, [rule.requirement for rule in outcome.prepared.rules]
    single = _plain(study, settings)
    audits = [[audit(rule, model) for rule in rules] for model in (single, mixture)]
    print(_comparison(study, single, mixture, audits))
    print(_counterexample(rules[1], single, mixture))
    print(render_text(APPLICATION.story(outcome.summary)))
    print(describe_saved(folder, APPLICATION.name))
    return KEPT if outcome.evaluation.kept else NOT_KEPT


def _plain(study: _Study, settings: TrainSettings) -> Ensemble:
    single = ConstrainedClassifier(
        members="network",
        restarts=1,
        steps=settings.steps,
        settings={"column_limit": 1},
        random_state=settings.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # one network is what the limit is for
        single.fit(study.inputs, study.labels)
    return single.ensemble_


def _study(seed: int) -> _Study:
    data = load_breast_cancer()
    places = [list(data.feature_names).index(name) for name in FEATURES]
    inputs = np.asarray(data.data[:, places], np.float64)
    labels = np.array([CLASSES.index(data.target_names[label]) for label in data.target])
    order = np.random.default_rng(seed).permutation(len(labels))
    train, unseen = np.split(order, [3 * len(order) // 4])
    return _Study(inputs[train], labels[train], inputs[unseen], labels[unseen])


def _table(study: _Study) -> str:
    """The patients on record as a CSV file."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*FEATURES, "diagnosis"])
    for features, label in zip(study.inputs.tolist(), study.labels, strict=True):
        lines.writerow([*features, CLASSES[label]])
    return text.getvalue()


def _rules() -> list[dict[str, Any]]:
    """Both rules, in the format of docs/rules.md."""
    lower = {"worst radius": RADIUS, "worst concave points": CONCAVITY}
    return [
        {
            "rule": "probability",
            "name": "malignant on record",
            "rows": {"diagnosis": "malignant"},
            "at_least": 0.6,
        },
        {
            "rule": "probability",
            "name": "large and jagged",
            "box": {"lower": lower},
            "label": "malignant",
            "at_least": 0.9,
        },
    ]


def _comparison(
    study: _Study, single: Ensemble, mixture: Ensemble, audits: list[list[Audit]]
) -> str:
    rows: list[dict[str, Any]] = []
    for number, (name, model) in enumerate((("plain network", single), ("mixture", mixture))):
        known, large = audits[number]
        chances = model.predict(study.unseen_inputs, outside="ignore")
        right = chances.argmax(1) == study.unseen_labels
        missed = ~right & (study.unseen_labels == MALIGNANT)
        rows.append(
            {
                "": name,
                "rule 1: on record": f"{known.satisfied} of {known.rows}",
                "rule 2: large and jagged": _kept(large),
                "held-out patients right": f"{right.sum()} of {len(right)}",
                "malignant missed": int(missed.sum()),
            }
        )
    return "\n" + format_plain(rows)


def _kept(found: Audit) -> str:
    """What is known of a rule over a region, in a few words."""
    if not found.holds:
        return f"violated by {found.worst_violation:.2g}"
    everywhere = (Strength.SHIELDED, Strength.CERTIFIED, Strength.CONSTRUCTED)
    return "holds at every input" if found.strength in everywhere else "no violation found"


def _counterexample(rule: Requirement, single: Ensemble, mixture: Ensemble) -> str:
    """The worst tumour found for the plain network, judged by both."""
    search = default_separator(rule, ensemble_differentiable=True)
    found = search.find(single, rule, seed=0, limit=1, tolerance=1e-6)
    if found.rows is None:
        return "No tumour was found at which the plain network violates rule 2.\n"
    point = found.rows.inputs[:1]
    values = ", ".join(
        f"{name} {value:.3g}" for name, value in zip(FEATURES, point[0], strict=True)
    )
    chances = [float(model.predict(point)[0, MALIGNANT]) for model in (single, mixture)]
    return (
        f"A tumour at which the plain network violates rule 2: {values}.\n"
        f"Probability of being malignant: plain network {chances[0]:.2g}, mixture "
        f"{chances[1]:.2g}.\n"
    )
