"""Classes of demands by priority, of which 1 is kept first, read from a file beside any demands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.instance import Instance, carry_robust
from cg4ai.routing.network.network import show_value
from cg4ai.routing.network.readers import csv_records

LARGEST = 1000  # a priority is a whole number up to it
COLUMNS = ("source", "target", "priority")


def with_priorities(made: Instance, file: Path) -> Instance:
    """The instance with the priorities of a CSV source,target,priority.

    Demands that it does not name come after all that it does.
    """
    given = _read(file, made)
    known = [given.pop(pair, None) for pair in made.ends]
    if all(one is None for one in known):
        raise InvalidInput(
            f"{file} names none of the {len(known)} demands; name source and target of those that "
            "are to be kept first",
            code="empty",
        )
    rest = max(one for one in known if one is not None) + 1
    classes = tuple(rest if one is None else one for one in known)
    left = (
        (f"priorities of {len(given)} pairs of nodes that no routed demand joins are left out",)
        if given
        else ()
    )
    return _replaced(made, classes, left)


def carry_priorities(made: Instance, before: Instance) -> Instance:
    """The instance with the priorities of another one; demands that are new there come last."""
    if before.priorities is None:
        return made
    known = dict(zip(before.demand_names, before.priorities, strict=True))
    last = max(before.priorities)
    return _replaced(made, tuple(known.get(name, last) for name in made.demand_names))


def _replaced(made: Instance, classes: tuple[int, ...], notes: tuple[str, ...] = ()) -> Instance:
    found = replace(made, priorities=classes, notes=(*made.notes, *notes))
    carry_robust(found, made, 1.0)
    return found


def _read(file: Path, made: Instance) -> dict[tuple[str, str], int]:
    """The priority of each pair of nodes."""
    nodes = {name for arc in made.all_arcs or made.arcs for name in arc}
    found: dict[tuple[str, str], int] = {}
    for place, row in csv_records(file, COLUMNS, (), other=True):
        pair = (row["source"], row["target"])
        for name in pair:
            if name not in nodes:
                raise InvalidInput(
                    f"{place}: {made.name} has no node {show_value(name)}"
                    f"{did_you_mean(name, nodes)}; correct it",
                    code="unknown-name",
                )
        text = row["priority"]
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= LARGEST):
            raise InvalidInput(
                f"{place}: priority must be a whole number from 1, which is kept first, to "
                f"{LARGEST}, got {show_value(text)}",
                code="range",
            )
        if pair in found:
            raise InvalidInput(
                f"{place}: the priority of {pair[0]}->{pair[1]} is given twice; remove one",
                code="duplicate",
            )
        found[pair] = int(text)
    return found


def list_classes(priorities: Sequence[int]) -> list[int]:
    """The priorities that there are, the one that is kept first before the others."""
    return sorted(set(priorities))
