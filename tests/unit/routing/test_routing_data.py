"""Instances against published figures, brute-force path search and a box that holds its load."""

import csv
import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.apps.folders import check_same
from cg4ai.errors import InvalidInput, InvalidSettings, RunFolderError
from cg4ai.routing import CONFIGURATIONS, Instance, Utilisation, instance, list_names
from cg4ai.routing.app import APPLICATION
from cg4ai.routing.network.description import Router, describe_instance, restore_instance
from cg4ai.routing.network.instance import shortest_paths
from cg4ai.routing.network.simple_paths import SimplePaths
from cg4ai.routing.settings import RouteSettings
from cg4ai.runs.folder import Run
from raising import raises

EXPECTED = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "routing-expected.csv"

# (network, demands, paths): arcs, scale of the box, mean and largest optimal MLU of 1000 vectors
FACTS = {
    ("abilene", 5, 3): (24, 0.11629272, 0.647966, 0.989562),
    ("atlanta", 15, 3): (31, 1.1243612, 0.524785, 0.861051),
    ("di-yuan", 5, 5): (31, 14.08, 0.552575, 0.953361),
    ("geant", 10, 3): (27, 0.098504155, 0.489345, 0.829009),
    ("nobel-eu", 5, 3): (24, 23.294118, 0.643089, 0.989113),
    ("ta1", 5, 5): (33, 62.323788, 0.607575, 0.937863),
}


def check_figures(
    built: Instance, arcs: int, scale: float, mean: float, largest: float, corner: float | None
) -> None:
    shares = np.random.default_rng(0).uniform(0, 1, (1000, len(built.demand_max)))
    mlu = built.find_optimal(shares * built.demand_max).mlu
    assert len(built.arcs) == arcs
    assert built.scale == pytest.approx(scale, rel=1e-6)
    if corner is not None:
        assert 0.99 / built.scale == pytest.approx(corner, rel=1e-6)
    assert mlu.mean() == pytest.approx(mean, abs=1e-6)
    assert mlu.max() == pytest.approx(largest, abs=1e-6)


@pytest.mark.parametrize("configuration", FACTS)
def test_instance_reproduces_known_figures(configuration: tuple[str, int, int]) -> None:
    check_figures(instance(*configuration), *FACTS[configuration], corner=None)


@pytest.mark.skipif(not EXPECTED.is_file(), reason="the table of expected figures is not here")
def test_all_configurations_match_the_expected_table() -> None:
    with EXPECTED.open() as file:
        rows = list(csv.reader(file))[1:]
    assert [(row[0], int(row[1]), int(row[2])) for row in rows] == list(CONFIGURATIONS)
    for configuration, row in zip(CONFIGURATIONS, rows, strict=True):
        corner, scale, mean, largest = map(float, row[4:])
        check_figures(instance(*configuration), int(row[3]), scale, mean, largest, corner)


def test_configurations_are_41_and_distinct() -> None:
    assert len(set(CONFIGURATIONS)) == 41


def test_arrays_describe_the_paths() -> None:
    built = instance("nobel-us", 5, 3)
    for row, (path, demand) in enumerate(zip(built.paths, built.path_demand, strict=True)):
        assert "->".join([path[0], path[-1]]) == built.demand_names[demand]
        used = {built.arcs[arc] for arc in np.flatnonzero(built.incidence[row])}
        assert used == set(pairwise(path))
    assert built.incidence.any(axis=0).all()
    assert [block.tolist() for block in built.blocks] == np.arange(15).reshape(5, 3).tolist()
    lengths = built.path_length.reshape(5, 3)
    assert (np.diff(lengths, axis=1) >= -1e-6).all()


def test_doubled_links_have_twice_the_capacity() -> None:
    built = instance("ta1", 15, 3)
    doubled = {frozenset(p) for p in (("N17", "N20"), ("N3", "N5"), ("N11", "N16"), ("N16", "N18"))}
    assert doubled & {frozenset(arc) for arc in built.arcs}
    for arc, capacity in zip(built.arcs, built.capacity, strict=True):
        assert capacity == 11088000 * (2 if frozenset(arc) in doubled else 1)


