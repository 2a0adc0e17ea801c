"""Networks of single demands without a proof: what units, groups and residual columns are worth.

    python -m benchmarks.bench_groups --configurations di-yuan-5-3 di-yuan-15-3 --seeds 1

Each line trains networks by the mean MLU of fresh demand vectors alone and gives the mean gap on
4,000 others, with the processor seconds. `joint` groups are trained on the loss of their mean;
`residual` columns on that of (1 - tau) x the mixture so far + tau x the new column, where tau is 1
over the number of columns. With --bends it says instead how far link loads bend away from linear
functions in boxes of demands, for these networks and for the default ones with feedback: what a
linear relaxation must lose there.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen import Layout, Training, generator
from cg4ai.colgen.pricing.gradient.training import train
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members import Parameters
from cg4ai.members.mixture import Part
from cg4ai.routing import Instance, Recipe, Utilisation, instance, shielded_problem
from cg4ai.routing.demands.sets import MixedDemands
from cg4ai.routing.prove.guarantee import FIRST_RATE, certified_problem
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.routing.train.problem import first_request

STEPS, BATCH, LATER_STEPS = 3000, 512, 1000
WIDTHS = (0.4, 0.2, 0.1, 0.05)
CENTRES, INPUTS = 60, 400


class Bench:
    """Networks of one configuration and seed, trained in various ways."""

    def __init__(self, made: Instance, hidden: tuple[int, ...], seed: int) -> None:
        self.made, self.blocks = made, len(made.blocks)
        self.architecture = SplitNetwork(made, hidden=hidden)
        self.generator = generator(seed)
        self.fresh = MixedDemands(made.region, made.ends, others=0.0, edge=0.0)
        self.utilisation = Utilisation(made)
        places = Layout(made.blocks).places(self.architecture.output_size)
        self.places = None if places is None else torch.as_tensor(places)
        self.vectors = made.sample(4000, 12345)
        self.least = made.find_optimal(self.vectors).mlu

    def initialise(self, count: int) -> Parameters:
        found = self.architecture.initialise(count * self.blocks, self.generator)
        return {name: value.float() for name, value in found.items()}

    def predict(self, parameters: Parameters, demands: Tensor) -> Tensor:
        each = self.architecture.forward(parameters, demands)
        mean = each.reshape(-1, self.blocks, *each.shape[1:]).mean(0)
        outputs = mean.transpose(0, 1).flatten(1)
        return outputs if self.places is None else outputs[:, self.places]

    def train(
        self,
        start: Parameters,
        *,
        steps: int,
        rate: float,
        beside: Parameters | None = None,
    ) -> Parameters:
        """By the MLU of the mean of these members and of those `beside` them, which stay."""

        def loss(parameters: Parameters, step: int) -> Tensor:
            demands = self.fresh(BATCH, self.generator).float()
            own = self.predict(parameters, demands)
            if beside is not None:
                with torch.no_grad():
                    others = self.predict(beside, demands)
                tau = len(start["skip"]) / (len(start["skip"]) + len(beside["skip"]))
                own = (1 - tau) * others + tau * own
            return self.utilisation.values(demands, own).amax(-1).mean().reshape(1)

        return train(start, loss, Training(steps, rate, "onecycle"), models=1)

    def measure(self, parameters: Parameters) -> float:
        exact = {name: value.double() for name, value in parameters.items()}
        with torch.no_grad():
            splits = self.predict(exact, torch.as_tensor(self.vectors)).numpy()
        loads = self.made.compute_utilisation(self.vectors, splits).max(axis=1)
        return float((loads - self.least).mean())


def join(one: Parameters, other: Parameters) -> Parameters:
    return {name: torch.cat([one[name], other[name]]) for name in one}


def compare(name: str, seed: int) -> None:
    network, demands, paths = name.rsplit("-", 2)
    made = instance(network, int(demands), int(paths))
    started = time.process_time()

    def show(what: str, found: float) -> None:
        nonlocal started
        passed = time.process_time() - started
        print(f"{name} seed {seed} {what}: mean gap {found:.5f}, {passed:.1f} s", flush=True)
        started = time.process_time()

    plans: list[tuple[tuple[int, ...], int, float]] = [
        ((32,), 1, 0.01),
        ((32,), 1, FIRST_RATE),
        ((96,), 1, FIRST_RATE),
    ]
    plans += [((32,), 3, FIRST_RATE), ((16,), 2, FIRST_RATE), ((32, 32), 1, 0.01)]
    for hidden, count, rate in plans:
        bench = Bench(made, hidden, seed)
        found = bench.train(bench.initialise(count), steps=STEPS, rate=rate)
        show(f"hidden {hidden}, {count} joint, rate {rate}", bench.measure(found))
    bench = Bench(made, (32,), seed)
    first = bench.train(bench.initialise(1), steps=STEPS, rate=FIRST_RATE)
    mixture = first
    for number in (2, 3):
        fresh = bench.initialise(1)
        added = bench.train(fresh, steps=LATER_STEPS, rate=FIRST_RATE, beside=mixture)
        mixture = join(mixture, added)
        show(f"hidden (32,), residual column {number}", bench.measure(mixture))
    more = bench.train(first, steps=2 * LATER_STEPS, rate=FIRST_RATE / 3)
    show(f"hidden (32,), {2 * LATER_STEPS} further steps of the first", bench.measure(more))


def measure_bends(name: str, seed: int) -> None:
    """Loads above their best linear fit, the largest of all links, in boxes near full loads."""
    network, demands, paths = name.rsplit("-", 2)
    made, recipe = instance(network, int(demands), int(paths)), Recipe(seed=seed)
    top, random = made.demand_max, np.random.default_rng(seed)
    centres = random.uniform(0.45, 0.95, (CENTRES, len(top)))
    for what, stated in (("single demands", certified_problem), ("feedback", shielded_problem)):
        problem = stated(made, recipe)
        request = first_request(problem, seed=seed, device="cpu", attacked=True)
        found = problem.pricers[0].price(request)
        assert found.members is not None
        weights = np.full(len(found.blocks), len(problem.layout) / len(found.blocks))
        router = Ensemble((Part(found.members, found.blocks, weights),), problem.layout)
        for width in WIDTHS:
            bends = []
            for centre in centres:
                moved = random.uniform(-width / 2, width / 2, (INPUTS, len(top)))
                inputs = np.clip(centre + moved, 0, 1)
                loads = made.compute_utilisation(inputs * top, router.predict(inputs * top))
                table = np.column_stack([np.ones(INPUTS), inputs - centre])
                fit = table @ np.linalg.lstsq(table, loads, rcond=None)[0]
                bends.append((loads - fit).max())
            middle, high = np.quantile(bends, [0.5, 0.95])
            print(
                f"{name} {what}, boxes {width:g} wide: {middle:.5f}, 95 %: {high:.5f}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--configurations", nargs="+", default=["di-yuan-5-3", "di-yuan-15-3"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--bends", action="store_true", help="how far loads are from linear")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.configurations:
        for seed in options.seeds:
            (measure_bends if options.bends else compare)(name, seed)


if __name__ == "__main__":
    main()
