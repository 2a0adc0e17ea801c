"""Proven gaps of single answers against solved programs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.records import Array
from cg4ai.routing import instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate import answers
from cg4ai.routing.operate.answers import (
    LowerBound,
    compute_stored_prices,
    further_prices,
    improve_answers,
)
from cg4ai.routing.train.optimal import SplitProgram, arc_prices
from raising import raises


@pytest.fixture(scope="module")
def made() -> Instance:
    return instance("abilene", 4, 3)


@pytest.fixture(scope="module")
def bound(made: Instance) -> LowerBound:
    return LowerBound(made, arc_prices(made, made.sample(300, 1)))


def test_the_bound_is_below_the_optimum_and_mostly_equal(made: Instance, bound: LowerBound) -> None:
    vectors = made.sample(300, 2)
    best, least = made.find_optimal(vectors).mlu, bound(vectors)
    assert (least <= best + 1e-9).all()
    assert np.isclose(least, best, rtol=1e-6).mean() > 0.95


def test_prices_of_any_kind_are_a_bound(made: Instance) -> None:
    """What is stored need not be trusted: prices that are no dual solution only bound less."""
    random = LowerBound(made, np.random.default_rng(0).exponential(size=(20, len(made.arcs))))
    vectors = made.sample(100, 3)
    assert (random(vectors) <= made.find_optimal(vectors).mlu + 1e-9).all()


def test_gaps_are_proven_and_large_ones_solved(made: Instance, bound: LowerBound) -> None:
    vectors = made.sample(50, 4)
    best = made.find_optimal(vectors, splits=True)
    assert best.splits is not None
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    mixed = np.where(np.arange(50)[:, None] < 25, best.splits, even)
    found = improve_answers(made, vectors, mixed, bound=bound, fallback=0.02)
    gaps = made.compute_utilisation(vectors, found.splits).max(axis=1) / best.mlu - 1
    assert (gaps <= found.gaps + 1e-6).all()
    assert (found.gaps <= 0.02).all()
    changed = found.improved | found.solved
    assert changed[25:].any()
    assert not (found.improved & found.solved).any()
    assert np.array_equal(found.splits[~changed], mixed[~changed])
    alone = improve_answers(made, vectors, mixed, bound=bound)
    assert not (alone.solved | alone.improved).any()
    assert (alone.gaps[changed] > 0.02).all()


def test_answers_are_improved_without_a_program_and_none_gets_worse(
    made: Instance, bound: LowerBound
) -> None:
    """From splits somewhat off the optimum most come within 2 %, as shares that sum to one."""
    vectors = made.sample(200, 6)
    best = made.find_optimal(vectors, splits=True)
    assert best.splits is not None
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    off = 0.94 * best.splits + 0.06 * even
    found = improve_answers(made, vectors, off, bound=bound, fallback=0.02)
    assert found.improved.sum() > 50
    splits = found.splits[found.improved]
    sums = np.stack([splits[:, block].sum(axis=1) for block in made.blocks])
    assert np.abs(sums - 1).max() < 1e-12
    assert (splits >= 0).all()
    before = made.compute_utilisation(vectors, off).max(axis=1)
    after = made.compute_utilisation(vectors, found.splits).max(axis=1)
    assert (after <= before + 1e-9).all()
    assert (after[found.improved] <= 1.02 * best.mlu[found.improved] + 1e-9).all()


def _optimal_splits(made: Instance, vectors: Array) -> Array:
    return SplitProgram(made).solve(vectors)[0]


def test_further_prices_come_from_where_the_known_ones_prove_too_little(
    made: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one vector's prices alone much is unknown; a good router's answers show where."""
    monkeypatch.setattr(answers, "LOOKED_AT", 1000)
    first = arc_prices(made, made.sample(1, 1))
    sampled = made.sample(400, 7)
    few = LowerBound(made, first)(sampled)
    prices = further_prices(made, first, partial(_optimal_splits, made), seed=3)
    assert np.array_equal(prices[:1], first)
    optimum = made.find_optimal(sampled).mlu
    most = LowerBound(made, prices)(sampled)
    assert (few < 0.99 * optimum).mean() > 0.1
    assert (most < 0.99 * optimum).mean() < 0.02
    assert (most <= optimum + 1e-9).all()


