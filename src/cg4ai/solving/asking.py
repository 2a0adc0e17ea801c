"""Pricing, a step of the loop: pricers propose members, the master admits those that improve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, MasterSolution
from cg4ai.rules.rows import Rows
from cg4ai.seeds import derived_seed
from cg4ai.solving.steps import Outcome, Priced

if TYPE_CHECKING:
    from cg4ai.solving.state import RunState


@dataclass(frozen=True, slots=True)
class _Answers:
    """What the pricers gave for one set of duals; `lower` (G,) if all of them proved one."""

    admitted: int
    best: float | None
    lower: Array | None
    trainings: int
    rows: tuple[Rows, ...]


def ask_pricers(run: RunState, solution: MasterSolution) -> Priced:
    """Ask by smoothed duals first, by the true ones if that brought nothing."""
    with run.watch.timed("pricing"):
        guide = run.stabiliser.smoothed(solution.duals.rows, run.work.requirement_rows())
        answers = _answers(run, solution, guide, attempt=0)
        bound = _bound(run, solution, answers)
        if not _suffices(run, answers) and not np.array_equal(guide, solution.duals.rows):
            again = _answers(run, solution, solution.duals.rows, attempt=1)
            better = _bound(run, solution, again)
            bound = bound if better is None else better
            answers = _both(answers, again)
        for rows in answers.rows:
            run.work.add_cuts(rows)
    outcome = _outcome(run, solution, answers)
    left = solution
    if outcome is Outcome.NOTHING and (
        answers.admitted or len(run.work.rows) > len(solution.slack)
    ):
        left = run.solve_master()  # with the columns and rows that pricing left
    return Priced(outcome, left, answers.admitted, answers.best, bound, answers.trainings)


def _answers(run: RunState, solution: MasterSolution, guide: Array, *, attempt: int) -> _Answers:
    """The pricers in order until one improves the master."""
    lower: Array | None = np.zeros(len(run.problem.layout))
    best: float | None = None
    rows: list[Rows] = []
    for number, pricer in enumerate(run.problem.pricers):
        request = _request(run, solution, guide, f"pricing {number} {attempt}")
        with run.interrupts.allowed():
            proposed = pricer.price(request)
        rows.extend(proposed.rows)
        proven = proposed.lower_bound
        lower = None if proven is None or lower is None else np.minimum(lower, proven)
        if proposed.members is None or not len(proposed.members):
            continue
        entered = run.work.admit(proposed, solution, charge_loss=run.phase.charges_loss)
        best = entered.best if best is None else min(best, entered.best)
        if entered.count:
            complete = number + 1 == len(run.problem.pricers) == 1
            return _Answers(
                entered.count, best, lower if complete else None, number + 1, tuple(rows)
            )
    return _Answers(0, best, lower, len(run.problem.pricers), tuple(rows))


def _both(one: _Answers, other: _Answers) -> _Answers:
    best = [value for value in (one.best, other.best) if value is not None]
    return _Answers(
        other.admitted,
        min(best, default=None),
        other.lower,
        one.trainings + other.trainings,
        (*one.rows, *other.rows),
    )


def _request(run: RunState, solution: MasterSolution, guide: Array, job: str) -> PricingRequest:
    return PricingRequest(
        iteration=run.step,
        seed=derived_seed(run.settings.seed, run.step, job),
        duals=solution.duals,
        guide=guide,
        rows=run.work.rows,
        objective=run.problem.objective,
        loss_weight=1.0 if run.phase.charges_loss else 0.0,
        ensemble=run.work.ensemble(solution),
        device=run.settings.device,
        requirements=run.problem.requirements,
        until=run.training_deadline.ends,
    )


def _suffices(run: RunState, answers: _Answers) -> bool:
    """Whether asking again is of no use: members entered, or proof that none improves."""
    proven = answers.lower is not None and answers.lower.sum() >= -run.settings.epsilon
    return bool(answers.admitted or proven)


def _bound(run: RunState, solution: MasterSolution, answers: _Answers) -> float | None:
    """What no mixture of the class can be below, from a bound on each block's reduced cost.

    The master asks its rows for a margin that the rules themselves do not: it is given back.
    """
    holds = not run.phase.charges_loss or run.work.bounds_hold(solution)
    if answers.lower is None or not holds:
        return None
    known = solution.penalised - run.work.master_gap - run.price_of_margin(solution)
    bound = known + float(answers.lower.sum())
    if run.phase.charges_loss:
        run.bound = bound if run.bound is None else max(run.bound, bound)
    return bound


def _outcome(run: RunState, solution: MasterSolution, answers: _Answers) -> Outcome:
    if answers.admitted and not run.proven(solution):
        return Outcome.IMPROVED
    improving = answers.best is not None and answers.best < -run.settings.epsilon
    if improving and not answers.admitted:
        return Outcome.NO_ROOM
    return Outcome.INCOMPLETE if run.work.incomplete else Outcome.NOTHING
