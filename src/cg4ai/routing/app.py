"""The routing application: `cg4ai route` from network to proven, shielded or attacked router.

Beside what every run folder holds there is `cuts.jsonl`, one line per demand vector that separation
or an attack while training found (see journal.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from cg4ai import Ensemble, Problem, Settings, clock, runs, solve
from cg4ai.apps import (
    Evaluation,
    Solver,
    TrainedModel,
    TrainingOutcome,
    TrainingTask,
    describe_mixture,
    solve_plainly,
)
from cg4ai.clock import Review
from cg4ai.colgen import Callbacks, IterationRecord, derive_seed
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.guarantees import Strength, record_regions
from cg4ai.report import SavedRun, Story, finite
from cg4ai.routing.demands.priorities import with_priorities
from cg4ai.routing.demands.scaling import FACTOR, REAL, format_notice, real_figures
from cg4ai.routing.evaluate import (
    evaluate,
    evaluate_further,
    measure_fallback,
    measure_rounding,
    plain_router,
)
from cg4ai.routing.network.description import (
    PRIORITIES,
    Router,
    describe_instance,
    restore_instance,
)
from cg4ai.routing.network.instance import Instance, instance, round_answers_of
from cg4ai.routing.operate.answers import (
    FALLBACK,
    PRICES,
    LowerBound,
    compute_stored_prices,
    get_known_prices,
)
from cg4ai.routing.operate.carried import measure_classes
from cg4ai.routing.operate.churn import CHURN, ChurnLimit
from cg4ai.routing.options import ALL, AUTO, CAPACITIES_AUTO, HISTORY
from cg4ai.routing.pages.guarantees import is_ratio_kept
from cg4ai.routing.pages.journal import CutJournal
from cg4ai.routing.pages.judged_traffic import OURS, PLAIN
from cg4ai.routing.prove.attack import FEASIBLE
from cg4ai.routing.settings import USUAL_PRUNE, Recipe, RouteSettings
from cg4ai.routing.train.effort import has_choice
from cg4ai.routing.train.granular import restore_granularity
from cg4ai.routing.train.problem import (
    attacked_problem,
    capacity,
    routing_problem,
    routing_settings,
    shielded_problem,
    tree_problem,
)
from cg4ai.routing.train.shield import record_cuts
from cg4ai.routing.train.size_limits import (
    describe_unproven,
    refuse_large_study,
    refuse_too_large,
)
from cg4ai.routing.train.utilisation import PathCost
from cg4ai.runs import Run

if TYPE_CHECKING:
    from cg4ai.routing.demands.history import MeasuredHistory
    from cg4ai.routing.demands.measured import MeasuredTraffic
    from cg4ai.routing.network.network import Network
    from cg4ai.routing.operate.later_traffic import LaterComparison
    from cg4ai.routing.prove.ratio import RatioAnchor

EVALUATION_S = 30.0  # kept of a time limit at most: an evaluation takes 5 to 20 s of a free core
WITH_BASELINE = 0.6  # of a time limit for what comes after training: plain networks train as long


@dataclass(frozen=True)
class RoutingPreparation:
    """What was asked for, the instance it is about, and measured traffic where there is some.

    `history`: the windows of it, where the router is to split the next matrix by the last ones.
    """

    settings: RouteSettings
    instance: Instance
    measured: MeasuredTraffic | None = None
    history: MeasuredHistory | None = None

    @cached_property
    def ratio(self) -> RatioAnchor | None:
        """What a ratio to the optimum rests on; None if none was asked for."""
        asked = self.settings
        if asked.ratio is None:
            return None
        from cg4ai.routing.prove.ratio import ratio_anchor

        target = max(asked.ratio, 1.0)  # which auto never reaches
        return ratio_anchor(self.instance, target=target, leaves=asked.ratio_leaves)


def solve_until_proven(
    problem: Problem,
    settings: Settings,
    *,
    progress: Callable[[IterationRecord], None] | None,
    run: Run | None,
    callbacks: Callbacks | None = None,
) -> TrainingOutcome:
    """Train until the whole box is proven, or a limit ends it."""
    from cg4ai.routing.prove.guarantee import train_certified

    outcome = train_certified(problem, settings, progress=progress, run=run, callbacks=callbacks)
    return TrainingOutcome(outcome.result, proof=outcome.certification)


@dataclass(frozen=True, kw_only=True)
class LeafProvingSolver:
    """Trains trees, which keep the capacities by themselves, and proves them afterwards."""

    instance: Instance

    def __call__(
        self,
        problem: Problem,
        settings: Settings,
        *,
        progress: Callable[[IterationRecord], None] | None,
        run: Run | None,
        callbacks: Callbacks | None = None,
    ) -> TrainingOutcome:
        from cg4ai import certify
        from cg4ai.routing.prove.guarantee import LEAST_S

        started = clock.now()
        result = solve(problem, settings, progress=progress, run=run, callbacks=callbacks)
        rule = capacity(self.instance, RouteSettings(network=self.instance.name))
        left = settings.time_limit_s - result.seconds
        proof = certify(result.ensemble, rule, time_limit_s=max(left, LEAST_S))
        if proof.status != "proven" and clock.now() >= started + settings.time_limit_s:
            result = replace(result, cut=(*result.cut, "the proof"))
        return TrainingOutcome(result, proof=proof)


class Routing:
    """Routers of one network; see `cg4ai.apps.protocol` for what the parts do."""

    name = "route"
    settings = RouteSettings
    preparing = ""
    may_differ = (
        *("time_limit_s", "training_limit_s", "prune", "baseline", "demand_file"),
        *("path_file", "priority_file", "traffic", "validation", "failures", "jobs", "fallback"),
        "churn",
        # whether the paths are others is seen from the paths
        *("path_choice", "max_hops", "max_latency"),
    )

    def prepare(
        self, settings: RouteSettings, described: Mapping[str, Any] | None
    ) -> RoutingPreparation:
        if settings.traffic is not None:
            return self._measured(settings, described)
        made = (
            _finished(self.make_instance(settings), settings)
            if described is None
            else restore_instance(described)
        )
        if settings.objective == "cost":
            PathCost(made)  # refuses a network without lengths
        _check_failures(settings, made)
        refuse_too_large(made, settings)
        return RoutingPreparation(settings, made)

    def _measured(
        self, settings: RouteSettings, described: Mapping[str, Any] | None
    ) -> RoutingPreparation:
        """The set is made from the earlier matrices alone."""
        from cg4ai.routing.demands.measured import USUAL_LOAD, MeasuredTraffic, measured_instance
        from cg4ai.routing.demands.traffic_files import read_traffic

        assert settings.traffic is not None
        with clock.review().stage(f"reading {settings.traffic}"):
            earlier, later = read_traffic(settings.traffic, settings.network).split(settings.split)
        if described is not None:
            made = restore_instance(described, from_traffic=True)
        else:
            scale = settings.scale_capacities
            made = measured_instance(
                settings.network,
                earlier,
                settings.demands or None,  # none or all: the whole matrix
                settings.paths,
                None if scale != CAPACITIES_AUTO and settings.load == USUAL_LOAD else settings.load,
                path_file=settings.path_file,
                path_choice=settings.chosen_paths,
                max_hops=settings.max_hops,
                max_latency=settings.max_latency,
                disjoint_pairs=settings.failures is not None,
                cover=settings.cover,
                headroom=settings.headroom,
                # splits for an unknown matrix are kept within capacities at the corner of a box
                hose=not settings.no_hose and settings.history is None,
                least=settings.min_demand,
                scale_capacities=cast('float | Literal["auto"] | None', scale),
            )
            made = _finished(made, settings)
        _check_failures(settings, made)
        refuse_too_large(made, settings)
        measured = MeasuredTraffic.from_traffic(made, earlier, later, whole=not settings.demands)
        if settings.history is None:
            return RoutingPreparation(settings, made, measured)
        from cg4ai.routing.demands.history import MeasuredHistory, note_history

        history = MeasuredHistory.from_traffic(made, earlier, later, length=settings.history)
        if described is None:
            made = note_history(made, history, hose=not settings.no_hose)
        return RoutingPreparation(settings, made, measured, history)

    def make_instance(self, settings: RouteSettings, network: Network | None = None) -> Instance:
        """The instance that the settings describe; `network`: what their network is, if known."""
        return instance(
            settings.network if network is None else network,
            "all" if settings.demands == ALL else settings.demands,
            settings.paths,
            load=settings.load,
            demand_file=settings.demand_file,
            path_file=settings.path_file,
            path_choice=settings.chosen_paths,
            max_hops=settings.max_hops,
            max_latency=settings.max_latency,
            disjoint_pairs=settings.failures is not None,
            least=settings.min_demand,
            hose=settings.hose,
            budget=settings.budget,
        )

    def describe(self, prepared: RoutingPreparation) -> dict[str, Any]:
        history = prepared.history
        windows = {} if history is None else {HISTORY: {"length": history.length}}
        return describe_instance(prepared.instance) | windows

    def problem(self, prepared: RoutingPreparation) -> TrainingTask:
        problem, settings = self.training(prepared)
        asked, demands = _fill_defaults(prepared), len(prepared.instance.demand_max)
        settings = replace(settings, n_jobs=asked.jobs)
        recipe: Recipe = asked.fill_defaults(demands, joint=asked.joint)
        solver: Solver = solve_plainly
        later = f"{recipe.later_steps} the others"
        if asked.guarantee == "certified" and asked.members == "tree":
            solver = LeafProvingSolver(instance=prepared.instance)
        elif asked.guarantee == "certified":
            from cg4ai.guarantees import ProofRecipe, ProofTraining
            from cg4ai.routing.prove.guarantee import fill_certified_defaults

            recipe = fill_certified_defaults(asked, demands)
            settings = replace(settings, iteration_limit=ProofRecipe().rounds)
            solver = solve_until_proven
            later = f"{ProofTraining().steps} the others, each proven as far as it goes"
        what = "networks" if asked.joint else "groups of networks"
        steps = f", {recipe.first_steps} steps the first, {later}"
        if asked.members != "network":
            what = "trees" if asked.members == "tree" else "networks and trees"
            steps = f", trees of up to {recipe.leaves} leaves"
        words = (
            f"training: up to {settings.iteration_limit} {what} that split {demands} demands{steps}"
        )
        made = prepared.instance
        unproven = [describe_unproven(made)] if asked.guarantee == "shielded" else []
        alone = [] if has_choice(made) else ["each demand has one path: there is nothing to learn"]
        notes = [*made.notes, *alone, *filter(None, unproven)]
        words = "\n".join([*format_notice(made.capacity_factor), *notes, words])
        task = TrainingTask(problem, settings, words, solver=solver, evaluation_most_s=EVALUATION_S)
        if asked.baseline:
            task = replace(task, evaluation_share=WITH_BASELINE, evaluation_most_s=math.inf)
        return task

    def reopen(self, settings: RouteSettings, described: Mapping[str, Any] | None) -> TrainingTask:
        return self.problem(self.prepare(settings, described))

    def attach_journal(self, task: TrainingTask, run: Run | None) -> TrainingTask:
        if run is None or not task.problem.requirements:
            return task
        journal = CutJournal(run, task.settings)
        heard = journal.listen(task.problem)
        return replace(task, problem=heard, heard=journal.end_iteration, journal=journal)

    def training(self, prepared: RoutingPreparation) -> tuple[Problem, Settings]:
        """The problem and how the loop is to solve it; an experiment may have another."""
        asked = _fill_defaults(prepared)
        settings = routing_settings(
            prepared.instance,
            asked,
            time_limit_s=asked.training_limit_s,
            prune=USUAL_PRUNE if asked.prune is None else asked.prune,
            joint=asked.joint,
        )
        settings = replace(settings, single_model=asked.single_model)
        if prepared.history is not None:
            from cg4ai.routing.train.history_problem import history_problem

            return history_problem(prepared.instance, prepared.history, asked), settings
        if prepared.measured is not None:
            from cg4ai.routing.train.traffic_problem import traffic_problem

            return traffic_problem(prepared.instance, prepared.measured, asked), settings
        if asked.guarantee == "shielded":
            inner = None
            if prepared.ratio is not None:
                from cg4ai.routing.prove.ratio import ratio_shield

                inner = ratio_shield(prepared.instance, prepared.ratio)
            return shielded_problem(prepared.instance, asked, ratio=inner), settings
        stated: Callable[[Instance, RouteSettings], Problem] = routing_problem
        if asked.members == "tree":
            stated = tree_problem
        elif asked.guarantee == "attacked":
            stated = attacked_problem
        elif asked.guarantee == "certified":
            from cg4ai.routing.prove.guarantee import certified_problem

            stated = certified_problem
        return stated(prepared.instance, asked), settings

    def conclude(
        self,
        prepared: RoutingPreparation,
        task: TrainingTask,
        solved: TrainingOutcome,
        run: Run | None,
    ) -> TrainingOutcome:
        made, asked, router = prepared.instance, prepared.settings, solved.result.ensemble
        # by path cost the optimum is another, and of a matrix to come none is known
        if asked.objective != "cost" and prepared.history is None:
            router.about[PRICES] = compute_stored_prices(
                made,
                router,
                get_known_prices(task.problem),
                seed=derive_seed(asked.seed, 0, "prices"),
            )
            if asked.fallback is not None:
                router.about[FALLBACK] = asked.fallback
        if asked.churn is not None:
            router.about[CHURN] = asked.churn
        written: dict[str, Any] = {}
        refused = False
        if run is not None and solved.proof is not None and solved.proof.status == "proven":
            from cg4ai.routing.prove.guarantee import write_proof

            # the certificate speaks of what the mixture says of itself
            router.about.update(describe_mixture(self, prepared))
            written |= write_proof(run.folder, made, router, solved.proof)
        if (
            asked.joint and asked.guarantee != "attacked"
        ):  # its rule is no row of the master, but has its region
            stated = None
            if prepared.history is not None:
                from cg4ai.routing.train.history_problem import capacity_of_splits

                stated = capacity_of_splits(made)
            rule = stated or capacity(made, asked)
            record_regions(router, (rule,), inputs=task.problem.objective.inputs)
            shielded = asked.guarantee == "shielded"
            if run is not None and shielded and describe_unproven(made) is None:
                from cg4ai.routing.prove.guarantee import write_shield_proof

                router.about.update(describe_mixture(self, prepared))
                written |= write_shield_proof(run.folder, made, router, stated)
                refused = not written
            if prepared.ratio is not None and shielded:
                from cg4ai.routing.prove.ratio_proof import write_ratio

                folder = None if run is None else run.folder
                written |= write_ratio(folder, made, router, prepared.ratio)
        return replace(solved, written=written, refused=refused)

    def evaluate(
        self,
        prepared: RoutingPreparation,
        task: TrainingTask,
        solved: TrainingOutcome,
        review: Review,
    ) -> Evaluation:
        made, asked, result = prepared.instance, prepared.settings, solved.result
        measured = prepared.measured
        if prepared.history is not None:
            return self._evaluate_history(prepared, task, solved, review)
        later = None
        if measured is not None:  # plain networks are measured on the traffic instead
            from cg4ai.routing.operate.later_traffic import LaterComparison

            asked = replace(asked, baseline=False)
            # first: it is what such a run is judged by
            later = LaterComparison(made, measured, review)
            later.judge(OURS, result.ensemble)
        found = evaluate(made, asked, task.problem, result, review)
        more: dict[str, Any] = {"agent_scope": asked.agent_scope}
        if later is not None:
            if prepared.settings.baseline and review.begin_step("a plain network, to compare"):
                later.judge(PLAIN, plain_router(task.problem, asked, result, review.deadline))
            if asked.churn is not None and review.begin_step("successive answers under --churn"):
                more[CHURN] = self._judge_changes(prepared, later, result.ensemble)
            self.compare_later(later, review)
            found = evaluate_further(made, result.ensemble, found, later.of_set)
            more["traffic"] = later.found
        summary, arrays = found.summary | more, dict(found.arrays)
        arrays |= {} if later is None else later.arrays
        violated = summary["strength"] == Strength.VIOLATED
        if solved.proof is not None:
            from cg4ai.routing.prove.guarantee import proof_summary

            summary |= proof_summary(made, solved.proof)
        summary |= solved.written
        if solved.proof is not None and violated:
            summary["strength"] = Strength.VIOLATED  # by a vector found after the proof
        if solved.refused and asked.agent_scope != "all" and found.kept:
            summary["strength"] = Strength.UNVERIFIED  # that budgets suffice wants the proof
        kept = found.kept
        about, granular = result.ensemble.about, restore_granularity(made, result.ensemble)
        bound = _bound(made, about.get(PRICES))
        if bound is not None and FALLBACK in about and asked.agent_scope == "all":
            gap = about[FALLBACK]
            summary[FALLBACK] = measure_fallback(made, result.ensemble, bound, gap, seed=asked.seed)
        if made.priorities is not None:
            summary[PRIORITIES] = measure_classes(made)
        if granular is not None:
            summary |= {"granularity": measure_rounding(granular, result.ensemble, asked.seed)}
            kept &= summary["granularity"]["worst_utilisation"] <= FEASIBLE
        if isinstance(task.journal, CutJournal):
            arrays |= task.journal.to_arrays()
            if "cut_demands" in arrays:
                record_cuts(made, result.ensemble, arrays["cut_demands"])
        kept &= summary["strength"] == asked.guarantee
        if prepared.settings.churn is not None:  # without traffic nothing is measured of it
            summary.setdefault(CHURN, {"bound": prepared.settings.churn})
        kept &= summary.get(CHURN, {}).get("worst_utilisation", 0.0) <= FEASIBLE
        if prepared.ratio is not None:
            summary["ratio_asked"] = None if asked.ratio == AUTO else asked.ratio
            kept &= is_ratio_kept(summary)
        return _with_real_figures(made, summary, arrays, kept=kept)

    def _judge_changes(
        self, prepared: RoutingPreparation, later: LaterComparison, router: Ensemble
    ) -> dict[str, Any]:
        """What the bound on changes does to the answers for the later matrices."""
        made, granular = prepared.instance, restore_granularity(prepared.instance, router)
        assert prepared.settings.churn is not None
        assert prepared.measured is not None
        limit = ChurnLimit(made, prepared.settings.churn, made.granularity)
        vectors = prepared.measured.later

        def answer(some: slice) -> Array:
            splits = router.predict(vectors[some], outside="ignore")
            return splits if granular is None else granular.round_answers(vectors[some], splits)

        return later.judge_changes(limit, answer)

    def _evaluate_history(
        self,
        prepared: RoutingPreparation,
        task: TrainingTask,
        solved: TrainingOutcome,
        review: Review,
    ) -> Evaluation:
        from cg4ai.routing.operate.later_history import evaluate_history

        assert prepared.measured is not None
        assert prepared.history is not None
        found = evaluate_history(
            prepared.instance,
            prepared.settings,
            task.problem,
            solved.result,
            measured=prepared.measured,
            history=prepared.history,
            review=review,
        )
        summary = found.summary | dict(solved.written)
        return _with_real_figures(prepared.instance, summary, found.arrays, kept=found.kept)

    def compare_later(self, later: LaterComparison, review: Review) -> None:
        """Add what the router is compared with on later traffic."""
        later.compare(review)

    def restore(
        self, ensemble: Ensemble, description: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> TrainedModel:
        from cg4ai.routing.train.agents import find_budgets

        made = restore_instance(description, from_traffic=settings.get("traffic") is not None)
        if HISTORY in description:
            from cg4ai.routing.operate.history_router import restore_history_router

            churn = _share(description.get(CHURN))
            return restore_history_router(made, description[HISTORY], ensemble, churn)
        sizes = (len(made.demand_names), len(made.paths))
        if sizes != (ensemble.input_size, ensemble.output_size):
            raise RunFolderError(
                f"the run names {sizes[0]} demands and {sizes[1]} paths, but its mixture has "
                f"{ensemble.input_size} and {ensemble.output_size}: restore it from a copy",
                code="altered",
            )
        bound = _bound(made, description.get(PRICES))
        local = find_budgets(made, ensemble)
        agents = local is not None or settings.get("agent_scope", "all") != "all"
        gap, granular = _gap(description.get(FALLBACK)), restore_granularity(made, ensemble)
        return Router(made, local, bound, agents, gap, granular, _share(description.get(CHURN)))

    def story(self, summary: Mapping[str, Any], saved: SavedRun | None = None) -> Story:
        from cg4ai.routing.pages.report import make_routing_story

        return make_routing_story(summary, saved)


def _fill_defaults(prepared: RoutingPreparation) -> RouteSettings:
    """The settings, with the usual of a router that reads a history, or that has no choice."""
    settings = prepared.settings
    if not has_choice(prepared.instance) and settings.joint:
        settings = replace(
            settings,
            first_steps=settings.first_steps or 1,
            later_steps=settings.later_steps or 1,
            rounds=settings.rounds or 1,
        )
    if prepared.history is None:
        return settings
    from cg4ai.routing.train.history_problem import fill_history_defaults

    return fill_history_defaults(settings)


def _with_real_figures(
    made: Instance, summary: dict[str, Any], arrays: Mapping[str, Array], *, kept: bool
) -> Evaluation:
    """The evaluation, with what utilisations of counted capacities are of the real ones."""
    factor, own = made.capacity_factor, dict(arrays)
    if factor is not None and factor != 1.0:
        summary[REAL] = real_figures(summary, factor)
        own[FACTOR] = np.array([factor])  # of all utilisations among the arrays
    return Evaluation(finite(summary), kept, own)


def _bound(made: Instance, prices: Any) -> LowerBound | None:
    """What prices of links prove; None where none are stored."""
    if prices is None:
        return None
    try:
        if not isinstance(prices, list):
            raise ValueError(f"prices must be a list, got {prices!r:.80}")
        rows = [runs.finite_numbers(one, "a vector of prices") for one in prices]
        return LowerBound(made, np.array(rows)) if rows else None
    except ValueError as error:
        raise RunFolderError(
            f"the run's prices of links cannot be read ({error}): restore it from a copy"
        ) from error


def _finished(made: Instance, settings: RouteSettings) -> Instance:
    """The instance with what is asked for of its answers."""
    if settings.granularity is not None:
        made = round_answers_of(made, settings.granularity)
    return made if settings.priority_file is None else with_priorities(made, settings.priority_file)


def _gap(value: Any) -> float | None:
    """The gap of the fallback; None: none was asked for, or the run is of an earlier version."""
    if value is not None and (type(value) not in (int, float) or not value >= 0):
        raise RunFolderError(
            f"the run's fallback is {value!r:.80}, not a gap of at least 0: restore it from a copy"
        )
    return None if value is None else float(value)


def _share(value: Any) -> float | None:
    """The bound of changes; None: there is none."""
    if value is not None and (type(value) not in (int, float) or not 0 <= value <= 1):
        raise RunFolderError(
            f"the run's bound of changes is {value!r:.80}, not a share from 0 to 1: restore it "
            "from a copy"
        )
    return None if value is None else float(value)


def _check_failures(settings: RouteSettings, made: Instance) -> None:
    """Refuse failures that cannot be read now: after the training it would be too late."""
    if settings.failures is None:
        return
    from cg4ai.routing.operate.link_failures import failures_of

    failures = failures_of(settings.failures, made)
    for failure in failures:
        if failure.fault:
            raise InvalidInput(failure.fault)
    refuse_large_study(made, len(failures))


APPLICATION = Routing()
