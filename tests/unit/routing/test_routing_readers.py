"""Readers on small files written here, on damaged ones, and on SNDlib's own where they are."""

import json
from pathlib import Path

import networkx
import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.routing import CONFIGURATIONS, Network, instance
from cg4ai.routing.network.instance import READERS
from cg4ai.routing.network.network import Arc
from cg4ai.routing.network.readers import read_native, read_xml
from cg4ai.routing.network.sndlib import load_by_name
from raising import raises

SNDLIB = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "sndlib"

NATIVE = """?SNDlib native format; type: network; version: 1.0
# three towns
META (
  origin = somebody (by letter), (unfinished
)
NODES (
  A ( 0 0 )
  B ( 300 400 )  # pixels
  C ( 300 0 )
)

LINKS (
  one ( A B ) 2.0 0 0 0 ( 10 1.5 40 3.5 )
  two ( B C ) 0.0 0 0 0 ( 7 1 )
  three ( A C ) 5 0 0 0 ( )
  four ( C A ) 1 0 0 0 ( )
)
DEMANDS (
  d1 ( A C ) 1 6.0 UNLIMITED
  d2 ( A C ) 2 1.5 3
  d3 ( C B ) 1 4 UNLIMITED
  d4 ( B A ) 1 0 UNLIMITED
)
ADMISSIBLE_PATHS (
  d1 (
    p1 ( three )
  )
)
"""

XML = """<?xml version="1.0" encoding="UTF-8"?>
<network xmlns="http://sndlib.zib.de/network" version="1.0">
 <networkStructure>
  <nodes coordinatesType="pixel">
   <node id="A"><coordinates><x>0</x><y>0</y></coordinates></node>
   <node id="B"><coordinates><x>300</x><y>400</y></coordinates></node>
   <node id="C"><coordinates><x>300</x><y>0</y></coordinates></node>
  </nodes>
  <links>
   <link id="one"><source>A</source><target>B</target>
    <preInstalledModule><capacity>2</capacity><cost>0</cost></preInstalledModule>
    <additionalModules>
     <addModule><capacity>10</capacity><cost>1.5</cost></addModule>
     <addModule><capacity>40</capacity><cost>3.5</cost></addModule>
    </additionalModules>
   </link>
   <link id="two"><source>B</source><target>C</target>
    <additionalModules><addModule><capacity>7</capacity></addModule></additionalModules>
   </link>
   <link id="three"><source>A</source><target>C</target>
    <preInstalledModule><capacity>5</capacity></preInstalledModule></link>
   <link id="four"><source>C</source><target>A</target>
    <preInstalledModule><capacity>1</capacity></preInstalledModule></link>
  </links>
 </networkStructure>
 <demands>
  <demand id="d1"><source>A</source><target>C</target><demandValue>6.0</demandValue></demand>
  <demand id="d2"><source>A</source><target>C</target>
   <routingUnit>2</routingUnit><demandValue>1.5</demandValue></demand>
  <demand id="d3"><source>C</source><target>B</target><demandValue>4</demandValue></demand>
 </demands>
</network>
"""

TOWNS = Network(
    "towns",
    ("A", "B", "C"),
    {
        (0, 1): Arc(42, 500),
        (1, 0): Arc(42, 500),
        (1, 2): Arc(7, 400),
        (2, 1): Arc(7, 400),
        (0, 2): Arc(6, 300),
        (2, 0): Arc(6, 300),
    },
    {(0, 2): 9.0, (2, 1): 4.0},
    notes=(
        "parallel links are one, with their capacities together: A-C",
        "demands between the same nodes are one, with their volumes together",
    ),
    positions=((0.0, 0.0), (300.0, 400.0), (300.0, 0.0)),
)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_native_and_xml_files_give_the_same_network(tmp_path: Path) -> None:
    assert read_native(write(tmp_path, "towns.txt", NATIVE)) == TOWNS
    assert read_xml(write(tmp_path, "towns.xml", XML)) == TOWNS


