"""Problems with rules on decisions: members vote, then thresholds on their scores decide."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from cg4ai.colgen.pricing.defaults import WrappingPricer, map_trainers
from cg4ai.colgen.pricing.reduced_cost import price_terms
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.problem import Problem
from cg4ai.compile.thresholds import Listed, best_thresholds
from cg4ai.data.arrays import same_inputs
from cg4ai.ensemble.decision_rule import Decider
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.objectives import LossFunction, Objective, Supervised, votes
from cg4ai.protocols import Pricer, PricerCapabilities, PricingRequest
from cg4ai.records import Array, Duals, PricingResult
from cg4ai.rules import DecisionRate, Requirement
from cg4ai.rules.rows import LinearRows, RowSet, shortfall

FREE = 2.0  # more than rates can differ by
UNKEPT = (
    "the margin of a rule on decisions cannot be kept by the members that were found: the rule is "
    "kept as asked, at the listed inputs, and may be missed by more on new ones"
)
WORTH_SAYING = 0.01  # of all rows: how many more wrong decisions are


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
    note = f"{others}: about scores; decisions have thresholds, which {ruled[0].name} binds"

    def change(pricer: Pricer) -> Pricer:
        return VotePricer(pricer, objective.loss)

    classes = problem.layout.output_size
    constant = ConstantMembers(np.eye(classes), objective.inputs.shape[1])
    return replace(
        problem,
        objective=replace(objective, loss="error", kind="average"),
        pricers=[map_trainers(one, change) for one in problem.pricers],
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
    asked = _rates(work.problem.asked or work.problem.requirements)
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


LARGE = 1e6  # worth of a member in a request: its pricer proposes all that it trains


@dataclass(frozen=True)
class VotePricer(WrappingPricer):
    """Asks `inner` for classifiers of what votes cost, and has them vote; `loss` is theirs."""

    inner: Pricer
    loss: str | LossFunction

    @property
    def capabilities(self) -> PricerCapabilities:
        return PricerCapabilities(fits_data=True)

    def price(self, request: PricingRequest) -> PricingResult:
        sample = self._sample(request)
        if len(np.unique(sample.targets)) < 2:  # all for one class: constants are there already
            return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))
        found = self.inner.price(
            replace(
                request,
                objective=sample,
                rows=RowSet(request.rows.layout),
                duals=Duals(np.empty(0), np.full(len(request.duals.blocks), LARGE)),
                guide=np.empty(0),
                requirements=(),
                loss_weight=1.0,
                ensemble=None,
            )
        )
        return replace(found, lower_bound=None)

    def _sample(self, request: PricingRequest) -> Supervised:
        objective = request.objective
        if not isinstance(objective, Supervised) or np.ndim(objective.targets) != 1:
            raise InvalidInput("votes are for labelled classes; use a Supervised objective")
        labels = np.asarray(objective.targets, np.int64)
        weights = (
            np.ones(len(labels)) if objective.sample_weight is None else objective.sample_weight
        )
        own = (request.loss_weight * weights / weights.sum())[:, None]
        size = request.rows.layout.output_size
        average = replace(request, objective=replace(objective, kind="average"))
        terms = price_terms(average, request.guide, concave="linearise")
        inputs, costs = _netted(
            np.concatenate([objective.inputs, terms.inputs]),
            np.concatenate([own * (1.0 - np.eye(size)[labels]), terms.prices]),
        )
        gain = np.maximum(costs.mean(1, keepdims=True) - costs, 0.0)
        gain[gain <= 1e-12 * gain.max(initial=0.0)] = 0.0
        which, favoured = np.nonzero(gain)
        return Supervised(
            inputs[which], favoured.astype(np.int64), self.loss, "average", gain[which, favoured]
        )


def _netted(inputs: Array, costs: Array) -> tuple[Array, Array]:
    """Equal inputs as one, with the sum of their costs (n, r)."""
    first, which = same_inputs(inputs)
    total = np.zeros((len(first), costs.shape[1]))
    np.add.at(total, which, costs)
    return inputs[first], total
