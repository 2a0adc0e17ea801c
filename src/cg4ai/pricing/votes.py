"""Pricing of votes: cost-sensitive fits by any pricer of classifiers.

The reduced cost of a member that votes is a sum over inputs of what its vote costs there: the
error it makes, and the prices of the rows. So the best voter solves a weighted classification
problem: each input asks for the class that costs least, by how much less that is. Members are
trained on it by their usual loss, which stands for the error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cg4ai.arrays import same_inputs
from cg4ai.errors import InvalidInput
from cg4ai.objectives import LossFunction, Supervised
from cg4ai.pricing.reduced_cost import price_terms
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import Array, Duals, PricingResult
from cg4ai.rules.rows import RowSet

LARGE = 1e6  # worth of a member in a request: its pricer proposes all that it trains


@dataclass(frozen=True)
class VotePricer:
    """Asks `inner` for classifiers of what votes cost, and has them vote; `loss` is theirs."""

    inner: Pricer
    loss: str | LossFunction

    fits_data: ClassVar[bool] = True

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