def test_geographic_positions_give_kilometres(tmp_path: Path) -> None:
    text = NATIVE.replace("300 400", "0 90").replace("300 0", "90 0")
    network = read_native(write(tmp_path, "globe.txt", text))
    quarter = np.pi / 2 * 6371
    assert [arc.length for arc in network.arcs.values()] == pytest.approx([quarter] * 6)


def test_nodes_without_positions_give_links_of_length_one(tmp_path: Path) -> None:
    network = read_native(write(tmp_path, "bare.txt", NATIVE.replace("C ( 300 0 )", "C")))
    assert {arc.length for arc in network.arcs.values()} == {1.0}
    assert network.positions is None


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("?SNDlib native", "SNDlib native", 1, "bad-file"),
        ("type: network", "type: solution", 1, "bad-file"),
        ("  B ( 300 400 )", "  B ( 300 )", 8, "bad-file"),
        ("  B ( 300 400 )", "  B ( 300 x )", 8, "type"),
        ("  B ( 300 400 )", "  A ( 300 400 )", 8, "duplicate"),
        ("two ( B C )", "one ( B C )", 14, "duplicate"),
        ("two ( B C )", "two ( B Cc )", 14, "unknown-name"),
        ("two ( B C )", "two ( B B )", 14, "invalid-input"),
        ("( 7 1 )", "( 7 )", 14, "bad-file"),
        ("( 7 1 )", "( -7 1 )", 14, "not-finite"),
        ("( 7 1 )", "( inf 1 )", 14, "not-finite"),
        ("( 7 1 )", "( )", 14, "range"),
        ("0.0 0 0 0 ( 7", "-1 0 0 0 ( 7", 14, "not-finite"),
        ("d3 ( C B ) 1 4", "d1 ( C B ) 1 4", 21, "duplicate"),
        ("d3 ( C B ) 1 4", "d3 ( C Q ) 1 4", 21, "unknown-name"),
        ("d3 ( C B ) 1 4", "d3 ( C B ) 1 four", 21, "type"),
        ("d3 ( C B ) 1 4", "d3 ( C B ) 4", 21, "bad-file"),
        ("DEMANDS (", "DEMANDZ (", 19, "unknown-name"),
        ("LINKS (", "LINKS", 12, "bad-file"),
    ],
)
def test_damaged_native_files_are_refused_at_their_line(
    tmp_path: Path, old: str, new: str, line: int, code: str
) -> None:
    assert old in NATIVE
    path = write(tmp_path, "towns.txt", NATIVE.replace(old, new, 1))
    with raises(InvalidInput, code) as caught:
        instance(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")


def test_missing_and_open_sections_are_refused(tmp_path: Path) -> None:
    cut = NATIVE[: NATIVE.index("DEMANDS")]
    with raises(InvalidInput, "bad-file", "line 17"):
        instance(write(tmp_path, "cut.txt", cut))
    with raises(InvalidInput, "bad-file", "line 16"):
        instance(write(tmp_path, "open.txt", cut.rstrip(")\n") + ")\n"))
    empty = cut + "DEMANDS (\n)\n"
    with raises(InvalidInput, "empty"):
        instance(write(tmp_path, "none.txt", empty))


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("<y>400</y>", "<y>400", 6, "bad-file"),
        ("<y>400</y>", "<y>far</y>", 6, "type"),
        ("<y>400</y>", "", 6, "bad-file"),
        ('<node id="C">', '<node id="A">', 7, "duplicate"),
        ('<node id="C">', "<node>", 7, "bad-file"),
        ("<source>B</source>", "<source>Z</source>", 17, "unknown-name"),
        ("<capacity>7</capacity>", "<capacity>-7</capacity>", 17, "not-finite"),
        ("<demandValue>4", "<demandValue>?", 30, "type"),
        ("<links>", "<lynx>", 24, "bad-file"),
        ("<?xml", "<!--", 1, "bad-file"),
        ("<network ", '<!DOCTYPE n [<!ENTITY a "b">]><network ', 2, "bad-file"),
    ],
)
def test_damaged_xml_files_are_refused_at_their_line(
    tmp_path: Path, old: str, new: str, line: int, code: str
) -> None:
    assert old in XML
    path = write(tmp_path, "towns.xml", XML.replace(old, new, 1))
    with raises(InvalidInput, code) as caught:
        instance(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")


def test_other_xml_is_refused(tmp_path: Path) -> None:
    with raises(InvalidInput, "bad-file", "line 1"):
        instance(write(tmp_path, "drawing.xml", "<svg/>"))


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with raises(InvalidInput, "bad-file", "nothing.txt"):
        instance(tmp_path / "nothing.txt")
    (tmp_path / "latin.txt").write_bytes("Köln".encode("latin-1"))
    with raises(InvalidInput, "bad-file", "latin.txt"):
        instance(tmp_path / "latin.txt")
    with raises(InvalidInput, "bad-file", "ending"):
        instance(write(tmp_path, "towns.doc", NATIVE))


def towns_graph() -> networkx.MultiGraph:
    graph = networkx.MultiGraph(name="towns")
    for a, b, capacity, length in [
        ("A", "B", 42.0, 500.0),
        ("B", "C", 7.0, 400.0),
        ("A", "C", 5.0, 300.0),
        ("C", "A", 1.0, 350.0),
    ]:
        graph.add_edge(a, b, capacity=capacity, length=length)
    return graph


DEMANDS = "source,target,volume\nA,C,9\nC,B,4\n"


@pytest.mark.parametrize("form", ["graph", "graphml", "json", "links"])
def test_graphs_and_their_files_equal_the_native_file(tmp_path: Path, form: str) -> None:
    graph = towns_graph()
    source: object = graph
    if form == "graphml":
        source = tmp_path / "towns.graphml"
        networkx.write_graphml(graph, source)
    elif form != "graph":
        key = "edges" if form == "json" else "links"
        text = json.dumps(networkx.node_link_data(graph, edges=key))
        source = write(tmp_path, "towns.json", text)
    demands = write(tmp_path, "demands.csv", DEMANDS)
    found = instance(source, 2, 2, demand_file=demands)
    expected = instance(write(tmp_path, "towns.txt", NATIVE), 2, 2)
    assert found.name == "towns"
    assert found.arcs == expected.arcs
    assert found.paths == expected.paths
    assert found.demand_names == ["A->C", "C->B"]
    for field in ("capacity", "incidence", "demand_max", "path_length", "path_demand"):
        assert getattr(found, field) == pytest.approx(getattr(expected, field))


def test_directed_edges_go_one_way() -> None:
    graph = networkx.DiGraph(demands={"1": {"3": 2.0}})
    networkx.add_path(graph, [1, 2, 3], capacity=4)
    built = instance(graph, 1, 3)
    assert built.arcs == [("1", "2"), ("2", "3")]
    assert built.capacity.tolist() == [4, 4]
    assert built.demand_max == pytest.approx([3.96])


def test_missing_capacities_are_refused_with_what_was_found(tmp_path: Path) -> None:
    """A file that calls them otherwise would be trained with capacities nobody stated."""
    graph = networkx.Graph()
    graph.add_edge("A", "B", bandwidth=10.0, delay=3)
    networkx.write_graphml(graph, tmp_path / "a.graphml")
    write(tmp_path, "a.json", json.dumps(networkx.node_link_data(graph, edges="edges")))
    for source in (graph, tmp_path / "a.graphml", tmp_path / "a.json"):
        with raises(InvalidInput, "bad-file", "bandwidth", "delay"):
            instance(source, demand_file=write(tmp_path, "d.csv", "source,target,volume\nA,B,1\n"))
    with raises(InvalidInput, "bad-file", "capacity"):
        instance(networkx.path_graph(3))


def test_defaults_and_directions_of_graphml(tmp_path: Path) -> None:
    text = GRAPHML.replace('"capacity" attr.type="double"/', '"capacity"><default>8</default></key')
    text = text.replace('<data key="c">2</data>', "").replace(
        'A" target', 'A" directed="true" target'
    )
    found = READERS[".graphml"](write(tmp_path, "a.graphml", text))
    assert found.nodes == ("B", "A", "C")
    assert {ends: arc.capacity for ends, arc in found.arcs.items()} == {
        (1, 0): 1 + 3,
        (0, 1): 3,
        (2, 0): 8,
        (0, 2): 8,
    }


@pytest.mark.parametrize(
    ("edge", "code"),
    [
        ({"length": 1.0}, "bad-file"),
        ({"capacity": 1.0}, "bad-file"),
        ({"capacity": "much", "length": 1}, "type"),
        ({"capacity": -1, "length": 1}, "not-finite"),
        ({"capacity": 0, "length": 1}, "range"),
    ],
)
def test_bad_edges_are_named(edge: dict[str, object], code: str) -> None:
    graph = towns_graph()
    graph.add_edge("C", "D", **edge)
    with raises(InvalidInput, code):
        instance(graph)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("A,C,9\n", "bad-file"),
        ("source,target,volume\nA,C\n", "bad-file"),
        ("source,target,volume\nA,C,9\n\nA,X,9\n", "unknown-name"),
        ("source,target,volume\nA,C,-9\n", "not-finite"),
        ("source,target,volume\nA,C,lots\n", "type"),
        ("source,target,volume\nA,C,1\nA,C,2\n", "duplicate"),
        ("source,target,volume\n", "empty"),
    ],
)
def test_bad_demand_files_are_refused_at_their_line(tmp_path: Path, text: str, code: str) -> None:
    with raises(InvalidInput, code):
        instance(towns_graph(), demand_file=write(tmp_path, "demands.csv", text))


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.json", '{"nodes": [],\n "edges": [}', "bad-file"),
        ("a.json", "[1]", "bad-file"),
        ("a.json", '{"nodes": 3,\n"edges": []}', "bad-file"),
        ("a.json", '{"nodes": [4],\n"edges": []}', "bad-file"),
        ("a.json", '{"nodes": [{"id": 1}],\n"edges": [{"source": 1}]}', "bad-file"),
        ("a.json", '{"nodes": [{"id": 1}], "multigraph": 3, "edges": []}', "empty"),
        ("a.graphml", "<graphml>\n<graph>", "bad-file"),
        ("a.graphml", "<svg/>", "bad-file"),
        ("a.graphml", "<graphml></graphml>", "bad-file"),
    ],
)
def test_damaged_graph_files_are_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    with raises(InvalidInput, code):
        instance(write(tmp_path, name, text))


