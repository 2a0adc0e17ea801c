"""Generated, disjoint and limited paths against linear programs and enumeration of small graphs."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput, InvalidSettings
from cg4ai.routing import instance
from cg4ai.routing.demands.sets import demand_box
from cg4ai.routing.network import path_choice, path_search
from cg4ai.routing.network.description import describe_instance, restore_instance
from cg4ai.routing.network.flows import NetworkFlows
from cg4ai.routing.network.graphs import read_graphml
from cg4ai.routing.network.instance import network_of
from cg4ai.routing.network.network import Network
from cg4ai.routing.network.optimum import find_worst_vector, network_optimum, use_shortest_paths
from cg4ai.routing.network.path_choice import choose_paths
from cg4ai.routing.network.path_search import Graph, PathLimits
from cg4ai.routing.network.readers import read_links
from cg4ai.routing.settings import RouteSettings
from raising import raises

SEEDS = range(4)


@pytest.fixture(autouse=True)
def _little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_choice, "MOST_WORK", 200_000)
    monkeypatch.setattr(path_choice, "MOST_VECTORS", 60)


def random_graph(seed: int, *, directed: bool = False, nodes: int = 7) -> Any:
    """Connected, with lengths, delays and capacities that differ, and demands of all its nodes."""
    generator = np.random.default_rng(seed)
    found = nx.cycle_graph(nodes, create_using=nx.DiGraph if directed else nx.Graph)
    while found.number_of_edges() < 2 * nodes:
        a, b = generator.choice(nodes, 2, replace=False).tolist()
        found.add_edge(a, b)
    for _, _, data in found.edges(data=True):
        data["capacity"] = float(generator.integers(5, 20))
        data["length"] = float(generator.integers(1, 9))
        data["delay"] = float(generator.integers(1, 9)) / 2
    names = [str(node) for node in found]
    found.graph["demands"] = {
        a: {b: float(generator.integers(1, 9)) for b in names if b != a} for a in names
    }
    return found


def arc_flow_optimum(network: Network, volumes: dict[tuple[int, int], float]) -> float:
    """The least MLU over all routings, by flows on arcs."""
    arcs, pairs, nodes = list(network.arcs), list(volumes), len(network.nodes)
    cost = np.zeros(len(arcs) * len(pairs) + 1)
    cost[-1] = 1.0
    kept = np.zeros((nodes * len(pairs), len(cost)))
    wanted = np.zeros(len(kept))
    above = np.zeros((len(arcs), len(cost)))
    above[:, -1] = -1.0
    for d, (source, target) in enumerate(pairs):
        wanted[d * nodes + source] += volumes[source, target]
        wanted[d * nodes + target] -= volumes[source, target]
        for a, (tail, head) in enumerate(arcs):
            column = d * len(arcs) + a
            kept[d * nodes + tail, column] += 1.0
            kept[d * nodes + head, column] -= 1.0
            above[a, column] = 1.0 / network.arcs[arcs[a]].capacity
    found = linprog(cost, above, np.zeros(len(arcs)), kept, wanted)
    assert found.success
    return float(found.fun)


def all_paths(graph: Graph, source: int, target: int) -> list[tuple[int, ...]]:
    made = nx.DiGraph(graph.ends.tolist())
    return [tuple(path) for path in nx.all_simple_paths(made, source, target)]


def total(graph: Graph, values: np.ndarray, path: tuple[int, ...]) -> float:
    return float(sum(values[graph.position[hop]] for hop in pairwise(path)))


def links(path: tuple[Any, ...]) -> set[frozenset[Any]]:
    return {frozenset(hop) for hop in pairwise(path)}


def has_disjoint_pair(paths: list[tuple[Any, ...]]) -> bool:
    return any(links(one).isdisjoint(links(other)) for one, other in combinations(paths, 2))


# ---- the optimum of the network ------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_over_all_paths_is_that_of_flows_on_arcs(seed: int, directed: bool) -> None:
    network = network_of(random_graph(seed, directed=directed))
    pairs = sorted(network.volumes)[::5]
    largest = np.array([network.volumes[pair] for pair in pairs])
    flows = NetworkFlows(Graph.from_network(network), pairs, largest)
    for shares in np.random.default_rng(seed).uniform(0, 1, (4, len(pairs))):
        found = flows.optimise(shares)
        volumes = dict(zip(pairs, (shares * largest).tolist(), strict=True))
        assert found.mlu == pytest.approx(arc_flow_optimum(network, volumes), rel=2e-6)
        assert found.mlu * (1 - 2e-6) <= found.bound <= found.mlu * (1 + 1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_optimum_is_the_same_in_any_unit(unit: float) -> None:
    network = network_of(random_graph(1))
    pairs = sorted(network.volumes)[::4]
    largest = np.array([network.volumes[pair] for pair in pairs])
    graph = Graph.from_network(network)
    shares = np.random.default_rng(0).uniform(0, 1, len(pairs))
    usual = NetworkFlows(graph, pairs, largest).optimise(shares)
    small = NetworkFlows(graph, pairs, unit * largest).optimise(1e-7 * shares)
    assert small.mlu == pytest.approx(1e-7 * unit * usual.mlu, rel=2e-6)


def test_within_limits_the_optimum_is_that_of_all_paths_that_keep_them() -> None:
    network = network_of(random_graph(2))
    pairs = sorted(network.volumes)[::6]
    largest = np.array([network.volumes[pair] for pair in pairs])
    graph = Graph.from_network(network, PathLimits(hops=3, latency=7.0))
    assert graph.delay is not None
    allowed = [
        (d, path)
        for d, pair in enumerate(pairs)
        for path in all_paths(graph, *pair)
        if len(path) <= 4 and total(graph, graph.delay, path) <= 7.0
    ]
    every = NetworkFlows(graph, pairs, largest)
    every.add(allowed)
    for shares in np.random.default_rng(2).uniform(0, 1, (5, len(pairs))):
        found = NetworkFlows(graph, pairs, largest).optimise(shares)
        assert found.mlu == pytest.approx(every.solve(shares).mlu, rel=2e-6)


def test_an_instance_knows_the_optimum_of_its_network_after_it_was_stored() -> None:
    graph = random_graph(3)
    made = instance(graph, 8, 1, path_choice="generated")
    again = restore_instance(describe_instance(made))
    B = made.sample(3, 0)
    network, ends = network_of(graph), [tuple(map(int, pair)) for pair in made.ends]
    expected = [
        arc_flow_optimum(network, dict(zip(ends, b.tolist(), strict=True)))  # type: ignore[arg-type]
        for b in B
    ]
    assert network_optimum(again, B) == pytest.approx(expected, rel=2e-6)
    assert np.all(made.find_optimal(B).mlu >= np.array(expected) * (1 - 2e-6))
    assert find_worst_vector(again) == pytest.approx(made.demand_max)


def test_older_runs_do_not_know_the_optimum_of_their_network() -> None:
    made = instance(random_graph(3), 4, 2)
    older = restore_instance(
        {name: one for name, one in describe_instance(made).items() if name != "path_source"}
    )
    assert older.path_source is None
    assert len(network_optimum(older, made.sample(2, 0))) == 0
    assert use_shortest_paths(older) is older


# ---- generated paths -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_paths_are_no_worse_than_the_shortest(seed: int) -> None:
    graph = random_graph(seed, nodes=9)
    shortest, made = (
        instance(graph, 12, 2, path_choice=choice) for choice in ("shortest", "generated")
    )
    assert max(len(block) for block in made.blocks) <= 2
    assert made.scale >= shortest.scale * (1 - 1e-6)  # of what is guaranteed
    B = shortest.sample(100, 1)
    assert made.find_optimal(B).mlu.mean() <= shortest.find_optimal(B).mlu.mean() * (1 + 1e-6)


def test_generated_paths_are_close_to_the_optimum_of_a_hard_network() -> None:
    made = instance("newyork", 15, 3, path_choice="generated")
    assert made.scale > 1.7 * instance("newyork", 15, 3).scale
    B = made.sample(60, 5)
    assert (made.find_optimal(B).mlu / network_optimum(made, B)).mean() < 1.07


def test_the_same_paths_are_generated_again() -> None:
    first, second = (instance(random_graph(0), 10, 2, path_choice="generated") for _ in range(2))
    assert first.paths == second.paths


def test_sets_with_limits_on_sums_have_paths_of_their_own() -> None:
    graph = random_graph(1, nodes=9)
    shortest, made = (
        instance(graph, 12, 2, path_choice=choice, hose=0.6) for choice in ("shortest", "generated")
    )
    assert made.scale >= shortest.scale


# ---- disjoint paths ------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_disjoint_pairs_are_the_shortest_of_all(seed: int, directed: bool) -> None:
    graph = Graph.from_network(network_of(random_graph(seed, directed=directed)))
    for pair in combinations(range(len(graph.nodes)), 2):
        every = all_paths(graph, *pair)
        apart = [both for both in combinations(every, 2) if has_disjoint_pair(list(both))]
        found = path_search.find_disjoint_pair(graph, *pair)
        needed = set.intersection(*map(links, every))  # by every path
        if not apart and found:
            assert links(found[0]) & links(found[1]) == needed
        elif not apart:
            assert all(links(a) & links(b) != needed for a, b in combinations(every, 2))
        if apart:
            assert has_disjoint_pair(found)
            least = min(sum(total(graph, graph.length, path) for path in both) for both in apart)
            assert sum(total(graph, graph.length, path) for path in found) == pytest.approx(least)


@pytest.mark.parametrize("choice", ["disjoint", "generated"])
@pytest.mark.parametrize("limits", [{}, {"max_hops": 4, "max_latency": 12.0}])
def test_two_paths_of_a_demand_have_no_common_link(choice: Any, limits: dict[str, Any]) -> None:
    source = random_graph(2)
    made = instance(source, 20, 2, path_choice=choice, disjoint_pairs=True, **limits)
    graph = Graph.from_network(
        network_of(source), PathLimits(limits.get("max_hops"), limits.get("max_latency"))
    )
    for block, ends in zip(made.blocks, made.ends, strict=True):
        every = all_paths(graph, *(graph.nodes.index(node) for node in ends))
        possible = has_disjoint_pair([path for path in every if graph.allows(path)])
        assert has_disjoint_pair([made.paths[k] for k in block]) == possible


def test_demands_that_one_failure_cuts_off_are_named() -> None:
    graph = nx.Graph([("A", "B"), ("B", "C"), ("A", "C"), ("C", "D")])
    nx.set_edge_attributes(graph, 1.0, "capacity")
    graph.graph["demands"] = {"A": {"B": 1.0, "D": 1.0}}
    for choice in ("disjoint", "generated"):
        made = instance(graph, 2, 2, path_choice=choice, disjoint_pairs=True)
        assert any("A->D" in note and "A->B" not in note for note in made.notes)
        # before C, which every path passes, they share no link
        beyond = [made.paths[k] for k in made.blocks[made.demand_names.index("A->D")]]
        assert sorted(beyond) == [("A", "B", "C", "D"), ("A", "C", "D")]


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [PathLimits(3), PathLimits(latency=8.0), PathLimits(4, 7.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_paths_within_limits_are_those_of_enumeration(seed: int, limits: PathLimits) -> None:
    network = network_of(random_graph(seed))
    graph = Graph.from_network(network, limits)
    lengths = np.random.default_rng(seed).uniform(0, 1, len(graph.ends)).round(1)
    for pair in [(0, 3), (1, 5), (6, 2)]:
        allowed = [path for path in all_paths(graph, *pair) if graph.allows(path)]
        by_length = sorted(total(graph, graph.length, path) for path in allowed)
        found = list(path_search.iterate_paths(graph, *pair))
        assert sorted(found) == sorted(allowed)
        assert [total(graph, graph.length, path) for path in found] == pytest.approx(by_length)
        shortest = path_search.find_path_within(graph, *pair, lengths)
        assert (shortest is None) == (not allowed)
        if shortest is not None:
            least = min(total(graph, lengths, path) for path in allowed)
            assert total(graph, lengths, shortest) == pytest.approx(least)


@pytest.mark.parametrize("choice", ["shortest", "generated", "disjoint"])
def test_every_choice_keeps_the_limits(choice: Any) -> None:
    made = instance(random_graph(1), 10, 3, path_choice=choice, max_hops=3, max_latency=9.0)
    assert max(len(path) for path in made.paths) <= 4
    assert made.path_source is not None
    assert made.path_source.limits == PathLimits(3, 9.0)
    again = restore_instance(describe_instance(made)).path_source
    assert again is not None
    assert again.limits == PathLimits(3, 9.0)


def line() -> Any:
    """A-B-C-D, each link of 5 ms, and a way around B-C of two links of 1 ms."""
    graph = nx.Graph()
    for a, b, delay in [("A", "B", 5), ("B", "C", 5), ("C", "D", 5), ("B", "E", 1), ("E", "C", 1)]:
        graph.add_edge(a, b, capacity=1.0, delay=delay)
    graph.graph["demands"] = {"A": {"D": 1.0}}
    return graph


@pytest.mark.parametrize(
    ("limits", "least"),
    [
        ({"max_hops": 2}, "from A to D: the path of fewest links has 3"),
        ({"max_latency": 11.0}, "from A to D: the quickest takes 12 ms"),
        ({"max_hops": 3, "max_latency": 13.0}, "of at most 3 links the quickest takes 15 ms"),
    ],
)
@pytest.mark.parametrize("choice", ["shortest", "generated", "disjoint"])
def test_limits_that_leave_no_path_are_refused(choice: Any, limits: Any, least: str) -> None:
    with raises(InvalidInput, "infeasible") as caught:
        instance(line(), 1, 2, path_choice=choice, **limits)
    assert least in str(caught.value)
    assert len(instance(line(), 1, 2, path_choice=choice, max_hops=4, max_latency=12.0).paths) == 1


def test_a_limit_on_delay_needs_delays() -> None:
    with raises(InvalidInput, "missing-values"):
        instance("abilene", 5, 3, max_latency=10.0)


@pytest.mark.parametrize("limits", [{"max_hops": 0}, {"max_latency": 0.0}])
def test_limits_must_be_positive(limits: Any) -> None:
    with raises(InvalidInput, "range"):
        instance(line(), 1, 2, **limits)


# ---- what contradicts ----------------------------------------------------------------------------


def test_choices_are_known_and_possible(tmp_path: Path) -> None:
    with raises(InvalidInput, "unknown-name"):
        instance(line(), 1, 2, path_choice="generatd")  # type: ignore[arg-type]
    with raises(InvalidInput, "conflict"):
        instance(line(), 1, 1, path_choice="disjoint")
    file = tmp_path / "paths.json"
    file.write_text('[["A", "B", "C", "D"]]')
    for more in ({"path_choice": "generated"}, {"max_hops": 3}):
        with raises(InvalidInput, "conflict"):
            instance(line(), 1, 2, path_file=file, **more)
    made = instance(line(), 1, 2, path_file=file)
    assert made.path_source is not None
    assert made.path_source.choice == "given"


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, "generated"),
        ({"protocol": "paper"}, "shortest"),
        ({"objective": "cost"}, "shortest"),
        ({"path_choice": "disjoint"}, "disjoint"),
    ],
)
def test_the_command_generates_paths_unless_asked_otherwise(asked: Any, chosen: str) -> None:
    settings = RouteSettings(network="abilene", **asked)
    assert settings.chosen_paths == chosen


@pytest.mark.parametrize(
    "asked",
    [
        {"path_choice": "generated", "protocol": "paper"},
        {"max_hops": 3, "protocol": "paper"},
        {"path_choice": "shortest", "path_file": Path("paths.csv")},
        {"max_latency": 3.0, "path_file": Path("paths.csv")},
        {"path_choice": "disjoint", "paths": 1},
    ],
)
def test_contradicting_settings_are_refused(asked: Any) -> None:
    with raises(InvalidSettings, "invalid-settings"):
        RouteSettings(network="abilene", **asked)


# ---- delays in files -----------------------------------------------------------------------------


def test_delays_are_read(tmp_path: Path) -> None:
    table = tmp_path / "links.csv"
    table.write_text("source,target,capacity,delay\nA,B,5,1.5\nB,C,5,2\n")
    assert read_links(table).arcs[1, 0].delay == 1.5
    graph = line()
    graph.graph.clear()
    nx.write_graphml(graph, tmp_path / "line.graphml")
    found = read_graphml(tmp_path / "line.graphml")
    at = found.nodes.index
    assert found.arcs[at("B"), at("E")].delay == 1.0
    assert network_of(line()).arcs[0, 1].delay == 5.0


def test_the_delay_of_parallel_links_is_the_largest() -> None:
    graph = nx.MultiGraph()
    for delay in (1.0, 3.0):
        graph.add_edge("A", "B", capacity=1.0, delay=delay)
    assert network_of(graph).arcs[0, 1].delay == 3.0


def test_shortest_paths_stand_beside_generated_ones() -> None:
    graph = random_graph(0)
    made = instance(graph, 6, 2, path_choice="generated")
    beside, plain = use_shortest_paths(made), instance(graph, 6, 2)
    for one, other in zip(beside.blocks, plain.blocks, strict=True):
        assert beside.path_length[one].tolist() == plain.path_length[other].tolist()
    ways = np.ones(len(beside.paths)) / np.bincount(beside.path_demand)[beside.path_demand]
    assert beside.compute_utilisation(made.sample(3, 0), ways).shape[0] == 3


def test_measured_vectors_take_the_place_of_random_ones() -> None:
    """Only the traffic that was seen matters, where the set is far larger."""
    network = network_of(random_graph(0, nodes=9))
    volumes = {pair: network.volumes[pair] for pair in sorted(network.volumes)[::6]}
    graph, largest = Graph.from_network(network), np.array(list(volumes.values()))
    earlier = np.random.default_rng(1).uniform(0, 0.2, (30, len(volumes))) * largest
    found = choose_paths(
        graph, volumes, demand_box(largest), 1, choice="generated", earlier=earlier
    )
    assert all(len(paths) == 1 for paths in found.paths.values())
