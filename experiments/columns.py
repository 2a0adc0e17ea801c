"""`python -m experiments.columns`: what further columns of a router add, and what their duals do.

Equal steps for all: k columns are compared with one network trained for as many steps. Columns are
trained on their own loss, residually without looking at duals, or residually by the duals. All are
weighed by the same master, over more scenarios than usual, and no member is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer

from cg4ai import Problem, Settings, solve
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.parallel import iterate_as_completed
from cg4ai.report.tables import format_markdown
from cg4ai.routing import Instance, instance, shielded_problem
from cg4ai.routing.prove.attack import attack
from cg4ai.routing.settings import PAPER_LOAD, Recipe
from cg4ai.routing.train.effort import LATER
from cg4ai.routing.train.joint import JointPricer
from cg4ai.routing.train.problem import attacked_problem, routing_settings
from experiments.command import KEPT, Folder, Jobs, command, say
from experiments.side_by_side import cores

Way = Literal["one network", "own loss", "residual, no duals", "residual, duals"]
COLUMN_WAYS: tuple[Way, ...] = ("own loss", "residual, no duals", "residual, duals")
USUAL = ("dfn-bwin-10-3", "nobel-eu-10-3", "di-yuan-15-3")
VECTORS, JUDGED_BY = 10_000, 987_654  # seed of the vectors that judge, which no training sees
FIRST_SEED = 101  # tables are made from seed 0, tuning from others


def columns(
    configurations: Annotated[
        list[str] | None, typer.Argument(metavar="[NETWORK-D-P ...]", help="Which; or three.")
    ] = None,
    *,
    out: Folder = Path("columns"),
    guarantee: Annotated[str, typer.Option(help="shielded or attacked.")] = "shielded",
    seeds: Annotated[int, typer.Option(help="How many.")] = 5,
    most: Annotated[int, typer.Option(help="Columns at most.")] = 4,
    steps: Annotated[int, typer.Option(help="Of the first column; 0: as many as usual.")] = 0,
    jobs: Jobs = None,
) -> None:
    """Train at equal steps; DIR/columns.jsonl has a line for each run, columns.md the table.

    What is in DIR already is not trained again.
    """
    if guarantee not in ("shielded", "attacked"):
        raise InvalidInput(f"--guarantee must be shielded or attacked, got {guarantee!r}")
    out.mkdir(parents=True, exist_ok=True)
    file = out / "columns.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines]
    known = {(one["configuration"], one["guarantee"], one["seed"]) for one in found}
    wanted = product(configurations or USUAL, range(FIRST_SEED, FIRST_SEED + seeds))
    left = [(name, seed) for name, seed in wanted if (name, guarantee, seed) not in known]
    work = partial(compare_ways, guarantee=guarantee, most=most, steps=steps)
    for several in iterate_as_completed(work, left, n_jobs=cores() if jobs is None else jobs):
        with file.open("a") as stream:
            for one in several:
                say(json.dumps(one))
                stream.write(json.dumps(one) + "\n")
        found += several
    table = format_markdown(summarise(found))
    (out / "columns.md").write_text(table)
    print(table)
    raise typer.Exit(KEPT)


@dataclass(frozen=True, eq=False)
class Judge:
    """Vectors of known optimum that no training has seen."""

    made: Instance
    vectors: Array
    best: Array

    def measure(self, splits: Array) -> dict[str, float]:
        gap = self.made.compute_utilisation(self.vectors, splits).max(axis=1) - self.best
        return {
            "mean": float(gap.mean()),
            "p999": float(np.quantile(gap, 0.999)),
            "max": float(gap.max()),
        }


def compare_ways(
    job: tuple[str, int], *, guarantee: str, most: int, steps: int
) -> list[dict[str, Any]]:
    """Of a configuration and a seed, one line for each number of columns and way."""
    name, seed = job
    torch.set_num_threads(1)  # as many runs at once as there are cores
    network, demands, paths = name.rsplit("-", 2)
    made = instance(network, int(demands), int(paths), load=PAPER_LOAD)
    vectors = made.sample(VECTORS, JUDGED_BY)
    judge = Judge(made, vectors, made.find_optimal(vectors).mlu)
    recipe = Recipe(seed=seed, first_steps=steps, later_steps=steps // LATER)
    recipe = recipe.fill_defaults(len(made.demand_max), joint=True)
    about = {"configuration": name, "guarantee": guarantee, "seed": seed}
    found = []
    for count in range(1, most + 1):
        whole = recipe.first_steps + (count - 1) * recipe.later_steps
        longer = replace(recipe, first_steps=whole, rounds=1)
        found.append(about | _trained(judge, longer, guarantee, "one network", columns=count))
        for way in COLUMN_WAYS if count > 1 else ():
            several = replace(recipe, rounds=count)
            found.append(about | _trained(judge, several, guarantee, way, columns=count))
    return found


def _trained(
    judge: Judge, recipe: Recipe, guarantee: str, way: Way, *, columns: int
) -> dict[str, Any]:
    problem = (shielded_problem if guarantee == "shielded" else attacked_problem)(
        judge.made, recipe
    )
    result = solve(_by_way(problem, way), _settings(judge.made, recipe))
    router = result.ensemble
    one: dict[str, Any] = {
        "columns": columns,
        "way": way,
        "steps": recipe.first_steps + (recipe.rounds - 1) * recipe.later_steps,
        "active": len(router),
        "seconds": round(result.seconds, 2),
        **judge.measure(router.predict(judge.vectors)),
    }
    if guarantee == "attacked":
        one["rows"] = result.rule_rows
        one["worst"] = attack(judge.made, router, seed=recipe.seed).worst_utilisation
    return one


def _by_way(problem: Problem, way: Way) -> Problem:
    (pricer,) = problem.pricers
    assert isinstance(pricer, JointPricer)
    if way == "own loss":
        pricer = replace(pricer, blend=1.0, uses_duals=False)
    elif way == "residual, no duals":
        pricer = replace(pricer, uses_duals=False)
    return replace(problem, pricers=(pricer,))


def _settings(made: Instance, recipe: Recipe) -> Settings:
    """As usual, but that training does not end early and nothing is left out."""
    usual = routing_settings(made, recipe, prune=0.0, joint=True)
    return replace(usual, improvement_tolerance=0.0, estimate_restarts=0)


def summarise(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each configuration, number of columns and way: means over seeds, and the worst.

    Those of one number of columns were trained for equal steps.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in found:
        key = (one["configuration"], one["guarantee"], one["columns"], one["way"])
        groups.setdefault(key, []).append(one)
    rows = []
    for (name, guarantee, count, way), runs in groups.items():
        row: dict[str, Any] = {"configuration": name, "guarantee": guarantee, "columns": count}
        row |= {"way": way, "steps": runs[0]["steps"], "seeds": len(runs)}
        for title in ("mean", "p999", "max"):
            values = [one[title] for one in runs]
            row[title] = round(float(np.mean(values)), 5)
            row[f"worst {title}"] = round(max(values), 5)
        if guarantee == "attacked":
            row["worst utilisation"] = round(max(one["worst"] for one in runs), 5)
        row["seconds"] = round(float(np.mean([one["seconds"] for one in runs])), 1)
        rows.append(row)
    return rows


if __name__ == "__main__":
    raise SystemExit(
        command(columns, "python -m experiments.columns", "dfn-bwin-10-3 --seeds 2 --out /tmp/cols")
    )
