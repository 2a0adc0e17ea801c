"""A network with its demands, checked while it is built: what every reader hands to `instance`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cg4ai.errors import InvalidInput, check_names, did_you_mean

Position = tuple[float, float]
EARTH_RADIUS_KM = 6371.0
# Figures beyond these are slips of the unit, and sums and ratios of them leave the range of floats.
SMALLEST, LARGEST = 1e-12, 1e18
NAMED = 5  # parallel links that a note names


class Arc(NamedTuple):
    """What one direction of a link offers."""

    capacity: float
    length: float
    delay: float | None = None  # in milliseconds; None: not known


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in their given order, arcs and demand volumes by (source, target) position."""

    name: str
    nodes: tuple[str, ...]
    arcs: dict[tuple[int, int], Arc]
    volumes: dict[tuple[int, int], float]
    notes: tuple[str, ...] = ()  # what a user should know about the figures
    positions: tuple[Position, ...] | None = None  # of the nodes, where all are known

    def __post_init__(self) -> None:
        check_names((self.name, *self.nodes), "the network or one of its nodes")


def parse_number(text: object, *, what: str, place: str, least: float = -LARGEST) -> float:
    """`text` as a float from `least` to LARGEST; `place` says where it was read."""
    try:
        value = float(str(text))
    except ValueError:
        raise InvalidInput(
            f"{place}: {what} must be a number, got {show_value(text)}", code="type"
        ) from None
    if not math.isfinite(value):
        raise InvalidInput(
            f"{place}: {what} must be finite, got {show_value(text)}", code="not-finite"
        )
    if not least <= value <= LARGEST:
        raise InvalidInput(
            f"{place}: {what} must be finite and at least {least:g}, at most {LARGEST:g}, got "
            f"{show_value(text)}",
            code="not-finite",
        )
    return value


def show_value(value: object, *, quoted: bool = True) -> str:
    """A value as an error shows it: short, whatever a file holds."""
    try:
        text = repr(value) if quoted else repr(str(value))[1:-1]
    except (ValueError, RecursionError):  # an integer of thousands of digits, endless nesting
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else f"{text[:60]}...{text[-10:]}"


def link_name(ends: Sequence[str]) -> str:
    """`A-B`, or `A<->B` where a name has a hyphen itself, so that both ends can be told."""
    return ("<->" if any("-" in name for name in ends) else "-").join(ends)


def is_geographic(positions: Sequence[Position]) -> bool:
    """Whether all positions can be (longitude, latitude) in degrees rather than pixels."""
    return all(abs(x) <= 180 and abs(y) <= 90 for x, y in positions)


def great_circle_km(a: Position, b: Position) -> float:
    """Length of the shortest line on the globe between two (longitude, latitude) positions."""
    (lon_a, lat_a), (lon_b, lat_b) = [tuple(map(math.radians, p)) for p in (a, b)]
    half = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(half)))


def _merge(one: Arc, other: Arc) -> Arc:
    """Parallel links as one."""
    delay = None
    if one.delay is not None and other.delay is not None:
        delay = max(one.delay, other.delay)
    return Arc(one.capacity + other.capacity, min(one.length, other.length), delay)


class _Link(NamedTuple):
    source: int
    target: int
    capacity: float
    length: float | None
    both_ways: bool
    delay: float | None = None


