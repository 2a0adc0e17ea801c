"""Graphs of networkx, GraphML files and node-link JSON files, turned into a `Network`.

All three become one `Graph` first. Its edges must carry `capacity`, or `LinkSpeedRaw` as in the
Topology Zoo, and may carry `length` (all of them or none; else from the nodes' coordinates, else
1) and `delay`, in milliseconds (all or none). An undirected edge can be used in both directions,
each with the full capacity; parallel edges add up. Demands come from the attribute `demands` of the
graph, {source: {target: volume}}, or from a demand file. Other attributes are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.network import (
    Network,
    NetworkBuilder,
    Position,
    link_name,
    parse_number,
    show_value,
)
from cg4ai.routing.network.parsing import Element, LocatedObject, parse_json, parse_xml

NAMES = ("name", "label")  # attributes that say what a node is called
COORDINATES = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("x", "y"))
CAPACITY, ZOO_CAPACITY = "capacity", "LinkSpeedRaw"  # the second is the Topology Zoo's, in bit/s
FIGURES = (CAPACITY, ZOO_CAPACITY, "length", "delay")  # of edges
SHOWN = 5  # names that a note shows


class Node(NamedTuple):
    """`key` is what edges and demands call it."""

    key: str
    attributes: Mapping[str, Any]
    place: str


class Edge(NamedTuple):
    """An edge between the nodes of two keys."""

    source: str
    target: str
    attributes: Mapping[str, Any]
    place: str
    both_ways: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """What a file or a networkx graph says, before it is checked; `place` is the file."""

    name: str
    nodes: list[Node]
    edges: list[Edge]
    demands: Any
    place: str


def read_graphml(path: Path) -> Network:
    """A GraphML file with one graph."""
    return build_network(parse_graphml(path))


def parse_graphml(path: Path, *, checked: bool = True) -> Graph:
    """What a GraphML file with one graph says; `checked`: figures of edges are numbers."""
    root = parse_xml(path)
    if root.tag != "graphml":
        raise InvalidInput(f"{root.place}: expected <graphml>, got <{root.tag}>", code="bad-file")
    keys = {key.get_identifier(): key for key in root.find_all("key")}
    graph = root.find_one("graph")
    directed = graph.attributes.get("edgedefault") == "directed"
    nodes = [
        Node(
            node.get_identifier(),
            _data(node, keys, "node", f"node {node.get_identifier()}"),
            node.place,
        )
        for node in graph.find_all("node")
    ]
    edges = []
    for edge in graph.find_all("edge"):
        source, target = edge.get_attribute("source"), edge.get_attribute("target")
        data = _data(edge, keys, "edge", f"edge {source}-{target}", checked=checked)
        one_way = edge.attributes.get("directed", str(directed)).lower() == "true"
        edges.append(Edge(source, target, data, edge.place, not one_way))
    demands = _data(graph, keys, "graph", "graph").get("demands")
    return Graph(path.stem, nodes, edges, demands, str(path))


def _data(
    element: Element, keys: dict[str, Element], kind: str, what: str, *, checked: bool = False
) -> dict[str, Any]:
    """The values of an element by the names of their keys, defaults included."""
    values: dict[str, Any] = {}
    for key in keys.values():
        if key.attributes.get("for", "all") in (kind, "all"):
            for default in key.find_all("default"):
                values[key.attributes.get("attr.name", key.get_identifier())] = default.text.strip()
    for data in element.find_all("data"):
        identifier = data.get_attribute("key")
        if identifier not in keys:
            raise InvalidInput(
                f"{data.place}, {what}: <data> names the unknown key {show_value(identifier)}"
                f"{did_you_mean(identifier, keys)}; declare it with <key>",
                code="unknown-name",
            )
        name = keys[identifier].attributes.get("attr.name", identifier)
        values[name] = data.text.strip()
        if checked and name in FIGURES:  # here, where the line is known
            parse_number(values[name], what=name, place=f"{data.place}, {what}", least=0)
    return values


def read_json(path: Path) -> Network:
    """A JSON file in networkx's node-link form, its edges under `edges` or `links`."""
    return build_network(node_link(path))


