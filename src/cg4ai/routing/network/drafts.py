"""A draft of a network: what a file says, checked whole and mended where that is safe.

`cg4ai route` refuses what it does not understand. Here a file of another program's, in which
attributes have other names and links are parallel, becomes one that it reads: names and order
stay, every change is noted, and all that is wrong is said at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from cg4ai.apps import import_optional
from cg4ai.errors import InvalidInput
from cg4ai.routing.network.graphs import (
    Edge,
    Graph,
    Node,
    add_demands,
    find_position,
    graph_of,
    name_nodes,
    node_link,
    parse_graphml,
)
from cg4ai.routing.network.links import (
    Link,
    LinkCollection,
    ReadingOptions,
    format_entry_count,
    list_first,
)
from cg4ai.routing.network.network import (
    Network,
    NetworkBuilder,
    Position,
    is_geographic,
)
from cg4ai.routing.network.readers import csv_records, is_yes
from cg4ai.routing.network.repetita import parse_repetita
from cg4ai.routing.network.sndlib import load_stored

MIXED = 1e4  # capacities further apart than this may be in two units


@dataclass(frozen=True)
class Draft:
    """Nodes in order with their positions, links in order, and what was found on the way.

    `changes` say what was mended, `cautions` what may be wrong.
    """

    name: str
    nodes: dict[str, Position | None]
    links: list[Link]
    demands: Any
    keys: dict[str, str]
    place: str
    changes: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)

    @property
    def is_directed(self) -> bool:
        return not all(link.both_ways for link in self.links)

    @property
    def is_connected(self) -> bool:
        """Whether every node reaches every other."""
        parts = find_components(self)
        return len(parts) == 1 and len(parts[0]) == len(self.nodes)

    def build_network(self) -> Network:
        """As `cg4ai route` will see it, with the demands of the file."""
        builder = NetworkBuilder(self.name)
        for name, position in self.nodes.items():
            builder.add_node(name, place=self.place, position=position)
        for link in self.links:
            builder.add_link(
                link.source,
                link.target,
                capacity=link.capacity,
                length=link.length,
                delay=link.delay,
                both_ways=link.both_ways,
                place=self.place,
            )
        add_demands(builder, self.demands, self.keys, self.place)
        return builder.build(place=self.place)

    def describe_lengths(self) -> str:
        """In words where lengths come from."""
        if self.links[0].length is not None:
            return "as the file has them"
        known = [position for position in self.nodes.values() if position is not None]
        if len(known) < len(self.nodes):
            return "none, so that every link counts 1 and the shortest path has the fewest links"
        return "great circles, in km" if is_geographic(known) else "distances of the coordinates"


def read_draft(path: Path, reading: ReadingOptions) -> Draft:
    """The draft of a file; InvalidInput says all that must be mended by hand."""
    readers: dict[str, Callable[[Path], Graph]] = {
        ".graphml": partial(
            parse_graphml, checked=False
        ),  # what is wrong is said of all links at once
        ".json": node_link,
        ".gml": _gml,
        ".csv": _links,
        ".graph": parse_repetita,
    }
    known = path.suffix.lower() in readers
    if not known and (path.suffix or path.exists()):
        raise InvalidInput(
            f"{path}: expected a file ending in {', '.join(readers)}; SNDlib's own .txt and .xml "
            "are read by cg4ai route as they are",
            code="bad-file",
        )
    try:
        graph = readers[path.suffix.lower()](path) if known else _by_name(path.as_posix())
    except RecursionError:
        raise InvalidInput(f"{path}: nested too deeply for a graph", code="bad-file") from None
    names = name_nodes(graph.nodes)
    nodes = {
        name: find_position(node, f"{node.place}, node {name}")
        for name, node in zip(names, graph.nodes, strict=True)
    }
    keys = dict(zip((node.key for node in graph.nodes), names, strict=True))
    placed = all(position is not None for position in nodes.values())
    collected = LinkCollection(graph, keys, reading, placed)
    links = collected.collect()
    draft = Draft(graph.name, nodes, links, graph.demands, keys, graph.place, collected.changes)
    draft.cautions.extend(_cautions(draft))
    return draft


def _by_name(name: str) -> Graph:
    """A network of topohub, most of which have neither capacities nor demands."""
    content = load_stored(name)
    about = content.get("graph", {})
    nodes = [Node(str(node["id"]), node, name) for node in content["nodes"]]
    edges = [
        Edge(str(edge["source"]), str(edge["target"]), edge, name, not content["directed"])
        for edge in content["edges"]
    ]
    return Graph(name.rpartition("/")[2], nodes, edges, about.get("demands"), name)


def _gml(path: Path) -> Graph:
    networkx = import_optional("networkx")
    found: list[str] = []
    for label in ("label", "id"):  # labels may stand twice, numbers do not
        try:
            return graph_of(networkx.read_gml(path, label=label), str(path))
        except (networkx.NetworkXError, OSError, ValueError) as error:
            found.append(str(error))
    raise InvalidInput(f"{path}: cannot be read as GML ({found[0]})", code="bad-file")


def _links(path: Path) -> Graph:
    """A CSV with the columns source and target, and any others."""
    rows = list(csv_records(path, ("source", "target"), (), other=True))
    names = dict.fromkeys(one[end] for _, one in rows for end in ("source", "target"))
    edges = [
        Edge(one["source"], one["target"], one, place, is_yes(one.get("both", "yes"), place))
        for place, one in rows
    ]
    nodes = [Node(name, {}, str(path)) for name in names]
    return Graph(path.stem, nodes, edges, None, str(path))


# ---- what may be wrong ---------------------------------------------------------------------------


def _cautions(draft: Draft) -> Iterator[str]:
    used = {end for link in draft.links for end in (link.source, link.target)}
    alone = [name for name in draft.nodes if name not in used]
    if alone:
        yield f"{format_entry_count(alone, 'node has', 'nodes have')} no links: {list_first(alone)}"
    parts = find_components(draft)
    if len(parts) > 1:
        how = "in both directions " if draft.is_directed else ""
        yield (
            f"not connected: nodes reach each other {how}within {len(parts)} parts only; the "
            f"smallest is {list_first(min(parts, key=len))}"
        )
    by_size = sorted(draft.links, key=lambda link: link.capacity)
    least, most = by_size[0], by_size[-1]
    if most.capacity > MIXED * least.capacity:
        yield (
            f"capacities reach from {least.capacity:g} ({least}) to {most.capacity:g} ({most}): "
            "are all of them in one unit?"
        )
    lacking = [name for name, position in draft.nodes.items() if position is None]
    if lacking and len(lacking) < len(draft.nodes):
        yield (
            f"{format_entry_count(lacking, 'node has', 'nodes have')} no coordinates: "
            f"{list_first(lacking)}; those "
            "of the others are of no use then"
        )


def find_components(draft: Draft) -> list[list[str]]:
    """The nodes that reach each other, of those that have links."""
    used = {end for link in draft.links for end in (link.source, link.target)}
    names = [name for name in draft.nodes if name in used]
    place = {name: number for number, name in enumerate(names)}
    ends = [(place[link.source], place[link.target]) for link in draft.links]
    rows, columns = np.array(ends, np.int64).T
    graph = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(names)))
    count, which = connected_components(graph, draft.is_directed, "strong")
    return [[names[k] for k in np.flatnonzero(which == part)] for part in range(count)]


# ---- writing -------------------------------------------------------------------------------------


def node_link_text(draft: Draft, volumes: Mapping[tuple[str, str], float]) -> str:
    """JSON in networkx's node-link form, a line for each node, link and source of demands."""
    nodes = [
        {"id": name} | ({} if position is None else {"pos": list(position)})
        for name, position in draft.nodes.items()
    ]
    links = [
        {"source": link.source, "target": link.target, "capacity": link.capacity}
        | ({} if link.length is None else {"length": link.length})
        | ({} if link.delay is None else {"delay": link.delay})
        for link in draft.links
    ]
    rows: dict[str, dict[str, float]] = {}
    for (source, target), volume in volumes.items():
        rows.setdefault(source, {})[target] = volume
    demands = [f"{_json(source)}: {_json(row)}" for source, row in rows.items()]
    return (
        f'{{\n"directed": {_json(draft.is_directed)},\n"multigraph": false,\n'
        f'"graph": {{"name": {_json(draft.name)}, "demands": {{{_lines(demands)}}}}},\n'
        f'"nodes": [{_lines(map(_json, nodes))}],\n"edges": [{_lines(map(_json, links))}]\n}}\n'
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(entries: Iterable[str]) -> str:
    listed = list(entries)
    return "\n  " + ",\n  ".join(listed) + "\n" if listed else ""
