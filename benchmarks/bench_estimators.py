"""How well the estimators generalise: cross-validated scores, with and without requirements.

Prints a table: accuracy (classes) or R2 (numbers) on folds that were not trained on, beside a
linear model and a network of scikit-learn, processor seconds per fit, and whether every requirement
held. The requirements are about a seventh of each training fold: probability of the given class at
least 0.7, or the value within half a standard deviation of the given one. "ours, region" has one
rule over the box of the training inputs instead, on data of numbers: the value at most its 0.8
quantile; its strength is told, too. `--quick` takes four data sets, `--data` names them, and
`--seeds N` takes as many splits into five folds from `--first-seed` on.
`--against SRC` measures the estimators of another checkout's `src` too, on the same folds in turn,
so that both meet the same machine, and prints the mean paired change with its standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
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
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.rules import Box, Linear, Probability

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
    strengths: list[str] = field(default_factory=list)


def data_sets() -> Iterator[DataSet]:
    noisy = make_classification(600, 20, n_informative=6, flip_y=0.15, random_state=1)
    for name, (inputs, targets), classification in (
        ("cancer", load_breast_cancer(return_X_y=True), True),
        ("wine", load_wine(return_X_y=True), True),
        ("iris", load_iris(return_X_y=True), True),
        ("digits", load_digits(return_X_y=True), True),
        ("noisy", noisy, True),
        ("diabetes", load_diabetes(return_X_y=True), False),
        ("friedman1", make_friedman1(500, noise=1.0, random_state=0), False),
        ("friedman2", make_friedman2(400, noise=80.0, random_state=0), False),
    ):
        yield DataSet(name, inputs, targets, classification)


def linear_model(classification: bool, seed: int) -> Any:
    model = LogisticRegression(max_iter=1000) if classification else RidgeCV()
    return make_pipeline(StandardScaler(), model)


def plain_network(classification: bool, seed: int) -> Any:
    if classification:
        return make_pipeline(StandardScaler(), MLPClassifier(max_iter=500, random_state=seed))
    inner = MLPRegressor(max_iter=1000, random_state=seed)
    scaled = TransformedTargetRegressor(inner, transformer=StandardScaler())
    return make_pipeline(StandardScaler(), scaled)


def ours(classification: bool, seed: int) -> Any:
    return (ConstrainedClassifier if classification else ConstrainedRegressor)(random_state=seed)


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


def region_rule(inputs: Any, targets: Any, classification: bool) -> list[Any]:
    box = Box(inputs.min(0), inputs.max(0))
    return [Linear(box, [1.0], float(np.quantile(targets, 0.8)), "<=")]


Rules = Callable[[Any, Any, bool], list[Any]]
REGION = "ours, region"
METHODS: dict[str, tuple[Callable[[bool, int], Any], Rules | None]] = {
    "linear": (linear_model, None),
    "MLP": (plain_network, None),
    "ours": (ours, None),
    "ours, ruled": (ours, requirements),
    REGION: (ours, region_rule),
}


def measure(data: DataSet, method: str, seed: int) -> Scores:
    """One split into five folds."""
    make, rules = METHODS[method]
    kind = StratifiedKFold if data.classification else KFold
    found = Scores()
    for a, b in kind(5, shuffle=True, random_state=seed).split(data.inputs, data.targets):
        inputs, targets = data.inputs[a], data.targets[a]
        extra = {}
        if rules is not None:
            extra["requirements"] = rules(inputs, targets, data.classification)
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(data.classification, seed).fit(inputs, targets, **extra)
            found.seconds.append(time.process_time() - started)
            found.score.append(float(model.score(data.inputs[b], data.targets[b])))
        if rules is not None:
            found.held.append(bool(model.result_.feasible))
            found.strengths += [audit.strength for audit in model.audit_]
    return found


def measured_elsewhere(source: str, data: DataSet, method: str, seed: int) -> Scores:
    """The same with the package of another checkout, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, __file__, "--one", data.name, method, str(seed)],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        check=True,
    )
    return Scores(**json.loads(ended.stdout))


def rows(names: Sequence[str], seeds: range, against: str | None) -> list[dict[str, Any]]:
    table = []
    for data in data_sets():
        if data.name not in names:
            continue
        row: dict[str, Any] = {"data": data.name, "rows": len(data.inputs)}
        for method, (make, _) in METHODS.items():
            if method == REGION and data.classification:
                continue
            now = [measure(data, method, seed) for seed in seeds]
            row |= _cells(method, now)
            if against and make is ours:
                before = [measured_elsewhere(against, data, method, n) for n in seeds]
                row |= _cells(f"{method}, before", before)
                row[f"{method}: change"] = _change(now, before)
        print(row, flush=True)
        table.append(row)
    return table


def _change(now: Sequence[Scores], before: Sequence[Scores]) -> str:
    """The mean difference on the same folds, and its standard error."""
    change = np.subtract([one.score for one in now], [one.score for one in before]).ravel()
    return f"{change.mean():+.4f} ({change.std(ddof=1) / np.sqrt(len(change)):.4f})"


def _cells(method: str, found: Sequence[Scores]) -> dict[str, str]:
    scores = np.concatenate([one.score for one in found])
    cells = {method: f"{scores.mean():.3f}"}
    if METHODS[method.removesuffix(", before")][0] is ours:
        cells[f"{method} (s)"] = f"{np.mean([one.seconds for one in found]):.2f}"
    held = [value for one in found for value in one.held]
    if held:
        cells[f"{method}: held"] = f"{sum(held)} of {len(held)}"
        kinds = {value for one in found for value in one.strengths}
        cells[f"{method}: strength"] = ", ".join(sorted(kinds))
    return cells


def main() -> None:
    torch.set_num_threads(1)
    arguments = argparse.ArgumentParser(description="cross-validated scores of the estimators")
    arguments.add_argument("--quick", action="store_true", help="four data sets only")
    arguments.add_argument("--seeds", type=int, default=1, help="splits into five folds")
    arguments.add_argument("--first-seed", type=int, default=0, help="of the first split")
    arguments.add_argument("--data", nargs="+", help="only the data sets of these names")
    arguments.add_argument("--against", help="src of another checkout, to be measured too")
    arguments.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        name, method, seed = given.one
        (data,) = (data for data in data_sets() if data.name == name)
        print(json.dumps(asdict(measure(data, method, int(seed)))))
        return
    from cg4ai.report.tables import format_markdown

    names = given.data or (QUICK if given.quick else [data.name for data in data_sets()])
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    print(format_markdown(rows(names, seeds, given.against)))


if __name__ == "__main__":
    main()
