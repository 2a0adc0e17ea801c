"""Run the default tests beside busy processes, several times: a test that needs a free core fails.

    python benchmarks/busy.py --processes 8 --times 3

Prints the last lines of each run and ends with 1 if any run failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Sequence


def spin() -> None:
    """Use one core until terminated."""
    while True:
        pass


def run_tests(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-n", "2", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=8, help="how many busy processes")
    parser.add_argument("--times", type=int, default=3, help="how often the tests are run")
    options, rest = parser.parse_known_args()
    load = [multiprocessing.Process(target=spin, daemon=True) for _ in range(options.processes)]
    for process in load:
        process.start()
    failed = 0
    try:
        for number in range(1, options.times + 1):
            started = time.perf_counter()
            finished = run_tests(rest)
            seconds = time.perf_counter() - started
            lines = finished.stdout.rstrip().splitlines()
            shown = lines[-1:] if finished.returncode == 0 else lines[-60:]
            failed += finished.returncode != 0
            print(f"run {number}: exit code {finished.returncode}, {seconds:.0f} s", flush=True)
            print("\n".join(shown), flush=True)
    finally:
        for process in load:
            process.terminate()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
