"""Pricers take turns by iteration; while the mixture misses a row the freest is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.pricing.wrappers import AlternatingPricer, misses_rows
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals, PricingResult
from cg4ai.rules.rows import LinearRows, RowSet


@dataclass
class Named:
    name: str

    def price(self, request: PricingRequest) -> PricingResult:
        empty = np.empty(0, np.int64)
        return PricingResult(None, empty, empty, note=self.name)


def request(iteration: int, *, value: float | None, bound: float, number: int = 0) -> Any:
    rows = LinearRows(
        number, np.zeros((1, 2)), np.ones((1, 1)), np.array([bound]), np.zeros(1, int)
    )
    layout = Layout.single(1)
    ensemble = None
    if value is not None:
        members = ConstantMembers(np.array([[value]]), 2)
        ensemble = Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), layout)
    return PricingRequest(
        iteration=iteration,
        seed=0,
        duals=Duals(np.zeros(1), np.zeros(1)),
        guide=np.zeros(1),
        rows=RowSet(layout, [rows]),
        objective=Supervised(np.zeros((1, 2)), np.zeros((1, 1))),
        loss_weight=1.0,
        ensemble=ensemble,
        device="cpu",
    )


@pytest.mark.parametrize(
    ("value", "bound", "missed"),
    [(1.0, 2.0, True), (2.0, 2.0, False), (2.0 - 1e-7, 2.0, False), (3.0, 2.0, False)],
)
def test_a_row_is_missed_by_the_mixture(value: float, bound: float, missed: bool) -> None:
    assert misses_rows(request(0, value=value, bound=bound)) is missed


def test_without_a_mixture_or_for_pieces_of_the_objective_nothing_is_missed() -> None:
    assert not misses_rows(request(0, value=None, bound=2.0))
    assert not misses_rows(request(0, value=1.0, bound=2.0, number=-1))


def test_turns_by_iteration_unless_a_row_is_missed() -> None:
    pricer = AlternatingPricer([Named("stiff"), Named("stiffer"), Named("free")], freest=2)
    met = [pricer.price(request(k, value=3.0, bound=2.0)).note for k in range(4)]
    assert met == ["stiff", "stiffer", "free", "stiff"]
    missed = [pricer.price(request(k, value=1.0, bound=2.0)).note for k in range(4)]
    assert missed == ["stiff", "free", "free", "free"]


def test_the_first_call_does_not_price_rows() -> None:
    seen: list[PricingRequest] = []

    class Recording(Named):
        def price(self, request: PricingRequest) -> PricingResult:
            seen.append(request)
            return super().price(request)

    pricer = AlternatingPricer([Recording("one")], freest=0)
    for iteration in (0, 1):
        asked = request(iteration, value=1.0, bound=2.0)
        pricer.price(replace(asked, guide=np.ones(1), duals=Duals(np.ones(1), np.ones(1))))
    assert [one.guide[0] for one in seen] == [0.0, 1.0]
    assert [one.duals.rows[0] for one in seen] == [0.0, 1.0]
    assert [one.duals.blocks[0] for one in seen] == [1.0, 1.0]
