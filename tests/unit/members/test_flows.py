"""Flow members against flows computed one input at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members import FlowMembers, concatenate, restore
from cg4ai.records import Array
from raising import raises


def made(seed: int = 0) -> FlowMembers:
    """Two cells, three outputs in two groups, two inputs."""
    random = np.random.default_rng(seed)
    return FlowMembers(
        feature=[[1, 0, 0]],
        threshold=[[0.5, 0.0, 0.0]],
        left=[[1, 1, 2]],
        right=[[2, 1, 2]],
        slope=random.normal(size=(1, 3, 3, 2)),
        offset=random.normal(size=(1, 3, 3)),
        group=[0, 0, 1],
    )


def by_hand(members: FlowMembers, x: Array) -> Array:
    own = {name: value.numpy() for name, value in members.tensors().items()}
    node = 1 if x[1] <= 0.5 else 2
    flow = np.maximum(own["slope"][0, node] @ x + own["offset"][0, node], 0.0)
    result = np.empty(3)
    for group in (0, 1):
        here = own["group"] == group
        total = flow[here].sum()
        result[here] = flow[here] / total if total > 0 else 1 / here.sum()
    return result


def test_outputs_are_flows_over_their_sums() -> None:
    members = made()
    inputs = np.random.default_rng(1).uniform(0, 1, (50, 2))
    inputs[0, 1] = 0.5  # at the threshold: left
    outputs = members.outputs(torch.as_tensor(inputs))[0].numpy()
    assert outputs == pytest.approx(np.array([by_hand(members, x) for x in inputs]), abs=1e-12)


def test_states_stacks_and_choices_keep_outputs() -> None:
    members, other = made(), made(3)
    inputs = torch.rand(7, 2, dtype=torch.float64)
    again = restore(members.state())
    assert torch.equal(again.outputs(inputs), members.outputs(inputs))
    both = concatenate([members, other])
    assert both is not None
    assert torch.equal(both.take(np.array([1])).outputs(inputs), other.outputs(inputs))
    assert both.take(np.array([], int)).outputs(inputs).shape == (0, 7, 3)


def test_gradients_reach_inputs() -> None:
    inputs = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    made().outputs(inputs).square().sum().backward()
    assert inputs.grad is not None


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("left", [[0, 1, 2]], "range"),
        ("feature", [[2, 0, 0]], "range"),
        ("group", [0, 0], "shape"),
        ("slope", np.zeros((1, 3, 3)), "shape"),
    ],
)
def test_arrays_that_are_no_flows_are_refused(name: str, value: object, code: str) -> None:
    arrays = {key: tensor.numpy() for key, tensor in made().tensors().items()}
    with raises(InvalidInput, code):
        FlowMembers(**{**arrays, name: np.array(value)})
