"""Study `plain`: no rules at all, six data sets of scikit-learn beside its usual models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_friedman1,
)
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cg4ai
from experiments.peers.cells import Cell
from experiments.peers.outcomes import OURS, Clock, Outcome

FOLDS = 5
TASKS: Mapping[str, Callable[[], Any]] = {
    "digits": partial(load_digits, return_X_y=True),
    "breast cancer": partial(load_breast_cancer, return_X_y=True),
    "wine": partial(load_wine, return_X_y=True),
    "iris": partial(load_iris, return_X_y=True),
    "diabetes": partial(load_diabetes, return_X_y=True),
    "friedman1": partial(make_friedman1, 1000, noise=1.0, random_state=0),
}
NUMBERS = ("diabetes", "friedman1")
METHODS = (OURS, "linear", "MLP", "random forest", "HGB")


def cells(seeds: Sequence[int]) -> list[Cell]:
    return [
        Cell(task, method, seed, partial(measured, task, method, seed))
        for task in TASKS
        for seed in seeds
        for method in METHODS
    ]


def measured(task: str, method: str, seed: int) -> Outcome:
    """Accuracy or R2 on five folds: their mean and standard deviation."""
    inputs, targets = TASKS[task]()
    classification = task not in NUMBERS
    folds = (StratifiedKFold if classification else KFold)(FOLDS, shuffle=True, random_state=seed)
    scores, seconds = [], []
    for a, b in folds.split(inputs, targets):
        model = _model(method, seed, classification=classification)
        with Clock() as clock:
            model.fit(inputs[a], targets[a])
        seconds.append(clock.seconds)
        scores.append(float(model.score(inputs[b], targets[b])))
    figures = {"score": np.mean(scores), "sd": np.std(scores, ddof=1), "train_s": np.mean(seconds)}
    return Outcome(task, method, seed, {key: float(value) for key, value in figures.items()})


def _model(method: str, seed: int, *, classification: bool) -> Any:
    """As the method comes, inputs scaled where that is usual."""
    if method == OURS:
        if classification:
            return cg4ai.ConstrainedClassifier(random_state=seed)
        return cg4ai.ConstrainedRegressor(random_state=seed)
    if classification:
        made = {
            "linear": LogisticRegression(max_iter=1000),
            "MLP": MLPClassifier(max_iter=500, random_state=seed),
            "random forest": RandomForestClassifier(random_state=seed),
            "HGB": HistGradientBoostingClassifier(random_state=seed),
        }[method]
    else:
        network = MLPRegressor(max_iter=1000, random_state=seed)
        made = {
            "linear": RidgeCV(),
            "MLP": TransformedTargetRegressor(network, transformer=StandardScaler()),
            "random forest": RandomForestRegressor(random_state=seed),
            "HGB": HistGradientBoostingRegressor(random_state=seed),
        }[method]
    return made if method in ("random forest", "HGB") else make_pipeline(StandardScaler(), made)
