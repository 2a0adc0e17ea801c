"""How well the estimators generalise: cross-validated scores, with and without requirements.

Prints a table: accuracy (classes) or R2 (numbers) on folds that were not trained on, beside a
linear model and a network of scikit-learn, seconds per fit, and whether every requirement held.
The requirements are about a seventh of each training fold: probability of the given class at
least 0.7, or the value within half a standard deviation of the given one. `--quick` takes two
folds of four data sets.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_friedman1,
    make_friedman2,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, Linear, Probability
from cg4ai.apps.tables import markdown

QUICK = ("cancer", "noisy", "diabetes", "friedman1")


@dataclass(frozen=True)
class DataSet:
    name: str
    inputs: Any
    targets: Any
    classification: bool


@dataclass
class Scores:
    """What one method reached on one data set, a value per fold."""

    score: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)


def data_sets() -> Iterator[DataSet]:
    yield DataSet("cancer", *load_breast_cancer(return_X_y=True), True)
    yield DataSet("wine", *load_wine(return_X_y=True), True)
    yield DataSet("iris", *load_iris(return_X_y=True), True)
    yield DataSet("digits", *load_digits(return_X_y=True), True)
    noisy = make_classification(600, 20, n_informative=6, flip_y=0.15, random_state=1)
    yield DataSet("noisy", *noisy, True)
    yield DataSet("diabetes", *load_diabetes(return_X_y=True), False)
    yield DataSet("friedman1", *make_friedman1(500, noise=1.0, random_state=0), False)
    yield DataSet("friedman2", *make_friedman2(400, noise=80.0, random_state=0), False)


def linear_model(classification: bool) -> Any:
    model = LogisticRegression(max_iter=1000) if classification else RidgeCV()
    return make_pipeline(StandardScaler(), model)


def plain_network(classification: bool) -> Any:
    if classification:
        return make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=0))
    inner = MLPRegressor(max_iter=1000, random_state=0)
    scaled = TransformedTargetRegressor(inner, transformer=StandardScaler())
    return make_pipeline(StandardScaler(), scaled)


def ours(classification: bool) -> Any:
    return (ConstrainedClassifier if classification else ConstrainedRegressor)(random_state=0)


def requirements(inputs: Any, targets: Any, classification: bool) -> list[Any]:
    count = max(5, len(inputs) // 7)
    chosen = np.random.default_rng(3).choice(len(inputs), count, replace=False)
    if classification:
        return [Probability(inputs[chosen], targets[chosen], at_least=0.7)]
    half = 0.5 * targets.std()
    return [
        Linear(inputs[chosen], [1.0], targets[chosen] - half, ">="),
        Linear(inputs[chosen], [1.0], targets[chosen] + half, "<="),
    ]


def measure(data: DataSet, make: Callable[[bool], Any], *, ruled: bool, folds: int) -> Scores:
    kind = StratifiedKFold if data.classification else KFold
    found = Scores()
    for a, b in kind(folds, shuffle=True, random_state=0).split(data.inputs, data.targets):
        inputs, targets = data.inputs[a], data.targets[a]
        extra = (
            {"requirements": requirements(inputs, targets, data.classification)} if ruled else {}
        )
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = make(data.classification).fit(inputs, targets, **extra)
        found.seconds.append(time.perf_counter() - started)
        found.score.append(model.score(data.inputs[b], data.targets[b]))
        if ruled:
            found.held.append(model.result_.feasible)
    return found


def rows(quick: bool) -> list[dict[str, Any]]:
    table = []
    methods = (
        ("linear", linear_model, False),
        ("MLP", plain_network, False),
        ("ours", ours, False),
        ("ours, ruled", ours, True),
    )
    for data in data_sets():
        if quick and data.name not in QUICK:
            continue
        row: dict[str, Any] = {"data": data.name, "rows": len(data.inputs)}
        for name, make, ruled in methods:
            found = measure(data, make, ruled=ruled, folds=2 if quick else 5)
            row[name] = f"{np.mean(found.score):.3f}"
            if make is ours:
                row[f"{name} (s)"] = f"{np.mean(found.seconds):.1f}"
            if ruled:
                row["rules held"] = f"{sum(found.held)} of {len(found.held)}"
        print(row, flush=True)
        table.append(row)
    return table


def main() -> None:
    torch.set_num_threads(1)
    print(markdown(rows("--quick" in sys.argv)))


if __name__ == "__main__":
    main()