def node_link(path: Path) -> Graph:
    """What a JSON file in networkx's node-link form says."""
    content = parse_json(path)
    if not isinstance(content, LocatedObject) or not {"edges", "links"} & content.keys():
        raise InvalidInput(
            f"{path}, line 1: expected networkx's node-link form with 'nodes' and 'edges'",
            code="bad-file",
        )
    about = content.get("graph", {})
    if not isinstance(about, dict):
        raise InvalidInput(
            f"{path}, line {content.line}: 'graph' must be an object of attributes such as "
            f"'demands', got {show_value(about)}",
            code="bad-file",
        )
    both_ways = not content.get("directed", False)
    nodes = [
        # without an id, networkx numbers them
        Node(_text(entry.get("id", rank)), entry, f"{path}, line {entry.line}")
        for rank, entry in enumerate(_entries(content, "nodes", (), path))
    ]
    edges = [
        Edge(
            _text(entry["source"]),
            _text(entry["target"]),
            entry,
            f"{path}, line {entry.line}",
            both_ways,
        )
        for entry in _entries(
            content, "edges" if "edges" in content else "links", ("source", "target"), path
        )
    ]
    return Graph(path.stem, nodes, edges, about.get("demands"), str(path))


def _entries(
    content: LocatedObject, kind: str, needed: tuple[str, ...], path: Path
) -> list[LocatedObject]:
    """The objects listed under `kind`, each with the `needed` names."""
    entries = content.get(kind)
    if not isinstance(entries, list):
        raise InvalidInput(
            f"{path}, line {content.line}: {kind!r} must be a list of objects", code="bad-file"
        )
    for rank, entry in enumerate(entries, start=1):
        if not isinstance(entry, LocatedObject):
            raise InvalidInput(
                f"{path}: entry {rank} of {kind!r} must be an object, got {show_value(entry)}",
                code="bad-file",
            )
        for name in needed:
            if name not in entry:
                raise InvalidInput(
                    f"{path}, line {entry.line}: entry {rank} of {kind!r} has no {name!r}, as "
                    "networkx's node-link form asks for",
                    code="bad-file",
                )
    return entries


def _text(node: object) -> str:
    """A node of a JSON file by the name that networkx gives it: lists become tuples there."""
    return str(tuple(node)) if isinstance(node, list) else str(node)


def from_graph(graph: Any) -> Network:
    """A networkx graph of any kind."""
    return build_network(graph_of(graph))


def graph_of(graph: Any, place: str = "the graph") -> Graph:
    """What a networkx graph says."""
    nodes = [Node(str(node), data, place) for node, data in graph.nodes(data=True)]
    edges = [
        Edge(str(source), str(target), data, place, not graph.is_directed())
        for source, target, data in graph.edges(data=True)
    ]
    name = str(graph.graph.get("name") or "graph")
    return Graph(name, nodes, edges, graph.graph.get("demands"), place)


def build_network(graph: Graph) -> Network:
    """The network of a graph; `name_nodes` says what its nodes are called."""
    names, notes = [str(node.attributes.get("name") or node.key) for node in graph.nodes], []
    unnamed = not any(node.attributes.get("name") for node in graph.nodes)
    if unnamed or len(set(names)) < len(names):
        names = name_nodes(graph.nodes)
        notes += _unusable_names(graph.nodes, names)
    builder, label = NetworkBuilder(graph.name), dict[str, str]()
    for node, name in zip(graph.nodes, names, strict=True):
        place = f"{node.place}, node {show_value(name, quoted=False)}"
        builder.add_node(name, place=place, position=find_position(node, place))
        label[node.key] = name
    capacity = find_capacity_name(graph.edges)
    if capacity == ZOO_CAPACITY:
        notes.append(f"capacities are {ZOO_CAPACITY}, in bit/s: state demands in the same unit")
    elif graph.edges and capacity is None:
        _refuse_without_capacity(graph)
    has_length, has_delay = (
        any(name in edge.attributes for edge in graph.edges) for name in ("length", "delay")
    )
    for edge in graph.edges:
        ends = [_label(key, label, edge.place) for key in (edge.source, edge.target)]
        place = f"{edge.place}, edge {show_value(link_name(ends), quoted=False)}"
        builder.add_link(
            *ends,
            capacity=_attribute(edge, capacity or CAPACITY, place),
            length=_attribute(edge, "length", place) if has_length else None,
            delay=_attribute(edge, "delay", place) if has_delay else None,
            place=place,
            both_ways=edge.both_ways,
        )
    add_demands(builder, graph.demands, label, graph.place)
    placed = sum(position is not None for position in builder.positions.values())
    if 0 < placed < len(names) and not has_length:
        notes.append(
            f"{len(names) - placed} of {len(names)} nodes have no coordinates and links have no "
            "length: every link counts 1"
        )
    built = builder.build(place=graph.place)
    return replace(built, notes=(*notes, *built.notes))


def name_nodes(nodes: Sequence[Node]) -> list[str]:
    """What nodes are called, if all of that differ; else their keys."""
    for attribute in NAMES:
        named = _given_names(nodes, attribute)
        if all(named) and len(set(named)) == len(named):
            return named
    return [node.key for node in nodes]


