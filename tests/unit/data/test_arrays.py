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

DAY = np.datetime64("2020-01-01")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.array([[DAY]]), "datetime64.*turn dates into numbers"),
        (np.array([[DAY]], dtype=object), "datetime64 entries; turn dates"),
        (np.array([[np.timedelta64(1, "s")]]), "timedelta64.*turn dates"),
        ([[datetime(2020, 1, 1), 1.0]], "datetime entries; turn dates"),
        ([[date(2020, 1, 1), 1.0]], "date entries; turn dates"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}), "turn dates"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"]), "b": [1.0]}), "turn dates"),
        (np.array([[1j]]), "complex128; give real and imaginary parts"),
        (np.array([[1j]], dtype=object), "must hold real numbers"),
        (torch.zeros(1, 1, dtype=torch.complex64), "complex64"),
        (torch.zeros(1, 1, device="meta"), "device 'meta'"),
        ([["1"]], "encode text"),
        ([[b"1"]], "encode text"),
        (np.array([["a", 1]], dtype=object), "str entries; encode text"),
        ([[{}]], "must hold real numbers"),
        ([[10**400, 1.0]], "must hold real numbers"),
        (np.zeros((1, 1), "V4"), "must hold real numbers"),
        ([[None]], "must be finite"),
        ([[1, 2], [3]], "unequal length"),
        (3, "a single number"),
        ([1.0], r"reshape\(1, -1\)"),
        (np.zeros((2, 1, 2, 2)), r"flatten each input.*nn\.Unflatten"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused_in_one_line(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        as_matrix(given, "inputs")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_tensors_of_any_real_type_are_taken(kind: torch.dtype) -> None:
    given = torch.tensor([[1, 0]]).to(kind)
    np.testing.assert_array_equal(as_matrix(given, "inputs"), [[1.0, 0.0]])
