"""Controls of pricing: the same run with requests that lack duals, or the mixture, or both.

What duals and mixture add to members is what a run loses without them at equal steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cg4ai.colgen.pricing.defaults import WrappingPricer
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult

Change = Callable[[PricingRequest], PricingRequest]


def use_duals(request: PricingRequest) -> PricingRequest:
    """As it comes: residual pricing, rows weighted by the duals."""
    return request


def weigh_rows_equally(request: PricingRequest) -> PricingRequest:
    """The same weight for all rows, whatever the master's duals are."""
    return replace(request, guide=np.ones(len(request.rows)))


def ignore_mixture(request: PricingRequest) -> PricingRequest:
    """Neither duals nor mixture: what is trained next is one more of the first kind."""
    return replace(weigh_rows_equally(request), ensemble=None)


@dataclass(frozen=True)
class ControlledPricer(WrappingPricer):
    """Asks `inner` by a changed request; admission is by the true reduced cost all the same."""

    inner: Pricer
    change: Change

    def price(self, request: PricingRequest) -> PricingResult:
        return self.inner.price(self.change(request))
