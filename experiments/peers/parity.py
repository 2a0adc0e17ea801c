"""Rules on groups: decisions beside Fairlearn's reductions and thresholds, scores on fresh rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cg4ai import ConstrainedClassifier
from cg4ai.data import Array
from cg4ai.rules import DecisionRate, Rate
from experiments.peers.outcomes import MISSING, OURS, Clock, Outcome, installed
from experiments.peers.people import ROWS, SOURCES, People, drawn
from experiments.peers.studies import Asked

FEW = 5_000  # rows that parity of scores is trained on
SCORES = 0.02  # its tolerance
LEARNERS: Mapping[str, BaseEstimator] = {
    "logistic": LogisticRegression(max_iter=1000),
    "tree": DecisionTreeClassifier(max_depth=6, min_samples_leaf=20, random_state=0),
}
Decide = Callable[[People], Array]  # one decision for each


@dataclass(frozen=True)
class Asks:
    """A rule on decisions, as we and Fairlearn name it."""

    of: str
    fairlearn: str
    threshold: str
    tolerance: float

    def gap(self, decided: Array, people: People) -> float:
        """The largest difference of two groups' rates."""
        kept = [np.ones(len(decided), bool)]
        if self.of == "equalised odds":
            kept = [people.labels == 1, people.labels == 0]
        return max(_gap(decided[one], people.groups[one]) for one in kept)


PARITY = Asks("selection", "DemographicParity", "demographic_parity", 0.02)
ODDS = Asks("equalised odds", "EqualizedOdds", "equalized_odds", 0.05)


def parity(asked: Asked) -> list[Outcome]:
    """Parity of decisions and equalised odds on 20,000 rows; parity of scores on 5,000."""
    found: list[Outcome] = []
    for source in SOURCES:
        for rule in (PARITY, ODDS):
            for learner in LEARNERS:
                found += _decisions(asked, source, rule, learner)
        for method, margin in (
            (OURS, "auto"),
            (f"{OURS}, without a margin", 0.0),
            ("no rule", None),
        ):
            found += asked.run(method, partial(_scores, asked, source, margin, method))
    return found


def _decisions(asked: Asked, source: str, rule: Asks, learner: str) -> list[Outcome]:
    """All methods with one base learner."""
    methods: dict[str, Callable[[Asks, str, People], Decide]] = {
        OURS: _ours,
        f"{OURS}, with a margin": partial(_ours, margin="auto"),
        "ExponentiatedGradient": _reduction,
        "ExponentiatedGradient, half the bound": partial(_reduction, share=0.5),
        "GridSearch": _grid,
        "ThresholdOptimizer (needs the group)": _thresholds,
        "no rule": _plain,
    }
    found: list[Outcome] = []
    for method, fit in methods.items():
        found += asked.run(method, partial(_measured, asked, source, rule, learner, method, fit))
    return found


def _measured(
    asked: Asked,
    source: str,
    rule: Asks,
    learner: str,
    method: str,
    fit: Callable[[Asks, str, People], Decide],
    seed: int,
) -> Outcome:
    task = f"{source}, {rule.of} within {rule.tolerance:g}, {learner}"
    peer = not method.startswith((OURS, "no rule"))
    if peer and not installed("fairlearn"):
        return Outcome(task, method, seed, note=MISSING)
    train, test = drawn(source, seed, 2000 if asked.quick else ROWS)
    with warnings.catch_warnings(), Clock() as clock:
        warnings.simplefilter("ignore")
        decide = fit(rule, learner, train)
    known, fresh = decide(train), decide(test)
    missed = rule.gap(known, train) - rule.tolerance
    figures = {
        "accuracy": float((fresh == test.labels).mean()),
        "train_gap": rule.gap(known, train),
        "test_gap": rule.gap(fresh, test),
        "changed": float((decide(test) != fresh).mean()),
        "train_s": clock.seconds,
    }
    if method.startswith(OURS):
        figures["inequality"] = max(0.0, missed)
    return Outcome(task, method, seed, figures)


def _ours(rule: Asks, learner: str, people: People, margin: float | str = 0.0) -> Decide:
    asks = DecisionRate(
        people.inputs,
        people.groups,
        tolerance=rule.tolerance,
        of=rule.of,
        labels=people.labels,
        margin=margin,
    )
    model = ConstrainedClassifier(members=clone(LEARNERS[learner]), random_state=0)
    model.fit(people.inputs, people.labels, requirements=[asks])
    return lambda given: np.asarray(model.predict(given.inputs))


def _reduction(rule: Asks, learner: str, people: People, share: float = 1.0) -> Decide:
    """Its bound is on each group's distance from all, so that two may be twice as far apart."""
    from fairlearn import reductions

    bound = getattr(reductions, rule.fairlearn)(difference_bound=share * rule.tolerance)
    model = reductions.ExponentiatedGradient(clone(LEARNERS[learner]), bound)
    model.fit(people.inputs, people.labels, sensitive_features=people.groups)
    return lambda given: np.asarray(model.predict(given.inputs))


def _grid(rule: Asks, learner: str, people: People) -> Decide:
    from fairlearn import reductions

    model = reductions.GridSearch(
        clone(LEARNERS[learner]), getattr(reductions, rule.fairlearn)(), grid_size=21
    )
    model.fit(people.inputs, people.labels, sensitive_features=people.groups)
    return lambda given: np.asarray(model.predict(given.inputs))


def _thresholds(rule: Asks, learner: str, people: People) -> Decide:
    from fairlearn.postprocessing import ThresholdOptimizer

    model = ThresholdOptimizer(
        estimator=clone(LEARNERS[learner]),
        constraints=rule.threshold,
        predict_method="predict_proba",
    )
    model.fit(people.inputs, people.labels, sensitive_features=people.groups)
    return lambda given: np.asarray(model.predict(given.inputs, sensitive_features=given.groups))


def _plain(rule: Asks, learner: str, people: People) -> Decide:
    model: Any = clone(LEARNERS[learner]).fit(people.inputs, people.labels)
    return lambda given: np.asarray(model.predict(given.inputs))


def _scores(
    asked: Asked, source: str, margin: float | str | None, method: str, seed: int
) -> Outcome:
    """Networks as they come, with and without the margin that new rows ask for."""
    train, test = drawn(source, seed, 500 if asked.quick else FEW)
    rules = []
    if margin is not None:
        rules = [Rate(train.inputs, train.groups, tolerance=SCORES, margin=margin)]
    model = ConstrainedClassifier(random_state=0)
    with warnings.catch_warnings(), Clock() as clock:
        warnings.simplefilter("ignore")
        model.fit(train.inputs, train.labels, requirements=rules)
    gaps = [_gap(model.predict_proba(one.inputs)[:, 1], one.groups) for one in (train, test)]
    figures = {
        "accuracy": float(model.score(test.inputs, test.labels)),
        "train_gap": gaps[0],
        "test_gap": gaps[1],
        "train_s": clock.seconds,
    }
    if method.startswith(OURS):
        figures["inequality"] = max(0.0, gaps[0] - SCORES - 1e-6)
    return Outcome(f"{source}, mean scores within {SCORES:g}, 5,000 rows", method, seed, figures)


def _gap(values: Array, groups: Any) -> float:
    means = [values[groups == name].mean() for name in np.unique(groups)]
    return float(max(means) - min(means))
