"""How a mixture that keeps rules on decisions decides: its final weights and thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from cg4ai.colgen.restricted_master import Workspace
from cg4ai.colgen.thresholds import Listed, best_thresholds
from cg4ai.ensemble.decision_rule import Decider
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning
from cg4ai.objectives import votes
from cg4ai.records import Array
from cg4ai.rules import DecisionRate, Requirement
from cg4ai.rules.rows import LinearRows, shortfall

FREE = 2.0  # more than rates can differ by
UNKEPT = (
    "the margin of a rule on decisions cannot be kept by the members that were found: the rule is "
    "kept as asked, at the listed inputs, and may be missed by more on new ones"
)
WORTH_SAYING = 0.01  # of all rows: how many more wrong decisions are


@dataclass(frozen=True, slots=True)
class Decided:
    """Weights of the mixture, how it decides, and what is to be said."""

    weights: Array
    decider: Decider
    note: str


def decided(work: Workspace, weights: Array) -> Decided:
    """Weights and thresholds with which the decisions at the listed inputs keep the rules.

    Margins that no weights keep are given up first, and so are those that no thresholds were found
    for, with a warning.
    """
    note = ""
    if (missed := _missed_margins(work, weights)).any():
        note = UNKEPT
        weights = work.tightened(missed).weights
    ensemble = work.whole_ensemble(weights)
    listed = Listed(ensemble, work.problem)
    trained = _rates(work.problem.requirements)
    asked = _rates(work.problem.asked)
    found = best_thresholds(listed, asked if note else trained)
    if not (found.kept or note or all(one in asked for one in trained)):
        note, found = UNKEPT, best_thresholds(listed, asked)
    if note:
        warnings.warn(note, FitWarning, stacklevel=2)
    notes = [note] if note else []
    if not found.kept:
        notes.append(
            f"no thresholds were found with which decisions keep the rules: they miss one by "
            f"{found.missed:.3g}"
        )
    if found.error > listed.error_of_votes + WORTH_SAYING:
        notes.append(
            f"decisions are wrong at {found.error:.1%} of the rows; drawn at random by shares of "
            f"votes they would be at {listed.error_of_votes:.1%}"
        )
    return Decided(weights, found.decider, "; ".join(notes))


def own_votes(ensemble: Ensemble) -> Decider:
    """The decisions of the only member of a mixture: the class of its largest score."""
    count = sum(len(part.weights) for part in ensemble.parts)
    return Decider(np.full(count, 1 / count), np.zeros(ensemble.output_size))


def _rates(requirements: Sequence[Requirement]) -> list[DecisionRate]:
    return [one for one in requirements if isinstance(one, DecisionRate)]


def _missed_margins(work: Workspace, weights: Array) -> Array:
    """(m,): by how much rows of the master change where a margin is missed by shares of votes.

    A rule that is stricter than asked becomes the one asked, one at held-out inputs alone asks for
    nothing. All 0 if no margin is missed.
    """
    easier, short = np.zeros(len(work.rows)), np.zeros(len(work.rows))
    used = np.flatnonzero(weights > 0)
    share = weights[used] / weights[used].sum()
    start = 0
    for batch in work.rows.batches:
        place = slice(start, start + len(batch))
        start = place.stop
        if not (isinstance(batch, LinearRows) and batch.votes):
            continue
        rule = work.problem.requirements[batch.requirement]
        assert isinstance(rule, DecisionRate)
        asked: DecisionRate = rule.asked or rule
        whole = len(asked.points) == len(batch.inputs)
        bounds = asked.rows(batch.requirement).bounds if whole else None
        easier[place] = -FREE if bounds is None else bounds - batch.bounds
        cast = votes(work.columns.outputs(batch.inputs)).cpu().numpy()[used]
        values = replace(batch, votes=False).values(torch.as_tensor(np.tensordot(share, cast, 1)))
        short[place] = shortfall(batch.bounds, values.numpy())
    missed = (short > work.settings.feasibility_tolerance) & (easier < 0)
    return easier if missed.any() else np.zeros(len(easier))
