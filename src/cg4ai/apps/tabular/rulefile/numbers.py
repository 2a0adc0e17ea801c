"""Coefficients and bounds of a rule in a file: numbers, or what is affine in the features."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from cg4ai.apps.csv_tables import format_list
from cg4ai.apps.tabular.rulefile.entry import Entry, normalise_label
from cg4ai.records import Array
from cg4ai.rules import AffineBound, AffineCoefficients, Largest, Smallest

AFFINE = ("offset", "slope")
PIECES: dict[str, Any] = {"at_most": Largest, "at_least": Smallest}


def bound_of(entry: Entry, key: str) -> Any:
    """A number, {"offset", "slope"}, or {"largest": [...]} (at_most), {"smallest": [...]}."""
    value = entry.content.get(key)
    if not isinstance(value, dict):
        return entry.number(key)
    kind = PIECES.get(key)
    name = "" if kind is None else kind.__name__.lower()
    if kind is None or name not in value:
        known = (*AFFINE, name) if name else AFFINE
        return AffineBound(*_affine(entry, key, entry.parts(key, value, known)))
    pieces = entry.parts(key, value, (name,))[name]
    if not isinstance(pieces, list) or not pieces:
        entry.refuse(key, f"needs a list of bounds as {name!r}, got {json.dumps(pieces)}")
    return kind([AffineBound(*_affine(entry, key, piece)) for piece in pieces])


def coefficients_of(entry: Entry) -> Array | AffineCoefficients:
    """(r,) from {output: number}, or coefficients affine in the features where one is."""
    outputs = entry.subject.outputs
    value = entry.content.get("coefficients")
    if value is None:
        if len(outputs) > 1:
            entry.refuse(
                "coefficients", f"is missing; give {{output: number}} for {format_list(outputs)}"
            )
        return np.ones(1)
    if not isinstance(value, dict) or not value:
        entry.refuse("coefficients", f"needs {{output: number}}, got {json.dumps(value)}")
    given = {normalise_label(name): number for name, number in value.items()}
    if not any(isinstance(one, dict) for one in given.values()):
        return output_numbers(entry, "coefficients", given)
    entry.values("coefficients", dict.fromkeys(given, 0.0), outputs, "output")
    none = (0.0, np.zeros(len(entry.subject.features)))
    pairs = [
        _affine(entry, "coefficients", given[name]) if name in given else none for name in outputs
    ]
    return AffineCoefficients.dense([offset for offset, _ in pairs], [slope for _, slope in pairs])


def square_of(entry: Entry) -> Array:
    """(r, r) from {output: {output: number}}."""
    value = entry.content.get("square")
    if not isinstance(value, dict) or not value:
        entry.refuse("square", f"needs {{output: {{output: number}}}}, got {json.dumps(value)}")
    outputs = entry.subject.outputs
    given = {normalise_label(name): row for name, row in value.items()}
    entry.values("square", dict.fromkeys(given, 0.0), outputs, "output")
    for name, row in given.items():
        if not isinstance(row, dict):
            entry.refuse("square", f"needs {{output: number}} for {name!r}, got {json.dumps(row)}")
    return np.array([output_numbers(entry, "square", given.get(name, {})) for name in outputs])


def output_numbers(entry: Entry, key: str, value: Any) -> Array:
    """(r,) from {output: number}; outputs that are left out count 0."""
    if not isinstance(value, dict):
        entry.refuse(key, f"needs {{output: number}}, got {json.dumps(value)}")
    outputs = entry.subject.outputs
    plain = {normalise_label(name): number for name, number in value.items()}
    named = entry.values(key, plain, outputs, "output")
    return np.array([named.get(name, 0.0) for name in outputs])


def _affine(entry: Entry, key: str, value: Any) -> tuple[float, Array]:
    """Offset and slope (d,) of a number or of {"offset": number, "slope": {feature: number}}."""
    features = entry.subject.features
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), np.zeros(len(features))
    parts = entry.parts(key, value, AFFINE)
    slope = parts.get("slope", {})
    if not isinstance(slope, dict):
        entry.refuse(key, f"needs a slope {{feature: number}}, got {json.dumps(slope)}")
    offset = entry.values(key, {"offset": parts.get("offset", 0.0)}, ("offset",), "part")["offset"]
    named = entry.values(key, slope, features, "feature")
    return offset, np.array([named.get(name, 0.0) for name in features])
