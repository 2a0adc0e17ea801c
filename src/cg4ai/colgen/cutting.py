"""Cutting: inputs that a mixture violates become rows of the master, in training and at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cg4ai import clock
from cg4ai.colgen import tolerances
from cg4ai.colgen.iteration import SeparationStep
from cg4ai.colgen.separation import default_separator
from cg4ai.colgen.snapshots import find_stateful_parts
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.parallel import count_jobs, fan_out, use_jobs
from cg4ai.protocols import Separator
from cg4ai.records import Array, SeparationResult, StopReason
from cg4ai.seeds import derive_seed

if TYPE_CHECKING:
    from cg4ai.colgen.state import RunState
    from cg4ai.rules import Requirement

LAST_SEARCH = "the thorough last search"
THOROUGH = 40  # times as long as an ordinary search, about
PORTIONS = 4  # of the searches for each process, so that none waits long for the slowest


def separate(run: RunState, ensemble: Ensemble | None, job: str) -> SeparationStep:
    """Look for violated inputs of every region and pool, and add them as rows."""
    if ensemble is None:
        return SeparationStep()
    with run.watch.measure_step("separation"):
        return _search(run, ensemble, run.step, job, thorough=False)


def run_last_search(run: RunState, weights: Array) -> SeparationStep:
    """The thorough search of the mixture of these weights: done once, then remembered.

    Its seed does not depend on the iteration, so that a run resumed at its end finds the same.
    """
    known = run.recall_search(weights)
    if known is not None:
        return replace(known, added=0)
    ensemble = run.work.whole_ensemble(weights)
    with run.watch.measure_step("search"), clock.review().stage(LAST_SEARCH):
        found = _search(run, ensemble, run.returns, "last", thorough=True)
    run.remember_search(weights, found)
    return found


def search_in_time(run: RunState, weights: Array) -> SeparationStep:
    """What the last search finds, or as much of it as there is time for; `run.cut` names the rest.

    Under a limit an ordinary search comes first: it tells what the thorough one would take.
    """
    known = run.recall_search(weights) is not None or not run.problem.has_regions
    if known or run.deadline.compute_seconds_left() == math.inf:
        return run_last_search(run, weights)
    if not run.has_time(LAST_SEARCH, needed=run.longest_search_s):
        return SeparationStep()
    started = clock.now()
    ensemble = run.work.whole_ensemble(weights)
    with run.watch.measure_step("search"):
        found = _search(run, ensemble, run.returns, "first", thorough=False)
    if found.added:
        return found
    if not run.has_time(LAST_SEARCH, needed=THOROUGH * (clock.now() - started)):
        run.remember_search(weights, found)
        return found
    return run_last_search(run, weights)


@dataclass(frozen=True, slots=True)
class FinalSearch:
    """Weights whose mixture was searched as thoroughly as time allows, and why the run ends."""

    weights: Array
    reason: StopReason


def run_final_search(
    run: RunState, weights: Array, reason: StopReason, *, again: Callable[[], Array]
) -> FinalSearch:
    """Search the mixture of these weights, and weigh `again` by what is found, until nothing is."""
    while reason is not StopReason.INTERRUPTED and run.returns < run.settings.final_rounds:
        try:
            found = search_in_time(run, weights)
        except KeyboardInterrupt:
            return FinalSearch(weights, StopReason.INTERRUPTED)
        if not found.added:
            break
        run.returns += 1
        with run.watch.measure_step("weights"):
            weights = again()
    return FinalSearch(weights, reason)


def _search(
    run: RunState, ensemble: Ensemble, step: int, job: str, *, thorough: bool
) -> SeparationStep:
    settings, started = run.settings, clock.now()
    tolerance = tolerances.get_cut_tolerance(settings)
    searches = []
    for number, requirement in enumerate(run.problem.requirements):
        if requirement.region is None:
            continue
        separator = default_separator(requirement, ensemble.differentiable)
        search = _Search(
            number=number,
            requirement=requirement,
            separator=separator.thorough() if thorough else separator,
            seed=derive_seed(settings.seed, step, f"{job} {number}"),
            limit=settings.cuts_per_round,
            tolerance=tolerance * run.work.compute_size(number).least,
        )
        searches.append(search)
    with run.interrupts.allow_interrupts(), use_jobs(settings.n_jobs):
        answers = _run_searches(ensemble, searches)
    result = SeparationStep()
    for search, found in zip(searches, answers, strict=True):
        number, added = search.number, 0
        if found.rows is not None and len(found.rows):
            size = run.work.compute_size(number)
            broken = found.violations > tolerance * size.compute_row_sizes(found.rows.bounds)
            rows = replace(found.rows.take(np.flatnonzero(broken)), requirement=number)
            added = run.work.add_cuts(rows)
        result = SeparationStep(
            worst=found.worst if result.worst is None else max(result.worst, found.worst),
            added=result.added + added,
            found={**result.found, number: found},
        )
    run.longest_search_s = max(run.longest_search_s, clock.now() - started)
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """What one requirement's search is told; a job of its own, with a seed of its own."""

    number: int
    requirement: Requirement
    separator: Separator
    seed: int
    limit: int
    tolerance: float

    def run(self, ensemble: Ensemble) -> SeparationResult:
        found = self.separator.find(
            ensemble,
            self.requirement,
            seed=self.seed,
            limit=self.limit,
            tolerance=self.tolerance,
        )
        if not isinstance(found, SeparationResult):
            raise InvalidInput(
                f"{type(self.separator).__name__}.find must return a SeparationResult, got "
                f"{type(found).__name__}"
            )
        return found


@dataclass(frozen=True, slots=True)
class _SearchPortion:
    """The work of one process: some searches of one mixture, one after the other."""

    ensemble: Ensemble

    def __call__(self, searches: Sequence[_Search]) -> list[SeparationResult]:
        return [search.run(self.ensemble) for search in searches]


def _run_searches(ensemble: Ensemble, searches: Sequence[_Search]) -> list[SeparationResult]:
    """The answers in order; several requirements side by side, if so many jobs are allowed.

    Separators that remember something are asked here, and so are all where the mixture is on a
    GPU: its memory is not shared among processes. A single requirement's jobs are its rules, which
    `BlackBox` searches side by side itself.
    """
    jobs = count_jobs(None)
    alone = ensemble.device.type != "cpu" or len(searches) < 2 or jobs == 1
    if alone or find_stateful_parts({str(one.number): one.separator for one in searches}):
        return [search.run(ensemble) for search in searches]
    portions = min(PORTIONS * jobs, len(searches))
    answers = fan_out(
        _SearchPortion(ensemble),
        [searches[first::portions] for first in range(portions)],
        threads=1,
        names=[f"searches {first + 1}, {first + 1 + portions}, ..." for first in range(portions)],
    )
    found: list[SeparationResult | None] = [None] * len(searches)
    for first, portion in enumerate(answers):
        found[first::portions] = portion
    return [one for one in found if one is not None]
