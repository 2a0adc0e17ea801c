"""Rules of a file that hold at every input, by how members are built: they name no place."""

from __future__ import annotations

import json
from collections.abc import Callable

from cg4ai.apps.csv_tables import format_list
from cg4ai.apps.tabular.rulefile.entry import Entry, normalise_label
from cg4ai.apps.tabular.rulefile.numbers import bound_of, coefficients_of
from cg4ai.errors import did_you_mean
from cg4ai.rules import (
    AffineCoefficients,
    Curvature,
    Equality,
    Monotone,
    Ordered,
    Range,
    Requirement,
    Shape,
    SumTo,
)


def _equality(entry: Entry) -> Requirement:
    coefficients = coefficients_of(entry)
    if isinstance(coefficients, AffineCoefficients):
        entry.refuse("coefficients", "must be numbers; only the bound may depend on features")
    return Equality(None, coefficients, bound_of(entry, "equal"), name=entry.name)


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


def _monotone(entry: Entry) -> Requirement:
    ordered = entry.content.get("ordered", False)
    if not isinstance(ordered, bool):
        entry.refuse("ordered", f"must be true or false, got {json.dumps(ordered)}")
    return _of_subject(
        entry, Monotone(_features(entry), _output(entry), ordered=ordered, name=entry.name)
    )


def _curvature(entry: Entry) -> Requirement:
    return _of_subject(entry, Curvature(_features(entry), _output(entry), name=entry.name))


def _of_subject(entry: Entry, shape: Shape) -> Requirement:
    """By positions; of two classes the second is meant where none is named."""
    subject = entry.subject
    known = shape.resolve_names(subject.features, subject.outputs)
    if subject.classification:
        return known.for_classes(max(2, len(subject.outputs)), logits=subject.logits)
    return known


def _features(entry: Entry) -> dict[str, int]:
    value = entry.content.get("features")
    if not isinstance(value, dict) or not value:
        entry.refuse("features", f"needs {{feature: 1 or -1}}, got {json.dumps(value)}")
    signs = entry.values("features", value, entry.subject.features, "feature")
    for name, sign in signs.items():
        if sign not in (1.0, -1.0):
            entry.refuse(
                "features", f"gives {name!r} the sign {json.dumps(value[name])}; use 1 or -1"
            )
    return {name: int(sign) for name, sign in signs.items()}


def _output(entry: Entry) -> str | None:
    known, given = entry.subject.outputs, entry.content.get("output")
    if given is not None and normalise_label(given) not in known:
        hint = did_you_mean(str(given), known)
        entry.refuse(
            "output", f"must be one of {format_list(known)}, got {json.dumps(given)}{hint}"
        )
    return None if given is None else normalise_label(given)


def _outputs(entry: Entry) -> list[int] | None:
    """Positions of the outputs that are named; None for all."""
    known = entry.subject.outputs
    given = entry.content.get("outputs")
    if given is None:
        return None
    if not isinstance(given, list):
        entry.refuse("outputs", f"must be a list of {format_list(known)}, got {json.dumps(given)}")
    for one in given:
        if normalise_label(one) not in known:
            hint = did_you_mean(str(one), known)
            entry.refuse("outputs", f"names {json.dumps(one)}{hint}; use {format_list(known)}")
    return [known.index(normalise_label(one)) for one in given]


EVERYWHERE: dict[str, Callable[[Entry], Requirement]] = {
    "equality": _equality,
    "range": _range,
    "ordered": _ordered,
    "sum_to": _sum,
    "monotone": _monotone,
    "curvature": _curvature,
}
