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

from cg4ai.colgen.cutting import LAST_SEARCH, search_in_time, separate
from cg4ai.colgen.final_weights import choose_final_weights
from cg4ai.colgen.iteration import (
    ENDING_SHARE,
    SINGLE_SHARE,
    Decision,
    GoOn,
    Outcome,
    Priced,
    Settled,
    Stop,
    Weighed,
    ask_pricers,
)
from cg4ai.colgen.pricing.defaults import pricers_within
from cg4ai.colgen.result import settle
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.objectives import Objective, Supervised
from cg4ai.records import PLAIN, MasterSolution, StopReason
from cg4ai.seeds import derived_seed

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

    def weigh(self, run: RunState) -> Weighed:
        """Solve the master and cut."""
        ...

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        """Look for members that improve it and add them."""
        ...

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        """Go on, in this phase or another, or stop."""
        ...

    def settle(self, run: RunState, reason: StopReason) -> Settled:
        """The weights to return; asked of the first phase once the run has ended."""
        ...


def usual_phases(problem: CompiledProblem) -> Sequence[Phase]:
    """Column generation with cuts; first without the rules, where members are fitted to data."""
    ruled = (NormalPhase(), SlackPhase())
    asked = [one for pricer in problem.pricers for one in pricers_within(pricer)]
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

    def weigh(self, run: RunState) -> Weighed:
        return Weighed(run.solve_master())

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        if run.step and (run.stalled() or self._share_spent(run)):
            return Priced(Outcome.NOTHING, weighed.solution)
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        if priced.outcome is Outcome.IMPROVED and self._free(run):
            return GoOn()
        run.work.bind_rules()
        stalled = run.stalled()
        done = priced.trainings > 0 or stalled  # else a share of the limits ended it
        if done and priced.outcome is Outcome.NOTHING:
            solution = run.solve_master()
            most = priced.solution.penalised + run.settings.epsilon
            if solution.penalised <= most and not run.unmet(solution):
                decision = ending(run, solution)
                if isinstance(decision, Stop):
                    return _kept(decision, stalled=stalled)
        return GoOn("training under the rules", NORMAL)

    def settle(self, run: RunState, reason: StopReason) -> Settled:
        if not run.work.rules_bound:
            run.notes.append("the run ended before members were trained under the rules")
            run.work.bind_rules()
        return replace(settle(run, reason), compares=True)

    def _free(self, run: RunState) -> bool:
        """Whether the members there are keep all known rows as well as they fit without them."""
        with run.watch.timed("master"):
            plain, ruled = run.solve_whole_master(), run.work.under_rules()
        return ruled.penalised <= plain.penalised + run.settings.epsilon and not run.unmet(ruled)

    def _share_spent(self, run: RunState) -> bool:
        s = run.settings
        late = run.deadline.left() < (1 - self._share_of_time(run)) * s.time_limit_s
        run.training_cut = run.training_cut or late
        return (
            late
            or run.step >= PLAIN_SHARE * s.iteration_limit
            or len(run.work.columns) >= PLAIN_SHARE * s.column_limit
        )

    @staticmethod
    def _share_of_time(run: RunState) -> float:
        return PLAIN_SHARE * (1 - SINGLE_SHARE if run.settings.single_model else 1.0)


def _kept(decision: Stop, *, stalled: bool) -> Stop:
    """The end of a run whose plain mixture keeps the rules."""
    reason = decision.reason
    if stalled and reason is StopReason.NO_IMPROVING_COLUMN:
        reason = StopReason.STALLED
    return Stop(reason, f"{decision.note}; the rules are kept without training under them")


class NormalPhase:
    """Minimise the objective and the price of slack; cut, price, and settle on final weights."""

    name = NORMAL
    charges_loss = True
    binds_rules = True
    ending_share = ENDING_SHARE

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(False)

    def weigh(self, run: RunState) -> Weighed:
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
            worst = found.worst
            if not found.added:
                break
            solution = run.solve_master()
        return Weighed(solution, worst, counted.raised)

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        if priced.outcome is not Outcome.NOTHING:
            return while_pricing(run, priced)
        return self._nothing_improves(run, priced)

    def settle(self, run: RunState, reason: StopReason) -> Settled:
        return settle(run, reason)

    def _nothing_improves(self, run: RunState, priced: Priced) -> Decision:
        """Choose between a higher price of slack, the slack phase, another try, cuts and a stop."""
        solution = priced.solution
        exact = priced.bound is not None or run.proven(solution)
        if run.unmet(solution):
            if exact:
                return GoOn("rows unmet: minimising slack alone", SLACK)
            if run.work.master.raise_penalty():
                return GoOn(f"rows unmet: penalty raised to {run.work.master.penalty:g}")
        if not exact:
            run.failures += 1
            if run.failures < run.settings.patience:
                return GoOn("no improving member, trying again")
        if run.settings.cuts == "after":
            found = separate(run, run.work.ensemble(solution), "after")
            if found.added:
                run.failures = 0
                return GoOn(f"{found.added} cuts")
        return ending(run, solution)


