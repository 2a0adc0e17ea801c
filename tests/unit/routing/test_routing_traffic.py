"""Measured traffic: every format of the same three matrices, what is refused, and the split."""

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.routing import Traffic, instance, read_traffic
from raising import raises

NODES = ("C", "A", "B")
TIMES = ("20040301-0000", "20040301-0005", "20040301-0010")
MATRICES = np.array(
    [[[0, 2, 3], [4, 0, 5], [6, 7, 0]], [[0, 1, 0], [8, 0, 9], [1, 1, 0]], [[0, 2, 2]] * 3], float
)
MATRICES[:, range(3), range(3)] = 0.0
MEASURED = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "traffic"


def volumes() -> list[tuple[str, str, str, float]]:
    return [
        (time, NODES[i], NODES[j], MATRICES[t, i, j])
        for t, time in enumerate(TIMES)
        for i in range(3)
        for j in range(3)
        if i != j
    ]


def as_long() -> str:
    lines = [f"{time},{source},{target},{value}" for time, source, target, value in volumes()]
    return "\n".join(["time,source,target,volume", *lines])


def as_wide() -> str:
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    lines = [",".join(["time", *(f"{NODES[i]}->{NODES[j]}" for i, j in pairs)])]
    for t, time in enumerate(TIMES):
        lines.append(",".join([time, *(str(MATRICES[t, i, j]) for i, j in pairs)]))
    return "\n".join(lines)


def as_xml(t: int, *, meta: bool = True) -> str:
    nodes = "".join(f'<node id="{name}"/>' for name in NODES)
    demands = "".join(
        f'<demand id="{a}_{b}"><source>{a}</source><target>{b}</target>'
        f"<demandValue>{value}</demandValue></demand>"
        for time, a, b, value in volumes()
        if time == TIMES[t] and value > 0
    )
    said = f"<meta><time>{TIMES[t]}</time></meta>" if meta else ""
    return (
        f'<network xmlns="http://sndlib.zib.de/network" version="1.0">{said}<networkStructure>'
        f"<nodes>{nodes}</nodes></networkStructure><demands>{demands}</demands></network>"
    )


def xml_folder(folder: Path, *, meta: bool = True) -> Path:
    folder.mkdir()
    for t in (2, 0, 1):
        (folder / f"demandMatrix-x-5min-{TIMES[t]}.xml").write_text(as_xml(t, meta=meta))
    return folder


def written(tmp_path: Path, kind: str) -> Path:
    """The traffic in one of the formats."""
    path = tmp_path / f"traffic.{kind}"
    if kind == "csv":
        path.write_text(as_long())
    elif kind == "wide.csv":
        path.write_text(as_wide())
    elif kind == "npz":
        np.savez(path, matrices=MATRICES.astype(np.float32), times=TIMES, nodes=NODES)
    elif kind in ("folder", "nameless"):
        xml_folder(path, meta=kind == "folder")
    elif kind == "tgz":
        with tarfile.open(path, "w:gz") as archive:
            archive.add(xml_folder(tmp_path / "inside"), "inside")
    else:
        with zipfile.ZipFile(path, "w") as packed:
            for file in xml_folder(tmp_path / "inside").iterdir():
                packed.write(file, f"deep/{file.name}")
    return path


@pytest.mark.parametrize("kind", ["csv", "wide.csv", "npz", "folder", "nameless", "tgz", "zip"])
def test_every_format_gives_the_same_traffic(tmp_path: Path, kind: str) -> None:
    found = read_traffic(written(tmp_path, kind))
    assert found.times == TIMES
    assert found.nodes == NODES
    assert found.matrices.dtype == np.float64
    np.testing.assert_array_equal(found.matrices, MATRICES)
    assert bool(found.notes) == (kind in ("folder", "nameless", "tgz", "zip"))


def triangle(names: tuple[str, ...] = ("A", "B", "C")) -> networkx.Graph:
    graph = networkx.Graph(demands={names[0]: {names[1]: 5.0}, names[2]: {names[0]: 9.0}})
    for a, b in ((0, 1), (1, 2), (2, 0)):
        graph.add_edge(names[a], names[b], capacity=10.0)
    return graph


def test_vectors_follow_the_instance_and_its_scale() -> None:
    made = instance(triangle(), 2, 2)
    assert made.demand_names == ["C->A", "A->B"]
    found = Traffic(TIMES, NODES, MATRICES).to_vectors(made)
    np.testing.assert_allclose(found, made.scale * np.array([[2, 5], [1, 9], [2, 2]]))
    with raises(InvalidInput, "unknown-name", "Born", "Bonn"):
        Traffic(TIMES, ("A", "Born", "C"), MATRICES).to_vectors(
            instance(triangle(("A", "Bonn", "C")), 2)
        )
    with raises(InvalidInput, "unknown-name", "Born", "Bonn"):
        Traffic(TIMES, ("A", "Bonn", "C"), MATRICES).check_nodes(("A", "Born", "C"), "net")