def _given_names(nodes: Sequence[Node], attribute: str) -> list[str]:
    return [str(value_of(node.attributes, attribute) or "").strip() for node in nodes]


def _unusable_names(nodes: Sequence[Node], names: list[str]) -> list[str]:
    """A note where nodes have labels of which some are missing or equal."""
    for attribute in NAMES:
        given = _given_names(nodes, attribute)
        if any(given) and names == [node.key for node in nodes] != given:
            twice = dict.fromkeys(one for one in given if one and given.count(one) > 1)
            why = [f"{given.count('')} of {len(given)} have none"] * ("" in given)
            why += [f"several are called {', '.join(list(twice)[:SHOWN])}"] * bool(twice)
            return [
                f"nodes are called by their ids and not by {attribute}: "
                f"{show_value(' and '.join(why), quoted=False)}"
            ]
    return []


def find_position(node: Node, place: str) -> Position | None:
    """The coordinates of a node, (longitude, latitude) or of a drawing."""
    given = value_of(node.attributes, "pos")
    if given is not None and (not isinstance(given, list | tuple) or len(given) < 2):
        raise InvalidInput(
            f"{place}: pos must be two coordinates, got {show_value(given)}", code="bad-file"
        )
    pairs = [] if given is None else [given]
    pairs += [[value_of(node.attributes, axis) for axis in axes] for axes in COORDINATES]
    for pair in pairs:
        if all(part is not None for part in pair[:2]):
            x, y = (parse_number(part, what="a coordinate", place=place) for part in pair[:2])
            return x, y
    return None


def find_capacity_name(edges: Sequence[Edge]) -> str | None:
    """The attribute that holds capacities; None where no edge has one."""
    for name in (CAPACITY, ZOO_CAPACITY):
        if any(name in edge.attributes for edge in edges):
            return name
    return None


def _refuse_without_capacity(graph: Graph) -> NoReturn:
    """Say what edges have instead of capacities."""
    ends = {"source", "target", "key"}  # what says where an edge of a JSON file goes
    found = sorted({str(name) for edge in graph.edges for name in edge.attributes} - ends)
    advice = "give each edge its 'capacity'"
    if found:
        names = ", ".join(show_value(name) for name in found[:10])
        advice = f"the attributes found are {names}: rename the one that holds it to 'capacity'"
    raise InvalidInput(
        f"{graph.place}: no edge has the attribute 'capacity'; {advice}, or convert the file with "
        "cg4ai new-network, which gives all of them --default-capacity or reads --capacity NAME",
        code="bad-file",
    )


def value_of(attributes: Mapping[str, Any], name: str) -> Any:
    """An attribute by its name, whatever the case of its letters; None where it is not there."""
    found = [value for key, value in attributes.items() if str(key).lower() == name.lower()]
    return found[0] if found and found[0] not in ("", None) else None


def _label(key: str, label: dict[str, str], place: str) -> str:
    if key not in label:
        raise InvalidInput(
            f"{place}: an edge names the unknown node {show_value(key)}{did_you_mean(key, label)}; "
            "list it among the nodes",
            code="unknown-name",
        )
    return label[key]


def _attribute(edge: Edge, name: str, place: str) -> float:
    if name not in edge.attributes:
        raise InvalidInput(
            f"{place}: has no {name} while others do; give it to all edges"
            + (
                ", or the others a --default-capacity by cg4ai new-network"
                * (name in (CAPACITY, ZOO_CAPACITY))
            ),
            code="bad-file",
        )
    return parse_number(edge.attributes[name], what=name, place=place, least=0)


def add_demands(builder: NetworkBuilder, demands: Any, label: dict[str, str], place: str) -> None:
    """Those of a graph's attribute; `label` says what nodes of these keys are called."""
    if demands is None:
        return
    if not isinstance(demands, Mapping) or not all(
        isinstance(row, Mapping) for row in demands.values()
    ):
        raise InvalidInput(
            f"{place}: 'demands' must be {{source: {{target: volume}}}}, got "
            f"{show_value(demands)}; "
            "where the format has no such thing, use a demand file",
            code="bad-file",
        )
    for source, row in demands.items():
        at = f"{place}, line {row.line}" if isinstance(row, LocatedObject) else place
        for target, amount in row.items():
            ends = [label.get(str(node), str(node)) for node in (source, target)]
            where = f"{at}, demand {show_value('->'.join(ends), quoted=False)}"
            volume = parse_number(amount, what="volume", place=where, least=0)
            builder.add_demand(*ends, volume=volume, place=where)
