"""Exported models beside `predict`, in one process: equal numbers, and seconds of both.

    python -m benchmarks.bench_export RUN [RUN ...]

For each run the ONNX model (float64, and float32 with its difference) is compared with `predict` at
10,000 inputs, then both are timed in turns at batches of 1 and 1,000 inputs, one thread each; of
many rounds the fastest counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

# each makes its runs known
import cg4ai.routing  # noqa: F401
import experiments.digits  # noqa: F401
from cg4ai.apps.folders import load_trained
from cg4ai.ensemble.export import build_onnx_model, compute_difference

COMPARED, ROUNDS = 10_000, {1: 300, 1000: 20}


def fastest(works: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of each, in turns."""
    best = [np.inf] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            began = time.perf_counter()
            work()
            best[number] = min(best[number], time.perf_counter() - began)
    return best


def session_of(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def measured(run: Path) -> dict[str, Any]:
    ensemble, described = load_trained(run)
    inputs = described.signature.sample(COMPARED)
    began = time.perf_counter()
    model = build_onnx_model(ensemble)
    exporting = time.perf_counter() - began
    single = build_onnx_model(ensemble, precision="float32")
    row: dict[str, Any] = {
        "run": run.name,
        "float64 away": f"{compute_difference(ensemble, model, inputs):.1e}",
        "float32 away": f"{compute_difference(ensemble, single, inputs):.1e}",
        "kB": f"{len(model) / 1000:.0f}",
        "exporting s": f"{exporting:.1f}",
    }
    session = session_of(model)
    name = session.get_inputs()[0].name
    for count, rounds in ROUNDS.items():
        batch = inputs[:count]
        ours, theirs = fastest(
            [
                partial(ensemble.predict, batch, outside="ignore"),
                partial(session.run, None, {name: batch}),
            ],
            rounds,
        )
        row[f"predict {count}, ms"] = f"{1e3 * ours:.3f}"
        row[f"onnxruntime {count}, ms"] = f"{1e3 * theirs:.3f}"
    return row


def main() -> None:
    torch.set_num_threads(1)
    rows = [measured(Path(one)) for one in sys.argv[1:]]
    print(f"| {' | '.join(rows[0])} |\n| {' | '.join('---' for _ in rows[0])} |")
    for row in rows:
        print(f"| {' | '.join(str(value) for value in row.values())} |")


if __name__ == "__main__":
    main()
