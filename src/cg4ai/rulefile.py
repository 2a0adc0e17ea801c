"""Rules from a JSON file: each object of the list becomes one requirement (docs/rules.md).

The commands read data first and hand it here as a `Subject`; every error names the file, the
rule's number and the key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cg4ai.csvdata import CsvTable, as_number, listed, read_csv
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array, IntArray
from cg4ai.regions import Ball, Box, Pool
from cg4ai.requirements import Linear, Margin, Probability, Rate, Requirement

POOL_FROM = 2000  # more listed inputs than this enter the master only when violated
PLACES = ("rows", "box", "ball")
COMMON = ("rule", "name")
KEYS: dict[str, tuple[str, ...]] = {
    "probability": (*PLACES, "label", "at_least"),
    "margin": (*PLACES, "label", "at_least", "form"),
    "linear": (*PLACES, "coefficients", "at_least", "at_most", "equal"),
    "rate": (
        *("rows", "group_column", "output", "tolerance", "between"),
        *("mean_at_least", "mean_at_most"),
    ),
}


@dataclass(frozen=True)
class Subject:
    """What rules speak about.

    `outputs` are the names of the classes, or the target column alone for regression; `lower`
    and `upper` (d,) the range of each feature in the training data; `table` the data that row
    numbers refer to, None if there is none.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    lower: Array
    upper: Array
    target: str
    classification: bool
    table: CsvTable | None = None


def canonical(label: object) -> str:
    """One spelling per class: whole numbers lose their decimal point, other texts stay."""
    text = str(label).strip()
    value = as_number(text)
    return str(int(value)) if value is not None and value == int(value) else text


@dataclass(frozen=True)
class Rule:
    """A requirement, and for listed inputs the rows of the file that they come from."""

    requirement: Requirement
    outputs: tuple[str, ...]
    table: CsvTable | None = None
    rows: IntArray | None = None

    def source(self, number: int) -> str:
        """`patients.csv, line 9` for input `number` of the requirement; empty where unknown."""
        if self.table is None or self.rows is None or number < 0:
            return ""
        return f"{self.table.path.name}, line {self.table.lines[int(self.rows[number])]}"


def read_rules(path: str | Path, subject: Subject) -> list[Rule]:
    """All rules of a file, in order; one that has two bounds gives two."""
    path = Path(path)
    content = _parsed(path)
    if not isinstance(content, list):
        raise InvalidInput(
            f"{path} must hold a list of rules, [{{...}}, ...], got {_kind_of(content)}"
        )
    rules: list[Rule] = []
    for number, entry in enumerate(content, start=1):
        rules += _Entry(path, number, entry, subject).rules()
    return rules


