"""The routing application: `cg4ai route` from network to proven, shielded or attacked router.

Beside what every run folder holds there is `cuts.jsonl`, one line per demand vector that separation
or an attack while training found (see journal.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cg4ai.apps.folders import about_of
from cg4ai.apps.protocol import Evaluation, Review, Solver, Task
from cg4ai.apps.routing.data import Instance, instance
from cg4ai.apps.routing.description import Router, described, restored
from cg4ai.apps.routing.evaluate import evaluate
from cg4ai.apps.routing.functional import PathCost
from cg4ai.apps.routing.guarantee import (
    certified,
    proof_summary,
    write_proof,
    write_shield_proof,
)
from cg4ai.apps.routing.journal import CutJournal
from cg4ai.apps.routing.problem import (
    capacity,
    routing_problem,
    routing_settings,
    shielded_problem,
    tree_problem,
)
from cg4ai.apps.routing.report import report
from cg4ai.apps.routing.settings import LEAN, RouteSettings
from cg4ai.apps.routing.shield import record_cuts
from cg4ai.ensemble.ensemble import Ensemble, record_regions
from cg4ai.proofs import Certification, certify
from cg4ai.proofs.phase import ProofRecipe
from cg4ai.records import IterationRecord, Strength
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving.loop import solve
from cg4ai.solving.problem import Problem
from cg4ai.solving.result import Result

EVALUATION_S = 30.0  # kept of a time limit at most: an evaluation takes 5 to 20 s of a free core
WITH_BASELINE = 0.6  # of a time limit for what comes after training: plain networks train as long


@dataclass(frozen=True)
class Prepared:
    """What was asked for, and the instance it is about."""

    settings: RouteSettings
    instance: Instance


@dataclass
class Proving:
    """The loop that goes on until the whole box is proven, or a limit; keeps the proof."""

    proof: Certification | None = None
    written: dict[str, Any] | None = None

    def __call__(
        self,
        problem: Problem,
        settings: Settings,
        *,
        progress: Callable[[IterationRecord], None] | None,
        run: Run | None,
    ) -> Result:
        outcome = certified(problem, settings, progress=progress, run=run)
        self.proof = outcome.certification
        return outcome.result


@dataclass(kw_only=True)
class ProvingLeaves(Proving):
    """The loop as it is, for trees that keep the capacities by themselves; keeps the proof."""

    instance: Instance

    def __call__(
        self,
        problem: Problem,
        settings: Settings,
        *,
        progress: Callable[[IterationRecord], None] | None,
        run: Run | None,
    ) -> Result:
        result = solve(problem, settings, progress=progress, run=run)
        rule = capacity(self.instance, RouteSettings(network=self.instance.name))
        self.proof = certify(result.ensemble, rule)
        return result


@dataclass
class Shielding:
    """The loop as it is, for shielded networks; keeps what was written about their shield."""

    written: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        problem: Problem,
        settings: Settings,
        *,
        progress: Callable[[IterationRecord], None] | None,
        run: Run | None,
    ) -> Result:
        return solve(problem, settings, progress=progress, run=run)


class Routing:
    """Routers of one network; see `cg4ai.apps.protocol` for what the parts do."""

    name = "route"
    settings = RouteSettings
    preparing = ""
    may_differ = (
        *("time_limit_s", "training_limit_s", "lean", "baseline", "demand_file"),
        *("validation", "shield_inputs"),
    )

    def prepare(self, settings: RouteSettings, described: Mapping[str, Any] | None) -> Prepared:
        made = self._instance(settings) if described is None else restored(described)
        if settings.objective == "cost":
            PathCost(made)  # refuses a network without lengths
        return Prepared(settings, made)

    def _instance(self, settings: RouteSettings) -> Instance:
        return instance(
            settings.network,
            settings.demands,
            settings.paths,
            load=settings.load,
            demand_file=settings.demand_file,
        )

    def describe(self, prepared: Prepared) -> dict[str, Any]:
        return described(prepared.instance)

    def problem(self, prepared: Prepared) -> Task:
        problem, settings = self.training(prepared)
        asked, demands = prepared.settings, len(prepared.instance.demand_max)
        recipe = asked.completed(demands, joint=asked.joint)
        solver: Solver = Shielding() if asked.guarantee == "shielded" else solve
        later = f"{recipe.later_steps} the others"
        if asked.guarantee == "certified" and asked.members == "tree":
            solver = ProvingLeaves(instance=prepared.instance)
        elif asked.guarantee == "certified":
            settings, solver = replace(settings, iteration_limit=ProofRecipe().rounds), Proving()
            later = "each proven as far as it goes before the next"
        what = "networks" if asked.joint else "groups of networks"
        steps = f", {recipe.first_steps} steps the first, {later}"
        if asked.members != "network":
            what = "trees" if asked.members == "tree" else "networks and trees"
            steps = f", trees of up to {recipe.leaves} leaves"
        words = (
            f"training: up to {settings.iteration_limit} {what} that split {demands} demands{steps}"
        )
        words = "\n".join([*prepared.instance.notes, words])
        task = Task(problem, settings, words, solver=solver, evaluation_most_s=EVALUATION_S)
        if asked.baseline:
            task = replace(task, evaluation_share=WITH_BASELINE, evaluation_most_s=math.inf)
        return task

    def reopen(self, settings: RouteSettings, described: Mapping[str, Any] | None) -> Task:
        return self.problem(self.prepare(settings, described))

    def listening(self, task: Task, run: Run | None) -> Task:
        if run is None or not task.problem.requirements:
            return task
        journal = CutJournal(run, task.settings)
        heard = journal.listen(task.problem)
        return replace(task, problem=heard, heard=journal.heard, journal=journal)

    def training(self, prepared: Prepared) -> tuple[Problem, Settings]:
        """The problem and how the loop is to solve it; an experiment may have another."""
        asked = prepared.settings
        lean = LEAN if asked.lean is None else asked.lean
        settings = routing_settings(
            prepared.instance,
            asked,
            time_limit_s=asked.training_limit_s,
            lean=lean,
            joint=asked.joint,
        )
        settings = replace(settings, single_model=asked.single_model)
        if asked.guarantee == "shielded":
            return shielded_problem(prepared.instance, asked), settings
        stated = tree_problem if asked.members == "tree" else routing_problem
        return stated(prepared.instance, asked), settings

    def conclude(self, prepared: Prepared, task: Task, result: Result, run: Run | None) -> Result:
        solver = task.solver
        proof = solver.proof if isinstance(solver, Proving) else None
        if run is not None and proof is not None and proof.status == "proven":
            assert isinstance(solver, Proving)
            # the certificate speaks of what the mixture says of itself
            result.ensemble.about.update(about_of(self, prepared))
            solver.written = write_proof(run.folder, prepared.instance, result.ensemble, proof)
        if prepared.settings.joint:  # its rule is no row of the master, but has its region
            rule = capacity(prepared.instance, prepared.settings)
            record_regions(result.ensemble, (rule,), inputs=task.problem.objective.inputs)
            if run is not None and isinstance(solver, Shielding):
                result.ensemble.about.update(about_of(self, prepared))
                solver.written = write_shield_proof(run.folder, prepared.instance, result.ensemble)
        return result

    def evaluate(
        self, prepared: Prepared, task: Task, result: Result, review: Review
    ) -> Evaluation:
        made, asked = prepared.instance, prepared.settings
        found = evaluate(made, asked, task.problem, result, review)
        summary, arrays = found.summary, dict(found.arrays)
        if isinstance(task.solver, Proving) and task.solver.proof is not None:
            violated = summary["strength"] == Strength.VIOLATED
            summary |= proof_summary(made, task.solver.proof) | (task.solver.written or {})
            summary |= {"strength": Strength.VIOLATED} if violated else {}
        if isinstance(task.solver, Shielding):
            summary |= task.solver.written
        if isinstance(task.journal, CutJournal):
            arrays |= task.journal.arrays()
            if "cut_demands" in arrays:
                record_cuts(made, result.ensemble, arrays["cut_demands"])
        kept = found.kept and summary["strength"] == asked.guarantee
        return Evaluation(finite(summary), kept, arrays)

    def restore(
        self, ensemble: Ensemble, description: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Router:
        return Router(restored(description))

    def report(self, summary: Mapping[str, Any]) -> str:
        return report(summary)


def finite(value: Any) -> Any:
    """The same with None for NaN and infinity at any depth: JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


APPLICATION = Routing()
