"""Configurations trained one after another, and by threads of one process side by side.

    python -m benchmarks.bench_side_by_side --device cuda --jobs 4

On a GPU every thread works in a stream of its own, so that what they launch overlaps. Training
alone is timed, without evaluation. Where several streams are at work sums are not the same to the
last bit, and training carries that on, so what is compared is how good the routers are: their mean
MLU.
"""

from __future__ import annotations

import argparse
import time

import joblib
import numpy as np
import torch

from cg4ai import solve
from cg4ai.parallel import fan_out, use_own_stream
from cg4ai.routing import instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import routing_settings, shielded_problem
from experiments.routing.reproduce import NAMES

VECTORS = 1000  # at which the mean MLU is compared


def trained(name: str, device: str) -> tuple[float, float]:
    """Seconds from the network's file to the final weights, and the mean MLU."""
    started = time.perf_counter()
    network, demands, paths = name.rsplit("-", 2)
    with use_own_stream(device):
        made = instance(network, int(demands), int(paths))
        recipe = Recipe(device=device)
        settings = routing_settings(made, recipe, joint=True)
        ensemble = solve(shielded_problem(made, recipe), settings).ensemble
        seconds = time.perf_counter() - started
        vectors = made.sample(VECTORS, seed=1)
        return seconds, float(
            made.compute_utilisation(vectors, ensemble.predict(vectors)).max(1).mean()
        )


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
        apart = np.array([b[1] - a[1] for a, b in zip(alone, together, strict=True)])
        total = sum(seconds for seconds, _ in together)
        print(
            f"{jobs} threads: {passed:.1f} s, {one / passed:.2f} times as fast, sum of each "
            f"{total:.1f} s; mean MLU higher by {apart.mean():.1e} on average, {apart.max():.1e} "
            "at most",
            flush=True,
        )


if __name__ == "__main__":
    main()
