"""What `n_jobs` is worth: wall seconds of the same fits with one job and with two.

    python -m benchmarks.bench_jobs

Set OMP_NUM_THREADS=1, so that boosting itself takes one core, and have two cores free. Every fit
runs once before it is timed: starting the processes of joblib takes a second or two, once.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import make_classification, make_friedman1

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, FitWarning, Probability

ROWS = 20_000


def fits() -> dict[str, Any]:
    """Functions of the number of jobs, each of which gives predictions."""
    x, y = make_classification(ROWS, 20, n_informative=10, random_state=0)
    inputs, targets = make_friedman1(ROWS, 10, noise=1.0, random_state=0)
    listed = Probability(x[:50], y[:50], at_least=0.6)
    usual: dict[str, Any] = {"iteration_limit": 4, "random_state": 0}

    def classifier(members: str, jobs: int) -> Any:
        model = ConstrainedClassifier(members=members, n_jobs=jobs, **usual)
        return model.fit(x, y, requirements=[listed]).predict_proba(x)

    def quantiles(jobs: int) -> Any:
        levels = (0.1, 0.3, 0.5, 0.7, 0.9)
        options: dict[str, Any] = {"members": "boosting", "loss": "pinball", "quantiles": levels}
        return (
            ConstrainedRegressor(n_jobs=jobs, **options, **usual)
            .fit(inputs, targets)
            .predict(inputs)
        )

    return {
        "boosting under a rule": lambda jobs: classifier("boosting", jobs),
        "forest under a rule": lambda jobs: classifier("forest", jobs),
        "networks under a rule": lambda jobs: classifier("network", jobs),
        "five quantiles by boosting": quantiles,
    }


def seconds(fit: Any, jobs: int) -> tuple[float, Any]:
    began = time.perf_counter()
    predicted = fit(jobs)
    return time.perf_counter() - began, predicted


def main() -> None:
    warnings.simplefilter("ignore", FitWarning)
    print("| fit | 1 job, s | 2 jobs, s | same predictions |")
    print("| --- | ---: | ---: | --- |", flush=True)
    for name, fit in fits().items():
        seconds(fit, 2)
        (one, first), (two, second) = seconds(fit, 1), seconds(fit, 2)
        same = "yes" if np.array_equal(first, second) else "no"
        print(f"| {name} | {one:.1f} | {two:.1f} | {same} |", flush=True)


if __name__ == "__main__":
    main()
