"""Defaults of pricers: what one that trains, one with an architecture and one that asks others do.

`protocols.Pricer` lists all that is asked of a pricer. A class that derives from one of these need
only write `price`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.protocols import (
    Architecture,
    MemberChange,
    Members,
    Pricer,
    PricerCapabilities,
    PricingRequest,
)
from cg4ai.records import PricingResult

if TYPE_CHECKING:
    from cg4ai.colgen.pricing.probes import Probe
    from cg4ai.objectives import AnyObjective
    from cg4ai.rules import Requirement
    from cg4ai.rules.shapes import Shape


class PricerDefaults:
    """A pricer that trains its members itself, in one way only, and proves nothing."""

    @property
    def capabilities(self) -> PricerCapabilities:
        return PricerCapabilities()

    def inner_parts(self) -> Sequence[Pricer]:
        return ()

    def map_inner(self: Pricer, change: Callable[[Pricer], Pricer]) -> Pricer:
        return self

    def trained_architecture(self) -> Architecture | None:
        return None

    def with_members(self: Pricer, change: MemberChange) -> Pricer:
        return MemberChangePricer(self, change.members)

    def with_shapes(self: Pricer, shapes: Sequence[Shape]) -> Pricer:
        return self

    def for_estimate(self: Pricer, probe: Probe) -> Pricer:
        return FullCallPricer(self, probe)

    def for_single_models(self: Pricer, pressure: float) -> Pricer:
        return self

    def for_decisions(self: Pricer) -> Pricer:
        return self

    def refuse(self, objective: AnyObjective, requirements: Sequence[Requirement]) -> None:
        pass

    def factories(self) -> Mapping[str, Any]:
        return {}


class ArchitecturePricer(PricerDefaults):
    """A pricer that trains its `architecture`: a dataclass with a field of this name."""

    architecture: Architecture

    def trained_architecture(self) -> Architecture | None:
        return self.architecture

    def with_members(self, change: MemberChange) -> Pricer:
        return _replaced(self, architecture=change.architecture(self.architecture))

    def factories(self) -> Mapping[str, Any]:
        return self.architecture.factories()


class WrappingPricer(PricerDefaults):
    """A pricer that asks others: a dataclass whose field `inner` is one, or a sequence of them.

    Whatever is asked of it but `price`, those are asked.
    """

    inner: Pricer | Sequence[Pricer]

    def inner_parts(self) -> Sequence[Pricer]:
        inner = self.inner
        return tuple(inner) if isinstance(inner, Sequence) else (inner,)

    def map_inner(self, change: Callable[[Pricer], Pricer]) -> Pricer:
        if isinstance(self.inner, Sequence):
            return _replaced(self, inner=tuple(map(change, self.inner)))
        return _replaced(self, inner=change(self.inner))

    def with_members(self, change: MemberChange) -> Pricer:
        return self.map_inner(lambda one: one.with_members(change))

    def with_shapes(self, shapes: Sequence[Shape]) -> Pricer:
        return self.map_inner(lambda one: one.with_shapes(shapes))

    def for_estimate(self, probe: Probe) -> Pricer:
        return self.map_inner(lambda one: one.for_estimate(probe))

    def for_single_models(self, pressure: float) -> Pricer:
        return self.map_inner(lambda one: one.for_single_models(pressure))

    def for_decisions(self) -> Pricer:
        return self.map_inner(lambda one: one.for_decisions())


def _replaced(pricer: Any, **changes: Any) -> Pricer:
    """A dataclass with other values of these fields, which the classes above declare."""
    made: Pricer = replace(pricer, **changes)
    return made


@dataclass(frozen=True)
class MemberChangePricer(WrappingPricer):
    """Asks `inner` and changes the members it proposes.

    What it proved of its own members says nothing of these, so its bounds are dropped.
    """

    inner: Pricer
    change: Callable[[Members], Members]

    def with_members(self, change: MemberChange) -> Pricer:
        """What is asked for later is put around what was asked for before, as of architectures."""
        return MemberChangePricer(self, change.members)

    def price(self, request: PricingRequest) -> PricingResult:
        found = self.inner.price(request)
        if found.members is None:
            return replace(found, lower_bound=None)
        return replace(found, members=self.change(found.members), lower_bound=None)


@dataclass(frozen=True)
class FullCallPricer(WrappingPricer):
    """Asks `inner`, which has no brief way, where a whole call is paid for or it proves bounds."""

    inner: Pricer
    probe: Probe

    def price(self, request: PricingRequest) -> PricingResult:
        if self.probe.share < 1 and not self.inner.capabilities.proves:
            none = np.empty(0, np.int64)
            return PricingResult(None, none, none)
        return self.inner.price(request)


def iterate_pricers(pricer: Pricer) -> Iterator[Pricer]:
    """The pricer and all that it asks, whatever wraps them."""
    yield pricer
    for one in pricer.inner_parts():
        yield from iterate_pricers(one)


def map_trainers(pricer: Pricer, change: Callable[[Pricer], Pricer]) -> Pricer:
    """The same pricer with those changed that train members, whatever wraps them."""
    if not pricer.inner_parts():
        return change(pricer)
    return pricer.map_inner(lambda one: map_trainers(one, change))
