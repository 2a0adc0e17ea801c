"""Whatever is given as inputs becomes plain numbers, or one line says why not."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from cg4ai.data.arrays import as_matrix
from cg4ai.errors import InvalidInput
from raising import raises

DAY = np.datetime64("2020-01-01")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (np.array([[DAY]]), "type"),
        (np.array([[DAY]], dtype=object), "type"),
        (np.array([[np.timedelta64(1, "s")]]), "type"),
        ([[datetime(2020, 1, 1), 1.0]], "type"),
        ([[date(2020, 1, 1), 1.0]], "type"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}), "type"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]), "b": [1.0]}), "type"),
        (np.array([[1j]]), "type"),
        (np.array([[1j]], dtype=object), "type"),
        (torch.zeros(1, 1, dtype=torch.complex64), "type"),
        (torch.zeros(1, 1, device="meta"), "type"),
        ([["1"]], "type"),
        ([[b"1"]], "type"),
        (np.array([["a", 1]], dtype=object), "type"),
        ([[{}]], "type"),
        ([[10**400, 1.0]], "type"),
        (np.zeros((1, 1), "V4"), "type"),
        ([[None]], "not-finite"),
        ([[1, 2], [3]], "shape"),
        (3, "shape"),
        ([1.0], "shape"),
        (np.zeros((2, 1, 2, 2)), "shape"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused_in_one_line(given: Any, code: str) -> None:
    with raises(InvalidInput, code) as caught:
        as_matrix(given, "inputs")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_tensors_of_any_real_type_are_taken(kind: torch.dtype) -> None:
    given = torch.tensor([[1, 0]]).to(kind)
    np.testing.assert_array_equal(as_matrix(given, "inputs"), [[1.0, 0.0]])
