"""One training step of a router, against plainer ways, in turns.

    python benchmarks/bench_training.py [--threads 1] [--rounds 5]

"as is": rows joined to one batch of tensors, torch's fused Adam. "row batches": every batch of
rows evaluated by itself. "plain Adam": the same arithmetic tensor by tensor. The fastest round of
each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from cg4ai.pricing import guided, training
from cg4ai.pricing.gradient import GradientPricer
from cg4ai.pricing.row_tensors import ReadyRows
from cg4ai.pricing.training import Training, train
from cg4ai.protocols import Parameters
from cg4ai.report.tables import markdown
from cg4ai.routing import instance
from cg4ai.routing.problem import Recipe, first_request, routing_problem
from cg4ai.rows import RowSet
from cg4ai.seeds import generator

STEPS = 200
BATCHES = 6  # of remembered rows, as many as a step looks at


class _PlainAdam:
    """Stands in for the fused kernel."""

    def __init__(self, values: list[torch.Tensor], weight_decay: float) -> None:
        self.values = {str(i): value for i, value in enumerate(values)}
        self.first = {name: torch.zeros_like(value) for name, value in self.values.items()}
        self.second = {name: torch.zeros_like(value) for name, value in self.values.items()}
        self.weight_decay, self.step_number = weight_decay, 0

    def step(self, gradients: Sequence[torch.Tensor], rate: float) -> None:
        own = dict(zip(self.values, gradients, strict=True))
        rates = torch.full((1,), rate)
        training._adam(
            self.values, own, self.first, self.second, self.step_number, rates, self.weight_decay
        )
        self.step_number += 1


def router(name: str) -> tuple[guided.Trainer, Parameters]:
    """A trainer of one group of a router with the first rows and some remembered ones."""
    network, demands, paths = name.rsplit("-", 2)
    made = instance(network, int(demands), int(paths))
    problem = routing_problem(made, Recipe(priced=100))
    (first,) = problem.start_rows
    pricer = problem.pricers[0]
    stack = GradientPricer(
        pricer.architecture,  # type: ignore[attr-defined]
        restarts=1,
        training=Training(STEPS, schedule="onecycle"),
        batch_size=512,
        blend=1.0,
        finish=0.0,
        attack_every=10 * STEPS,
    )
    request = replace(
        first_request(problem, seed=0, device="cpu", attacked=True),
        rows=RowSet(problem.layout, [first]),
        guide=np.ones(len(first)),
    )
    trainer = guided.Trainer(stack, request, problem.layout, generator(0))
    rule = problem.requirements[0]
    for number in range(BATCHES):
        inputs = made.sample(64, number)
        trainer._remember(rule.rows_at(inputs, np.arange(64) % len(made.arcs), 0))
    return trainer, stack._initial(request, problem.layout, generator(1))


def apart(entries: Sequence[ReadyRows]) -> list[ReadyRows]:
    return list(entries)


def measure(name: str, rounds: int) -> dict[str, object]:
    trainer, parameters = router(name)
    schedule = Training(STEPS, schedule="onecycle")

    def run() -> None:
        train(parameters, trainer.guided_loss, schedule, models=1)

    usual = {"joined": guided.joined, "FusedAdam": training.FusedAdam}
    ways: dict[str, dict[str, object]] = {
        "as is": {},
        "row batches": {"joined": apart},
        "plain Adam": {"FusedAdam": _PlainAdam},
    }
    best = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for way, changes in ways.items():
            chosen = usual | changes
            guided.joined, training.FusedAdam = chosen["joined"], chosen["FusedAdam"]  # type: ignore
            best[way] = min(best[way], seconds(run))
    guided.joined, training.FusedAdam = usual["joined"], usual["FusedAdam"]  # type: ignore
    ms = {way: 1e3 * value / STEPS for way, value in best.items()}
    return {"configuration": name} | {f"{way}, ms": f"{value:.2f}" for way, value in ms.items()}


def seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["nobel-us-5-3", "dfn-bwin-15-3"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(markdown([measure(name, given.rounds) for name in given.names]))


if __name__ == "__main__":
    main()
