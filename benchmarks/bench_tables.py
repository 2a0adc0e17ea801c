"""Tables: seconds, processor seconds and peak memory by effort, beside LightGBM and an MLP.

    OMP_NUM_THREADS=1 python -m benchmarks.bench_tables [--rows 1000 ...] [--efforts fast ...]

Each case is a table of 30 features, without rules and with two, one at 100 listed rows and one rate
over all rows. Every fit runs in a process of its own, so that peak memory is its own, after a small
fit of the same kind that loads what is loaded once. Predictions are of 20,000 new rows, the fastest
of three. LightGBM has OMP_NUM_THREADS threads, too (2: `OMP_NUM_THREADS=2`). `--region` has two
rules over the box of the rows in place of those: the probability at most 0.95 and at least 0.02.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from cg4ai import ConstrainedClassifier, FitWarning
from cg4ai.rules import Box, Linear, Probability, Rate

FEATURES, TESTED = 30, 20_000
DRAW = 7  # of the data: not one that the efforts were chosen on
EFFORTS = ("fast", "default", "best")
RULES = (", two rules", ", region")


def make_model(name: str) -> Any:
    if name == "LightGBM":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_jobs=int(os.environ.get("OMP_NUM_THREADS", "1")), verbose=-1)
    if name == "MLP":
        return MLPClassifier(early_stopping=True, random_state=0)
    return ConstrainedClassifier(effort=name.split(",")[0], random_state=0)


def rules_of(name: str, x: Any, y: Any) -> dict[str, Any]:
    if name.endswith(RULES[0]):
        listed = Probability(x[:100], y[:100], at_least=0.6)
        return {"requirements": [listed, Rate(x, x[:, 0] > 0, output=1, tolerance=0.02)]}
    if name.endswith(RULES[1]):
        box = Box(x.min(0), x.max(0))
        ends = [Linear(box, [0.0, 1.0], 0.95, "<="), Linear(box, [0.0, 1.0], 0.02, ">=")]
        return {"requirements": ends}
    return {}


def measured(name: str, rows: int) -> dict[str, float]:
    """Fit one model; its figures."""
    warnings.simplefilter("ignore", FitWarning)
    inputs, labels = make_classification(
        rows + TESTED,
        FEATURES,
        n_informative=15,
        n_clusters_per_class=4,
        flip_y=0.02,
        random_state=DRAW,
    )
    x, y, new = inputs[:rows], labels[:rows], inputs[rows:]
    make_model(name).fit(x[:300], y[:300], **rules_of(name, x[:300], y[:300]))
    made, options = make_model(name), rules_of(name, x, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = time.perf_counter(), time.process_time()
    made.fit(x, y, **options)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    predicted = []
    for _ in range(3):
        begun = time.process_time()
        chances = made.predict_proba(new)
        predicted.append(time.process_time() - begun)
    return {
        "seconds": seconds,
        "processor": worked,
        "predict": min(predicted),
        "before": before / 1024,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "accuracy": float(np.mean(made.classes_[chances.argmax(1)] == labels[rows:])),
        "loss": float(log_loss(labels[rows:], chances)),
        "members": float(len(made.ensemble_)) if hasattr(made, "ensemble_") else 1.0,
        "kept": float(all(audit.holds for audit in getattr(made, "audit_", ()))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=["fast", "default"])
    parser.add_argument("--region", action="store_true", help="rules over a box instead")
    parser.add_argument("--without", nargs="+", default=[], help="leave out LightGBM or MLP")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one[0], int(given.one[1]))))
        return
    ours = [effort + rules for rules in ("", RULES[given.region]) for effort in given.efforts]
    peers = [one for one in ("LightGBM", "MLP") if one not in given.without]
    print(
        "| rows | model | fit s | processor s | x LightGBM | predict ms | MiB before | MiB peak "
        "| accuracy | log loss | members | kept |"
    )
    print("| ---: | --- |" + " ---: |" * 9 + " --- |", flush=True)
    for rows in given.rows:
        usual = float("nan")
        for model in [*peers, *ours]:
            command = [sys.executable, "-m", "benchmarks.bench_tables", "--one", model, str(rows)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            usual = found["processor"] if model == "LightGBM" else usual
            kept = ("no", "yes")[int(found["kept"])] if "," in model else ""
            print(
                f"| {rows} | {model} | {found['seconds']:.1f} | {found['processor']:.2f} | "
                f"{found['processor'] / usual:.1f} | {1e3 * found['predict']:.0f} | "
                f"{found['before']:.0f} | {found['peak']:.0f} | {found['accuracy']:.4f} | "
                f"{found['loss']:.4f} | {found['members']:.0f} | {kept} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
