"""Problems with rules on decisions: members vote, and one decision per input is made of shares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cg4ai.errors import InvalidInput
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
    """Every column's votes at the inputs of the rules on decisions."""

    def __init__(self, work: Workspace) -> None:
        self.batches: list[LinearRows] = []
        self.places: list[slice] = []
        start = 0
        for batch in work.rows.batches:
            if isinstance(batch, LinearRows) and batch.votes:
                self.batches.append(batch)
                self.places.append(slice(start, start + len(batch)))
            start += len(batch)
        self.count = start
        self.votes = [
            votes(work.columns.outputs(batch.inputs)).cpu().numpy() for batch in self.batches
        ]

    def lacking(self, weights: Array, seed: int) -> Array:
        """(m,): by how much decisions miss each row of the master, 0 for all other rows."""
        result = np.zeros(self.count)
        used = np.flatnonzero(weights > 0)
        share = weights[used] / weights[used].sum()
        for batch, place, own in zip(self.batches, self.places, self.votes, strict=True):
            shares = np.tensordot(share, own[used], 1)
            decided = np.eye(shares.shape[1])[decisions(shares, batch.inputs, seed)]
            values = batch.values(torch.as_tensor(decided)).numpy()
            result[place] = np.maximum(shortfall(batch.bounds, values), 0.0)
        return result


def decided(work: Workspace, weights: Array, seed: int) -> Decided:
    """Weights and a seed with which the decisions at the listed inputs keep the rules.

    Decisions miss rows that shares keep by what the hash makes of the few inputs without a clear
    vote. Some seeds miss none. If none does, the rows are tightened by what was missed.
    """
    votes = _Votes(work)
    margins = np.zeros(votes.count)
    best = Decided(weights, seed, "")
    least = np.inf
    for _ in range(ROUNDS):
        found = [(votes.lacking(weights, seed + k), seed + k) for k in range(SEEDS)]
        lacking, chosen = min(found, key=lambda one: float(one[0].max()))
        worst = float(lacking.max())
        if worst < least:
            best, least = Decided(weights, chosen, ""), worst
        if worst <= work.settings.feasibility_tolerance:
            return best
        margins = margins + lacking
        weights = work.tightened(margins).weights
    return replace(best, note=f"decisions miss a rule by {least:.3g}, which its shares keep")
