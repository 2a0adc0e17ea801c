"""Cells cover their region, and what is printed of bounds is never below them."""

from __future__ import annotations

import numpy as np
import pytest

from cg4ai_checker.cells import Cells, check_tree, leaf_cells
from cg4ai_checker.words import at_most


def test_every_float_of_the_root_lies_in_a_leaf():
    random = np.random.default_rng(0)
    lower, upper = np.array([-0.3, 1e-3]), np.array([1.7, 1e9])
    dimensions = np.array([0, 1, -1, 0, -1, -1, 1, -1, -1], np.int16)
    assert check_tree(dimensions, 2, name="x") == 5
    cells = list(leaf_cells(dimensions, lower, upper, chunk=2))
    assert [len(some) for some in cells] == [2, 2, 1]
    low = np.concatenate([some.lower for some in cells])
    high = np.concatenate([some.upper for some in cells])
    points = lower + random.uniform(0, 1, (500, 2)) * (upper - lower)
    points = np.concatenate([points, low, high])
    inside = (points[:, None] >= low) & (points[:, None] <= high)
    assert np.any(np.all(inside, axis=2), axis=1).all()
    assert np.prod(high - low, axis=1).sum() == pytest.approx(np.prod(upper - lower))


def test_radius_covers_both_ends():
    lower, upper = np.array([[0.1, -1e16]]), np.array([[0.1 + 2e-16, 3.0]])
    cells = Cells(lower, upper)
    assert (cells.centre + cells.radius >= upper).all()
    assert (cells.centre - cells.radius <= lower).all()


@pytest.mark.parametrize(
    ("bound", "limit", "shown"),
    [
        (0.1, 1.0, "0.1"),
        (0.8, 0.8, "0.8"),
        (0.1234567891, 1.0, "0.12345679"),
        (0.1234567890001, 1.0, "0.12345679"),
        (123456789.1, 1e9, "123456790"),
        (-0.1234567899, 0.0, "-0.123456789"),
        (0.33333333333, 1 / 3, "0.33333333333"),  # nine digits would be above the limit
        (1.00000000001, 1.0, "1.00000001"),
    ],
)
def test_a_bound_is_never_shown_below_itself(bound, limit, shown):
    assert at_most(bound, limit) == shown
    assert float(shown) >= bound
