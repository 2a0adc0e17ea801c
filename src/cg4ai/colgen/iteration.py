"""What the steps of an iteration hand to each other, and pricing.

Pricers propose members, by prices that do not jump from solve to solve, and the master admits those
that improve. Cutting is in cutting.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, MasterSolution, SeparationResult, SingleModel, StopReason
from cg4ai.rules.rows import Rows
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState

SINGLE = "single"  # the name of the phase in which one model is sought in place of a mixture
SINGLE_SHARE = 0.5  # of the time limit, kept for that
ENDING_SHARE = 0.15  # of the time limit, kept for final weights, the last search and audits
ROUNDED = 4e-15  # of the terms of a sum, about 16 roundings


@dataclass(frozen=True, slots=True)
class MasterStep:
    """The master solved, with its cuts.

    `worst` is the largest violation that separation saw (None: it did not look); `raised` says by
    how much inputs that were counted in now raised the objective.
    """

    solution: MasterSolution
    worst: float | None = None
    raised: float = 0.0


@dataclass(frozen=True, slots=True)
class SeparationStep:
    """A search: the worst violation seen, rows added, and what was `found` by requirement."""

    worst: float | None = None
    added: int = 0
    found: Mapping[int, SeparationResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """How many members entered the master, and the best reduced cost of a member or group.

    `lowest` (G,) is the least reduced cost of a single member in each block, 0 if none is below.
    """

    count: int
    best: float
    lowest: Array


class PricingStatus(StrEnum):
    """What pricing came to."""

    IMPROVED = "improved"  # members entered and more may follow
    NO_ROOM = "no room"  # an improving group does not fit the column limit
    INCOMPLETE = "incomplete"  # pieces of the objective are missing, so the duals were not final
    NOTHING = "nothing"  # no member improves, or the bound is met


@dataclass(frozen=True, slots=True)
class PricingStep:
    """Pricing of one iteration; `solution` is the master's as pricing left it.

    `best` is the best reduced cost proposed, `bound` what no mixture of the class can be below
    (None: no pricer proved one), `trainings` how often pricers were asked, `note` what they say
    for the user to know.
    """

    outcome: PricingStatus
    solution: MasterSolution
    admitted: int = 0
    best: float | None = None
    bound: float | None = None
    trainings: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class PricingAttempt:
    """What the last pricings in a row at the same duals came to.

    `sum` over blocks of the least reduced costs, of so many `trained` members or groups, where the
    master stood at `penalised`.
    """

    penalised: float
    sum: float
    trained: int

    @property
    def estimate(self) -> float:
        """The bound, if those reduced costs were the least there are."""
        return self.penalised + self.sum


@dataclass(frozen=True, slots=True)
class Continue:
    """Iterate again, in the phase of this name (empty: the same)."""

    note: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run."""

    reason: StopReason
    note: str = ""


Decision = Continue | Stop


@dataclass(frozen=True, slots=True)
class FinalSolution:
    """What a run ends with: the weights of all columns and the master's solution behind them.

    `compares` asks for the best mixture of the same members without the rules beside it; `single`
    says what is known where one model was asked for.
    """

    solution: MasterSolution
    weights: Array
    reason: StopReason
    compares: bool = False
    single: SingleModel | None = None


class Stabiliser:
    """Mixes the duals of earlier solves into the present ones and spreads a part evenly.

    `smoothing` is the weight of the earlier ones, `uniform_share` the part that is spread over all
    rows of requirements; `guide` (rows seen so far,) is what was mixed last, and all the state.
    """

    def __init__(self, smoothing: float, uniform_share: float) -> None:
        self.smoothing = smoothing
        self.uniform_share = uniform_share
        self.guide = np.empty(0)

    def smooth(self, duals: Array, ruled: NDArray[np.bool_]) -> Array:
        """Duals (m,) to propose members by; `ruled` (m,) marks the rows of requirements."""
        if self.smoothing == 0 and self.uniform_share == 0:
            return duals
        self.guide = self._mixed(duals)
        guide = self.guide.copy()
        if ruled.any():
            own = guide[ruled]
            guide[ruled] = (1 - self.uniform_share) * own + self.uniform_share * own.mean()
        return guide

    def _mixed(self, duals: Array) -> Array:
        if not self.guide.any():
            return duals  # the first prices are taken as they are
        earlier = np.zeros(len(duals))  # rows that are new had no price before
        earlier[: len(self.guide)] = self.guide
        return self.smoothing * earlier + (1 - self.smoothing) * duals


