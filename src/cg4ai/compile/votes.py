"""Problems with rules on decisions: members vote, then thresholds on their scores decide."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cg4ai.colgen.pricing.defaults import WrappingPricer, map_trainers
from cg4ai.colgen.pricing.reduced_cost import compute_price_terms
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.data.arrays import group_same_inputs
from cg4ai.errors import InvalidInput
from cg4ai.members.constants import ConstantMembers
from cg4ai.objectives import LossFunction, Supervised
from cg4ai.protocols import Pricer, PricerCapabilities, PricingRequest
from cg4ai.records import Array, Duals, PricingResult
from cg4ai.rules import DecisionRate, Requirement
from cg4ai.rules.rows import RowSet


def apply_votes(problem: CompiledProblem) -> CompiledProblem:
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


def _labelled(problem: CompiledProblem, rule: Requirement) -> Supervised:
    objective = problem.objective
    labels = objective.labels
    if not isinstance(objective, Supervised) or labels is None or labels.ndim != 1:
        raise InvalidInput(
            f"{rule.name} is about decisions between classes, and this objective has no class "
            "labels; for numbers use Rate",
            code="unsupported",
        )
    if len(problem.layout) > 1:
        raise InvalidInput(
            f"{rule.name} is about decisions of one predictor, got {len(problem.layout)} blocks",
            code="unsupported",
        )
    return objective


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
            raise InvalidInput(
                "votes are for labelled classes; use a Supervised objective", code="unsupported"
            )
        labels = np.asarray(objective.targets, np.int64)
        weights = (
            np.ones(len(labels)) if objective.sample_weight is None else objective.sample_weight
        )
        own = (request.loss_weight * weights / weights.sum())[:, None]
        size = request.rows.layout.output_size
        average = replace(request, objective=replace(objective, kind="average"))
        terms = compute_price_terms(average, request.guide, concave="linearise")
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
    first, which = group_same_inputs(inputs)
    total = np.zeros((len(first), costs.shape[1]))
    np.add.at(total, which, costs)
    return inputs[first], total
