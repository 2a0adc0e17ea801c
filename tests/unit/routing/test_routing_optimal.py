"""Optimal routings against scipy's LP and QP solvers, and the anchor's promise on the whole box."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, minimize

from cg4ai.errors import InvalidInput
from cg4ai.routing import Instance, anchor, instance
from raising import raises

CASES = [("abilene", 5, 5), ("di-yuan", 10, 3), ("nobel-eu", 15, 3)]
BUILT = {case: instance(*case) for case in CASES}


def matrices(built: Instance, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One row per demand that sums its splits; one row per arc that gives its utilisation."""
    sums = (built.path_demand == np.arange(len(b))[:, None]).astype(float)
    return sums, (built.incidence * b[built.path_demand][:, None] / built.capacity).T


def scipy_mlu(built: Instance, b: np.ndarray) -> float:
    sums, loads = matrices(built, b)
    paths = sums.shape[1]
    return linprog(
        np.r_[np.zeros(paths), 1.0],
        A_ub=np.c_[loads, -np.ones(len(loads))],
        b_ub=np.zeros(len(loads)),
        A_eq=np.c_[sums, np.zeros(len(sums))],
        b_eq=np.ones(len(sums)),
    ).fun


def scipy_least(built: Instance, b: np.ndarray, weights: np.ndarray, bound: float) -> Any:
    sums, loads = matrices(built, b)
    bounds = np.full(len(loads), bound)
    return linprog(weights, A_ub=loads, b_ub=bounds, A_eq=sums, b_eq=np.ones(len(sums)))


