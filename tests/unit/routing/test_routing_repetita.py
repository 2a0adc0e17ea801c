"""Files of REPETITA and of the Topology Zoo, read as they are or refused at their line."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.routing import instance, read_traffic
from cg4ai.routing.demands.measured import MeasuredTraffic, measured_instance
from cg4ai.routing.network.instance import network_of
from cg4ai.routing.network.links import ReadingOptions
from cg4ai.routing.network.new_network import new_network
from cg4ai.routing.network.readers import read_demands
from raising import raises

ARCHIVE = Path(__file__).parents[4] / "shared/data/repetita/networks.tar.xz"

GRAPH = """NODES 3
label x y
0_Bern 7.4 46.9
1_Basel 7.6 47.6
2_Chur 9.5 46.8

EDGES 6
label src dest weight bw delay
edge_0 0 1 1 10 5
edge_1 1 0 1 10 5
edge_2 1 2 3 4 7
edge_3 2 1 3 4 7
edge_4 0 2 2 6 9
edge_5 0 2 1 1 20
"""
DEMANDS = """DEMANDS 3
label src dest bw
demand_0 0 2 5
demand_1 1 2 2
demand_2 0 1 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "net.graph", GRAPH)
    write(tmp_path, "net.0000.demands", DEMANDS)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_graph_has_capacities_weights_as_lengths_and_delays(folder: Path) -> None:
    network = network_of(folder / "net.graph")
    assert network.name == "net"
    assert network.nodes == ("0_Bern", "1_Basel", "2_Chur")
    assert {ends: tuple(arc) for ends, arc in network.arcs.items()} == {
        (0, 1): (10, 1, 0.005),
        (1, 0): (10, 1, 0.005),
        (1, 2): (4, 3, 0.007),
        (2, 1): (4, 3, 0.007),
        (0, 2): (7, 1, 0.02),  # capacities together, the least length, the largest delay
    }
    assert any("parallel" in note for note in network.notes)
    assert network.positions is not None
    assert network.positions[1] == (7.6, 47.6)


def test_a_matrix_is_routed_whole(folder: Path) -> None:
    made = instance(
        folder / "net.graph", "all", 2, load=None, demand_file=folder / "net.0000.demands"
    )
    assert made.demand_names == ["0_Bern->2_Chur", "1_Basel->2_Chur"]
    assert made.demand_max.tolist() == [5, 2]
    # 7 to Chur over links of 7 and 4
    assert made.level == pytest.approx(7 / 11)


def test_new_network_keeps_volumes_and_delays(folder: Path) -> None:
    made = new_network(
        folder / "net.graph", folder / "o.json", demands=str(folder / "net.0000.demands")
    )
    again = network_of(folder / "o.json")
    assert again.arcs == network_of(folder / "net.graph").arcs
    assert again.volumes == {(0, 2): 5.0, (1, 2): 2.0} == made.network.volumes


