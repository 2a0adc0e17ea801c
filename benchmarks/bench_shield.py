"""What the shield of a router does and costs, over run folders or named configurations.

    python -m benchmarks.bench_shield runs/*                       # routers that cg4ai route saved
    python -m benchmarks.bench_shield --steps 300 abilene-5-3 ...  # routers trained without rows

Routers trained without rows overload links, so they show the shield at work. Each line: on how
many of 10,000 validation vectors it acts and how far it moves them, the mean MLU gap with and
without, the highest utilisation over `--inputs` adversarial and random vectors with and without,
and what it adds to the time of predicting 1,000 vectors.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cg4ai import load
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.mixture import Part
from cg4ai.report.tables import format_markdown
from cg4ai.routing.evaluate import PlainTrainer
from cg4ai.routing.network.instance import Instance, instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import first_request, routing_problem
from cg4ai.routing.train.shield import ShieldReport, measure_shield, shield
from cg4ai.runs import files
from experiments.routing.reproduce import chosen

VALIDATION = 10_000  # demand vectors on which gaps are measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("routers", nargs="+", help="run folders, or names such as abilene-5-3")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=300, help="of training without rows")
    parser.add_argument("--load", type=float, default=0.99, help="of named configurations")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = []
    for router in given.routers:
        made, ensemble = (
            saved(Path(router))
            if (Path(router) / "run.json").exists()
            else without_rows(router, steps=given.steps, load=given.load, seed=given.seed)
        )
        shielded = shield(made, ensemble)
        vectors = made.sample(VALIDATION, given.seed)
        best = made.find_optimal(vectors).mlu
        report = measure_shield(
            made, shielded, vectors=vectors, best=best, inputs=given.inputs, seed=given.seed
        )
        rows.append({"router": Path(router).name, **line(report)})
        print(rows[-1], flush=True)
    print(format_markdown(rows))


def line(report: ShieldReport) -> dict[str, Any]:
    return {
        "acts on": report.acting,
        "mean theta": report.mean_theta,
        "largest": report.largest_theta,
        "gap": report.mean_gap,
        "unshielded": report.mean_gap_unshielded,
        "inputs": report.inputs,
        "acts on those": report.adversarial_acting,
        "above capacity by": report.worst - 1.0,
        "unshielded by": report.worst_unshielded - 1.0,
    }


def saved(folder: Path) -> tuple[Instance, Ensemble]:
    """The router of a run folder with the instance it was trained for."""
    asked = files.read_json(folder / "run.json")["settings"]
    made = instance(asked["network"], asked["demands"], asked["paths"], load=asked["load"])
    ensemble = load(folder)
    if not np.array_equal(ensemble.about.get("demand_max", made.demand_max), made.demand_max):
        raise SystemExit(f"{folder} was trained for other demands than {made.name} has now")
    return made, ensemble


def without_rows(name: str, *, steps: int, load: float, seed: int) -> tuple[Instance, Ensemble]:
    """One network per demand, trained on the mean MLU alone."""
    ((network, demands, paths),) = (entry.rsplit("-", 2) for entry in chosen([name]))
    made = instance(network, int(demands), int(paths), load=load)
    problem = routing_problem(made, Recipe(first_steps=steps, seed=seed))
    pricer = problem.pricers[0]
    if not isinstance(pricer, PlainTrainer):
        raise SystemExit(f"{type(pricer).__name__} cannot train without rows")
    count = len(problem.layout)
    proposed = pricer.make_plain_pricer(1).price(
        first_request(problem, seed=seed, device="cpu", attacked=False)
    )
    if proposed.members is None:
        raise SystemExit(f"training on {name} proposed no members")
    part = Part(proposed.members, proposed.blocks, np.ones(count))
    return made, Ensemble((part,), problem.layout)


if __name__ == "__main__":
    main()
