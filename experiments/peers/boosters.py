"""HistGradientBoosting, LightGBM and XGBoost as users run them: a few settings, chosen by folds.

Learning rate and size of trees are chosen together with the number of trees, which costs nothing:
one fit of the most trees is scored at every smaller number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from cg4ai.data import Array, IntArray
from experiments.peers.outcomes import installed

RATES = (0.03, 0.1)
SIZES: tuple[Literal["small", "large"], ...] = ("small", "large")
LEAVES, DEPTHS = {"small": 8, "large": 31}, {"small": 3, "large": 6}
COUNTS = (25, 50, 100, 200, 400)
LARGE = 1500  # rows, above which one fold is enough to choose by

Loss = Callable[[Array | IntArray, Array], float]  # of targets (n,) and predictions


@dataclass(frozen=True)
class Choice:
    """What is chosen by folds."""

    rate: float
    size: str
    count: int


@dataclass(frozen=True)
class Asked:
    """What is fitted: means, a quantile or classes, with features that only raise or lower it."""

    quantile: float | None = None
    classes: int = 0
    signs: Mapping[int, int] | None = None

    def constraints(self, features: int) -> list[int] | None:
        if not self.signs:
            return None
        return [int(self.signs.get(feature, 0)) for feature in range(features)]


def names() -> list[str]:
    """The libraries that are installed."""
    found = {"LightGBM": "lightgbm", "XGBoost": "xgboost"}
    return ["HGB", *(name for name, package in found.items() if installed(package))]


def fitted(
    name: str, inputs: Array, targets: Array | IntArray, asked: Asked, choice: Choice, seed: int
) -> Any:
    """One model; `ValueError` of the library where it refuses constraints."""
    constraints = asked.constraints(inputs.shape[1])
    made = {"HGB": _hgb, "LightGBM": _lightgbm, "XGBoost": _xgboost}[name]
    return made(asked, choice, constraints, seed).fit(inputs, targets)


def chosen(
    name: str,
    inputs: Array,
    targets: Array | IntArray,
    questions: Sequence[Asked],
    loss: Loss,
    seed: int,
) -> Choice:
    """The settings of least loss over folds of the training rows, summed over `questions`."""
    split = KFold(5 if len(inputs) > LARGE else 3, shuffle=True, random_state=seed)
    folds = list(split.split(inputs))[: 1 if len(inputs) > LARGE else None]
    losses: dict[Choice, float] = {}
    for rate, size, asked, (a, b) in product(RATES, SIZES, questions, folds):
        model = fitted(name, inputs[a], targets[a], asked, Choice(rate, size, COUNTS[-1]), seed)
        for count, outputs in _staged(name, model, inputs[b], classes=asked.classes):
            one = Choice(rate, size, count)
            worth = loss(targets[b], outputs) if asked.quantile is None else pinball(
                targets[b], outputs, asked.quantile
            )  # fmt: skip
            losses[one] = losses.get(one, 0.0) + worth
    return min(losses, key=lambda one: losses[one])


def pinball(targets: Array | IntArray, outputs: Array, quantile: float) -> float:
    missed = targets - outputs
    return float(np.maximum(quantile * missed, (quantile - 1) * missed).mean())


def squared(targets: Array | IntArray, outputs: Array) -> float:
    return float(np.square(targets - outputs).mean())


def log_loss(targets: Array | IntArray, probabilities: Array) -> float:
    likely = probabilities[np.arange(len(targets)), targets.astype(int)]
    return float(-np.log(np.clip(likely, 1e-12, 1)).mean())


def _hgb(asked: Asked, choice: Choice, constraints: list[int] | None, seed: int) -> Any:
    shared: dict[str, Any] = {
        "learning_rate": choice.rate,
        "max_iter": choice.count,
        "max_leaf_nodes": LEAVES[choice.size],
        "monotonic_cst": constraints,
        "early_stopping": False,
        "random_state": seed,
    }
    if asked.classes:
        return HistGradientBoostingClassifier(**shared)
    if asked.quantile is not None:
        shared |= {"loss": "quantile", "quantile": asked.quantile}
    return HistGradientBoostingRegressor(**shared)


def _lightgbm(asked: Asked, choice: Choice, constraints: list[int] | None, seed: int) -> Any:
    import lightgbm

    shared: dict[str, Any] = {
        "learning_rate": choice.rate,
        "n_estimators": choice.count,
        "num_leaves": LEAVES[choice.size],
        "random_state": seed,
        "n_jobs": 1,
        "verbose": -1,
    }
    if constraints:
        shared |= {"monotone_constraints": constraints, "monotone_constraints_method": "advanced"}
    if asked.classes:
        return lightgbm.LGBMClassifier(**shared)
    if asked.quantile is not None:
        shared |= {"objective": "quantile", "alpha": asked.quantile}
    return lightgbm.LGBMRegressor(**shared)


def _xgboost(asked: Asked, choice: Choice, constraints: list[int] | None, seed: int) -> Any:
    import xgboost

    shared: dict[str, Any] = {
        "learning_rate": choice.rate,
        "n_estimators": choice.count,
        "max_depth": DEPTHS[choice.size],
        "random_state": seed,
        "n_jobs": 1,
    }
    if constraints:
        shared["monotone_constraints"] = tuple(constraints)
    if asked.classes:
        return xgboost.XGBClassifier(**shared)
    if asked.quantile is not None:
        shared |= {"objective": "reg:quantileerror", "quantile_alpha": asked.quantile}
    return xgboost.XGBRegressor(**shared)


def _staged(name: str, model: Any, inputs: Array, *, classes: int) -> Iterator[tuple[int, Array]]:
    """Predictions, or probabilities, of the first so many trees."""
    predict = model.predict_proba if classes else model.predict
    if name == "HGB":
        stages = model.staged_predict_proba(inputs) if classes else model.staged_predict(inputs)
        for count, outputs in enumerate(stages, start=1):
            if count in COUNTS:
                yield count, outputs
        return
    for count in COUNTS:
        if name == "LightGBM":
            yield count, predict(inputs, num_iteration=count)
        else:
            yield count, predict(inputs, iteration_range=(0, count))
