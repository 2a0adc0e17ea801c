"""The first call of a run asks for members that fit the data, whatever rows cost."""

from __future__ import annotations

import numpy as np

from cg4ai.layout import Layout
from cg4ai.objectives import Supervised
from cg4ai.pricing.wrappers import FirstUnpriced
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals, PricingResult
from cg4ai.rules.rows import LinearRows, RowSet


class Recording:
    def __init__(self) -> None:
        self.seen: list[PricingRequest] = []

    def price(self, request: PricingRequest) -> PricingResult:
        self.seen.append(request)
        return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))


def request(iteration: int) -> PricingRequest:
    rows = LinearRows(0, np.zeros((1, 2)), np.ones((1, 1)), np.array([2.0]), np.zeros(1, int))
    return PricingRequest(
        iteration=iteration,
        seed=0,
        duals=Duals(np.ones(1), np.ones(1)),
        guide=np.ones(1),
        rows=RowSet(Layout.single(1), [rows]),
        objective=Supervised(np.zeros((1, 2)), np.zeros((1, 1))),
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
    )


def test_the_first_call_does_not_price_rows() -> None:
    inner = Recording()
    pricer = FirstUnpriced(inner)
    for iteration in (0, 1):
        pricer.price(request(iteration))
    assert [one.guide[0] for one in inner.seen] == [0.0, 1.0]
    assert [one.duals.rows[0] for one in inner.seen] == [0.0, 1.0]
    assert [one.duals.blocks[0] for one in inner.seen] == [1.0, 1.0]