def test_matrices_of_a_folder_are_traffic_in_the_order_of_their_names(folder: Path) -> None:
    for number, volume in ((2, 3), (1, 4), (3, 1)):
        text = DEMANDS.replace("0 2 5", f"0 2 {volume}")
        write(folder, f"net.{number:04}.demands", text)
    write(folder, "other.0000.demands", DEMANDS.replace("demand_0 0 2", "demand_0 7 8"))
    found = read_traffic(folder, folder / "net.graph")
    assert found.times == ("0000", "0001", "0002", "0003")
    assert found.get_volumes([("0_Bern", "2_Chur")])[:, 0].tolist() == [5, 4, 3, 1]
    earlier, later = found.split(0.5)
    made = measured_instance(folder / "net.graph", earlier)
    judged = MeasuredTraffic.from_traffic(made, earlier, later, whole=True)
    assert judged.later.shape == (2, len(made.demand_max))
    # one file is a matrix, too
    assert len(read_traffic(folder / "net.0001.demands", folder / "net.graph")) == 1
    with raises(InvalidInput, "missing-values"):
        read_traffic(folder)
    renamed = (folder / "net.graph").rename(folder / "mine.graph")
    with raises(InvalidInput, "conflict"):
        read_traffic(folder, renamed)


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("NODES 3", "NODE 3", 1, "bad-file"),
        ("NODES 3", "NODES three", 1, "bad-file"),
        ("NODES 3", "NODES 4", 7, "bad-file"),
        ("label x y", "label y x", 2, "bad-file"),
        ("7.6 47.6", "7.6", 4, "bad-file"),
        ("7.6 47.6", "7.6 north", 4, "type"),
        ("EDGES 6", "EDGES 7", 14, "bad-file"),
        ("EDGES 6", "EDGES 5", 14, "bad-file"),
        ("edge_2 1 2 3 4 7", "edge_2 1 2 3 4", 11, "bad-file"),
        ("edge_2 1 2 3 4 7", "edge_2 1 3 3 4 7", 11, "unknown-name"),
        ("edge_2 1 2 3 4 7", "edge_2 -1 2 3 4 7", 11, "unknown-name"),
        ("edge_2 1 2 3 4 7", "edge_2 1 1 3 4 7", 11, "invalid-input"),
        ("edge_2 1 2 3 4 7", "edge_2 1 2 3 0 7", 11, "range"),
        ("edge_2 1 2 3 4 7", "edge_2 1 2 x 4 7", 11, "type"),
        ("edge_2 1 2 3 4 7", "edge_2 1 2 3 -4 7", 11, "not-finite"),
        ("edge_2 1 2 3 4 7", "edge_2 1 2 3 4 nan", 11, "not-finite"),
    ],
)
def test_damaged_graphs_are_refused_at_their_line(
    folder: Path, old: str, new: str, line: int, code: str
) -> None:
    assert old in GRAPH
    path = write(folder, "bad.graph", GRAPH.replace(old, new, 1))
    with raises(InvalidInput, code) as caught:
        network_of(path)
    assert str(caught.value).startswith(f"{path}, line {line}")


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("DEMANDS 3", "DEMANDS 2", 5, "bad-file"),
        ("DEMANDS 3", "DEMANDS 9", 5, "bad-file"),
        ("label src dest bw", "label src dest", 2, "bad-file"),
        ("demand_1 1 2 2", "demand_1 1 2", 4, "bad-file"),
        ("demand_1 1 2 2", "demand_1 1 2 much", 4, "type"),
        ("demand_1 1 2 2", "demand_1 1 2 -2", 4, "not-finite"),
        ("demand_1 1 2 2", "demand_1 1 Chur 2", 4, "unknown-name"),
        ("demand_1 1 2 2", "demand_0 1 2 2", 4, "duplicate"),
    ],
)
def test_damaged_matrices_are_refused_at_their_line(
    folder: Path, old: str, new: str, line: int, code: str
) -> None:
    assert old in DEMANDS
    path = write(folder, "bad.demands", DEMANDS.replace(old, new, 1))
    with raises(InvalidInput, code) as caught:
        instance(folder / "net.graph", demand_file=path)
    assert str(caught.value).startswith(f"{path}, line {line}")


def test_equal_labels_of_a_graph_leave_positions(folder: Path) -> None:
    network = network_of(write(folder, "twice.graph", GRAPH.replace("1_Basel", "0_Bern")))
    assert network.nodes == ("0", "1", "2")
    assert any("0_Bern" in note for note in network.notes)


def test_an_empty_file_is_refused(folder: Path) -> None:
    with raises(InvalidInput, "bad-file", "line 1"):
        network_of(write(folder, "empty.graph", ""))


