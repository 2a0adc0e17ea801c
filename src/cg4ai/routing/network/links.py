"""The links of a network file as a draft takes them: checked whole, mended where that is safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.graphs import (
    CAPACITY,
    ZOO_CAPACITY,
    Edge,
    Graph,
    find_capacity_name,
    value_of,
)
from cg4ai.routing.network.network import link_name, parse_number, show_value

LISTED = 5  # entries that a message names
DELAY = "delay"  # the attribute of links, in milliseconds
ENDS = ("source", "target", "key", "both")  # what a link has beside its figures


@dataclass(frozen=True)
class ReadingOptions:
    """How to read a file: which attributes mean what, and what to do where it is not clear.

    `default` is the capacity of links without one. `directed` None takes the file's word for it.
    """

    capacity: str = "capacity"
    default: float | None = None
    length: str = "length"
    directed: bool | None = None
    parallel: Literal["add", "refuse"] = "add"


class Link(NamedTuple):
    """Between nodes by name; `length` and `delay` are None where the file gives none."""

    source: str
    target: str
    capacity: float
    length: float | None
    both_ways: bool
    delay: float | None = None

    def __str__(self) -> str:
        ends = self.source, self.target
        return link_name(ends) if self.both_ways else "->".join(ends)

    @property
    def directions(self) -> list[Link]:
        """One link for each direction in which it can be used."""
        one = self._replace(both_ways=False)
        back = one._replace(source=self.target, target=self.source)
        return [one, back] if self.both_ways else [one]


@dataclass
class LinkCollection:
    """The links of a graph, with those that are left out and what is wrong with others.

    `placed` says whether all nodes have coordinates, from which lengths can come.
    """

    graph: Graph
    names: Mapping[str, str]
    reading: ReadingOptions
    placed: bool
    links: list[Link] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def collect(self) -> list[Link]:
        """The links in order; InvalidInput says all that must be mended by hand."""
        if not self.graph.edges:
            raise InvalidInput(
                f"{self.graph.place}: no links; a network needs nodes and links", code="empty"
            )
        self._check_capacities()
        self._take_all()
        self._check_directions()
        self._check_lengths()
        self._check_delays()
        self._add_up()
        if self.faults:
            raise InvalidInput(f"{self.graph.place}: {'; '.join(self.faults)}")
        return self.links

    def _check_capacities(self) -> None:
        """Refuse a file in which no link has a capacity, and say what they have instead."""
        name, edges = self.reading.capacity, self.graph.edges
        if name == CAPACITY and find_capacity_name(edges) == ZOO_CAPACITY:
            self.reading = replace(self.reading, capacity=ZOO_CAPACITY)
            self.changes.append(f"capacities are {ZOO_CAPACITY}, in bit/s")
            return
        known = any(value_of(edge.attributes, name) is not None for edge in edges)
        if known or self.reading.default is not None:
            return
        found = dict.fromkeys(str(key) for edge in edges for key in edge.attributes)
        others = [key for key in found if key.lower() not in ENDS]
        advice = "add it"
        if others:
            have = ", ".join(map(show_value, others[:10]))
            advice = f"they have {have}: name the one that holds it with --capacity"
        raise InvalidInput(
            f"{self.graph.place}: no link has the attribute {name!r}{did_you_mean(name, others)}; "
            f"{advice}, or give all of them --default-capacity",
            code="unknown-name",
        )

    def _take_all(self) -> None:
        wrong, loops, missing, empty = (list[str]() for _ in range(4))
        for edge in self.graph.edges:
            try:
                link = self._link(edge)
            except InvalidInput as error:
                wrong.append(str(error).removeprefix(f"{self.graph.place}, "))
                continue
            where = f"{link} ({edge.place.rpartition(', ')[2]})"
            if link.source == link.target:
                loops.append(where)
            elif link.capacity != link.capacity:
                missing.append(where)
            elif not link.capacity > 0:
                empty.append(where)
            else:
                self.links.append(link)
        self.faults += wrong[:LISTED]
        if len(wrong) > LISTED:
            self.faults.append(f"{len(wrong) - LISTED} more links are wrong in such ways")
        if loops:
            self.changes.append(
                f"{format_entry_count(loops, 'loop is', 'loops are')} left out, which no path "
                "uses: "
                f"{list_first(loops)}"
            )
        if missing:
            self.faults.append(
                f"{format_entry_count(missing, 'link has', 'links have')} no "
                f"{self.reading.capacity}: "
                f"{list_first(missing)}; add it, or give them --default-capacity"
            )
        if empty:
            self.faults.append(
                f"{format_entry_count(empty, 'link has', 'links have')} a capacity of 0 or less: "
                f"{list_first(empty)}; remove them, or give them one"
            )

    def _link(self, edge: Edge) -> Link:
        """The capacity is not a number where there is none."""
        reading = self.reading
        source, target = (self._called(key, edge.place) for key in (edge.source, edge.target))
        place = f"{edge.place}, link {show_value(f'{source}-{target}', quoted=False)}"
        capacity = self._figure(edge, reading.capacity, place)
        if capacity is None:
            capacity = float("nan") if reading.default is None else reading.default
        length = self._figure(edge, reading.length, place)
        delay = self._figure(edge, DELAY, place)
        both = edge.both_ways if reading.directed is None else not reading.directed
        return Link(source, target, capacity, length, both, delay)

    def _figure(self, edge: Edge, name: str, place: str) -> float | None:
        given = value_of(edge.attributes, name)
        return None if given is None else parse_number(given, what=name, place=place)

    def _called(self, key: str, place: str) -> str:
        if not key.strip():
            raise InvalidInput(
                f"{place}: a link has an end without a name; give it one", code="bad-name"
            )
        if key not in self.names:
            raise InvalidInput(
                f"{place}: a link names the unknown node {show_value(key)}"
                f"{did_you_mean(key, self.names)}; list it among the nodes",
                code="unknown-name",
            )
        return self.names[key]

    def _check_directions(self) -> None:
        """A CSV that lists both directions does not say whether that is one link or two."""
        edges = self.graph.edges
        said = any("both" in edge.attributes for edge in edges) or self.reading.directed is not None
        ends = {(link.source, link.target) for link in self.links}
        twice = [str(link) for link in self.links if (link.target, link.source) in ends]
        if twice and not said and self.graph.place.lower().endswith(".csv"):
            self.faults.append(
                f"links stand in both directions: {list_first(twice)}; say --directed if every "
                "line is "
                "one direction, or --undirected if they are parallel links"
            )

    def _check_lengths(self) -> None:
        """Lengths of some links alone are of no use."""
        without = [str(link) for link in self.links if link.length is None]
        if not without or len(without) == len(self.links):
            return
        lacking = (
            f"{format_entry_count(without, 'link has', 'links have')} no length while others do"
        )
        if not self.placed:
            self.faults.append(f"{lacking}: {list_first(without)}; add it, or remove it everywhere")
            return
        self.changes.append(f"{lacking}, so that all are taken from the coordinates")
        self.links = [link._replace(length=None) for link in self.links]

    def _check_delays(self) -> None:
        """Delays of some links alone are of no use."""
        without = [str(link) for link in self.links if link.delay is None]
        if without and len(without) < len(self.links):
            self.faults.append(
                f"{format_entry_count(without, 'link has', 'links have')} no delay while others "
                f"do: {list_first(without)}; add it, or remove it everywhere"
            )

    def _add_up(self) -> None:
        """Parallel links as one: capacities together, the least length and the largest delay."""
        if not all(link.both_ways for link in self.links):  # each direction is a link of its own
            self.links = [one for link in self.links for one in link.directions]
        together: dict[tuple[str, ...], list[Link]] = {}
        for link in self.links:
            ends = (link.source, link.target)
            together.setdefault(tuple(sorted(ends)) if link.both_ways else ends, []).append(link)
        parallel = [str(same[0]) for same in together.values() if len(same) > 1]
        if parallel and self.reading.parallel == "refuse":
            self.faults.append(f"links are parallel: {list_first(parallel)}")
        elif parallel:
            self.changes.append(
                f"parallel links are one, with their capacities together: {list_first(parallel)}"
            )
        self.links = [_together(same) for same in together.values()]


def _together(same: Sequence[Link]) -> Link:
    lengths = [link.length for link in same if link.length is not None]
    delays = [link.delay for link in same if link.delay is not None]
    return same[0]._replace(
        capacity=sum(link.capacity for link in same),
        length=min(lengths, default=None),
        delay=max(delays, default=None),
    )


def format_entry_count(entries: Sequence[str], one: str, several: str) -> str:
    return f"{len(entries)} {one if len(entries) == 1 else several}"


def list_first(entries: Sequence[str]) -> str:
    """The first few by name."""
    more = f" and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    return ", ".join(show_value(entry, quoted=False) for entry in entries[:LISTED]) + more
