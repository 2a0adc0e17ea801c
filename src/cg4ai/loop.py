"""THE loop: Algorithms 1 and 2 of the paper, with honest stops.

    solve master -> separate -> (new rows: solve again) -> price -> (new columns: repeat)
    -> nothing improves: final weights -> separate again -> ensemble and audits

The steps live elsewhere: `Workspace` holds columns, rows and the master; pricers train; separators
search. This file decides what happens next and why the run ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cg4ai import snapshots
from cg4ai.audits import audit
from cg4ai.ensemble import Ensemble
from cg4ai.errors import SolverFailure
from cg4ai.interrupts import Interrupted, Interrupts
from cg4ai.lean import Lean
from cg4ai.problem import Problem, Result
from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, IterationRecord, MasterSolution, StopReason
from cg4ai.rows import Rows
from cg4ai.runs import Run
from cg4ai.seeds import derived_seed
from cg4ai.separation import default_separator
from cg4ai.settings import Settings
from cg4ai.workspace import Workspace

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
        self.work = Workspace(problem, settings)
        self.history: list[IterationRecord] = []
        self.bound: float | None = None
        self.failures = 0
        self.returns = 0
        self.slack_phase = False
        self.raised = 0.0
        self.trainings = 0
        self.elapsed_before = 0.0
        self.ended: StopReason | None = None
        self.seconds = {"master": 0.0, "pricing": 0.0, "separation": 0.0}
        self.notes: list[str] = []
        if run is None or not self._resume(run):
            self.work.start()

    # ---- the run -----------------------------------------------------------------------------

    def run(self, interrupts: Interrupts, progress: Progress | None) -> Result:
        self.started = time.perf_counter()
        reason = self.ended or self._limit(interrupts)
        while reason is None:
            try:
                reason = self.iterate(interrupts)
            except KeyboardInterrupt:
                reason = StopReason.INTERRUPTED
                break
            record = self.history[-1]
            if progress is not None:
                progress(record)
            if self.run_folder is not None:
                self._checkpoint(self.run_folder, record, reason)
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
        return self.finish(reason, interrupts)

    def iterate(self, interrupts: Interrupts) -> StopReason | None:
        """One master solve with its cuts, then one pricing; returns why to stop, if so."""
        before = dict(self.seconds)
        rows_before, columns_before = len(self.work.rows), len(self.work.columns)
        solution, worst = self.solve_and_cut(interrupts)
        admitted, best, bound_now = self.price(solution, interrupts)
        note, reason = "", None
        if admitted and not self._proven(solution):
            self.failures = 0
        elif not admitted and best is not None and best < -self.settings.epsilon:
            note, reason = "no room for an improving group", StopReason.COLUMN_LIMIT
        elif self.work.incomplete:
            note = "more pieces of the objective needed"
        else:
            if admitted or len(self.work.rows) > len(solution.slack):
                solution = self._solve_master()  # with the columns and rows that pricing left
            note, reason = self.nothing_improves(solution, bound_now, interrupts)
        self._record(solution, worst, best, note, before, (rows_before, columns_before))
        return reason

    # ---- master and cuts ---------------------------------------------------------------------

    def solve_and_cut(self, interrupts: Interrupts) -> tuple[MasterSolution, float | None]:
        """Solve the master; with cuts "before", add violated rows until none or enough rounds."""
        solution = self._with_tail(self._solve_master())
        worst: float | None = None
        if self.settings.cuts == "after" or self.slack_phase:
            return solution, worst
        for number in range(self.settings.cut_rounds):
            worst, added = self.separate(self.work.ensemble(solution), f"cut {number}", interrupts)
            if not added:
                break
            solution = self._solve_master()
        return solution, worst

    def _with_tail(self, solution: MasterSolution) -> MasterSolution:
        """Count in inputs that the objective's mean hides; remember how much that raises it."""
        self.raised = 0.0
        seed = derived_seed(self.settings.seed, self._step(), "tail")
        if not self.work.add_tail(solution, seed):
            return solution
        counted = self._solve_master()
        self.raised = counted.objective - solution.objective
        return counted

    def separate(
        self, ensemble: Ensemble | None, job: str, interrupts: Interrupts, *, last: bool = False
    ) -> tuple[float | None, int]:
        """Look for violated inputs of every region and pool; add them: (worst, rows added)."""
        if ensemble is None:
            return None, 0
        started = time.perf_counter()
        worst: float | None = None
        added = 0
        for number, requirement in enumerate(self.problem.requirements):
            if requirement.region is None:
                continue
            separator = requirement.separator or default_separator(
                requirement, ensemble.differentiable
            )
            if last:
                separator = separator.thorough()
            seed = derived_seed(self.settings.seed, self._step(), f"{job} {number}")
            with interrupts.allowed():
                found = separator.find(
                    ensemble,
                    requirement,
                    seed=seed,
                    limit=self.settings.cuts_per_round,
                    tolerance=self.settings.feasibility_tolerance - self.settings.row_margin / 2,
                )
            worst = found.worst if worst is None else max(worst, found.worst)
            if found.rows is not None and len(found.rows):
                added += self.work.add_cuts(replace(found.rows, requirement=number))
        self.seconds["separation"] += time.perf_counter() - started
        return worst, added

    # ---- pricing -----------------------------------------------------------------------------

    def price(
        self, solution: MasterSolution, interrupts: Interrupts
    ) -> tuple[int, float | None, float | None]:
        """Ask the pricers, by smoothed duals first: (admitted, best reduced cost, bound)."""
        started = time.perf_counter()
        self.trainings = 0
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
                self.trainings += 1
                met.extend(proposed.rows)
                if proposed.lower_bound is None or lower is None:
                    lower = None
                else:
                    lower = np.minimum(lower, proposed.lower_bound)
                if proposed.members is not None and len(proposed.members):
                    count, reduced_cost = self.work.admit(
                        proposed, solution, slack_phase=self.slack_phase
                    )
                    admitted += count
                    best = reduced_cost if best is None else min(best, reduced_cost)
                if admitted:
                    break
            every = not admitted or len(self.problem.pricers) == 1
            holds = self.slack_phase or self.work.bounds_hold(solution)
            if lower is not None and every and holds:
                bound = self._lower_bound(solution, lower)
                if not self.slack_phase:
                    self.bound = bound if self.bound is None else max(self.bound, bound)
            if admitted or (lower is not None and lower.sum() >= -self.settings.epsilon):
                break
        for rows in met:
            self.work.add_cuts(rows)
        self.seconds["pricing"] += time.perf_counter() - started
        return admitted, best, bound

    def _lower_bound(self, solution: MasterSolution, lower: Array) -> float:
        """What no mixture of the class can be below, from a bound on each block's reduced cost.

        The master asks its rows for a margin that the rules themselves do not: it is given back.
        """
        known = solution.penalised - self.work.master_gap - self._price_of_margin(solution)
        return known + float(lower.sum())

    def _price_of_margin(self, solution: MasterSolution) -> float:
        """What asking the rows for a margin adds to the optimum."""
        prices = solution.duals.rows  # rows that came since have none
        prices = prices[self.work.requirement_rows()[: len(prices)]]
        return self.settings.row_margin * float(prices.sum())

    def _request(self, solution: MasterSolution, guide: Array, job: str) -> PricingRequest:
        return PricingRequest(
            iteration=self._step(),
            seed=derived_seed(self.settings.seed, self._step(), job),
            duals=solution.duals,
            guide=guide,
            rows=self.work.rows,
            objective=self.problem.objective,
            loss_weight=0.0 if self.slack_phase else 1.0,
            ensemble=self.work.ensemble(solution),
            device=self.settings.device,
            requirements=self.problem.requirements,
        )

    # ---- when pricing finds nothing ----------------------------------------------------------

    def nothing_improves(
        self, solution: MasterSolution, bound_now: float | None, interrupts: Interrupts
    ) -> tuple[str, StopReason | None]:
        """Decide between a higher penalty, the slack phase, another try, more cuts and a stop."""
        exact = bound_now is not None or self._proven(solution)
        if self.slack_phase:
            return self._end_slack_phase(solution, bound_now)
        if self._unmet(solution):
            if exact:
                self.slack_phase = True
                self.work.master.minimise_slack(True)
                return "rows unmet: minimising slack alone", None
            if self.work.master.raise_penalty():
                return f"rows unmet: penalty raised to {self.work.master.penalty:g}", None
        if not exact:
            self.failures += 1
            if self.failures < self.settings.patience:
                return "no improving member, trying again", None
        if self.settings.cuts == "after":
            _, added = self.separate(self.work.ensemble(solution), "after", interrupts)
            if added:
                self.failures = 0
                return f"{added} cuts", None
        settled = self._settled(solution, interrupts)
        if settled is None:
            return "the final weights violate new rows", None
        if self._proven(settled):
            return "optimal", StopReason.OPTIMAL
        return "no improving member", StopReason.NO_IMPROVING_COLUMN

    def _proven(self, solution: MasterSolution) -> bool:
        """Whether the rows are met and the bound is as close as the settings ask."""
        if self.bound is None or self.slack_phase or self.work.incomplete:
            return False
        gap = solution.objective - self.bound - self._price_of_margin(solution)
        return gap <= self._gap_allowed(solution) and not self._unmet(solution)

    def _gap_allowed(self, solution: MasterSolution) -> float:
        return self.settings.gap_tolerance * max(1.0, abs(solution.objective))

    def _settled(self, solution: MasterSolution, interrupts: Interrupts) -> MasterSolution | None:
        """The solution whose final weights violate no input that is not a row already.

        None, and back to pricing, if the rows that were missing make the master worse: with them
        there may be members that improve again.
        """
        most = self.settings.epsilon if self.bound is None else self._gap_allowed(solution)
        settled = solution
        while self.returns < self.settings.final_rounds and not self._unmet(solution):
            ensemble = self.work.whole_ensemble(self.work.final_weights(settled))
            _, added = self.separate(ensemble, f"last {self.returns}", interrupts, last=True)
            if not added:
                break
            self.returns += 1
            settled = self._solve_master()
            if settled.penalised > solution.penalised + most:
                self.failures = 0
                return None
        return settled

    def _end_slack_phase(
        self, solution: MasterSolution, bound_now: float | None
    ) -> tuple[str, StopReason | None]:
        """With least slack known: infeasible if proven positive, else back with a higher price."""
        if bound_now is not None and bound_now > self.settings.feasibility_tolerance:
            self.notes.append(
                f"no mixture of members of this class meets the rows: their total slack is at "
                f"least {bound_now:.3g}"
            )
            return "infeasible", StopReason.INFEASIBLE
        self.slack_phase = False
        self.work.master.minimise_slack(False)
        if self.work.master.raise_penalty():
            return f"penalty raised to {self.work.master.penalty:g}", None
        if not self._unmet(solution):
            self.notes.append("the rows can be met, but not at this penalty: raise penalty_limit")
        return "least slack found", StopReason.NO_IMPROVING_COLUMN

    # ---- the end -----------------------------------------------------------------------------

    def finish(self, reason: StopReason, interrupts: Interrupts) -> Result:
        """Final weights, separated again until nothing is found; then audits of every rule."""
        if self.slack_phase:
            self.work.master.minimise_slack(False)
            self.slack_phase = False
        lean = Lean(
            self.work, self.settings.lean, solve=self._solve_whole_master, unmet=self._unmet
        )
        solution = lean.reduced(self._solve_whole_master())
        weights = self.work.final_weights(solution)
        rounds = self.settings.final_rounds - self.returns
        if reason is StopReason.INTERRUPTED:
            rounds = 0
        for number in range(rounds):
            ensemble = self.work.whole_ensemble(weights)
            try:
                _, added = self.separate(ensemble, f"final {number}", interrupts, last=True)
            except KeyboardInterrupt:
                reason = StopReason.INTERRUPTED
                break
            if not added:
                break
            solution = lean.checked(self._solve_whole_master())
            weights = self.work.final_weights(solution)
        if reason is StopReason.OPTIMAL and not self._proven(solution):
            reason = StopReason.NO_IMPROVING_COLUMN
            self.notes.append(
                "optimal but for the members left out (lean)"
                if len(lean.barred)
                else "optimal for the rows known before the final weights were checked"
            )
        self.work.note_dummies(solution)
        ensemble = self.work.whole_ensemble(weights)
        audits = tuple(
            audit(requirement, ensemble, tolerance=10 * self.settings.feasibility_tolerance)
            for requirement in self.problem.requirements
        )
        return Result(
            ensemble=ensemble,
            stop_reason=reason,
            objective=solution.objective,
            loss=self.work.true_loss(ensemble),
            bound=self.bound,
            slack=self._lacking(solution),
            columns=len(self.work.columns),
            rows=len(self.work.rows),
            audits=audits,
            history=tuple(self.history),
            note="; ".join([*self.notes, *self.work.notes]),
            seconds=self._elapsed(),
            rule_rows=int(self.work.requirement_rows().sum()),
        )

    # ---- book-keeping ------------------------------------------------------------------------

    def _step(self) -> int:
        return len(self.history)

    def _elapsed(self) -> float:
        return self.elapsed_before + time.perf_counter() - self.started

    def _lacking(self, solution: MasterSolution) -> float:
        """The largest slack of a row, or the largest weight left on a dummy column."""
        return float(max(solution.slack.max(initial=0.0), solution.dummy.max(initial=0.0)))

    def _unmet(self, solution: MasterSolution) -> bool:
        return self._lacking(solution) > self.settings.feasibility_tolerance

    def _limit(self, interrupts: Interrupts) -> StopReason | None:
        if interrupts.requested:
            return StopReason.INTERRUPTED
        if len(self.work.columns) >= self.settings.column_limit:
            return StopReason.COLUMN_LIMIT
        if self._stalled():
            return StopReason.STALLED
        if len(self.history) >= self.settings.iteration_limit:
            return StopReason.ITERATION_LIMIT
        if self.history and self._elapsed() >= self.settings.time_limit_s:
            return StopReason.TIME_LIMIT
        return None

    def _resume(self, run: Run) -> bool:
        """Continue from the run's last checkpoint, if it has one."""
        saved = run.load_checkpoint()
        run.truncate_history(-1 if saved is None else saved.iteration)
        if saved is None:
            return False
        if saved.note:
            self.notes.append(saved.note)
        snapshot = snapshots.Snapshot(saved.meta["work"], saved.arrays, saved.members)
        self.work = snapshots.restore(snapshot, self.problem, self.settings)
        self.history = [IterationRecord(**record) for record in run.history()]
        state = saved.meta["loop"]
        self.bound, self.failures = state["bound"], state["failures"]
        self.returns, self.notes = state["returns"], [*state["notes"], *self.notes]
        self.slack_phase, self.elapsed_before = state["slack_phase"], state["elapsed"]
        self.ended = None if state["ended"] is None else StopReason(state["ended"])
        return True

    def _checkpoint(self, run: Run, record: IterationRecord, ended: StopReason | None) -> None:
        """Save all, then continue from what was saved, as a resumed run would."""
        run.append_history(record)
        snapshot = snapshots.take(self.work)
        state = {
            "bound": self.bound,
            "failures": self.failures,
            "returns": self.returns,
            "notes": self.notes,
            "slack_phase": self.slack_phase,
            "elapsed": self._elapsed(),
            "ended": None if ended is None else ended.value,
        }
        meta = {"loop": state, "work": snapshot.meta}
        run.save_checkpoint(record.iteration, meta, snapshot.arrays, snapshot.members)
        self.work = snapshots.restore(snapshot, self.problem, self.settings)

    def _stalled(self) -> bool:
        """Whether the rows are met and the objective hardly fell over the last iterations."""
        s = self.settings
        recent = self.history[-s.improvement_window - 1 :]
        if s.improvement_tolerance == 0 or len(recent) <= s.improvement_window:
            return False
        met = all(record.slack <= s.feasibility_tolerance for record in recent)
        raised = sum(record.raised for record in recent[1:])
        fell = recent[0].objective - recent[-1].objective + raised
        return met and fell < s.improvement_tolerance * abs(recent[-1].objective)

    def _solve_master(self) -> MasterSolution:
        started = time.perf_counter()
        solution = self.work.solve_master()
        self.seconds["master"] += time.perf_counter() - started
        return solution

    def _solve_whole_master(self) -> MasterSolution:
        """With every piece of the objective that matters, however many solves that takes."""
        solution = self._solve_master()
        while self.work.incomplete:
            solution = self._solve_master()
        return solution

    def _record(
        self,
        solution: MasterSolution,
        worst: float | None,
        best: float | None,
        note: str,
        before: dict[str, float],
        sizes: tuple[int, int],
    ) -> None:
        spent = {name: self.seconds[name] - before[name] for name in before}
        self.history.append(
            IterationRecord(
                iteration=self._step(),
                objective=solution.objective,
                slack=self._lacking(solution),
                worst_violation=worst,
                best_reduced_cost=best,
                bound=self.bound,
                columns=len(self.work.columns),
                rows=len(self.work.rows),
                added_rows=len(self.work.rows) - sizes[0],
                added_columns=len(self.work.columns) - sizes[1],
                penalty=self.work.master.penalty,
                master_s=spent["master"],
                pricing_s=spent["pricing"],
                separation_s=spent["separation"],
                total_s=self._elapsed(),
                note=note,
                raised=self.raised,
                trainings=self.trainings,
            )
        )
