"""Processor seconds and memory of a router by the number of demands: instance, problem, training.

    OMP_NUM_THREADS=1 python benchmarks/bench_network_size.py abilene germany50 brain
    OMP_NUM_THREADS=1 python benchmarks/bench_network_size.py Cogentco.graph:Cogentco.0000.demands

Every network is measured in a process of its own: all demands, shortest paths, default settings,
one network trained for `--steps` steps. Each line says what was spent, and the most memory that was
taken, up to the end of a part; the last one how far the network is from the optimum, with
`--solved` vectors solved. `--gains` has it answer loads by a number for each path, as networks too
large for a matrix do.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

import cg4ai
from cg4ai.routing import Recipe, instance, routing_settings, shielded_problem
from cg4ai.routing.train import effort

COLUMNS = "| network | demands | paths | links | part | processor s | peak MB |"


def measure(given: str, *, paths: int, steps: int, solved: int, seed: int, gains: bool) -> None:
    """One network, as NETWORK or NETWORK:DEMAND_FILE; prints lines of a table."""
    torch.set_num_threads(1)
    network, _, demand_file = given.partition(":")
    made = instance(network, "all", paths, demand_file=demand_file or None)
    sizes = f"{len(made.demand_max):,} | {len(made.path_demand):,} | {len(made.arcs)}"
    known = f"| {Path(network).stem} | {sizes}"

    if gains:
        effort.MOST_FEEDBACK = 0

    def show(part: str) -> None:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"{known} | {part} | {time.process_time():.1f} | {memory:,} |", flush=True)

    show("instance")
    recipe = Recipe(first_steps=steps, rounds=1, seed=seed)
    problem = shielded_problem(made, recipe)
    show("problem")
    result = cg4ai.solve(problem, routing_settings(made, recipe, joint=True))
    show(f"{steps} steps")
    if solved:
        vectors = made.sample(solved, seed=1)
        best = made.find_optimal(vectors).mlu
        splits = result.ensemble.predict(vectors)
        ratio = made.compute_utilisation(vectors, splits).max(axis=1) / best
        print(f"{known} | ratio to the optimum: mean {ratio.mean():.4f}, worst {ratio.max():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", help="NETWORK or NETWORK:DEMAND_FILE")
    parser.add_argument("--paths", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--solved", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gains", action="store_true")
    parser.add_argument("--here", action="store_true", help="in this process, without a header")
    asked = parser.parse_args()
    given = {name: getattr(asked, name) for name in ("paths", "steps", "solved", "seed")}
    if asked.here:
        for one in asked.networks:
            measure(one, gains=asked.gains, **given)
        return
    print(COLUMNS)
    options = [f"--{name}={value}" for name, value in given.items()] + ["--gains"] * asked.gains
    for one in asked.networks:
        subprocess.run([sys.executable, __file__, one, "--here", *options], check=False)


if __name__ == "__main__":
    main()
