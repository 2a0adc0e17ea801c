"""Cuts: inputs that a mixture violates become rows of the master; a step of the loop."""

from __future__ import annotations

import time
from dataclasses import replace

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.seeds import derived_seed
from cg4ai.separation import default_separator
from cg4ai.solving.interrupts import Interrupts
from cg4ai.solving.state import RunState


def separate(
    state: RunState,
    ensemble: Ensemble | None,
    job: str,
    interrupts: Interrupts,
    *,
    last: bool = False,
) -> tuple[float | None, int]:
    """Look for violated inputs of every region and pool; add them: (worst, rows added)."""
    if ensemble is None:
        return None, 0
    started = time.perf_counter()
    worst: float | None = None
    added = 0
    for number, requirement in enumerate(state.problem.requirements):
        if requirement.region is None:
            continue
        separator = requirement.separator or default_separator(requirement, ensemble.differentiable)
        if last:
            separator = separator.thorough()
        seed = derived_seed(state.settings.seed, state.step, f"{job} {number}")
        with interrupts.allowed():
            found = separator.find(
                ensemble,
                requirement,
                seed=seed,
                limit=state.settings.cuts_per_round,
                tolerance=state.settings.feasibility_tolerance - state.settings.row_margin / 2,
            )
        worst = found.worst if worst is None else max(worst, found.worst)
        if found.rows is not None and len(found.rows):
            added += state.work.add_cuts(replace(found.rows, requirement=number))
    state.seconds["separation"] += time.perf_counter() - started
    return worst, added
