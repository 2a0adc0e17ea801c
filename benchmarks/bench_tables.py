"""Large tables: seconds, processor seconds and peak memory of fits with and without two rules.

    python -m benchmarks.bench_tables [rows ...]

Every fit runs in a process of its own, so that peak memory is its own. The rules are one at 100
listed rows and one rate over all rows. Beside it stand two models of scikit-learn without rules.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings

from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neural_network import MLPClassifier

from cg4ai import ConstrainedClassifier, FitWarning
from cg4ai.rules import Probability, Rate

FEATURES, TESTED = 20, 20_000
DRAW = 7  # of the data: not the one that the recipe for large tables was chosen on
MODELS = ("cg4ai", "cg4ai, two rules", "HistGradientBoosting", "MLP")


def measured(model: str, rows: int) -> dict[str, float]:
    """Fit one model; its figures."""
    inputs, labels = make_classification(
        rows + TESTED, FEATURES, n_informative=10, n_clusters_per_class=4, random_state=DRAW
    )
    x, y = inputs[:rows], labels[:rows]
    made = {
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
        "MLP": MLPClassifier(early_stopping=True, random_state=0),
    }.get(model, ConstrainedClassifier(random_state=0))
    options = {}
    if "rules" in model:
        listed = Probability(x[:100], y[:100], at_least=0.6)
        rate = Rate(x, x[:, 0] > 0, output=1, tolerance=0.02)
        options = {"requirements": [listed, rate]}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, worked = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        made.fit(x, y, **options)
    kept = [audit.holds for audit in getattr(made, "audit_", ())]
    return {
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - worked,
        "before": before / 1024,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "accuracy": float(made.score(inputs[rows:], labels[rows:])),
        "kept": float(all(kept)),
    }


def main(sizes: list[int]) -> None:
    print("| rows | model | seconds | processor s | MiB before | MiB peak | accuracy | kept |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for rows in sizes:
        for model in MODELS:
            command = [sys.executable, "-m", "benchmarks.bench_tables", "--one", model, str(rows)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            kept = ("no", "yes")[int(found["kept"])] if "rules" in model else ""
            print(
                f"| {rows} | {model} | {found['seconds']:.0f} | {found['processor']:.0f} | "
                f"{found['before']:.0f} | {found['peak']:.0f} | {found['accuracy']:.4f} | {kept} |",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
    else:
        main([int(size) for size in sys.argv[1:]] or [50_000, 200_000])
