"""Pricers as they are asked for members that stand alone: each meets the rows by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from cg4ai.colgen.pricing.exact.stumps import StumpPricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.leaf_values import RefittedTrees
from cg4ai.colgen.pricing.member_wrapping import within
from cg4ai.colgen.pricing.trees import TreePricer
from cg4ai.protocols import Pricer


@runtime_checkable
class AloneToo(Protocol):
    """A pricer that has a way of its own to train members that stand alone."""

    def alone(self, pressure: float) -> Pricer:
        """`pressure` says how many times more than usual the rows are to weigh."""
        ...


def alone(pricer: Pricer, pressure: float) -> Pricer:
    """The pricer, within its wrappers, for members that stand alone.

    Those trained by gradients are trained on their own loss, one at a time and all of the time by
    the hinge on the rows; one of them goes on from the best there is. Single trees get leaf values
    that keep the rows, but for those that keep shapes, which other values might break.
    """

    def changed(one: Any) -> Pricer:
        if isinstance(one, GradientPricer):
            return replace(
                one,
                group=1,
                blend=1.0,
                individual=0.0,
                finish=0.0,
                warm_starts=1,
                row_weight=one.row_weight * pressure,
            )
        if isinstance(one, StumpPricer) or (isinstance(one, TreePricer) and not one.shapes):
            return RefittedTrees(one)
        if isinstance(one, AloneToo):
            return one.alone(pressure)
        made: Pricer = one
        return made

    return within(pricer, changed)
