"""Products with sparse matrices are those with dense ones, forwards and backwards."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from cg4ai.data.sparse import LEAST_ENTRIES, SparseMatrix, is_mostly_zeros

GENERATOR = np.random.default_rng(0)


def matrix(rows: int = 40, columns: int = 1000, full: float = 0.05) -> np.ndarray:
    values = GENERATOR.normal(size=(rows, columns))
    return np.where(GENERATOR.uniform(size=values.shape) < full, values, 0.0)


@pytest.mark.parametrize("shape", [(1000, 7), (3, 1000, 7), (2, 3, 1000, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_and_gradients_are_those_of_the_dense_matrix(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    dense = matrix()
    sparse = SparseMatrix.of(dense)
    assert sparse is not None
    values = torch.randn(shape, dtype=dtype, requires_grad=True)
    weights = torch.randn((*shape[:-2], 40, shape[-1]), dtype=dtype)
    wanted = torch.tensor(dense, dtype=dtype) @ values
    close = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(sparse.multiply(values), wanted, rtol=close, atol=close)
    found, known = (
        torch.autograd.grad((product * weights).sum(), values)[0]
        for product in (sparse.multiply(values), wanted)
    )
    torch.testing.assert_close(found, known, rtol=close, atol=close)


def test_values_that_are_transposed_views_are_right_too() -> None:
    dense = matrix()
    values = torch.randn(5, 1000, dtype=torch.float64)
    found = SparseMatrix(dense).multiply(values.T)
    np.testing.assert_allclose(found.numpy(), dense @ values.numpy().T, atol=1e-12)


def test_small_and_full_matrices_stay_dense() -> None:
    assert SparseMatrix.of(np.eye(100)) is None
    assert SparseMatrix.of(np.ones((200, 200))) is None
    assert is_mostly_zeros(np.eye(200))
    assert np.eye(181).size < LEAST_ENTRIES < np.eye(182).size


def test_a_copy_gives_the_same() -> None:
    made, values = SparseMatrix(matrix()), torch.randn(1000, 3)
    made.multiply(values)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(other.multiply(values), made.multiply(values))