def rule_files(path: str | Path) -> list[Path]:
    """The rules file and the row files it names: all that decides what the rules mean."""
    path = Path(path)
    content = _parsed(path)
    entries = content if isinstance(content, list) else []
    places = [entry.get("rows") for entry in entries if isinstance(entry, dict)]
    names = sorted({rows for rows in places if isinstance(rows, str) and rows != "all"})
    return [path, *(path.parent / name for name in names)]


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot read the rules file {path}: {reason}") from error
    try:
        return json.loads(text, object_pairs_hook=_no_doubles, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{path}, line {error.lineno}, column {error.colno} is not valid JSON: {error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not valid JSON: {error}") from error


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    double = [name for name in names if names.count(name) > 1]
    if double:
        raise ValueError(f"the key {double[0]!r} stands twice in one object")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _kind_of(value: object) -> str:
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true/false"}
    return "null" if value is None else kinds.get(type(value), "a number")


@dataclass(frozen=True)
class _Place:
    """Where a rule holds; for listed inputs also the table and rows that they come from."""

    inputs: Array | Pool | Box | Ball
    table: CsvTable | None = None
    rows: IntArray | None = None


class _Entry:
    """One object of the file, read key by key."""

    def __init__(self, path: Path, number: int, entry: Any, subject: Subject) -> None:
        self.path = path
        self.number = number
        self.subject = subject
        self.kind = "?"
        if not isinstance(entry, dict):
            self.refuse(None, f"must be an object {{...}}, got {_kind_of(entry)}")
        self.entry: dict[str, Any] = entry
        self.kind = self._choice("rule", tuple(KEYS))
        known = (*COMMON, *KEYS[self.kind])
        for key in entry:
            if key not in known:
                self.refuse(key, f"is unknown{did_you_mean(key, known)}; use {listed(known)}")
        self.name = self._text("name", default=f"rule {number} ({self.kind})")

    def refuse(self, key: str | None, what: str) -> NoReturn:
        kind = "" if self.kind == "?" else f" ({self.kind})"
        where = "" if key is None else f", key {key!r}"
        raise InvalidInput(f"{self.path}, rule {self.number}{kind}{where} {what}")

    def rules(self) -> list[Rule]:
        make: dict[str, Callable[[_Place], list[Requirement]]] = {
            "probability": self._probability,
            "margin": self._margin,
            "linear": self._linear,
            "rate": self._rate,
        }
        try:
            place = self._place()
            return [
                Rule(requirement, self.subject.outputs, place.table, place.rows)
                for requirement in make[self.kind](place)
            ]
        except InvalidInput as error:
            start = f"{self.path}, rule {self.number}"
            if str(error).startswith(start):
                raise
            raise InvalidInput(f"{start} ({self.kind}): {error}") from error

    # ---- the kinds of rules ------------------------------------------------------------------

    def _probability(self, place: _Place) -> list[Requirement]:
        least = self._number("at_least")
        return [Probability(place.inputs, self._labels(place), least, name=self.name)]

    def _margin(self, place: _Place) -> list[Requirement]:
        least, form = self._number("at_least"), self._text("form", default="member")
        return [Margin(place.inputs, self._labels(place), least, form=form, name=self.name)]

    def _linear(self, place: _Place) -> list[Requirement]:
        senses = {"at_least": ">=", "at_most": "<=", "equal": "=="}
        given = [key for key in senses if key in self.entry]
        if not given or ("equal" in given and len(given) > 1):
            self.refuse(None, "needs at_least, at_most, both of these, or equal")
        coefficients = self._coefficients()
        return [
            Linear(
                place.inputs,
                coefficients,
                self._number(key),
                senses[key],
                name=self.name if len(given) == 1 else f"{self.name}, {key.replace('_', ' ')}",
            )
            for key in given
        ]

    def _rate(self, place: _Place) -> list[Requirement]:
        groups: list[str] | None = None
        if "group_column" in self.entry:
            column = self._column(place, "group_column")
            groups = [canonical(text) for text in column]
        between = self.entry.get("between")
        if between is not None:
            if not isinstance(between, list) or len(between) != 2:
                self.refuse("between", f"must name two groups, [a, b], got {between!r}")
            between = (canonical(between[0]), canonical(between[1]))
        numbers = {
            key: self._number(key) if key in self.entry else None
            for key in ("tolerance", "mean_at_least", "mean_at_most")
        }
        rate = Rate(
            place.inputs,
            None if groups is None else np.array(groups),
            output=self._output(),
            tolerance=numbers["tolerance"],
            between=between,
            mean_at_least=numbers["mean_at_least"],
            mean_at_most=numbers["mean_at_most"],
            name=self.name,
        )
        return [rate]

    # ---- where a rule holds ------------------------------------------------------------------

    def _place(self) -> _Place:
        if self.kind == "rate":
            return self._rows(self.entry.get("rows", "all"), lazily=False)
        given = [key for key in PLACES if key in self.entry]
        if len(given) != 1:
            self.refuse(
                None,
                f"needs one of {', '.join(PLACES)} to say where it holds, got "
                f"{' and '.join(given) or 'none of them'}",
            )
        value = self.entry[given[0]]
        if given[0] == "rows":
            return self._rows(value, lazily=True)
        return _Place(self._box(value) if given[0] == "box" else self._ball(value))

    def _rows(self, value: Any, *, lazily: bool) -> _Place:
        if isinstance(value, str) and value != "all":
            table = read_csv(self.path.parent / value)
            rows = np.arange(len(table))
        else:
            table = self._data("rows")
            rows = self._numbered(value, table)
        inputs = table.numbers(self.subject.features)[rows]
        pool = lazily and len(rows) > POOL_FROM
        return _Place(Pool(inputs) if pool else inputs, table, rows)

    def _data(self, key: str) -> CsvTable:
        if self.subject.table is None:
            self.refuse(key, "speaks of rows of the data, but no data were given; add --data")
        return self.subject.table

    def _numbered(self, value: Any, table: CsvTable) -> IntArray:
        """Rows of the data: "all", a list of numbers from 0, or {column: value} to match."""
        if value == "all":
            return np.arange(len(table))
        if isinstance(value, dict) and value:
            keep = np.ones(len(table), bool)
            for column, wanted in value.items():
                texts = [canonical(text) for text in table.texts(column)]
                keep &= np.array([text == canonical(wanted) for text in texts])
            if not keep.any():
                self.refuse("rows", f"matches no row of {table.path}: {json.dumps(value)}")
            return np.flatnonzero(keep)
        if not isinstance(value, list) or not value:
            self.refuse(
                "rows",
                'must be "all", a list of row numbers, {column: value} or a CSV file, got '
                f"{json.dumps(value)}",
            )
        for row in value:
            if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < len(table):
                self.refuse(
                    "rows",
                    f"has the entry {json.dumps(row)}; rows of {table.path} count from 0 to "
                    f"{len(table) - 1}",
                )
        return np.array(value, np.int64)

    def _box(self, value: Any) -> Box:
        ends = self._object("box", value, ("lower", "upper"))
        lower = self._point("box", ends.get("lower", {}), self.subject.lower)
        upper = self._point("box", ends.get("upper", {}), self.subject.upper)
        wrong = np.flatnonzero(lower > upper)
        if len(wrong):
            i = int(wrong[0])
            self.refuse(
                "box",
                f"has lower {lower[i]:g} > upper {upper[i]:g} for feature "
                f"{self.subject.features[i]!r}; an end that is left out is the end of the data's "
                f"range, [{self.subject.lower[i]:g}, {self.subject.upper[i]:g}]",
            )
        return Box(lower, upper)

    def _ball(self, value: Any) -> Ball:
        entry = self._object("ball", value, ("centre", "radius", "norm"))
        centre = entry.get("centre")
        if isinstance(centre, int) and not isinstance(centre, bool):
            table = self._data("ball")
            row = self._numbered([centre], table)
            middle = table.numbers(self.subject.features)[row[0]]
        else:
            middle = self._point("ball", centre, None)
        radius = entry.get("radius")
        if isinstance(radius, bool) or not isinstance(radius, int | float):
            self.refuse("ball", f"needs a radius > 0, got {json.dumps(radius)}")
        norm = entry.get("norm", 2)
        if norm not in (2, "max"):
            self.refuse("ball", f'has norm {json.dumps(norm)}; use 2 (Euclidean) or "max"')
        return Ball(middle, radius, math.inf if norm == "max" else 2)

    def _object(self, key: str, value: Any, known: Sequence[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.refuse(key, f"must be an object with {', '.join(known)}, got {json.dumps(value)}")
        for name in value:
            if name not in known:
                hint = did_you_mean(name, known)
                self.refuse(key, f"has the unknown part {name!r}{hint}; use {', '.join(known)}")
        return value

    def _point(self, key: str, value: Any, rest: Array | None) -> Array:
        """A value per feature from {feature: value}; those left out are taken from `rest`."""
        features = self.subject.features
        if not isinstance(value, dict):
            self.refuse(key, f"needs {{feature: value, ...}}, got {json.dumps(value)}")
        point = self._values(key, value, features, "feature")
        missing = [name for name in features if name not in point]
        if missing and rest is None:
            self.refuse(key, f"must name a value for every feature, it lacks {listed(missing)}")
        if rest is None:
            return np.array([point[name] for name in features])
        return np.array([point.get(name, rest[i]) for i, name in enumerate(features)])

    def _values(
        self, key: str, value: Mapping[str, Any], known: Sequence[str], what: str
    ) -> dict[str, float]:
        for name, number in value.items():
            if name not in known:
                hint = did_you_mean(name, known)
                self.refuse(key, f"names the unknown {what} {name!r}{hint}; use {listed(known)}")
            if isinstance(number, bool) or not isinstance(number, int | float):
                self.refuse(
                    key, f"gives {what} {name!r} the value {json.dumps(number)}, not a number"
                )
        return {name: float(number) for name, number in value.items()}

    # ---- labels and outputs ------------------------------------------------------------------

    def _labels(self, place: _Place) -> IntArray | int:
        """One class for all inputs, or the class of each from a column (the target if unsaid)."""
        subject = self.subject
        if not subject.classification:
            self.refuse("rule", "speaks of classes, but the task is regression; use linear")
        given = self.entry.get("label")
        if given is not None and canonical(given) in subject.outputs:
            one = subject.outputs.index(canonical(given))
            return one if place.rows is None else np.full(len(place.rows), one)
        if place.table is None:
            known = listed(subject.outputs)
            hint = did_you_mean(str(given), subject.outputs)
            self.refuse("label", f"must be a class ({known}), got {json.dumps(given)}{hint}")
        column = subject.target if given is None else given
        if not isinstance(column, str) or column not in place.table.names:
            hint = did_you_mean(str(column), (*subject.outputs, *place.table.names))
            self.refuse(
                "label",
                f"must be a class ({listed(subject.outputs)}) or a column of {place.table.path}, "
                f"got {json.dumps(column)}{hint}",
            )
        return self._classes_of(place, column)

    def _classes_of(self, place: _Place, column: str) -> IntArray:
        assert place.table is not None
        assert place.rows is not None
        texts = place.table.texts(column)
        numbers = {name: number for number, name in enumerate(self.subject.outputs)}
        for row in place.rows:
            if canonical(texts[row]) not in numbers:
                self.refuse(
                    "label",
                    f"takes column {column!r}, which holds {texts[row]!r} on line "
                    f"{place.table.lines[row]} of {place.table.path}; the classes are "
                    f"{listed(self.subject.outputs)}",
                )
        return np.array([numbers[canonical(texts[row])] for row in place.rows], np.int64)

    def _coefficients(self) -> Array:
        outputs = self.subject.outputs
        value = self.entry.get("coefficients")
        if value is None:
            if len(outputs) > 1:
                self.refuse(
                    "coefficients", f"is missing; give {{output: number}} for {listed(outputs)}"
                )
            return np.ones(1)
        if not isinstance(value, dict) or not value:
            self.refuse("coefficients", f"needs {{output: number}}, got {json.dumps(value)}")
        plain = {canonical(name): number for name, number in value.items()}
        named = self._values("coefficients", plain, outputs, "output")
        return np.array([named.get(name, 0.0) for name in outputs])

    def _output(self) -> int:
        outputs = self.subject.outputs
        given = self.entry.get("output")
        if given is None:
            if len(outputs) > 1:
                self.refuse("output", f"is missing; say whose score: {listed(outputs)}")
            return 0
        if canonical(given) not in outputs:
            hint = did_you_mean(str(given), outputs)
            self.refuse(
                "output", f"must be one of {listed(outputs)}, got {json.dumps(given)}{hint}"
            )
        return outputs.index(canonical(given))

    def _column(self, place: _Place, key: str) -> list[str]:
        assert place.table is not None
        assert place.rows is not None
        name = self._text(key, default="")
        if name not in place.table.names:
            self.refuse(
                key,
                f"must be a column of {place.table.path}, got {name!r}"
                f"{did_you_mean(name, place.table.names)}",
            )
        texts = place.table.texts(name)
        return [texts[row] for row in place.rows]

    # ---- plain values ------------------------------------------------------------------------

    def _number(self, key: str) -> float:
        value = self.entry.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            got = "nothing" if key not in self.entry else json.dumps(value)
            self.refuse(key, f"must be a number, got {got}")
        return float(value)

    def _text(self, key: str, *, default: str) -> str:
        value = self.entry.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, f"must be text, got {json.dumps(value)}")
        return value

    def _choice(self, key: str, known: tuple[str, ...]) -> str:
        value = self.entry.get(key)
        if value not in known:
            got = "nothing" if key not in self.entry else json.dumps(value)
            hint = did_you_mean(str(value), known)
            self.refuse(key, f"must be one of {', '.join(known)}, got {got}{hint}")
        return str(value)
