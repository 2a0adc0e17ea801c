"""Hard rows for very many images: lazily added, with time, memory and the share satisfied.

    python -m benchmarks.bench_digits_rows --data mnist --images 10000 20000 50000 --hidden 4 16 64

Every image is in a pool, and the master holds only those rows that some mixture violated. In the
form "pairwise" they are the rule itself, one row for each other class; "member" is the paper's, one
for each image: the mean of the members' own leads. Of more rows than `--row-limit` each training
step draws as many by their duals. Satisfied are the images at which the mixture keeps the rule,
recomputed. For each number of images members grow (`--hidden`) until all are satisfied; the first
number that no size satisfies ends the benchmark. The test images are never trained on.
"""

from __future__ import annotations

import argparse
import platform
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import cg4ai
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.layout import Layout
from cg4ai.report.tables import format_markdown
from experiments.digits.data import CLASSES, Split, digits
from experiments.digits.evaluate import accuracy
from experiments.digits.members import DigitPricer, SmoothNetwork
from experiments.digits.problem import DigitLoss
from experiments.digits.settings import BY_RULE

THRESHOLD = BY_RULE["margin"]["threshold"]
OBJECTIVE = 2000  # images over which the master takes the mean loss; members train on all


def problem(split: Split, given: argparse.Namespace, hidden: int) -> cg4ai.Problem:
    images, labels = split.train_images, split.train_labels
    some = np.random.default_rng(given.seed).permutation(len(labels))[:OBJECTIVE]
    pool = (images.astype(np.float32), labels)
    training = GradientPricer(
        SmoothNetwork("margin", hidden),
        restarts=1,
        group=given.group,
        training=Training(given.steps, 1e-2, "onecycle"),
        batch_size=given.batch_size,
        individual=0.3 if given.form == "member" else 0.0,
        headroom=1.0,
        finish=0.0,
        output_limit=1000.0,
        row_weight=6.0,
        row_limit=given.row_limit,
        blend=1.0,  # with less, every step would evaluate the whole mixture
    )
    return cg4ai.Problem(
        objective=DigitLoss(images[some], labels[some], "cross_entropy", "mixture", soft=pool),
        requirements=(
            cg4ai.rules.Margin(cg4ai.rules.Pool(images), labels, THRESHOLD, form=given.form),
        ),
        pricers=(DigitPricer(training, enough=1.0),),
        layout=Layout.single(CLASSES),
    )


def measure(split: Split, given: argparse.Namespace, hidden: int) -> dict[str, Any]:
    settings = cg4ai.Settings(
        column_limit=given.columns,
        iteration_limit=max(1, given.columns // given.group) + 2,
        patience=1,
        cut_rounds=5,
        cuts_per_round=1000,
        final_weights="uniform",
        seed=given.seed,
        device=given.device,
        time_limit_s=given.time_limit,
    )
    started = time.perf_counter()
    result = cg4ai.solve(problem(split, given, hidden), settings, progress=_show)
    every = cg4ai.rules.Margin(split.train_images, split.train_labels, THRESHOLD)
    audited = result.ensemble.audit(every)  # one row for each image, whatever form was trained
    return {
        "images": len(split.train),
        "hidden": hidden,
        "columns": result.columns,
        "rows in the LP": result.rows,
        "satisfied": audited.satisfied,
        "share": audited.satisfied / audited.rows,
        "worst violation": audited.worst_violation,
        "test accuracy": accuracy(result.ensemble.predict(split.test_images), split.test_labels),
        "stopped": result.stop_reason.value,
        "seconds": time.perf_counter() - started,
        "peak memory GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def _show(record: Any) -> None:
    print(
        f"  iteration {record.iteration}: {record.columns} columns, {record.rows} rows, "
        f"slack {record.slack:.3g}, {record.total_s:.0f} s (master {record.master_s:.0f}, "
        f"pricing {record.pricing_s:.0f}, separation {record.separation_s:.0f}) {record.note}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of MNIST IDX files")
    parser.add_argument("--images", type=int, nargs="+", default=[10_000, 20_000, 30_000, 50_000])
    parser.add_argument("--hidden", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--group", type=int, default=100)
    parser.add_argument("--columns", type=int, default=400)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--form", choices=("member", "pairwise"), default="pairwise")
    parser.add_argument("--row-limit", type=int, default=512, help="rows in one training step")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds for each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=42)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = digits(given.data)
    rows: list[dict[str, Any]] = []
    for count in given.images:
        split = data.split(count, given.seed)
        for hidden in given.hidden:
            print(f"{count} images, {hidden} hidden neurons ...", flush=True)
            rows.append(measure(split, given, hidden))
            print(rows[-1], flush=True)
            if rows[-1]["satisfied"] == count:
                break
        if rows[-1]["satisfied"] < count:
            print(f"stops here: not all rows of {count} images could be satisfied")
            break
    print(f"\n{platform.machine()}, {given.threads} threads, device {given.device}")
    print(format_markdown(rows))


if __name__ == "__main__":
    main()
