"""Classical routings against programs stated whole for scipy, and against all vertices."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.routing import instance
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.classical import (
    best_static,
    equal_cost,
    find_cope,
    find_oblivious,
    loads_of,
    previous_optimum,
    worst_ratio,
    worst_utilisation,
)
from cg4ai.routing.prove.worst import WorstRatio
from cg4ai.rules.regions import Box, Polytope
from cg4ai.seeds import generator
from raising import raises


@pytest.fixture(scope="module")
def small() -> Instance:
    return instance("abilene", 4, 3, least=0.1)


def corners(made: Instance, least: float) -> Array:
    return np.array(list(product((least, 1.0), repeat=len(made.demand_max)))) * made.demand_max


def whole_program(made: Instance, vectors: Array) -> float:
    """The least worst MLU / optimum of a static split over listed vectors, stated whole."""
    paths, arcs = made.incidence.shape
    best = made.find_optimal(vectors).mlu
    rows = [
        np.append(vector[made.path_demand] * made.incidence[:, arc] / made.capacity[arc], -least)
        for vector, least in zip(vectors, best, strict=True)
        for arc in range(arcs)
    ]
    shares = np.zeros((len(made.demand_max), paths + 1))
    shares[made.path_demand, np.arange(paths)] = 1.0
    found = linprog(
        np.append(np.zeros(paths), 1.0),
        A_ub=np.array(rows),
        b_ub=np.zeros(len(rows)),
        A_eq=shares,
        b_eq=np.ones(len(shares)),
    )
    return float(found.fun)


def test_the_worst_ratio_is_reached_and_no_vertex_is_worse(small: Instance) -> None:
    split = equal_cost(small).split
    claimed = worst_ratio(small, split, small.region)
    vectors = corners(small, 0.1)
    inside = np.concatenate([vectors, small.sample(300, 1)])
    ratios = small.compute_utilisation(inside, split).max(axis=1) / small.find_optimal(inside).mlu
    assert ratios.max() <= claimed + 1e-7
    program = WorstRatio(small, small.region)
    found = [program.find(own) for own in loads_of(small, split)]
    top = max(found, key=lambda one: one.ratio)
    vector = top.shares / top.scale * small.demand_max
    inside = np.clip(vector, 0.1 * small.demand_max, small.demand_max)
    assert vector == pytest.approx(inside, rel=1e-9)
    reached = (
        small.compute_utilisation(vector[None], split).max()
        / small.find_optimal(vector[None]).mlu[0]
    )
    assert reached == pytest.approx(claimed, abs=1e-7)


def test_prices_of_the_worst_vector_prove_its_ratio(small: Instance) -> None:
    """The lower bound that they make of the least MLU, at random vectors, and where it is tight."""
    split = equal_cost(small).split
    program = WorstRatio(small, small.region)
    vectors = small.sample(200, 5)
    least = small.find_optimal(vectors).mlu
    for arc in range(len(small.arcs)):
        loads = np.bincount(
            small.path_demand, small.incidence[:, arc] * split / small.capacity[arc]
        )
        if not loads.any():
            continue
        found = program.find(loads * small.demand_max)
        per_path = small.incidence @ (found.arc_prices / small.capacity)
        prices = np.array([per_path[block].min() for block in small.blocks])
        assert (vectors @ prices <= found.ratio * least + 1e-7).all()
        assert (vectors @ loads <= vectors @ prices + 1e-7).all()


def test_oblivious_over_a_range_is_the_program_over_its_worst_vectors(small: Instance) -> None:
    found = find_oblivious(small, small.region)
    assert found.level == pytest.approx(worst_ratio(small, found.split, small.region), abs=1e-7)
    # no static split is better even at the vertices alone, and at many inside it is no worse
    at_vertices = whole_program(small, corners(small, 0.1))
    assert at_vertices <= found.level + 1e-7
    vectors = np.concatenate([corners(small, 0.1), small.sample(100, 3)])
    assert whole_program(small, vectors) <= found.level + 1e-7
    assert found.level <= find_oblivious(small).level + 1e-7


def test_the_oblivious_ratio_of_two_parallel_links() -> None:
    """One demand over links of capacities 1 and 3: a quarter and three quarters are optimal."""
    graph = nx.DiGraph()
    for middle, capacity in (("b", 1.0), ("c", 3.0)):
        graph.add_edge("a", middle, capacity=capacity)
        graph.add_edge(middle, "d", capacity=capacity)
    graph.graph["demands"] = {"a": {"d": 1.0}}
    made = instance(graph, 1, 2)
    found = find_oblivious(made)
    assert found.level == pytest.approx(1.0, abs=1e-7)
    at = {path[1]: share for path, share in zip(made.paths, found.split, strict=True)}
    assert at == pytest.approx({"b": 0.25, "c": 0.75})


def test_oblivious_of_the_benchmark() -> None:
    """Of abilene 5/3 it is 10/7, by the program of Applegate and Cohen stated as one."""
    assert find_oblivious(instance("abilene", 5, 3)).level == pytest.approx(10 / 7, abs=1e-6)


def test_oblivious_over_a_polytope_is_between(small: Instance) -> None:
    box = small.region
    assert isinstance(box, Box)
    tight = Polytope(box, np.ones((1, box.size)), [0.5 * float(box.upper.sum())])
    level = find_oblivious(small, tight).level
    vectors = tight.sample(200, generator(1)).numpy()
    assert whole_program(small, vectors) <= level + 1e-7 <= find_oblivious(small).level + 2e-7


def test_cope_lies_between_the_best_and_the_oblivious_split(small: Instance) -> None:
    samples = small.sample(40, 7)
    free = whole_program(small, samples)
    strict = find_oblivious(small)
    loose = find_cope(small, samples, ceiling=10.0)
    tight = find_cope(small, samples, ceiling=strict.level + 1e-6)
    half = find_cope(small, samples, ceiling=(strict.level + worst_ratio(small, loose.split)) / 2)
    assert loose.level == pytest.approx(free, abs=1e-6)
    assert loose.level <= half.level + 1e-7 <= tight.level + 2e-7
    assert worst_ratio(small, tight.split) <= strict.level + 1e-5
    with raises(InvalidInput, "infeasible"):
        find_cope(small, samples, ceiling=strict.level - 0.01)


def test_cope_under_a_ceiling_of_utilisation(small: Instance) -> None:
    found = find_cope(small, small.sample(20, 8), ceiling=1.0, measure="utilisation")
    assert worst_utilisation(small, found.split) <= 1 + 1e-6


def test_equal_cost_splits_evenly_over_equal_lengths(small: Instance) -> None:
    split = equal_cost(small).split
    for block in small.blocks:
        lengths = small.path_length[block]
        chosen = np.isclose(lengths, lengths.min(), atol=1e-6)
        assert np.allclose(split[block], chosen / chosen.sum())


def test_best_static_has_the_least_mean_ratio(small: Instance) -> None:
    samples = small.sample(30, 9)
    best = small.find_optimal(samples).mlu
    found = best_static(small, samples)

    def mean(split: Array) -> float:
        return float((small.compute_utilisation(samples, split).max(axis=1) / best).mean())

    assert found.level == pytest.approx(mean(found.split), abs=1e-9)
    made = np.random.default_rng(0)
    for _ in range(50):
        other = made.exponential(size=len(found.split))
        other /= np.bincount(small.path_demand, other)[small.path_demand]
        for share in (0.01, 0.3, 1.0):
            mixed = found.split + share * (other - found.split)
            assert mean(mixed) >= found.level - 1e-7


def test_the_previous_optimum_is_that_of_the_row_before(small: Instance) -> None:
    vectors = small.sample(5, 2)
    splits = previous_optimum(small, vectors)
    assert splits.shape == (4, len(small.path_demand))
    reached = small.compute_utilisation(vectors[:-1], splits).max(axis=1)
    assert reached == pytest.approx(small.find_optimal(vectors[:-1]).mlu, abs=1e-6)
