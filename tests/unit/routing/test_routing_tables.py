"""Topologies as CSV of links, demands as a matrix, and paths of the user's own."""

from pathlib import Path

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.routing import instance
from cg4ai.routing.network.readers import read_links
from raising import raises

LINKS = "source,target,capacity,length\nA,B,10,1\nB,C,10,1\nA,C,5,3\n"
DEMANDS = "source,target,volume\nA,C,4\nB,A,2\n"
MATRIX = ",A,B,C\nA,0,0,4\nB,2,0,0\nC,0,0,0\n"
PATHS = "source,target,path\nA,C,A;C\nA,C,A;B;C\nB,A,B;A\n"


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_links_in_csv_are_a_network(tmp_path: Path) -> None:
    found = read_links(write(tmp_path, "net.csv", LINKS))
    assert found.name == "net"
    assert found.nodes == ("A", "B", "C")
    assert len(found.arcs) == 6
    assert found.arcs[0, 2] == found.arcs[2, 0] == (5.0, 3.0, None)
    one_way = "source,target,capacity,both\nA,B,1,no\nB,A,2,no\nB,C,3,yes\n"
    found = read_links(write(tmp_path, "net.csv", one_way))
    assert {arc: one.capacity for arc, one in found.arcs.items()} == {
        (0, 1): 1.0,
        (1, 0): 2.0,
        (1, 2): 3.0,
        (2, 1): 3.0,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("source,target\nA,B\n", "bad-file"),
        ("source,target,capacity,colour\nA,B,1,red\n", "bad-file"),
        ("source,target,capacity\nA,B,-1\n", "not-finite"),
        ("source,target,capacity\nA,A,1\n", "invalid-input"),
        ("source,target,capacity\nA,B,1\nB,A,1\n", "duplicate"),
        ("source,target,capacity,both\nA,B,1,maybe\n", "bad-file"),
        ("source,target,capacity\n", "empty"),
    ],
)
def test_bad_links_are_refused_at_their_line(tmp_path: Path, text: str, code: str) -> None:
    with raises(InvalidInput, code):
        read_links(write(tmp_path, "net.csv", text))


@pytest.mark.parametrize("text", [MATRIX, "A,B,C\n0,0,4\n2,0,0\n0,0,0\n", "from\\to" + MATRIX])
def test_demands_may_be_a_matrix(tmp_path: Path, text: str) -> None:
    links = write(tmp_path, "net.csv", LINKS)
    listed = instance(links, demand_file=write(tmp_path, "list.csv", DEMANDS))
    matrix = instance(links, demand_file=write(tmp_path, "matrix.csv", text))
    assert matrix.demand_names == listed.demand_names == ["A->C", "B->A"]
    np.testing.assert_array_equal(matrix.demand_max, listed.demand_max)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (",A,B,X\nA,0,0,4\nB,2,0,0\nX,0,0,0\n", "unknown-name"),
        (",A,B,C\nA,0,0,4\nB,2,0\nC,0,0,0\n", "bad-file"),
        (",A,B,C\nA,0,0,4\nB,2,0,0\n", "bad-file"),
        (",A,B,C\nA,0,0,-4\nB,2,0,0\nC,0,0,0\n", "not-finite"),
    ],
)
def test_bad_matrices_are_refused(tmp_path: Path, text: str, code: str) -> None:
    links = write(tmp_path, "net.csv", LINKS)
    with raises(InvalidInput, code):
        instance(links, demand_file=write(tmp_path, "matrix.csv", text))


@pytest.mark.parametrize(
    ("name", "text"),
    [("paths.csv", PATHS), ("paths.json", '[["A","C"],["A","B","C"],["B","A"]]')],
)
def test_given_paths_are_used_as_they_are(tmp_path: Path, name: str, text: str) -> None:
    links = write(tmp_path, "net.csv", LINKS)
    demands = write(tmp_path, "demands.csv", DEMANDS)
    made = instance(links, demand_file=demands, path_file=write(tmp_path, name, text))
    assert made.paths == [("A", "C"), ("A", "B", "C"), ("B", "A")]  # not by length
    np.testing.assert_array_equal(made.path_demand, [0, 0, 1])
    np.testing.assert_array_equal(made.path_length, [3, 2, 1])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("source,target,path\nA,C,A;C\n", "infeasible"),
        (PATHS + "A,C,A;B;C\n", "duplicate"),
        (PATHS + "A,C,A;Bonn;C\n", "unknown-name"),
        (PATHS + "A,B,A;C\n", "conflict"),
        (PATHS + "A,A,A;B;A\n", "duplicate"),
        ("source,target,path\n", "empty"),
        ("source,target\nA,B\n", "bad-file"),
    ],
)
def test_bad_paths_are_refused(tmp_path: Path, text: str, code: str) -> None:
    links = write(tmp_path, "net.csv", LINKS)
    demands = write(tmp_path, "demands.csv", DEMANDS)
    with raises(InvalidInput, code):
        instance(links, demand_file=demands, path_file=write(tmp_path, "paths.csv", text))


def test_paths_need_links(tmp_path: Path) -> None:
    one_way = "source,target,capacity,both\nA,B,10,no\nB,C,10,no\nB,A,10,no\n"
    links = write(tmp_path, "net.csv", one_way)
    demands = write(tmp_path, "demands.csv", "source,target,volume\nA,C,4\n")
    paths = write(tmp_path, "paths.json", '[["A","C"]]')
    with raises(InvalidInput, "unknown-name"):
        instance(links, demand_file=demands, path_file=paths)
