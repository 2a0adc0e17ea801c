"""`cg4ai new-network`: files of others become networks that `cg4ai route` reads, or are refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput
from cg4ai.routing import instance
from cg4ai.routing.demands.demand_models import least_mlu, make_demands
from cg4ai.routing.network.instance import build_instance, network_of
from cg4ai.routing.network.links import ReadingOptions
from cg4ai.routing.network.new_network import new_network
from cg4ai.routing.train.optimal import find_bottleneck
from raising import raises

CITIES = {"Bern": (7.4, 46.9), "Basel": (7.6, 47.6), "Zürich": (8.5, 47.4), "Chur": (9.5, 46.85)}
SPEEDS = [("Bern", "Basel", 10.0), ("Zürich", "Bern", 10.0), ("Basel", "Zürich", 4.0)]
SPEEDS += [("Zürich", "Chur", 2.5)]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def graph(kind: Any = networkx.Graph) -> Any:
    """Cities by number, with labels and coordinates, and links whose capacity is called speed."""
    made = kind()
    numbers = {name: number for number, name in enumerate_names()}
    for name, (x, y) in CITIES.items():
        made.add_node(numbers[name], label=name, Longitude=x, Latitude=y)
    for source, target, speed in SPEEDS:
        made.add_edge(numbers[source], numbers[target], Speed=speed)
    return made


def enumerate_names() -> list[tuple[str, str]]:
    return [(str(number), name) for number, name in enumerate(CITIES)]


def table(file: str, header: str, *lines: str) -> Path:
    Path(file).write_text("\n".join([header, *lines]) + "\n")
    return Path(file)


def arcs_by_name(network: Any) -> dict[tuple[str, str], float]:
    return {
        (network.nodes[s], network.nodes[t]): arc.capacity for (s, t), arc in network.arcs.items()
    }


SPEED = ReadingOptions(capacity="speed")
BOTH = {(a, b): c for s, t, c in SPEEDS for a, b in ((s, t), (t, s))}


# ---- reading -------------------------------------------------------------------------------------


def test_all_formats_are_the_same_network_with_names_order_and_coordinates(work: Path) -> None:
    networkx.write_graphml(graph(), "net.graphml")
    # there a label is the name of the node itself
    networkx.write_gml(networkx.relabel_nodes(graph(), dict(enumerate_names())), "net.gml")
    Path("net.json").write_text(json.dumps(networkx.node_link_data(graph(), edges="edges")))
    for file in ("net.graphml", "net.gml", "net.json"):
        made = new_network(Path(file), Path("out.json"), reading=SPEED, force=True)
        again = network_of("out.json")
        assert again.nodes == tuple(CITIES)
        assert arcs_by_name(again) == BOTH
        assert made.draft.is_connected
        assert made.draft.describe_lengths() == "great circles, in km"
        bern_basel = again.arcs[0, 1].length
        assert bern_basel == pytest.approx(79.3, abs=1.0)  # as the crow flies
        written = json.loads(Path("out.json").read_text())
        assert written["nodes"][2] == {"id": "Zürich", "pos": [8.5, 47.4]}
        assert networkx.node_link_graph(written, edges="edges").number_of_edges() == 4


def test_a_table_of_links_in_the_order_of_its_lines(work: Path) -> None:
    file = table("l.csv", "Source,Target,Speed,Length,remark", *("C,A,3,7,x", "A,B,2,1,y"))
    made = new_network(file, Path("o.json"), reading=SPEED)
    assert made.network.nodes == ("C", "A", "B")
    assert arcs_by_name(made.network) == {
        ("C", "A"): 3.0,
        ("A", "C"): 3.0,
        ("A", "B"): 2.0,
        ("B", "A"): 2.0,
    }
    assert made.network.arcs[0, 1].length == 7.0


def test_labels_that_stand_twice_are_no_names(work: Path) -> None:
    twice = graph()
    twice.nodes["1"]["label"] = "Bern"
    networkx.write_graphml(twice, "net.graphml")
    made = new_network(Path("net.graphml"), Path("o.json"), reading=SPEED)
    assert made.network.nodes == ("0", "1", "2", "3")


def test_a_name_of_topohub_gets_capacities_and_demands(work: Path) -> None:
    reading = ReadingOptions(default=10.0)
    made = new_network(Path("topozoo/Aarnet"), Path("o.json"), reading=reading, demands="gravity")
    assert len(made.network.nodes) == 19
    assert made.optimum is not None
    assert made.optimum.mlu == pytest.approx(0.8)
    with raises(InvalidInput, "unknown-name"):
        new_network(Path("nowhere"), Path("p.json"))
    with raises(InvalidInput, "unknown-name", "topozoo/Aarnet") as no:
        new_network(Path("topozoo/Arnet"), Path("p.json"))
    assert "nobel-eu" not in str(no.value)


def test_all_links_that_make_no_sense_are_named_at_once(work: Path) -> None:
    """Ends without a name became a node, and the first odd number hid what else was wrong."""
    lines = ("a,b,10", ",b,3", 'a,"  ",3', "b,c,nan", "a,c,0", "c,d,-1", "d,a,much")
    with pytest.raises(InvalidInput) as caught:
        new_network(table("l.csv", "source,target,capacity", *lines), Path("o.json"))
    for words in (
        "line 3: a link has an end without a name",
        "line 4: a link has an end without a name",
        "line 5, link b-c: capacity must be finite, got 'nan'",
        "line 8, link d-a: capacity must be a number, got 'much'",
        "2 links have a capacity of 0 or less: a-c (line 6), c-d (line 7)",
    ):
        assert words in str(caught.value)
    assert not Path("o.json").exists()
    wrong = graph()
    networkx.set_edge_attributes(wrong, {("0", "1"): -1, ("1", "2"): "inf"}, "capacity")
    networkx.write_graphml(wrong, "net.graphml")
    with pytest.raises(InvalidInput) as caught:
        new_network(Path("net.graphml"), Path("o.json"), reading=ReadingOptions(default=1.0))
    assert "Bern-Basel" in str(caught.value)
    assert "must be finite, got 'inf'" in str(caught.value)


def test_a_table_for_route_names_the_line_of_an_end_without_a_name(work: Path) -> None:
    with raises(InvalidInput, "bad-name", "l.csv", "line 3"):
        network_of(table("l.csv", "source,target,capacity", "a,b,10", ",b,3"))


# ---- what is mended ------------------------------------------------------------------------------


def test_loops_are_left_out_and_parallel_links_add_up(work: Path) -> None:
    several = graph(networkx.MultiGraph)
    several.add_edge("0", "1", Speed=5.0)
    several.add_edge("1", "0", Speed=1.0)
    several.add_edge("3", "3", Speed=9.0)
    networkx.write_graphml(several, "net.graphml")
    made = new_network(Path("net.graphml"), Path("o.json"), reading=SPEED)
    expected = BOTH | {("Bern", "Basel"): 16.0, ("Basel", "Bern"): 16.0}
    assert arcs_by_name(network_of("o.json")) == expected
    loop, parallel = made.draft.changes
    assert "1 loop is left out" in loop
    assert "Chur-Chur (line " in loop
    assert "Bern-Basel" in parallel
    strict = ReadingOptions(capacity="Speed", parallel="refuse")
    with raises(InvalidInput, "invalid-input", "Bern-Basel"):
        new_network(Path("net.graphml"), Path("p.json"), reading=strict)


def test_directions_are_those_of_the_file_or_of_the_user(work: Path) -> None:
    one_way = table("d.csv", "source,target,capacity,both", *("A,B,5,yes", "B,C,3,no"))
    made = new_network(one_way, Path("o.json"))
    assert arcs_by_name(made.network) == {("A", "B"): 5.0, ("B", "A"): 5.0, ("B", "C"): 3.0}
    assert json.loads(Path("o.json").read_text())["directed"] is True
    listed = table("b.csv", "source,target,capacity", *("A,B,5", "B,A,2", "B,C,3"))
    with raises(InvalidInput, "invalid-input", "--directed"):
        new_network(listed, Path("p.json"))
    directed = new_network(listed, Path("p.json"), reading=ReadingOptions(directed=True))
    assert arcs_by_name(directed.network) == {("A", "B"): 5.0, ("B", "A"): 2.0, ("B", "C"): 3.0}
    parallel = new_network(listed, Path("q.json"), reading=ReadingOptions(directed=False))
    assert arcs_by_name(parallel.network)["B", "A"] == 7.0


def test_lengths_that_some_links_lack_come_from_coordinates_or_are_refused(work: Path) -> None:
    some = graph()
    some.edges["0", "1"]["length"] = 3.0
    networkx.write_graphml(some, "net.graphml")
    made = new_network(Path("net.graphml"), Path("o.json"), reading=SPEED)
    assert "all are taken from the coordinates" in made.draft.changes[0]
    assert made.network.arcs[0, 1].length > 50
    file = table("l.csv", "source,target,capacity,length", *("A,B,1,4", "B,C,1,"))
    with raises(InvalidInput, "invalid-input", "length"):
        new_network(file, Path("p.json"))


# ---- what is refused -----------------------------------------------------------------------------


def test_all_that_is_wrong_is_said_at_once_and_nothing_is_written(work: Path) -> None:
    lines = ("A,B,10", "B,C,", "C,D,0", "D,A,-2", "A,C,7")
    file = table("bad.csv", "source,target,capacity", *lines)
    with pytest.raises(InvalidInput) as caught:
        new_network(file, Path("o.json"))
    text = str(caught.value)
    assert "1 link has no capacity: B-C (line 3)" in text
    assert "2 links have a capacity of 0 or less: C-D (line 4), D-A (line 5)" in text
    assert not Path("o.json").exists()
    mended = table("ok.csv", "source,target,capacity", *("A,B,10", "B,C,", "A,C,7"))
    made = new_network(mended, Path("o.json"), reading=ReadingOptions(default=4.0))
    assert arcs_by_name(made.network)["B", "C"] == 4.0


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("n.csv", "source,target,bandwith\nA,B,1\n", "unknown-name"),
        ("n.csv", "from,to\nA,B\n", "bad-file"),
        ("n.csv", "source,target,capacity\nA,B,fast\n", "invalid-input"),
        ("n.csv", "source,target,capacity\n", "empty"),
        ("n.gml", "graph [ node [ id 0 ] edge", "bad-file"),
        ("n.txt", "x", "bad-file"),
        ("n.graphml", "<graphml>", "bad-file"),
        ("n.json", "[" * 100_000, "bad-file"),
        ("n.json", '{"nodes": []}', "bad-file"),
    ],
)
def test_files_that_cannot_be_read(work: Path, name: str, text: str, code: str) -> None:
    Path(name).write_text(text)
    with raises(InvalidInput, code):
        new_network(Path(name), Path("o.json"))


def test_existing_files_stay(work: Path) -> None:
    file = table("l.csv", "source,target,capacity", "A,B,1")
    Path("o.json").write_text("mine")
    with raises(InvalidInput, "exists", "--force"):
        new_network(file, Path("o.json"))
    assert Path("o.json").read_text() == "mine"
    new_network(file, Path("o.json"), force=True)
    with raises(InvalidInput, "bad-file", "json"):
        new_network(file, Path("o.xml"))
    with raises(InvalidInput, "range", "--default-capacity"):
        new_network(file, Path("p.json"), reading=ReadingOptions(default=0.0))
    with raises(InvalidInput, "range"):
        new_network(file, Path("p.json"), load=1.5)


# ---- what is warned of ---------------------------------------------------------------------------


def test_what_may_be_wrong_is_said(work: Path) -> None:
    odd = graph()
    odd.add_node("9", label="Lonely")
    odd.add_edge("7", "8", Speed=1e-4)
    networkx.write_graphml(odd, "net.graphml")
    made = new_network(Path("net.graphml"), Path("o.json"), reading=SPEED)
    alone, parts, units, places = made.draft.cautions
    assert alone == "1 node has no links: 9"  # not all have labels, so these are no names
    assert "not connected" in parts
    assert "2 parts" in parts
    assert "from 0.0001" in units
    assert "one unit?" in units
    assert "no coordinates" in places
    assert not made.draft.is_connected
    assert "there are no demands" in made.list_cautions()[0]
    assert "CAUTION: there are no demands" in str(made)


def test_one_way_links_are_connected_only_if_all_nodes_reach_all(work: Path) -> None:
    chain = table("c.csv", "source,target,capacity", *("A,B,1", "B,C,1"))
    made = new_network(chain, Path("o.json"), reading=ReadingOptions(directed=True))
    assert "in both directions within 3 parts" in made.draft.cautions[0]
    ring = table("r.csv", "source,target,capacity", *("A,B,1", "B,C,1", "C,A,1"))
    assert new_network(
        ring, Path("p.json"), reading=ReadingOptions(directed=True)
    ).draft.is_connected


# ---- demands -------------------------------------------------------------------------------------


def ring() -> Path:
    lines = ("A,B,10,1", "B,C,10,1", "C,D,10,1", "D,A,5,1", "A,C,4,3")
    return table("ring.csv", "source,target,capacity,length", *lines)


def by_all_paths(network: Any) -> float:
    """The least MLU by every simple path there is: an oracle for small networks."""
    return find_bottleneck(build_instance(network, network.volumes, 100)).mlu


def test_demands_of_a_list_and_of_a_matrix(work: Path) -> None:
    listed = table("d.csv", "source,target,volume", *("A,C,9", "B,D,6"))
    matrix = table("m.csv", ",A,B,C,D", "A,0,0,9,0", "B,0,0,0,6", "C,0,0,0,0", "D,0,0,0,0")
    for number, file in enumerate((listed, matrix)):
        made = new_network(ring(), Path(f"{number}.json"), demands=str(file))
        assert made.network.volumes == {(0, 2): 9.0, (1, 3): 6.0}
        assert made.optimum is not None
        assert made.optimum.mlu == pytest.approx(by_all_paths(made.network))
        assert made.by_paths == pytest.approx(made.optimum.mlu)
        assert "--load none" in made.command
        again = instance(f"{number}.json", demands="all", paths=3, load=None)
        assert again.demand_names == ["A->C", "B->D"]


def test_demands_of_the_file_itself_are_kept(work: Path) -> None:
    own = graph()
    own.graph["demands"] = {"0": {"3": 1.5}}
    Path("net.json").write_text(json.dumps(networkx.node_link_data(own, edges="links")))
    made = new_network(Path("net.json"), Path("o.json"), reading=SPEED)
    assert made.network.volumes == {(0, 3): 1.5}
    assert network_of("o.json").volumes == {(0, 3): 1.5}


@pytest.mark.parametrize("model", ["gravity", "uniform"])
def test_modelled_demands_fill_the_busiest_link_as_asked(work: Path, model: str) -> None:
    made = new_network(ring(), Path("o.json"), demands=model, load=0.6)
    assert len(made.network.volumes) == 12
    assert by_all_paths(made.network) == pytest.approx(0.6)
    volumes = made.network.volumes
    if model == "uniform":
        np.testing.assert_allclose(list(volumes.values()), volumes[0, 1])
    else:  # links of A hold 19, of B and C 20 and 24, of D 15
        assert volumes[0, 1] / volumes[3, 1] == pytest.approx(19 / 15)
        assert volumes[2, 0] / volumes[1, 0] == pytest.approx(24 / 20)


def test_models_leave_out_pairs_without_a_path(work: Path) -> None:
    lines = ("A,B,1", "B,C,1", "X,Y,1")
    file = table("parts.csv", "source,target,capacity", *lines)
    network = new_network(file, Path("o.json"), reading=ReadingOptions(directed=True)).network
    assert set(make_demands(network, "uniform", 1.0)) == {(0, 1), (0, 2), (1, 2), (3, 4)}
    demands = table("d.csv", "source,target,volume", *("A,B,1", "C,A,1", "A,Y,1"))
    with raises(InvalidInput, "infeasible"):
        new_network(
            file, Path("p.json"), reading=ReadingOptions(directed=True), demands=str(demands)
        )
    assert not Path("p.json").exists()


def test_the_best_routing_of_a_triangle_by_hand(work: Path) -> None:
    file = table("t.csv", "source,target,capacity", *("A,B,2", "B,C,2", "A,C,4"))
    demands = table("d.csv", "source,target,volume", "A,C,9")
    made = new_network(file, Path("o.json"), demands=str(demands))
    assert made.optimum is not None
    assert made.optimum.mlu == pytest.approx(9 / 6)  # two ways, of 2 and 4
    assert "cannot be routed together" in made.list_cautions()[0]
    assert "1.5 of its capacity" in made.list_cautions()[0]
    assert "--load" not in made.command
    assert least_mlu(made.network, {(0, 2): 3.0}).mlu == pytest.approx(0.5)


def test_too_few_paths_and_other_units_are_told_apart(work: Path) -> None:
    file = table("t.csv", "source,target,capacity", *("A,B,2", "B,C,2", "A,C,4"))
    five = table("five.csv", "source,target,volume", "A,C,5")
    made = new_network(file, Path("o.json"), demands=str(five), paths=1)
    assert made.by_paths == pytest.approx(5 / 4)
    assert "although other paths would do" in made.list_cautions()[0]
    bits = table("bits.csv", "source,target,volume", "A,C,5e9")
    other = new_network(file, Path("p.json"), demands=str(bits))
    assert "in one unit?" in other.list_cautions()[0]


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_writes_reports_and_prints_one_that_trains(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table("d.csv", "source,target,volume", *("A,C,4", "B,D,3"))
    arguments = ["new-network", str(ring()), "--demands", "d.csv", "--out", "mine.json"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "4 nodes, 5 links used in both directions; every node reaches every other" in printed
    (line,) = (one for one in printed.splitlines() if one.startswith("Now train: "))
    words = shlex.split(line.removeprefix("Now train: cg4ai "))
    assert main([*words, "--quiet", "--time-limit", "3"]) in (0, 3)
    assert (work / "mine-router" / "summary.json").exists()
    capsys.readouterr()
    assert main([*arguments, "--force", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["connected"] is True
    assert found["optimum"] == pytest.approx(found["optimum_by_paths"])
    assert main(arguments) == 2
    assert "error: mine.json exists already" in capsys.readouterr().err
    assert main([*arguments, "--force", "--demands", "gravty"]) == 2
    assert "did you mean 'gravity'" in capsys.readouterr().err
