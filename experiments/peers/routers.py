"""Routing: `cg4ai route` as it comes, and Cooper's multipliers for the processor time it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cg4ai.data import Array
from cg4ai.routing import Instance, RouteSettings, Routing
from experiments.peers.outcomes import MISSING, OURS, Clock, Outcome, installed
from experiments.peers.training import Network

LOAD = 0.99
CONFIGURATIONS = (("abilene", 10, 3), ("nobel-eu", 10, 3), ("dfn-bwin", 10, 3))
TESTS, SEARCHED, CLIMBED = 2000, 100_000, 60
HIDDEN, BATCH, RATE, DUAL_RATE = (64, 64), 256, 1e-2, 1e-3
REFRESHED, POOL, RISES, KEPT_BELOW = 50, 64, 10, 0.995
Predict = Callable[[Array], Array]  # demands (n, D) -> splits (n, P)


@dataclass(frozen=True)
class Measured:
    """A configuration by its name, with what is measured alike of every router."""

    task: str
    instance: Instance

    def outcome(self, method: str, seed: int, train_s: float, predict: Predict) -> Outcome:
        vectors = self.instance.sample(TESTS, 10_000 + seed)
        best = self.instance.find_optimal(vectors).mlu
        gap = self.instance.compute_utilisation(vectors, predict(vectors)).max(1) - best
        figures = {
            "mean": float(gap.mean()),
            "max": float(gap.max()),
            "inequality": self.overload(predict, seed),
            "train_s": train_s,
        }
        return Outcome(self.task, method, seed, figures)

    def overload(self, predict: Predict, seed: int) -> float:
        """The largest beyond capacity over vectors of the box, near its corner and on its edges.

        From the worst ones steps of chance go on, keeping what is worse.
        """
        rng = np.random.default_rng([seed, 5])
        shares = rng.uniform(size=(SEARCHED, len(self.instance.demand_max)))
        shares[1::3] = 1 - 0.2 * shares[1::3] ** 2
        shares[2::3] = np.round(shares[2::3])
        found = self._fullest(predict, shares)
        order = np.argsort(-found)[:1000]
        points, values = shares[order], found[order]
        for step in range(CLIMBED):
            moved = points + rng.normal(size=points.shape) * 0.3 / (1 + step)
            moved = np.clip(moved, 0, 1)
            reached = self._fullest(predict, moved)
            better = reached > values
            points[better], values[better] = moved[better], reached[better]
        return max(0.0, float(values.max() - 1))

    def _fullest(self, predict: Predict, shares: Array) -> Array:
        vectors = shares * self.instance.demand_max
        return np.asarray(self.instance.compute_utilisation(vectors, predict(vectors)).max(1))


def compared(configuration: tuple[str, int, int], seed: int, *, quick: bool) -> list[Outcome]:
    """Ours, then Cooper for as long."""
    network, demands, paths = configuration
    extra: dict[str, Any] = {"training_limit_s": 5.0} if quick else {}
    asked = RouteSettings.from_mapping(
        {"network": network, "demands": demands, "paths": paths, "load": LOAD, "seed": seed,
         "threads": 1, **extra}
    )  # fmt: skip
    app = Routing()
    prepared = app.prepare(asked, None)
    measured = Measured(f"{network} {demands}/{paths}", prepared.instance)
    with Clock() as clock:
        task = app.problem(prepared)
        solved = task.solver(task.problem, task.settings, progress=None, run=None)
        ensemble = app.conclude(prepared, task, solved, None).result.ensemble
    ours = measured.outcome(OURS, seed, clock.seconds, ensemble.predict)
    if not installed("cooper"):
        return [ours, Outcome(measured.task, "Cooper", seed, note=MISSING)]
    with Clock() as clock:
        predict = cooper_router(prepared.instance, seed, limit_s=ours.figures["train_s"])
    return [ours, measured.outcome("Cooper", seed, clock.seconds, predict)]


class _Splits(nn.Module):
    """A network whose outputs are probabilities over the paths of each demand."""

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        self.network = Network(len(instance.demand_max), len(instance.path_demand), HIDDEN)
        self.group = torch.as_tensor(instance.path_demand)

    def forward(self, shares: Tensor) -> Tensor:
        scores: Tensor = self.network(4 * shares - 2)
        powers = (scores - scores.amax(-1, keepdim=True).detach()).exp()
        sums = torch.zeros_like(shares).index_add(-1, self.group, powers)
        return powers / sums[:, self.group]


def cooper_router(instance: Instance, seed: int, *, limit_s: float) -> Predict:
    """Mean MLU on fresh vectors, a multiplier per arc for the worst of a pool of vectors.

    The pool holds vectors found by climbing, refreshed every few steps. The learning rate falls
    with the time that is left.
    """
    import cooper

    torch.manual_seed(seed)
    module = _Splits(instance)
    load = (
        torch.tensor(instance.incidence / instance.capacity, dtype=torch.float32)
        * torch.tensor(instance.demand_max[instance.path_demand], dtype=torch.float32)[:, None]
    )
    path_demand = torch.as_tensor(instance.path_demand)

    def used(shares: Tensor) -> Tensor:
        splits: Tensor = module(shares)
        return (shares[:, path_demand] * splits) @ load

    class Capacities(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.arcs = cooper.Constraint(
                constraint_type=cooper.ConstraintType.INEQUALITY,
                formulation_type=cooper.formulations.Lagrangian,
                multiplier=cooper.multipliers.DenseMultiplier(num_constraints=load.shape[1]),
            )

        def compute_cmp_state(self, fresh: Tensor, pool: Tensor) -> Any:
            beyond = used(pool).amax(0) - KEPT_BELOW
            states = {self.arcs: cooper.ConstraintState(violation=beyond)}
            return cooper.CMPState(used(fresh).amax(1).mean(), states)

    problem = Capacities()
    adam = torch.optim.Adam(module.parameters(), lr=RATE)
    ascent = torch.optim.SGD(problem.dual_parameters(), lr=DUAL_RATE, maximize=True)
    both = cooper.optim.AlternatingDualPrimalOptimizer(
        cmp=problem, primal_optimizers=adam, dual_optimizers=ascent
    )
    size, start, step = len(instance.demand_max), time.process_time(), 0
    pool = torch.rand(POOL, size)
    while (spent := (time.process_time() - start) / limit_s) < 1:
        adam.param_groups[0]["lr"] = RATE * min(1.0, 20 * spent + 0.05, 1.4 * (1 - spent))
        if step % REFRESHED == 0:
            pool = climbed(used, pool)
        fresh = torch.rand(BATCH, size)
        fresh[::4] = 1 - 0.2 * fresh[::4].square()
        both.roll(compute_cmp_state_kwargs={"fresh": fresh, "pool": pool})
        step += 1
    module.double().eval()
    largest = torch.as_tensor(instance.demand_max)

    def predict(vectors: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.as_tensor(vectors) / largest).numpy())

    return predict


def climbed(used: Callable[[Tensor], Tensor], pool: Tensor) -> Tensor:
    """Half the old pool and half new vectors, moved up the slope of the fullest arc."""
    points = torch.cat([pool[: POOL // 2], torch.rand(POOL - POOL // 2, pool.shape[1])])
    for _ in range(RISES):
        points.requires_grad_(True)
        (slope,) = torch.autograd.grad(used(points).amax(1).sum(), points)
        points = (points.detach() + 0.1 * slope.sign()).clamp(0, 1)
    order = used(points).detach().amax(1).argsort(descending=True)
    return points.detach()[order]
