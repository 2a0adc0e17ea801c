"""Configurations trained one after another, and by threads of one process side by side.

    python -m benchmarks.bench_side_by_side --device cuda --jobs 4

On a GPU every thread works in a stream of its own, so that what they launch overlaps. Training
alone is timed, without evaluation; both ways must give the same mixtures.
"""

from __future__ import annotations

import argparse
import time

import joblib
import numpy as np
import torch

from cg4ai import solve
from cg4ai.apps.routing import instance
from cg4ai.apps.routing.problem import routing_settings, shielded_problem
from cg4ai.apps.routing.settings import Recipe
from cg4ai.fanout import fan_out, own_stream
from cg4ai.records import Array
from experiments.routing.reproduce import NAMES


def trained(name: str, device: str) -> tuple[float, Array]:
    """Seconds from the network's file to the final weights, and the answers at some vectors."""
    started = time.perf_counter()
    network, demands, paths = name.rsplit("-", 2)
    with own_stream(device):
        made = instance(network, int(demands), int(paths))
        recipe = Recipe(device=device)
        settings = routing_settings(made, recipe, joint=True)
        ensemble = solve(shielded_problem(made, recipe), settings).ensemble
        seconds = time.perf_counter() - started
        return seconds, ensemble.predict(made.sample(100, seed=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--configurations", nargs="+", default=list(NAMES), metavar="NETWORK-D-P")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--jobs", type=int, nargs="+", default=[2], help="threads, one or more")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names, device = options.configurations, options.device
    trained(names[0], device)  # what a process pays once
    started = time.perf_counter()
    alone = [trained(name, device) for name in names]
    one = time.perf_counter() - started
    total = sum(seconds for seconds, _ in alone)
    print(f"one after another: {one:.1f} s, sum of each {total:.1f} s", flush=True)
    for jobs in options.jobs:
        started = time.perf_counter()
        with joblib.parallel_config("threading"):
            together = fan_out(lambda name: trained(name, device), names, n_jobs=jobs)
        passed = time.perf_counter() - started
        pairs = zip(alone, together, strict=True)
        apart = max(float(np.abs(a[1] - b[1]).max()) for a, b in pairs)
        total = sum(seconds for seconds, _ in together)
        print(
            f"{jobs} threads: {passed:.1f} s, {one / passed:.2f} times as fast, sum of each "
            f"{total:.1f} s; answers differ by {apart:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
