"""Failures: what is left of an instance, and whether that can be routed, against linprog."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path

import networkx
import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai.apps.folders import ALL_ARCS
from cg4ai.errors import InvalidInput
from cg4ai.routing import Instance, instance
from cg4ai.routing.network.description import describe_instance, restore_instance
from cg4ai.routing.operate.link_failures import (
    Failure,
    failure_of,
    failures_of,
    is_connected,
    links_of,
    reduce_instance,
)
from cg4ai.routing.prove.unroutable import find_unroutable, recompute_bound
from raising import raises


@pytest.fixture(scope="module")
def square() -> Instance:
    """a-d over b, over c and directly, b-d directly and over a or c; a node with a hyphen."""
    graph = networkx.Graph(name="square", demands={"a": {"d": 4.0}, "b": {"d": 2.0}})
    for source, target in (("a", "b"), ("a", "c-1"), ("a", "d"), ("b", "d"), ("c-1", "d")):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    return instance(graph, 2, 3, load=0.7)


def least_mlu(made: Instance, vector: np.ndarray) -> float:
    """By scipy, from the paths as nodes alone."""
    hops = [list(pairwise(path)) for path in made.paths]
    arcs = sorted({hop for path in hops for hop in path})
    capacity = dict(zip(made.arcs, made.capacity, strict=True))
    rows = np.zeros((len(arcs), len(hops) + 1))
    for place, arc in enumerate(arcs):
        rows[place, :-1] = [(arc in path) / capacity[arc] for path in hops]
    rows[:, -1] = -1.0
    equal = np.zeros((len(vector), len(hops) + 1))
    equal[made.path_demand, np.arange(len(hops))] = 1.0
    cost = np.append(np.zeros(len(hops)), 1.0)
    solved = linprog(cost, rows, np.zeros(len(arcs)), equal, vector)
    return float(solved.fun)


def test_paths_over_failed_links_vanish_in_both_directions(square: Instance) -> None:
    left = reduce_instance(square, Failure.of([("d", "b")]))
    assert left.instance is not None
    crossing = [{"b", "d"} in [set(hop) for hop in pairwise(path)] for path in square.paths]
    assert left.paths.tolist() == np.flatnonzero(~np.array(crossing)).tolist()
    assert left.instance.paths == [square.paths[path] for path in left.paths]
    assert left.instance.arcs == [square.arcs[arc] for arc in left.arcs]
    assert left.instance.region.bounds()[1].tolist() == square.demand_max.tolist()
    for vector in square.sample(5, 1):
        found = left.instance.find_optimal(vector[None]).mlu[0]
        assert found == pytest.approx(least_mlu(left.instance, vector), abs=1e-8)


def test_a_demand_without_a_path_is_named(square: Instance) -> None:
    left = reduce_instance(square, failure_of("a-b,b-d", square))
    assert left.instance is None
    assert [square.demand_names[demand] for demand in left.lost] == ["b->d"]


def test_single_failures_are_all_links_on_paths(square: Instance) -> None:
    assert [one.links for one in failures_of("single", square)] == [
        (link,) for link in links_of(square)
    ]
    named = Failure("a<->c-1", (("a", "c-1"),))
    for text in ("a-c-1", "a<->c-1", "c-1->a"):
        assert failures_of(text, square) == [named]


def test_a_text_that_may_be_two_links_is_refused() -> None:
    """Hyphens of names and between them look alike: the first fit was taken in silence."""
    graph = networkx.Graph(name="dashes", demands={"a": {"c": 1.0}})
    for source, target in (("a", "b-c"), ("b-c", "c"), ("a-b", "c"), ("a", "a-b")):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    made = instance(graph, 1, 2)
    with raises(InvalidInput, "invalid-input"):
        failures_of("a-b-c", made)
    assert failures_of("a<->b-c", made)[0].links == (("a", "b-c"),)


def test_failures_from_files(square: Instance, tmp_path: Path) -> None:
    alone, named, listed = (tmp_path / name for name in ("one.csv", "two.csv", "three.json"))
    alone.write_text("source,target\nd,a\nc-1,a\n")
    named.write_text("failure,source,target\ncable,a,b\ncable,b,d\nother,a,d\n")
    listed.write_text(json.dumps({"cable": ["a-b", ["d", "b"]], "other": ["a-d"]}))
    assert [one.name for one in failures_of(alone, square)] == ["a-d", "a<->c-1"]
    cable = Failure("cable", (("a", "b"), ("b", "d")))
    assert failures_of(named, square) == [cable, Failure("other", (("a", "d"),))]
    assert failures_of(listed, square) == failures_of(named, square)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a-z", "invalid-input"),
        ("b-c-1", "invalid-input"),
        (";", "invalid-input"),
        ("a-b;b-a", "duplicate"),
    ],
)
def test_bad_names_are_refused(square: Instance, text: str, code: str) -> None:
    with raises(InvalidInput, code):
        failures_of(text, square)


def test_a_network_may_connect_what_its_paths_do_not(square: Instance) -> None:
    fewer = instance("polska", 1, 1)
    failure = Failure.of([fewer.arcs[0]])
    assert reduce_instance(fewer, failure).lost == (0,)
    assert is_connected(fewer, failure, 0)
    cut = failure_of("a-b,b-d", square)
    assert [is_connected(square, cut, demand) for demand in range(2)] == [True, False]


def test_links_of_the_network_are_known_on_paths_or_not() -> None:
    """polska's Katowice-Krakow is on no path of its largest demand; it has no Lodz-Gdansk."""
    made = instance("polska", 1, 2)
    assert ("Katowice", "Krakow") not in links_of(made)
    real, invented = failures_of("Krakow-Katowice;Lodz-Gdansk", made)
    assert real == Failure("Katowice-Krakow", (("Katowice", "Krakow"),))
    assert "does not have" in invented.fault
    again = restore_instance(describe_instance(made))
    assert failures_of("Krakow-Katowice", again) == [real]
    older = restore_instance(
        {name: value for name, value in describe_instance(made).items() if name != ALL_ARCS}
    )
    assert not failures_of("-".join(links_of(made)[0]), older)[0].fault


