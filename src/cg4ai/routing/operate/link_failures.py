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

from cg4ai.data import IntArray
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.instance import Instance, PathSource
from cg4ai.routing.network.network import link_name, show_value
from cg4ai.routing.network.parsing import parse_json
from cg4ai.routing.network.readers import csv_records

SINGLE = "single"  # every link that some path uses, one at a time
FILES = (".csv", ".json")

Link = tuple[str, str]  # its two ends, in alphabetical order


@dataclass(frozen=True, slots=True)
class Failure:
    """Links that are down together, and what that is called; `fault`: why it cannot be studied."""

    name: str
    links: tuple[Link, ...]
    fault: str = ""

    @classmethod
    def of(cls, links: Iterable[Link], name: str = "") -> Failure:
        """With its links in order, named by them where no name is given."""
        ordered = tuple(sorted({link_of(*link) for link in links}))
        return cls(name or ",".join(map(link_name, ordered)), ordered)


@dataclass(frozen=True, eq=False)
class ReducedInstance:
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


def is_connected(instance: Instance, failure: Failure, demand: int) -> bool:
    """Whether the network, not just its paths, still has a way for the demand."""
    source, target = instance.ends[demand]
    left = _arcs_left(instance, failure) or ()
    seen, new = {source}, {source}
    while new:
        new = {end for start, end in left if start in new} - seen
        seen |= new
    return target in seen


def _arcs_left(instance: Instance, failure: Failure) -> tuple[tuple[str, str], ...] | None:
    """Those of the network without the links that are down; None: not known."""
    if instance.all_arcs is None:
        return None
    return tuple(arc for arc in instance.all_arcs if link_of(*arc) not in failure.links)


def _source_left(instance: Instance, failure: Failure) -> PathSource | None:
    """What is known of the links that are left."""
    if instance.path_source is None or instance.all_arcs is None:
        return None
    left = [link_of(*arc) not in failure.links for arc in instance.all_arcs]
    return instance.path_source.take(np.flatnonzero(left))


def reduce_instance(instance: Instance, failure: Failure) -> ReducedInstance:
    """The instance without the paths over the links that are down."""
    down = np.array([link_of(*arc) in failure.links for arc in instance.arcs])
    paths = np.flatnonzero(instance.incidence[:, down].sum(axis=1) == 0)
    arcs = np.flatnonzero(instance.incidence[paths].sum(axis=0) > 0)
    left = set(instance.path_demand[paths].tolist())
    lost = tuple(demand for demand in range(len(instance.demand_max)) if demand not in left)
    if lost:
        return ReducedInstance(None, paths, arcs, lost)
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
        all_arcs=_arcs_left(instance, failure),
        path_source=_source_left(instance, failure),
    )
    return ReducedInstance(made, paths, arcs, ())


# ---- which failures ------------------------------------------------------------------------------


def failures_of(text: str | Path, instance: Instance) -> list[Failure]:
    """The failures that an option names.

    `single`: every link that some path uses, one at a time. A .csv: source,target, each line a link
    that fails alone, or with a column failure, whose lines of one name fail together. A .json: a
    list of groups of links, or an object of such groups by name, in which a link is "A-B" or
    ["A", "B"]. Else links such as A-B, several that fail together by commas, groups by semicolons.
    A failure that names an unknown link says so in its `fault`; if all do, it is refused.
    """
    text = str(text)
    if text.strip() == SINGLE:
        return [Failure.of([link]) for link in links_of(instance)]
    if Path(text).suffix.lower() in FILES:
        found = list(_read(Path(text), instance))
    else:
        parts = [part.strip() for part in text.split(";") if part.strip()]
        found = [_failure(_words(part), instance) for part in parts]
    if not found:
        raise InvalidInput(
            f"{show_value(text)} names no failure; give {SINGLE}, links such as A-B,C-D, or a file "
            "ending in .csv or .json"
        )
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(
                f"{show_value(text)}: the failure {show_value(name)} is named twice",
                code="duplicate",
            )
    if all(one.fault for one in found):
        raise InvalidInput(found[0].fault)
    return found