@dataclass
class NetworkBuilder:
    """Collects nodes, links and demands; `place` in every call says where an entry was read."""

    name: str
    positions: dict[str, Position | None] = field(default_factory=dict)
    links: list[_Link] = field(default_factory=list)
    volumes: dict[tuple[int, int], float] = field(default_factory=dict)
    _repeated: int = 0  # demands between the same nodes as one before
    _index: dict[str, int] = field(default_factory=dict)
    _ids: set[tuple[str, str]] = field(default_factory=set)

    def add_node(self, name: str, *, place: str, position: Position | None = None) -> None:
        if not name.strip():
            raise InvalidInput(
                f"{place}: a node has no name; give it one, or remove the line", code="bad-name"
            )
        check_names([name], place)
        self._new("node", name, place)
        self._index[name] = len(self._index)
        self.positions[name] = position

    def add_link(
        self,
        source: str,
        target: str,
        *,
        capacity: float,
        place: str,
        identifier: str | None = None,
        length: float | None = None,
        both_ways: bool = True,
        delay: float | None = None,
    ) -> None:
        """A link; parallel ones add their capacities and keep the least length.

        Their delay is the largest, as traffic takes both; not known where one is not.
        """
        if identifier is not None:
            self._new("link", identifier, place)
        ends = self._ends(source, target, what="link", place=place)
        if not SMALLEST <= capacity <= LARGEST:
            named = show_value(link_name([source, target]), quoted=False)
            raise InvalidInput(
                f"{place}: the link {named} has capacity "
                f"{capacity:g}, expected {SMALLEST:g} to {LARGEST:g}; give it a capacity, choose "
                "another unit or remove it",
                code="range",
            )
        self.links.append(_Link(*ends, capacity, length, both_ways, delay))

    def add_demand(
        self, source: str, target: str, *, volume: float, place: str, identifier: str | None = None
    ) -> None:
        """A demand; demands between the same nodes add up, volumes of 0 are no demand."""
        if identifier is not None:
            self._new("demand", identifier, place)
        ends = self._ends(source, target, what="demand", place=place)
        if volume != 0 and not SMALLEST <= volume <= LARGEST:
            raise InvalidInput(
                f"{place}: the demand {show_value(f'{source}->{target}', quoted=False)} has volume "
                f"{volume:g}, expected 0 or {SMALLEST:g} to {LARGEST:g}; choose another unit",
                code="range",
            )
        if volume > 0:
            self._repeated += ends in self.volumes
            self.volumes[ends] = self.volumes.get(ends, 0.0) + volume

    def build(self, *, place: str) -> Network:
        if not self.links:
            raise InvalidInput(f"{place}: no links; a network needs nodes and links", code="empty")
        arcs: dict[tuple[int, int], Arc] = {}
        for link in self.links:
            length = self._length(link) if link.length is None else link.length
            new = Arc(float(link.capacity), float(length), link.delay)
            ends = (link.source, link.target)
            for pair in [ends, ends[::-1]] if link.both_ways else [ends]:
                arcs[pair] = _merge(arcs[pair], new) if pair in arcs else new
        return Network(
            self.name,
            tuple(self._index),
            arcs,
            dict(self.volumes),
            notes=tuple(self._added_up()),
            positions=self._known(),
        )

    def _added_up(self) -> Iterator[str]:
        """What of the file is no longer told apart."""
        sides: Counter[tuple[int, int]] = Counter()
        for link in self.links:
            pair = (link.source, link.target)
            sides.update([pair, pair[::-1]] if link.both_ways else [pair])
        several = sorted({(min(pair), max(pair)) for pair, count in sides.items() if count > 1})
        if several:
            names = list(self._index)
            named = [link_name([names[a], names[b]]) for a, b in several[:NAMED]]
            more = f" and {len(several) - NAMED} more" if len(several) > NAMED else ""
            listed = show_value(", ".join(named), quoted=False)
            yield f"parallel links are one, with their capacities together: {listed}{more}"
        if self._repeated:
            yield "demands between the same nodes are one, with their volumes together"

    def _new(self, kind: str, name: str, place: str) -> None:
        if (kind, name) in self._ids:
            raise InvalidInput(
                f"{place}: the {kind} {show_value(name)} is given twice; rename or remove one",
                code="duplicate",
            )
        self._ids.add((kind, name))

    def _ends(self, source: str, target: str, *, what: str, place: str) -> tuple[int, int]:
        for name in (source, target):
            if name not in self._index:
                raise InvalidInput(
                    f"{place}: a {what} names the unknown node {show_value(name)}"
                    f"{did_you_mean(name, self._index)}; list it among the nodes",
                    code="unknown-name",
                )
        if source == target:
            raise InvalidInput(
                f"{place}: a {what} goes from {show_value(source)} to itself; remove it or name "
                "another "
                "node"
            )
        return self._index[source], self._index[target]

    def _length(self, link: _Link) -> float:
        """From the positions of all nodes: kilometres or pixels; without positions, 1."""
        positions = self._known()
        if positions is None:
            return 1.0
        a, b = positions[link.source], positions[link.target]
        return great_circle_km(a, b) if is_geographic(positions) else math.dist(a, b)

    def _known(self) -> tuple[Position, ...] | None:
        """The positions of all nodes; None where one has none."""
        known = tuple(position for position in self.positions.values() if position is not None)
        return known if len(known) == len(self.positions) else None
