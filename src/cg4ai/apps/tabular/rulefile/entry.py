"""One object of a rules file, read key by key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cg4ai.apps.csv_tables import CsvTable, as_number, format_list
from cg4ai.apps.tabular.encoding import TableEncoding
from cg4ai.errors import InvalidInput, check_names, did_you_mean
from cg4ai.records import Array

PLACES = ("rows", "box", "ball")
GROUPED = ("rows", "group_column", "output", "tolerance", "between", "margin")
COMMON = ("rule", "name")
KEYS: dict[str, tuple[str, ...]] = {
    "probability": (*PLACES, "label", "at_least"),
    "margin": (*PLACES, "label", "at_least", "form", "separator"),
    "linear": (*PLACES, "coefficients", "at_least", "at_most", "equal", "separator"),
    "quadratic": (*PLACES, "square", "linear", "at_most"),
    "difference": ("rows", "pairs", "output", "at_least"),
    "rate": (*GROUPED, "mean_at_least", "mean_at_most"),
    "decision_rate": (*GROUPED, "of", "at_least", "at_most"),
    "equality": ("coefficients", "equal"),
    "range": ("outputs", "at_least", "at_most"),
    "ordered": ("outputs",),
    "sum_to": ("outputs", "total", "at_least"),
    "monotone": ("features", "output", "ordered"),
    "curvature": ("features", "output"),
}


@dataclass(frozen=True)
class Subject:
    """What rules speak about.

    `outputs` are the names of the classes, of quantiles, or the target column alone; `lower`
    and `upper` (d,) the range of each feature in the training data; `table` the data that row
    numbers refer to, None if there is none. `logits`: scores of classes are logits.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    lower: Array
    upper: Array
    target: str
    classification: bool
    table: CsvTable | None = None
    logits: bool = False
    encoding: TableEncoding | None = None

    def inputs(self, table: CsvTable) -> Array:
        """The features (n, d) of a table; without an encoding all its columns hold numbers."""
        if self.encoding is None:
            return table.get_numbers(self.features)
        return self.encoding.inputs(table)


def normalise_label(label: object) -> str:
    """One spelling per class: whole numbers lose their decimal point, other texts stay."""
    text = str(label).strip()
    value = as_number(text)
    return str(int(value)) if value is not None and value == int(value) else text


def kind_of(value: object) -> str:
    """What JSON calls a value, for messages."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true/false"}
    return "null" if value is None else kinds.get(type(value), "a number")


class Entry:
    """One object of the file and its plain values; what is wrong is refused by rule and key."""

    def __init__(self, path: Path, number: int, content: Any, subject: Subject) -> None:
        self.path = path
        self.rule_number = number
        self.subject = subject
        self.kind = "?"
        if not isinstance(content, dict):
            self.refuse(None, f"must be an object {{...}}, got {kind_of(content)}")
        self.content: dict[str, Any] = content
        self.kind = self.choice("rule", tuple(KEYS))
        known = (*COMMON, *KEYS[self.kind])
        for key in content:
            if key not in known:
                self.refuse(key, f"is unknown{did_you_mean(key, known)}; use {format_list(known)}")
        self.name = self.text("name", default=f"rule {number} ({self.kind})")
        check_names([self.name], f"{path}, rule {number}")

    def refuse(self, key: str | None, what: str) -> NoReturn:
        kind = "" if self.kind == "?" else f" ({self.kind})"
        where = "" if key is None else f", key {key!r}"
        raise InvalidInput(f"{self.path}, rule {self.rule_number}{kind}{where} {what}")

    def number(self, key: str) -> float:
        value = self.content.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            got = "nothing" if key not in self.content else json.dumps(value)
            self.refuse(key, f"must be a number, got {got}")
        return float(value)

    def text(self, key: str, *, default: str) -> str:
        value = self.content.get(key, default)
        if not isinstance(value, str):
            self.refuse(key, f"must be text, got {json.dumps(value)}")
        return value

    def choice(self, key: str, known: tuple[str, ...]) -> str:
        value = self.content.get(key)
        if value not in known:
            got = "nothing" if key not in self.content else json.dumps(value)
            hint = did_you_mean(str(value), known)
            self.refuse(key, f"must be one of {', '.join(known)}, got {got}{hint}")
        return str(value)

    def parts(self, key: str, value: Any, known: Sequence[str]) -> dict[str, Any]:
        """`value` as an object that has no other parts than the known ones."""
        if not isinstance(value, dict):
            self.refuse(key, f"must be an object with {', '.join(known)}, got {json.dumps(value)}")
        for name in value:
            if name not in known:
                hint = did_you_mean(name, known)
                self.refuse(key, f"has the unknown part {name!r}{hint}; use {', '.join(known)}")
        return value

    def values(
        self, key: str, value: Mapping[str, Any], known: Sequence[str], what: str
    ) -> dict[str, float]:
        """A number for each name of `value`; `what` the known names are is said in messages."""
        for name, number in value.items():
            if name not in known:
                if what == "feature":
                    self._refuse_text(key, name)
                hint = did_you_mean(name, known)
                self.refuse(
                    key, f"names the unknown {what} {name!r}{hint}; use {format_list(known)}"
                )
            if isinstance(number, bool) or not isinstance(number, int | float):
                self.refuse(
                    key, f"gives {what} {name!r} the value {json.dumps(number)}, not a number"
                )
        return {name: float(number) for name, number in value.items()}

    def _refuse_text(self, key: str, name: str) -> None:
        """Refuse the name of a column of text: its features are those of its values."""
        encoding = self.subject.encoding
        for column in () if encoding is None else encoding.columns:
            if column.name == name and column.kind == "text":
                self.refuse(
                    key,
                    f"names the column {name!r}, which holds text: each of its values is a feature "
                    f"of its own, 1 where it stands and else 0; name one of these "
                    f"({format_list(column.features)}), or write the column as numbers where "
                    "its values "
                    "have an order",
                )