@pytest.mark.parametrize("content", ['{"x": []}', "3", '[["a-b", 4]]'])
def test_bad_files_are_refused(square: Instance, tmp_path: Path, content: str) -> None:
    file = tmp_path / "failures.json"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=r"failures\.json"):
        failures_of(file, square)


def test_what_cannot_be_routed_is_what_linprog_cannot_route(square: Instance) -> None:
    seen = set()
    for failure in failures_of("single", square):
        left = reduce_instance(square, failure).instance
        assert left is not None
        needed = least_mlu(left, left.demand_max)
        found = find_unroutable(left)
        seen.add(found is None)
        assert (found is not None) == (needed > 1)
        if found is not None:
            assert found.bound == pytest.approx(needed, abs=1e-8)
            record = found.to_record(left)
            assert recompute_bound(left, record) == pytest.approx(needed, abs=1e-8)
    assert seen == {True, False}


def test_a_failure_that_fills_a_link_to_the_last_is_not_called_infeasible() -> None:
    graph = networkx.Graph(name="full", demands={"a": {"d": 4.0}, "b": {"d": 2.0}})
    for source, target in ("ab", "ac", "bd", "cd"):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    graph.add_edge("a", "d", capacity=10.0, length=1.0)
    made = instance(graph, 2, 3, load=0.5)
    left = reduce_instance(made, failure_of("a-d", made)).instance
    assert left is not None
    assert left.level == pytest.approx(1.0, abs=1e-12)
    assert find_unroutable(left) is None


def test_in_a_polytope_the_vector_that_cannot_be_routed_lies_in_it() -> None:
    made = instance("polska", 5, 3, load=0.9, budget=0.7)
    seen = set()
    for failure in failures_of("single", made):
        left = reduce_instance(made, failure).instance
        found = None if left is None else find_unroutable(left)
        if left is None or found is None:
            continue
        assert left.region.covers(found.vector[None] * (1 - 1e-9)).all()
        assert least_mlu(left, found.vector) == pytest.approx(found.bound, abs=1e-7)
        assert found.bound > 1
        seen.add(failure.name)
    assert seen


def test_no_vertex_is_worse_than_what_was_found_to_fit(square: Instance) -> None:
    """Where nothing is found in a small box, none of its vertices is unroutable."""
    for failure in failures_of("single", square):
        left = reduce_instance(square, failure).instance
        assert left is not None
        if find_unroutable(left) is None:
            corners = np.array(list(product((0.0, 1.0), repeat=2))) * left.demand_max
            assert max(least_mlu(left, corner) for corner in corners) <= 1 + 1e-9
