"""Rows as JSON become the table that the same rows in CSV become, or are refused by row."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cg4ai.apps.csv_tables import csv_table
from cg4ai.apps.json_tables import parse_json, read_table, rows_of_document
from cg4ai.errors import MOST_COMPARED, InvalidInput, did_you_mean
from raising import raises

REQUEST = Path("the request")
NAMES = st.text("abc xyz", min_size=1).map(str.strip).filter(bool)
CELLS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**30), 10**30),
    st.text(st.characters(exclude_categories=("C", "Z"))),
)


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), st.data())
def test_the_same_table_as_from_csv(names: list[str], data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.tuples(*(CELLS for _ in names)), min_size=1, max_size=5))
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    stream = io.StringIO()
    csv.writer(stream).writerows([names, *lines])
    table = rows_of_document(json.dumps(rows).encode(), REQUEST)
    expected = csv_table(stream.getvalue().encode(), REQUEST)
    assert table.names == expected.names
    assert table.cells == expected.cells


def test_columns_go_by_name_and_literals_become_cells() -> None:
    rows = [{"a": 1, "b": None}, {"b": True, "a": 2.50}, {"a": "x ", "b": False}]
    table = rows_of_document(json.dumps({"rows": rows}).encode(), REQUEST)
    assert table.cells_of("a") == ["1", "2.5", "x"]
    assert table.cells_of("b") == ["", "true", "false"]
    assert table.format_line(2) == "row 3"


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        ("", ["not valid JSON"]),
        ("{", ["not valid JSON"]),
        ('[{"a": 1}] x', ["not valid JSON"]),
        (b'[{"a": "\xff"}]', ["not valid JSON", "utf-8"]),
        ("[" * 100_000, ["nested too deeply"]),
        ("5", ["a number or text for its rows"]),
        ("null", ["null for its rows"]),
        ("{}", ["null for its rows"]),
        ('{"rows": {"a": 1}}', ["an object for its rows"]),
        ('{"row": []}', ["unknown key 'row'", "did you mean 'rows'"]),
        ("[]", ["no rows"]),
        ("[[1]]", ["row 1 is a list"]),
        ('[{"a": 1}, 5]', ["row 2 is a number or text"]),
        ("[{}]", ["row 1 has no columns"]),
        ('[{"a": 1, "b": 2, "a": 2}]', ["'a' stands twice"]),
        ('[{"a": 1, " a": 2}]', ["differ only in spaces"]),
        ('[{"a": 1, "b": 2}, {"a": 1}]', ["row 2 lacks b"]),
        ('[{"a": 1}, {"a": 1, "b": 2}]', ["row 2 has others than row 1"]),
        ('[{"a": 1}, {"a": [1]}]', ["row 2, column 'a' is a list"]),
        ('[{"a": {"b": 1}}]', ["row 1, column 'a' is an object"]),
    ],
)
def test_what_is_no_table_is_refused_by_row(document: str | bytes, parts: list[str]) -> None:
    data = document if isinstance(document, bytes) else document.encode()
    with pytest.raises(InvalidInput) as caught:
        rows_of_document(data, REQUEST)
    assert all(part in str(caught.value) for part in ["the request", *parts]), caught.value


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "9" * 5000, '"x"', "true"])
def test_no_finite_number_is_refused_in_the_words_of_csv(value: str) -> None:
    document = f'[{{"a": 1}}, {{"a": 2}}, {{"a": {value}}}]'
    with raises(InvalidInput, "not-finite", "row 3") as said:
        rows_of_document(document.encode(), REQUEST).get_numbers(["a"])
    with pytest.raises(InvalidInput) as expected:
        csv_table(f"a\n1\n2\n{value}\n".encode(), REQUEST).get_numbers(["a"])
    assert str(said.value) == str(expected.value).replace("line 4", "row 3")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.csv", "a,b\n1,2\n"),
        ("data.json", '[{"a": 1, "b": 2}]'),
        ("data.JSON", '\ufeff{"rows": [{"a": 1, "b": 2}]}'),
        ("-", "a,b\n1,2\n"),
        ("-", '\ufeff \n[{"a": 1, "b": 2}]'),
        ("-", '{"rows": [{"a": 1, "b": 2}]}'),
    ],
)
def test_files_and_standard_input_in_either_form(tmp_path: Path, name: str, text: str) -> None:
    if name == "-":
        table = read_table(Path(name), text.encode())
        assert str(table.path) == "standard input"
    else:
        (tmp_path / name).write_text(text)
        table = read_table(tmp_path / name)
    assert (table.names, table.cells) == (("a", "b"), [["1", "2"]])


def test_numbers_keep_their_digits() -> None:
    content: Any = parse_json(b'[0.1000, 12345678901234567890.5, 1e-400, "0.5"]', "the request")
    assert content == ["0.1000", "12345678901234567890.5", "1e-400", "0.5"]


def test_a_million_names_are_not_all_compared() -> None:
    """A row of the length that a server reads would keep it busy for half a minute."""
    names = (f"c{number}" for number in range(1_000_000))
    assert did_you_mean("c10000000", names)
    assert next(names) == f"c{MOST_COMPARED}"
