"""Measured traffic: one matrix of volumes per time, and its demand vectors for an instance.

`read_traffic` (traffic_files.py) makes it from files. Times and nodes are called, and stand in the
order, as in the user's file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.network import LARGEST, show_value

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Traffic:
    """`matrices` (T, N, N) float64: the volume from node i to node j at each of T `times`.

    Times ascend: as numbers where all are, else as ISO dates, else as text. A diagonal is set to
    zero; `notes` say in words what was ignored or assumed.
    """

    times: tuple[str, ...]
    nodes: tuple[str, ...]
    matrices: Array
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        times, nodes = tuple(map(str, self.times)), tuple(map(str, self.nodes))
        matrices = _checked(self.matrices, times, nodes)
        inner = np.arange(len(nodes))
        notes = tuple(self.notes)
        if matrices[:, inner, inner].any():
            matrices[:, inner, inner] = 0.0
            notes = (*notes, "traffic from nodes to themselves is ignored")
        for name, value in (("times", times), ("nodes", nodes), ("matrices", matrices)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "notes", notes)
        _check_order(times)

    def __len__(self) -> int:
        return len(self.times)

    def select(self, positions: Any) -> Traffic:
        """The matrices at some positions, a slice or an array of them; one at least."""
        chosen = np.arange(len(self))[positions]
        if not chosen.size:
            raise InvalidInput(
                "a selection of traffic has no matrix; choose one time at least", code="empty"
            )
        times = tuple(self.times[position] for position in np.atleast_1d(chosen))
        return replace(self, times=times, matrices=self.matrices[np.atleast_1d(chosen)])

    def split(self, where: str | float) -> tuple[Traffic, Traffic]:
        """Those before and from `where` on: a time, or a number in (0, 1), the share of earlier."""
        share = _number(str(where))
        if share is not None and 0 < share < 1:
            count = max(1, math.floor(share * len(self) + 1e-9))
        else:
            count = self._position(str(where))
        if not 0 < count < len(self):
            raise InvalidInput(
                f"a split at {show_value(str(where))} leaves {count} of {len(self)} matrices "
                "before it; "
                f"choose a share in (0, 1), or a time after {self.times[0]} and up to "
                f"{self.times[-1]}{_as_text([*self.times, str(where)])}",
                code="range",
            )
        return self.select(slice(0, count)), self.select(slice(count, None))

    def _position(self, time: str) -> int:
        """How many times are before `time`."""
        *known, here = moments_of([*self.times, time])
        return sum(moment < here for moment in known)

    def append(self, later: Traffic) -> Traffic:
        """These matrices and later ones; a node that one of them lacks sends nothing there."""
        nodes = tuple(dict.fromkeys((*self.nodes, *later.nodes)))
        index = {name: position for position, name in enumerate(nodes)}
        parts = []
        for part in (self, later):
            own = np.array([index[name] for name in part.nodes])
            wide = np.zeros((len(part), len(nodes), len(nodes)))
            wide[:, own[:, None], own] = part.matrices
            parts.append(wide)
        notes = tuple(dict.fromkeys((*self.notes, *later.notes)))
        return Traffic((*self.times, *later.times), nodes, np.concatenate(parts), notes)

    def check_later(self, last: str) -> None:
        """Refuse matrices that are not all later than the time `last`."""
        limit, *moments = moments_of([last, *self.times])
        early = [time for time, moment in zip(self.times, moments, strict=True) if moment <= limit]
        if early:
            raise InvalidInput(
                f"{len(early)} of {len(self)} matrices are not later than {show_value(last)}, up "
                f"to which the run has learned, first that of {show_value(early[0])}; leave them "
                f"out{_as_text([last, *self.times])}",
                code="range",
            )

    @property
    def largest(self) -> Array:
        """(N, N): the largest volume of each pair."""
        return np.asarray(self.matrices.max(axis=0))

    def to_vectors(self, instance: Instance) -> Array:
        """Demand vectors (T, D) in the order of the instance's demands, and in its units.

        That is, times the instance's `scale`. Traffic between other nodes is left out.
        """
        ends = [(path[0], path[-1]) for path in _first_paths(instance)]
        return np.asarray(instance.scale * self.get_volumes(ends))

    def get_volumes(self, pairs: Sequence[Pair]) -> Array:
        """(T, len(pairs)): the volumes of these pairs of (source, target) as measured."""
        index = {name: position for position, name in enumerate(self.nodes)}
        for name in dict.fromkeys(name for pair in pairs for name in pair):
            if name not in index:
                raise InvalidInput(
                    f"the traffic has no node {show_value(name)}{did_you_mean(name, index)}; "
                    "its nodes "
                    "must be called as in the network",
                    code="unknown-name",
                )
        sources: IntArray = np.array([index[source] for source, _ in pairs], np.int64)
        targets: IntArray = np.array([index[target] for _, target in pairs], np.int64)
        return np.asarray(self.matrices[:, sources, targets])

    def sum_others(self, pairs: Sequence[Pair]) -> Array:
        """(T,): what is sent at each time between all pairs but these."""
        wanted = set(pairs)
        left = [pair for pair in product(self.nodes, self.nodes) if pair not in wanted]
        return np.asarray(self.get_volumes(left).sum(axis=1))

    def check_nodes(self, known: Sequence[str], name: str) -> None:
        """Refuse traffic of nodes that the network `name` does not have."""
        for node in self.nodes:
            if node not in known:
                raise InvalidInput(
                    f"the traffic names the node {show_value(node)}, which {name} does not have"
                    f"{did_you_mean(node, known)}; rename it, or leave it out of the traffic",
                    code="unknown-name",
                )


def _first_paths(instance: Instance) -> list[tuple[str, ...]]:
    """One path of each demand: its ends are the demand's."""
    first = np.unique(instance.path_demand, return_index=True)[1]
    return [instance.paths[position] for position in first]


