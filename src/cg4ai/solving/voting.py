"""Problems with rules on decisions: members vote, and one decision per input is made of shares."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.draws import decisions
from cg4ai.objectives import Objective, Supervised, votes
from cg4ai.pricing.rebuilt import within
from cg4ai.pricing.votes import VotePricer
from cg4ai.protocols import Pricer
from cg4ai.records import Array
from cg4ai.rules import DecisionRate, Requirement
from cg4ai.rules.rows import LinearRows, shortfall
from cg4ai.solving.problem import Problem
from cg4ai.solving.workspace import Workspace

SEEDS = 32  # of the hash, tried in turn: with one of them decisions may keep what shares keep
FREE = 2.0  # more than rates can differ by
UNKEPT = (
    "the margin of a rule on decisions cannot be kept by the members that were found: the rule is "
    "kept as asked, at the listed inputs, and may be missed by more on new ones"
)
ROUNDS = 10  # of weighing anew, with what decisions lacked as a margin


def voted(problem: Problem) -> Problem:
    """The same problem for members that vote, where some rule is about decisions.

    Members keep their scores, which all other rules bind; rules on decisions read their votes, and
    so does the loss, which becomes the error rate: linear in shares of votes, so that the master is
    linear. All classes have a constant voter to begin with: of them every rule on equal rates can
    be met, if no other rule forbids it.
    """
    ruled = [one for one in problem.requirements if isinstance(one, DecisionRate)]
    if not ruled:
        return problem
    objective = _labelled(problem, ruled[0])

    others = " and ".join(
        one.name for one in problem.requirements if not isinstance(one, DecisionRate)
    )
    note = f"{others}: about scores; decisions are made by votes, which {ruled[0].name} binds"

    def change(pricer: Any) -> Pricer:
        return VotePricer(pricer, objective.loss)

    classes = problem.layout.output_size
    constant = ConstantMembers(np.eye(classes), objective.inputs.shape[1])
    return replace(
        problem,
        objective=replace(objective, loss="error", kind="average"),
        pricers=[within(one, change) for one in problem.pricers],
        notes=(*problem.notes, *([note] if others else [])),
        start=[(constant, np.zeros(classes, np.int64)), *problem.start],
    )


def _labelled(problem: Problem, rule: Requirement) -> Supervised:
    objective = problem.objective
    labelled = isinstance(objective, Supervised) and not isinstance(objective, Objective)
    if not labelled or np.ndim(objective.targets) != 1:  # type: ignore[union-attr]
        raise InvalidInput(
            f"{rule.name} is about decisions between classes, and this objective has no class "
            "labels; for numbers use Rate"
        )
    if len(problem.layout) > 1:
        raise InvalidInput(
            f"{rule.name} is about decisions of one predictor, got {len(problem.layout)} blocks"
        )
    assert isinstance(objective, Supervised)
    return objective


@dataclass(frozen=True, slots=True)
class Decided:
    """Weights, the seed of the hash with them, and what is to be said."""

    weights: Array
    seed: int
    note: str


class _Votes:
    """Every column's votes at the inputs of the rules on decisions, as asked and with margins.

    `easier` (m,) is what rows of the master change by where margins are given up: a rule that is
    stricter than asked becomes the one asked, one at held-out inputs alone asks for nothing.
    """

    def __init__(self, work: Workspace) -> None:
        self.batches: list[LinearRows] = []
        self.places: list[slice] = []
        self.asked: list[Array | None] = []  # bounds; None: decisions need not keep these rows
        self.easier = np.zeros(len(work.rows))
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
            self.easier[place] = -FREE if bounds is None else bounds - batch.bounds
            self.batches.append(batch)
            self.places.append(place)
            self.asked.append(bounds)
        self.votes = [
            votes(work.columns.outputs(batch.inputs)).cpu().numpy() for batch in self.batches
        ]

    def _shares(self, weights: Array) -> list[Array]:
        used = np.flatnonzero(weights > 0)
        share = weights[used] / weights[used].sum()
        return [np.tensordot(share, own[used], 1) for own in self.votes]

    def lacking(self, weights: Array, seed: int) -> Array:
        """(m,): by how much decisions miss each row as asked, 0 for all other rows."""
        result = np.zeros(len(self.easier))
        of_each = zip(self.batches, self.places, self.asked, self._shares(weights), strict=True)
        for batch, place, bounds, shares in of_each:
            if bounds is not None:
                decided = np.eye(shares.shape[1])[decisions(shares, batch.inputs, seed)]
                values = batch.values(torch.as_tensor(decided)).numpy()
                result[place] = np.maximum(shortfall(bounds, values), 0.0)
        return result

    def without_margin(self, weights: Array, tolerance: float) -> NDArray[np.bool_]:
        """(m,): the rows with a margin that shares of votes miss."""
        short = np.zeros(len(self.easier))
        for batch, place, shares in zip(
            self.batches, self.places, self._shares(weights), strict=True
        ):
            values = replace(batch, votes=False).values(torch.as_tensor(shares)).numpy()
            short[place] = shortfall(batch.bounds, values)
        return np.asarray((short > tolerance) & (self.easier < 0))


def decided(work: Workspace, weights: Array, seed: int) -> Decided:
    """Weights and a seed with which the decisions at the listed inputs keep the rules.

    Decisions miss rows that shares keep by what the hash makes of the few inputs without a clear
    vote. Some seeds miss none. If none does, the rows are tightened by what was missed. Margins
    that no weights keep are given up first, with a warning.
    """
    votes, tolerance = _Votes(work), work.settings.feasibility_tolerance
    margins, note = np.zeros(len(votes.easier)), ""
    if votes.without_margin(weights, tolerance).any():
        margins, note = votes.easier, UNKEPT
        weights = work.tightened(margins).weights
        warnings.warn(note, FitWarning, stacklevel=2)
    best = Decided(weights, seed, note)
    least = np.inf
    for _ in range(ROUNDS):
        found = [(votes.lacking(weights, seed + k), seed + k) for k in range(SEEDS)]
        lacking, chosen = min(found, key=lambda one: float(one[0].max()))
        worst = float(lacking.max())
        if worst < least:
            best, least = Decided(weights, chosen, note), worst
        if worst <= tolerance:
            return best
        margins = margins + lacking
        weights = work.tightened(margins).weights
    missed = f"decisions miss a rule by {least:.3g}, which its shares keep"
    return replace(best, note="; ".join(filter(None, (note, missed))))
