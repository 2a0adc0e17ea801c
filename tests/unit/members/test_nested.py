"""Members of many classes made of binary ones: what the parts keep, and what survives files."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cg4ai.errors import InvalidInput
from cg4ai.members import NestedMembers, TreeMembers, concatenate, restore
from cg4ai.members.nested_classes import Nesting
from raising import raises

CHANCES = arrays(np.float64, (3, 4), elements=st.floats(0, 1))


def leaves(chances: np.ndarray) -> TreeMembers:
    """Parts (count, classes) that give these numbers whatever the input of one feature is."""
    count, size = chances.shape
    nothing = np.zeros((count, 1, 1), np.int64)
    value = chances.reshape(count, 1, 1, size)
    return TreeMembers(nothing, nothing, left=nothing, right=nothing, value=value, input_size=1)


def composed(parts: np.ndarray, output: int | None) -> np.ndarray:
    members = NestedMembers(leaves(parts), output)
    return members.outputs(torch.zeros(1, 1, dtype=torch.float64))[:, 0].numpy()


def test_one_class_takes_its_chance_and_the_others_share_the_rest() -> None:
    parts = np.array([[0.7, 0.3, 0.0], [0.25, 0.0, 0.75]])
    np.testing.assert_allclose(composed(parts, 1), [[0.7 * 0.25, 0.3, 0.7 * 0.75]], atol=1e-15)


def test_classes_in_order_are_differences_of_sorted_chances() -> None:
    parts = np.array([[0.4, 0.6, 0.0, 0.0], [0.3, 0.0, 0.7, 0.0], [0.9, 0.0, 0.0, 0.1]])
    np.testing.assert_allclose(composed(parts, None), [[0.3, 0.1, 0.5, 0.1]], atol=1e-15)


@given(low=CHANCES, steps=CHANCES)
def test_chances_that_rise_in_every_part_rise_in_the_whole(
    low: np.ndarray, steps: np.ndarray
) -> None:
    before, after = composed(low, None), composed(np.minimum(low + steps, 1), None)
    assert (before >= 0).all()
    np.testing.assert_allclose(before.sum(), 1)
    reached, later = (np.cumsum(one[:, ::-1], axis=1) for one in (before, after))
    assert (later >= reached - 1e-12).all()


def test_members_are_taken_joined_and_saved_with_all_their_parts() -> None:
    random = np.random.default_rng(0)
    parts = random.dirichlet(np.ones(4), 9)
    members = NestedMembers(leaves(parts))
    x = torch.zeros(1, 1, dtype=torch.float64)
    every = members.outputs(x)
    assert len(members) == len(every) == 3
    assert torch.equal(members.take(np.array([2, 0])).outputs(x), every[[2, 0]])
    assert len(members.take(np.zeros(0, np.int64)).outputs(x)) == 0
    joined = concatenate([members, members.take(np.array([1]))])
    assert joined is not None
    assert torch.equal(joined.outputs(x), every[[0, 1, 2, 1]])
    again = restore(members.state())
    assert isinstance(again, NestedMembers)
    assert torch.equal(again.outputs(x), every)
    assert concatenate([members, NestedMembers(leaves(parts[:2]), 1)]) is None
    moved = members.with_tensors(members.tensors())
    assert torch.equal(moved.outputs(x), every)


def test_parts_that_make_no_member_are_refused() -> None:
    with raises(InvalidInput, "shape"):
        NestedMembers(leaves(np.zeros((4, 4))))
    with raises(InvalidInput, "range"):
        Nesting(2)
    state = NestedMembers(leaves(np.zeros((2, 4))), 1).state()
    with raises(InvalidInput, "range"):
        restore(type(state)(state.kind, {**state.config, "nesting": {"output": "x"}}, state.arrays))
