"""Columns of a table as features: numbers as they are, empty cells, booleans and text encoded.

An empty cell of a number is the column's median, and where training data have some, a feature
`COLUMN is empty` says so. True and false are 1 and 0. Text becomes a feature `COLUMN=VALUE` for
each value, 1 where it stands; a value that training data do not have is 0 in all of them. All of
it is in the run's description, so that the commands encode new data alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from cg4ai.apps.csv_tables import CsvTable, as_number
from cg4ai.errors import InvalidInput
from cg4ai.records import Array

MOST_VALUES = 50  # of a column of text: with more it is rather a name than a category
BOOLEANS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


@dataclass(frozen=True)
class Column:
    """How one column is encoded; `fill` stands for empty cells, `values` are those of text."""

    name: str
    kind: Literal["number", "boolean", "text"]
    fill: float = 0.0
    empty: bool = False
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = ("text",) if self.values else ("number", "boolean")
        texts = all(isinstance(one, str) for one in (self.name, *self.values))
        if not texts or self.kind not in kinds:
            raise InvalidInput(
                f"only columns of text have values, texts, got {self!r:.80}", code="type"
            )

    @property
    def features(self) -> list[str]:
        own = [f"{self.name}={value}" for value in self.values] if self.values else [self.name]
        return [*own, f"{self.name} is empty"] if self.empty else own

    def encode(self, table: CsvTable) -> list[Array]:
        """The features (n,) of this column."""
        cells = table.cells_of(self.name)
        if self.kind == "text":
            features = [np.array([cell == value for cell in cells]) for value in self.values]
        elif self.kind == "boolean":
            known = {**BOOLEANS, "1": 1.0, "0": 0.0, "": self.fill}
            table.refuse_others(self.name, [cell.lower() in known for cell in cells], "true/false")
            features = [np.array([known[cell.lower()] for cell in cells])]
        else:
            numbers = [self.fill if cell == "" else as_number(cell) for cell in cells]
            table.refuse_others(self.name, [one is not None for one in numbers], "a finite number")
            features = [np.array(numbers, np.float64)]
        if self.empty:
            features.append(np.array([cell == "" for cell in cells]))
        return features


@dataclass(frozen=True)
class TableEncoding:
    """All columns that are predicted from, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def from_table(cls, table: CsvTable, names: Sequence[str]) -> TableEncoding:
        """How the columns of training data are encoded."""
        return cls(tuple(_column(table, name) for name in names))

    @classmethod
    def from_record(cls, data: Sequence[Mapping[str, Any]] | None) -> TableEncoding | None:
        """What `to_record` gave; None where all columns held numbers."""
        if data is None:
            return None
        return cls(tuple(Column(**{**one, "values": tuple(one["values"])}) for one in data))

    def to_record(self) -> list[dict[str, Any]]:
        """As JSON, for `from_record`."""
        return [{**asdict(column), "values": list(column.values)} for column in self.columns]

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.features)

    def inputs(self, table: CsvTable) -> Array:
        """(n, features) float64."""
        parts = [part for column in self.columns for part in column.encode(table)]
        return np.stack([np.asarray(part, np.float64) for part in parts], axis=1)


def _column(table: CsvTable, name: str) -> Column:
    cells = table.cells_of(name)
    given = [cell for cell in cells if cell != ""]
    empty = len(given) < len(cells)
    if not given:
        raise InvalidInput(
            f"column {name!r} of {table.path} is empty; use --ignore {name!r}", code="empty"
        )
    numbers = [value for value in map(as_number, given) if value is not None]
    if len(numbers) >= len(given) / 2:  # a text among numbers is a mistake, and refused as such
        return Column(name, "number", float(np.median(numbers)), empty)
    if all(cell.lower() in BOOLEANS for cell in given):
        most = np.mean([BOOLEANS[cell.lower()] for cell in given]) >= 0.5
        return Column(name, "boolean", float(most), empty)
    values = tuple(sorted(set(given)))
    if len(values) > MOST_VALUES:
        raise InvalidInput(
            f"column {name!r} of {table.path} holds {len(values)} different texts, at most "
            f"{MOST_VALUES} can be encoded; leave it out with --ignore {name!r}, or group them",
            code="range",
        )
    return Column(name, "text", 0.0, empty, values)
