"""Pricers as they are asked for an estimate: briefly, from many starts, by their reduced cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cg4ai.colgen.pricing.member_wrapping import within
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult

LEAST_STEPS = 10  # of a training, however little of an ordinary one is asked for


@dataclass(frozen=True, slots=True)
class Probe:
    """How hard to look: from so many `restarts`, by this `share` of an ordinary call's work.

    Work is counted in steps and fits, not in seconds, so that the same run looks equally hard on
    every machine.
    """

    restarts: int
    share: float

    def steps(self, usual: int, *, models: int) -> int:
        """Of each restart, where an ordinary call trains `models` for the `usual` steps."""
        wanted = round(self.share * usual * models / self.restarts)
        return min(usual, max(LEAST_STEPS, wanted))


@runtime_checkable
class Probing(Protocol):
    """A pricer that has a way of its own to look briefly."""

    def probing(self, probe: Probe) -> Pricer: ...


@dataclass(frozen=True)
class Affordable:
    """Asks `inner`, which only works whole, where a whole call is to be spent or it proves bounds.

    A pricer says by `proves` of which members.
    """

    inner: Pricer
    probe: Probe

    def price(self, request: PricingRequest) -> PricingResult:
        if self.probe.share < 1 and not hasattr(self.inner, "proves"):
            none = np.empty(0, np.int64)
            return PricingResult(None, none, none)
        return self.inner.price(request)


def probing(pricer: Pricer, probe: Probe) -> Pricer:
    """The pricer, within its wrappers, for members that an estimate rests on."""

    def changed(one: Any) -> Pricer:
        return one.probing(probe) if isinstance(one, Probing) else Affordable(one, probe)

    return within(pricer, changed, at_once=Probing)
