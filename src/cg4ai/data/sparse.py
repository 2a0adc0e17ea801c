"""Products with fixed matrices that are mostly zeros: on a CPU several times quicker than dense.

GPUs multiply dense matrices of these sizes about as quickly, and exported programs know no sparse
ones, so there, and for small matrices, products are dense.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from cg4ai.data.arrays import is_traced
from cg4ai.records import Array

LEAST_ENTRIES = 2**15  # of a matrix; products of smaller ones take no time
MOST_FULL = 0.1  # share of entries that are not zero


def is_mostly_zeros(matrix: Array) -> bool:
    """Whether products with this matrix are quicker in sparse form."""
    return matrix.size >= LEAST_ENTRIES and int((matrix != 0).sum()) <= MOST_FULL * matrix.size


def plan_product(matrix: Array) -> Callable[[Array], Array]:
    """Vectors (..., r) -> their products with a matrix (m, r), (..., m), for few, by NumPy."""
    if not is_mostly_zeros(matrix):
        dense = np.ascontiguousarray(matrix.T)
        return lambda vectors: vectors.dot(dense)
    row, column = np.nonzero(matrix)
    value, (filled, start) = matrix[row, column], np.unique(row, return_index=True)

    def multiply(vectors: Array) -> Array:
        sums = np.add.reduceat(vectors.take(column, axis=-1) * value, start, axis=-1)
        if len(filled) == len(matrix):
            return sums
        made = np.zeros((*vectors.shape[:-1], len(matrix)))
        made[..., filled] = sums
        return made

    return multiply


class SparseMatrix:
    """A fixed matrix (m, r); its products can be differentiated by what it is multiplied with.

    Only what is not zero is kept.
    """

    def __init__(self, matrix: Array) -> None:
        self.matrix = sparse.csr_array(matrix)
        self._tensors: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    @classmethod
    def of(cls, matrix: Array) -> SparseMatrix | None:
        """None where dense products are as quick."""
        return cls(matrix) if is_mostly_zeros(matrix) else None

    def can_multiply(self, values: Tensor) -> bool:
        """Whether `multiply` may be called with these values: on a CPU, and not while tracing."""
        return values.device.type == "cpu" and not is_traced()

    def multiply(self, values: Tensor) -> Tensor:
        """(..., r, n) -> (..., m, n), `matrix @ values`."""
        *stacked, size, count = values.shape
        flat = values.reshape(-1, size, count).transpose(0, 1).reshape(size, -1)
        product: Tensor = _Product.apply(flat, *self._on(values.dtype))  # type: ignore[no-untyped-call]
        rows = self.matrix.shape[0]
        return product.view(rows, -1, count).transpose(0, 1).reshape(*stacked, -1, count)

    def _on(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if dtype not in self._tensors:
            with torch.inference_mode(False), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that sparse tensors are new to torch
                both = (self.matrix, self.matrix.T.tocsr())
                self._tensors[dtype] = (_as_tensor(both[0], dtype), _as_tensor(both[1], dtype))
        return self._tensors[dtype]

    def __getstate__(self) -> dict[str, Any]:
        return {"matrix": self.matrix, "_tensors": {}}


def _as_tensor(matrix: Any, dtype: torch.dtype) -> Tensor:
    starts, columns = (
        torch.tensor(part, dtype=torch.int64) for part in (matrix.indptr, matrix.indices)
    )
    values = torch.tensor(matrix.data, dtype=dtype)
    return torch.sparse_csr_tensor(starts, columns, values, matrix.shape)


class _Product(torch.autograd.Function):
    """`matrix @ values`; the transposed matrix is at hand, torch would make it at every step."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed @ gradients[0].contiguous(), None, None
