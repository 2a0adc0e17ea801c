"""How fast boosted trees predict as arrays, against the library that fitted them.

Run `OMP_NUM_THREADS=1 python benchmarks/bench_boosting.py [--rows 20000]`. Processor time, the
fastest of several alternating rounds; the outputs are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)

from cg4ai.members.conversion import from_sklearn

ROUNDS = 9
FEATURES, FITTED = 20, 5_000


def seconds(functions: list[Callable[[], object]]) -> list[float]:
    """The fastest of several rounds for each; rounds alternate so that noise hits all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for position, function in enumerate(functions):
            start = time.process_time()
            function()
            best[position] = min(best[position], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    rows = parser.parse_args().rows
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    inputs = random.normal(size=(max(rows, FITTED), FEATURES))
    signal = inputs[:, 0] + np.sin(3 * inputs[:, 1]) * inputs[:, 2]
    noisy = signal + 0.3 * random.normal(size=len(inputs))
    holed = np.where(random.random(inputs.shape) < 0.1, np.nan, inputs)
    classes = np.digitize(noisy, [-1.0, 1.0])
    cases = {
        "boosting, 100 trees": (HistGradientBoostingRegressor(), inputs, noisy),
        "boosting, missing values": (HistGradientBoostingRegressor(), holed, noisy),
        "boosting, three classes": (HistGradientBoostingClassifier(max_iter=50), inputs, classes),
        "forest, 50 deep trees": (RandomForestRegressor(50), inputs, noisy),
    }
    print(f"{'milliseconds for ' + str(rows) + ' rows':32s} library     ours    ratio  difference")
    for name, (model, given, targets) in cases.items():
        model.fit(given[:FITTED], targets[:FITTED])
        members, asked = from_sklearn(model), given[:rows]
        tensor = torch.as_tensor(asked)
        theirs = getattr(model, "predict_proba", model.predict)
        expected = theirs(asked).reshape(len(asked), -1)
        difference = np.abs(members.outputs(tensor)[0].numpy() - expected).max()
        library, ours = seconds([partial(theirs, asked), partial(members.outputs, tensor)])
        ratio = ours / library
        print(f"{name:32s} {1e3 * library:7.1f} {1e3 * ours:8.1f} {ratio:8.2f}  {difference:10.1e}")


if __name__ == "__main__":
    main()
