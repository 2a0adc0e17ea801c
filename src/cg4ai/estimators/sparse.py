"""Inputs too large for one dense array, sparse or in a file: whole only where that fits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse

from cg4ai.errors import InvalidInput
from cg4ai.records import Array

ROWS = 16_384  # predicted at once
COPIES = 3  # of the data that training holds: rows to train on, merged and as they came


def dense(inputs: Any) -> Array:
    """(n, d) as an array; refused where a few copies of it would not fit into free memory."""
    if not issparse(inputs):
        return np.asarray(inputs)
    need, free = COPIES * 8.0 * inputs.shape[0] * inputs.shape[1], free_bytes()
    if need > free:
        raise InvalidInput(
            f"sparse X {inputs.shape} needs {need / 2**30:.1f} GiB as a dense array with its "
            f"copies, and {free / 2**30:.1f} GiB are free; take fewer features first, for instance "
            "by TruncatedSVD or SelectKBest in a pipeline"
        )
    return np.asarray(inputs.toarray())


def dense_parts(inputs: Any) -> Iterator[Array]:
    """The rows (n, d) as arrays, some at a time where they are sparse."""
    if not issparse(inputs):
        yield np.asarray(inputs)
        return
    for start in range(0, inputs.shape[0], ROWS):
        yield np.asarray(inputs[start : start + ROWS].toarray())


def file_parts(inputs: Any) -> Iterator[Any]:
    """The rows as they are; of an array that lies in a file, some at a time."""
    if not isinstance(inputs, np.memmap) or inputs.ndim != 2:
        yield inputs
        return
    for start in range(0, len(inputs), ROWS):
        yield inputs[start : start + ROWS]


def free_bytes() -> float:
    """Free memory, where the system tells; else infinite."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")
