"""Branch and bound on scripted bounds: the tree, its order, resuming, cells too small to halve."""

import numpy as np
import torch

from cg4ai.proofs.bounds.bound import CellBound
from cg4ai.proofs.bounds.search import Search


def width_bound(peak):
    """An exact bound of -|x - peak|_1 over each cell; halves the widest coordinate."""

    def bound(cells):
        gap = torch.maximum(cells.lower - peak, peak - cells.upper).clamp_min(0.0)
        width = cells.upper - cells.lower
        loose = width.amax(-1)
        return CellBound(loose - gap.sum(-1), width, torch.ones_like(width))

    return bound


def leaves(dimensions, lower, upper):
    """Corners of the leaves of a tree in preorder."""
    stack, result = [(lower, upper)], []
    for dimension in dimensions:
        low, high = stack.pop()
        if dimension < 0:
            result.append((low, high))
            continue
        middle = 0.5 * (low[dimension] + high[dimension])
        left_high, right_low = high.copy(), low.copy()
        left_high[dimension] = right_low[dimension] = middle
        stack += [(right_low, high), (low, left_high)]
    assert not stack
    return result


def start():
    return Search(0.3, 0.01, lower=np.zeros(2), upper=np.array([1.0, 2.0]))


def run(search, steps=1000, count=3):
    for _ in range(steps):
        if not search.open:
            break
        search.step(count, width_bound(torch.tensor([0.3, 1.1])), outside=None)
    return search


def test_leaves_cover_the_root_and_carry_their_own_bounds():
    search = run(start())
    dimensions, bounds, _ = search.preorder()
    cells = leaves(dimensions, np.zeros(2), np.array([1.0, 2.0]))
    assert len(cells) == len(bounds) == (search.cells + 1) // 2
    assert sum(np.prod(high - low) for low, high in cells) == 2.0
    for (low, high), bound in zip(cells, bounds, strict=True):
        own = width_bound(torch.tensor([0.3, 1.1]))
        again = own(type("C", (), {"lower": torch.as_tensor(low), "upper": torch.as_tensor(high)}))
        assert bound <= float(again.upper) + 0.01 + 1e-15
    assert search.bound <= 0.3
    assert search.bound == bounds.max()


def test_resuming_ends_with_the_same_leaves():
    whole = run(start())
    half = run(start(), steps=4)
    dimensions, bounds, _ = half.preorder()
    again = start()
    again.resume(dimensions, bounds, cells=half.cells)
    assert again.open == half.open
    run(again)
    assert again.cells == whole.cells
    assert [part.tolist() for part in again.preorder()] == [
        part.tolist() for part in whole.preorder()
    ]


def test_cells_outside_are_closed_without_a_bound():
    search = start()
    search.step(1, width_bound(torch.tensor([0.3, 1.1])), outside=lambda low, high: low[:, 0] < 9)
    assert search.open == 0
    assert search.bound == -np.inf


def test_a_bound_that_is_no_number_closes_nothing():
    search = start()

    def broken(cells):
        nan = torch.full((len(cells.lower),), torch.nan, dtype=torch.float64)
        return CellBound(nan, cells.upper - cells.lower, cells.upper)

    search.step(1, broken, outside=None)
    assert search.open == 2
    assert search.bound == np.inf


def test_points_stay_open_but_do_not_hang():
    search = Search(0.3, 0.0, lower=np.ones(2), upper=np.ones(2))
    for _ in range(3):
        search.step(
            4,
            lambda c: CellBound(torch.ones(len(c.lower)), c.upper - c.lower, c.upper),
            outside=None,
        )
    assert search.open == 1
    assert search.waiting == 0
    assert search.cells == 1  # bounded once, not again and again
    assert search.bound == 1.0
    lower, upper, bounds = search.open_cells()
    assert lower.tolist() == upper.tolist() == [[1.0, 1.0]]
    assert bounds.tolist() == [1.0]
    dimensions, leaf_bounds, _ = search.preorder()
    again = Search(0.3, 0.0, lower=np.ones(2), upper=np.ones(2))
    again.resume(dimensions, leaf_bounds, cells=1)
    assert again.open == 1
