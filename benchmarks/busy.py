"""Run the default tests beside busy processes, several times: a test that needs a free core fails.

    python benchmarks/busy.py --processes 8 --times 3

Prints the last lines of each run and ends with 1 if any run failed. With `--fill-up` other work of
the machine counts as busy processes: so many more are kept running that there are always
`--processes` beside the tests (Linux).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WORKERS = 2
LOOK_EVERY_S = 0.2


def spin() -> None:
    """Use one core until terminated."""
    while True:
        pass


def count_running() -> int:
    """Processes of this machine that run or wait for a core."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("procs_running"))


def fill_up(load: Sequence[multiprocessing.Process], stop: threading.Event) -> list[int]:
    """Pause and continue the load until `stop`; returns how many processes ran at each look."""
    active, seen = len(load), []
    while not stop.wait(LOOK_EVERY_S):
        running = count_running() - 1  # without this process
        seen.append(running)
        wanted = min(len(load), max(0, len(load) + WORKERS - (running - active)))
        for number, process in enumerate(load):
            if process.pid is not None and (number < active) != (number < wanted):
                os.kill(process.pid, signal.SIGCONT if number < wanted else signal.SIGSTOP)
        active = wanted
    for process in load[active:]:
        if process.pid is not None:
            os.kill(process.pid, signal.SIGCONT)  # a stopped process would not end
    return seen


def run_tests(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-n", str(WORKERS), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=8, help="how many busy processes")
    parser.add_argument("--times", type=int, default=3, help="how often the tests are run")
    parser.add_argument("--fill-up", action="store_true", help="count other work of the machine")
    options, rest = parser.parse_known_args()
    load = [multiprocessing.Process(target=spin, daemon=True) for _ in range(options.processes)]
    for process in load:
        process.start()
    failed = 0
    try:
        for number in range(1, options.times + 1):
            started, stop = time.perf_counter(), threading.Event()
            with ThreadPoolExecutor(1) as pool:
                watch = pool.submit(fill_up, load, stop) if options.fill_up else None
                try:
                    finished = run_tests(rest)
                finally:
                    stop.set()
            seconds = time.perf_counter() - started
            seen = [] if watch is None else watch.result()
            lines = finished.stdout.rstrip().splitlines()
            shown = lines[-1:] if finished.returncode == 0 else lines[-60:]
            failed += finished.returncode != 0
            print(f"run {number}: exit code {finished.returncode}, {seconds:.0f} s", flush=True)
            if seen:
                print(f"processes at work, mean: {statistics.fmean(seen):.1f}", flush=True)
            print("\n".join(shown), flush=True)
    finally:
        for process in load:
            process.terminate()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
