"""A trained router after a change of traffic or network: `cg4ai update`.

The run is planned from the old one, which is only read: the new instance, what has changed, and
settings. Then it is a run of `cg4ai route` that starts from the networks of the old one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai import Problem, Settings, runs
from cg4ai.apps import (
    DESCRIPTION,
    UPDATE_OF,
    Evaluation,
    TrainingOutcome,
    TrainingTask,
    complete,
)
from cg4ai.clock import Review
from cg4ai.colgen import derive_seed
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.members import Part, ShieldedArchitecture
from cg4ai.report import finite
from cg4ai.routing.app import APPLICATION, Routing, RoutingPreparation
from cg4ai.routing.demands.measured import MeasuredTraffic, pick_evenly
from cg4ai.routing.demands.priorities import carry_priorities
from cg4ai.routing.demands.traffic import Traffic, moments_of
from cg4ai.routing.demands.traffic_files import read_traffic
from cg4ai.routing.network.instance import Instance, carry_robust, round_answers_of
from cg4ai.routing.operate.answers import FALLBACK
from cg4ai.routing.operate.churn import CHURN
from cg4ai.routing.operate.failure_study import TRAFFIC_FILE, load_whole_router
from cg4ai.routing.operate.inheriting import InstanceMapping, inherit_members
from cg4ai.routing.operate.later_traffic import LaterComparison, compute_figures
from cg4ai.routing.operate.network_change import change_network
from cg4ai.routing.operate.rerouting import WholeRouter, check_certificate
from cg4ai.routing.operate.widening import widen_instance
from cg4ai.routing.pages.judged_traffic import BEFORE, OURS
from cg4ai.routing.prove.attack import FEASIBLE
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.joint import JointPricer
from cg4ai.routing.train.shield import edge_vectors
from cg4ai.routing.train.size_limits import describe_unproven, refuse_too_large
from cg4ai.runs import Run

STEPS_ASKED = "update_steps"  # in a description: of training on
KEEPS_SET = "keeps_set"  # in a description: the set is no longer what settings and network give
LEAST_REPLAYED = (
    100  # earlier matrices that are learned beside the new ones, where there are so many
)
VALIDATION = 2000  # vectors of an update, at most
STEPS = 300  # of training on
Answer = Callable[[Array], Array]  # splits (n, P) at vectors (n, D)


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """What has changed under the run in `folder`: its `traffic`, or its `network`.

    split: of the new traffic, where matrices begin that judge only. demand_file: of the new
    network. shrink: a set that the network cannot carry is made smaller. steps: of training on.
    """

    folder: Path
    out: Path
    traffic: Path | None = None
    network: str | None = None
    demand_file: Path | None = None
    split: str = "0.7"
    shrink: bool = False
    steps: int = STEPS
    changed: Mapping[str, Any] | None = None  # settings of the run that may differ, by name

    def check(self) -> None:
        if (self.traffic is None) == (self.network is None):
            raise InvalidInput(
                "an update is by new traffic or by a new network: give one of --traffic and "
                "--network, and update again for the other",
                code="missing-argument" if self.traffic is None else "conflict",
            )
        if self.network is None and (self.shrink or self.demand_file is not None):
            raise InvalidInput(
                "--shrink and --demand-file are about a new network; leave them out",
                code="conflict",
            )
        if self.out.resolve() == self.folder.resolve():
            raise InvalidInput(
                f"{self.folder} is the run to update: choose another --out, it stays as it is",
                code="exists",
            )


@dataclass(frozen=True)
class NothingChanged:
    """Why there is nothing to update."""

    text: str


@dataclass(frozen=True, eq=False)
class UpdatePlan:
    """The run to be made: `instance` and `settings` are new, `whole` is the old router.

    measured: what a run that learns from traffic learns from and is judged by. stored: the same as
    matrices, which the new folder keeps, where they are new. judged: new demand vectors (n, D) that
    judge a run that did not learn from traffic. changes: what has changed, in words.
    """

    request: UpdateRequest
    whole: WholeRouter
    settings: RouteSettings
    instance: Instance
    changes: tuple[str, ...]
    keeps_set: bool
    original_s: float | None
    measured: MeasuredTraffic | None = None
    stored: Traffic | None = None
    judged: Array | None = None

    @cached_property
    def mapping(self) -> InstanceMapping:
        return InstanceMapping.between(self.whole.instance, self.instance)

    def predict_before(self, vectors: Array) -> Array:
        """Splits (n, P) of the old router at new vectors, over the paths that are left."""
        old = self.mapping.carry_vectors(vectors, len(self.whole.instance.demand_max))
        splits = self.whole.router.predict(old, outside="ignore")
        return self.mapping.carry_shares(splits, self.instance.path_length)


def plan_update(request: UpdateRequest) -> UpdatePlan | NothingChanged:
    """Read the run and what is new, and check all that can be before anything is written."""
    request.check()
    whole = load_whole_router(request.folder)
    _refuse_unsupported(request.folder, whole.settings)
    run = Run.open(request.folder, read_only=True)
    description = run.settings.get(DESCRIPTION) or {}
    summary = run.summary(compared=False) or {}
    settings = replace(
        whole.settings,
        baseline=False,
        validation=min(whole.settings.validation or VALIDATION, VALIDATION),
        time_limit_s=RouteSettings(network="any").time_limit_s,
        training_limit_s=RouteSettings(network="any").training_limit_s,
        # what answers do is in the mixture: a run of before there was a fallback has none
        fallback=whole.router.about.get(FALLBACK),
        churn=whole.router.about.get(CHURN),
    )
    settings = replace(settings, **(request.changed or {}))
    keeps_set = bool(description.get(KEEPS_SET)) or settings.traffic is not None
    plan = UpdatePlan(
        request, whole, settings, whole.instance, (), keeps_set, summary.get("total_s")
    )
    return _plan_traffic(plan) if request.network is None else _plan_network(plan)


def _refuse_unsupported(folder: Path, asked: RouteSettings) -> None:
    """Kinds of runs that cannot go on from what they have."""
    faults = {
        f"agent_scope {asked.agent_scope}": asked.agent_scope != "all"
        and "agents have budgets and networks of their own, made for the old network and set",
        f"members {asked.members}": asked.members != "network"
        and "the leaves of trees are grown for the old set and are not trained further",
        f"guarantee {asked.guarantee}": asked.guarantee != "shielded"
        and "what is carried over is shielded; a proof of networks, or an attack, starts anew",
        "a proven ratio": asked.ratio is not None
        and "its cells and flows are those of the old network and set",
        "a history of matrices": asked.history is not None
        and "it splits demands by matrices of before, which an update does not learn",
        "single_model": asked.single_model and "an update mixes old networks with a new one",
    }
    for what, why in faults.items():
        if why:
            raise InvalidInput(
                f"{folder} cannot be updated, as a run with {what}: {why}; train anew with "
                "cg4ai route",
                code="unsupported",
            )


def _plan_traffic(plan: UpdatePlan) -> UpdatePlan:
    """The set grows until it holds all new matrices; those before the split are learned from."""
    request, old, settings = plan.request, plan.whole.instance, plan.settings
    assert request.traffic is not None
    new = read_traffic(request.traffic, settings.network)
    new.check_nodes(sorted({n for arc in old.all_arcs or old.arcs for n in arc}), old.name)
    known = None if settings.traffic is None else read_traffic(settings.traffic, settings.network)
    if known is not None:
        new.check_later(known.split(settings.split)[0].times[-1])
    earlier, later = new.split(request.split)
    vectors = new.to_vectors(old)
    if not vectors.any():
        raise InvalidInput(
            f"{request.traffic}: has no traffic of the run's demands; nothing can be learned",
            code="empty",
        )
    widened = widen_instance(old, vectors, settings)
    made = widened.instance
    noted = replace(made, notes=(*old.notes, *widened.notes))
    carry_robust(noted, made, 1.0)
    plan = replace(plan, instance=noted, changes=tuple(widened.describe()), keeps_set=True)
    if known is None:
        judged = later.to_vectors(noted)
        return replace(plan, judged=judged[judged.any(axis=1)])
    replayed = _replay(known, new.times[0], max(LEAST_REPLAYED, len(earlier)))
    stored = replayed.append(new)
    learned = (replayed.append(earlier), later)
    return replace(
        plan,
        stored=stored,
        settings=replace(settings, traffic=request.out / TRAFFIC_FILE, split=later.times[0]),
        measured=MeasuredTraffic.from_traffic(noted, *learned, whole=not settings.demands),
        changes=(*plan.changes, _format_replayed(replayed, len(earlier))),
    )


def _replay(known: Traffic, before: str, count: int) -> Traffic:
    """At most `count` of the matrices of the run that are earlier than a time, evenly over time."""
    limit, *moments = moments_of([before, *known.times])
    past = known.select(slice(0, sum(moment < limit for moment in moments)))
    return past.select(pick_evenly(len(past), count))


def _format_replayed(replayed: Traffic, new: int) -> str:
    return f"learned from {new} new matrices and {len(replayed)} earlier ones"


def _plan_network(plan: UpdatePlan) -> UpdatePlan | NothingChanged:
    request, settings = plan.request, plan.settings
    assert request.network is not None
    settings = replace(
        settings,
        protocol="none",
        path_file=None,
        path_choice=settings.chosen_paths,
        demand_file=request.demand_file or settings.demand_file,
    )
    found = change_network(
        plan.whole.instance,
        settings,
        request.network,
        APPLICATION.make_instance,
        keeps_set=plan.keeps_set,
        shrink=request.shrink,
    )
    if found is None:
        return NothingChanged(
            f"Nothing has changed that the router in {request.folder} reads or uses: its demands, "
            "paths and capacities are those of the file. Nothing was written."
        )
    measured = None
    if settings.traffic is not None:
        learned = read_traffic(settings.traffic, settings.network).split(settings.split)
        whole = not settings.demands
        measured = MeasuredTraffic.from_traffic(found.instance, *learned, whole=whole)
    made, parts = found.instance, plan.whole.instance.granularity
    return replace(
        plan,
        instance=carry_priorities(
            made if parts is None else round_answers_of(made, parts), plan.whole.instance
        ),
        settings=replace(settings, network=request.network),
        changes=found.changes,
        measured=measured,
    )


# ---- the run -------------------------------------------------------------------------------------


class UpdateRouting(Routing):
    """`cg4ai route` that goes on from the networks of an earlier run."""

    def __init__(self, plan: UpdatePlan) -> None:
        self.plan = plan

    def prepare(
        self, settings: RouteSettings, described: Mapping[str, Any] | None
    ) -> RoutingPreparation:
        refuse_too_large(self.plan.instance, settings)
        return RoutingPreparation(settings, self.plan.instance, self.plan.measured)

    def describe(self, prepared: RoutingPreparation) -> dict[str, Any]:
        request = self.plan.request
        own: dict[str, Any] = {
            UPDATE_OF: str(request.folder.absolute()),
            STEPS_ASKED: request.steps,
        }
        own |= {KEEPS_SET: True} if self.plan.keeps_set else {}
        return {**super().describe(prepared), **own}

    def problem(self, prepared: RoutingPreparation) -> TrainingTask:
        task = super().problem(prepared)
        if not self._inherited(task.problem):
            return task
        steps = self.plan.request.steps
        return replace(task, words=f"updating: one further network, {steps} steps")

    def training(self, prepared: RoutingPreparation) -> tuple[Problem, Settings]:
        """From the old networks, where they can be carried over; else as `cg4ai route` does."""
        try:
            return self._training(prepared)
        except InvalidInput as error:
            if prepared.instance.granularity is None or error.code != "infeasible":
                raise
            raise InvalidInput(
                f"{error}. An update keeps the granularity of the run: for another one train anew "
                "with cg4ai route",
                code="infeasible",
            ) from error

    def _training(self, prepared: RoutingPreparation) -> tuple[Problem, Settings]:
        steps = self.plan.request.steps
        asked = replace(prepared.settings, later_steps=steps)
        problem, settings = super().training(replace(prepared, settings=asked))
        parts = self._inherited(problem)
        if not parts:
            return super().training(prepared)
        start = (*problem.start, *((part.members, part.blocks) for part in parts))
        settings = replace(settings, iteration_limit=1, estimate_restarts=0)
        return replace(problem, start=start), settings

    def _inherited(self, problem: Problem) -> tuple[Part, ...]:
        """The networks of the old router in the architecture of the new one."""
        pricer = problem.pricers[0]
        assert isinstance(pricer, JointPricer)
        assert isinstance(pricer.architecture, ShieldedArchitecture)
        found = inherit_members(self.plan.whole.router, self.plan.mapping, pricer.architecture)
        return found.make_parts(self.plan.settings.device)

    def attach_journal(self, task: TrainingTask, run: Run | None) -> TrainingTask:
        """Keep the matrices that are learned from in the folder: studies of failures read them."""
        if run is not None and self.plan.stored is not None:
            write_traffic(run.folder / TRAFFIC_FILE, self.plan.stored)
        return super().attach_journal(task, run)

    def compare_later(self, later: LaterComparison, review: Review) -> None:
        later.judge_splits(BEFORE, self.plan.predict_before(later.vectors))

    def evaluate(
        self,
        prepared: RoutingPreparation,
        task: TrainingTask,
        solved: TrainingOutcome,
        review: Review,
    ) -> Evaluation:
        found = super().evaluate(prepared, task, solved, review)
        plan, router = self.plan, solved.result.ensemble
        made, asked = prepared.instance, prepared.settings
        best = found.arrays.get("optimal_mlu", np.zeros(0))
        drawn = made.sample(asked.validation, derive_seed(asked.seed, 0, "validation"))[: len(best)]
        edge = edge_vectors(made)
        answers: dict[str, Answer] = {
            "before": plan.predict_before,
            "after": lambda vectors: router.predict(vectors, outside="ignore"),
        }
        compared: dict[str, dict[str, float]] = {}
        for name, answer in answers.items():
            compared[name] = _compare(made, drawn, best, answer(drawn)) if len(best) else {}
            corner = made.compute_utilisation(edge, answer(edge)).max()
            worst = compared[name].get("worst_utilisation", 0.0)
            compared[name]["worst_utilisation"] = max(worst, float(corner))
        for name, figures in self._ratios(found.summary, answers).items():
            compared[name] |= figures
        certificate = check_certificate(plan.request.out, dict(solved.written))["certificate"]
        accepted = None
        if describe_unproven(made) is None:  # of very large networks there is no certificate
            accepted = bool(certificate and certificate["accepted"])
        inherited = self._inherited(task.problem)
        update = {
            "of": str(plan.request.folder),
            "by": "network" if plan.request.traffic is None else "traffic",
            "changes": list(plan.changes),
            "kept_networks": sum(len(part.members) for part in inherited),
            "trained_networks": solved.result.columns
            - sum(len(blocks) for _, blocks in task.problem.start),
            "steps": plan.request.steps,
            "original_s": plan.original_s,
            "certificate_accepted": accepted,
            **compared,
        }
        summary = finite(found.summary | {"update": update})
        return replace(found, summary=summary, kept=found.kept and accepted is not False)

    def _ratios(
        self, summary: Mapping[str, Any], answers: Mapping[str, Answer]
    ) -> dict[str, dict[str, float]]:
        """MLU over the optimum on new matrices, before and after, where there are some."""
        if "traffic" in summary:
            ratio = summary["traffic"]["ratio"]
            known = {"before": ratio[BEFORE], "after": ratio[OURS]}
        elif self.plan.judged is not None and len(self.plan.judged):
            made, vectors = self.plan.instance, self.plan.judged
            best = made.find_optimal(vectors).mlu
            known = {
                name: compute_figures(
                    made.compute_utilisation(vectors, answer(vectors)).max(axis=1) / best
                )
                for name, answer in answers.items()
            }
        else:
            return {}
        return {
            name: {"mean_ratio": one["mean"], "worst_ratio": one["worst"]}
            for name, one in known.items()
        }


def _compare(made: Instance, vectors: Array, best: Array, splits: Array) -> dict[str, float]:
    """What splits (n, P) lose to the best MLU (n,), and how they overload links."""
    reached = made.compute_utilisation(vectors, splits).max(axis=1)
    gap = reached - best
    return {
        "mean_mlu_gap": float(gap.mean()),
        "max_mlu_gap": float(gap.max()),
        "overloaded": float((reached > FEASIBLE).mean()),
        "worst_utilisation": float(reached.max()),
    }


def write_traffic(path: Path, traffic: Traffic) -> None:
    """As an archive that `read_traffic` reads."""
    packed = io.BytesIO()
    np.savez_compressed(
        packed,
        matrices=traffic.matrices,
        nodes=np.array(traffic.nodes),
        times=np.array(traffic.times),
    )
    runs.write_bytes(path, packed.getvalue())


def can_continue(out: Path, folder: Path, steps: int) -> bool:
    """Whether a folder holds an update of a run that has not come to its end.

    One that was begun with another number of steps is refused: it would go on as neither asked.
    """
    if not (out / "run.json").exists():
        return False
    run = Run.open(out, read_only=True)
    description = run.settings.get(DESCRIPTION) or {}
    summary = run.summary(compared=False)
    ended = summary is not None and complete(summary)
    if ended or description.get(UPDATE_OF) != str(folder.absolute()):
        return False
    begun = description.get(STEPS_ASKED, steps)
    if begun != steps:
        raise InvalidSettings(
            f"{out} holds an update that was interrupted, with --steps {begun} instead of {steps}: "
            "give the same to continue it, replace it with --force, or choose another --out"
        )
    return True
