"""The phases of a run: how each weighs, prices and decides; the loop only takes them in turn.

A run begins and ends in its first phase. `PlainPhase` looks for the best mixture without the rules,
which is the answer where it keeps them and what training under them starts from. `NormalPhase` is
column generation with cuts and a price on slack, `SlackPhase` minimises slack alone to tell whether
the rows can be met at all. A problem may bring phases of its own (`Problem.phases`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cg4ai.colgen import tolerances
from cg4ai.colgen.cutting import LAST_SEARCH, search_in_time, separate
from cg4ai.colgen.final_weights import choose_final_weights
from cg4ai.colgen.iteration import (
    ENDING_SHARE,
    SINGLE_SHARE,
    Continue,
    Decision,
    FinalSolution,
    MasterStep,
    PricingStatus,
    PricingStep,
    Stop,
    ask_pricers,
)
from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.colgen.result import settle
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.objectives import Objective, Supervised
from cg4ai.records import PLAIN, MasterSolution, StopReason
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

NORMAL, SLACK = "normal", "slack"
PLAIN_SHARE = 0.5  # of the limits on iterations, members and time, before the rules are bound


class Phase(Protocol):
    """One way to iterate. `run` is all that is known and may be changed; see `RunState`.

    `name` is its own among the run's phases and goes into checkpoints; `charges_loss` says whether
    members cost their loss in it, `binds_rules` whether the rules are rows of the master, and
    `ending_share` how much of the time limit training leaves to the ending. What a phase remembers
    beside `run` it gives to checkpoints by `state` and `restore` (`protocols.Stateful`).
    """

    name: str
    charges_loss: bool
    binds_rules: bool
    ending_share: float

    def enter(self, run: RunState) -> None:
        """Called when a decision names this phase, and before the ending for the first one."""
        ...

    def weigh(self, run: RunState) -> MasterStep:
        """Solve the master and cut."""
        ...

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        """Look for members that improve it and add them."""
        ...

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        """Go on, in this phase or another, or stop."""
        ...

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        """The weights to return; asked of the first phase once the run has ended."""
        ...


def build_phases(problem: CompiledProblem) -> Sequence[Phase]:
    """Column generation with cuts; first without the rules, where members are fitted to data."""
    ruled = (NormalPhase(), SlackPhase())
    asked = [one for pricer in problem.pricers for one in iterate_pricers(pricer)]
    fitted = any(one.capabilities.fits_data for one in asked)
    objective = problem.objective
    to_learn = isinstance(objective, Supervised) and objective.loss != "none"
    shielded = problem.shield is not None
    if shielded:  # without the rules that bound it, an objective may have no optimum
        to_learn = to_learn and not isinstance(objective, Objective)
    first = problem.stated.plain_first and (problem.requirements or shielded)
    return (PlainPhase(), *ruled) if first and to_learn and fitted else ruled


class PlainPhase:
    """The best mixture without the rules, as long as these cost nothing; then they are bound.

    Where the members of that mixture keep them at no cost, the run ends. If not, training under the
    rules goes on from there, and at once: members chosen round after round for the objective alone
    fit its rows by chance as well, and those that keep rules then find no place beside them.
    """

    name = PLAIN
    charges_loss = True
    binds_rules = False
    ending_share = ENDING_SHARE

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(False)

    def weigh(self, run: RunState) -> MasterStep:
        return MasterStep(run.solve_master())

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        over = self._over(run, weighed.solution) is not None
        if run.step and (over or self._share_spent(run)):
            return PricingStep(PricingStatus.NOTHING, weighed.solution)
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        if priced.outcome is PricingStatus.IMPROVED and self._free(run):
            return Continue()
        over = self._over(run, priced.solution)
        run.work.bind_rules()
        done = priced.trainings > 0 or over is not None  # else a share of the limits ended it
        if done and priced.outcome is PricingStatus.NOTHING:
            solution = run.solve_master()
            most = priced.solution.penalised + run.settings.epsilon
            if solution.penalised <= most and not run.has_unmet_rows(solution):
                decision = decide_ending(run, solution)
                if isinstance(decision, Stop):
                    return _kept(decision, over)
        return Continue("training under the rules", NORMAL)

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        if not run.work.rules_bound:
            run.notes.append("the run ended before members were trained under the rules")
            run.work.bind_rules()
        return replace(settle(run, reason), compares=True)

    @staticmethod
    def _over(run: RunState, solution: MasterSolution) -> StopReason | None:
        """Why training without the rules has come far enough; None: it has not."""
        if run.is_stalled():
            return StopReason.STALLED
        return StopReason.ROUND_LIMIT if run.has_trained_enough(solution) else None

    def _free(self, run: RunState) -> bool:
        """Whether the members there are keep all known rows as well as they fit without them."""
        with run.watch.measure_step("master"):
            plain, ruled = run.solve_whole_master(), run.work.solve_under_rules()
        return ruled.penalised <= plain.penalised + run.settings.epsilon and not run.has_unmet_rows(
            ruled
        )

    def _share_spent(self, run: RunState) -> bool:
        s = run.settings
        late = run.deadline.compute_seconds_left() < (1 - self._share_of_time(run)) * s.time_limit_s
        run.training_cut = run.training_cut or late
        return (
            late
            or run.step >= PLAIN_SHARE * s.iteration_limit
            or len(run.work.columns) >= PLAIN_SHARE * s.column_limit
        )

    @staticmethod
    def _share_of_time(run: RunState) -> float:
        return PLAIN_SHARE * (1 - SINGLE_SHARE if run.settings.single_model else 1.0)


def _kept(decision: Stop, over: StopReason | None) -> Stop:
    """The end of a run whose plain mixture keeps the rules."""
    reason = decision.reason
    if over is not None and reason is StopReason.NO_IMPROVING_COLUMN:
        reason = over
    return Stop(reason, f"{decision.note}; the rules are kept without training under them")


class NormalPhase:
    """Minimise the objective and the price of slack; cut, price, and settle on final weights."""

    name = NORMAL
    charges_loss = True
    binds_rules = True
    ending_share = ENDING_SHARE

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(False)

    def weigh(self, run: RunState) -> MasterStep:
        """Solve the master; with cuts "before", add violated rows until none or enough rounds."""
        counted = count_in_tail(run, run.solve_master())
        solution, worst = counted.solution, None
        if run.settings.cuts == "after":
            return counted
        for number in range(run.settings.cut_rounds):
            if number and run.training_deadline.passed:
                run.note_time()
                break  # the ending searches once more, in what time is left
            found = separate(run, run.work.ensemble(solution), f"cut {number}")
            seen = [one for one in (worst, found.worst) if one is not None]
            worst = max(seen, default=None)
            if not found.added:
                break
            solution = run.solve_master()
        return MasterStep(solution, worst, counted.raised)

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        if priced.outcome is not PricingStatus.NOTHING:
            return decide_while_pricing(run, priced)
        return self._nothing_improves(run, priced)

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        return settle(run, reason)

    def _nothing_improves(self, run: RunState, priced: PricingStep) -> Decision:
        """Choose between a higher price of slack, the slack phase, another try, cuts and a stop."""
        solution = priced.solution
        exact = priced.bound is not None or run.is_proven(solution)
        if run.has_unmet_rows(solution):
            if exact:
                return Continue("rows unmet: minimising slack alone", SLACK)
            if run.work.master.raise_penalty():
                return Continue(f"rows unmet: penalty raised to {run.work.master.penalty:g}")
        if not exact:
            run.failures += 1
            if run.failures < run.settings.patience:
                return Continue("no improving member, trying again")
        if run.settings.cuts == "after":
            found = separate(run, run.work.ensemble(solution), "after")
            if found.added:
                run.failures = 0
                return Continue(f"{found.added} cuts")
        return decide_ending(run, solution)


class PatchPhase(NormalPhase):
    """Weigh the members that there are, whatever slack costs; train only while rows are unmet.

    With `once` members are trained once in any case: few that are made for the added rows cost
    less accuracy elsewhere than new weights of those that are not.
    """

    def __init__(self, *, once: bool = False) -> None:
        self.once = once

    def weigh(self, run: RunState) -> MasterStep:
        weighed = super().weigh(run)
        while run.has_unmet_rows(weighed.solution) and run.work.master.raise_penalty():
            weighed = replace(weighed, solution=run.solve_master())
        return weighed

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        if run.has_unmet_rows(weighed.solution) or (self.once and not run.history):
            return super().price(run, weighed)
        return PricingStep(PricingStatus.NOTHING, weighed.solution)

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        if run.has_unmet_rows(priced.solution) or priced.outcome is not PricingStatus.NOTHING:
            return super().decide(run, weighed, priced)
        return decide_ending(run, priced.solution)


class SlackPhase:
    """Minimise slack alone, members cost nothing: infeasible if proven positive."""

    name = SLACK
    charges_loss = False
    binds_rules = True
    ending_share = ENDING_SHARE

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(True)

    def weigh(self, run: RunState) -> MasterStep:
        return count_in_tail(run, run.solve_master())

    def price(self, run: RunState, weighed: MasterStep) -> PricingStep:
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        """With least slack known: infeasible if proven positive, else back with a higher price."""
        bound, total = priced.bound, priced.solution.penalised
        least = bound is not None and total - bound <= tolerances.GAP_TOLERANCE * max(1.0, total)
        if priced.outcome is not PricingStatus.NOTHING and not least:
            return decide_while_pricing(run, priced)
        if bound is not None and bound > run.compute_slack_tolerance(priced.solution):
            run.notes.append(
                f"no mixture of members of this class meets the rows: their total slack is at "
                f"least {bound:.3g}"
            )
            return Stop(StopReason.INFEASIBLE, "infeasible")
        if run.work.master.raise_penalty():
            return Continue(f"penalty raised to {run.work.master.penalty:g}", NORMAL)
        if not run.has_unmet_rows(priced.solution):
            run.notes.append("the rows can be met, but not at this penalty: raise penalty_limit")
        return Stop(StopReason.NO_IMPROVING_COLUMN, "least slack found")

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        return settle(run, reason)


def decide_while_pricing(run: RunState, priced: PricingStep) -> Decision:
    """What follows as long as pricing has not come to an end."""
    if priced.outcome is PricingStatus.NO_ROOM:
        return Stop(StopReason.COLUMN_LIMIT, "no room for an improving group")
    if priced.outcome is PricingStatus.INCOMPLETE:
        return Continue("more pieces of the objective needed")
    run.failures = 0
    return Continue()


def decide_ending(run: RunState, solution: MasterSolution) -> Decision:
    """With nothing left to improve: stop, unless the final weights violate rows that cost."""
    checked = _check_final_weights(run, solution)
    if LAST_SEARCH in run.cut:
        return Stop(StopReason.TIME_LIMIT, "no improving member, no time for the last search")
    if checked.worse:
        run.failures = 0
        return Continue("the final weights violate new rows")
    if run.is_proven(checked.solution):
        return Stop(StopReason.OPTIMAL, "optimal")
    return Stop(StopReason.NO_IMPROVING_COLUMN, "no improving member")


def _check_final_weights(run: RunState, solution: MasterSolution) -> _Checked:
    """Solve with the rows that the final weights still violate, until there are none.

    If those make the master worse there may be members that improve again.
    """
    most = run.settings.epsilon if run.bound is None else run.compute_gap_tolerance(solution)
    checked = solution
    while run.returns < run.settings.final_rounds and not run.has_unmet_rows(solution):
        with run.watch.measure_step("master"):
            weights = choose_final_weights(run.work, checked)
        if not search_in_time(run, weights).added:
            break
        run.returns += 1
        checked = run.solve_master()
        if checked.penalised > solution.penalised + most:
            return _Checked(checked, worse=True)
    return _Checked(checked, worse=False)


def count_in_tail(run: RunState, solution: MasterSolution) -> MasterStep:
    """Count in inputs that the objective's mean hides; remember how much that raises it."""
    with run.watch.measure_step("separation"):
        found = run.work.add_tail(solution, derive_seed(run.settings.seed, run.step, "tail"))
    if not found:
        return MasterStep(solution)
    counted = run.solve_master()
    return MasterStep(counted, raised=counted.objective - solution.objective)


@dataclass(frozen=True, slots=True)
class _Checked:
    """The master with all rows that its final weights violated, and whether they cost much."""

    solution: MasterSolution
    worse: bool
