"""How far from optimal a run is that proved no bound: members priced once more, when it is over.

They are trained from many starts at the final duals, or priced exactly where their kind allows, and
never enter the mixture. docs/mathematics.md says what the estimate estimates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cg4ai import clock
from cg4ai.colgen.iteration import FinalSolution, build_request, is_same_optimum
from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.problem import find_softmax_groups
from cg4ai.objectives import Objective, Pinball, Supervised
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import Array, GapEstimate, MasterSolution, StopReason
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

SHARE = 0.1  # of the run's training, in steps, that an estimate may take
PART = "the estimate of the optimality gap"
NEVER_NEGATIVE = ("squared", "absolute", "cross_entropy", "error", "none")


def estimate_distance(run: RunState, settled: FinalSolution) -> GapEstimate | None:
    """What is known of the distance from optimal without a bound of the whole class.

    None where there is such a bound, also by this pricing, or one model was asked for.
    """
    if run.bound is not None or settled.single is not None:
        return None
    least = find_floor(run.problem)
    if settled.reason is StopReason.INFEASIBLE or run.has_unmet_rows(settled.solution):
        return GapEstimate(why="not all rows are met")
    why = _not_asked(run, settled)
    if why:
        return GapEstimate(why=why, floor=least)
    try:
        with run.watch.measure_step("estimate"), clock.review().stage(PART):
            solution = _final(run, settled)
            found = _asked(run, solution)
        run.has_time(PART)
    except KeyboardInterrupt:
        run.interrupts.requested = True
        return GapEstimate(why="it was interrupted", floor=least)
    return _stated(run, solution, found, least)


def find_floor(problem: CompiledProblem) -> float | None:
    """What no mixture's objective is below, whatever its members; None: not known."""
    objective = problem.objective
    if not isinstance(objective, Supervised):
        return objective.floor if objective.least is None else objective.least
    if isinstance(objective, Objective):
        return None
    probabilities = objective.loss == "log_loss" and bool(find_softmax_groups(problem))
    sure = objective.loss in NEVER_NEGATIVE or isinstance(objective.loss, Pinball)
    return 0.0 if sure or probabilities else None


def _not_asked(run: RunState, settled: FinalSolution) -> str:
    """Why nothing is priced any more, in words; empty if it is."""
    if settled.reason is StopReason.INTERRUPTED or run.interrupts.requested:
        return "it was interrupted"
    if run.settings.estimate_restarts == 0:
        return "estimate_restarts is 0"
    trainings = _trainings(run)
    if not trainings:
        return "no member was trained"
    spent = sum(record.pricing_s for record in run.history)
    needed = spent / trainings * _share(run) * len(run.pricers)
    return "" if run.has_time(PART, needed=needed) else "the time limit left no time for it"


def _trainings(run: RunState) -> int:
    return sum(record.trainings or 0 for record in run.history)


def _share(run: RunState) -> float:
    """Of an ordinary call of each pricer: the run's pricings are known, its seconds vary.

    Those that proposed nothing may have trained nothing.
    """
    made = [one.trainings or 0 for one in run.history if one.best_reduced_cost is not None]
    return min(1.0, SHARE * max(1, sum(made)) / len(run.pricers))


def _final(run: RunState, settled: FinalSolution) -> MasterSolution:
    """The master's own optimum, whose duals price all rows and all members."""
    left_out = run.settings.prune > 0 and isinstance(run.work.master, LinearMaster)
    if left_out and isinstance(run.work.master, LinearMaster):
        run.work.master.bar(np.empty(0, np.int64))
    if left_out or len(settled.solution.duals.rows) != len(run.work.rows):
        return run.solve_whole_master()
    return settled.solution


@dataclass(frozen=True, slots=True)
class _Found:
    """Least reduced costs (G,) of members that were trained, and of kinds priced exactly.

    `lower` is proven of the kinds `exact`; `whole` says whether those are all that there are.
    """

    lowest: Array
    lower: Array
    restarts: int
    exact: tuple[str, ...]
    whole: bool


def _asked(run: RunState, solution: MasterSolution) -> _Found:
    """Every pricer once, briefly, at the true duals."""
    lowest, lower = (np.zeros(len(run.problem.layout)) for _ in range(2))
    restarts, exact, whole = 0, dict[str, None](), True
    probe = Probe(run.settings.estimate_restarts, _share(run))
    for number, pricer in enumerate(run.pricers):
        request = _request(run, solution, number)
        with run.interrupts.allow_interrupts():
            proposed = pricer.for_estimate(probe).price(request)
            if proposed.members is not None and len(proposed.members):
                costs = compute_reduced_costs(request, proposed.members, proposed.blocks)
                costs = np.where(np.isfinite(costs), costs, np.inf)
                np.minimum.at(lowest, proposed.blocks, costs)
        if proposed.lower_bound is None:
            whole = False
            restarts += proposed.trained
        else:
            lower = np.minimum(lower, proposed.lower_bound)
            exact[_kind(pricer)] = None
    return _Found(lowest, lower, restarts, tuple(exact), whole)


def _request(run: RunState, solution: MasterSolution, number: int) -> PricingRequest:
    """Its seed does not depend on the iteration, so that a run resumed at its end does the same."""
    return replace(
        build_request(run, solution, solution.duals.rows, "estimate"),
        seed=derive_seed(run.settings.seed, 0, f"estimate {number}"),
        requirements=run.problem.requirements,
        loss_weight=1.0,
        until=run.deadline.ends,
    )


def _kind(pricer: Pricer) -> str:
    """What a pricer that proved a bound calls its members."""
    named = [one.capabilities.proves for one in iterate_pricers(pricer)]
    return next(filter(None, named), f"members of {type(pricer).__name__}")


def _stated(
    run: RunState, solution: MasterSolution, found: _Found, least: float | None
) -> GapEstimate | None:
    if not run.work.are_bounds_valid(solution):
        return GapEstimate(why="no mixture is optimal yet", floor=least)
    paid = solution.penalised - run.work.master.gap - run.compute_margin_price(solution)
    exact = bool(found.exact) and not run.work.restricted
    bound = paid + float(found.lower.sum()) if exact else None
    if bound is not None and least is not None:
        bound = max(bound, least)
    if exact and found.whole:
        run.bound = bound
        return None
    known = GapEstimate(
        exact=found.exact if exact else (), bound=bound, floor=least, short=run.deadline.passed
    )
    tried = run.tried
    value = solution.penalised + float(np.minimum(found.lowest, found.lower).sum())
    if tried is not None and is_same_optimum(tried.penalised, solution.penalised):
        known, value = replace(known, earlier=tried.trained), min(value, tried.estimate)
    elif tried is not None and not found.restarts:
        known, value = replace(known, earlier=tried.trained, last=True), tried.estimate
    elif not found.restarts:
        return replace(known, why="nothing was trained at the final duals")
    value = value if least is None else max(value, least)
    return replace(known, value=value, restarts=found.restarts)
