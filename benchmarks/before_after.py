"""The same runs by two source trees, side by side: do they still reach the same figures?

    git worktree add /somewhere/before COMMIT
    python benchmarks/before_after.py /somewhere/before . --out compared

Five routing configurations, two of digits and one certified router, the same seeds, each on one
core of its own with one thread. Prints a table with a row per run: figures of the first tree, then
of the second. Differences of a tenth of a gap are noise of other rounding; a lost guarantee is not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

ROUTING = {
    f"{name} {demands}/3": ["route", name, "--demands", str(demands), "--paths", "3"]
    for name, demands in (
        ("abilene", 5),
        ("polska", 5),
        ("dfn-bwin", 10),
        ("nobel-us", 10),
        ("di-yuan", 15),
    )
}
CERTIFIED = {
    "abilene 15/3, certified": ["route", "abilene", "--demands", "15", "--guarantee", "certified"]
}
DIGITS = {f"digits, n={n}": ["digits", "hard", "--n", str(n), "--seed", "42"] for n in (100, 1000)}
RUNS = {**ROUTING, **CERTIFIED, **DIGITS}
FIGURES = {
    "strength": "strength",
    "mean gap": "mean_mlu_gap",
    "largest gap": "max_mlu_gap",
    "worst utilisation": "worst_utilisation",
    "test accuracy": "test_accuracy",
    "rows satisfied": "rows_satisfied",
    "training s": "total_s",
    "evaluation s": "evaluation_s",
}


def run(tree: Path, name: str, folder: Path, core: int, limit_s: float) -> dict[str, Any]:
    """One command of one tree on one core; its summary, exit code and seconds."""
    flat = (tree / "src" / "cg4ai" / "cli.py").exists()  # as it was before cli became a package
    module = "cg4ai.cli" if flat else "cg4ai.cli.main"
    search = [str(tree / "src"), str(tree), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, search)),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", module, *RUNS[name], "--threads", "1", "--quiet"]
    started = time.perf_counter()
    try:
        ended = subprocess.run(
            [*command, "--out", str(folder), "--force"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit_s,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            check=False,
        )
        code, said = ended.returncode, ended.stderr
    except subprocess.TimeoutExpired:
        code, said = 124, f"not back after {limit_s:g} s"
    summary: dict[str, Any] = {}
    if (folder / "summary.json").exists():
        stored = json.loads((folder / "summary.json").read_text())
        summary = stored.get("content", stored)
    if code not in (0, 3):
        print(f"{tree} {name}: exit code {code}: {said.strip()[-300:]}", file=sys.stderr)
    return {**summary, "exit code": code, "command s": time.perf_counter() - started}


def shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def table(results: dict[tuple[int, str], dict[str, Any]], names: list[str]) -> str:
    """A row per run; in each cell the first tree's figure, then the second's."""
    columns = [*FIGURES, "exit code", "command s"]
    lines = [" | ".join(["run", *columns]), " | ".join(["---"] * (len(columns) + 1))]
    for name in names:
        cells = []
        for column in columns:
            pair = [shown(results[tree, name].get(FIGURES.get(column, column))) for tree in (0, 1)]
            cells.append(" / ".join(pair) if any(pair) else "")
        lines.append(" | ".join([name, *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--out", type=Path, default=Path("compared"))
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a command")
    options = parser.parse_args()
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0)):
        cores.put(core)

    def job(tree: int, name: str) -> tuple[tuple[int, str], dict[str, Any]]:
        core = cores.get()
        try:
            source = (options.before, options.after)[tree].resolve()
            folder = options.out / ("before", "after")[tree] / name.replace("/", "-")
            folder.parent.mkdir(parents=True, exist_ok=True)
            return (tree, name), run(source, name, folder.resolve(), core, options.limit)
        finally:
            cores.put(core)

    longest_first = sorted(options.only, key=lambda name: "15" not in name)
    with ThreadPoolExecutor(cores.qsize()) as pool:
        jobs = [pool.submit(job, tree, name) for name in longest_first for tree in (0, 1)]
    results = dict(done.result() for done in jobs)
    text = table(results, list(options.only))
    (options.out / "table.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