def failure_of(text: str, instance: Instance) -> Failure:
    """The failure of the links A-B,C-D together."""
    found = _failure(_words(text), instance)
    if found.fault:
        raise InvalidInput(found.fault)
    return found


def _words(text: str) -> list[tuple[str, Any]]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InvalidInput(f"a failure names links such as A-B,C-D, got {show_value(text)}")
    return [("the failure", word) for word in words]


def _failure(links: Sequence[tuple[str, Any]], instance: Instance, name: str = "") -> Failure:
    """Of links as someone wrote them, each with the place where that was."""
    try:
        return Failure.of([_link(link, instance, place) for place, link in links], name)
    except InvalidInput as error:
        return Failure(name or ",".join(_text(link) for _, link in links), (), str(error))


def _text(written: Any) -> str:
    return link_name(list(map(str, written))) if isinstance(written, list) else str(written)


def _read(path: Path, instance: Instance) -> Iterator[Failure]:
    if path.suffix.lower() == ".json":
        yield from _from_json(path, parse_json(path), instance)
        return
    groups: dict[str, list[tuple[str, Any]]] = {}
    for place, record in csv_records(path, ("source", "target"), ("failure",)):
        link = [record["source"], record["target"]]
        name = record.get("failure") or link_name(link_of(*link))
        groups.setdefault(name, []).append((place, link))
    for name, links in groups.items():
        yield _failure(links, instance, name)


def _from_json(path: Path, content: Any, instance: Instance) -> Iterator[Failure]:
    named: list[tuple[str, Any]] = []
    if isinstance(content, dict):
        named = list(content.items())
    elif isinstance(content, list):
        named = [("", group) for group in content]
    else:
        raise InvalidInput(
            f"{path}: expected a list of groups of links, or groups by name", code="type"
        )
    for number, (name, group) in enumerate(named, start=1):
        place = f"{path}, failure {show_value(name) if name else number}"
        if not isinstance(group, list) or not group:
            raise InvalidInput(
                f'{place}: expected a list of links, each "A-B" or ["A", "B"], got {group!r:.80}',
                code="type",
            )
        yield _failure([(place, link) for link in group], instance, name)


def _link(written: Any, instance: Instance, place: str) -> Link:
    """A link that the network has, written as A-B, A->B, A<->B or ["A", "B"].

    Names of nodes may have hyphens themselves. Of runs that do not say which links their network
    has, any two nodes on paths are taken for the ends of one.
    """
    if isinstance(written, list) and len(written) == 2:
        cuts = [(str(written[0]), str(written[1]))]
    elif isinstance(written, str):
        cuts = _cuts(written)
    else:
        raise InvalidInput(
            f'{place}: a link is "A-B" or ["A", "B"], got {written!r:.80}', code="type"
        )
    known = {link_of(*arc) for arc in instance.all_arcs or instance.arcs}
    nodes = {node for link in known for node in link}
    links = {link_of(one.strip(), other.strip()) for one, other in cuts}
    found = sorted(known & links)
    if not found and instance.all_arcs is None:
        found = sorted(link for link in links if link[0] != link[1] and nodes.issuperset(link))
    if len(found) > 1:
        several = " or ".join(map(link_name, found))
        raise InvalidInput(
            f"{place} names {show_value(_text(written))}, which may be {several}; write A<->B, or "
            '["A", "B"] in a .json file',
            code="conflict",
        )
    if found:
        return found[0]
    listed = sorted(map(link_name, known))
    fault = f"which {instance.name} does not have"
    if instance.all_arcs is None:
        fault = f"whose ends are no two nodes on paths of {instance.name}"
    raise InvalidInput(
        f"{place} names the link {show_value(_text(written))}, {fault}"
        f"{did_you_mean(_text(written), listed)}; write A-B, with the names of the network",
        code="unknown-name",
    )


def _cuts(written: str) -> list[tuple[str, str]]:
    """The two ends that a text may name: an arrow parts them, or else one of its hyphens."""
    for arrow in ("<->", "->"):
        if written.count(arrow) == 1:
            one, _, other = written.partition(arrow)
            return [(one, other)]
    parts = written.split("-")
    return [("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts))]


def format_links(links: Sequence[Link]) -> str:
    """The links as people name them."""
    return ", ".join(map(link_name, links))
