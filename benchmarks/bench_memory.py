"""Peak memory of a fit on a memory-mapped file, read in batches, beside the same fit in memory.

`python benchmarks/bench_memory.py` writes a file of 2,000,000 rows and 20 features (335 MB) to a
temporary folder and fits it twice, each in a process of its own. Counted is anonymous memory
(RssAnon of /proc, sampled every 5 ms): pages of a mapped file are given back when memory is short.
What the imports take alone is measured first, and subtracted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 20
WRITTEN = 100_000  # rows at a time


class Peak:
    """The largest anonymous memory of this process while entered, in MB."""

    megabytes = 0.0

    def __enter__(self) -> Peak:
        self._going = True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._going = False
        self._thread.join()

    def _watch(self) -> None:
        while self._going:
            self.megabytes = max(self.megabytes, anonymous())
            time.sleep(0.005)


def anonymous() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (one for one in lines if one.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def write(folder: Path, rows: int) -> None:
    """X.npy and y.npy, written a part at a time."""
    open_file = np.lib.format.open_memmap
    inputs = open_file(folder / "X.npy", "w+", np.float64, (rows, FEATURES))
    targets = open_file(folder / "y.npy", "w+", np.float64, (rows,))
    generator = np.random.default_rng(0)
    for start in range(0, rows, WRITTEN):
        part = generator.normal(size=(min(WRITTEN, rows - start), FEATURES))
        inputs[start : start + len(part)] = part
        noise = 0.1 * generator.normal(size=len(part))
        targets[start : start + len(part)] = np.sin(part[:, 0]) + part[:, 1] * part[:, 2] + noise


def fit(folder: Path, mode: str, steps: int) -> dict[str, Any]:
    """One fit in this process: peak, seconds and the held-out score."""
    from cg4ai import ConstrainedRegressor
    from cg4ai.data import Batches
    from cg4ai.rules import Linear

    model = ConstrainedRegressor(members="network", steps=steps, iteration_limit=3, random_state=0)
    few = np.array(np.load(folder / "X.npy", mmap_mode="r")[:200])
    rule = Linear(few, [1.0], 1.5, "<=", name="cap")
    model.problem(few, few[:, 0], [rule])  # imports all that a fit needs
    before, started = anonymous(), time.perf_counter()
    with Peak() as peak:
        if mode == "batches":
            files = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))
            model.fit(Batches(*files), requirements=[rule])
        else:
            inputs, targets = (np.load(folder / f"{name}.npy") for name in ("X", "y"))
            model.fit(inputs, targets, requirements=[rule])
    return {
        "mode": mode,
        "peak_mb": round(peak.megabytes - before),
        "seconds": round(time.perf_counter() - started, 1),
        "held_out_r2": round(model.score_.model, 4),
        "rule_holds": model.audit_[0].holds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--steps", type=int, default=1000, help="of each training")
    parser.add_argument("--fit", nargs=2, metavar=("FOLDER", "MODE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit is not None:
        print(json.dumps(fit(Path(given.fit[0]), given.fit[1], given.steps)))
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), given.rows)
        size = (Path(name) / "X.npy").stat().st_size / 2**20
        print(f"{given.rows} rows x {FEATURES} features, {size:.0f} MB in a file")
        for mode in ("batches", "memory"):
            command = [sys.executable, "-W", "ignore", __file__, "--steps", str(given.steps)]
            done = subprocess.run(
                [*command, "--fit", name, mode], capture_output=True, text=True, check=True
            )
            print(done.stdout.strip())


if __name__ == "__main__":
    main()