def test_of_too_many_prices_those_are_stored_that_prove_most(
    made: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside prices that nobody can use; any subset is a bound."""
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    part = Part(ConstantMembers(even[None], 4), np.zeros(1, np.int64), np.ones(1))
    router = Ensemble((part,), Layout.single(len(even)))
    useful = arc_prices(made, made.sample(300, 1))
    useless = np.random.default_rng(0).exponential(size=(200, len(made.arcs)))
    monkeypatch.setattr(answers, "LOOKED_AT", 1000)
    monkeypatch.setattr(answers, "MOST_STORED", 10 * len(made.arcs))
    found = np.array(compute_stored_prices(made, router, np.concatenate([useless, useful]), seed=1))
    assert len(found) == 10
    vectors = made.sample(200, 9)
    best, least = made.find_optimal(vectors).mlu, LowerBound(made, found)(vectors)
    assert (least <= best + 1e-9).all()
    assert np.isclose(least, best, rtol=1e-3).mean() > 0.9
    monkeypatch.setattr(answers, "MOST_STORED", 2**18)
    assert len(compute_stored_prices(made, router, seed=1)) > 1  # where none are known


def test_without_prices_nothing_is_known_and_all_is_solved(made: Instance) -> None:
    vectors = made.sample(5, 5)
    even = np.tile(np.concatenate([np.full(len(b), 1 / len(b)) for b in made.blocks]), (5, 1))
    assert np.isinf(improve_answers(made, vectors, even, bound=None).gaps).all()
    found = improve_answers(made, vectors, even, bound=None, fallback=1.0)
    assert found.solved.all()
    reached = made.compute_utilisation(vectors, found.splits).max(axis=1)
    assert reached == pytest.approx(made.find_optimal(vectors).mlu, abs=1e-6)


@pytest.mark.parametrize("smallest", [1e-3, 1e-9, 1e-12, 1e-15])
def test_gaps_hold_for_demands_of_any_size(
    made: Instance, bound: LowerBound, smallest: float
) -> None:
    """Against scipy at vectors of a useful length; loads are proportional to them."""
    random = np.random.default_rng(3)
    long = random.uniform(0.1, 1, (20, 4)) * made.demand_max
    long[10:] *= 10.0 ** random.uniform(-10, 0, (10, 4))
    optimum = np.array([_by_scipy(made, vector) for vector in long])
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    splits = np.tile(even, (20, 1))
    before = made.compute_utilisation(long, splits).max(axis=1)
    for known in (None, bound):
        found = improve_answers(made, smallest * long, splits, bound=known, fallback=0.0)
        after = made.compute_utilisation(long, found.splits).max(axis=1)
        assert (after <= before * (1 + 1e-12)).all()
        assert (after / optimum - 1 <= found.gaps + 1e-9).all()
        assert found.gaps[:10].max() < 1e-6  # the program is solved, however small the demands
        assert found.solved.any()
    assert made.find_optimal(smallest * long[:10]).mlu == pytest.approx(smallest * optimum[:10])
    best = made.find_optimal(smallest * long[:10], splits=True).splits
    assert best is not None
    assert made.compute_utilisation(long[:10], best).max(axis=1) == pytest.approx(optimum[:10])


def _by_scipy(made: Instance, vector: Array) -> float:
    """The least MLU over splits, of a vector that may be long or short."""
    paths, arcs = made.incidence.shape
    loads = made.incidence * vector[made.path_demand][:, None] / made.capacity
    unit = loads.max()
    sums = (made.path_demand == np.arange(len(vector))[:, None]).astype(float)
    found = linprog(
        np.append(np.zeros(paths), 1.0),
        A_ub=np.column_stack([loads.T / unit, -np.ones(arcs)]),
        b_ub=np.zeros(arcs),
        A_eq=np.column_stack([sums, np.zeros(len(vector))]),
        b_eq=np.ones(len(vector)),
    )
    return float(found.fun * unit)


@pytest.mark.parametrize("power", [-1020, -1040, -1060])
def test_gaps_do_not_vanish_with_the_smallest_numbers(
    made: Instance, bound: LowerBound, power: int
) -> None:
    vectors = np.ldexp(np.round(made.sample(20, 5) / made.demand_max * 1024), power)
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    splits = np.tile(even, (20, 1))
    found = improve_answers(made, vectors, splits, bound=bound)
    usual = improve_answers(made, np.ldexp(vectors, -power), splits, bound=bound)
    np.testing.assert_allclose(found.gaps, usual.gaps, rtol=1e-9)
    assert (found.gaps > 0.01).any()
    assert (improve_answers(made, vectors, splits, bound=bound, fallback=0.02).gaps <= 0.02).all()


@pytest.mark.parametrize("wrong", ["nothing is sent", "a share is negative"])
def test_what_is_no_routing_has_no_gap_and_is_solved(
    made: Instance, bound: LowerBound, wrong: str
) -> None:
    vectors = made.sample(10, 6)
    splits = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    first = made.blocks[0]
    splits[first] = 0.0 if wrong == "nothing is sent" else [1.0, 0.5, -0.5]
    splits = np.tile(splits, (10, 1))
    assert np.isinf(improve_answers(made, vectors, splits, bound=bound).gaps).all()
    found = improve_answers(made, vectors, splits, bound=bound, fallback=0.02)
    assert found.solved.all()
    assert (found.gaps <= 0.02).all()
    assert made.compute_unrouted(found.splits) < 1e-9


def test_an_answer_that_is_no_number_is_solved(made: Instance, bound: LowerBound) -> None:
    vectors, none = made.sample(3, 8), np.full((3, len(made.path_demand)), np.nan)
    with np.errstate(invalid="ignore"):
        found = improve_answers(made, vectors, none, bound=bound, fallback=0.1)
    assert found.solved.all()
    assert found.gaps.max() < 1e-6
    assert made.compute_utilisation(vectors, found.splits).max(axis=1) == pytest.approx(
        made.find_optimal(vectors).mlu
    )


def test_no_demand_is_routed_at_no_distance(made: Instance, bound: LowerBound) -> None:
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    found = improve_answers(made, np.zeros((1, 4)), even[None], bound=bound, fallback=0.0)
    assert found.gaps.tolist() == [0.0]
    assert not found.solved.any()


def test_vectors_outside_are_solved_whatever_their_gap(made: Instance, bound: LowerBound) -> None:
    """At their own optimum, whatever was solved before; and it is said which overload a link."""
    vectors = np.concatenate([made.sample(5, 1), 1.3 * made.sample(5, 2), 4 * made.sample(5, 3)])
    outside = ~made.region.covers(vectors)
    best = made.find_optimal(vectors, splits=True)
    assert best.splits is not None
    even = np.concatenate([np.full(len(block), 1 / len(block)) for block in made.blocks])
    splits = 0.7 * best.splits + 0.3 * even
    program = SplitProgram(made)
    found = improve_answers(
        made, vectors, splits, bound=bound, fallback=9.0, outside=outside, program=program
    )
    assert found.solved.any()
    assert not (found.solved & ~outside).any()  # where the router is as good, it answers
    reached = made.compute_utilisation(vectors, found.splits).max(axis=1)
    optimum = np.array([_by_scipy(made, vector) for vector in vectors])
    assert reached[outside] == pytest.approx(optimum[outside], rel=1e-6)
    assert found.gaps[outside].max() < 1e-6
    assert np.array_equal(found.overloaded, reached > 1 + 1e-6)
    assert found.overloaded.any()
    again = SplitProgram(made).solve(vectors[::-1])[0][::-1]  # alone or in any order
    assert np.array_equal(again[found.solved], found.splits[found.solved])


def test_what_are_no_prices_or_gaps_is_refused(made: Instance, bound: LowerBound) -> None:
    for prices in (np.zeros((1, len(made.arcs))), -np.ones((1, len(made.arcs))), np.ones((1, 2))):
        with pytest.raises(InvalidInput, match="prices of links"):
            LowerBound(made, prices)
    with raises(InvalidInput, "range", "fallback"):
        improve_answers(made, made.sample(1, 0), np.ones((1, 12)), bound=bound, fallback=-1.0)
