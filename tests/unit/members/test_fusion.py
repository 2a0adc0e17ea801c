"""Fused modules equal the mixtures they were made from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkArchitecture, fusion, layers
from cg4ai.members.fusion import StackedNetwork, WideNetwork, fuse
from raising import raises


def members_of(architecture, count=6):
    return architecture.members(architecture.initialise(count, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"hidden": ()}, WideNetwork),
        ({"hidden": (5,)}, WideNetwork),
        ({"hidden": (5,), "skip": True, "activation": "gelu"}, WideNetwork),
        ({"hidden": (5, 4), "skip": True, "activation": "tanh"}, StackedNetwork),
        ({"hidden": (), "output": "softmax"}, StackedNetwork),
        ({"hidden": (5,), "output": "softmax", "skip": True}, StackedNetwork),
        ({"hidden": (5, 3), "output": "grouped", "groups": (2, 1)}, StackedNetwork),
    ],
)
def test_equals_the_weighted_sum_of_outputs(changes, kind, monkeypatch):
    architecture = NetworkArchitecture(
        4, 3, shift=np.arange(4.0), scale=np.arange(1.0, 5.0), **changes
    )
    members = members_of(architecture)
    weights = np.array([0.4, 0.0, 0.1, 0.2, 0.0, 0.3])
    x = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.einsum("i,inr->nr", torch.tensor(weights), members.outputs(x))
    module = fuse(members, weights)
    assert isinstance(module, kind)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-12)
    monkeypatch.setattr(layers, "INPUT_CHUNK", 8)
    monkeypatch.setattr(fusion, "HIDDEN_CHUNK", 7)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-12)
    single = module.to(torch.float32)(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-5)


def test_one_hidden_layer_holds_all_active_members():
    module: Any = fuse(
        members_of(NetworkArchitecture(4, 3, hidden=(5,))), np.array([1, 0, 2, 0, 0, 3])
    )
    assert module.hidden.out_features == 15
    assert module.readout.in_features == 15
    assert module.direct is None


@pytest.mark.parametrize("output", ["linear", "softmax"])
def test_survives_saving_its_state_dict_and_trains(output):
    members = members_of(NetworkArchitecture(4, 3, hidden=(5,), output=output))
    x = torch.randn(7, 4, dtype=torch.float64)
    module, other = fuse(members, np.full(6, 1 / 6)), fuse(members, np.linspace(0.1, 1, 6))
    other.load_state_dict(module.state_dict())
    assert torch.equal(module(x), other(x))
    module(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_wrong_weights_are_refused():
    members = members_of(NetworkArchitecture(4, 3, hidden=(5,)))
    with raises(InvalidInput, "range", "zero"):
        fuse(members, np.zeros(6))
    with raises(InvalidInput, "shape"):
        fuse(members, np.ones(5))
