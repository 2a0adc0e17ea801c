"""The phases of a run: how each weighs, prices and decides; the loop only takes them in turn.

A run begins and ends in its first phase. `NormalPhase` is column generation with cuts and a price
on slack, `SlackPhase` minimises slack alone to tell whether the rows can be met at all. A problem
may bring phases of its own (`Problem.phases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cg4ai.records import MasterSolution, StopReason
from cg4ai.seeds import derived_seed
from cg4ai.solving.result import settle
from cg4ai.solving.steps import (
    LAST_SEARCH,
    Decision,
    GoOn,
    Outcome,
    Priced,
    Settled,
    Stop,
    Weighed,
    ask_pricers,
    search_in_time,
    separate,
)

if TYPE_CHECKING:
    from cg4ai.solving.state import RunState

NORMAL, SLACK = "normal", "slack"


class Phase(Protocol):
    """One way to iterate. `run` is all that is known and may be changed; see `RunState`.

    `name` is its own among the run's phases and goes into checkpoints; `charges_loss` says whether
    members cost their loss in it. What a phase remembers beside `run` it gives to checkpoints by
    `state` and `restore` (`protocols.Stateful`).
    """

    name: str
    charges_loss: bool

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


class NormalPhase:
    """Minimise the objective and the price of slack; cut, price, and settle on final weights."""

    name = NORMAL
    charges_loss = True

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
        checked = self._check_final_weights(run, solution)
        if LAST_SEARCH in run.cut:
            return Stop(StopReason.TIME_LIMIT, "no improving member, no time for the last search")
        if checked.worse:
            run.failures = 0
            return GoOn("the final weights violate new rows")
        if run.proven(checked.solution):
            return Stop(StopReason.OPTIMAL, "optimal")
        return Stop(StopReason.NO_IMPROVING_COLUMN, "no improving member")

    def _check_final_weights(self, run: RunState, solution: MasterSolution) -> _Checked:
        """Solve with the rows that the final weights still violate, until there are none.

        If those make the master worse there may be members that improve again.
        """
        most = run.settings.epsilon if run.bound is None else run.gap_allowed(solution)
        checked = solution
        while run.returns < run.settings.final_rounds and not run.unmet(solution):
            with run.watch.timed("master"):
                weights = run.work.final_weights(checked)
            if not search_in_time(run, weights).added:
                break
            run.returns += 1
            checked = run.solve_master()
            if checked.penalised > solution.penalised + most:
                return _Checked(checked, worse=True)
        return _Checked(checked, worse=False)


class SlackPhase:
    """Minimise slack alone, members cost nothing: infeasible if proven positive."""

    name = SLACK
    charges_loss = False

    def enter(self, run: RunState) -> None:
        run.work.master.minimise_slack(True)

    def weigh(self, run: RunState) -> Weighed:
        return count_in_tail(run, run.solve_master())

    def price(self, run: RunState, weighed: Weighed) -> Priced:
        return ask_pricers(run, weighed.solution)

    def decide(self, run: RunState, weighed: Weighed, priced: Priced) -> Decision:
        """With least slack known: infeasible if proven positive, else back with a higher price."""
        if priced.outcome is not Outcome.NOTHING:
            return while_pricing(run, priced)
        bound = priced.bound
        if bound is not None and bound > run.settings.feasibility_tolerance:
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
