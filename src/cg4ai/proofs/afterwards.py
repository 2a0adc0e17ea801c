"""Rules over regions that a run could only search are proven after it, in a share of its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cg4ai.ensemble.audit import Audit, audit
from cg4ai.ensemble.claims import record_certified
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs.certify import certify
from cg4ai.records import StopReason, Strength
from cg4ai.rules import Requirement
from cg4ai.rules.regions import Region
from cg4ai.separation.scan import harvest
from cg4ai.settings import Settings
from cg4ai.solving.result import Result

SHARE = 0.25  # of the seconds that the run took, for all proofs together
LEAST_S = 2.0


def proven_afterwards(
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
    left = settings.time_limit_s - result.seconds
    budget = min(max(LEAST_S, SHARE * result.seconds), left)
    if not searched or budget <= 0:
        return result
    audits, notes = list(result.audits), [result.note] if result.note else []
    for number in searched:
        one = requirements[number]
        found, why = _tried(result.ensemble, one, audits[number], seconds=budget / len(searched))
        audits[number] = found
        if why:
            notes.append(f"{one.name} is not proven: {why}")
    return replace(result, audits=tuple(audits), note="; ".join(notes))


def _only_searched(requirement: Requirement, found: Audit) -> bool:
    over = isinstance(requirement.region, Region)
    return over and found.strength in (Strength.ATTACKED, Strength.BOUNDED) and found.holds


def _tried(
    ensemble: Ensemble, requirement: Requirement, found: Audit, *, seconds: float
) -> tuple[Audit, str]:
    """What is known of the rule now, and why no more, if so."""
    try:
        answer = certify(ensemble, requirement, time_limit_s=seconds)
    except InvalidInput as error:  # rules and members that have no bounds
        return found, str(error)
    if answer.status == "refuted":  # by more than the audit allows, which had not found it
        points = np.stack(list(answer.violations.values()))
        effort = {**found.effort, "cells": answer.cells}
        broken = harvest(ensemble, requirement, points, limit=100, tolerance=0.0, effort=effort)
        found = audit(requirement, ensemble, found=broken)
    if answer.status != "proven":
        return found, f"{answer.status} within {seconds:.1f} s ({answer})"
    record_certified(ensemble, requirement, certification=answer)
    effort = {"cells": answer.cells, "seconds": round(answer.seconds, 3)}
    return replace(found, strength=answer.strength, effort={**found.effort, **effort}), ""
