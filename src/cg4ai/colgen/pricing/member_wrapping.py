"""Pricers whose members are of another make: completed, or behind a shield."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from cg4ai.protocols import Architecture, Members, Pricer, PricingRequest
from cg4ai.records import PricingResult


@dataclass(frozen=True)
class Remade:
    """Asks `inner` and changes the members it proposes.

    What it proved of its own members says nothing of these, so its bounds are dropped.
    """

    inner: Pricer
    change: Callable[[Members], Members]

    def price(self, request: PricingRequest) -> PricingResult:
        found = self.inner.price(request)
        if found.members is None:
            return replace(found, lower_bound=None)
        return replace(found, members=self.change(found.members), lower_bound=None)


def within(pricer: Any, change: Callable[[Any], Pricer], *, at_once: type | None = None) -> Pricer:
    """The same pricer with those changed that train members, whatever wraps them.

    Wrappers of the kind `at_once` are changed themselves.
    """
    whole = at_once is not None and isinstance(pricer, at_once)
    if whole or not (hasattr(pricer, "inner") and is_dataclass(pricer)):
        return change(pricer)
    asked: dict[str, Any] = {}
    for one in fields(pricer):  # whatever it calls those it asks
        value = getattr(pricer, one.name)
        if callable(getattr(value, "price", None)):
            asked[one.name] = within(value, change, at_once=at_once)
        elif isinstance(value, tuple | list) and any(hasattr(v, "price") for v in value):
            asked[one.name] = tuple(within(v, change, at_once=at_once) for v in value)
    made: Callable[..., Pricer] = replace
    return made(pricer, **asked)


def rebuilt(
    pricer: Any,
    *,
    architecture: Callable[[Architecture], Architecture],
    members: Callable[[Members], Members],
) -> Pricer:
    """The same pricer, within its wrappers, for changed members.

    One that trains an `architecture` trains the changed one; of others the members are changed.
    """

    def changed(one: Any) -> Pricer:
        if hasattr(one, "architecture"):
            trained: Pricer = replace(one, architecture=architecture(one.architecture))
            return trained
        return Remade(one, members)

    return within(pricer, changed)
