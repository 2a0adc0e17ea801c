"""Failures of links: which there are, by name or file, and what an instance is without its links.

A link fails in both directions. Paths over it vanish; demands, their set and the capacities of all
other links stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.network import shown
from cg4ai.apps.routing.places import parse_json
from cg4ai.apps.routing.readers import csv_records
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import IntArray

SINGLE = "single"  # every link that some path uses, one at a time
FILES = (".csv", ".json")

Link = tuple[str, str]  # its two ends, in alphabetical order


@dataclass(frozen=True, slots=True)
class Failure:
    """Links that are down together, and what that is called."""

    name: str
    links: tuple[Link, ...]

    @classmethod
    def of(cls, links: Iterable[Link], name: str = "") -> Failure:
        """With its links in order, named by them where no name is given."""
        ordered = tuple(sorted({link_of(*link) for link in links}))
        return cls(name or ",".join("-".join(link) for link in ordered), ordered)


@dataclass(frozen=True, eq=False)
class Reduced:
    """What a failure leaves: `paths` and `arcs` are positions in the whole instance.

    `lost` are the demands that have no path any more; `instance` is None where there are any.
    """

    instance: Instance | None
    paths: IntArray
    arcs: IntArray
    lost: tuple[int, ...]


def link_of(one: str, other: str) -> Link:
    """The link between two nodes."""
    return (one, other) if one <= other else (other, one)


def links_of(instance: Instance) -> list[Link]:
    """The links that some path uses, in either direction."""
    return sorted({link_of(*arc) for arc in instance.arcs})


def reduced(instance: Instance, failure: Failure) -> Reduced:
    """The instance without the paths over the links that are down."""
    down = np.array([link_of(*arc) in failure.links for arc in instance.arcs])
    paths = np.flatnonzero(instance.incidence[:, down].sum(axis=1) == 0)
    arcs = np.flatnonzero(instance.incidence[paths].sum(axis=0) > 0)
    left = set(instance.path_demand[paths].tolist())
    lost = tuple(demand for demand in range(len(instance.demand_max)) if demand not in left)
    if lost:
        return Reduced(None, paths, arcs, lost)
    made = replace(
        instance,
        name=f"{instance.name} without {failure.name}",
        arcs=[instance.arcs[arc] for arc in arcs],
        capacity=instance.capacity[arcs],
        incidence=instance.incidence[np.ix_(paths, arcs)],
        path_demand=instance.path_demand[paths],
        path_length=instance.path_length[paths],
        paths=[instance.paths[path] for path in paths],
        notes=(),
    )
    return Reduced(made, paths, arcs, ())


# ---- which failures ------------------------------------------------------------------------------


def failures_of(text: str | Path, instance: Instance) -> list[Failure]:
    """The failures that an option names.

    `single`: every link that some path uses, one at a time. A .csv: source,target, each line a link
    that fails alone, or with a column failure, whose lines of one name fail together. A .json: a
    list of groups of links, or an object of such groups by name, in which a link is "A-B" or
    ["A", "B"]. Else links such as A-B, several that fail together by commas, groups by semicolons.
    """
    text = str(text)
    if text.strip() == SINGLE:
        return [Failure.of([link]) for link in links_of(instance)]
    if Path(text).suffix.lower() in FILES:
        found = list(_read(Path(text), instance))
    else:
        found = [failure_of(part, instance) for part in text.split(";") if part.strip()]
    if not found:
        raise InvalidInput(
            f"{shown(text)} names no failure; give {SINGLE}, links such as A-B,C-D, or a file "
            "ending in .csv or .json"
        )
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{shown(text)}: the failure {shown(name)} is named twice")
    return found


def failure_of(text: str, instance: Instance) -> Failure:
    """The failure of the links A-B,C-D together."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidInput(f"a failure names links such as A-B,C-D, got {shown(text)}")
    return Failure.of(_link(word, instance, "the failure") for word in words)


def _read(path: Path, instance: Instance) -> Iterator[Failure]:
    if path.suffix.lower() == ".json":
        yield from _from_json(path, parse_json(path), instance)
        return
    groups: dict[str, list[Link]] = {}
    for place, record in csv_records(path, ("source", "target"), ("failure",)):
        link = _checked((record["source"], record["target"]), instance, place)
        groups.setdefault(record.get("failure") or "-".join(link), []).append(link)
    for name, links in groups.items():
        yield Failure.of(links, name)


def _from_json(path: Path, content: Any, instance: Instance) -> Iterator[Failure]:
    named: list[tuple[str, Any]] = []
    if isinstance(content, dict):
        named = list(content.items())
    elif isinstance(content, list):
        named = [("", group) for group in content]
    else:
        raise InvalidInput(f"{path}: expected a list of groups of links, or groups by name")
    for number, (name, group) in enumerate(named, start=1):
        place = f"{path}, failure {shown(name) if name else number}"
        if not isinstance(group, list) or not group:
            raise InvalidInput(
                f'{place}: expected a list of links, each "A-B" or ["A", "B"], got {group!r:.80}'
            )
        yield Failure.of((_json_link(link, instance, place) for link in group), name)


def _json_link(link: Any, instance: Instance, place: str) -> Link:
    if isinstance(link, list) and len(link) == 2:
        return _checked((str(link[0]), str(link[1])), instance, place)
    if isinstance(link, str):
        return _link(link, instance, place)
    raise InvalidInput(f'{place}: a link is "A-B" or ["A", "B"], got {link!r:.80}')


def _link(text: str, instance: Instance, place: str) -> Link:
    """A link written as A-B (or A->B); names of nodes may have hyphens themselves."""
    parts = text.replace("->", "-").split("-")
    nodes = _nodes(instance)
    for cut in range(1, len(parts)):
        ends = "-".join(parts[:cut]).strip(), "-".join(parts[cut:]).strip()
        if nodes.issuperset(ends):
            return _checked(ends, instance, place)
    known = ["-".join(link) for link in links_of(instance)]
    raise InvalidInput(
        f"{place} names the link {shown(text)}, whose ends are no two nodes on paths of "
        f"{instance.name}{did_you_mean(text, known)}; write A-B, with the names of the network"
    )


def _checked(ends: tuple[str, str], instance: Instance, place: str) -> Link:
    nodes = _nodes(instance)
    for end in ends:
        if end not in nodes:
            raise InvalidInput(
                f"{place}: no path of {instance.name} has the node {shown(end)}"
                f"{did_you_mean(end, nodes)}; correct it, or leave the link out: without it "
                "nothing changes"
            )
    if ends[0] == ends[1]:
        raise InvalidInput(f"{place}: a link has two ends, got {shown(ends[0])} twice")
    return link_of(*ends)


def _nodes(instance: Instance) -> set[str]:
    return {node for arc in instance.arcs for node in arc}


def in_words(links: Sequence[Link]) -> str:
    """The links as people name them."""
    return ", ".join("-".join(link) for link in links)
