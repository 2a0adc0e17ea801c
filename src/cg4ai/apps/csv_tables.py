"""CSV files as the commands read them: a header, then cells that are checked when used."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array
from cg4ai.runs.files import read_given


@dataclass(frozen=True)
class CsvTable:
    """The texts of a CSV file; `lines[i]` is the line of the file on which row i ends.

    What came otherwise, such as the rows of `cg4ai.apps.json_tables`, says so in place of a path,
    and counts in another `unit` than lines.
    """

    path: Path
    names: tuple[str, ...]
    cells: list[list[str]] = field(repr=False)
    lines: list[int] = field(repr=False)
    sha256: str = ""
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.cells)

    def drop_first(self, count: int) -> CsvTable:
        """The rows after the first `count`, with the lines that they stand on."""
        return replace(self, cells=self.cells[count:], lines=self.lines[count:])

    def format_line(self, row: int) -> str:
        """`line 3`: where a row stands."""
        return f"{self.unit} {self.lines[row]}"

    def find_column(self, name: str) -> int:
        """Where a column stands; InvalidInput with the closest name if there is none."""
        if name not in self._positions:
            raise InvalidInput(
                f"{self.path} has no column {name!r}{did_you_mean(name, self.names)}; it has "
                f"{format_list(self.names)}",
                code="unknown-name",
            )
        return self._positions[name]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def cells_of(self, name: str) -> list[str]:
        """One column as it stands in the file, empty cells too."""
        place = self.find_column(name)
        return [row[place] for row in self.cells]

    def refuse_others(self, name: str, fits: Sequence[bool], what: str) -> None:
        """Refuse the first cell of a column that does not fit."""
        for row, fit in enumerate(fits):
            if not fit:
                raise InvalidInput(
                    f"{self.format_position(row, name)} is {self.cells_of(name)[row]!r}, not "
                    f"{what}; "
                    "correct it, empty the cell if it is unknown, or remove the row",
                    code="type",
                )

    def get_texts(self, name: str) -> list[str]:
        """One column as it stands in the file; empty cells are refused."""
        column = self.cells_of(name)
        if "" in column:
            raise InvalidInput(
                f"{self.format_position(column.index(''), name)} is empty; fill it in or remove "
                "the row",
                code="missing-values",
            )
        return column

    def get_numbers(self, names: Sequence[str]) -> Array:
        """Several columns as finite numbers: (rows, len(names)) float64."""
        places = [self.find_column(name) for name in names]
        known = [[as_number(row[place]) for place in places] for row in self.cells]
        if not any(None in row for row in known):
            return np.array(known, np.float64).reshape(len(self), len(places))
        columns = [self._numeric(name) for name in names]  # says what is wrong
        return np.array(columns, np.float64).reshape(len(columns), len(self)).T.copy()

    def _numeric(self, name: str) -> list[float]:
        column = self.get_texts(name)
        values = [as_number(text) for text in column]
        bad = [row for row, value in enumerate(values) if value is None]
        texts = [row for row in bad if not _meant_as_number(column[row])]
        if len(values) > 1 and len(texts) > len(values) / 2:
            raise InvalidInput(
                f"column {name!r} of {self.path} holds text ({self.format_line(texts[0])}: "
                f"{column[texts[0]]!r}), but must hold numbers; encode it as numbers first",
                code="type",
            )
        if bad:
            raise InvalidInput(
                f"{self.format_position(bad[0], name)} is {column[bad[0]]!r}, not a finite number; "
                "correct it or remove the row",
                code="not-finite",
            )
        return [value for value in values if value is not None]

    def format_position(self, row: int, name: str) -> str:
        """`data.csv, line 3, column 'size'`, for messages."""
        return f"{self.path}, {self.format_line(row)}, column {name!r}"


def as_number(text: str) -> float | None:
    """The finite number that a text is, or None; not so 1_000 and digits of other scripts."""
    if "_" in text or not text.isascii():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _meant_as_number(text: str) -> bool:
    """Whether a text is a number to Python, be it NaN or infinite."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def format_list(names: Sequence[str], most: int = 12) -> str:
    """`a, b, c` or the first of many."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def read_csv(path: str | Path) -> CsvTable:
    """A comma-separated file with a header; every row must have as many cells as the header."""
    path = Path(path)
    return csv_table(read_data(path), path)


def read_data(path: Path) -> bytes:
    """All of a data file; InvalidInput if it cannot be read."""
    try:
        return read_given(path)
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path}: {error.strerror or error}; check the name of the data file",
            code="bad-file",
        ) from error


def csv_table(data: bytes, path: Path) -> CsvTable:
    """The table that the bytes of a file hold; `path` is what messages call it."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not a text file in UTF-8 ({error}); save it as UTF-8",
            code="bad-file",
        ) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    cells: list[list[str]] = []
    lines: list[int] = []
    try:
        names = tuple(name.strip() for name in next(reader, []))
        _check_header(path, names)
        for row in reader:
            if not row:
                continue  # a blank line
            if len(row) != len(names):
                raise InvalidInput(
                    f"{path}, line {reader.line_num} has {len(row)} cells, the header has "
                    f"{len(names)}; correct or remove the line",
                    code="shape",
                )
            cells.append([cell.strip() for cell in row])
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InvalidInput(
            f"{path}, line {reader.line_num} is not valid CSV: {error}", code="bad-file"
        ) from error
    if not cells:
        raise InvalidInput(
            f"{path} has a header but no rows; give at least one row of data", code="empty"
        )
    return CsvTable(path, names, cells, lines, hashlib.sha256(data).hexdigest())


def _check_header(path: Path, names: tuple[str, ...]) -> None:
    if not names:
        raise InvalidInput(
            f"{path} is empty; expected a header line and rows of numbers", code="empty"
        )
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise InvalidInput(
            f"{path} is not separated by commas: {names[0]!r}; save it with commas", code="bad-file"
        )
    if "" in names:
        raise InvalidInput(
            f"column {names.index('') + 1} of {path} has no name in the header; give it one",
            code="bad-name",
        )
    double = [name for name in names if names.count(name) > 1]
    if double:
        raise InvalidInput(
            f"the header of {path} names {double[0]!r} more than once; rename one", code="duplicate"
        )
    if all(as_number(name) is not None for name in names):
        raise InvalidInput(
            f"{path} has no header: its first line is all numbers; add column names",
            code="bad-file",
        )
