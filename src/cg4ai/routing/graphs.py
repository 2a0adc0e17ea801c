"""Graphs of networkx and the files it reads (GraphML, node-link JSON), turned into a `Network`.

Edges may carry `capacity` (all of them or none: then one unit each) and `length` (likewise; else
from the nodes' `pos`, else 1). An undirected edge can be used in both directions, each with the
full capacity. Demands come from the graph attribute `demands`, {source: {target: volume}}, or
from a demand file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from cg4ai.errors import InvalidInput
from cg4ai.routing.network import Network, NetworkBuilder, Position, number
from cg4ai.routing.readers import read_text


def read_graphml(path: Path) -> Network:
    """A GraphML file; its own text must be well-formed XML."""
    import networkx

    text = read_text(path)
    try:
        graph = networkx.parse_graphml(text)
    except ParseError as error:
        line, _ = error.position
        raise InvalidInput(f"{path}, line {line}: not well-formed XML; repair the file") from None
    except (networkx.NetworkXException, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path}: not readable as GraphML ({error})") from error
    return from_graph(graph, name=path.stem, place=str(path))


def read_json(path: Path) -> Network:
    """A JSON file in networkx's node-link form, its edges under `edges` or `links`."""
    import networkx

    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    if not isinstance(content, dict) or not {"edges", "links"} & content.keys():
        raise InvalidInput(f"{path}: expected networkx's node-link form with 'nodes' and 'edges'")
    try:
        graph = networkx.node_link_graph(content, edges="edges" if "edges" in content else "links")
    except (networkx.NetworkXException, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: not in networkx's node-link form ({error!r})") from error
    return from_graph(graph, name=path.stem, place=str(path))


def from_graph(graph: Any, *, name: str = "", place: str = "the graph") -> Network:
    """A networkx graph of any kind; a node is called by its `name`, if all differ, or itself."""
    label = _labels(graph)
    builder = NetworkBuilder(name or str(graph.graph.get("name") or "graph"))
    for node, text in label.items():
        position = _position(graph.nodes[node].get("pos"), f"{place}, node {text}")
        builder.node(text, place=place, position=position)
    edges = list(graph.edges(data=True))
    capacities = _attribute(edges, "capacity", label, place)
    lengths = _attribute(edges, "length", label, place)
    for rank, (source, target, _) in enumerate(edges):
        builder.link(
            label[source],
            label[target],
            capacity=1.0 if capacities is None else capacities[rank],
            length=None if lengths is None else lengths[rank],
            place=f"{place}, edge {label[source]}-{label[target]}",
            both_ways=not graph.is_directed(),
        )
    _add_demands(builder, graph.graph.get("demands"), label, place)
    return builder.build(place=place)


def _labels(graph: Any) -> dict[Any, str]:
    names = [str(data.get("name") or node) for node, data in graph.nodes(data=True)]
    if len(set(names)) < len(names):
        names = [str(node) for node in graph]
    return dict(zip(graph, names, strict=True))


def _position(value: Any, place: str) -> Position | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) < 2:
        raise InvalidInput(f"{place}: pos must be two coordinates, got {value!r}")
    x, y = (number(part, what="a coordinate", place=place) for part in value[:2])
    return x, y


def _attribute(
    edges: list[Any], attribute: str, label: dict[Any, str], place: str
) -> list[float] | None:
    """The attribute of every edge, or None where no edge has it."""
    if not any(attribute in data for _, _, data in edges):
        return None
    values = []
    for source, target, data in edges:
        where = f"{place}, edge {label[source]}-{label[target]}"
        if attribute not in data:
            raise InvalidInput(
                f"{where}: has no {attribute} while others do; give it to all edges or to none"
            )
        values.append(number(data[attribute], what=attribute, place=where, least=0))
    return values


def _add_demands(builder: NetworkBuilder, demands: Any, label: dict[Any, str], place: str) -> None:
    if demands is None:
        return
    # In JSON the keys are text even where the nodes are numbers.
    names = {str(node): text for node, text in label.items()} | label
    if not isinstance(demands, Mapping) or not all(
        isinstance(row, Mapping) for row in demands.values()
    ):
        raise InvalidInput(f"{place}: 'demands' must be {{source: {{target: volume}}}}")
    for source, row in demands.items():
        for target, amount in row.items():
            where = f"{place}, demand {source}->{target}"
            volume = number(amount, what="volume", place=where, least=0)
            ends = (str(names.get(node, node)) for node in (source, target))
            builder.demand(*ends, volume=volume, place=where)
