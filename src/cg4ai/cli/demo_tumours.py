"""`cg4ai demo --data cancer`: a classifier that keeps two rules, beside one that need not.

The data come with scikit-learn (569 patients), so nothing is downloaded.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

from cg4ai.apps import wording
from cg4ai.apps.protocol import Rule
from cg4ai.apps.tables import plain
from cg4ai.apps.tabular.description import described
from cg4ai.apps.tabular.rulefile import Subject
from cg4ai.cli.progress import progress
from cg4ai.ensemble.audit import Audit, audit
from cg4ai.errors import FitWarning
from cg4ai.estimators.estimators import ConstrainedClassifier
from cg4ai.records import Array, IntArray, StopReason
from cg4ai.rules import Probability
from cg4ai.rules.regions import Box
from cg4ai.runs.folder import Run
from cg4ai.separation import default_separator
from cg4ai.solving.loop import solve

MET, NOT_MET, INTERRUPTED = 0, 3, 130
MALIGNANT = 0
FEATURES = (
    "worst radius",
    "worst texture",
    "worst smoothness",
    "worst concave points",
    "worst symmetry",
)
RADIUS, CONCAVITY = 20.0, 0.2  # no patient of the data with at least these has a benign tumour

INTRODUCTION = """\
A tumour classifier for {train} patients on record; {unseen} more are kept back. Features:
  {names}

Two rules, which a good score on the records does not imply:
  1. every malignant tumour on record gets a probability of being malignant >= 0.6;
  2. EVERY tumour with worst radius >= {radius:g} and worst concave points >= {concavity:g},
     whatever its other features are within the range of the data, gets >= 0.9.

First a plain network, then a mixture of such networks trained under the rules.
"""


@dataclass(frozen=True)
class _Study:
    """Patients to train on and patients kept back."""

    inputs: Array
    labels: IntArray
    unseen_inputs: Array
    unseen_labels: IntArray
    subject: Subject


def run(out: Path | None, *, seed: int) -> int:
    """Train both, compare them, say what is guaranteed; returns the exit code."""
    torch.set_num_threads(1)  # the networks are tiny: more threads only wait for each other
    study = _study(seed)
    known, large = rules = _rules(study)
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
    single = ConstrainedClassifier(restarts=1, column_limit=1, steps=200, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # one network is what the limit is for
        single.fit(study.inputs, study.labels)
    single_audits = [audit(rule, single.ensemble_) for rule in rules]
    mixture = ConstrainedClassifier(steps=200, random_state=seed)
    if not _train(mixture, study, rules, out=out, seed=seed):
        return INTERRUPTED
    audits: tuple[Audit, ...] = mixture.result_.audits
    print(_comparison(study, single, mixture, [*single_audits, *audits]))
    print(_counterexample(large, single, mixture))
    print(wording.report(wording.summary(mixture.result_, _named(study, [known, large]))))
    print("\nNothing is guaranteed for the patients kept back; their numbers are measured.")
    return MET if mixture.result_.feasible else NOT_MET


def _train(
    mixture: ConstrainedClassifier,
    study: _Study,
    rules: list[Probability],
    *,
    out: Path | None,
    seed: int,
) -> bool:
    """Train under the rules, keeping the run if asked to; False if interrupted."""
    problem = mixture.problem(study.inputs, study.labels, rules)
    settings = mixture.run_settings()
    folder = None if out is None else Run.create(out, "demo", settings.as_dict())
    try:
        with progress("auto") as shown:
            result = solve(problem, settings, progress=shown.update, run=folder)
        if folder is not None:
            about = {"application": "tabular", **described(study.subject, scores="probability")}
            result.ensemble.about.update(about)
            result.ensemble.save(folder.folder)
            folder.finish(wording.summary(result, _named(study, rules)))
    finally:
        if folder is not None:
            folder.close()
    mixture.adopt(result)
    if result.stop_reason is StopReason.INTERRUPTED:
        print("interrupted", file=sys.stderr)
        return False
    return True


def _study(seed: int) -> _Study:
    data = load_breast_cancer()
    places = [list(data.feature_names).index(name) for name in FEATURES]
    inputs, labels = np.asarray(data.data[:, places], np.float64), np.asarray(data.target)
    order = np.random.default_rng(seed).permutation(len(labels))
    train, unseen = np.split(order, [3 * len(order) // 4])
    subject = Subject(
        features=FEATURES,
        outputs=tuple(str(name) for name in data.target_names),
        lower=inputs.min(0),
        upper=inputs.max(0),
        target="diagnosis",
        classification=True,
    )
    return _Study(inputs[train], labels[train], inputs[unseen], labels[unseen], subject)


def _rules(study: _Study) -> list[Probability]:
    lower = study.subject.lower.copy()
    lower[FEATURES.index("worst radius")] = RADIUS
    lower[FEATURES.index("worst concave points")] = CONCAVITY
    on_record = study.inputs[study.labels == MALIGNANT]
    labels = np.full(len(on_record), MALIGNANT)
    return [
        Probability(on_record, labels, 0.6, name="malignant on record"),
        Probability(Box(lower, study.subject.upper), MALIGNANT, 0.9, name="large and jagged"),
    ]


def _named(study: _Study, rules: list[Probability]) -> list[Rule]:
    return [Rule(rule, study.subject.outputs) for rule in rules]


def _comparison(
    study: _Study,
    single: ConstrainedClassifier,
    mixture: ConstrainedClassifier,
    audits: list[Audit],
) -> str:
    rows: list[dict[str, Any]] = []
    for number, (name, model) in enumerate((("plain network", single), ("mixture", mixture))):
        known, large = audits[2 * number : 2 * number + 2]
        right = model.predict(study.unseen_inputs) == study.unseen_labels
        missed = ~right & (study.unseen_labels == MALIGNANT)
        rows.append(
            {
                "": name,
                "rule 1: on record": f"{known.satisfied} of {known.rows}",
                "rule 2: large and jagged": "no violation found"
                if large.holds
                else f"broken by {large.worst_violation:.2g}",
                "kept-back patients right": f"{right.sum()} of {len(right)}",
                "malignant missed": int(missed.sum()),
            }
        )
    return "\n" + plain(rows)


def _counterexample(
    rule: Probability, single: ConstrainedClassifier, mixture: ConstrainedClassifier
) -> str:
    """The worst tumour found for the plain network, judged by both."""
    search = default_separator(rule, ensemble_differentiable=True)
    found = search.find(single.ensemble_, rule, seed=0, limit=1, tolerance=1e-6)
    if found.rows is None:
        return "No tumour was found for which the plain network breaks rule 2.\n"
    point = found.rows.inputs[:1]
    values = ", ".join(
        f"{name} {value:.3g}" for name, value in zip(FEATURES, point[0], strict=True)
    )
    chances = [float(model.predict_proba(point)[0, MALIGNANT]) for model in (single, mixture)]
    return (
        f"A tumour for which the plain network breaks rule 2: {values}.\n"
        f"Probability of being malignant: plain network {chances[0]:.2g}, mixture "
        f"{chances[1]:.2g}.\n"
    )
