"""Kill runs of every application at random moments and resume them: is the result the same?

    python benchmarks/kills.py --kills 20

For each kind of run: once without a stop, then again and again with SIGKILL after a random time,
going on with `--resume --out DIR` alone, until so many kills have hit; each time the finished
ensemble (members, weights, layout) must equal the first one's bit for bit.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cg4ai
from cg4ai.ensemble.claims import compute_mixture_digest

ROUTE = ["route", "abilene", "--demands", "5", "--set", "first_steps=600"]
QUICK = ["--set", "later_steps=200", "--set", "validation=500"]
RUNS = {
    "tabular": ["train", "{folder}/data.csv", "--target", "y", "--rules", "{folder}/rules.json"],
    "routing": [*ROUTE, *QUICK],
    "digits": ["train", "hard", "--n", "100", "--set", "steps=300", "--set", "group=20"],
    "certified": [*ROUTE, *QUICK, "--guarantee", "certified"],
}


def data(folder: Path) -> None:
    """A table of two columns and a rule at one row of it."""
    made = random.Random(0)
    lines = ["a,b,y"]
    for _ in range(200):
        a, b = made.uniform(-1, 1), made.uniform(-1, 1)
        lines.append(f"{a},{b},{a * b + 0.1 * made.gauss(0, 1)}")
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "rules.json").write_text(
        '[{"rule": "linear", "name": "never high", "coefficients": {"y": 1}, "at_most": 0.5, '
        '"box": {"lower": {"a": -1, "b": -1}, "upper": {"a": 1, "b": 1}}}]'
    )


def started(module: str, arguments: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", module, *arguments, "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed(
    module: str, arguments: list[str], folder: Path, longest_s: float, chance: random.Random
) -> int:
    """Kill a run again and again until it ends by itself; how many kills hit it."""
    kills = 0
    process = started(module, [*arguments, "--out", str(folder), "--threads", "1"])
    while True:
        try:
            code = process.wait(timeout=chance.uniform(0.02, 0.6) * longest_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            there = (folder / "run.json").exists()
            again = [arguments[0], "--resume", "--out", str(folder)]
            first = [*arguments, "--out", str(folder), "--threads", "1"]
            process = started(module, again if there else first)
            continue
        if code not in (0, 3):
            raise SystemExit(f"{folder}: exit code {code} after {kills} kills")
        return kills


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    options = parser.parse_args()
    print("| run | kills | runs | identical |\n| --- | --- | --- | --- |", flush=True)
    for name in options.only:
        chance = random.Random(options.seed)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            data(folder)
            arguments = [part.format(folder=folder) for part in RUNS[name]]
            begun = time.perf_counter()
            module = "experiments.digits" if name == "digits" else "cg4ai"
            if killed(module, arguments, folder / "whole", 1e6, chance):
                raise SystemExit("the first run was killed")
            longest_s = time.perf_counter() - begun
            expected = compute_mixture_digest(cg4ai.load(folder / "whole"))
            kills = runs = same = 0
            while kills < options.kills:
                target = folder / f"run{runs}"
                kills += killed(module, arguments, target, longest_s, chance)
                runs += 1
                same += compute_mixture_digest(cg4ai.load(target)) == expected
            print(f"| {name} | {kills} | {runs} | {same} |", flush=True)
            if same < runs:
                raise SystemExit(f"{name}: {runs - same} of {runs} runs ended differently")


if __name__ == "__main__":
    main()
