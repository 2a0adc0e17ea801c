"""Where a rule holds: rows of the data or of a file, a box with or without limits, or a ball."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai.apps.csv_tables import CsvTable, format_list, read_csv
from cg4ai.apps.tabular.rulefile.entry import PLACES, Entry, normalise_label
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.regions import Ball, Box, Polytope, Pool, Region

POOL_FROM = 2000  # more listed inputs than this enter the master only when violated


@dataclass(frozen=True)
class RuleScope:
    """Where a rule holds; for listed inputs also the table and rows that they come from."""

    inputs: Array | Pool | Region
    table: CsvTable | None = None
    rows: IntArray | None = None


def parse_scope(entry: Entry) -> RuleScope:
    """Where the rule of this object holds; rates and pairs are of all rows if unsaid."""
    if entry.kind in ("rate", "decision_rate", "difference"):
        return _rows(entry, entry.content.get("rows", "all"), lazily=False)
    given = [key for key in PLACES if key in entry.content]
    if len(given) != 1:
        entry.refuse(
            None,
            f"needs one of {', '.join(PLACES)} to say where it holds, got "
            f"{' and '.join(given) or 'none of them'}",
        )
    value = entry.content[given[0]]
    if given[0] == "rows":
        return _rows(entry, value, lazily=True)
    return RuleScope(_box(entry, value) if given[0] == "box" else _ball(entry, value))


def _rows(entry: Entry, value: Any, *, lazily: bool) -> RuleScope:
    if isinstance(value, str) and value != "all":
        table = read_csv(entry.path.parent / value)
        rows = np.arange(len(table))
    else:
        table = _data(entry, "rows")
        rows = _numbered(entry, value, table)
    inputs = entry.subject.inputs(table)[rows]
    pool = lazily and len(rows) > POOL_FROM
    return RuleScope(Pool(inputs) if pool else inputs, table, rows)


def _data(entry: Entry, key: str) -> CsvTable:
    if entry.subject.table is None:
        entry.refuse(key, "speaks of rows of the data, but no data were given; add --data")
    return entry.subject.table


def _numbered(entry: Entry, value: Any, table: CsvTable) -> IntArray:
    """Rows of the data: "all", a list of numbers from 0, or {column: value} to match."""
    if value == "all":
        return np.arange(len(table))
    if isinstance(value, dict) and value:
        keep = np.ones(len(table), bool)
        for column, wanted in value.items():
            texts = [normalise_label(text) for text in table.cells_of(column)]
            keep &= np.array([text == normalise_label(wanted) for text in texts])
        if not keep.any():
            entry.refuse("rows", f"matches no row of {table.path}: {json.dumps(value)}")
        return np.flatnonzero(keep)
    if not isinstance(value, list) or not value:
        entry.refuse(
            "rows",
            'must be "all", a list of row numbers, {column: value} or a CSV file, got '
            f"{json.dumps(value)}",
        )
    for row in value:
        if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < len(table):
            entry.refuse(
                "rows",
                f"has the entry {json.dumps(row)}; rows of {table.path} count from 0 to "
                f"{len(table) - 1}",
            )
    return np.array(value, np.int64)


def _box(entry: Entry, value: Any) -> Box | Polytope:
    ends = entry.parts("box", value, ("lower", "upper", "limits"))
    lower = _point(entry, "box", ends.get("lower", {}), entry.subject.lower)
    upper = _point(entry, "box", ends.get("upper", {}), entry.subject.upper)
    wrong = np.flatnonzero(lower > upper)
    if len(wrong):
        i = int(wrong[0])
        entry.refuse(
            "box",
            f"has lower {lower[i]:g} > upper {upper[i]:g} for feature "
            f"{entry.subject.features[i]!r}; an end that is left out is the end of the data's "
            f"range, [{entry.subject.lower[i]:g}, {entry.subject.upper[i]:g}]",
        )
    box = Box(lower, upper)
    return _limited(entry, box, ends["limits"]) if "limits" in ends else box


def _limited(entry: Entry, box: Box, value: Any) -> Polytope:
    """The inputs of the box that keep limits {"sum": {feature: number}, "at_most": number}."""
    if not isinstance(value, list) or not value:
        entry.refuse("box", f"has limits {json.dumps(value)}; give a list of them")
    rows, most = [], []
    for one in value:
        limit = entry.parts("box", one, ("sum", "at_least", "at_most"))
        row = _point(entry, "box", limit.get("sum"), np.zeros(box.size))
        ends = [(-1.0, "at_least"), (1.0, "at_most")]
        if not any(key in limit for _, key in ends):
            entry.refuse("box", f"has the limit {json.dumps(one)} without at_least or at_most")
        for sign, key in ends:
            if key in limit:
                rows.append(sign * row)
                most.append(sign * entry.values("box", {key: limit[key]}, (key,), "bound")[key])
    try:
        return Polytope(box, rows, most)
    except InvalidInput as error:
        entry.refuse("box", f"has limits that cannot be used: {error}")


def _ball(entry: Entry, value: Any) -> Ball:
    ball = entry.parts("ball", value, ("centre", "radius", "norm"))
    centre = ball.get("centre")
    if isinstance(centre, int) and not isinstance(centre, bool):
        table = _data(entry, "ball")
        row = _numbered(entry, [centre], table)
        middle = entry.subject.inputs(table)[row[0]]
    else:
        middle = _point(entry, "ball", centre, None)
    radius = ball.get("radius")
    if isinstance(radius, bool) or not isinstance(radius, int | float):
        entry.refuse("ball", f"needs a radius > 0, got {json.dumps(radius)}")
    norm = ball.get("norm", 2)
    if norm not in (2, "max"):
        entry.refuse("ball", f'has norm {json.dumps(norm)}; use 2 (Euclidean) or "max"')
    return Ball(middle, radius, math.inf if norm == "max" else 2)


def _point(entry: Entry, key: str, value: Any, rest: Array | None) -> Array:
    """A value per feature from {feature: value}; those left out are taken from `rest`."""
    features = entry.subject.features
    if not isinstance(value, dict):
        entry.refuse(key, f"needs {{feature: value, ...}}, got {json.dumps(value)}")
    point = entry.values(key, value, features, "feature")
    missing = [name for name in features if name not in point]
    if missing and rest is None:
        entry.refuse(key, f"must name a value for every feature, it lacks {format_list(missing)}")
    if rest is None:
        return np.array([point[name] for name in features])
    return np.array([point.get(name, rest[i]) for i, name in enumerate(features)])
