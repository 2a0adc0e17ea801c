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

from cg4ai.apps.routing.network import Network, NetworkBuilder, Position, number
from cg4ai.apps.routing.places import (
    LocatedObject,
    Places,
    graphml_places,
    json_places,
    load_located,
)
from cg4ai.apps.routing.readers import parse_xml, read_text
from cg4ai.errors import InvalidInput
from cg4ai.extras import optional


def read_graphml(path: Path) -> Network:
    """A GraphML file; its own text must be well-formed XML."""
    networkx = optional("networkx")
    places = graphml_places(parse_xml(path), str(path))
    try:
        graph = networkx.parse_graphml(read_text(path))
    except (networkx.NetworkXException, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path}: not readable as GraphML ({error})") from error
    return from_graph(graph, name=path.stem, places=places)


def read_json(path: Path) -> Network:
    """A JSON file in networkx's node-link form, its edges under `edges` or `links`."""
    networkx = optional("networkx")
    try:
        content = load_located(read_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from None
    if not isinstance(content, LocatedObject) or not {"edges", "links"} & content.keys():
        raise InvalidInput(
            f"{path}, line 1: expected networkx's node-link form with 'nodes' and 'edges'"
        )
    key = "edges" if "edges" in content else "links"
    places = json_places(content, key, path)
    try:
        graph = networkx.node_link_graph(content, edges=key)
    except (networkx.NetworkXException, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: not in networkx's node-link form ({error!r})") from error
    return from_graph(graph, name=path.stem, places=places)


def from_graph(graph: Any, *, name: str = "", places: Places | None = None) -> Network:
    """A networkx graph of any kind; a node is called by its `name`, if all differ, or itself.

    `places` says where a file has what, for errors.
    """
    places = places or Places("the graph")
    label = _labels(graph)
    builder = NetworkBuilder(name or str(graph.graph.get("name") or "graph"))
    for node, text in label.items():
        where = places.node(node, text)
        position = _position(graph.nodes[node].get("pos"), where)
        builder.node(text, place=where, position=position)
    edges = list(graph.edges(data=True))
    wheres = places.edges(graph, label)
    capacities = _attribute(edges, "capacity", wheres)
    lengths = _attribute(edges, "length", wheres)
    for rank, (source, target, _) in enumerate(edges):
        builder.link(
            label[source],
            label[target],
            capacity=1.0 if capacities is None else capacities[rank],
            length=None if lengths is None else lengths[rank],
            place=wheres[rank],
            both_ways=not graph.is_directed(),
        )
    _add_demands(builder, graph.graph.get("demands"), label, places.file)
    return builder.build(place=places.file)


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


def _attribute(edges: list[Any], attribute: str, wheres: list[str]) -> list[float] | None:
    """The attribute of every edge, or None where no edge has it."""
    if not any(attribute in data for _, _, data in edges):
        return None
    values = []
    for (_, _, data), where in zip(edges, wheres, strict=True):
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
        at = f"{place}, line {row.line}" if isinstance(row, LocatedObject) else place
        for target, amount in row.items():
            where = f"{at}, demand {source}->{target}"
            volume = number(amount, what="volume", place=where, least=0)
            ends = (str(names.get(node, node)) for node in (source, target))
            builder.demand(*ends, volume=volume, place=where)
