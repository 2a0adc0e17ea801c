"""The README's table: prices that must rise with the area, beside LightGBM.

    OMP_NUM_THREADS=1 python benchmarks/bench_prices.py [--rows 2000] [--seeds 3]

Made-up houses (area, age, distance to the centre, rooms); the price must never fall with the area
or rise with the age and the distance. Each line gives means over seeds: R2 on 20,000 unseen houses,
the share of them whose predicted price breaks the rule when one feature is moved by one to fifty
per cent of its range, and the seconds of `fit`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from cg4ai import ConstrainedRegressor
from cg4ai.rules import Monotone

Array = npt.NDArray[np.float64]
LOW, HIGH = np.array([30.0, 0.0, 0.0, 1.0]), np.array([250.0, 100.0, 30.0, 8.0])
SIGNS = {0: +1, 1: -1, 2: -1}
UNSEEN = 20_000


def houses(rows: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Features, and prices in thousands, with noise of a fifth of the price."""
    X = np.round(random.uniform(LOW, HIGH, size=(rows, 4)), 1)
    area, age, distance, rooms = X.T
    price = 60 + 3.2 * area * np.exp(-distance / 15) + 8 * np.sqrt(rooms) - 0.5 * age
    return X, price * random.lognormal(0, 0.2, rows)


def broken(model: Any, X: Array, random: np.random.Generator) -> float:
    """The share of inputs at which some move of one feature goes the wrong way."""
    before, wrong = model.predict(X), np.zeros(len(X), dtype=bool)
    for feature, sign in SIGNS.items():
        moved = X.copy()
        moved[:, feature] += (HIGH - LOW)[feature] * random.uniform(0.01, 0.5, len(X))
        wrong |= sign * (model.predict(moved) - before) < -1e-9
    return float(wrong.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    constraints = [SIGNS.get(feature, 0) for feature in range(4)]

    def plain(X: Array, y: Array, seed: int) -> Any:
        return lightgbm.LGBMRegressor(random_state=seed, verbose=-1, n_jobs=1).fit(X, y)

    def bound(X: Array, y: Array, seed: int) -> Any:
        return lightgbm.LGBMRegressor(
            random_state=seed, verbose=-1, n_jobs=1, monotone_constraints=constraints
        ).fit(X, y)

    def ours(X: Array, y: Array, seed: int) -> Any:
        rule = Monotone(SIGNS, name="sane prices")
        return ConstrainedRegressor(random_state=seed).fit(X, y, requirements=[rule])

    ways: dict[str, Callable[[Array, Array, int], Any]] = {
        "LightGBM": plain,
        "LightGBM, monotone_constraints": bound,
        "cg4ai, Monotone": ours,
    }
    print("| model | R2, unseen houses | rule broken at | seconds |\n| --- | ---: | ---: | ---: |")
    for name, fit in ways.items():
        found = []
        for seed in range(given.seeds):
            random = np.random.default_rng(seed)
            X, y = houses(given.rows, random)
            unseen, prices = houses(UNSEEN, random)
            begun = time.perf_counter()
            model = fit(X, y, seed)
            seconds = time.perf_counter() - begun
            found.append((model.score(unseen, prices), broken(model, unseen, random), seconds))
        score, share, seconds = np.mean(found, axis=0)
        print(f"| {name} | {score:.3f} | {share:.1%} | {seconds:.2f} |")


if __name__ == "__main__":
    main()