def test_traffic_is_split_by_time_or_share() -> None:
    times = [f"2004-03-{day:02d}T00:00" for day in range(1, 11)]
    whole = Traffic(tuple(times), ("A", "B"), np.arange(40.0).reshape(10, 2, 2) * [[0, 1], [1, 0]])
    early, late = whole.split("2004-03-04T12:00")
    assert (early.times, late.times) == (tuple(times[:4]), tuple(times[4:]))
    assert whole.split("2004-03-02")[0].times == tuple(times[:1])
    assert [len(part) for part in whole.split("0.75")] == [7, 3]
    np.testing.assert_array_equal(late.matrices, whole.matrices[4:])
    numbered = Traffic(("8", "9", "10"), ("A", "B"), np.zeros((3, 2, 2)))
    assert numbered.split("10")[0].times == ("8", "9")  # as numbers, not as texts
    for bad in ("2003", "2005-01-01", "1.5"):
        with raises(InvalidInput, "range"):
            whole.split(bad)


def test_errors_about_times_of_an_unknown_format_say_which_are_read() -> None:
    known = "compared as text: what is read are numbers and ISO dates such as 2004-03-28T12:30"
    volumes = np.zeros((2, 2, 2))
    with pytest.raises(InvalidInput, match=known):
        Traffic(("28.03.2004", "01.04.2004"), ("A", "B"), volumes)
    dated = Traffic(("2004-03-28", "2004-04-01"), ("A", "B"), volumes)
    with pytest.raises(InvalidInput, match=known):
        dated.split("foo")
    with raises(InvalidInput, "range"):
        dated.split("2005-01-01")


def test_a_diagonal_is_ignored_with_a_note() -> None:
    found = Traffic(("1",), ("A", "B"), np.array([[[3.0, 1], [2, 0]]]))
    np.testing.assert_array_equal(found.matrices, [[[0, 1], [2, 0]]])
    assert found.notes == ("traffic from nodes to themselves is ignored",)


LONG = "time,source,target,volume\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-file"),
        (LONG, "empty"),
        (LONG + "1,A,B,-2\n", "not-finite"),
        (LONG + "1,A,B,\n", "type"),
        (LONG + "1,A,B,nan\n", "not-finite"),
        (LONG + "1,A,B\n", "shape"),
        (LONG + "1,A,B,2\n1,A,B,3\n", "duplicate"),
        (LONG + "2,A,B,2\n1,A,B,3\n", "invalid-input"),
        ("time,A->B,B\n1,2,3\n", "bad-file"),
        ("time,A->B\n1,2\n1,3\n", "duplicate"),
        ("time,A->B,B->A\n1,2\n", "shape"),
        ("time,A->B,B->A\n1,2,3,4\n", "shape"),
        (LONG + "1,A,B,2,5\n", "shape"),
    ],
)
def test_bad_csv_is_refused_in_one_line(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with raises(InvalidInput, code) as raised:
        read_traffic(path)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"nodes": ["A"]}, "bad-file"),
        ({"matrices": np.zeros((2, 2)), "nodes": ["A", "B"]}, "shape"),
        ({"matrices": np.zeros((2, 2, 3)), "nodes": ["A", "B"]}, "invalid-input"),
        ({"matrices": np.full((1, 2, 2), np.nan), "nodes": ["A", "B"]}, "invalid-input"),
        ({"matrices": -np.ones((1, 2, 2)), "nodes": ["A", "B"]}, "invalid-input"),
        ({"matrices": np.zeros((1, 2, 2)), "nodes": ["A", "A"]}, "invalid-input"),
        ({"matrices": np.zeros((0, 2, 2)), "nodes": ["A", "B"]}, "invalid-input"),
        (
            {"matrices": np.zeros((2, 2, 2)), "nodes": ["A", "B"], "times": ["5", "5"]},
            "invalid-input",
        ),
    ],
)
def test_bad_npz_is_refused(tmp_path: Path, arrays: dict[str, Any], code: str) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    with raises(InvalidInput, code):
        read_traffic(path)


@pytest.mark.parametrize("name", ["t.npz", "t.zip", "t.tgz", "t.xml", "t.tar", "t.bin", "no.csv"])
def test_damaged_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name != "no.csv":
        path.write_bytes(b"not what it says")
    with raises(InvalidInput, "bad-file", name) as raised:
        read_traffic(path)
    assert "pickle" not in str(raised.value)


def test_a_single_array_is_no_npz_file(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    with path.open("wb") as file:
        np.save(file, MATRICES)
    with raises(InvalidInput, "bad-file", "t.npz"):
        read_traffic(path)


def test_xml_files_must_agree_on_their_nodes(tmp_path: Path) -> None:
    folder = xml_folder(tmp_path / "xml")
    (folder / "z.xml").write_text(as_xml(1).replace("0005", "0100"))
    assert len(read_traffic(folder)) == 4
    (folder / "z.xml").write_text(as_xml(1))
    with raises(InvalidInput, "duplicate", "20040301-0005"):
        read_traffic(folder)
    (folder / "z.xml").write_text(as_xml(1).replace("0005", "0100").replace('id="A"', 'id="X"'))
    with raises(InvalidInput, "conflict"):
        read_traffic(folder)
    (tmp_path / "empty").mkdir()
    with raises(InvalidInput, "empty"):
        read_traffic(tmp_path / "empty")


@pytest.mark.skipif(not MEASURED.is_dir(), reason="no measured traffic here")
def test_measured_traffic_is_read() -> None:
    found = read_traffic(MEASURED / "geant.npz")
    assert found.matrices.shape == (226, 22, 22)
    assert found.times[0] == "20050504-1530"
