"""What a run knows beside its columns and rows: history, bound, seconds; saved and resumed here."""

from __future__ import annotations

import time

from cg4ai.records import IterationRecord, MasterSolution, StopReason
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings
from cg4ai.solving import snapshots
from cg4ai.solving.problem import Problem
from cg4ai.solving.workspace import Workspace


class RunState:
    """The book-keeping that the steps of the loop share."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        self.problem = problem
        self.settings = settings
        self.work = Workspace(problem, settings)
        self.history: list[IterationRecord] = []
        self.bound: float | None = None
        self.failures = 0  # pricings in a row that found nothing
        self.returns = 0  # how often the final weights violated new rows
        self.slack_phase = False
        self.raised = 0.0  # by how much inputs counted in now raised the objective
        self.trainings = 0  # of this iteration
        self.started = 0.0
        self.elapsed_before = 0.0
        self.ended: StopReason | None = None
        self.seconds = {"master": 0.0, "pricing": 0.0, "separation": 0.0}
        self.notes: list[str] = []

    @property
    def step(self) -> int:
        return len(self.history)

    def elapsed(self) -> float:
        return self.elapsed_before + time.perf_counter() - self.started

    def lacking(self, solution: MasterSolution) -> float:
        """The largest slack of a row, or the largest weight left on a dummy column."""
        return float(max(solution.slack.max(initial=0.0), solution.dummy.max(initial=0.0)))

    def unmet(self, solution: MasterSolution) -> bool:
        return self.lacking(solution) > self.settings.feasibility_tolerance

    def proven(self, solution: MasterSolution) -> bool:
        """Whether the rows are met and the bound is as close as the settings ask."""
        if self.bound is None or self.slack_phase or self.work.incomplete:
            return False
        gap = solution.objective - self.bound - self.price_of_margin(solution)
        return gap <= self.gap_allowed(solution) and not self.unmet(solution)

    def gap_allowed(self, solution: MasterSolution) -> float:
        return self.settings.gap_tolerance * max(1.0, abs(solution.objective))

    def price_of_margin(self, solution: MasterSolution) -> float:
        """What asking the rows for a margin adds to the optimum."""
        prices = solution.duals.rows  # rows that came since have none
        prices = prices[self.work.requirement_rows()[: len(prices)]]
        return self.settings.row_margin * float(prices.sum())

    def stalled(self) -> bool:
        """Whether the rows are met and the objective hardly fell over the last iterations."""
        s = self.settings
        recent = self.history[-s.improvement_window - 1 :]
        if s.improvement_tolerance == 0 or len(recent) <= s.improvement_window:
            return False
        met = all(record.slack <= s.feasibility_tolerance for record in recent)
        raised = sum(record.raised for record in recent[1:])
        fell = recent[0].objective - recent[-1].objective + raised
        return met and fell < s.improvement_tolerance * abs(recent[-1].objective)

    # ---- the master ---------------------------------------------------------------------------

    def solve_master(self) -> MasterSolution:
        started = time.perf_counter()
        solution = self.work.solve_master()
        self.seconds["master"] += time.perf_counter() - started
        return solution

    def solve_whole_master(self) -> MasterSolution:
        """With every piece of the objective that matters, however many solves that takes."""
        solution = self.solve_master()
        while self.work.incomplete:
            solution = self.solve_master()
        return solution

    # ---- history and checkpoints --------------------------------------------------------------

    def record(
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
                iteration=self.step,
                objective=solution.objective,
                slack=self.lacking(solution),
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
                total_s=self.elapsed(),
                note=note,
                raised=self.raised,
                trainings=self.trainings,
            )
        )

    def resume(self, run: Run) -> bool:
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

    def checkpoint(self, run: Run, record: IterationRecord, ended: StopReason | None) -> None:
        """Save all, then continue from what was saved, as a resumed run would."""
        run.append_history(record)
        snapshot = snapshots.take(self.work)
        state = {
            "bound": self.bound,
            "failures": self.failures,
            "returns": self.returns,
            "notes": self.notes,
            "slack_phase": self.slack_phase,
            "elapsed": self.elapsed(),
            "ended": None if ended is None else ended.value,
        }
        meta = {"loop": state, "work": snapshot.meta}
        run.save_checkpoint(record.iteration, meta, snapshot.arrays, snapshot.members)
        self.work = snapshots.restore(snapshot, self.problem, self.settings)
