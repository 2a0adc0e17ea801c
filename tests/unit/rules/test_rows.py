"""Rows against plain NumPy: values, prices of outputs, choosing some, and several blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.records import IntArray
from cg4ai.rules.rows import (
    ConcaveRows,
    LinearRows,
    RowSet,
    compute_shortfall,
    join_batches,
    merge_batches,
)
from raising import raises


def pointwise(rng: np.random.Generator, *, rows: int = 5, inputs: int = 4) -> LinearRows:
    return LinearRows(
        requirement=2,
        inputs=rng.normal(size=(inputs, 2)),
        coefficients=rng.normal(size=(rows, 3)),
        bounds=rng.normal(size=rows),
        index=rng.integers(0, inputs, rows),
        origin=np.stack([np.arange(rows), np.zeros(rows, int)], axis=1),
    )


def summed(rng: np.random.Generator, *, rows: int = 3, inputs: int = 6) -> LinearRows:
    mixing = rng.normal(size=(rows, inputs)) * (rng.random((rows, inputs)) < 0.6)
    mixing[:, 0] = 1.0
    return LinearRows(
        requirement=1,
        inputs=rng.normal(size=(inputs, 2)),
        coefficients=rng.normal(size=(rows, 3)),
        bounds=rng.normal(size=rows),
        mixing=mixing,
    )


def naive(rows: LinearRows, outputs: np.ndarray) -> np.ndarray:
    """(k, r) -> (m,) by loops."""
    values = np.zeros(len(rows))
    for j in range(len(rows)):
        for k in range(len(rows.inputs)):
            if rows.index is not None:
                share = float(rows.index[j] == k)
            else:
                assert rows.mixing is not None
                share = rows.mixing[j, k]
            values[j] += share * float(rows.coefficients[j] @ outputs[k])
    return values


MAKERS = [pointwise, summed]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(MAKERS))
def test_values_and_their_gradient_agree_with_loops(seed: int, make: object) -> None:
    rng = np.random.default_rng(seed)
    rows = make(rng)  # type: ignore[operator]
    outputs = rng.normal(size=(2, len(rows.inputs), 3))
    values = rows.values(torch.as_tensor(outputs)).numpy()
    assert values.shape == (2, len(rows))
    for own, expected in zip(values, outputs, strict=True):
        np.testing.assert_allclose(own, naive(rows, expected), atol=1e-12)
    weights = rng.random(len(rows))
    point = torch.tensor(outputs[0], requires_grad=True)
    (rows.values(point) @ torch.as_tensor(weights)).backward()
    assert point.grad is not None
    np.testing.assert_allclose(rows.gradient(weights), point.grad.numpy(), atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(MAKERS))
def test_some_of_the_rows_have_the_same_values_at_fewer_inputs(seed: int, make: object) -> None:
    rng = np.random.default_rng(seed)
    rows = make(rng)  # type: ignore[operator]
    outputs = rng.normal(size=(len(rows.inputs), 3))
    chosen = rng.permutation(len(rows))[: rng.integers(1, len(rows) + 1)]
    part = rows.take(chosen)
    assert part.requirement == rows.requirement
    np.testing.assert_array_equal(part.bounds, rows.bounds[chosen])
    if rows.origin is not None:
        np.testing.assert_array_equal(part.origin, rows.origin[chosen])
    kept = [int(np.flatnonzero((rows.inputs == x).all(1))[0]) for x in part.inputs]
    assert len(set(kept)) == len(kept)
    np.testing.assert_allclose(
        part.values(torch.as_tensor(outputs[kept])).numpy(),
        naive(rows, outputs)[chosen],
        atol=1e-12,
    )


@pytest.mark.parametrize("make", MAKERS)
def test_the_blocks_of_a_layout_add_up(make: object) -> None:
    rng = np.random.default_rng(3)
    rows = make(rng)  # type: ignore[operator]
    outputs = torch.as_tensor(rng.normal(size=(len(rows.inputs), 3)))
    blocks = [np.array([2]), np.array([1, 0])]
    parts = [rows.values(outputs[:, torch.as_tensor(p)], p) for p in blocks]
    np.testing.assert_allclose(sum(parts).numpy(), rows.values(outputs).numpy(), atol=1e-12)


def least_minus_label(outputs: Tensor, rows: IntArray) -> Tensor:
    """Concave, and different for each row of the requirement."""
    return outputs.amin(-1) - torch.as_tensor(rows, dtype=outputs.dtype)


def concave(rng: np.random.Generator) -> ConcaveRows:
    return ConcaveRows(
        requirement=0,
        inputs=rng.normal(size=(4, 2)),
        functional=least_minus_label,
        bounds=np.zeros(4),
        positions=np.array([7, 5, 3, 1]),
        origin=np.stack([np.arange(4), np.zeros(4, int)], axis=1),
    )


def test_concave_rows_know_their_position_also_when_chosen() -> None:
    rng = np.random.default_rng(0)
    rows = concave(rng)
    outputs = rng.normal(size=(4, 3))
    expected = outputs.min(1) - [7, 5, 3, 1]
    np.testing.assert_allclose(rows.values(torch.as_tensor(outputs)).numpy(), expected)
    part = rows.take(np.array([3, 1]))
    np.testing.assert_array_equal(part.positions, [1, 5])
    np.testing.assert_array_equal(part.inputs, rows.inputs[[3, 1]])
    kept = torch.as_tensor(outputs[[3, 1]])
    np.testing.assert_allclose(part.values(kept).numpy(), expected[[3, 1]])


def test_concave_rows_need_all_outputs_and_put_them_in_order() -> None:
    def weighted(outputs: Tensor, rows: IntArray) -> Tensor:
        return outputs @ torch.tensor([1.0, 10.0, 100.0], dtype=outputs.dtype)

    rows = ConcaveRows(0, np.zeros((1, 2)), weighted, np.zeros(1), np.zeros(1, int))
    outputs = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    assert rows.values(outputs, np.arange(3)).item() == 321.0
    # a member whose outputs fill positions 2, 0, 1 of the predictor
    assert rows.values(outputs, np.array([2, 0, 1])).item() == 2.0 + 30.0 + 100.0
    with raises(InvalidInput, "unsupported"):
        rows.values(outputs[:, :2], np.array([1, 2]))


def test_layouts_name_every_output_once() -> None:
    layout = Layout((np.array([3, 0]), np.array([1]), np.array([2])))
    assert len(layout) == 3
    assert layout.output_size == 4
    assert Layout.single(3).places(3) is None
    assert Layout((np.array([1, 0]),)).places(2) is not None
    for blocks in ((), (np.array([0, 2]),), (np.array([0, 1]), np.array([1])), (np.array([1]),)):
        with raises(InvalidInput, "invalid-input", "exactly"):
            Layout(blocks)


def test_a_row_set_keeps_batches_in_order() -> None:
    rng = np.random.default_rng(0)
    first, second = pointwise(rng), summed(rng)
    rows = RowSet(Layout.single(3))
    assert len(rows) == 0
    assert rows.split(np.empty(0)) == []
    np.testing.assert_array_equal(rows.bounds, np.empty(0))
    rows.add(first)
    rows.add(second)
    assert len(rows) == 8
    np.testing.assert_array_equal(rows.bounds, np.concatenate([first.bounds, second.bounds]))
    parts = rows.split(np.arange(8.0))
    np.testing.assert_array_equal(parts[0], np.arange(5.0))
    np.testing.assert_array_equal(parts[1], np.arange(5.0, 8.0))


def test_merged_rows_have_the_values_of_their_parts() -> None:
    rng = np.random.default_rng(0)
    parts = [pointwise(rng), pointwise(rng, rows=2, inputs=3), pointwise(rng, rows=4, inputs=1)]
    one = merge_batches(parts)
    outputs = [rng.normal(size=(len(part.inputs), 3)) for part in parts]
    np.testing.assert_allclose(
        one.values(torch.as_tensor(np.concatenate(outputs))).numpy(),
        np.concatenate([naive(part, own) for part, own in zip(parts, outputs, strict=True)]),
    )
    np.testing.assert_array_equal(one.bounds, np.concatenate([part.bounds for part in parts]))


def test_places_say_where_outputs_lie_among_those_of_all_blocks() -> None:
    layout = Layout((np.array([2, 0]), np.array([1])))
    places = layout.places(3)  # outputs of both blocks side by side: a0 a1 - | b0 - -
    assert places is not None
    side_by_side = np.array(["a0", "a1", "", "b0", "", ""])
    assert side_by_side[places].tolist() == ["a1", "b0", "a0"]
    assert Layout((np.array([0, 1]), np.array([2, 3]))).places(2) is None
    assert Layout((np.array([0, 1]), np.array([2]))).places(2) is not None


def test_joined_rows_keep_their_order_and_who_made_them() -> None:
    rng = np.random.default_rng(0)
    first, second = pointwise(rng), pointwise(rng, rows=2, inputs=3)
    positions = np.arange(2)

    def lowest(outputs: Tensor, rows: IntArray) -> Tensor:
        return outputs.amin(-1)

    concave = ConcaveRows(0, rng.normal(size=(2, 2)), lowest, np.zeros(2), positions)
    result = join_batches([first, second, summed(rng), concave, concave, first])
    assert [len(rows) for rows in result] == [len(first) + len(second), 3, 4, len(first)]
    assert first.origin is not None
    assert second.origin is not None
    np.testing.assert_array_equal(result[0].origin, np.concatenate([first.origin, second.origin]))
    assert result[2].origin is None


def test_a_value_that_is_no_number_misses_its_row() -> None:
    rows = RowSet(Layout.single(3), [pointwise(np.random.default_rng(0), rows=5)])
    values = rows.bounds + np.array([0.5, -1e-9, -0.5, np.nan, np.inf])
    missed = compute_shortfall(rows.bounds, values)
    np.testing.assert_array_equal(missed > 1e-6, [False, False, True, True, True])
    np.testing.assert_array_equal(missed > 0, [False, True, True, True, True])


@pytest.mark.parametrize(
    "change",
    [
        {"bounds": np.zeros(4)},
        {"coefficients": np.zeros((4, 3))},
        {"index": np.full(5, 4)},
        {"index": np.full(5, -1)},
        {"index": None},
        {"mixing": np.ones((5, 4))},
        {"index": None, "mixing": np.ones((5, 3))},
    ],
)
def test_linear_rows_that_do_not_fit_are_refused(change: dict[str, object]) -> None:
    """Rules of other packages make rows, too; one that reads a wrong input would be silent."""
    rows = pointwise(np.random.default_rng(0))
    with pytest.raises(InvalidInput):
        replace(rows, **change)  # type: ignore[arg-type]
    assert len(replace(rows, index=None, mixing=np.ones((5, 4)))) == 5