@dataclass(frozen=True, slots=True)
class _Answers:
    """What the pricers gave for one set of duals; `lower` (G,) if all of them proved one.

    `lowest` (G,) are the least reduced costs that were found, 0 where none is below, of `trained`
    members or groups.
    """

    admitted: int
    best: float | None
    lower: Array | None
    lowest: Array
    trained: int
    trainings: int
    rows: tuple[Rows, ...]
    notes: tuple[str, ...]


def ask_pricers(run: RunState, solution: MasterSolution) -> PricingStep:
    """Ask by smoothed duals first, by the true ones if that brought nothing."""
    with run.watch.measure_step("pricing"):
        guide = run.stabiliser.smooth(solution.duals.rows, run.work.requirement_rows())
        answers = _answers(run, solution, guide, attempt=0)
        bound = _bound(run, solution, answers)
        if not _suffices(run, answers) and not np.array_equal(guide, solution.duals.rows):
            again = _answers(run, solution, solution.duals.rows, attempt=1)
            better = _bound(run, solution, again)
            bound = bound if better is None else better
            answers = _both(answers, again)
        run.note_time()
        _remember(run, solution, answers)
        for rows in answers.rows:
            run.work.add_cuts(rows)
    outcome = _outcome(run, solution, answers)
    left = solution
    if outcome is PricingStatus.NOTHING and (
        answers.admitted or len(run.work.rows) > len(solution.slack)
    ):
        left = run.solve_master()  # with the columns and rows that pricing left
    return PricingStep(
        outcome,
        left,
        admitted=answers.admitted,
        best=answers.best,
        bound=bound,
        trainings=answers.trainings,
        note="; ".join(dict.fromkeys(answers.notes)),
    )


def _answers(run: RunState, solution: MasterSolution, guide: Array, *, attempt: int) -> _Answers:
    """The pricers in order until one improves the master that wants no others asked as well."""
    admitted = 0
    lower: Array | None = np.zeros(len(run.problem.layout))
    best: float | None = None
    lowest = np.zeros(len(run.problem.layout))
    trained = 0
    rows: list[Rows] = []
    notes: list[str] = []
    first = build_request(run, solution, guide, "")  # before members enter
    for number, pricer in enumerate(run.pricers):
        seed = derive_seed(run.settings.seed, run.step, f"pricing {number} {attempt}")
        request = replace(first, seed=seed)
        with run.interrupts.allow_interrupts():
            proposed = pricer.price(request)
        trained += proposed.trained
        run.training_cut = run.training_cut or proposed.short
        rows.extend(proposed.rows)
        notes.extend(filter(None, [proposed.note]))
        proven = proposed.lower_bound
        lower = None if proven is None or lower is None else np.minimum(lower, proven)
        if proposed.members is None or not len(proposed.members):
            continue
        entered = run.work.admit(proposed, solution, charge_loss=run.phase.charges_loss)
        best = entered.best if best is None else min(best, entered.best)
        lowest = np.minimum(lowest, entered.lowest)
        admitted += entered.count
        if entered.count and not proposed.others_too:
            complete = number + 1 == len(run.pricers) == 1
            lower = lower if complete else None
            return _Answers(
                admitted, best, lower, lowest, trained, number + 1, tuple(rows), tuple(notes)
            )
    asked = len(run.pricers)
    lower = None if admitted else lower
    return _Answers(admitted, best, lower, lowest, trained, asked, tuple(rows), tuple(notes))


