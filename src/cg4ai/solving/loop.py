"""THE loop: Algorithms 1 and 2 of the paper, with honest stops.

    solve master -> separate -> (new rows: solve again) -> price -> (new columns: repeat)
    -> nothing improves: final weights -> separate again -> ensemble and audits

The steps live elsewhere: `Workspace` holds columns, rows and the master; pricers train; separators
search (`cuts`); `RunState` keeps the books; `ending` makes the result. This file decides what
happens next and why the run ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from cg4ai.errors import SolverFailure
from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, IterationRecord, MasterSolution, StopReason
from cg4ai.rules.rows import Rows
from cg4ai.runs.folder import Run
from cg4ai.seeds import derived_seed
from cg4ai.settings import Settings
from cg4ai.solving.cuts import separate
from cg4ai.solving.ending import finish
from cg4ai.solving.interrupts import Interrupted, Interrupts
from cg4ai.solving.problem import Problem, Result
from cg4ai.solving.state import RunState
from cg4ai.solving.workspace import Workspace

Progress = Callable[[IterationRecord], None]


def solve(
    problem: Problem,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    run: Run | None = None,
) -> Result:
    """Train members until none improves the mixture, or a limit ends the run.

    `progress` is called after each iteration; `run` keeps history and checkpoints on disk and, if
    it already holds a checkpoint, the run continues from there to the identical result.
    """
    loop = _Loop(problem, settings or Settings(), run)
    with Interrupts() as interrupts:
        return loop.run(interrupts, progress)


class _Loop:
    def __init__(self, problem: Problem, settings: Settings, run: Run | None) -> None:
        self.problem = problem
        self.settings = settings
        self.run_folder = run
        self.state = RunState(problem, settings)
        if run is None or not self.state.resume(run):
            self.work.start()

    @property
    def work(self) -> Workspace:
        return self.state.work  # a checkpoint puts another in its place

    # ---- the run -----------------------------------------------------------------------------

    def run(self, interrupts: Interrupts, progress: Progress | None) -> Result:
        state = self.state
        state.started = time.perf_counter()
        reason = state.ended or self._limit(interrupts)
        while reason is None:
            try:
                reason = self.iterate(interrupts)
            except KeyboardInterrupt:
                reason = StopReason.INTERRUPTED
                break
            record = state.history[-1]
            if progress is not None:
                progress(record)
            if self.run_folder is not None:
                state.checkpoint(self.run_folder, record, reason)
            reason = reason or self._limit(interrupts)
        if not self.work.every_block_has_members:
            if reason is StopReason.INTERRUPTED:
                raise Interrupted(
                    "interrupted before every block had a member, so there is no mixture to "
                    "return; solve again, or resume the run if it has a folder"
                )
            raise SolverFailure(
                f"the run ended ({reason.value}) before every block had a member; raise the "
                "limits, or check that the pricers can train on these data"
            )
        return finish(state, reason, interrupts)

    def _limit(self, interrupts: Interrupts) -> StopReason | None:
        state = self.state
        if interrupts.requested:
            return StopReason.INTERRUPTED
        if len(self.work.columns) >= self.settings.column_limit:
            return StopReason.COLUMN_LIMIT
        if state.stalled():
            return StopReason.STALLED
        if len(state.history) >= self.settings.iteration_limit:
            return StopReason.ITERATION_LIMIT
        if state.history and state.elapsed() >= self.settings.time_limit_s:
            return StopReason.TIME_LIMIT
        return None

    def iterate(self, interrupts: Interrupts) -> StopReason | None:
        """One master solve with its cuts, then one pricing; returns why to stop, if so."""
        state = self.state
        before = dict(state.seconds)
        rows_before, columns_before = len(self.work.rows), len(self.work.columns)
        solution, worst = self.solve_and_cut(interrupts)
        admitted, best, bound_now = self.price(solution, interrupts)
        note, reason = "", None
        if admitted and not state.proven(solution):
            state.failures = 0
        elif not admitted and best is not None and best < -self.settings.epsilon:
            note, reason = "no room for an improving group", StopReason.COLUMN_LIMIT
        elif self.work.incomplete:
            note = "more pieces of the objective needed"
        else:
            if admitted or len(self.work.rows) > len(solution.slack):
                solution = state.solve_master()  # with the columns and rows that pricing left
            note, reason = self.nothing_improves(solution, bound_now, interrupts)
        state.record(solution, worst, best, note, before, (rows_before, columns_before))
        return reason

    # ---- master and cuts ---------------------------------------------------------------------

    def solve_and_cut(self, interrupts: Interrupts) -> tuple[MasterSolution, float | None]:
        """Solve the master; with cuts "before", add violated rows until none or enough rounds."""
        state = self.state
        solution = self._with_tail(state.solve_master())
        worst: float | None = None
        if self.settings.cuts == "after" or state.slack_phase:
            return solution, worst
        for number in range(self.settings.cut_rounds):
            worst, added = separate(
                state, self.work.ensemble(solution), f"cut {number}", interrupts
            )
            if not added:
                break
            solution = state.solve_master()
        return solution, worst

    def _with_tail(self, solution: MasterSolution) -> MasterSolution:
        """Count in inputs that the objective's mean hides; remember how much that raises it."""
        state = self.state
        state.raised = 0.0
        seed = derived_seed(self.settings.seed, state.step, "tail")
        if not self.work.add_tail(solution, seed):
            return solution
        counted = state.solve_master()
        state.raised = counted.objective - solution.objective
        return counted

    # ---- pricing -----------------------------------------------------------------------------

    def price(
        self, solution: MasterSolution, interrupts: Interrupts
    ) -> tuple[int, float | None, float | None]:
        """Ask the pricers, by smoothed duals first: (admitted, best reduced cost, bound)."""
        state = self.state
        started = time.perf_counter()
        state.trainings = 0
        guide = self.work.smoothed(solution.duals)
        attempts = [guide, solution.duals.rows]
        if np.array_equal(guide, solution.duals.rows):
            attempts = [guide]
        best: float | None = None
        bound: float | None = None
        admitted = 0
        met: list[Rows] = []
        for attempt, by in enumerate(attempts):
            lower: Array | None = np.zeros(len(self.problem.layout))
            for number, pricer in enumerate(self.problem.pricers):
                request = self._request(solution, by, f"pricing {number} {attempt}")
                with interrupts.allowed():
                    proposed = pricer.price(request)
                state.trainings += 1
                met.extend(proposed.rows)
                if proposed.lower_bound is None or lower is None:
                    lower = None
                else:
                    lower = np.minimum(lower, proposed.lower_bound)
                if proposed.members is not None and len(proposed.members):
                    count, reduced_cost = self.work.admit(
                        proposed, solution, slack_phase=state.slack_phase
                    )
                    admitted += count
                    best = reduced_cost if best is None else min(best, reduced_cost)
                if admitted:
                    break
            every = not admitted or len(self.problem.pricers) == 1
            holds = state.slack_phase or self.work.bounds_hold(solution)
            if lower is not None and every and holds:
                bound = self._lower_bound(solution, lower)
                if not state.slack_phase:
                    state.bound = bound if state.bound is None else max(state.bound, bound)
            if admitted or (lower is not None and lower.sum() >= -self.settings.epsilon):
                break
        for rows in met:
            self.work.add_cuts(rows)
        state.seconds["pricing"] += time.perf_counter() - started
        return admitted, best, bound

    def _lower_bound(self, solution: MasterSolution, lower: Array) -> float:
        """What no mixture of the class can be below, from a bound on each block's reduced cost.

        The master asks its rows for a margin that the rules themselves do not: it is given back.
        """
        known = solution.penalised - self.work.master_gap - self.state.price_of_margin(solution)
        return known + float(lower.sum())

    def _request(self, solution: MasterSolution, guide: Array, job: str) -> PricingRequest:
        return PricingRequest(
            iteration=self.state.step,
            seed=derived_seed(self.settings.seed, self.state.step, job),
            duals=solution.duals,
            guide=guide,
            rows=self.work.rows,
            objective=self.problem.objective,
            loss_weight=0.0 if self.state.slack_phase else 1.0,
            ensemble=self.work.ensemble(solution),
            device=self.settings.device,
            requirements=self.problem.requirements,
        )

    # ---- when pricing finds nothing ----------------------------------------------------------

    def nothing_improves(
        self, solution: MasterSolution, bound_now: float | None, interrupts: Interrupts
    ) -> tuple[str, StopReason | None]:
        """Decide between a higher penalty, the slack phase, another try, more cuts and a stop."""
        state = self.state
        exact = bound_now is not None or state.proven(solution)
        if state.slack_phase:
            return self._end_slack_phase(solution, bound_now)
        if state.unmet(solution):
            if exact:
                state.slack_phase = True
                self.work.master.minimise_slack(True)
                return "rows unmet: minimising slack alone", None
            if self.work.master.raise_penalty():
                return f"rows unmet: penalty raised to {self.work.master.penalty:g}", None
        if not exact:
            state.failures += 1
            if state.failures < self.settings.patience:
                return "no improving member, trying again", None
        if self.settings.cuts == "after":
            _, added = separate(state, self.work.ensemble(solution), "after", interrupts)
            if added:
                state.failures = 0
                return f"{added} cuts", None
        settled = self._settled(solution, interrupts)
        if settled is None:
            return "the final weights violate new rows", None
        if state.proven(settled):
            return "optimal", StopReason.OPTIMAL
        return "no improving member", StopReason.NO_IMPROVING_COLUMN

    def _settled(self, solution: MasterSolution, interrupts: Interrupts) -> MasterSolution | None:
        """The solution whose final weights violate no input that is not a row already.

        None, and back to pricing, if the rows that were missing make the master worse: with them
        there may be members that improve again.
        """
        state = self.state
        most = self.settings.epsilon if state.bound is None else state.gap_allowed(solution)
        settled = solution
        while state.returns < self.settings.final_rounds and not state.unmet(solution):
            ensemble = self.work.whole_ensemble(self.work.final_weights(settled))
            _, added = separate(state, ensemble, f"last {state.returns}", interrupts, last=True)
            if not added:
                break
            state.returns += 1
            settled = state.solve_master()
            if settled.penalised > solution.penalised + most:
                state.failures = 0
                return None
        return settled

    def _end_slack_phase(
        self, solution: MasterSolution, bound_now: float | None
    ) -> tuple[str, StopReason | None]:
        """With least slack known: infeasible if proven positive, else back with a higher price."""
        state = self.state
        if bound_now is not None and bound_now > self.settings.feasibility_tolerance:
            state.notes.append(
                f"no mixture of members of this class meets the rows: their total slack is at "
                f"least {bound_now:.3g}"
            )
            return "infeasible", StopReason.INFEASIBLE
        state.slack_phase = False
        self.work.master.minimise_slack(False)
        if self.work.master.raise_penalty():
            return f"penalty raised to {self.work.master.penalty:g}", None
        if not state.unmet(solution):
            state.notes.append("the rows can be met, but not at this penalty: raise penalty_limit")
        return "least slack found", StopReason.NO_IMPROVING_COLUMN
