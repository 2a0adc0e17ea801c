"""Two ways to train routers on the overloads found while training, side by side.

    python benchmarks/bench_multipliers.py [--rounds 4] [--seeds 1] [abilene-10-3 ...]

`hinge`: a cold search every 200 steps, a fixed weight for every input found. `multipliers`: inputs
that follow the networks, a multiplier for each link
(`cg4ai.colgen.pricing.gradient.violations`). Both train as many steps on
the same problem; the table has the processor seconds that each took, the gap on
10,000 demand vectors and the worst overload that a thorough search finds, of the first group of
networks by itself and of the mixture after `--rounds` groups.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cg4ai.colgen.loop import solve
from cg4ai.colgen.separation import default_separator
from cg4ai.compile.problem import Problem
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Mixture, Part
from cg4ai.report.tables import format_markdown
from cg4ai.routing import instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.members import RoutingPricer
from cg4ai.routing.train.problem import first_request, routing_problem, routing_settings
from cg4ai.seeds import derive_seed

NAMES = ("abilene-10-3", "nobel-eu-10-3", "dfn-bwin-10-3", "di-yuan-5-3", "nobel-us-10-3")
WAYS: dict[str, Callable[[RoutingPricer], RoutingPricer]] = {
    "hinge": lambda pricer: replace(pricer, attack_every=200, refresh_every=0),
    "multipliers": lambda pricer: pricer,
}


def measured(made: Instance, problem: Problem, mixture: Mixture, seed: int) -> dict[str, float]:
    vectors = made.sample(10_000, derive_seed(seed, 0, "validation"))
    with torch.no_grad():
        splits = mixture.outputs(torch.as_tensor(vectors)).numpy()
    gaps = made.compute_utilisation(vectors, splits).max(axis=1) - made.find_optimal(vectors).mlu
    rule = problem.requirements[0]
    search = default_separator(rule, True).thorough()
    found = search.find(mixture, rule, seed=derive_seed(seed, 0, "bench"), limit=1, tolerance=0.0)
    return {"mean_gap": gaps.mean(), "largest_gap": gaps.max(), "overload": max(0.0, found.worst)}


def first_group(made: Instance, problem: Problem, seed: int) -> dict[str, Any]:
    """One group trained by objective and attacks alone."""
    started = time.process_time()
    request = first_request(problem, seed=seed, device="cpu", attacked=True)
    members = problem.pricers[0].price(request).members
    seconds = time.process_time() - started
    assert members is not None
    count = len(problem.layout)
    part = Part(members, np.arange(count), np.ones(count))
    group = Ensemble((part,), problem.layout, device="cpu")
    return {"processor_s": seconds, **measured(made, problem, group, seed)}


def mixture(made: Instance, problem: Problem, recipe: Recipe, rounds: int) -> dict[str, Any]:
    settings = replace(routing_settings(made, recipe), iteration_limit=rounds)
    started = time.process_time()
    result = solve(problem, settings)
    seconds = time.process_time() - started
    return {"processor_s": seconds, **measured(made, problem, result.ensemble, recipe.seed)}


def rows_of(name: str, seed: int, rounds: int) -> list[dict[str, Any]]:
    network, demands, paths = name.rsplit("-", 2)
    made, recipe = instance(network, int(demands), int(paths)), Recipe(seed=seed)
    problem = routing_problem(made, recipe)
    pricer = problem.pricers[0]
    assert isinstance(pricer, RoutingPricer)
    rows = []
    for way, changed_by in WAYS.items():
        changed = replace(problem, pricers=(changed_by(pricer),))
        label = {"configuration": name, "seed": seed, "way": way}
        rows.append(label | {"of": "first group"} | first_group(made, changed, seed))
        if rounds:
            of = f"mixture of {rounds} rounds"
            rows.append(label | {"of": of} | mixture(made, changed, recipe, rounds))
    for row in rows:
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in given.names:
        for seed in range(given.seeds):
            rows += rows_of(name, seed, given.rounds)
    print(format_markdown(rows))


if __name__ == "__main__":
    main()