def _both(one: _Answers, other: _Answers) -> _Answers:
    best = [value for value in (one.best, other.best) if value is not None]
    return _Answers(
        other.admitted,
        min(best, default=None),
        other.lower,
        np.minimum(one.lowest, other.lowest),
        one.trained + other.trained,
        one.trainings + other.trainings,
        (*one.rows, *other.rows),
        (*one.notes, *other.notes),
    )


def build_request(
    run: RunState, solution: MasterSolution, guide: Array, job: str
) -> PricingRequest:
    """What a pricer is told at this solution of the master."""
    return PricingRequest(
        iteration=run.step,
        seed=derive_seed(run.settings.seed, run.step, job),
        duals=solution.duals,
        guide=guide,
        rows=run.work.rows,
        objective=run.problem.objective,
        loss_weight=1.0 if run.phase.charges_loss else 0.0,
        unit=run.work.unit,
        ensemble=run.work.ensemble(solution),
        device=run.settings.device,
        requirements=run.problem.requirements if run.phase.binds_rules else (),
        until=run.training_deadline.ends,
    )


def _suffices(run: RunState, answers: _Answers) -> bool:
    """Whether asking again is of no use: members entered, or proof that none improves."""
    proven = answers.lower is not None and answers.lower.sum() >= -run.work.least_improvement
    return bool(answers.admitted or proven)


def _bound(run: RunState, solution: MasterSolution, answers: _Answers) -> float | None:
    """What no mixture of the class can be below, from a bound on each block's reduced cost.

    The master asks its rows for a margin that the rules themselves do not: it is given back.
    """
    holds = not run.phase.charges_loss or run.work.are_bounds_valid(solution)
    if answers.lower is None or not holds or run.work.restricted:
        return None
    known = solution.penalised - run.work.master.gap - run.compute_margin_price(solution)
    bound = known + float(answers.lower.sum()) - _rounding(run, solution, answers.lower)
    if run.phase.charges_loss:
        run.bound = bound if run.bound is None else max(run.bound, bound)
    return bound


def _rounding(run: RunState, solution: MasterSolution, lower: Array) -> float:
    """What sums of large numbers, such as the price of a dummy column, may have lost."""
    duals, bounds = solution.duals, run.work.rows.bounds
    terms = abs(solution.penalised) + np.abs(lower).sum() + np.abs(duals.blocks).sum()
    return ROUNDED * float(terms + duals.rows @ np.abs(bounds[: len(duals.rows)]))


def _remember(run: RunState, solution: MasterSolution, answers: _Answers) -> None:
    """The least reduced costs that training found, for an estimate where nothing is proven.

    Pricings in a row that found nothing are restarts at the same duals: the lowest of them counts.
    Where no member was trained at all, nothing is known of what one would gain.
    """
    if not (run.phase.charges_loss and run.work.are_bounds_valid(solution)):
        return
    known = run.tried if run.failures > 0 else None
    found = PricingAttempt(solution.penalised, float(answers.lowest.sum()), answers.trained)
    if not answers.trained:
        run.tried = known
    elif known is None or not is_same_optimum(known.penalised, found.penalised):
        run.tried = found
    else:
        lowest = min(known.sum, found.sum)
        run.tried = PricingAttempt(found.penalised, lowest, known.trained + found.trained)


def is_same_optimum(one: float, other: float) -> bool:
    """Whether two solves came to the same, up to rounding."""
    return math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)


def _outcome(run: RunState, solution: MasterSolution, answers: _Answers) -> PricingStatus:
    if answers.admitted and not run.is_proven(solution):
        return PricingStatus.IMPROVED
    improving = answers.best is not None and answers.best < -run.work.least_improvement
    if improving and not answers.admitted:
        return PricingStatus.NO_ROOM
    return PricingStatus.INCOMPLETE if run.work.incomplete else PricingStatus.NOTHING
