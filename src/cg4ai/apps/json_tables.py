"""Rows as JSON: a list of objects by column name, as the same table that a CSV file becomes.

Numbers keep the digits they were written with, so that the same number comes out as from a CSV
file, and what is wrong is refused in the same words, with the row (the first is 1) for the line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cg4ai.apps.csv_tables import CsvTable, csv_table, format_list, read_data
from cg4ai.errors import InvalidInput, did_you_mean

ROWS = "rows"
STANDARD_INPUT = "-"
EXPECTED = 'rows such as [{"column": 1.5, ...}, ...]'
KINDS = {dict: "an object", list: "a list", bool: "true/false", type(None): "null"}


def read_table(path: Path, standard_input: bytes | None = None) -> CsvTable:
    """The rows of a CSV or .json file, or of `-`: bytes that were read from standard input.

    Those are JSON if they begin with a bracket or a brace.
    """
    if str(path) != STANDARD_INPUT:
        data = read_data(path)
        if path.suffix.lower() != ".json":
            return csv_table(data, path)
        return rows_of_document(data, path)
    data, path = standard_input or b"", Path("standard input")
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{"):
        return rows_of_document(data, path)
    return csv_table(data, path)


def rows_of_document(data: bytes, path: Path) -> CsvTable:
    """The table of a JSON file: a list of objects, or an object that has it under `rows`."""
    content = parse_json(data, str(path))
    if isinstance(content, dict):
        refuse_unknown_keys(content, (ROWS,), str(path))
        content = content.get(ROWS)
    return json_table(content, path)


def read_answers(path: Path) -> CsvTable:
    """The rows of predictions that were written as CSV, or as .json in one object."""
    data = read_data(path)
    if path.suffix.lower() != ".json":
        return csv_table(data, path)
    content = parse_json(data, str(path))
    return json_table(content.get(ROWS) if isinstance(content, dict) else content, path)


def parse_json(data: bytes, what: str) -> Any:
    """JSON in UTF-8 with every number as the text it was written as; InvalidInput if it is none."""
    try:
        text = data.decode("utf-8-sig")
        return json.loads(
            text,
            parse_float=str,
            parse_int=str,
            parse_constant=str,
            object_pairs_hook=_once_each,
        )
    except RecursionError as error:
        raise InvalidInput(
            f"{what} is nested too deeply; expected {EXPECTED}", code="bad-file"
        ) from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise InvalidInput(
            f"{what} is not valid JSON: {error}; expected {EXPECTED}", code="bad-file"
        ) from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; JSON leaves open which value counts where a key stands twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        double, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {double!r:.80} stands twice in one object")
    return made


def refuse_unknown_keys(content: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    """InvalidInput for a key that nobody reads."""
    for key in content:
        if key not in known:
            raise InvalidInput(
                f"{what} has the unknown key {key!r:.80}{did_you_mean(key, known)}; use "
                f"{', '.join(known)}",
                code="unknown-name",
            )


def json_table(rows: Any, path: Path) -> CsvTable:
    """Rows that `parse_json` gave; each must have the columns of the first, in any order.

    null is an empty cell, true and false are these words; lists and objects are refused.
    """
    if not isinstance(rows, list):
        raise InvalidInput(
            f"{path} has {kind_of(rows)} for its rows; expected {EXPECTED}", code="bad-file"
        )
    if not rows:
        raise InvalidInput(f"{path} has no rows; give at least one row of data", code="empty")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise InvalidInput(
                f"{path}, row {number} is {kind_of(row)}; expected {EXPECTED}", code="type"
            )
    names = tuple(rows[0])
    _check_names(rows, path)
    cells = [[row[name] for name in names] for row in rows]
    for number, line in enumerate(cells, start=1):
        if not all(type(one) is str for one in line):
            cells[number - 1] = [
                _text(one, f"{path}, row {number}, column {name!r}")
                for name, one in zip(names, line, strict=True)
            ]
    texts = [[one.strip() for one in line] for line in cells]
    stripped = tuple(name.strip() for name in names)
    return CsvTable(path, stripped, texts, list(range(1, len(rows) + 1)), unit="row")


def _check_names(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    first = rows[0].keys()
    if not first:
        raise InvalidInput(f"{path}, row 1 has no columns; expected {EXPECTED}", code="empty")
    if len({name.strip() for name in first}) < len(first):
        raise InvalidInput(
            f"{path}, row 1 has two columns that differ only in spaces; rename one",
            code="duplicate",
        )
    for number, row in enumerate(rows, start=1):
        if row.keys() != first:
            lacks = [name for name in first if name not in row]
            what = f"lacks {format_list(lacks)}" if lacks else "has others than row 1"
            raise InvalidInput(
                f"{path}, row {number} {what}; give every row the same columns, null where a "
                "value is unknown",
                code="shape",
            )


def _text(value: Any, where: str) -> str:
    """A cell as a CSV file would have it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    raise InvalidInput(
        f"{where} is {kind_of(value)}; expected a number, a text, true/false or null", code="type"
    )


def kind_of(value: object) -> str:
    """What JSON calls a value that `parse_json` gave, for messages."""
    return KINDS.get(type(value), "a number or text")