@pytest.mark.parametrize("case", CASES)
def test_mlu_equals_scipy(case: tuple[str, int, int]) -> None:
    built = BUILT[case]
    B = np.vstack([built.sample(20, 5), built.demand_max, np.zeros_like(built.demand_max)])
    B[0, 0] = B[1, 2:] = 0
    assert built.find_optimal(B).mlu == pytest.approx([scipy_mlu(built, b) for b in B], abs=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_splits_are_canonical(case: tuple[str, int, int]) -> None:
    built = BUILT[case]
    B = built.sample(8, 7)
    routing = built.find_optimal(B, splits=True)
    assert routing.splits is not None
    for b, mlu, split in zip(B, routing.mlu, routing.splits, strict=True):
        sums, loads = matrices(built, b)
        total = loads.sum(axis=0)
        least = scipy_least(built, b, total, mlu + 1e-9)
        assert total @ split == pytest.approx(least.fun, abs=1e-6)
        upper = np.vstack([loads, total])
        limits = np.r_[np.full(len(loads), mlu), least.fun] + 1e-9
        closest = minimize(
            lambda f: 0.5 * f @ f,
            least.x,
            jac=lambda f: f,
            bounds=[(0, 1)] * len(split),
            constraints=[LinearConstraint(sums, 1, 1), LinearConstraint(upper, -np.inf, limits)],
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert closest.success
        assert split == pytest.approx(closest.x, abs=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_returned_splits_reach_the_mlu(case: tuple[str, int, int]) -> None:
    built = BUILT[case]
    B = built.sample(200, 11)
    B[:40, 0] = 0
    routing = built.find_optimal(B, splits=True)
    assert routing.splits is not None
    assert routing.splits.min() >= 0
    for block in built.blocks:
        assert routing.splits[:, block].sum(axis=1) == pytest.approx(1)
    assert built.compute_utilisation(B, routing.splits).max(axis=1) == pytest.approx(
        routing.mlu, abs=1e-7
    )
    even = 1 / len(built.blocks[0])
    assert routing.splits[:40, built.blocks[0]] == pytest.approx(even)


def test_splits_do_not_depend_on_the_order_of_the_vectors() -> None:
    built = BUILT["di-yuan", 10, 3]
    B = built.sample(50, 3)
    forward, backward = (built.find_optimal(vectors, splits=True) for vectors in (B, B[::-1]))
    assert forward.splits is not None
    assert backward.splits is not None
    assert forward.splits == pytest.approx(backward.splits[::-1], abs=1e-6)


def test_zero_demands_are_split_evenly() -> None:
    built = BUILT["abilene", 5, 5]
    routing = built.find_optimal(np.zeros((1, 5)), splits=True)
    assert routing.mlu == pytest.approx([0])
    assert routing.splits == pytest.approx(np.full((1, 25), 0.2))


def test_cost_equals_scipy_and_respects_capacity() -> None:
    built = instance("ta1", 10, 2)
    B = built.sample(12, 2)
    for splits in (False, True):
        routing = built.find_optimal(B, splits=splits, objective="cost")
        assert routing.cost is not None
        assert (routing.splits is not None) == splits
        assert routing.mlu.max() <= 1 + 1e-7
        for b, cost in zip(B, routing.cost, strict=True):
            weights = built.path_length * b[built.path_demand]
            assert cost == pytest.approx(scipy_least(built, b, weights, 1.0).fun, rel=1e-7)


def test_cost_outside_the_box_is_refused() -> None:
    built = instance("ta1", 10, 2)
    with raises(InvalidInput, "infeasible", "vector 1"):
        built.find_optimal(np.stack([built.demand_max, 2 * built.demand_max]), objective="cost")


def test_an_unknown_objective_is_refused() -> None:
    built = BUILT["abilene", 5, 5]
    with raises(InvalidInput, "unknown-name", "mlu", "cost"):
        built.find_optimal(built.demand_max, objective="delay")  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=5, max_size=5), st.floats(0, 1), st.integers(0, 4))
def test_mlu_grows_with_demands_and_scales(shares: list[float], more: float, which: int) -> None:
    built = BUILT["abilene", 5, 5]
    b = np.array(shares) * built.demand_max
    larger = b.copy()
    larger[which] += more * (built.demand_max[which] - b[which])
    small, large, half = built.find_optimal(np.stack([b, larger, b / 2])).mlu
    assert small <= large + 1e-9
    assert half == pytest.approx(small / 2, abs=1e-8)


def test_a_long_warm_start_stays_exact() -> None:
    built = BUILT["abilene", 5, 5]
    B = built.sample(3000, 1)
    assert built.find_optimal(B).mlu[2900:] == pytest.approx(
        built.find_optimal(B[2900:]).mlu, abs=1e-8
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("load", [0.99, 1.0])
def test_anchor_is_feasible_on_the_whole_box(case: tuple[str, int, int], load: float) -> None:
    built = instance(*case, load=load)
    split = anchor(built, built.sample(200, 0))
    assert split.min() >= 0
    assert np.bincount(built.path_demand, split) == pytest.approx(1)
    assert built.compute_utilisation(built.demand_max, split).max() <= (1 if load < 1 else 1 + 1e-8)
    assert built.compute_utilisation(built.sample(2000, 1), split).max() <= 1 + 1e-8


def test_anchor_minimises_the_mean_mlu() -> None:
    built = BUILT["abilene", 5, 5]
    B = built.sample(25, 4)
    count, paths = len(B), len(built.path_demand)
    sums, corner = matrices(built, built.demand_max)
    blocks = [
        np.c_[matrices(built, b)[1], -np.eye(count)[s] * np.ones((len(corner), 1))]
        for s, b in enumerate(B)
    ]
    full = linprog(
        np.r_[np.zeros(paths), np.full(count, 1 / count)],
        A_ub=np.vstack([*blocks, np.c_[corner, np.zeros((len(corner), count))]]),
        b_ub=np.r_[np.zeros(count * len(corner)), np.ones(len(corner))],
        A_eq=np.c_[sums, np.zeros((len(sums), count))],
        b_eq=np.ones(len(sums)),
    )
    reached = built.compute_utilisation(B, anchor(built, B)).max(axis=1).mean()
    assert reached == pytest.approx(full.fun, abs=1e-5)


def test_anchor_needs_samples() -> None:
    with raises(InvalidInput, "empty"):
        anchor(BUILT["abilene", 5, 5], np.empty((0, 5)))