GRAPHML = """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
 <key id="c" for="edge" attr.name="capacity" attr.type="double"/>
 <key id="t" for="edge" attr.name="length" attr.type="string"/>
 <graph edgedefault="undirected">
  <node id="B"/>
  <node id="A"/>
  <node id="C"/>
  <edge source="A" target="B"><data key="c">1</data><data key="t">5</data></edge>
  <edge source="C" target="B">
   <data key="c">2</data><data key="t">6</data></edge>
  <edge source="B" target="A"><data key="c">3</data><data key="t">7</data></edge>
 </graph>
</graphml>
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        (">3</data>", ">much</data>", 12, "type"),
        (">3</data>", ">-3</data>", 12, "not-finite"),
        (">1</data>", ">0</data>", 9, "range"),
        (">2</data>", ">nan</data>", 11, "not-finite"),
        ('<data key="t">6</data>', "", 10, "bad-file"),
        (">7</data>", ">far</data>", 12, "type"),
        ('"C" target="B"', '"C" target="Z"', 10, "unknown-name"),
        ('"C" target="B"', '"C"', 10, "bad-file"),
        ('"C" target="B"', '"C" target="C"', 10, "invalid-input"),
        ('<data key="c">2', '<data key="d">2', 11, "unknown-name"),
        ('<node id="A"/>', "<node/>", 7, "bad-file"),
    ],
)
def test_errors_in_graphml_name_line_and_edge(
    tmp_path: Path, old: str, new: str, line: int, code: str
) -> None:
    assert old in GRAPHML
    path = write(tmp_path, "a.graphml", GRAPHML.replace(old, new, 1))
    with raises(InvalidInput, code) as caught:
        instance(path)
    assert str(caught.value).startswith(f"{path}, line {line}")


NODE_LINK = """{"multigraph": true, "graph": {"demands": {
   "a": {"c": 4.0},
   "b": {"c": "2"}}},
 "nodes": [{"id": "a", "pos": [0, 0]}, {"id": "b",
   "pos": [1, 0], "note": "a } brace, \\" and {more"},
  {"id": "c", "pos": [2, 2]}],
 "links": [
  {"source": "a", "target": "b", "capacity": 1.0},
  {"source": "b", "target": "c",
   "capacity": 2.0},
  {"source": "b", "target": "a", "capacity": 3.0}
 ]}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("3.0}", '"much"}', 11, "type"),
        ("1.0}", "0.0}", 8, "range"),
        (',\n   "capacity": 2.0', "", 9, "bad-file"),
        ('"target": "c"', '"target": "d"', 9, "unknown-name"),
        ("[1, 0]", "[1]", 4, "bad-file"),
        ("[2, 2]", '["far", 2]', 6, "type"),
        ('"c": "2"', '"c": "lots"', 3, "type"),
        ('"c": 4.0', '"d": 4.0', 2, "unknown-name"),
    ],
)
def test_errors_in_json_name_line_and_edge(
    tmp_path: Path, old: str, new: str, line: int, code: str
) -> None:
    assert old in NODE_LINK
    path = write(tmp_path, "a.json", NODE_LINK.replace(old, new, 1))
    with raises(InvalidInput, code) as caught:
        instance(path)
    assert str(caught.value).startswith(f"{path}, line {line}, ") or (
        "unknown" in code and str(caught.value).startswith(f"{path}, line {line}")
    )


