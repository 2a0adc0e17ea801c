"""CSV files: numbers read exactly, and each fault named with file, line and column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cg4ai.apps.csv_tables import as_number, format_list, read_csv
from cg4ai.errors import InvalidInput
from raising import raises


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "data.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_numbers_are_read_in_the_order_asked(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, '\ufeffa, b ,c\n1,"2",x\n\n-1e3, 4.5,y\n'))
    assert table.names == ("a", "b", "c")
    np.testing.assert_array_equal(table.get_numbers(["b", "a"]), [[2, 1], [4.5, -1000]])
    assert table.get_texts("c") == ["x", "y"]
    assert table.lines == [2, 4]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive(value: float) -> None:
    assert as_number(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["is empty"]),
        ("a,b\n", ["no rows"]),
        ("a,a\n1,2\n", ["'a'", "more than once"]),
        ("a,\n1,2\n", ["column 2", "no name"]),
        ("a;b\n1;2\n", ["commas"]),
        ("1,2\n3,4\n", ["no header"]),
        ("a,b\n1,2\n3\n", ["line 3", "1 cells", "2"]),
        ('a,b\n1,"2\n', ["not valid CSV"]),
        (b"a,b\n\xff\xfe,1\n", ["UTF-8"]),
    ],
)
def test_faulty_files_are_refused(tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        read_csv(path)
    message = str(caught.value)
    assert str(path) in message
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("cells", "parts"),
    [
        (["1", "2", "oops", "4"], ["line 4", "column 'a'", "'oops'"]),
        (["1", "nan", "3", "4"], ["line 3", "column 'a'", "'nan'"]),
        (["1", "2", "3", "inf"], ["line 5", "column 'a'", "'inf'"]),
        (["Rome", "Oslo", "3", "Bern"], ["holds text", "line 2", "'Rome'"]),
        (["nan", "-inf", "1e400"], ["line 2", "column 'a'", "'nan', not a finite number"]),
        (["x"], ["line 2", "column 'a'", "'x', not a finite number"]),
        (["1", "1_000", "3"], ["line 3", "column 'a'", "'1_000', not a finite number"]),
        (["1", "\u0663", "3"], ["line 3", "column 'a'", "not a finite number"]),
        (["1", "", "3", "4"], ["line 3", "column 'a'", "is empty"]),
    ],
)
def test_cells_that_are_no_numbers_are_named(
    tmp_path: Path, cells: list[str], parts: list[str]
) -> None:
    table = read_csv(written(tmp_path, "a,b\n" + "".join(f"{cell},0\n" for cell in cells)))
    with pytest.raises(InvalidInput) as caught:
        table.get_numbers(["a"])
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_unknown_columns_and_absent_files(tmp_path: Path) -> None:
    table = read_csv(written(tmp_path, "height,b\n1,2\n"))
    with raises(InvalidInput, "unknown-name", "height"):
        table.get_numbers(["hieght"])
    with raises(InvalidInput, "bad-file", "absent.csv"):
        read_csv(tmp_path / "absent.csv")


def test_long_lists_are_cut() -> None:
    assert format_list(["a", "b"]) == "a, b"
    assert format_list([str(i) for i in range(20)], most=2) == "0, 1 and 18 more"
