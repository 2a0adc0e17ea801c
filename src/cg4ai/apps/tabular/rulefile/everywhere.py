"""Rules of a file that hold at every input, by how members are built: they name no place."""

from __future__ import annotations

import json
from collections.abc import Callable

from cg4ai.apps.csvdata import listed
from cg4ai.apps.tabular.rulefile.entry import Entry, canonical
from cg4ai.errors import did_you_mean
from cg4ai.rules import Ordered, Range, Requirement, SumTo


def _range(entry: Entry) -> Requirement:
    if not {"at_least", "at_most"} & set(entry.content):
        entry.refuse(None, "needs at_least, at_most, or both")
    low, high = (
        entry.number(key) if key in entry.content else None for key in ("at_least", "at_most")
    )
    return Range(low, high, _outputs(entry), name=entry.name)


def _ordered(entry: Entry) -> Requirement:
    return Ordered(_outputs(entry), name=entry.name)


def _sum(entry: Entry) -> Requirement:
    low: float | None = 0.0
    if "at_least" in entry.content:
        low = None if entry.content["at_least"] is None else entry.number("at_least")
    return SumTo(entry.number("total"), _outputs(entry), low, name=entry.name)


def _outputs(entry: Entry) -> list[int] | None:
    """Positions of the outputs that are named; None for all."""
    known = entry.subject.outputs
    given = entry.content.get("outputs")
    if given is None:
        return None
    if not isinstance(given, list):
        entry.refuse("outputs", f"must be a list of {listed(known)}, got {json.dumps(given)}")
    for one in given:
        if canonical(one) not in known:
            hint = did_you_mean(str(one), known)
            entry.refuse("outputs", f"names {json.dumps(one)}{hint}; use {listed(known)}")
    return [known.index(canonical(one)) for one in given]


EVERYWHERE: dict[str, Callable[[Entry], Requirement]] = {
    "range": _range,
    "ordered": _ordered,
    "sum_to": _sum,
}
