"""Files that users give: what is read of them, and what is said of those that cannot be."""

import numpy as np
import pytest
from five_buses import FIVE

from cg4ai.errors import InvalidInput
from experiments.opf.dispatch import Dispatch
from experiments.opf.grid import build_grid
from experiments.opf.matpower import read_case


@pytest.fixture
def five_text():
    return FIVE


@pytest.fixture
def five(tmp_path):
    path = tmp_path / "five.m"
    path.write_text(FIVE)
    return path


def test_tables_are_read_as_they_stand(five):
    case = read_case(five)
    assert case.base == 100
    assert case.bus.shape == (5, 13)
    assert case.gen.shape == (5, 10)
    assert case.branch.shape == (7, 13)
    assert case.column("bus", "number").tolist() == [1, 2, 3, 4, 7]
    assert case.column("bus", "load").tolist() == [0, 100, 80, 120, -20]
    assert case.costs.tolist() == [[0, 10, 5], [0, 30, 0], [0, 20, 0], [0, 1, 0], [0, 0, 0]]


def test_only_what_is_in_service_counts(five):
    grid = build_grid(read_case(five))
    assert grid.upper.tolist() == [250, 200, 150, 15]
    assert grid.rate.tolist() == [130, 130, 120, 100, 90]  # rateA = 0 is no limit
    assert grid.unlimited == 1
    assert grid.loads.tolist() == [100, 80, 120, -20]
    assert len(grid.notes) == 2
    assert Dispatch(grid, 0.1).moving.tolist() == [True, True, True, False]


def test_isolated_buses_are_left_out_and_said(five, five_text):
    five.write_text(five_text.replace("2 1 100 0", "2 4 100 0"))
    grid = build_grid(read_case(five))
    assert grid.buses == 4
    assert grid.loads.tolist() == [80, 120, -20]
    assert "100 MW" in grid.notes[0]


def test_quadratic_costs_are_read_and_short_rows_are_linear(five, five_text):
    five.write_text(five_text.replace("2 0 0 3 0 10 5;", "2 0 0 3 0.5 10 5;"))
    assert read_case(five).costs[0].tolist() == [0.5, 10, 5]
    rows = five_text.replace("2 0 0 3 0 10 5;", "2 0 0 2 10 5 0;")
    five.write_text(rows)
    assert read_case(five).costs[0].tolist() == [0, 10, 5]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("mpc.gencost = [", "gencost = [", "bad-file"),
        ("mpc.version = '2'", "mpc.version = '1'", "unsupported"),
        ("2 0 0 3 0 10 5;", "1 0 0 3 0 10 5;", "unsupported"),
        ("2 0 0 3 0 10 5;", "2 0 0 3 -1 10 5;", "unsupported"),
        ("2 0 0 3 0 10 5;", "2 0 0 9 0 10 5;", "bad-file"),
        ("2 0 0 3 0 10 5;", "2 0 0 3 0 10;", "bad-file"),
        ("mpc.baseMVA = 100.0;", "", "bad-file"),
        ("1 2 0 0.06 0", "1 2 0 x 0", "bad-file"),
        ("1 2 0 0.06 0", "1 2 0 0.00 0", "range"),
        ("1 2 0 0.06 0", "1 9 0 0.06 0", "bad-file"),
        ("1 250  20;", "1 250 300;", "range"),
        ("1 250  20;", "1 Inf  20;", "range"),
        (" 2 1 100 0", " 1 1 100 0", "bad-file"),
    ],
)
def test_bad_files_say_what_is_wrong(five, five_text, old, new, code):
    assert old in five_text
    five.write_text(five_text.replace(old, new))
    with pytest.raises(InvalidInput) as caught:
        build_grid(read_case(five))
    assert caught.value.code == code


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        read_case(tmp_path / "none.m")
    assert caught.value.code == "bad-file"


def test_an_island_with_load_needs_a_generator(five, five_text):
    cut = five_text.replace("1 2 0 0.06 0 130 0 0 0    0 1", "1 2 0 0.06 0 130 0 0 0    0 0")
    five.write_text(cut.replace("2 3 0 0.03 0   0 0 0 0    0 1", "2 3 0 0.03 0   0 0 0 0    0 0"))
    with pytest.raises(InvalidInput) as caught:
        build_grid(read_case(five))
    assert caught.value.code == "infeasible"


@pytest.mark.parametrize("spread", [0.0, -0.1, np.inf, np.nan])
def test_a_spread_is_a_positive_share(five, spread):
    with pytest.raises(InvalidInput) as caught:
        Dispatch(build_grid(read_case(five)), spread)
    assert caught.value.code == "range"
