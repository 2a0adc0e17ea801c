"""REPETITA's text files: `.graph` with nodes and links, `.demands` with a matrix of volumes.

Both are sections: a line `NODES 8`, a line with the names of the columns, and as many lines of
values. Links are directed and name their ends by position; `weight` is what shortest paths are
measured by, `bw` the capacity, `delay` microseconds, which become milliseconds. A demand names its
nodes by their position in the network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput
from cg4ai.routing.network.graphs import Edge, Graph, Node, build_network
from cg4ai.routing.network.network import Network, parse_number, show_value
from cg4ai.routing.network.parsing import read_text

DEMANDS = ".demands"
MICROSECONDS = 1000.0  # of a millisecond
NODE_COLUMNS = ("label", "x", "y")
ASIDE, TURN = 0.04, 2.4  # of a network's extent, radians: where nodes of no known place are drawn
EDGE_COLUMNS = ("label", "src", "dest", "weight", "bw", "delay")
DEMAND_COLUMNS = ("label", "src", "dest", "bw")


@dataclass(frozen=True, slots=True)
class Row:
    """The values of a line by the names of its columns."""

    values: dict[str, str]
    place: str


def read_repetita(path: Path) -> Network:
    """The network of a `.graph` file, without demands."""
    return build_network(parse_repetita(path))


def parse_repetita(path: Path) -> Graph:
    """What a `.graph` file says."""
    lines = _Lines(path)
    nodes = lines.read_section("NODES", NODE_COLUMNS)
    names = [row.values["label"] for row in nodes]
    edges = []
    for row in lines.read_section("EDGES", EDGE_COLUMNS):
        source, target = (read_place(row, end, names) for end in ("src", "dest"))
        capacity, length, delay = (
            parse_number(row.values[column], what=column, place=row.place, least=0)
            for column in ("bw", "weight", "delay")
        )
        attributes = {"capacity": capacity, "length": length, "delay": delay / MICROSECONDS}
        edges.append(Edge(str(source), str(target), attributes, row.place, both_ways=False))
    lines.end()
    places = _fill_places([(row.values["x"], row.values["y"]) for row in nodes], edges)
    made = [
        Node(str(key), {"name": row.values["label"], "pos": place}, row.place)
        for key, (row, place) in enumerate(zip(nodes, places, strict=True))
    ]
    return Graph(path.stem, made, edges, None, str(path))


def _fill_places(texts: Sequence[tuple[str, str]], edges: Sequence[Edge]) -> list[Any]:
    """Nodes at (0, 0) are those whose place nobody knew: in pictures they lie near neighbours."""
    try:
        places = np.array(texts, np.float64).reshape(-1, 2)
    except ValueError:
        return list(texts)  # refused where positions are read
    known: NDArray[np.bool_] = np.asarray(places.any(axis=1))
    missing = np.flatnonzero(~known)
    if not known.any() or not len(missing) or not np.isfinite(places).all():
        return list(texts)
    linked: list[set[int]] = [set() for _ in texts]
    for edge in edges:
        source, target = int(edge.source), int(edge.target)
        linked[source].add(target)
        linked[target].add(source)
    middle = places[known].mean(axis=0)
    away = ASIDE * float(np.ptp(places[known], axis=0).max())
    order = sorted(missing.tolist(), key=lambda key: -sum(bool(known[one]) for one in linked[key]))
    for number, key in enumerate(order):
        near = [other for other in linked[key] if known[other]]
        angle = TURN * number
        around = places[near].mean(axis=0) if near else middle
        places[key] = around + away * np.array([math.cos(angle), math.sin(angle)])
        known[key] = True
    return [*places.tolist()]


def read_matrix(path: Path, nodes: Sequence[str]) -> dict[tuple[int, int], float]:
    """Volumes of a `.demands` file by (source, target) position among `nodes`.

    Demands between the same nodes are added, volumes of 0 and those of a node to itself left out.
    """
    lines = _Lines(path)
    volumes: dict[tuple[int, int], float] = {}
    labels = set[str]()
    for row in lines.read_section("DEMANDS", DEMAND_COLUMNS):
        pair = read_place(row, "src", nodes), read_place(row, "dest", nodes)
        volume = parse_number(row.values["bw"], what="bw", place=row.place, least=0)
        if row.values["label"] in labels:
            raise InvalidInput(
                f"{row.place}: the demand {show_value(row.values['label'])} is given twice; "
                "rename or remove one",
                code="duplicate",
            )
        labels.add(row.values["label"])
        if volume > 0 and pair[0] != pair[1]:
            volumes[pair] = volumes.get(pair, 0.0) + volume
    lines.end()
    return volumes


def read_place(row: Row, column: str, nodes: Sequence[str]) -> int:
    """The position of a node that a line names, from 0."""
    text = row.values[column]
    if not text.isdecimal() or len(text) > 9 or int(text) >= len(nodes):
        raise InvalidInput(
            f"{row.place}: {column} must be the position of one of {len(nodes)} nodes, 0 to "
            f"{len(nodes) - 1}, got {show_value(text)}",
            code="unknown-name",
        )
    return int(text)


class _Lines:
    """The lines of a file that are not blank, read from the top."""

    def __init__(self, path: Path) -> None:
        numbered = enumerate(read_text(path).splitlines(), start=1)
        self.path = path
        self.lines = [(number, line.split()) for number, line in numbered if line.strip()]
        self.next = 0

    def read_section(self, name: str, columns: tuple[str, ...]) -> list[Row]:
        """The lines of one section."""
        place, words = self._take(f"'{name} <count>'")
        if len(words) != 2 or words[0] != name or not words[1].isdecimal() or len(words[1]) > 9:
            raise self._unexpected(place, f"'{name} <count>'", words)
        form = f"'{' '.join(columns)}'"
        place, words = self._take(form)
        if tuple(words) != columns:
            raise self._unexpected(place, form, words)
        rows = []
        for _ in range(int(self.lines[self.next - 2][1][1])):
            place, words = self._take(form)
            if len(words) != len(columns):
                raise self._unexpected(place, form, words)
            rows.append(Row(dict(zip(columns, words, strict=True)), place))
        return rows

    def end(self) -> None:
        """Refuse what comes after the last section."""
        if self.next < len(self.lines):
            place, words = self._take("")
            raise self._unexpected(place, "the end of the file, as the counts say", words)

    def _take(self, wanted: str) -> tuple[str, list[str]]:
        if self.next == len(self.lines):
            last = self.lines[-1][0] if self.lines else 1
            raise InvalidInput(
                f"{self.path}, line {last}: the file ends where {wanted} was expected; it may be "
                "cut off",
                code="bad-file",
            )
        number, words = self.lines[self.next]
        self.next += 1
        return f"{self.path}, line {number}", words

    def _unexpected(self, place: str, wanted: str, words: list[str]) -> InvalidInput:
        return InvalidInput(
            f"{place}: expected {wanted}, got {show_value(' '.join(words))}", code="bad-file"
        )