@pytest.mark.skipif(not ARCHIVE.is_file(), reason="REPETITA's networks are not here")
def test_all_networks_of_repetita_are_read(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as packed:
        wanted = (".graph", ".0000.demands")
        members = [one for one in packed.getmembers() if one.name.endswith(wanted)]
        packed.extractall(tmp_path, members, filter="data")
    files = sorted(tmp_path.rglob("*.graph"))
    assert len(files) > 60
    for file in files:
        network = network_of(file)
        first = file.with_suffix(".0000.demands")
        assert all(arc.delay is not None for arc in network.arcs.values())
        lines = first.read_text().splitlines()[2:]
        if len(lines) > 1000:  # the rest takes longer than all of these
            continue
        listed = [float(line.split()[3]) for line in lines if line.strip()]
        assert sum(read_demands(first, network).values()) == pytest.approx(np.sum(listed))


# ---- the Topology Zoo ----------------------------------------------------------------------------

ZOO = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
 <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1" />
 <key attr.name="label" attr.type="string" for="node" id="d2" />
 <key attr.name="Longitude" attr.type="double" for="node" id="d3" />
 <key attr.name="Latitude" attr.type="double" for="node" id="d4" />
 <key attr.name="Network" attr.type="string" for="graph" id="d5" />
 <graph edgedefault="undirected">
  <data key="d5">Towns</data>
  <node id="0"><data key="d2">Bern</data>
   <data key="d3">0</data><data key="d4">0</data></node>
  <node id="1"><data key="d2">Basel</data>
   <data key="d3">90</data><data key="d4">0</data></node>
  <edge source="0" target="1"><data key="d1">1e9</data></edge>
  <edge id="e1" source="0" target="1"><data key="d1">2e9</data></edge>
 </graph>
</graphml>
"""


def test_zoo_files_have_speeds_labels_coordinates_and_parallel_edges(tmp_path: Path) -> None:
    network = network_of(write(tmp_path, "zoo.graphml", ZOO))
    assert network.nodes == ("Bern", "Basel")
    assert network.arcs[0, 1].capacity == 3e9
    assert network.arcs[0, 1].length == pytest.approx(np.pi / 2 * 6371)
    assert any("LinkSpeedRaw" in note for note in network.notes)
    made = new_network(tmp_path / "zoo.graphml", tmp_path / "o.json", demands="uniform")
    assert made.network.arcs == network.arcs
    assert any("LinkSpeedRaw" in change for change in made.draft.changes)


@pytest.mark.parametrize("label", ["Bern", ""])
def test_equal_or_missing_labels_leave_ids(tmp_path: Path, label: str) -> None:
    file = write(tmp_path, "zoo.graphml", ZOO.replace(">Basel<", f">{label}<"))
    network = network_of(file)
    assert network.nodes == ("0", "1")
    assert any("label" in note for note in network.notes)


def test_nodes_without_coordinates_make_every_link_count_one(tmp_path: Path) -> None:
    text = ZOO.replace('<data key="d3">90</data><data key="d4">0</data>', "")
    network = network_of(write(tmp_path, "zoo.graphml", text))
    assert network.arcs[0, 1].length == 1.0
    assert any("coordinates" in note for note in network.notes)


def test_zoo_files_without_speeds_name_what_gives_them(tmp_path: Path) -> None:
    speeds = ('<data key="d1">1e9</data>', '<data key="d1">2e9</data>')
    some = write(tmp_path, "some.graphml", ZOO.replace(speeds[1], ""))
    with raises(InvalidInput, "bad-file", "line 15", "--default-capacity"):
        network_of(some)
    none = write(tmp_path, "none.graphml", ZOO.replace(speeds[0], "").replace(speeds[1], ""))
    with raises(InvalidInput, "bad-file", "new-network", "--default-capacity"):
        network_of(none)
    made = new_network(none, tmp_path / "o.json", reading=ReadingOptions(default=5.0))
    assert made.network.arcs[0, 1].capacity == 10.0


def test_nodes_of_no_known_place_are_drawn_near_their_neighbours(tmp_path: Path) -> None:
    """The files say 0, 0 of them, which is far from everything."""
    (tmp_path / "a.graph").write_text(GRAPH.replace("2_Chur 9.5 46.8", "2_Chur 0.0 0.0"))
    (tmp_path / "b.graph").write_text(GRAPH)
    filled, given = (network_of(tmp_path / name).positions for name in ("a.graph", "b.graph"))
    assert filled is not None
    assert given is not None
    assert filled[:2] == given[:2]
    assert np.abs(np.array(filled[2]) - given[0]).max() < 1
    assert filled[2] not in filled[:2]
