"""Pricers that ask others at certain times: first one then another, or the first time only."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cg4ai.colgen.pricing.defaults import WrappingPricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.members.shielded import ShieldedArchitecture
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult

TREES = "tree"  # the kind of members
ENOUGH = "members of this kind are trained once without rules"


@dataclass(frozen=True)
class TwoStagePricer(WrappingPricer):
    """Of `inner`, asks the first for new members, the second once rules bind a mixture of them.

    Rules bind by rows that it must meet, or by a shield, through which it trains them on. Under
    rows each is trained on its own loss: what they first leave of the mixture is no good company,
    and its outputs at all data take as long as the training.
    `once` proposes nothing where the mixture has members of this kind and no rules ask for others:
    more of the same, trained from other seeds, are dear and hardly differ. `onwards` asks the
    second there, too, after the first iteration. All depends on the request alone, so that a
    resumed run goes on as it would have.
    """

    inner: tuple[GradientPricer, GradientPricer]
    once: bool = False
    onwards: bool = False

    def price(self, request: PricingRequest) -> PricingResult:
        fresh, refined = self.inner
        if len(request.rows) and request.ensemble is not None:
            return replace(refined, blend=1.0).price(request)
        known = self._known(request)
        onwards = self.onwards and request.iteration > 0
        if known and (onwards or isinstance(fresh.architecture, ShieldedArchitecture)):
            return refined.price(request)
        if known and self.once:
            return _nothing(ENOUGH)
        return fresh.price(request)

    def for_estimate(self, probe: Probe) -> Pricer:
        """As the first, whose members may all be new."""
        return self.inner[0].for_estimate(probe)

    def _known(self, request: PricingRequest) -> bool:
        """Whether members of this kind have weight in the mixture."""
        parts = () if request.ensemble is None else request.ensemble.parts
        architecture = self.inner[0].architecture
        return any(architecture.parameters(part.members) is not None for part in parts)


@dataclass(frozen=True)
class InTurn(WrappingPricer):
    """Asks one of `inner` after the other, iteration by iteration, beginning with number `first`.

    A problem has one for each number: where the pricer whose turn it is finds nothing, the next is
    asked in the same iteration.
    """

    inner: tuple[Pricer, ...]
    first: int = 0

    def price(self, request: PricingRequest) -> PricingResult:
        return self.inner[(request.iteration + self.first) % len(self.inner)].price(request)


@dataclass(frozen=True)
class OneTimePricer(WrappingPricer):
    """Asks `inner`, which makes trees, only while the mixture has none.

    With `beside` it is asked in the first iteration alone, and the pricers after it there as well.
    """

    inner: Pricer
    beside: bool = False

    def price(self, request: PricingRequest) -> PricingResult:
        parts = () if request.ensemble is None else request.ensemble.parts
        late = self.beside and request.iteration > 0
        if late or any(part.members.innermost().kind == TREES for part in parts):
            return _nothing(ENOUGH)
        return replace(self.inner.price(request), others_too=self.beside)


def _nothing(note: str) -> PricingResult:
    none = np.empty(0, np.int64)
    return PricingResult(None, none, none, note=note)
