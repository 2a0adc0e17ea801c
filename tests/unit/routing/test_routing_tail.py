"""The tail of gaps: the optimum from dual prices, and the vectors a router serves worst."""

import numpy as np
import pytest
import torch

from cg4ai.routing import instance
from cg4ai.routing.train import optimal
from cg4ai.routing.train.optimal import demand_prices
from cg4ai.routing.train.rare_demands import GapTail, LeastMlu

SOLVE = optimal._Flows.solve


@pytest.fixture(scope="module")
def abilene():
    return instance("abilene", 5, 3)


def test_prices_never_exceed_the_optimum_and_nearly_always_reach_it(abilene):
    least = LeastMlu(abilene, abilene.sample(300, 1))
    vectors = abilene.sample(500, 2)
    optimal = abilene.find_optimal(vectors).mlu
    bound = least(torch.as_tensor(vectors)).numpy()
    assert (bound <= optimal + 1e-7).all()
    assert np.mean(optimal - bound < 1e-6) > 0.95


def test_the_tail_holds_the_worst_vectors_with_the_level_they_should_keep(abilene):
    counts = np.bincount(abilene.path_demand)
    even = torch.as_tensor(1.0 / counts[abilene.path_demand])

    def predict(demands):
        return even.expand(len(demands), -1)

    tail = GapTail(
        abilene, LeastMlu(abilene, abilene.sample(300, 1)), allowed=0.05, screened=2000, limit=7
    )
    vectors, levels = tail.find(predict, seed=3)
    assert len(vectors) == len(levels) == 7
    optimal = abilene.find_optimal(vectors).mlu
    predicted = abilene.compute_utilisation(vectors, np.tile(even.numpy(), (7, 1))).max(axis=1)
    assert (predicted > levels).all()
    np.testing.assert_allclose(levels, optimal + 0.05, atol=1e-6)
    assert (np.diff(predicted - optimal) <= 1e-9).all()
    # none of many other vectors is much worse than the worst found
    others = abilene.sample(2000, 9)
    gaps = abilene.compute_utilisation(others, np.tile(even.numpy(), (2000, 1))).max(axis=1)
    gaps = gaps - abilene.find_optimal(others).mlu
    assert (predicted - optimal)[0] > 0.9 * gaps.max()
    hardest = tail.find_hardest(predict, seed=3, screened=2000, kept=20)
    assert len(hardest) == 20
    assert len(tail.find_hardest(predict, seed=3, screened=80, kept=20)) == 10  # an eighth
    reached = abilene.compute_utilisation(hardest, np.tile(even.numpy(), (20, 1))).max(axis=1)
    assert (reached - abilene.find_optimal(hardest).mlu).min() > np.median(gaps)


def test_a_router_within_the_allowance_has_no_tail(abilene):
    tail = GapTail(abilene, LeastMlu(abilene, abilene.sample(300, 1)), allowed=9.0, screened=100)
    even = torch.as_tensor(1.0 / np.bincount(abilene.path_demand)[abilene.path_demand])
    vectors, levels = tail.find(lambda demands: even.expand(len(demands), -1), seed=1)
    assert vectors.shape == (0, 5)
    assert levels.shape == (0,)


def test_solving_ends_when_new_prices_have_become_rare(abilene, monkeypatch):
    monkeypatch.setattr(optimal, "PRICED_TOGETHER", 50)
    vectors = abilene.sample(1500, 3)
    solved = []
    monkeypatch.setattr(
        optimal._Flows,
        "solve",
        lambda self, shares: solved.append(1) or SOLVE(self, shares),  # type: ignore[func-returns-value]
    )
    every = demand_prices(abilene, vectors)
    assert len(solved) == 1500
    some = demand_prices(abilene, vectors, unseen=0.05)
    assert 50 <= len(solved) - 1500 < 1500
    known = {tuple(price) for price in every}
    assert {tuple(price) for price in some} <= known
    fresh = abilene.sample(400, 4)
    lacking = (fresh @ every.T).max(1) - (fresh @ some.T).max(1)
    assert (lacking > 1e-9).mean() <= 0.1
