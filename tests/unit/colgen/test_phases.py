"""A run with phases, pricers and separators of its own: asked in order, stored and resumed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai import Problem, Result, Settings, StopReason, solve
from cg4ai.colgen.iteration import Continue, Decision, FinalSolution, MasterStep, PricingStep, Stop
from cg4ai.colgen.phases import NormalPhase, Phase
from cg4ai.colgen.pricing.defaults import PricerDefaults, WrappingPricer
from cg4ai.colgen.state import RunState
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.objectives import Supervised
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import IterationRecord, PartState, PricingResult
from cg4ai.rules import Linear
from cg4ai.runs.folder import Run
from raising import raises

PLAIN = Settings(final_weights="vertex", iteration_limit=12)


def constants(*values: float) -> ConstantMembers:
    return ConstantMembers(np.array(values, float).reshape(-1, 1), 1)


class Counting(PricerDefaults):
    """Proposes smaller members each time it is asked; how often is all that it remembers."""

    def __init__(self) -> None:
        self.asked = 0
        self.seen = np.zeros(0)

    def price(self, request: PricingRequest) -> PricingResult:
        self.asked += 1
        self.seen = np.append(self.seen, request.seed % 7)
        value = 1.0 + 8.0 / self.asked + 1e-3 * self.seen.sum()
        return PricingResult(constants(value), np.zeros(1, int), np.full(1, -1))

    def state(self) -> PartState:
        return PartState({"asked": self.asked}, {"seen": self.seen})

    def restore(self, state: PartState) -> None:
        self.asked, self.seen = state.values["asked"], state.arrays["seen"]


class Scripted(PricerDefaults):
    """One member, without a memory."""

    def price(self, request: PricingRequest) -> PricingResult:
        return PricingResult(constants(2.0), np.zeros(1, int), np.full(1, -1))


@dataclass(frozen=True)
class Wrapping(WrappingPricer):
    inner: Pricer | Sequence[Pricer]

    def price(self, request: PricingRequest) -> PricingResult:
        first = self.inner[0] if isinstance(self.inner, Sequence) else self.inner
        return first.price(request)


class Patient(NormalPhase):
    """Ends by itself after so many iterations, with the best weights it has seen."""

    name = "patient"

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self.objectives = np.zeros(0)

    def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
        self.objectives = np.append(self.objectives, weighed.solution.objective)
        if len(self.objectives) < self.iterations:
            return Continue(f"{len(self.objectives)} of {self.iterations}")
        return Stop(StopReason.PROVEN, "enough")

    def settle(self, run: RunState, reason: StopReason) -> FinalSolution:
        solution = run.solve_whole_master()
        return FinalSolution(solution, solution.weights, reason)

    def state(self) -> PartState:
        return PartState({}, {"objectives": self.objectives})

    def restore(self, state: PartState) -> None:
        self.objectives = state.arrays["objectives"]


def problem(pricer: Any, *phases: Phase) -> Problem:
    return Problem(
        Supervised(np.zeros((1, 1)), np.zeros((1, 1))),
        [Linear([[0.0]], [1.0], 0.5)],
        [pricer],
        Layout.single(1),
        phases=(lambda: phases) if phases else None,
    )


def solved(chosen: Problem, folder: Path, **options: Any) -> Result:
    exists = (folder / "run.json").exists()
    run = Run.open(folder) if exists else Run.create(folder, "test", PLAIN.as_dict())
    with run:
        return solve(chosen, PLAIN, run=run, **options)


def stop_after(iteration: int) -> Any:
    def stop(record: IterationRecord) -> None:
        if record.iteration == iteration:
            signal.raise_signal(signal.SIGINT)

    return stop


def test_a_phase_of_the_problem_weighs_prices_decides_and_settles() -> None:
    result = solve(problem(Counting(), Patient(3)), PLAIN)
    assert result.stop_reason is StopReason.PROVEN
    assert [record.note for record in result.history] == ["1 of 3", "2 of 3", "enough"]
    assert result.feasible


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("wrap", [lambda p: p, Wrapping, lambda p: Wrapping([Wrapping(p)])])
def test_what_parts_remember_survives_a_kill_through_any_wrapper(
    after: int, wrap: Any, tmp_path: Path
) -> None:
    def made() -> Problem:
        return problem(wrap(Counting()), Patient(5))

    whole = solved(made(), tmp_path / "whole")
    early = solved(made(), tmp_path / "run", progress=stop_after(after))
    assert early.stop_reason is StopReason.INTERRUPTED
    again = solved(made(), tmp_path / "run")
    assert again.stop_reason is StopReason.PROVEN
    assert [one.note for one in again.history] == [one.note for one in whole.history]
    assert [one.objective for one in again.history] == [one.objective for one in whole.history]
    assert again.loss == whole.loss


def test_a_checkpoint_of_another_kind_of_run_is_refused(tmp_path: Path) -> None:
    solved(problem(Counting(), Patient(5)), tmp_path / "run", progress=stop_after(0))
    with raises(RunFolderError, "altered", "patient"):
        solved(problem(Counting()), tmp_path / "run")
    solved(problem(Scripted()), tmp_path / "plain", progress=stop_after(0))
    with raises(RunFolderError, "altered", "pricer 0"):
        solved(problem(Counting()), tmp_path / "plain")


def test_a_phase_that_is_not_there_is_named() -> None:
    class Lost(Patient):
        def decide(self, run: RunState, weighed: MasterStep, priced: PricingStep) -> Decision:
            return Continue("on", phase="elsewhere")

    with raises(InvalidInput, "unknown-name", "elsewhere"):
        solve(problem(Counting(), Lost(3)), PLAIN)