class PatchPhase(NormalPhase):
    """Weigh the members that there are, whatever slack costs; train only while rows are unmet.

    With `once` members are trained once in any case: few that are made for the added rows cost
    less accuracy elsewhere than new weights of those that are not.
    """

    def __init__(self, *, once: bool = False) -> None:
        self.once = once

    def weigh(self, run: RunState) -> Weighed:
        weighed = super().weigh(run)
        while run.unmet(weighed.solution) and run.work.master.raise_penalty():
            weighed = replace(weighed, solution=run.solve_master())
        return weighed

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        if run.unmet(weighed.solution) or (self.once and not run.history):
            return super().price(run, weighed)
        return Priced(Outcome.NOTHING, weighed.solution)

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        if run.unmet(priced.solution) or priced.outcome is not Outcome.NOTHING:
            return super().decide(run, weighed, priced)
        return ending(run, priced.solution)


class SlackPhase:
    """Minimise slack alone, members cost nothing: infeasible if proven positive."""

    name = SLACK
    charges_loss = False
    binds_rules = True
    ending_share = ENDING_SHARE

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(True)

    def weigh(self, run: RunState) -> Weighed:
        return count_in_tail(run, run.solve_master())

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        """With least slack known: infeasible if proven positive, else back with a higher price."""
        bound, total = priced.bound, priced.solution.penalised
        least = bound is not None and total - bound <= run.settings.gap_tolerance * max(1.0, total)
        if priced.outcome is not Outcome.NOTHING and not least:
            return while_pricing(run, priced)
        if bound is not None and bound > run.slack_allowed(priced.solution):
            run.notes.append(
                f"no mixture of members of this class meets the rows: their total slack is at "
                f"least {bound:.3g}"
            )
            return Stop(StopReason.INFEASIBLE, "infeasible")
        if run.work.master.raise_penalty():
            return GoOn(f"penalty raised to {run.work.master.penalty:g}", NORMAL)
        if not run.unmet(priced.solution):
            run.notes.append("the rows can be met, but not at this penalty: raise penalty_limit")
        return Stop(StopReason.NO_IMPROVING_COLUMN, "least slack found")

    def settle(self, run: RunState, reason: StopReason) -> Settled:
        return settle(run, reason)


def while_pricing(run: RunState, priced: Priced) -> Decision:
    """What follows as long as pricing has not come to an end."""
    if priced.outcome is Outcome.NO_ROOM:
        return Stop(StopReason.COLUMN_LIMIT, "no room for an improving group")
    if priced.outcome is Outcome.INCOMPLETE:
        return GoOn("more pieces of the objective needed")
    run.failures = 0
    return GoOn()


def ending(run: RunState, solution: MasterSolution) -> Decision:
    """With nothing left to improve: stop, unless the final weights violate rows that cost."""
    checked = _check_final_weights(run, solution)
    if LAST_SEARCH in run.cut:
        return Stop(StopReason.TIME_LIMIT, "no improving member, no time for the last search")
    if checked.worse:
        run.failures = 0
        return GoOn("the final weights violate new rows")
    if run.proven(checked.solution):
        return Stop(StopReason.OPTIMAL, "optimal")
    return Stop(StopReason.NO_IMPROVING_COLUMN, "no improving member")


def _check_final_weights(run: RunState, solution: MasterSolution) -> _Checked:
    """Solve with the rows that the final weights still violate, until there are none.

    If those make the master worse there may be members that improve again.
    """
    most = run.settings.epsilon if run.bound is None else run.gap_allowed(solution)
    checked = solution
    while run.returns < run.settings.final_rounds and not run.unmet(solution):
        with run.watch.timed("master"):
            weights = choose_final_weights(run.work, checked)
        if not search_in_time(run, weights).added:
            break
        run.returns += 1
        checked = run.solve_master()
        if checked.penalised > solution.penalised + most:
            return _Checked(checked, worse=True)
    return _Checked(checked, worse=False)


def count_in_tail(run: RunState, solution: MasterSolution) -> Weighed:
    """Count in inputs that the objective's mean hides; remember how much that raises it."""
    with run.watch.timed("separation"):
        found = run.work.add_tail(solution, derived_seed(run.settings.seed, run.step, "tail"))
    if not found:
        return Weighed(solution)
    counted = run.solve_master()
    return Weighed(counted, raised=counted.objective - solution.objective)


@dataclass(frozen=True, slots=True)
class _Checked:
    """The master with all rows that its final weights violated, and whether they cost much."""

    solution: MasterSolution
    worse: bool
