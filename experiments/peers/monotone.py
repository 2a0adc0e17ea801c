"""Study `monotone`: regressors and classifiers that rise with features, ours and boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import r2_score

import cg4ai
from cg4ai.data import Array
from experiments.peers import boosters, tables
from experiments.peers.boosters import Asked
from experiments.peers.cells import Cell
from experiments.peers.outcomes import OURS, Clock, Outcome
from experiments.peers.tables import Split, Task

PAIRS = 100_000
ROUNDING = 1e-9  # of the spread of the outputs: less than this does not count as falling
REGRESSIONS: Mapping[str, Callable[[int], Task]] = {
    "diabetes": tables.diabetes,
    "friedman1": tables.friedman1,
    "scores": tables.scores,
}
CLASSES = {"two classes": 2, "four classes in order": 4}
SUMS = ("falling", "outside", "falling_free")  # over splits; other figures are means


@dataclass(frozen=True)
class Fitted:
    """Predictions with the rules and without, the seconds of the fit and of choosing for it."""

    bound: Callable[[Array], Array]
    free: Callable[[Array], Array]
    fit_s: float
    choice_s: float = 0.0


def cells(seeds: Sequence[int]) -> list[Cell]:
    """All of the study, what takes longest first."""
    works = {"scores": regression, "friedman1": regression, "diabetes": regression}
    works |= dict.fromkeys(CLASSES, classification)
    return [
        Cell(task, method, seed, partial(work, task, method, seed))
        for task, work in works.items()
        for seed in seeds
        for method in (OURS, *boosters.names())
    ]


def regression(name: str, method: str, seed: int) -> Outcome:
    """R2 on rows not seen, and falling pairs among 100,000."""
    task = REGRESSIONS[name](seed)
    found = []
    for split in task.splits:
        fitted = (
            _our_regressor(task, split, seed)
            if method == OURS
            else peer(method, split, Asked(signs=task.signs), boosters.squared, seed)
        )
        found.append(_of_regression(fitted, task, split, seed))
    figures = {
        key: float((np.sum if key in SUMS else np.mean)([one[key] for one in found]))
        for key in found[0]
    }
    return Outcome(name, method, seed, figures)


def _our_regressor(task: Task, split: Split, seed: int) -> Fitted:
    def model() -> cg4ai.ConstrainedRegressor:
        return cg4ai.ConstrainedRegressor(random_state=seed)

    rules: list[Any] = [
        cg4ai.rules.Monotone(dict(task.signs)),
        cg4ai.rules.Range(task.low, task.high),
    ]
    with Clock() as clock:
        bound = model().fit(split.inputs, split.targets, requirements=rules)
    free = model().fit(split.inputs, split.targets)
    return Fitted(bound.predict, free.predict, clock.seconds)


def peer(method: str, split: Split, asked: Asked, loss: boosters.Loss, seed: int) -> Fitted:
    """The settings are chosen with the rules and serve without them, too."""
    with Clock() as choosing:
        choice = boosters.chosen(method, split.inputs, split.targets, [asked], loss, seed)
    with Clock() as fitting:
        bound = boosters.fitted(method, split.inputs, split.targets, asked, choice, seed)
    plain = Asked(asked.quantile, asked.classes)
    free = boosters.fitted(method, split.inputs, split.targets, plain, choice, seed)
    how = "predict_proba" if asked.classes else "predict"
    return Fitted(getattr(bound, how), getattr(free, how), fitting.seconds, choosing.seconds)


def _of_regression(fitted: Fitted, task: Task, split: Split, seed: int) -> dict[str, float]:
    before, after = tables.pairs(split, task.signs, PAIRS // len(task.splits), seed)
    room = ROUNDING * float(split.targets.std())
    low, high = fitted.bound(before), fitted.bound(after)
    both = np.stack([low, high])
    return {
        "r2": float(r2_score(split.test_targets, fitted.bound(split.test_inputs))),
        "falling": float((high < low - room).sum()),
        "outside": float(((both < task.low - room) | (both > task.high + room)).any(0).sum()),
        "fit_s": fitted.fit_s,
        "train_s": fitted.fit_s + fitted.choice_s,
        "r2_free": float(r2_score(split.test_targets, fitted.free(split.test_inputs))),
        "falling_free": float((fitted.free(after) < fitted.free(before) - room).sum()),
    }


def classification(name: str, method: str, seed: int) -> Outcome:
    """Accuracy and log loss, and pairs in which the chance of a class or a higher one falls."""
    count = CLASSES[name]
    task = tables.classes(seed, count)
    (split,) = task.splits
    if method == OURS:
        fitted = _our_classifier(task, split, seed, count)
    else:
        asked = Asked(classes=count, signs=task.signs)
        try:
            fitted = peer(method, split, asked, boosters.log_loss, seed)
        except ValueError as refused:
            return Outcome(name, method, seed, note=f"refuses: {str(refused).splitlines()[0]:.80}")
    return Outcome(name, method, seed, _of_classes(fitted, task, split, seed))


def _our_classifier(task: Task, split: Split, seed: int, count: int) -> Fitted:
    def model() -> cg4ai.ConstrainedClassifier:
        return cg4ai.ConstrainedClassifier(random_state=seed)

    rule = cg4ai.rules.Monotone(dict(task.signs), ordered=count > 2)
    with Clock() as clock:
        bound = model().fit(split.inputs, split.targets, requirements=[rule])
    free = model().fit(split.inputs, split.targets)
    return Fitted(bound.predict_proba, free.predict_proba, clock.seconds)


def _of_classes(fitted: Fitted, task: Task, split: Split, seed: int) -> dict[str, float]:
    before, after = tables.pairs(split, task.signs, PAIRS, seed)
    bound, free = fitted.bound(split.test_inputs), fitted.free(split.test_inputs)
    return {
        "accuracy": float((bound.argmax(1) == split.test_targets).mean()),
        "log_loss": boosters.log_loss(split.test_targets, bound),
        "falling": _falling_chances(fitted.bound, before, after),
        "fit_s": fitted.fit_s,
        "train_s": fitted.fit_s + fitted.choice_s,
        "accuracy_free": float((free.argmax(1) == split.test_targets).mean()),
        "falling_free": _falling_chances(fitted.free, before, after),
    }


def _falling_chances(predict: Callable[[Array], Array], before: Array, after: Array) -> float:
    """In how many pairs P(class >= k) falls for some k."""
    low, high = (np.cumsum(predict(x)[:, ::-1], axis=1)[:, :-1] for x in (before, after))
    # float32 of a library is rounded by more than the sums here
    room = max(ROUNDING, 4 * float(np.finfo(predict(before[:1]).dtype).eps))
    return float((high < low - room).any(1).sum())