def test_every_sndlib_network_builds() -> None:
    assert len(list_names()) >= 26
    for name in (
        set(list_names()) - {configuration[0] for configuration in CONFIGURATIONS} - {"brain"}
    ):
        built = instance(name, 3, 2)
        assert (built.capacity == 1).all()
        assert built.find_optimal(built.demand_max).mlu == pytest.approx(0.99)


def known(graph: networkx.DiGraph) -> SimplePaths:
    ends = np.array(list(graph.edges), np.int64).reshape(-1, 2)
    lengths = np.array([length for *_, length in graph.edges(data="length")], np.float64)
    return SimplePaths(ends, lengths, len(graph))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 7).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.dictionaries(
                st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(
                    lambda pair: pair[0] != pair[1]
                ),
                st.sampled_from([0.1, 0.2, 0.3, 1.0, 1.1]),
                min_size=3,
            ),
        )
    ),
    st.integers(1, 5),
)
def test_shortest_paths_equal_sorting_all_simple_paths(
    sized: tuple[int, dict[tuple[int, int], float]], count: int
) -> None:
    size, lengths = sized
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(size))
    for (a, b), length in lengths.items():
        graph.add_edge(a, b, length=length)
    every = networkx.all_simple_paths(graph, 0, size - 1)
    keyed = sorted((round(networkx.path_weight(graph, p, "length"), 6), tuple(p)) for p in every)
    assert shortest_paths(known(graph), 0, size - 1, count) == [p for _, p in keyed[:count]]


def test_tied_paths_are_in_order_however_many_there_are() -> None:
    grid = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(30, 30).to_directed())
    networkx.set_edge_attributes(grid, 1.0, "length")
    found = shortest_paths(known(grid), 0, 899, 3)  # of more than 10^16
    along, down = tuple(range(29)), tuple(range(59, 900, 30))
    assert found[0] == (*along, 29, *down)
    assert found == sorted(found)
    assert all(len(set(path)) == 59 for path in found)


def test_load_sets_the_corner() -> None:
    for load in (0.3, 0.95, 1.0):
        built = instance("polska", 5, 3, load=load)
        assert built.find_optimal(built.demand_max).mlu == pytest.approx([load], abs=1e-8)


def test_load_none_keeps_the_volumes() -> None:
    built = instance("polska", 5, 3, load=None)
    assert built.scale == 1
    assert built.find_optimal(built.demand_max).mlu == pytest.approx([0.31672026], rel=1e-6)


def diamond() -> networkx.Graph:
    """s-a-t and s-b-t with room for 3 and 1, and a demand of 8."""
    graph = networkx.Graph(name="diamond", demands={"s": {"t": 8.0}, "a": {"b": 0.01}})
    for source, target, capacity in [("s", "a", 3), ("a", "t", 3), ("s", "b", 1), ("b", "t", 1)]:
        graph.add_edge(source, target, capacity=capacity)
    return graph


def test_an_unroutable_corner_names_links_and_demands() -> None:
    with raises(InvalidInput, "infeasible") as caught:
        instance(diamond(), 2, 2, load=None)
    message = str(caught.value)
    assert "loads some link to 2" in message
    assert "s->a" in message or "a->t" in message
    assert "s->b" in message or "b->t" in message
    assert "demands that must cross them: s->t 8" in message
    assert "more paths" in message


@pytest.mark.parametrize("load", [0, -1, float("nan")])
def test_a_load_that_is_not_positive_is_refused(load: float) -> None:
    with raises(InvalidInput, "range"):
        instance("polska", load=load)


def test_a_load_above_one_is_refused_with_the_reason() -> None:
    with raises(InvalidInput, "infeasible"):
        instance("polska", load=1.2)


def test_fewer_paths_where_fewer_exist() -> None:
    built = instance(diamond(), 2, 9)
    assert [len(block) for block in built.blocks] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("polskaa",), "unknown-name"),
        (("polska", 67), "range"),
        (("polska", 0), "range"),
        (("polska", 5, 1.5), "range"),
        ((3,), "type"),
        (("topozoo/Aarnet",), "empty"),
        ((networkx.Graph(),), "empty"),
    ],
)
def test_wrong_arguments_are_explained(arguments: tuple[object, ...], code: str) -> None:
    with raises(InvalidInput, code):
        instance(*arguments)  # type: ignore[arg-type]


