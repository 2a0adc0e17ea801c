"""Sets of demands that grow, as far as needed, until they hold new demand vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cg4ai.data import Array
from cg4ai.routing.demands.sets import DemandSet, name_total
from cg4ai.routing.demands.traffic_sets import from_traffic
from cg4ai.routing.network.instance import Instance, carry_robust
from cg4ai.routing.options import CAPACITIES_AUTO
from cg4ai.routing.prove.unroutable import make_refusal
from cg4ai.routing.settings import PAPER_LOAD, RouteSettings
from cg4ai.rules import Box, Polytope

ROUNDING = 1e-9  # by so much a figure may exceed another and still be taken for it
NAMED = 3  # of what has grown, by name


@dataclass(frozen=True, eq=False)
class Growth:
    """A limit of a set, such as a largest demand, and by what factor it has grown (or shrunk)."""

    name: str
    factor: float

    def __str__(self) -> str:
        return f"{self.name} x {self.factor:.4g}"


@dataclass(frozen=True, eq=False)
class WidenedInstance:
    """The instance whose set holds the new vectors, what of the set has grown, and remarks.

    `inside`: the share of the new vectors that the set held before.
    """

    instance: Instance
    maxima: tuple[Growth, ...]
    totals: tuple[Growth, ...]
    minima: tuple[Growth, ...]
    inside: float
    notes: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """The growth in words, then the remarks."""
        changed = [
            _list_growth(self.maxima, "largest demand"),
            _list_growth(self.totals, "node total"),
            _list_growth(self.minima, "smallest demand"),
        ]
        said = "; ".join(filter(None, changed))
        held = f"the set held {self.inside:.1%} of the new matrices"
        if not said:
            return [f"{held} and stays as it is", *self.notes]
        return [f"{held} and was widened to hold all of them: {said}", *self.notes]


def _list_growth(grown: tuple[Growth, ...], what: str) -> str:
    if not grown:
        return ""
    ordered = sorted(grown, key=lambda one: -max(one.factor, 1 / max(one.factor, 1e-12)))
    more = f" and {len(grown) - NAMED} more" if len(grown) > NAMED else ""
    named = ", ".join(map(str, ordered[:NAMED]))
    return f"{len(grown)} {what}{'s' if len(grown) > 1 else ''} ({named}{more})"


def widen_instance(instance: Instance, seen: Array, asked: RouteSettings) -> WidenedInstance:
    """The instance with a set of the same kind that holds the vectors `seen` (T, D), too.

    The set of a run that learned from traffic keeps its headroom above what was seen, unless the
    network cannot carry that; where it cannot carry the vectors themselves, this is refused.
    """
    inside = float(instance.region.contains(seen).mean())
    bare = _with_set(instance, _hold(instance, seen, asked, headroom=False))
    made, notes = bare, list[str]()
    if asked.traffic is not None:
        made = _with_set(instance, _hold(instance, seen, asked, headroom=True))
        if made.level > 1 + ROUNDING and asked.scale_capacities != CAPACITIES_AUTO:
            made = bare
            notes.append(
                "without headroom above the new matrices: the network cannot carry "
                f"{asked.headroom:g} times them"
            )
    if made.level > 1 + ROUNDING:
        if asked.scale_capacities != CAPACITIES_AUTO:
            raise make_refusal(made, made.level, lambda level: REMEDIES)
        made, note = count_capacities(made, asked.load)
        notes.append(note)
    before, after = _limits(instance.region), _limits(made.region)
    names = instance.demand_names
    rows = [] if isinstance(instance.region, Box) else instance.region.matrix
    totals = [name_total(np.asarray(row), instance.ends) for row in rows]
    return WidenedInstance(
        made,
        _compare(names, before.upper, after.upper),
        _compare(totals, before.totals, after.totals),
        _compare(names, before.lower, after.lower),
        inside,
        tuple(notes),
    )


REMEDIES = (
    "The set cannot be widened to hold the new matrices; give capacities and traffic in one unit, "
    "raise capacities with --network first, or leave out matrices that need not be held"
)


def count_capacities(made: Instance, load: float | None) -> tuple[Instance, str]:
    """Capacities counted as a larger multiple, at which the worst case of the set is `load`.

    For runs that asked for it with --scale-capacities auto; the second is what to say of it.
    """
    more = made.level / (load or PAPER_LOAD)
    factor = None if made.capacity_factor is None else made.capacity_factor * more
    source = None if made.path_source is None else made.path_source.scale(more)
    counted = replace(
        made, capacity=made.capacity * more, capacity_factor=factor, path_source=source
    )
    carry_robust(counted, made, 1 / more)
    return counted, (
        f"capacities are counted {more:.4g} times as large as before, as --scale-capacities auto "
        "of the run asks"
    )


@dataclass(frozen=True, eq=False)
class _Limits:
    lower: Array
    upper: Array
    totals: Array


def _limits(region: DemandSet) -> _Limits:
    if isinstance(region, Box):
        return _Limits(region.lower, region.upper, np.zeros(0))
    return _Limits(region.box.lower, region.box.upper, region.limit)


def _hold(instance: Instance, seen: Array, asked: RouteSettings, *, headroom: bool) -> DemandSet:
    """The smallest set of this kind around the old one and the vectors, or their headroom."""
    known = _limits(instance.region)
    lower, upper, times = seen.min(axis=0), seen.max(axis=0), 1.0
    if headroom:
        around = from_traffic(
            seen, instance.ends, headroom=asked.headroom, hose=False, least=asked.min_demand
        )
        assert isinstance(around, Box)
        # the largest seen is held even where the headroom is below one
        lower, upper = np.minimum(lower, around.lower), np.maximum(upper, around.upper)
        times = max(1.0, asked.headroom)
    box = Box(np.minimum(known.lower, lower), np.maximum(known.upper, upper))
    if isinstance(instance.region, Box):
        return box
    matrix = instance.region.matrix
    sums = times * (seen @ np.asarray(matrix).T).max(axis=0)
    return Polytope(box, matrix, np.maximum(known.totals, sums))


def _with_set(instance: Instance, region: DemandSet) -> Instance:
    box = region if isinstance(region, Box) else region.box
    plain = isinstance(region, Box) and not region.lower.any()
    return replace(instance, demand_max=np.asarray(box.upper), demand_set=None if plain else region)


def _compare(names: list[str], before: Array, after: Array) -> tuple[Growth, ...]:
    """What differs, and by what factor."""
    return tuple(
        Growth(name, float(now / was) if was > 0 else float("inf"))
        for name, was, now in zip(names, before, after, strict=True)
        if abs(now - was) > ROUNDING * max(abs(was), abs(now))
    )
