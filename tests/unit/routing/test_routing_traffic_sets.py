"""Sets from measurements against brute force, and the worst optimum against all vertices."""

from itertools import product

import networkx
import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.traffic_sets import compute_contained_share, from_traffic, worst_optimum
from cg4ai.routing.network.instance import instance, restrict_to_set
from cg4ai.rules.regions import Box, Polytope
from raising import raises

ENDS = [("A", "B"), ("A", "C"), ("B", "C"), ("C", "A")]


def measured(count: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(0.0, 0.5, (count, len(ENDS)))


def test_all_that_was_seen_lies_inside_and_no_more_than_headroom() -> None:
    seen = measured()
    region = from_traffic(seen, ENDS, headroom=1.5, budget=True)
    assert isinstance(region, Polytope)
    assert compute_contained_share(region, seen) == 1.0
    np.testing.assert_allclose(region.box.upper, 1.5 * seen.max(axis=0))
    # A sends two demands and C receives two; all others send or receive one
    sums = np.stack([seen[:, 0] + seen[:, 1], seen[:, 1] + seen[:, 2], seen.sum(axis=1)], 1)
    np.testing.assert_array_equal(region.matrix, [[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])
    np.testing.assert_allclose(region.limit, 1.5 * sums.max(axis=0))
    box = from_traffic(seen, ENDS, hose=False, headroom=1.0, least=0.5)
    assert isinstance(box, Box)
    np.testing.assert_allclose(box.lower, 0.5 * seen.min(axis=0))


@pytest.mark.parametrize("cover", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("hose", [True, False])
def test_cover_takes_the_least_rank_that_covers(cover: float, hose: bool) -> None:
    seen = measured()
    region = from_traffic(seen, ENDS, cover=cover, headroom=1.0, hose=hose)
    assert compute_contained_share(region, seen) >= cover
    sums = np.stack([seen[:, 0] + seen[:, 1], seen[:, 1] + seen[:, 2]], 1)
    values = np.hstack([seen, sums]) if hose else seen
    ranked = np.sort(values, axis=0)
    enough = [r for r in range(400) if (values <= ranked[r]).all(axis=1).mean() >= cover]
    upper = region.upper if isinstance(region, Box) else region.box.upper
    np.testing.assert_allclose(upper, ranked[enough[0], :4])


def test_demands_hardly_seen_may_grow_to_a_tenth_of_their_nodes() -> None:
    seen = measured()
    seen[:, 1] = 0.0
    region = from_traffic(seen, ENDS, headroom=2.0)
    assert isinstance(region, Polytope)
    least = min(seen[:, 0].max(), seen[:, 2].max())  # what A sends, and what C receives
    assert region.box.upper[1] == pytest.approx(0.2 * least)
    assert (region.box.upper > 0).all()


def square() -> networkx.Graph:
    graph = networkx.cycle_graph(["A", "B", "C", "D"])
    graph.add_edge("A", "C")
    networkx.set_edge_attributes(graph, 10.0, "capacity")
    demands = {"A": {"B": 5.0, "C": 4.0}, "B": {"D": 6.0}, "D": {"C": 3.0, "B": 2.0}}
    graph.graph["demands"] = demands
    return graph


def test_climbing_finds_the_worst_vertex() -> None:
    plain = instance(square(), 5, 3)
    ends = plain.ends
    seen = np.random.default_rng(1).uniform(0.2, 1, (50, 5)) * plain.demand_max
    made = restrict_to_set(plain, from_traffic(seen, ends), load=0.9)
    found = worst_optimum(made, seen[:5] * made.scale)
    assert made.region.contains(found.vector[None])[0]
    assert found.found == pytest.approx(made.find_optimal(found.vector[None]).mlu[0])
    assert found.bound == pytest.approx(0.9)
    assert found.found <= found.bound + 1e-9
    # the optimum is convex, so that its maximum lies at a vertex: try all of them
    region = made.region
    assert isinstance(region, Polytope)
    sides = np.concatenate([np.eye(5), -np.eye(5), region.matrix])
    limits = np.concatenate([region.box.upper, -region.box.lower, region.limit])
    vertices = []
    for rows in product(range(len(sides)), repeat=5):
        if list(rows) == sorted(set(rows)):
            chosen = sides[list(rows)]
            if abs(np.linalg.det(chosen)) > 1e-9:
                vertices.append(np.linalg.solve(chosen, limits[list(rows)]))
    corners = np.unique(np.round(np.array(vertices), 9), axis=0)
    corners = np.maximum(corners[region.contains(corners)], 0.0)
    assert found.found == pytest.approx(made.find_optimal(corners).mlu.max(), rel=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"cover": 1.5},
        {"headroom": 0.0},
        {"least": 2.0},
    ],
)
def test_bad_figures_are_refused(change: dict[str, float]) -> None:
    with raises(InvalidInput, "range", *change):
        from_traffic(measured(), ENDS, **change)  # type: ignore[arg-type]


def test_bad_vectors_are_refused() -> None:
    for bad in (measured()[:, :3], np.zeros((0, 4)), np.zeros((3, 4)), -measured()):
        with pytest.raises(InvalidInput):
            from_traffic(bad, ENDS)
