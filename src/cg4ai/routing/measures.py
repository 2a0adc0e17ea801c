"""Further measurements of a trained router: speed, demands near the limit, costs of paths."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from cg4ai.ensemble import Ensemble
from cg4ai.records import Array
from cg4ai.routing.data import Instance
from cg4ai.routing.optimal import bottleneck
from cg4ai.seeds import derived_seed

TIMED = 1000  # vectors that are predicted, and solved one by one
TIGHT = 1000  # vectors whose least possible MLU is within a hundredth of the largest


def prediction_speed(instance: Instance, ensemble: Ensemble, vectors: Array) -> dict[str, float]:
    """Seconds to predict 1,000 vectors at once, and to solve them one by one from warm starts.

    Of several rounds of each the fastest counts: others are slowed by what else the machine does.
    """
    timed = vectors[:TIMED]
    predicting = _fastest(lambda: ensemble.predict(timed), rounds=7)
    solving = _fastest(lambda: instance.optimal(timed), rounds=2)
    return {
        "predict_1000_s": predicting,
        "highs_1000_s": solving,
        "speedup": solving / predicting,
    }


def _fastest(task: Callable[[], object], *, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def tight_arrays(
    instance: Instance, ensemble: Ensemble, plain: Ensemble, *, seed: int
) -> dict[str, Array]:
    """MLUs, optimal and of both routers, where hardly any room is left.

    The demands that fill the bottleneck are drawn within a hundredth of their largest volume, the
    others anywhere, so even the best routing comes within a hundredth of the box's worst case.
    """
    generator = np.random.default_rng(derived_seed(seed, 0, "tight"))
    shares = generator.uniform(0, 1, (TIGHT, len(instance.demand_max)))
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


def cost_arrays(instance: Instance, splits: Array, vectors: Array) -> dict[str, Array]:
    """Total path cost (length x flow) of each vector, least possible and predicted."""
    best = instance.optimal(vectors, objective="cost").cost
    assert best is not None
    flows = vectors[:, instance.path_demand] * splits
    return {"optimal_cost": best, "predicted_cost": np.asarray(flows @ instance.path_length)}
