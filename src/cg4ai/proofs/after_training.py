"""Rules over regions that a run could only search are proven after it, as far as some work goes.

The work is counted in cells: what is proven does not depend on how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cg4ai import clock
from cg4ai.clock import Deadline
from cg4ai.colgen.result import Result
from cg4ai.colgen.separation.scan import collect_violations
from cg4ai.ensemble.audit import Audit, audit
from cg4ai.ensemble.claims import record_certified
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.records import StopReason, Strength
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region
from cg4ai.settings import Settings

# of all proofs together: what takes a free core some seconds
WORK = 2**28  # cells times numbers that the members are made of
LEAST_CELLS, MOST_CELLS = 1000, 50_000
LEAST_S = 1e-3


def prove_afterwards(
    result: Result, requirements: Sequence[Requirement], settings: Settings
) -> Result:
    """The result with rules as `certified` that a proof was found for; notes name the others.

    `requirements` are those of the problem, in order. Nothing is tried where the settings ask for
    less than every input, where a violation is known, or after an interrupt.
    """
    if settings.guarantee != "every input" or result.stop_reason is StopReason.INTERRUPTED:
        return result
    pairs = list(zip(requirements, result.audits, strict=True))
    searched = [k for k, (one, found) in enumerate(pairs) if _only_searched(one, found)]
    if not searched:
        return result
    left = min(
        settings.time_limit_s - result.seconds, clock.review().deadline.compute_seconds_left()
    )
    deadline = Deadline.after(left)
    audits, notes = list(result.audits), [result.note] if result.note else []
    cut = list(result.cut)
    for number in searched:
        one = requirements[number]
        found, why = audits[number], "the time limit left no time for it"
        if not deadline.passed:
            with clock.review().stage(f"proving {one.name}"):
                found, why = _tried(
                    result.ensemble, one, found, share=len(searched), deadline=deadline
                )
        audits[number] = found
        if why:
            notes.append(f"{one.name} is not proven: {why}")
            cut += [f"the proof of {one.name}"] if deadline.passed else []
    return replace(result, audits=tuple(audits), note="; ".join(notes), cut=tuple(cut))


def _cells(ensemble: Ensemble) -> int:
    """Cells that may be bounded, fewer of large members: a count, so that seconds do not matter."""
    arrays = [array for part in ensemble.used for array in part.members.state().arrays.values()]
    size = sum(array.size for array in arrays)
    return max(LEAST_CELLS, min(MOST_CELLS, WORK // max(1, size)))


def _only_searched(requirement: Requirement, found: Audit) -> bool:
    over = isinstance(requirement.region, Region)
    return over and found.strength in (Strength.ATTACKED, Strength.BOUNDED) and found.holds


def _tried(
    ensemble: Ensemble,
    requirement: Requirement,
    found: Audit,
    *,
    share: int,
    deadline: Deadline,
) -> tuple[Audit, str]:
    """What is known of the rule now, and why no more, if so."""
    from cg4ai.proofs.certification import certify

    try:
        cells = max(1, _cells(ensemble) // share)
        answer = certify(
            ensemble,
            requirement,
            cell_limit=cells,
            time_limit_s=max(deadline.compute_seconds_left(), LEAST_S),
        )
    except InvalidInput as error:  # rules and members that have no bounds
        return found, str(error)
    if answer.status == "refuted":  # by more than the audit allows, which had not found it
        points = np.stack(list(answer.violations.values()))
        effort = {**found.effort, "cells": answer.cells}
        broken = collect_violations(
            ensemble, requirement, points, limit=100, tolerance=0.0, effort=effort
        )
        found = audit(requirement, ensemble, found=broken)
    if answer.status != "proven":
        why = f"{answer.status} after {answer.cells:,} of at most {cells:,} cells"
        return found, f"{why} ({answer.note})" if answer.note else why
    record_certified(ensemble, requirement, certification=answer)
    effort = {"cells": answer.cells, "seconds": round(answer.seconds, 3)}
    return replace(found, strength=answer.strength, effort={**found.effort, **effort}), ""