def _checked(given: Any, times: tuple[str, ...], nodes: tuple[str, ...]) -> Array:
    """The matrices as a new float64 array (T, N, N) of volumes."""
    try:
        matrices = np.array(given, np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            "matrices of traffic must be numbers of one shape (T, N, N)", code="shape"
        ) from None
    if not times or not nodes:
        raise InvalidInput(
            "traffic needs at least one time and two nodes; the file is empty", code="empty"
        )
    if matrices.shape != (len(times), len(nodes), len(nodes)):
        raise InvalidInput(
            f"{len(times)} times and {len(nodes)} nodes need matrices of shape "
            f"{(len(times), len(nodes), len(nodes))}, got {matrices.shape}",
            code="shape",
        )
    twice = [name for position, name in enumerate(nodes) if name in nodes[:position]]
    if twice:
        raise InvalidInput(
            f"the node {show_value(twice[0])} of the traffic is given twice; rename one",
            code="duplicate",
        )
    wrong = ~((matrices >= 0) & (matrices <= LARGEST))  # NaN is neither
    if wrong.any():
        time, source, target = np.argwhere(wrong)[0]
        raise InvalidInput(
            f"traffic at {times[time]} from {nodes[source]} to {nodes[target]} is "
            f"{matrices[time, source, target]:g}, expected 0 or more and no missing value; repair "
            f"or leave out {_counted(int(wrong.any(axis=(1, 2)).sum()))}",
            code="missing-values",
        )
    return matrices


def _counted(count: int) -> str:
    return "this time" if count == 1 else f"these {count} times"


def _check_order(times: tuple[str, ...]) -> None:
    moments = moments_of(list(times))
    for position in range(1, len(times)):
        if not moments[position - 1] < moments[position]:
            what = "twice" if moments[position - 1] == moments[position] else "out of order"
            raise InvalidInput(
                f"the time {show_value(times[position])} is {what} (after "
                f"{show_value(times[position - 1])}); sort the traffic by time, each once"
                f"{_as_text(list(times))}"
            )


def moments_of(times: list[str]) -> list[Any]:
    """What times are compared by: numbers, else dates, else the texts themselves."""
    numbers = [_number(time) for time in times]
    if all(one is not None for one in numbers):
        return numbers
    try:
        dates = [datetime.fromisoformat(time) for time in times]
    except ValueError:
        return list(times)
    zoned = {date.tzinfo is not None for date in dates}
    return list(dates) if len(zoned) == 1 else list(times)


def _as_text(times: list[str]) -> str:
    """What an error about the order of times adds where their format is not known."""
    if moments_of(times) != times:
        return ""
    return (
        "; these were compared as text: what is read are numbers and ISO dates such as "
        "2004-03-28T12:30"
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
