"""Train a router on an instance and measure it: gaps, worst utilisation, the plain baseline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.measures import cost_arrays, cost_gaps, prediction_speed, tight_arrays
from cg4ai.apps.routing.optimal import OptimalRouting
from cg4ai.apps.routing.problem import Recipe, first_request, margin, on_gpu, routing_problem
from cg4ai.apps.routing.separation import Attack, attack
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.protocols import Pricer
from cg4ai.records import Array, IterationRecord
from cg4ai.runs.folder import Run
from cg4ai.seeds import derived_seed
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result
from cg4ai.solving.workspace import row_key

VALIDATION = 10_000
LEAN = 0.005  # the objective that fewer members may cost; on fresh demands they cost far less


@runtime_checkable
class Plain(Protocol):
    """A pricer that can also train its members plainly, for comparison."""

    def plain(self, trainings: int) -> Pricer:
        """The same training without rows, over as many steps as so many calls took."""
        ...


def routing_settings(
    instance: Instance, recipe: Recipe, *, time_limit_s: float = np.inf, lean: float = LEAN
) -> Settings:
    """The loop's settings for routing; one set for all networks."""
    return Settings(
        epsilon=1e-6,
        row_margin=margin(instance),
        column_limit=1_000_000,
        iteration_limit=math.ceil(recipe.rounds / 2) if on_gpu(recipe) else recipe.rounds,
        improvement_tolerance=1e-3,
        improvement_window=2 if on_gpu(recipe) else 3,
        cut_rounds=10,
        cuts_per_round=64,
        final_weights="vertex",
        lean=lean,
        time_limit_s=time_limit_s,
        seed=recipe.seed,
        device=recipe.device,
    )


@dataclass(frozen=True)
class Gaps:
    """Predicted against optimal MLU on validation vectors that training never saw."""

    optimal: Array = field(repr=False)
    predicted: Array = field(repr=False)
    mean_optimal_mlu: float
    mean_mlu_gap: float
    max_mlu_gap: float


def measure(instance: Instance, splits: Array, vectors: Array, best: OptimalRouting) -> Gaps:
    predicted = instance.utilisation(vectors, splits).max(axis=1)
    gap = predicted - best.mlu
    return Gaps(best.mlu, predicted, float(best.mlu.mean()), float(gap.mean()), float(gap.max()))


@dataclass(frozen=True)
class RoutingResult:
    """A trained router with everything that its summary reports."""

    instance: Instance
    recipe: Recipe
    result: Result
    attack: Attack
    gaps: Gaps
    plain_attack: Attack
    plain_gaps: Gaps
    summary: dict[str, Any]
    arrays: dict[str, Array] = field(repr=False)

    @property
    def ensemble(self) -> Ensemble:
        return self.result.ensemble


