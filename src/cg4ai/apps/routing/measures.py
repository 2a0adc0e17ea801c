"""Further measurements of a trained router: speed, demands near the limit, costs of paths."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.optimal import bottleneck
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.records import Array
from cg4ai.seeds import derived_seed

ROUNDS = 3  # of each, in turns


def prediction_speed(instance: Instance, ensemble: Ensemble, vectors: Array) -> dict[str, float]:
    """Seconds per 1,000 vectors: predicted at once, and solved one by one from warm starts.

    Both take turns, and of three rounds of each the fastest counts: others are slowed by what else
    the machine does.
    """
    predicting, solving = _fastest(
        lambda: ensemble.predict(vectors), lambda: instance.optimal(vectors), rounds=ROUNDS
    )
    return {
        "predict_1000_s": predicting * 1000 / len(vectors),
        "highs_1000_s": solving * 1000 / len(vectors),
        "speedup": solving / predicting,
    }


def _fastest(*tasks: Callable[[], object], rounds: int) -> list[float]:
    """The least seconds of each task, all of them in turns."""
    seconds = np.zeros((rounds, len(tasks)))
    for number in range(rounds):
        for position, task in enumerate(tasks):
            started = time.perf_counter()
            task()
            seconds[number, position] = time.perf_counter() - started
    return [float(least) for least in seconds.min(axis=0)]


def tight_arrays(
    instance: Instance, ensemble: Ensemble, plain: Ensemble, count: int, *, seed: int
) -> dict[str, Array]:
    """MLUs at `count` vectors, optimal and of both routers, where hardly any room is left.

    The demands that fill the bottleneck are drawn within a hundredth of their largest volume, the
    others anywhere, so the optimum lies within a hundredth below the largest optimum of the box,
    which is the load: at load 0.99 between 0.9801 and 0.99.
    """
    generator = np.random.default_rng(derived_seed(seed, 0, "tight"))
    shares = generator.uniform(0, 1, (count, len(instance.demand_max)))
    full = bottleneck(instance).demands
    shares[:, full] = 0.99 + 0.01 * shares[:, full]
    vectors = shares * instance.demand_max
    routers = {"tight_predicted": ensemble, "tight_plain": plain}
    return {
        "tight_optimal": instance.optimal(vectors).mlu,
        **{
            name: instance.utilisation(vectors, router.predict(vectors)).max(axis=1)
            for name, router in routers.items()
        },
    }


def cost_arrays(instance: Instance, vectors: Array, *, splits: Array) -> dict[str, Array]:
    """Total path cost (length x flow) of each vector: least possible, and predicted."""
    best = instance.optimal(vectors, objective="cost").cost
    assert best is not None
    demands = vectors[:, instance.path_demand]
    return {
        "optimal_cost": best,
        "predicted_cost": np.asarray((demands * splits) @ instance.path_length),
    }


def cost_gaps(arrays: Mapping[str, Array]) -> dict[str, float]:
    """Mean share by which the cost of a router exceeds the least possible."""
    share = (arrays["predicted_cost"] / arrays["optimal_cost"]).mean()
    return {"mean_cost_gap": float(share) - 1.0}
