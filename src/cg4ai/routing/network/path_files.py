"""Paths of the user's own, in place of the shortest ones: read from a file and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.network import Network, show_value
from cg4ai.routing.network.parsing import parse_json
from cg4ai.routing.network.readers import csv_records

Nodes = tuple[int, ...]  # of a path, by their positions in the network


def read_paths(path: Path, network: Network) -> dict[tuple[int, int], list[Nodes]]:
    """Paths by (source, target) position, in the order of the file.

    A CSV with the columns source, target, path, in which the nodes of a path are parted by
    semicolons; or JSON, a list of paths, each a list of nodes.
    """
    index = {name: position for position, name in enumerate(network.nodes)}
    found: dict[tuple[int, int], list[Nodes]] = {}
    for place, names in _listed(path):
        for name in names:
            if name not in index:
                raise InvalidInput(
                    f"{place}: a path names the node {show_value(name)}, which {network.name} "
                    "does not "
                    f"have{did_you_mean(name, index)}; correct it",
                    code="unknown-name",
                )
        nodes = tuple(index[name] for name in names)
        if len(nodes) < 2 or len(set(nodes)) < len(nodes):
            raise InvalidInput(
                f"{place}: the path {_shown(names)} must have two nodes at least and none twice",
                code="duplicate",
            )
        for hop in pairwise(nodes):
            if hop not in network.arcs:
                raise InvalidInput(
                    f"{place}: the path {_shown(names)} goes from {network.nodes[hop[0]]} to "
                    f"{network.nodes[hop[1]]}, but {network.name} has no such link",
                    code="unknown-name",
                )
        own = found.setdefault((nodes[0], nodes[-1]), [])
        if nodes in own:
            raise InvalidInput(
                f"{place}: the path {_shown(names)} is given twice; remove one", code="duplicate"
            )
        own.append(nodes)
    if not found:
        raise InvalidInput(f"{path}: has no paths; give one for each demand at least", code="empty")
    return found


def _listed(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The paths as they are written, each with its place."""
    if path.suffix.lower() == ".json":
        content = parse_json(path)
        fits = isinstance(content, list) and all(isinstance(one, list) for one in content)
        if not fits:
            raise InvalidInput(
                f"{path}: expected a list of paths, each a list of nodes", code="bad-file"
            )
        for rank, nodes in enumerate(content, start=1):
            yield f"{path}, path {rank}", tuple(map(str, nodes))
        return
    for place, one in csv_records(path, ("source", "target", "path"), ()):
        nodes = tuple(name.strip() for name in one["path"].split(";"))
        if (nodes[0], nodes[-1]) != (one["source"], one["target"]):
            raise InvalidInput(
                f"{place}: the path {_shown(nodes)} does not go from "
                f"{show_value(one['source'])} to "
                f"{show_value(one['target'])}; name both ends in it",
                code="conflict",
            )
        yield place, nodes


def _shown(names: Sequence[str]) -> str:
    return show_value(";".join(names), quoted=False)
