"""Mixtures of several blocks at once, and GELU by erf, equal the plain sums they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, layers
from cg4ai.members.mixture import Part
from raising import raises

BLOCKS = np.array([2, 0, 1, 0, 2, 2])
WEIGHTS = np.array([0.25, 0.4, 1.0, 0.6, 0.0, 0.75])
OWN = torch.tensor(BLOCKS)[None] == torch.arange(3)[:, None]
SHARES = OWN * torch.tensor(WEIGHTS)
ARCHITECTURES = [
    {"hidden": (), "output": "softmax"},
    {"hidden": (5,), "activation": "gelu", "skip": True, "output": "softmax"},
    {"hidden": (5, 4), "activation": "gelu", "output": "softmax"},
    {"hidden": (5, 4, 3), "activation": "gelu", "skip": True},
    {"hidden": (5,), "activation": "tanh", "output": "grouped", "groups": (2, 1)},
]


def members_of(changes, count=6, spread=1.0):
    architecture = NetworkArchitecture(
        4, 3, shift=np.arange(4.0), scale=np.arange(1.0, 5.0), **changes
    )
    drawn = architecture.initialise(count, torch.Generator().manual_seed(0))
    return architecture.members({name: spread * value for name, value in drawn.items()})


def inputs_of(count=50):
    return torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def written_out(members, x):
    """Each member's outputs from the definition of the network, one layer after another."""
    architecture, own = members.architecture, members.parameters
    x = (x - torch.tensor(architecture.shift)) / torch.tensor(architecture.scale)
    activate: dict[str, Any] = {"gelu": functional.gelu, "tanh": torch.tanh, "relu": torch.relu}
    results = []
    for i in range(len(members)):
        values = x
        for layer in range(architecture.depth):
            raw = values @ own[f"weight_{layer}"][i].T + own[f"bias_{layer}"][i]
            values = activate[architecture.activation](raw)
        depth = architecture.depth
        scores = values @ own[f"weight_{depth}"][i].T + own[f"bias_{depth}"][i]
        if architecture.skip:
            scores = scores + x @ own["skip"][i].T
        parts = torch.split(scores, list(architecture.softmax_groups or (3,)), dim=1)
        probable = architecture.output != "linear"
        results.append(torch.cat([p.softmax(1) if probable else p for p in parts], dim=1))
    return torch.stack(results)


def summed(values):
    """(members, n, r) -> (blocks, n, r) by the weights, member by member."""
    result = torch.zeros(3, *values.shape[1:], dtype=torch.float64)
    for value, block, weight in zip(values, BLOCKS, WEIGHTS, strict=True):
        result[block] += weight * value
    return result


@pytest.mark.parametrize("spread", [1.0, 20.0])
@pytest.mark.parametrize("changes", ARCHITECTURES)
def test_every_block_gets_its_weighted_sum(changes, spread, monkeypatch):
    members, x = members_of(changes, spread=spread), inputs_of()
    expected = summed(written_out(members, x))
    scale = 1e-13 * max(1.0, float(expected.abs().max()))
    found = members.mixtures(x, SHARES)
    torch.testing.assert_close(found, expected, rtol=0, atol=scale)
    monkeypatch.setattr(layers, "INPUT_CHUNK", 40)
    monkeypatch.setattr(layers, "CPU_CHUNK", 400)
    found = members.mixtures(x, SHARES)
    torch.testing.assert_close(found, expected, rtol=0, atol=scale)


@pytest.mark.parametrize("changes", ARCHITECTURES)
def test_gradients_of_inputs_and_weights_flow(changes):
    members = members_of(changes)
    x, weights = inputs_of().requires_grad_(), torch.tensor(WEIGHTS, requires_grad=True)
    members.mixtures(x, OWN * weights).square().sum().backward()
    other = inputs_of().requires_grad_()
    summed(written_out(members, other)).square().sum().backward()
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-10, atol=1e-12)
    outputs = written_out(members, inputs_of())
    expected = [2 * (outputs[i] * summed(outputs)[b]).sum() for i, b in enumerate(BLOCKS)]
    torch.testing.assert_close(weights.grad, torch.stack(expected), rtol=1e-10, atol=1e-12)


def test_gelu_by_erf_is_gelu_at_all_sizes_of_values():
    values = torch.tensor([*np.linspace(-40, 40, 4001), 0.0, -0.0, 1e-300, -1e300])
    found = layers.erf_unit(values * np.sqrt(0.5)) * np.sqrt(0.5)
    # at -1e300 the share of erf is exactly 0, so is the product
    torch.testing.assert_close(found, functional.gelu(values), rtol=1e-15, atol=1e-14)


def test_few_and_many_inputs_give_the_same():
    members, x = members_of(ARCHITECTURES[1]), inputs_of(2 * layers.ERF_INPUTS)
    one_by_one = torch.cat([members.outputs(row[None]) for row in x], dim=1)
    torch.testing.assert_close(members.outputs(x), one_by_one, rtol=0, atol=1e-14)


def test_ensembles_mix_networks_and_constants_of_other_widths():
    networks, x = members_of(ARCHITECTURES[1]), inputs_of()
    constants = ConstantMembers(np.array([[0.3, 0.7], [0.5, 0.5]]), 4)
    # block 1 has two outputs, the others three; half of block 1 is constant
    layout = Layout((np.array([0, 3, 5]), np.array([1, 4]), np.array([2, 6, 7])))
    parts = (
        Part(networks, BLOCKS, np.array([0.25, 0.2, 0.5, 0.3, 0.0, 0.75])),
        Part(constants, np.array([1, 1]), np.array([0.2, 0.3])),
    )
    with raises(InvalidInput, "range"):
        Ensemble(parts, layout)
    own = Part(networks, BLOCKS, np.array([0.25, 0.4, 0.5, 0.6, 0.0, 0.75]))
    found = Ensemble((own, parts[1]), layout).predict(x.numpy())
    values = written_out(networks, x).numpy()
    block_0 = 0.4 * values[1] + 0.6 * values[3]
    block_1 = 0.5 * values[2][:, :2] + 0.2 * np.array([0.3, 0.7]) + 0.3 * 0.5
    block_2 = 0.25 * values[0] + 0.75 * values[5]
    for positions, block in zip(layout.blocks, (block_0, block_1, block_2), strict=True):
        np.testing.assert_allclose(found[:, positions], block, atol=1e-13)


def test_wrong_shares_are_refused():
    members = members_of(ARCHITECTURES[0])
    with raises(InvalidInput, "shape"):
        members.mixtures(inputs_of(), SHARES[:, :-1])
