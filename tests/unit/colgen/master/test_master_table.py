"""What a linear master refuses, before anything is changed."""

from __future__ import annotations

import numpy as np
import pytest
from linear_programs import one_block

from cg4ai.colgen.master import NO_SLACK, OWN_SLACK
from cg4ai.errors import InvalidInput
from raising import raises


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coefficients": np.zeros((1, 3))}, "shape"),
        ({"coefficients": np.array([[0.0, np.nan]])}, "finite"),
        ({"bounds": np.array([np.inf])}, "finite"),
        ({"slack": np.array([0.5])}, "integers"),
        ({"slack": np.array([NO_SLACK])}, "infeasible"),
        ({"slack": np.array([-3])}, "slack must be"),
        ({"epigraph": np.array([0])}, "add_epigraph"),
    ],
)
def test_wrong_rows_are_refused_and_change_nothing(change, words):
    master = one_block()
    row = {
        "coefficients": np.zeros((1, 2)),
        "bounds": np.zeros(1),
        "slack": np.array([OWN_SLACK]),
        "epigraph": None,
    }
    with pytest.raises(InvalidInput, match=words):
        master.add_rows(**{**row, **change})
    assert master.n_rows == 1
    master.add_rows(**row)
    assert master.n_rows == 2


def test_wrong_columns_and_epigraphs_of_another_floor_are_refused():
    master = one_block()
    with raises(InvalidInput, "invalid-input"):
        master.add_columns(np.zeros(1), np.array([1]), np.zeros((1, 1)))
    with raises(InvalidInput, "invalid-input", "shape"):
        master.add_columns(np.zeros(1), np.array([0]), np.zeros((2, 1)))
    with raises(InvalidInput, "invalid-input"):
        master.add_epigraph(np.array([-1.0]), 0.0)
    master.add_epigraph(np.array([1.0]), 0.0)
    with raises(InvalidInput, "invalid-input", "floor"):
        master.add_epigraph(np.array([1.0]), 0.5)