def route(
    instance: Instance,
    recipe: Recipe | None = None,
    *,
    settings: Settings | None = None,
    progress: Callable[[IterationRecord], None] | None = None,
    run: Run | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> RoutingResult:
    """Train, then evaluate with seeds that training never uses."""
    recipe = recipe or Recipe()
    started = time.perf_counter()
    problem = routing_problem(instance, recipe)
    result = solve(
        problem, settings or routing_settings(instance, recipe), progress=progress, run=run
    )
    total_s = time.perf_counter() - started
    say("evaluating: attack, validation, plain baseline")
    return evaluate(instance, recipe, problem=problem, result=result, total_s=total_s)


def evaluate(
    instance: Instance,
    recipe: Recipe,
    *,
    problem: Problem,
    result: Result,
    total_s: float,
) -> RoutingResult:
    """Attack and validate a trained router and the plain one beside it."""
    started = time.perf_counter()
    ensemble = result.ensemble
    vectors = instance.sample(VALIDATION, derived_seed(recipe.seed, 0, "validation"))
    best = instance.optimal(vectors, splits=True)
    attack_seed = derived_seed(recipe.seed, 0, "final attack") % 2**31
    found = attack(instance, ensemble, seed=attack_seed)
    splits = ensemble.predict(vectors)
    gaps = measure(instance, splits, vectors, best)
    plain = plain_router(problem, recipe, result)
    plain_found = attack(instance, plain, seed=attack_seed)
    plain_splits = plain.predict(vectors)
    plain_gaps = measure(instance, plain_splits, vectors, best)
    assert best.splits is not None
    arrays = {
        "optimal_mlu": gaps.optimal,
        "predicted_mlu": gaps.predicted,
        "plain_mlu": plain_gaps.predicted,
        **tight_arrays(instance, ensemble, plain, seed=recipe.seed),
    }
    summary = {
        "network": instance.name,
        "demands": len(instance.demand_max),
        "paths": max(len(block) for block in instance.blocks),
        "load": instance.load,
        "scale": instance.scale,
        "demand_max": instance.demand_max.tolist(),
        "objective": recipe.objective,
        "stop_reason": result.stop_reason.value,
        "iterations": len(result.history),
        "columns": result.columns,
        "constants": constants(problem),
        "rows": result.rows,
        **capacity_rows(problem, result),
        "active_members": len(ensemble),
        "active_constants": active_constants(ensemble),
        **result.seconds_by_step(),
        "total_s": total_s,
        "mean_optimal_mlu": gaps.mean_optimal_mlu,
        "mean_mlu_gap": gaps.mean_mlu_gap,
        "max_mlu_gap": gaps.max_mlu_gap,
        "split_loss": float(((splits - best.splits) ** 2).sum(1).mean()),
        "worst_utilisation": found.worst_utilisation,
        "attack": {**found.effort, "found_by": found.found_by, "arc": list(found.arc)},
        "strength": found.strength,
        "plain_worst_utilisation": plain_found.worst_utilisation,
        "plain_mean_mlu_gap": plain_gaps.mean_mlu_gap,
        "plain_max_mlu_gap": plain_gaps.max_mlu_gap,
        **prediction_speed(instance, ensemble, vectors),
        "seed": recipe.seed,
        "note": result.note,
    }
    if recipe.objective == "cost":
        costs = cost_arrays(instance, vectors, splits=splits, plain_splits=plain_splits)
        arrays |= costs
        summary |= cost_gaps(costs)
    summary["evaluation_s"] = time.perf_counter() - started
    return RoutingResult(
        instance, recipe, result, found, gaps, plain_found, plain_gaps, summary, arrays
    )


def constants(problem: Problem) -> int:
    """How many columns are constant splits from the start; the others are trained networks."""
    return sum(len(blocks) for _, blocks in problem.start)


def active_constants(ensemble: Ensemble) -> int:
    """How many of the members with weight are constant splits."""
    return sum(
        int(np.count_nonzero(part.weights))
        for part in ensemble.parts
        if isinstance(part.members, ConstantMembers)
    )


def capacity_rows(problem: Problem, result: Result) -> dict[str, int]:
    """Rows of the capacities in the master, and how many of them were found by search.

    The others are there from the start. Nothing where the rows were not counted.
    """
    if result.rule_rows is None:
        return {}
    first = len({row_key(rows, j) for rows in problem.start_rows for j in range(len(rows))})
    return {"capacity_rows": result.rule_rows, "found_rows": result.rule_rows - first}


def groups_trained(result: Result) -> int:
    """How many groups were trained, those that the master did not take included."""
    return sum(
        int(record.added_columns > 0) if record.trainings is None else record.trainings
        for record in result.history
    )


def plain_router(problem: Problem, recipe: Recipe, result: Result) -> Ensemble:
    """The same members trained plainly for as many steps, without master, rows or cuts."""
    pricer = problem.pricers[0]
    assert isinstance(pricer, Plain)
    plain = pricer.plain(groups_trained(result))
    count = len(problem.layout)
    seed = derived_seed(recipe.seed, 0, "plain")
    proposed = plain.price(first_request(problem, seed=seed, device=recipe.device, attacked=False))
    assert proposed.members is not None
    device = torch.device(recipe.device)
    part = Part(proposed.members.to(device), proposed.blocks, np.ones(count))
    return Ensemble((part,), problem.layout, device=device)