def test_the_undamaged_files_are_read(tmp_path: Path) -> None:
    made = instance(write(tmp_path, "a.json", NODE_LINK), 2, 2)
    assert made.demand_names == ["a->c", "b->c"]
    assert made.capacity[made.arcs.index(("a", "b"))] == 4.0  # both parallel links
    demands = write(tmp_path, "d.csv", "source,target,volume\nA,C,1\n")
    built = instance(write(tmp_path, "a.graphml", GRAPHML), 1, 2, demand_file=demands)
    assert built.paths == [("A", "B", "C")]
    assert built.path_length.tolist() == [11.0]


def test_nodes_may_be_lists_or_have_no_id(tmp_path: Path) -> None:
    text = """{"nodes": [{"id": [1, 2]}, {}],
     "graph": {"demands": {"1": {"(1, 2)": 3}}},
     "edges": [{"source": [1, 2], "target": 1, "capacity": -1}]}"""
    with raises(InvalidInput, "not-finite", "line 3", "capacity"):
        instance(write(tmp_path, "a.json", text))
    assert instance(write(tmp_path, "b.json", text.replace("-1", "5")), 1).arcs == [("1", "(1, 2)")]


def test_every_reader_is_reached_by_its_ending() -> None:
    assert list(READERS) == [".txt", ".xml", ".graphml", ".json", ".csv", ".graph"]


@pytest.mark.skipif(not SNDLIB.is_dir(), reason="SNDlib's native files are not here")
@pytest.mark.parametrize("name", sorted({configuration[0] for configuration in CONFIGURATIONS}))
def test_native_files_agree_with_the_networks_by_name(name: str) -> None:
    own, named = read_native(SNDLIB / f"{name}.txt"), load_by_name(name)
    assert own.nodes == named.nodes
    assert own.arcs.keys() == named.arcs.keys()
    other = [ends for ends in own.arcs if own.arcs[ends].capacity != named.arcs[ends].capacity]
    # The figure for Lyon-Zurich is corrupt in the file.
    assert len(other) == (2 if name == "nobel-eu" else 0)
    # topohub rounds positions to two decimals; pixels stay what they are.
    for ends, arc in own.arcs.items():
        assert arc.length == pytest.approx(named.arcs[ends].length, abs=2.0)
    assert own.volumes.keys() == named.volumes.keys()
    # topohub keeps the last of several demands between two nodes, the reader adds them up.
    different = [ends for ends in own.volumes if own.volumes[ends] != named.volumes[ends]]
    assert len(different) == (70 if name == "ta1" else 0)
    assert all(own.volumes[ends] > named.volumes[ends] for ends in different)
