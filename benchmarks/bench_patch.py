"""Ten wrong images patched into a finished digits run: processor time and what it changes.

    python -m benchmarks.bench_patch 100 1000

Trains a run of each size (scenario hard, seed 0, one thread), draws ten of the images that it
answers wrongly among those used neither for training nor for testing, patches them in, and prints
the processor time of both and the accuracy on the test images before and after.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cg4ai.apps.patches import patch_run
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.report.tables import format_plain
from experiments.digits import DigitsSettings, train
from experiments.digits.data import builtin

WRONG = 10


def study(n: int) -> dict[str, str]:
    images = builtin()
    split = images.split(n, 0)

    def accuracy(ensemble: Ensemble) -> str:
        answers = ensemble.predict(split.test_images).argmax(1)
        return f"{100 * float((answers == split.test_labels).mean()):.2f} %"

    with tempfile.TemporaryDirectory() as home:
        folder, added = Path(home) / "run", Path(home) / "wrong.json"
        started = time.process_time()
        before = train(DigitsSettings(n=n, threads=1), out=folder).result.ensemble
        trained_s = time.process_time() - started
        answers = before.predict(images.images[split.others]).argmax(1)
        wrong = split.others[answers != images.labels[split.others]]
        chosen = np.random.default_rng(0).choice(wrong, WRONG, replace=False)
        added.write_text(json.dumps({"images": chosen.tolist()}))
        started = time.process_time()
        made = patch_run(folder, [added], out=Path(home) / "patched")
        patched_s = time.process_time() - started
    return {
        "n": str(n),
        "training": f"{trained_s:.1f} s",
        "patch": f"{patched_s:.1f} s",
        "members trained": str(made.trained),
        "rows kept": ", ".join(f"{one.satisfied} of {one.rows}" for one in made.result.audits),
        "accuracy before": accuracy(before),
        "after": accuracy(made.result.ensemble),
        "training images": str(made.changes[0][1]),
    }


if __name__ == "__main__":
    print(format_plain([study(int(n)) for n in sys.argv[1:] or ("100", "1000")]))
