"""`python -m experiments.churn --data DIR`: what bounds on changes cost on measured traffic.

The data are those of `experiments.traffic`. For each network and seed a router is trained as usual,
with `--length W` one that reads the last W matrices. All later matrices are then answered in order
of time under each bound. Beside it stand one common share of the way for all demands, and a linear
program that finds the least MLU within the bound at every matrix. Links are far from full on these
data, so that the bound need not yield. *Yielded, full* counts where it does with capacities so
small that the fullest link of the largest later optimum is filled to 0.95.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy import sparse
from scipy.optimize import linprog

from cg4ai.data import Array
from cg4ai.report.tables import format_markdown
from cg4ai.routing.app import APPLICATION, RoutingPreparation
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.churn import ChurnLimit
from cg4ai.routing.operate.later_changes import judge_changes
from experiments.command import KEPT, Folder, Threads, command, say
from experiments.history import ask

FILLED = 0.95
DROPPED = ("bound", "worst_utilisation")
COMPARED = 300  # later matrices, the first, at which the program is solved


def churn(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the measured traffic.")],
    out: Folder = Path("runs/churn"),
    networks: Annotated[str, typer.Option(help="Which, parted by commas.")] = "pod_a,abilene,geant",
    seeds: Annotated[str, typer.Option(help="Parted by commas.")] = "0,1,2",
    bounds: Annotated[str, typer.Option(help="Parted by commas.")] = "0.01,0.05,0.2",
    length: Annotated[int, typer.Option(help="Matrices of a window; 0: matrices are known.")] = 0,
    threads: Threads = 1,
) -> None:
    """Train on earlier matrices, answer the later ones in order under each bound."""
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in networks.split(","):
        for seed in map(int, seeds.split(",")):
            further: dict[str, Any] = {"history": length or None, "seed": seed, "threads": threads}
            asked = replace(ask(name, data, out / name, choose=False, **further), baseline=False)
            prepared = APPLICATION.prepare(asked, None)
            splits = answer(prepared)
            for bound in map(float, bounds.split(",")):
                row = {"network": name, "seed": seed, **measure(prepared, splits, bound)}
                rows.append(row)
                say(json.dumps(row))
                with (out / "churn.jsonl").open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
    print(format_markdown(rows, digits=4))
    raise typer.Exit(KEPT)


def answer(prepared: RoutingPreparation) -> Array:
    """The splits of a trained router at all later matrices."""
    task = APPLICATION.problem(prepared)
    solved = task.solver(task.problem, task.settings, progress=None, run=None)
    router = APPLICATION.conclude(prepared, task, solved, None).result.ensemble
    assert prepared.measured is not None
    read = prepared.measured.later if prepared.history is None else prepared.history.later_features
    return np.asarray(router.predict(read, outside="ignore"))


def measure(prepared: RoutingPreparation, splits: Array, bound: float) -> dict[str, Any]:
    """One bound: what it costs, how often it yields, and the two controls."""
    made, measured = prepared.instance, prepared.measured
    assert measured is not None
    corner = None if prepared.history is None else made.demand_max
    limit, vectors = ChurnLimit(made, bound, corner=corner), measured.later
    inside = measured.find_inside(made)
    found = judge_changes(limit, vectors, lambda some: splits[some], inside=inside)
    few = slice(0, COMPARED)
    factor = float(made.find_optimal(vectors).mlu.max()) / FILLED
    small = ChurnLimit(replace(made, capacity=factor * made.capacity), bound)
    full = judge_changes(small, vectors, lambda some: splits[some], inside=inside).found
    best = made.find_optimal(vectors[few]).mlu
    plain = made.compute_utilisation(vectors[few], splits[few]).max(axis=1)
    common = move_together(limit, vectors[few], splits[few])
    program = solve_within(made, vectors[few], splits[0], bound) if corner is None else plain * 0
    return {
        "demands": len(made.demand_max),
        "bound": bound,
        **{name: value for name, value in found.found.items() if name not in DROPPED},
        "yielded, full": full["yielded"],
        "worst utilisation, full": full["worst_utilisation"],
        "largest change, full": full["largest_change"],
        "router / optimum": float((plain / best).mean()),
        "bounded / optimum": float((found.mlu[few] / best).mean()),
        "common share / optimum": float((common / best).mean()),
        "program / optimum": float((program / best).mean()),
    }


def move_together(limit: ChurnLimit, vectors: Array, splits: Array) -> Array:
    """MLUs where all demands go the same share of their way, the largest that the bound allows."""
    before, reached = splits[0], []
    for vector, new in zip(vectors, splits, strict=True):
        most = limit.measure(new, before).max()
        before = before + min(1.0, limit.bound / max(most, 1e-300)) * (new - before)
        reached.append(limit.instance.compute_utilisation(vector, before).max())
    return np.array(reached)


def solve_within(made: Instance, vectors: Array, split: Array, bound: float) -> Array:
    """Least MLUs of successive vectors where each demand changes by at most the bound."""
    paths, arcs = made.incidence.shape
    demands, demand = len(made.demand_max), made.path_demand
    member = sparse.csr_matrix((np.ones(paths), (demand, np.arange(paths))), (demands, paths))
    loads = sparse.csr_matrix((made.incidence / made.capacity).T)
    one = sparse.identity(paths)
    reached = []
    for vector in vectors:
        # x, what each share rises by, and the MLU t
        upper = sparse.bmat(
            [
                [loads @ sparse.diags(vector[demand]), None, -np.ones((arcs, 1))],
                [one, -one, None],
                [None, member, None],
            ]
        )
        right = np.concatenate([np.zeros(arcs), split, np.full(demands, bound)])
        equal = sparse.hstack([member, sparse.csr_matrix((demands, paths + 1))])
        cost = np.concatenate([np.zeros(2 * paths), [1.0]])
        found = linprog(cost, upper, right, equal, np.ones(demands), method="highs")
        split = found.x[:paths]
        reached.append(made.compute_utilisation(vector, split).max())
    return np.array(reached)


if __name__ == "__main__":
    raise SystemExit(command(churn, "python -m experiments.churn", "--data DIR"))
