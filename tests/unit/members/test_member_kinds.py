"""Constant members, and restoring and joining stacks of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members import (
    ConstantMembers,
    ModuleArchitecture,
    NetworkArchitecture,
    affine,
    concatenate,
    restore,
)
from cg4ai.members.feedback import FeedbackArchitecture, Loads
from cg4ai.members.side_by_side import SideBySideArchitecture
from cg4ai.records import MemberState
from raising import raises

NETWORK = NetworkArchitecture(2, 2, hidden=(3,), skip=True, output="softmax", shift=np.ones(2))


def module() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3, momentum=None), torch.nn.Linear(3, 2)
    )


def test_constants_repeat_their_values():
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    members = ConstantMembers(values, 3)
    values[0] = 0.0
    outputs = members.outputs(torch.randn(4, 3, dtype=torch.float64))
    assert outputs.shape == (3, 4, 2)
    assert outputs[:, 0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert torch.equal(outputs[:, 0], outputs[:, 3])
    assert members.take(np.array([2, 0])).values.tolist() == [[5, 6], [1, 2]]
    restored: Any = restore(members.state())
    assert torch.equal(restored.values, members.values)
    assert len(concatenate([members, members.to("cpu")])) == 6


def test_constants_have_a_zero_gradient():
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    ConstantMembers([[1.0, 2.0]], 3).outputs(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("values", [[1.0], [[1.0, np.inf]], np.zeros((2, 0))])
def test_wrong_constants_are_refused(values):
    with pytest.raises(InvalidInput, match="values"):
        ConstantMembers(values, 3)


@pytest.mark.parametrize(
    "architecture",
    [
        NETWORK,
        SideBySideArchitecture(NETWORK, np.eye(2, dtype=bool), (2, 1)),
        FeedbackArchitecture(NETWORK, Loads(np.eye(2), np.zeros(2, np.int64)), 1),
        ModuleArchitecture(module, 2, 2, "module"),
    ],
)
def test_tensors_keep_their_order_whatever_that_of_the_saved_arrays(architecture):
    """Training puts them one after the other, and so do certificates and exported graphs."""
    members = architecture.members(architecture.initialise(2, torch.Generator()))
    saved = members.state()
    turned = MemberState(saved.kind, saved.config, dict(reversed(saved.arrays.items())))
    restored: Any = restore(turned, {"module": module})
    assert list(restored.tensors()) == list(members.tensors())
    assert list(restored.parameters) == list(members.parameters)
    assert list(restored.state().arrays) == list(saved.arrays)


def test_stacks_that_differ_are_not_joined():
    constant = ConstantMembers([[1.0]], 2)
    line = affine(np.zeros((1, 2, 1)), np.zeros((1, 1)))
    deep = NetworkArchitecture(2, 1, hidden=(2,))
    other = deep.members(deep.initialise(1, torch.Generator()))
    assert concatenate([constant, line]) is None
    assert concatenate([line, other]) is None
    assert concatenate([constant, ConstantMembers([[1.0]], 3)]) is None
    assert len(concatenate([line])) == 1
    with raises(InvalidInput, "empty"):
        concatenate([])


def test_unknown_and_damaged_states_are_named():
    with raises(InvalidInput, "unknown-name", "network"):
        restore(MemberState("netwrk", {}, {}))
    with raises(InvalidInput, "bad-file", "values"):
        restore(MemberState("constant", {"input_size": 2}, {}))
    with raises(InvalidInput, "bad-file", "input_size"):
        restore(MemberState("constant", {}, {"values": np.ones((1, 1))}))
