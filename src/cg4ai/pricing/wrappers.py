"""A pricer that trains new members by one recipe and, under rules, those it has by another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai.pricing.gradient.pricer import GradientPricer
from cg4ai.protocols import PricingRequest
from cg4ai.records import PricingResult

ENOUGH = "members of this kind are trained once without rules"


@dataclass(frozen=True)
class FreshThenRefined:
    """Asks `fresh` for new members, `refined` once there are rows and a mixture to start from.

    `once` proposes nothing where the mixture has members of this kind and no rules ask for others:
    more of the same, trained from other seeds, are dear and hardly differ. All depends on the
    request alone, so that a resumed run goes on as it would have.
    """

    fresh: GradientPricer
    refined: GradientPricer
    once: bool = False

    @property
    def inner(self) -> tuple[GradientPricer, GradientPricer]:
        return self.fresh, self.refined

    def price(self, request: PricingRequest) -> PricingResult:
        if len(request.rows) and request.ensemble is not None:
            return self.refined.price(request)
        if self.once and self._known(request):
            none = np.empty(0, np.int64)
            return PricingResult(None, none, none, note=ENOUGH)
        return self.fresh.price(request)

    def _known(self, request: PricingRequest) -> bool:
        """Whether members of this kind have weight in the mixture."""
        parts = () if request.ensemble is None else request.ensemble.parts
        architecture = self.fresh.architecture
        return any(architecture.parameters(part.members) is not None for part in parts)
