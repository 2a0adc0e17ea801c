"""THE loop: Algorithms 1 and 2 of the paper, with honest stops.

    weigh: solve master -> separate -> (new rows: solve again)
    price: ask pricers -> (new columns: repeat)
    decide: nothing improves -> final weights -> separate again -> stop
    -> ensemble and audits

How each step is done is the phase's (`phases`); `RunState` is what the steps share, `Workspace`
holds columns, rows and the master, `result` makes the ending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cg4ai import clock
from cg4ai.callbacks import Callback, CallbackList
from cg4ai.clock import Deadline, Review
from cg4ai.colgen.interrupts import Interrupted, Interrupts
from cg4ai.colgen.iteration import (
    SINGLE,
    Continue,
    Decision,
    PricingStatus,
    PricingStep,
    Stop,
)
from cg4ai.colgen.phases import PatchPhase, Phase, SlackPhase, build_phases
from cg4ai.colgen.result import Result, finish
from cg4ai.colgen.state import RunState
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.problem import Problem
from cg4ai.compile.transformations import compile_problem
from cg4ai.errors import SolverFailure
from cg4ai.protocols import Members
from cg4ai.records import IntArray, IterationRecord, StopReason
from cg4ai.runs.folder import Run
from cg4ai.settings import Settings

Progress = Callable[[IterationRecord], None]
Callbacks = Sequence[Callback | Callable[[IterationRecord], Any]]


def solve(
    problem: Problem,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    run: Run | None = None,
    callbacks: Callbacks | None = None,
) -> Result:
    """Train members until none improves the mixture, or a limit ends the run.

    `progress` is called after each iteration; `run` keeps history and checkpoints on disk and, if
    it already holds a checkpoint, the run continues from there to the identical result.
    `callbacks` are told of each iteration once it is saved, and may end training
    (`cg4ai.callbacks`).
    """
    settings = settings or Settings()
    told = CallbackList(callbacks)
    deadline = Deadline.after(settings.time_limit_s)
    compiled = _compiled_in_time(problem, settings, deadline)
    own = build_phases(compiled) if problem.phases is None else problem.phases()
    phases = _with_single_models(own, compiled, settings)
    with Interrupts() as interrupts:
        loop = _Loop(RunState(compiled, settings, phases, interrupts, deadline), run)
        with told:
            return loop.run(progress, told)


def patch(
    problem: Problem,
    pool: Sequence[tuple[Members, IntArray]],
    settings: Settings | None = None,
    *,
    once: bool = False,
    progress: Progress | None = None,
    run: Run | None = None,
) -> Result:
    """As `solve`, from the members of a finished run, which keep by construction what they did.

    They are weighed anew; members are trained only while those there are leave rows unmet, with
    `once` one time in any case.
    """
    settings = settings or Settings()
    deadline = Deadline.after(settings.time_limit_s)
    compiled = replace(_compiled_in_time(problem, settings, deadline), start=tuple(pool))
    with Interrupts() as interrupts:
        phases = _with_single_models((PatchPhase(once=once), SlackPhase()), compiled, settings)
        state = RunState(compiled, settings, phases, interrupts, deadline)
        return _Loop(state, run).run(progress, CallbackList())


def _compiled_in_time(problem: Problem, settings: Settings, deadline: Deadline) -> CompiledProblem:
    outer = clock.review()
    review = Review(deadline, outer.say, outer.cut, "preparing")
    with review.activate(), review.stage("what members keep by construction"):
        return compile_problem(problem, settings)


def _with_single_models(
    phases: Sequence[Phase], compiled: CompiledProblem, settings: Settings
) -> Sequence[Phase]:
    """With a phase that looks for one model after the mixture, where that is asked for."""
    if not settings.single_model:
        return phases
    from cg4ai.colgen.single_model import build_single_phase

    return (*phases, build_single_phase(compiled))


class _Loop:
    """Iterates on a run's state until a phase or a limit says stop."""

    def __init__(self, state: RunState, folder: Run | None) -> None:
        self.state = state
        self.folder = folder
        self.ended_by = ""  # the callback that said so

    def run(self, progress: Progress | None, told: CallbackList) -> Result:
        decision = self._begin(told)
        state = self.state
        with Review(state.deadline, clock.review().say, state.cut, "training").activate():
            return self._run(decision, progress, told)

    def _run(self, decision: Decision, progress: Progress | None, told: CallbackList) -> Result:
        while isinstance(decision, Continue):
            try:
                decision = self.iterate()
            except KeyboardInterrupt:
                decision = Stop(StopReason.INTERRUPTED)
                break
            if progress is not None:
                progress(self.state.history[-1])
            if self.folder is not None:
                self.state.checkpoint(self.folder, decision)
            self.ended_by = told.notify_iteration(self.state.history[-1])
            if isinstance(decision, Continue):
                decision = self._within_limits()
        reason = self._reason(decision)
        self._refuse_no_mixture(reason)
        if reason is StopReason.CALLBACK:
            self.state.notes.append(f"the callback {self.ended_by} ended training")
        result = finish(self.state, reason)
        told.notify_end(result)
        return result

    def iterate(self) -> Decision:
        """One master solve with its cuts, then one pricing, then what follows from them."""
        state = self.state
        sizes, phase = state.sizes(), state.phase.name
        weighed = state.phase.weigh(state)
        if self._may_stall() and state.has_trained_enough(weighed.solution):
            priced = PricingStep(PricingStatus.NOTHING, weighed.solution)
            decision: Decision = Stop(StopReason.ROUND_LIMIT, "as many rounds as asked for")
        else:
            priced = state.phase.price(state, weighed)
            decision = state.phase.decide(state, weighed, priced)
        if self._one_model_follows(decision):
            decision = Continue(f"{decision.note}; now one model", SINGLE)
        if isinstance(decision, Continue) and decision.phase:
            state.enter(decision.phase)
        state.record(weighed, priced, decision, before=sizes, phase=phase)
        return decision

    def _begin(self, told: CallbackList) -> Decision:
        """From the start, or from the folder's last checkpoint, which may be of a run's end."""
        if self.folder is None or not self.state.resume(self.folder):
            self.state.work.start(bind_rules=self.state.phase.binds_rules)
        self.ended_by = told.notify_start(self.state.history)
        ended = self.state.ended
        if ended is not None:
            return Stop(ended)
        return self._within_limits()

    def _within_limits(self) -> Decision:
        """Go on, with one model where the mixture's limits are reached, or stop."""
        decision = self._limit()
        if not self._one_model_follows(decision):
            return decision
        self.state.note_time()
        self.state.enter(SINGLE)
        return Continue()

    def _one_model_follows(self, decision: Decision) -> bool:
        """Whether the end of the mixture's turn is not that of the run."""
        state = self.state
        # who says stop means all of it; what no mixture meets, no member does
        over = (StopReason.INTERRUPTED, StopReason.CALLBACK, StopReason.INFEASIBLE)
        return (
            state.settings.single_model
            and not state.turn_of_one_model
            and isinstance(decision, Stop)
            and decision.reason not in over
            and state.work.every_block_has_members
        )

    def _limit(self) -> Decision:
        state, settings = self.state, self.state.settings
        columns = len(state.work.columns) - state.begun.columns
        reached = (
            (StopReason.INTERRUPTED, state.interrupts.requested),
            (StopReason.CALLBACK, bool(self.ended_by)),
            # time that is over cut the last training short, whatever else that came to
            (StopReason.TIME_LIMIT, state.is_time_over()),
            (StopReason.COLUMN_LIMIT, columns >= settings.column_limit),
            # without the rules it goes on under them, and one model's phase counts tries itself
            (StopReason.STALLED, self._may_stall() and state.is_stalled()),
            (StopReason.ITERATION_LIMIT, state.step - state.begun.step >= settings.iteration_limit),
            (StopReason.TIME_LIMIT, state.has_too_little_time()),
        )
        return next((Stop(reason) for reason, yes in reached if yes), Continue())

    def _reason(self, decision: Stop) -> StopReason:
        """Why the run ends: of a training that time ended nobody knows what it would have found."""
        reason = decision.reason
        if reason is StopReason.NO_IMPROVING_COLUMN and self.state.training_deadline.passed:
            reason = StopReason.TIME_LIMIT
        if reason is StopReason.TIME_LIMIT:
            self.state.training_cut = True
        return reason

    def _may_stall(self) -> bool:
        return self.state.phase.binds_rules and not self.state.turn_of_one_model

    def _refuse_no_mixture(self, reason: StopReason) -> None:
        if self.state.work.every_block_has_members:
            return
        if reason is StopReason.INTERRUPTED:
            raise Interrupted(
                "interrupted before every block had a member, so there is no mixture to "
                "return; solve again, or resume the run if it has a folder"
            )
        raise SolverFailure(
            f"the run ended ({reason.value}) before every block had a member; raise the "
            "limits, or check that the pricers can train on these data"
        )
