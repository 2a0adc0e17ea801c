"""Sets of demands: what they contain, constant splits that keep them, routers over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai.apps.drift import Excess, summarise_drift
from cg4ai.errors import InvalidInput
from cg4ai.routing import instance
from cg4ai.routing.demands.sets import (
    MIXES,
    FreshDemands,
    Mix,
    MixedDemands,
    demand_box,
    limit_demands,
    measure_excess,
    node_totals,
    scale_set,
)
from cg4ai.routing.network.description import describe_instance, restore_instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.anchors import anchor, robust_split, worst_vectors
from cg4ai.rules.regions import Box, Polytope
from cg4ai.seeds import generator
from raising import raises


def _set(**limits: Any) -> Instance:
    return instance("abilene", 5, 3, **limits)


def test_node_totals_add_up_what_a_node_sends_and_receives() -> None:
    ends = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "a")]
    totals = [row.tolist() for row in node_totals(ends)]
    assert totals == [[1, 1, 0, 0], [0, 1, 1, 0]]  # a sends two, c receives two, others have one


def test_limits_are_shares_of_the_largest_sums() -> None:
    box = demand_box(np.array([2.0, 4.0, 6.0]), 0.5)
    region = limit_demands(box, [("a", "b"), ("a", "c"), ("b", "c")], hose=0.5, budget=0.75)
    assert isinstance(region, Polytope)
    assert region.limit.tolist() == [3.0, 5.0, 9.0]
    assert box.lower.tolist() == [1.0, 2.0, 3.0]
    assert limit_demands(box, [("a", "b")] * 3) is box
    larger = scale_set(region, 2.0)
    assert isinstance(larger, Polytope)
    assert larger.limit.tolist() == [6.0, 10.0, 18.0]
    assert larger.box.upper.tolist() == [4.0, 8.0, 12.0]


@pytest.mark.parametrize("limits", [{"hose": 0.0}, {"hose": 1.2}, {"budget": -1.0}])
def test_shares_of_nothing_or_more_than_all_are_refused(limits: dict[str, float]) -> None:
    with raises(InvalidInput, "range"):
        _set(**limits)


def test_demands_at_least_their_largest_are_refused() -> None:
    with raises(InvalidInput, "range"):
        _set(least=1.0)


def _enumerated_level(made: Instance) -> float:
    """The least worst utilisation by a linear program with a row for each vertex of the set."""
    region = made.region
    if isinstance(region, Box):
        points = np.array([made.demand_max])
    else:
        points = region.extremes(20_000, torch.Generator().manual_seed(0)).numpy()
    paths = len(made.path_demand)
    rows = np.concatenate(
        [
            np.column_stack(
                [
                    (made.incidence.T * b[made.path_demand]) / made.capacity[:, None],
                    -np.ones(len(made.arcs)),
                ]
            )
            for b in points
        ]
    )
    sums = np.zeros((len(made.demand_max), paths + 1))
    sums[made.path_demand, np.arange(paths)] = 1.0
    found = linprog(
        np.append(np.zeros(paths), 1.0),
        A_ub=rows,
        b_ub=np.zeros(len(rows)),
        A_eq=sums,
        b_eq=np.ones(len(sums)),
    )
    return float(found.fun)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"least": 0.3},
        {"hose": 0.6},
        {"budget": 0.4},
        {"hose": 0.8, "budget": 0.6, "least": 0.2},
    ],
)
def test_the_level_of_a_set_is_that_of_its_vertices(limits: dict[str, float]) -> None:
    made = _set(**limits)
    assert made.level == pytest.approx(0.99, abs=1e-9)
    assert _enumerated_level(made) == pytest.approx(0.99, abs=1e-6)
    assert robust_split(made).level == pytest.approx(0.99, abs=1e-7)


def test_a_tighter_set_leaves_room_for_larger_demands() -> None:
    scales = [_set().scale, _set(budget=0.5).scale, _set(hose=0.5, budget=0.4).scale]
    assert scales == sorted(scales)
    assert scales[2] > 1.05 * scales[0]


@pytest.mark.parametrize("limits", [{"least": 0.2}, {"hose": 0.6, "budget": 0.5}])
def test_an_anchor_keeps_the_capacities_all_over_the_set(limits: dict[str, float]) -> None:
    made = _set(**limits)
    split = anchor(made, made.sample(50, 0), reserve=1.0)
    assert worst_vectors(made, split).loads.max() <= made.level + 1e-7
    assert made.compute_utilisation(made.sample(2000, 1), split).max() <= made.level + 1e-7
    assert made.compute_unrouted(split[None]) < 1e-12


@pytest.mark.parametrize("limits", [{}, {"least": 0.2}, {"hose": 0.6, "budget": 0.5, "least": 0.1}])
@pytest.mark.parametrize("edge", [0.0, 0.5])
def test_fresh_demands_are_of_the_set(limits: dict[str, float], edge: float) -> None:
    made = _set(**limits)
    drawn = FreshDemands(made.region, edge=edge)(3000, generator(0)).numpy()
    assert made.region.contains(drawn).all()
    known = made.sample(3000, 5)
    if not edge:  # both uniform: alike in mean and spread
        assert np.allclose(drawn.mean(0), known.mean(0), atol=0.03 * made.demand_max.max())
        assert np.allclose(drawn.std(0), known.std(0), atol=0.03 * made.demand_max.max())
    else:  # from the lower end through a vector of the edge, a ninth further is outside
        lower = made.region.bounds()[0]
        beyond = lower + (drawn[:1500] - lower) / (0.9 - 1e-9)
        assert not made.region.contains(beyond).any()


def test_a_set_is_stored_with_its_instance() -> None:
    made = _set(hose=0.7, least=0.1)
    again = restore_instance(describe_instance(made))
    assert again.region.record() == made.region.record()
    assert again.level == pytest.approx(made.level, abs=1e-12)
    assert "demand_set" not in describe_instance(_set())


def test_volumes_that_cannot_be_routed_are_refused_with_links_and_demands() -> None:
    with raises(InvalidInput, "infeasible", "LOSAng->CHINng"):
        instance("abilene", 5, 3, load=None, hose=0.9)


def test_limits_below_the_least_demands_are_refused_by_name() -> None:
    box = Box(np.array([1.0, 2.0, 0.5]), np.array([10.0, 20.0, 5.0]))
    ends = [("a", "b"), ("a", "c"), ("b", "c")]
    with raises(InvalidInput, "infeasible"):
        limit_demands(box, ends, hose=0.05)
    with raises(InvalidInput, "infeasible"):
        limit_demands(box, ends, budget=0.05)
    assert limit_demands(box, ends, hose=0.2, budget=0.2).covers(box.lower[None]).all()


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("limits", [{}, {"least": 0.2}, {"hose": 0.6, "budget": 0.5, "least": 0.1}])
def test_every_mix_lies_in_the_set_and_is_the_same_for_a_seed(
    limits: dict[str, float], mix: Mix
) -> None:
    made = _set(**limits)
    drawn = MixedDemands(made.region, made.ends)
    vectors = drawn.draw(mix, 500, generator(3)).numpy()
    assert vectors.shape == (500, 5)
    assert made.region.contains(vectors).all()
    assert (vectors.sum(axis=1) > 0).all()
    np.testing.assert_array_equal(vectors, drawn.draw(mix, 500, generator(3)).numpy())


def test_mixes_are_what_they_are_called() -> None:
    size = 200
    ends = [(f"s{number % 20}", f"t{number // 20}") for number in range(size)]
    drawn = MixedDemands(demand_box(np.full(size, 2.0)), ends)
    sparse = drawn.draw("sparse", 400, generator(0)).numpy()
    assert np.mean(sparse > 0) == pytest.approx(0.1, abs=0.01)
    assert ((sparse > 0).sum(axis=1) >= 1).all()
    few = MixedDemands(demand_box(np.ones(3)), [("a", "b"), ("a", "c"), ("b", "c")])
    assert (few.draw("sparse", 400, generator(0)).numpy() > 0).any(axis=1).all()
    for mix in ("lognormal", "gravity"):
        uneven = drawn.draw(mix, 400, generator(0)).numpy()
        np.testing.assert_allclose(uneven.max(axis=1), 2.0)
        assert np.median(uneven) < 0.5
    # of gravity, the logarithm is a sum of one number for the source and one for the target
    table = np.log(drawn.draw("gravity", 1, generator(1)).numpy()[0].reshape(10, 20))
    assert np.linalg.matrix_rank(table - table[:1] - (table[:, :1] - table[0, 0]), tol=1e-9) == 0
    assert drawn.draw("corner", 100, generator(0)).numpy().min() >= 1.8 - 1e-12


def test_a_batch_has_shares_of_all_mixes() -> None:
    made = _set()
    drawn = MixedDemands(made.region, made.ends, others=0.1, edge=0.2)
    vectors = drawn(1000, generator(0)).numpy() / made.demand_max
    assert vectors.shape == (1000, 5)
    near = (vectors >= 0.9).all(axis=1).mean()
    assert near == pytest.approx(0.14, abs=0.02)  # a fifth of what is no other mix
    assert (vectors == 0).any(axis=1).mean() == pytest.approx(0.1, abs=0.01)


def test_the_limit_that_is_exceeded_most_is_named() -> None:
    """A demand, one that is too small, what a node sends: hand-counted."""
    ends = [("a", "b"), ("a", "c"), ("b", "c")]
    names = ["->".join(pair) for pair in ends]
    region = limit_demands(Box(np.array([1.0, 0, 0]), np.array([4.0, 4, 4])), ends, hose=0.75)
    vectors = np.array([[2.0, 2, 2], [2, 6, 0], [0.5, 0, 0], [4, 4, 1], [1, 4, 4], [0, 0, 0]])
    found = measure_excess(region, vectors, names, ends)
    assert [found.limits[at] for at in found.worst[1:]] == [
        *("a->c", "the smallest a->b", "what a sends in all"),
        *("what c receives in all", "the smallest a->b"),
    ]
    assert found.factors == pytest.approx([2 / 3, 1.5, 2.0, 8 / 6, 8 / 6, np.inf])
    assert np.array_equal(found.factors > 1, ~region.covers(vectors))


def test_drift_counts_rows_outside_and_names_the_largest() -> None:
    outside = np.array([False, True, True, True, True])
    excess = Excess(("x", "y"), np.array([0, 0, 1, 1, 0]), np.array([9.0, 1.2, 1.1, 1.5, 0.4]))
    found = summarise_drift(outside, excess)
    assert (found["rows"], found["outside"], found["share"]) == (5, 4, 0.8)
    assert found["largest"] == {"limit": "y", "factor": 1.5, "row": 3}
    assert [(one["limit"], one["rows"]) for one in found["by_limit"]] == [("y", 2), ("x", 1)]
    assert "largest" not in summarise_drift(outside, None)
    assert summarise_drift(np.zeros(0, bool), None)["share"] == 0.0
