"""A pricer that asks another one, in other words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult


@dataclass(frozen=True)
class FirstUnpriced:
    """Asks `inner` for members that fit the data at the first call of a run, as ever afterwards.

    Before anything was trained the prices of rows only say that slack is dear. It depends on the
    request alone, so that a resumed run goes on as it would have.
    """

    inner: Pricer

    def price(self, request: PricingRequest) -> PricingResult:
        if request.iteration > 0:
            return self.inner.price(request)
        zeros = np.zeros_like(request.guide)
        duals = replace(request.duals, rows=zeros)
        return self.inner.price(replace(request, guide=zeros, duals=duals))
