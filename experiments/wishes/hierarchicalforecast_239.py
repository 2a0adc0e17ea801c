"""hierarchicalforecast #239: reconciliation above zero for sparse, large hierarchies.

Mended there since: MinTraceSparse(nonnegative=True) solves a quadratic program for each step. Here
the rules are in the model, so that forecasts need no step afterwards.
"""

from __future__ import annotations

import time

import numpy as np
from scipy import sparse

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from cg4ai.rules import Equality, Range
from experiments.wishes.common import ROUNDING, Outcome, Wish, main

WISH = Wish(
    library="hierarchicalforecast",
    package="hierarchicalforecast",
    number=239,
    link="https://github.com/Nixtla/hierarchicalforecast/issues/239",
    asked="MinTraceSparse(nonnegative=True): many series, reconciled and not below zero.",
    call="ConstrainedRegressor().fit(X, series, requirements=[Equality(...), Range(0, None)])",
    state="open; done since for forecasts (pull request #284 and those after it)",
)
GROUPS, EACH, FEATURES, STEPS = 10, 10, 5, 200


def run() -> Outcome:
    from hierarchicalforecast.methods import MinTraceSparse

    random = np.random.default_rng(0)
    parts = GROUPS * EACH
    sums = np.vstack([np.ones(parts), np.kron(np.eye(GROUPS), np.ones(EACH))])
    about = random.normal(size=(FEATURES, parts))

    def draw(rows: int) -> tuple[Array, Array]:
        x = random.uniform(0, 1, (rows, FEATURES))
        bottom = np.maximum(x @ about + random.normal(0, 0.5, (rows, parts)), 0.0)
        return x, np.column_stack([bottom @ sums.T, bottom])

    x, y = draw(500)
    new, actual = draw(STEPS)
    weights = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0]
    base = np.column_stack([new, np.ones(len(new))]) @ weights

    start = time.process_time()
    method = MinTraceSparse("ols", nonnegative=True)
    summing = sparse.csr_matrix(np.vstack([sums, np.eye(parts)]))
    there = method.fit_predict(S=summing, y_hat=base.T)["mean"].T
    solved = time.process_time() - start

    rules = (
        Equality(None, np.column_stack([np.eye(len(sums)), -sums]), 0.0, name="hierarchy"),
        Range(0.0, None, name="never negative"),
    )
    model = ConstrainedRegressor(random_state=0).fit(x, y, requirements=rules)
    start = time.process_time()
    here = model.predict(new)
    predicted = time.process_time() - start

    def broken(values: Array) -> int:
        limit = ROUNDING * np.abs(values).max()
        gaps = np.abs(values[:, : len(sums)] - values[:, len(sums) :] @ sums.T).max(axis=1)
        return int(((values.min(axis=1) < -limit) | (gaps > limit)).sum())

    def error(values: Array) -> str:
        return f"error {np.sqrt(np.square(values - actual).mean()):.3f}"

    return Outcome(
        there=f"{broken(there)} of {len(there)} rows are negative or do not add up, "
        f"{error(there)}, {solved:.2f} s to reconcile",
        fails=broken(there) > 0,
        here=f"{broken(here)}, {error(here)}, {predicted:.2f} s to predict",
        works=broken(here) == 0,
    )


if __name__ == "__main__":
    raise SystemExit(main(WISH, run))