def test_a_demand_without_a_path_is_named() -> None:
    graph = networkx.DiGraph(demands={"b": {"a": 1}})
    graph.add_edge("a", "b", capacity=1)
    with raises(InvalidInput, "infeasible"):
        instance(graph, 1)


def test_utilisation_by_hand_and_in_torch() -> None:
    built = instance(diamond(), 1, 2, load=0.5)
    assert built.demand_max == pytest.approx([2.0])
    splits = np.array([[0.25, 0.75]])
    by_path = dict(zip(built.paths, splits[0], strict=True))
    expected = [
        2 * by_path["s", "a", "t"] / 3 if "a" in arc else 2 * by_path["s", "b", "t"]
        for arc in built.arcs
    ]
    assert built.compute_utilisation(built.demand_max, splits)[0] == pytest.approx(expected)
    functional = Utilisation(built)
    assert functional.count == len(built.arcs) == 4


def test_functional_agrees_with_the_instance() -> None:
    built = instance("abilene", 5, 3)
    rng = np.random.default_rng(0)
    B, splits = built.sample(7, 1), rng.uniform(size=(4, 7, 15))
    functional = Utilisation(built)
    outputs = torch.tensor(splits, requires_grad=True)
    values = functional.values(torch.tensor(B), outputs)
    for k in range(4):
        assert values[k].detach().numpy() == pytest.approx(built.compute_utilisation(B, splits[k]))
    which = rng.integers(0, functional.count, 7)
    values[2, np.arange(7), which].sum().backward()
    assert outputs.grad is not None
    assert outputs.grad[2].numpy() == pytest.approx(functional.coefficients(B, which))
    assert outputs.grad[0].abs().max() == 0


@pytest.mark.parametrize("B", [np.ones((2, 4)), np.array([[-1.0, 0, 0, 0, 0]]), [[np.nan] * 5]])
def test_bad_demand_vectors_are_refused(B: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="demand"):
        instance("polska").find_optimal(B)


def test_an_instance_knows_its_load() -> None:
    assert instance("polska", 5, 3, 0.5).load == 0.5
    assert instance("polska").load == 0.99
    assert instance("polska", load=None).load is None


def complete(size: int, volume: float = 1.0) -> networkx.Graph:
    graph = networkx.complete_graph(size)
    networkx.set_edge_attributes(graph, 10.0, "capacity")
    graph.graph["demands"] = {a: {b: volume for b in graph if b != a} for a in graph}
    return graph


def test_a_demand_file_means_all_of_its_demands(tmp_path: Path) -> None:
    rows = [f"{a},{b},{1 + a}" for a in range(6) for b in range(6) if a != b]
    path = tmp_path / "demands.csv"
    path.write_text("\n".join(["source,target,volume", *rows]), encoding="utf-8")
    assert len(rows) == 30
    made = instance(complete(6), demand_file=path, load=None)
    assert len(made.demand_max) == 30
    assert made.notes == ()
    fewer = instance(complete(6), 5, demand_file=path, load=None)
    assert fewer.notes == ("of 30 demands the 5 largest are routed, 29% of the volume",)


def test_what_is_left_out_rescaled_or_assumed_is_said() -> None:
    made = instance("abilene")
    left_out, scaled = made.notes
    assert left_out.startswith("of 132 demands the 5 largest are routed")
    assert scaled.startswith(f"all demands are multiplied by {made.scale:.4g}: ")
    assert instance("pdh").notes[0].startswith("the capacities of this network are not known")


def test_capacities_that_no_one_stated_have_no_unit() -> None:
    """Volumes far above one unit per link: where they are scaled to a load, that is no mistake."""
    huge, usual = complete(3, volume=3e9), complete(3, volume=3.0)
    for graph in (huge, usual):
        for a, b in graph.edges:
            graph[a][b]["capacity"] = 1.0
    large, small = instance(huge), instance(usual)
    np.testing.assert_allclose(large.demand_max, small.demand_max, rtol=1e-12)
    assert large.scale == pytest.approx(small.scale / 1e9)
    with raises(InvalidInput, "range"):
        instance(huge, load=None)


@pytest.mark.slow
@pytest.mark.guard
def test_many_demands_that_share_links_of_no_stated_capacity_are_scaled_too() -> None:
    """Each of ta2's demands is below a million times a link, all of them together are not."""
    made = instance("ta2", "all", 3)
    assert made.level == pytest.approx(0.99)
    assert made.scale < 1e-6


