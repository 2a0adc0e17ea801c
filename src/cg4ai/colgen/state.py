"""What a run knows, what its steps share, and how that is stored and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cg4ai.clock import OTHER, Deadline, Stopwatch
from cg4ai.colgen import snapshots, tolerances
from cg4ai.colgen.interrupts import Interrupts
from cg4ai.colgen.iteration import (
    SINGLE,
    SINGLE_SHARE,
    Decision,
    MasterStep,
    PricingAttempt,
    PricingStep,
    SeparationStep,
    Stabiliser,
    Stop,
)
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import Array, EndingRecord, IterationRecord, MasterSolution, StopReason
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings

if TYPE_CHECKING:
    from cg4ai.colgen.phases import Phase
    from cg4ai.protocols import Pricer, Stateful

UNIFORM_SHARE = 0.1  # of smoothed duals, spread evenly over all rows of requirements
WHOLE_ROUNDS = 50  # calls of the master, each of several solves, before it stays incomplete
AUDITED = 10.0  # tolerances of audits: recomputed predictions round differently
SLACK_ROUNDING = 1e-9  # to which the least slack is solved for


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows and columns the master had, at which iteration."""

    rows: int
    columns: int
    step: int


class RunState:
    """Columns, rows and master (`work`), the phase, history, bound, notes, and the clock."""

    def __init__(
        self,
        problem: CompiledProblem,
        settings: Settings,
        phases: Sequence[Phase],
        interrupts: Interrupts | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self.watch = Stopwatch()
        self.problem = problem
        self.settings = settings
        self.phases = tuple(phases)
        self.phase: Phase = self.phases[0]
        self.interrupts = Interrupts() if interrupts is None else interrupts
        self.deadline = deadline or Deadline.after(settings.time_limit_s)
        self.work = Workspace(problem, settings)
        self.stabiliser = Stabiliser(
            settings.smoothing, UNIFORM_SHARE if settings.smoothing else 0.0
        )
        self.history: list[IterationRecord] = []
        self.bound: float | None = None
        self.tried: PricingAttempt | None = None  # by the last pricings, where they prove no bound
        self.failures = 0  # pricings in a row that found nothing
        self.entered = 0  # the iteration that the phase began with
        self.begun = Sizes(0, 0, 0)  # when the turn of mixtures, or then of one model, began
        self.returns = 0  # how often the final weights violated new rows
        self.ended: StopReason | None = None
        self.notes: list[str] = list(problem.notes)
        self.longest_search_s = 0.0  # what looking for violations may take again
        self.training_cut = False  # whether time ended something in training,
        self.cut_before = False  # or did before the run was resumed
        self.cut: list[str] = []  # what the ending had no time for
        self._last_search: tuple[Array, SeparationStep] | None = None

    # ---- what is known ------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of the iteration going on."""
        return len(self.history)

    @property
    def pricers(self) -> Sequence[Pricer]:
        """Those of the members that the master has by now: as they are, or behind a shield."""
        unshielded = self.problem.unshielded if self.work.unshielded else None
        return (unshielded or self.problem).pricers

    @property
    def closing(self) -> Phase:
        """The phase that settles on weights: that of single models where one is asked for."""
        return self._phase(SINGLE) if self.settings.single_model else self.phases[0]

    @property
    def turn_of_one_model(self) -> bool:
        return self.phase.name == SINGLE

    def sizes(self) -> Sizes:
        return Sizes(len(self.work.rows), len(self.work.columns), self.step)

    def has_unmet_rows(self, solution: MasterSolution) -> bool:
        """Whether a row lacks more than the tolerance, by its own size."""
        return self.work.compute_shortfall(solution) > tolerances.FEASIBILITY_TOLERANCE

    def is_proven(self, solution: MasterSolution) -> bool:
        """Whether the rows are met and the bound is as close as the settings ask."""
        if self.bound is None or not self.phase.charges_loss or self.work.incomplete:
            return False
        gap = solution.objective - self.bound
        return gap <= self.compute_gap_tolerance(solution) and not self.has_unmet_rows(solution)

    def compute_gap_tolerance(self, solution: MasterSolution) -> float:
        """How far the bound may be from the objective, in the objective's own units."""
        size = max(self.work.objective_size, abs(solution.objective))
        return tolerances.GAP_TOLERANCE * size

    def compute_slack_tolerance(self, solution: MasterSolution) -> float:
        """The least total slack, by these duals, of rows that audits find to be missed.

        Rows that lack no more than the audits' tolerance count as met there, and a run whose rows
        are met is not infeasible.
        """
        prices = solution.duals.rows
        tolerances = self.audit_tolerance * self.work.row_sizes[: len(prices)]
        return float(prices @ tolerances) + SLACK_ROUNDING

    @property
    def audit_tolerance(self) -> float:
        """What an audited row may lack, by its size."""
        return AUDITED * tolerances.FEASIBILITY_TOLERANCE

    def compute_margin_price(self, solution: MasterSolution) -> float:
        """What asking the rows for a margin adds to the optimum."""
        return self.work.compute_margin_price(solution.duals.rows)

    def is_stalled(self) -> bool:
        """Whether rows are met and the objective hardly fell over the phase's last iterations."""
        s = self.settings
        recent = self.history[self.entered :][-s.improvement_window - 1 :]
        if s.improvement_tolerance == 0 or len(recent) <= s.improvement_window:
            return False
        met = all(record.rows_met for record in recent)
        raised = sum(record.raised for record in recent[1:])
        fell = recent[0].objective - recent[-1].objective + raised
        return met and fell < s.improvement_tolerance * abs(recent[-1].objective)

    def has_trained_enough(self, solution: MasterSolution) -> bool:
        """Whether the phase had as many rounds of training as asked for, and rows are met."""
        most = self.settings.training_rounds
        if not most:
            return False
        made = sum(bool(record.trainings) for record in self.history[self.entered :])
        return made >= most and not self.has_unmet_rows(solution)

    # ---- time ---------------------------------------------------------------------------------

    @property
    def training_deadline(self) -> Deadline:
        """When training must be over, so that a share of the limit is left to end in."""
        share = self.phase.ending_share
        if self.settings.single_model and not self.turn_of_one_model:
            share = max(share, SINGLE_SHARE)
        kept = max(share * self.settings.time_limit_s, self.longest_search_s)
        return self.deadline.reserve(kept)

    def note_time(self) -> None:
        """Note that training was cut, if the time for it is over."""
        self.training_cut = self.training_cut or self.training_deadline.passed

    def all_cut(self) -> tuple[str, ...]:
        """What the time limit ended or left out."""
        done = len(self.history)
        after = f"training, after {done} iteration{'' if done == 1 else 's'}"
        before = ["training before the run was resumed"] if self.cut_before else []
        return (*before, *([after] if self.training_cut else []), *dict.fromkeys(self.cut))

    def is_time_over(self) -> bool:
        """Whether training should be over by now; the first iteration is made in any case."""
        return bool(self.history) and self.training_deadline.passed

    def has_too_little_time(self) -> bool:
        """Whether another iteration, at the pace of the last, would leave too little to end in."""
        return (
            bool(self.history) and self.deadline.compute_seconds_left() < self.history[-1].seconds
        )

    def has_time(self, part: str, *, needed: float = 0.0) -> bool:
        """Whether a part of the ending may begin; if time forbids, it is noted as cut."""
        if self.deadline.compute_seconds_left() > needed:
            return True
        if part not in self.cut:
            self.cut.append(part)
        return False

    # ---- steps that phases share --------------------------------------------------------------

    def enter(self, phase: str) -> None:
        """Go over to the phase of this name."""
        self.phase = self._phase(phase)
        self.entered = self.step + 1
        if self.turn_of_one_model and not self.begun.step:
            self.begun = replace(self.sizes(), step=self.entered)
        if self.phase.binds_rules:
            self.work.bind_rules()
        self.phase.enter(self)

    def _phase(self, name: str) -> Phase:
        for phase in self.phases:
            if phase.name == name:
                return phase
        known = ", ".join(phase.name for phase in self.phases)
        raise InvalidInput(
            f"there is no phase {name!r} in this run, which has {known}", code="unknown-name"
        )

    def solve_master(self) -> MasterSolution:
        with self.watch.measure_step("master"):
            return self.work.solve_master()

    def solve_whole_master(self) -> MasterSolution:
        """With every piece of the objective that matters, however many solves that takes."""
        solution = self.work.solve_master()
        for _ in range(WHOLE_ROUNDS):
            if not self.work.incomplete:
                break
            solution = self.work.solve_master()
        return solution

    def recall_search(self, weights: Array) -> SeparationStep | None:
        """What the last thorough search found, if it was of these weights; else None."""
        if self._last_search is None or not np.array_equal(self._last_search[0], weights):
            return None
        return self._last_search[1]

    def remember_search(self, weights: Array, found: SeparationStep) -> None:
        self._last_search = weights.copy(), found

    # ---- records ------------------------------------------------------------------------------

    def record(
        self,
        weighed: MasterStep,
        priced: PricingStep,
        decision: Decision,
        *,
        before: Sizes,
        phase: str,
    ) -> None:
        spent = self.watch.take_lap()
        after = self.sizes()
        self.history.append(
            IterationRecord(
                iteration=self.step,
                objective=priced.solution.objective,
                slack=self.work.compute_shortfall_in_units(priced.solution),
                rows_met=not self.has_unmet_rows(priced.solution),
                worst_violation=weighed.worst,
                best_reduced_cost=priced.best,
                bound=self.bound,
                columns=after.columns,
                rows=after.rows,
                added_rows=after.rows - before.rows,
                added_columns=after.columns - before.columns,
                penalty=self.work.master.penalty,
                master_s=spent["master"],
                pricing_s=spent["pricing"],
                separation_s=spent["separation"] + spent["search"],
                other_s=spent[OTHER],
                total_s=self._total(sum(spent.values())),
                note="; ".join(filter(None, [decision.note, priced.note])),
                raised=weighed.raised,
                trainings=priced.trainings,
                phase=phase,
            )
        )

    def record_ending(self) -> EndingRecord:
        spent = self.watch.take_lap()
        return EndingRecord(
            weights_s=spent["weights"],
            search_s=spent["search"],
            pruning_s=spent["pruning"],
            audits_s=spent["audits"],
            estimate_s=spent["estimate"],
            other_s=sum(spent[name] for name in (OTHER, "master", "pricing", "separation")),
            total_s=self._total(sum(spent.values())),
        )

    def _total(self, seconds: float) -> float:
        """All seconds up to now: those of the last record and these."""
        return seconds + (self.history[-1].total_s if self.history else 0.0)

    # ---- checkpoints --------------------------------------------------------------------------

    def resume(self, folder: Run) -> bool:
        """Continue from the run's last checkpoint, if it has one."""
        saved = folder.load_checkpoint()
        folder.truncate_history(-1 if saved is None else saved.iteration)
        if saved is None:
            return False
        self.history = [IterationRecord(**record) for record in folder.history()]
        self._restore(snapshots.Snapshot(saved.meta, saved.arrays, saved.members))
        if saved.note:
            self.notes.append(saved.note)
        self.cut_before = saved.meta["loop"].get("training_cut", False)  # 0.7 did not say
        self.deadline = self.deadline.reserve(self._total(0.0))
        return True

    def checkpoint(self, folder: Run, decision: Decision) -> None:
        """Save all, then continue from what was saved, as a resumed run would."""
        folder.append_history(self.history[-1])
        snapshot = self._snapshot(decision)
        folder.save_checkpoint(
            self.history[-1].iteration, snapshot.meta, snapshot.arrays, snapshot.members
        )
        self._restore(snapshot)

    def _snapshot(self, decision: Decision) -> snapshots.Snapshot:
        work = snapshots.take(self.work)
        values, arrays = snapshots.collect_states(self._remembering())
        meta = {
            "work": work.meta,
            "parts": values,
            "loop": {
                "phase": self.phase.name,
                "entered": self.entered,
                "begun": asdict(self.begun),
                "bound": self.bound,
                "tried": None if self.tried is None else asdict(self.tried),
                "failures": self.failures,
                "training_cut": self.training_cut or self.cut_before,
                "returns": self.returns,
                "notes": list(self.notes),
                "ended": _ended(decision),
            },
        }
        arrays |= {"guide": self.stabiliser.guide, **work.arrays}
        return snapshots.Snapshot(meta, arrays, work.members)

    def _restore(self, saved: snapshots.Snapshot) -> None:
        try:
            work, loop = saved.meta["work"], saved.meta["loop"]
            self.work = snapshots.restore(
                snapshots.Snapshot(work, saved.arrays, saved.members), self.problem, self.settings
            )
            self.stabiliser.guide = saved.arrays["guide"].copy()
            self.phase, self.entered = self._phase(loop["phase"]), loop["entered"]
            self.begun = Sizes(**loop["begun"])
            self.bound, self.failures = loop["bound"], loop["failures"]
            tried = loop["tried"]
            self.tried = None if tried is None else PricingAttempt(**tried)
            self.returns, self.notes = loop["returns"], list(loop["notes"])
            self.ended = None if loop["ended"] is None else StopReason(loop["ended"])
            snapshots.restore_states(self._remembering(), saved.meta["parts"], saved.arrays)
        except InvalidInput as error:
            raise RunFolderError(
                f"the checkpoint is of another kind of run: {error}; resume with the same problem",
                code="altered",
            ) from error
        except KeyError as error:
            raise RunFolderError(
                f"the checkpoint lacks {error}: it is of an earlier version, not whole, or of "
                "another kind of run; resume with the same problem",
                code="altered",
            ) from error

    def _remembering(self) -> dict[str, Stateful]:
        """The pricers, separators and phases that have a state of their own."""
        named: dict[str, object] = {}
        named |= {f"pricer {k}": one for k, one in enumerate(self.problem.pricers)}
        if (bare := self.problem.unshielded) is not None:
            named |= {f"bare pricer {k}": one for k, one in enumerate(bare.pricers)}
        named |= {
            f"separator {k}": one.separator for k, one in enumerate(self.problem.requirements)
        }
        named |= {f"phase {one.name}": one for one in self.phases}
        return snapshots.find_stateful_parts(named)


def _ended(decision: Decision) -> str | None:
    """Why the run is over for good; a limit of time may be another when it is resumed.

    What callbacks say is asked anew in any case, for they may be others.
    """
    if isinstance(decision, Stop) and decision.reason is not StopReason.TIME_LIMIT:
        return decision.reason.value
    return None
