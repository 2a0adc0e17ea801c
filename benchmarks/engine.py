"""Speed of the engine, each figure against another way of doing it in the same run.

Writes benchmarks/results-engine.md. Run with `make bench`; `--cold-limit` is how long plain HiGHS
may try each large program.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import bench_master
import bench_members
import highspy
import torch

from cg4ai.report.tables import format_markdown


def main() -> None:
    load_before = os.getloadavg()[0]
    large = partial(bench_master.lazy_rows, cold_limit_s=bench_master.cold_limit())
    sections: list[tuple[str, Callable[[], list[dict[str, Any]]]]] = [
        ("Re-solving the master after a new column", bench_master.warm_start),
        ("A large dense master through lazily activated rows", large),
        ("Evaluating and fusing many members", bench_members.rows),
    ]
    text = [
        "# Engine benchmarks",
        "",
        f"Made by `make bench` on {platform.machine()} with {torch.get_num_threads()} threads, "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"HiGHS {highspy.Highs().version()}.",
    ]
    for title, measure in sections:
        print(f"{title} ...", flush=True)
        table = format_markdown(measure())
        print(table, flush=True)
        text += ["", f"## {title}", "", table]
    # Figures taken beside other work are not worth much: a reader should see whether there was.
    text += [
        "",
        f"Load average of the last minute: {load_before:.1f} before and {os.getloadavg()[0]:.1f} "
        f"after, with {os.cpu_count()} cores; the benchmarks alone bring it to about 1 or 2.",
    ]
    target = Path(__file__).parent / "results-engine.md"
    target.write_text("\n".join(text) + "\n")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