def test_demands_and_capacities_of_other_units_are_refused() -> None:
    with raises(InvalidInput, "range"):
        instance(complete(3, volume=1e-7))
    around = complete(4)  # a way around of so much capacity that no load is left
    for a, b in around.edges:
        around[a][b]["capacity"] = 1e-3 if (a + b) % 2 else 1e12
    around.graph["demands"] = {0: {2: 1.0}}
    with raises(InvalidInput, "range"):
        instance(around)
    with raises(InvalidInput, "range"):
        instance(complete(3, volume=1e-300))


def test_positions_are_those_of_all_nodes_with_links() -> None:
    made = instance("abilene")
    assert made.positions is not None
    assert made.all_arcs is not None
    assert made.positions.keys() == {node for arc in made.all_arcs for node in arc}
    longitude, latitude = made.positions["NYCMng"]
    assert (longitude, latitude) == pytest.approx((-73.97, 40.78), abs=0.1)
    assert instance(complete(3)).positions is None


def test_positions_are_kept_with_a_run_and_need_not_be() -> None:
    made = instance("abilene")
    record = json.loads(json.dumps(describe_instance(made)))
    assert restore_instance(record).positions == made.positions
    older = {name: value for name, value in record.items() if name != "positions"}
    assert restore_instance(older).positions is None
    for wrong in ({}, {**record["positions"], "NYCMng": [0.0, math.nan]}, [1.0], 3):
        with raises(RunFolderError, "bad-file", "network"):
            restore_instance({**record, "positions": wrong})


def test_runs_of_before_positions_can_be_resumed(tmp_path: Path) -> None:
    asked = RouteSettings(network="abilene", demands=2, threads=1)
    prepared = APPLICATION.prepare(asked, None)
    then = {k: v for k, v in describe_instance(prepared.instance).items() if k != "positions"}
    with Run.create(tmp_path / "run", "route", asked.as_dict() | {"description": then}) as run:
        check_same(run, APPLICATION, asked, prepared)
        other = replace(prepared, instance=replace(prepared.instance, name="other"))
        with raises(InvalidSettings, "invalid-settings", "network"):
            check_same(run, APPLICATION, asked, other)


def test_paths_whose_names_differ_by_hyphens_alone_keep_their_columns() -> None:
    """Joined by hyphens, a, b-c, d and a, b, c, d were one column, and a share was lost."""
    graph = networkx.Graph(name="dashes", demands={"a": {"d": 1.0}})
    for source, target in (("a", "b-c"), ("b-c", "d"), ("a", "b"), ("b", "c"), ("c", "d")):
        graph.add_edge(source, target, capacity=5.0)
    made = instance(graph, 1, 2)
    router = Router(made)
    (row,) = router.predictions(np.ones((1, 1)), np.array([[0.25, 0.75]]), details=False)
    assert [*row.values()] == [0.25, 0.75]
    assert [*router.paths.values()] == [["a", "b-c", "d"], ["a", "b", "c", "d"]]
    assert [*router.paths] == [*row] == [*router.signature.outputs]


def test_what_is_added_up_is_noted() -> None:
    graph = networkx.MultiGraph(name="two", demands={"a": {"b": 1.0}})
    graph.add_edges_from([("a", "b", {"capacity": 2.0}), ("a", "b", {"capacity": 3.0})])
    made = instance(graph, 1, 1)
    assert made.capacity.tolist() == [5.0]
    assert "parallel links are one, with their capacities together: a-b" in made.notes
    again = restore_instance(describe_instance(made))
    assert again.notes == made.notes


def test_given_paths_that_no_demand_takes_are_noted(tmp_path: Path) -> None:
    graph = networkx.Graph(name="line", demands={"a": {"c": 1.0}})
    graph.add_edges_from([("a", "b"), ("b", "c")], capacity=5.0)
    file = tmp_path / "paths.json"
    for paths, noted in (([["a", "b", "c"]], False), ([["a", "b", "c"], ["b", "a"]], True)):
        file.write_text(json.dumps(paths))
        notes = instance(graph, 1, path_file=file).notes
        assert any("given paths of a pair of nodes" in note for note in notes) == noted
