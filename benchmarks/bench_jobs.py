"""What `n_jobs` is worth: the same fits, proof and runs with one job and with two.

    python -m benchmarks.bench_jobs [NAME ...]

Set OMP_NUM_THREADS=1, so that boosting itself takes one core, and have two cores free for the wall
seconds to mean something. `busiest` is the processor seconds of the busiest process of two jobs,
parent or worker: with cores enough the wall is hardly longer, however busy they are now, and `gain`
is what one job took, in processor seconds, over that. Everything runs once before it is timed:
starting the processes of joblib takes seconds, once.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from sklearn.datasets import make_classification, make_friedman1

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, Ensemble, FitWarning, certify
from cg4ai.colgen import BlackBox
from cg4ai.layout import Layout
from cg4ai.members import NetworkArchitecture
from cg4ai.members.mixture import Mixture, Part
from cg4ai.proofs.certificate import build_certificate
from cg4ai.routing.network.instance import instance
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import Box, Linear, Probability
from experiments.routing.__main__ import main as routing

ROWS = 20_000


def fits() -> dict[str, Any]:
    """Functions of the number of jobs, each of which gives predictions."""
    x, y = make_classification(ROWS, 20, n_informative=10, random_state=0)
    inputs, targets = make_friedman1(ROWS, 10, noise=1.0, random_state=0)
    listed = Probability(x[:50], y[:50], at_least=0.6)
    usual: dict[str, Any] = {"iteration_limit": 4, "random_state": 0}

    def classifier(members: str, jobs: int) -> Any:
        model = ConstrainedClassifier(members=members, n_jobs=jobs, **usual)
        return model.fit(x, y, requirements=[listed]).predict_proba(x)

    def quantiles(jobs: int) -> Any:
        levels = (0.1, 0.3, 0.5, 0.7, 0.9)
        options: dict[str, Any] = {"members": "boosting", "loss": "pinball", "quantiles": levels}
        return (
            ConstrainedRegressor(n_jobs=jobs, **options, **usual)
            .fit(inputs, targets)
            .predict(inputs)
        )

    return {
        "boosting under a rule": lambda jobs: classifier("boosting", jobs),
        "forest under a rule": lambda jobs: classifier("forest", jobs),
        "networks under a rule": lambda jobs: classifier("network", jobs),
        "five quantiles by boosting": quantiles,
    }


def proof(jobs: int) -> Any:
    """A certificate of random networks by some hundred thousand cells."""
    architecture = NetworkArchitecture(8, 4, hidden=(32,))
    members = architecture.members(architecture.initialise(3, torch.Generator().manual_seed(0)))
    part = Part(members, np.zeros(3, np.int64), np.full(3, 1 / 3))
    ensemble, box = Ensemble((part,), Layout.single(4)), Box(-np.ones(8), np.ones(8))
    sample = box.sample(20_000, torch.Generator().manual_seed(1)).numpy()
    corners = box.extremes(2_000, torch.Generator().manual_seed(1)).numpy()
    rows = np.random.default_rng(0).normal(size=(4, 4))
    top = (ensemble.predict(np.concatenate([sample, corners])) @ rows.T).max(0)
    rule = Linear(box, rows, top + 0.19, "<=")
    answer = certify(ensemble, rule, n_jobs=jobs)
    made = build_certificate(ensemble, requirement=rule, certification=answer)
    return np.frombuffer(made, np.uint8)


def configurations(jobs: int) -> Any:
    """Four configurations of routing, by `python -m experiments.routing`: their mean gaps."""
    names = ["abilene-5-3", "polska-5-3", "nobel-us-5-3", "geant-5-3"]
    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(StringIO()):
            routing(["--out", folder, "--jobs", str(jobs), "--no-baseline", "--quiet", *names])
        with (Path(folder) / "table.csv").open(encoding="utf-8") as table:
            rows = list(csv.DictReader(table))
    same = [name for name in rows[0] if not name.endswith(("_s", "_time", "speedup"))]
    return np.array([[row[name] for name in same] for row in rows])


def links(jobs: int) -> Any:
    """NLopt on every link of newyork for one untrained router: a job for each link."""
    made = instance("newyork", 5, 5)
    network, demands = SplitNetwork(made, hidden=(256,), skip=False), len(made.demand_max)
    members = network.members(network.initialise(3 * demands, torch.Generator().manual_seed(0)))
    blocks = np.tile(np.arange(demands), 3)
    router = Mixture((Part(members, blocks, np.full(3 * demands, 1 / 3)),), Layout(made.blocks))
    search = BlackBox(starts=2, evaluations=300, n_jobs=jobs)
    rule = capacity(made, RouteSettings(network="newyork"))
    found = search.find(router, rule, seed=0, limit=1000, tolerance=-np.inf)
    assert found.rows is not None
    return found.rows.inputs


def processor_seconds() -> dict[int, float]:
    """Of this process and all below it, by number."""
    here = psutil.Process()
    times = {one.pid: one.cpu_times() for one in [here, *here.children(recursive=True)]}
    return {pid: one.user + one.system for pid, one in times.items()}


def measured(work: Any, jobs: int) -> tuple[float, float, Any]:
    """Wall seconds, processor seconds of the busiest process, and what came out."""
    began, before = time.perf_counter(), processor_seconds()
    result = work(jobs)
    wall, after = time.perf_counter() - began, processor_seconds()
    return wall, max(used - before.get(pid, 0.0) for pid, used in after.items()), result


def main() -> None:
    warnings.simplefilter("ignore", FitWarning)
    every = {**fits(), "proof": proof, "configurations": configurations, "links": links}
    print("| work | 1 job, s | 2 jobs, s | 1 job, CPU s | 2 jobs, busiest | gain | same results |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
    for name, work in every.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        measured(work, 2)
        (one, alone, first), (two, busiest, second) = measured(work, 1), measured(work, 2)
        same = "yes" if np.array_equal(first, second) else "no"
        figures = f"{one:.1f} | {two:.1f} | {alone:.1f} | {busiest:.1f} | {alone / busiest:.2f}"
        print(f"| {name} | {figures} | {same} |", flush=True)


if __name__ == "__main__":
    main()
