"""Empty cells, booleans and text of a CSV file become features, of new data as of the old."""

import json
from pathlib import Path

import numpy as np
import pytest

from cg4ai.apps.csv_tables import CsvTable, read_csv
from cg4ai.apps.tabular.encoding import TableEncoding
from cg4ai.errors import InvalidInput
from raising import raises

DATA = "age,member,town\n30,true,Ulm\n,False,Bonn\n50,,Ulm\n40,yes,\n"
NAMES = ("age", "member", "town")


def table(folder: Path, text: str) -> CsvTable:
    path = folder / "data.csv"
    path.write_text(text)
    return read_csv(path)


def test_cells_of_every_kind_are_encoded(tmp_path: Path) -> None:
    data = table(tmp_path, DATA)
    encoding = TableEncoding.from_table(data, NAMES)
    assert encoding.features == (
        *("age", "age is empty", "member", "member is empty"),
        *("town=Bonn", "town=Ulm", "town is empty"),
    )
    expected = [
        [30, 0, 1, 0, 0, 1, 0],
        [40, 1, 0, 0, 1, 0, 0],
        [50, 0, 1, 1, 0, 1, 0],
        [40, 0, 1, 0, 0, 0, 1],
    ]
    np.testing.assert_array_equal(encoding.inputs(data), expected)


def test_new_data_are_encoded_as_the_old(tmp_path: Path) -> None:
    known = TableEncoding.from_table(table(tmp_path, DATA), NAMES)
    restored = TableEncoding.from_record(json.loads(json.dumps(known.to_record())))
    assert restored == known
    new = table(tmp_path, "town,age,member\nRome,,no\n")
    np.testing.assert_array_equal(known.inputs(new), [[40, 1, 0, 0, 0, 0, 0]])


def test_numbers_alone_stay_as_they_are(tmp_path: Path) -> None:
    data = table(tmp_path, "a,b\n1,2\n3,4.5\n")
    encoding = TableEncoding.from_table(data, ("b", "a"))
    assert encoding.features == ("b", "a")
    np.testing.assert_array_equal(encoding.inputs(data), data.get_numbers(["b", "a"]))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("age\n1\n2\nthree\n", "type"),
        ("age\n \n \n", "empty"),
        ("age\n" + "".join(f"person {n}\n" for n in range(60)), "range"),
    ],
)
def test_columns_that_make_no_feature_are_refused(tmp_path: Path, text: str, code: str) -> None:
    data = table(tmp_path, text)
    with raises(InvalidInput, code):
        TableEncoding.from_table(data, ("age",)).inputs(data)
