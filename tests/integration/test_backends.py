"""The same results under loky, dask and ray, with local clusters started and stopped here."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from joblib import parallel_config

from cg4ai import ConstrainedRegressor, Ensemble, certify
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture
from cg4ai.members.mixture import Part
from cg4ai.parallel import fan_out, iterate_as_completed, iterate_in_order
from cg4ai.proofs.certificate import build_certificate
from cg4ai.rules import Box, Linear
from cg4ai.seeds import derive_seed

Result = dict[str, Any]


def drawn(job: int, seed: int) -> float:
    """Something random, by the seed of its job."""
    random = np.random.default_rng(derive_seed(seed, 0, f"job {job}"))
    return float(np.linalg.norm(random.normal(size=(40, 40)) @ random.normal(size=40)))


def fitted(jobs: int) -> Any:
    """Predictions of boosted trees under a rule."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (300, 3))
    y = x[:, 0] * x[:, 1] + 0.1 * random.normal(size=300)
    rule = Linear(x[:20], [1.0], 0.4, "<=")
    model = ConstrainedRegressor(members="boosting", n_jobs=jobs, iteration_limit=2, random_state=0)
    return model.fit(x, y, requirements=[rule]).predict(x)


def certificate(jobs: int) -> bytes:
    """Of networks, by some thousand cells."""
    architecture = NetworkArchitecture(6, 4, hidden=(32,))
    members = architecture.members(architecture.initialise(3, torch.Generator().manual_seed(0)))
    part = Part(members, np.zeros(3, np.int64), np.full(3, 1 / 3))
    ensemble = Ensemble((part,), Layout.single(4))
    box = Box(-np.ones(6), np.ones(6))
    points = box.extremes(2000, torch.Generator().manual_seed(1)).numpy()
    rows = np.random.default_rng(0).normal(size=(3, 4))
    rule = Linear(box, rows, (ensemble.predict(points) @ rows.T).max(0) + 0.15, "<=")
    answer = certify(ensemble, rule, n_jobs=jobs)
    assert answer.status == "proven"
    assert answer.cells > 2000
    return build_certificate(ensemble, requirement=rule, certification=answer)


def results(jobs: int) -> Result:
    work = partial(drawn, seed=7)
    return {
        "in order": fan_out(work, range(6), n_jobs=jobs, threads=1),
        "one by one": list(iterate_in_order(work, range(6), n_jobs=jobs, threads=1)),
        "as they come": sorted(iterate_as_completed(work, range(6), n_jobs=jobs)),
        "trees": fitted(jobs).tolist(),
        "certificate": certificate(jobs),
    }


@contextmanager
def dask_cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster):
        yield "dask"


@contextmanager
def ray_cluster() -> Iterator[str]:
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.util.joblib").register_ray()
    with pytest.MonkeyPatch.context() as patched:
        # its workers are no children of this process, and look for this module by themselves
        patched.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
        try:
            yield "ray"
        finally:
            ray.shutdown()


@contextmanager
def own_processes() -> Iterator[str]:
    yield "loky"


@pytest.fixture(scope="module")
def alone() -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return results(1)


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.filterwarnings("default")  # of the packages under test, not ours
@pytest.mark.parametrize("cluster", [own_processes, dask_cluster, ray_cluster])
def test_results_do_not_depend_on_where_they_are_made(
    cluster: Callable[[], Any], alone: Result
) -> None:
    with cluster() as backend, parallel_config(backend):
        assert results(2) == alone
