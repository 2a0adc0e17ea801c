"""Where edges and nodes stand in GraphML and JSON files: networkx forgets, errors should not.

Both functions check what networkx would pass over or refuse without saying where.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cg4ai.apps.routing.network import number
from cg4ai.apps.routing.readers import Element
from cg4ai.errors import InvalidInput, did_you_mean

TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\n]')
NUMERIC = ("int", "integer", "long", "float", "double")


class Places:
    """Where each node and edge was read; the ends of an edge are known by their text."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._nodes: dict[str, str] = {}
        self._edges: list[tuple[tuple[str, str], str]] = []

    def add_node(self, node: object, place: str) -> None:
        self._nodes[str(node)] = place

    def add_edge(self, source: object, target: object, place: str) -> None:
        ends = str(source), str(target)
        for name in ends:
            if name not in self._nodes:
                raise InvalidInput(
                    f"{place}: an edge names the unknown node {name!r}"
                    f"{did_you_mean(name, self._nodes)}; list it among the nodes"
                )
        self._edges.append((ends, place))

    def node(self, node: object, label: str) -> str:
        return f"{self._nodes.get(str(node), self.file)}, node {label}"

    def edges(self, graph: Any, label: dict[Any, str]) -> list[str]:
        """The place of each of `graph.edges`; parallel ones come in the order of the file."""

        def pair(source: object, target: object) -> tuple[str, ...]:
            ends = str(source), str(target)
            return ends if graph.is_directed() else tuple(sorted(ends))

        left: dict[tuple[str, ...], list[str]] = {}
        for ends, place in self._edges:
            left.setdefault(pair(*ends), []).append(place)
        found = []
        for source, target in graph.edges():
            queue = left.get(pair(source, target)) or [self.file]
            found.append(f"{queue.pop(0)}, edge {label[source]}-{label[target]}")
        return found


def graphml_places(root: Element, file: str) -> Places:
    """The places in a GraphML document, whose keys, numbers and ends of edges are checked."""
    if root.tag != "graphml":
        raise InvalidInput(f"{root.place}: expected <graphml>, got <{root.tag}>")
    places = Places(file)
    keys = {key.identifier(): key for key in root.all("key")}
    for graph in root.all("graph"):
        for node in graph.all("node"):
            places.add_node(node.identifier(), node.place)
            _check_data(node, keys, f"node {node.identifier()}")
        for edge in graph.all("edge"):
            source, target = edge.attribute("source"), edge.attribute("target")
            places.add_edge(source, target, edge.place)
            _check_data(edge, keys, f"edge {source}-{target}")
    return places


def _check_data(element: Element, keys: dict[str, Element], what: str) -> None:
    for data in element.all("data"):
        name = data.attribute("key")
        if name not in keys:
            raise InvalidInput(
                f"{data.place}, {what}: <data> names the unknown key {name!r}"
                f"{did_you_mean(name, keys)}; declare it with <key>"
            )
        about = keys[name].attributes
        if about.get("attr.type") in NUMERIC:
            number(
                data.text.strip(), what=about.get("attr.name", name), place=f"{data.place}, {what}"
            )


class LocatedObject(dict[str, Any]):
    """A JSON object that remembers the line it starts on."""

    def __init__(self, pairs: list[tuple[str, Any]], line: int) -> None:
        super().__init__(pairs)
        self.line = line


def load_located(text: str) -> Any:
    """`json.loads` whose objects are `LocatedObject`s."""
    lines = _lines_of_objects(text)
    return json.loads(text, object_pairs_hook=lambda pairs: LocatedObject(pairs, next(lines)))


def _lines_of_objects(text: str) -> Iterator[int]:
    """The line on which each object opens, in the order in which they close, as JSON is read."""
    line, opened = 1, list[int]()
    for token in TOKENS.finditer(text):
        if token[0] == "\n":
            line += 1
        elif token[0] == "{":
            opened.append(line)
        elif token[0] == "}":
            yield opened.pop()


def json_places(content: LocatedObject, key: str, path: Path) -> Places:
    """The places in a node-link document with its edges under `key`, whose entries are checked."""
    places = Places(str(path))
    for kind, needed in (("nodes", ()), (key, ("source", "target"))):
        if not isinstance(content.get(kind), list):
            raise InvalidInput(f"{path}, line {content.line}: {kind!r} must be a list of objects")
        for rank, entry in enumerate(content[kind], start=1):
            if not isinstance(entry, LocatedObject):
                raise InvalidInput(
                    f"{path}: entry {rank} of {kind!r} must be an object, got {entry!r}"
                )
            place = f"{path}, line {entry.line}"
            for name in needed:
                if name not in entry:
                    raise InvalidInput(
                        f"{place}: entry {rank} of {kind!r} has no {name!r}, as networkx's "
                        "node-link form asks for"
                    )
            if kind == "nodes":  # without an id, networkx numbers them
                places.add_node(_hashable(entry.get("id", rank - 1)), place)
            else:
                places.add_edge(_hashable(entry["source"]), _hashable(entry["target"]), place)
    return places


def _hashable(node: object) -> object:
    """A node as networkx keeps it: lists cannot be keys."""
    return tuple(node) if isinstance(node, list) else node
