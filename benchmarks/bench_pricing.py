"""What residual pricing and duals add to the fit of tables under rules, at equal steps.

    python benchmarks/bench_pricing.py --seeds 3

The rules are those of `bench_estimators`: a seventh of the training rows must get their class with
probability 0.7, or a value within half a standard deviation. Networks alone are members. Ways:

- residual, duals: the package's own. A column is trained on the loss of half mixture, half new
  member, the rows weighted by the duals;
- residual, equal rows: every row weighs the same;
- own loss, duals: a column is trained on its own loss (blend 1);
- own loss, equal rows: neither;
- one member: a single column, trained under the rules for as many steps as all pricings of the
  first way together.

Prints the score on fresh rows (accuracy or R2), by how much it differs from the first way on the
same splits (with its standard error), rows met, members and pricings.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from bench_estimators import QUICK, DataSet, data_sets, requirements
from sklearn.model_selection import train_test_split

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, solve
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.protocols import Pricer
from cg4ai.report.tables import format_markdown
from experiments.pricing_controls import ControlledPricer, use_duals, weigh_rows_equally

FIRST, ONE = "residual, duals", "one member"


@dataclass(frozen=True)
class Reached:
    score: float
    met: bool
    members: int
    pricings: int


def train_alone(pricer: Pricer) -> Pricer:
    """The same without residual pricing, wherever within wrappers the networks are trained."""
    if isinstance(pricer, GradientPricer):
        return replace(pricer, blend=1.0)
    return pricer.map_inner(train_alone)


WAYS: dict[str, Callable[[Pricer], Pricer]] = {
    FIRST: lambda one: ControlledPricer(one, use_duals),
    "residual, equal rows": lambda one: ControlledPricer(one, weigh_rows_equally),
    "own loss, duals": train_alone,
    "own loss, equal rows": lambda one: ControlledPricer(train_alone(one), weigh_rows_equally),
}


def fit(data: DataSet, seed: int, way: str, *, pricings: int = 0) -> Reached:
    """One split, one way; `pricings` says how many those of the first way were."""
    labels = data.targets if data.classification else None
    x, test_x, y, test_y = train_test_split(
        data.inputs, data.targets, test_size=0.3, random_state=seed, stratify=labels
    )
    kind = ConstrainedClassifier if data.classification else ConstrainedRegressor
    further: dict[str, Any] = {}
    if way == ONE:
        usual = kind().training_of_networks(len(x))
        further = {"restarts": 1, "steps": pricings * usual.steps, "weight_decay": 1.0}
    model = kind(members="network", random_state=seed, **further)
    problem = model.problem(x, y, requirements(x, y, data.classification))
    settings = model.run_settings()
    if way == ONE:
        problem, settings = (
            replace(problem, plain_first=False),
            replace(settings, iteration_limit=1),
        )
    else:
        problem = replace(problem, pricers=tuple(map(WAYS[way], problem.pricers)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = solve(problem, settings)
        model.adopt(result)
        score = float(model.score(test_x, test_y))
    trained = sum(record.trainings or 0 for record in result.history)
    return Reached(score, result.feasible, len(result.ensemble), trained)


def row(data: DataSet, seeds: Sequence[int]) -> list[dict[str, Any]]:
    found: dict[str, list[Reached]] = {way: [] for way in (*WAYS, ONE)}
    for seed in seeds:
        for way, reached in found.items():
            pricings = found[FIRST][-1].pricings if found[FIRST] else 0
            reached.append(fit(data, seed, way, pricings=pricings))
    first = np.array([one.score for one in found[FIRST]])
    table = []
    for way, reached in found.items():
        scores = np.array([one.score for one in reached])
        change, error = scores - first, np.std(scores - first, ddof=1) / np.sqrt(len(scores))
        table.append(
            {
                "data": data.name,
                "way": way,
                "score": f"{scores.mean():.4f}",
                "worst": f"{scores.min():.4f}",
                "change": "" if way == FIRST else f"{change.mean():+.4f} ({error:.4f})",
                "rows met": f"{sum(one.met for one in reached)} of {len(reached)}",
                "members": f"{np.mean([one.members for one in reached]):.1f}",
                "pricings": f"{np.mean([one.pricings for one in reached]):.1f}",
            }
        )
        print(table[-1], flush=True)
    return table


def main() -> None:
    torch.set_num_threads(1)
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seeds", type=int, default=3, help="splits")
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--data", nargs="+", default=list(QUICK))
    given = arguments.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    table = [line for data in data_sets() if data.name in given.data for line in row(data, seeds)]
    print(format_markdown(table))


if __name__ == "__main__":
    main()
