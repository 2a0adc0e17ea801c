"""Stacked networks against nn.Sequential copies, finite differences and themselves."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cg4ai.errors import InvalidInput
from cg4ai.members import NetworkArchitecture, NetworkMembers, affine, concatenate, restore
from cg4ai.members import layers as layers_module
from cg4ai.protocols import Architecture, Members
from cg4ai.records import MemberState
from raising import raises

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


def make(architecture: NetworkArchitecture, count: int = 5, seed: int = 0) -> NetworkMembers:
    return architecture.members(architecture.initialise(count, torch.Generator().manual_seed(seed)))


def reference(members: NetworkMembers, x: torch.Tensor) -> torch.Tensor:
    """One nn.Sequential per member, filled from its own slices."""
    a = members.architecture
    outputs = []
    for i in range(len(members)):
        own = {name: tensor[i] for name, tensor in members.parameters.items()}
        modules: list[nn.Module] = []
        widths = (a.input_size, *a.hidden, a.output_size)
        for k in range(len(widths) - 1):
            linear = nn.Linear(widths[k], widths[k + 1], dtype=torch.float64)
            linear.load_state_dict({"weight": own[f"weight_{k}"], "bias": own[f"bias_{k}"]})
            modules += [linear] + ([ACTIVATIONS[a.activation]()] if k < len(a.hidden) else [])
        z = x if a.shift is None else x - torch.tensor(a.shift)
        z = z if a.scale is None else z / torch.tensor(a.scale)
        scores = nn.Sequential(*modules)(z)
        if a.skip:
            scores = scores + z @ own["skip"].T
        if a.output == "softmax":
            scores = nn.Softmax(-1)(scores)
        if a.output == "grouped":
            starts = np.cumsum((0, *a.groups))
            scores = torch.cat(
                [
                    scores[:, s:e].exp() / scores[:, s:e].exp().sum(-1, keepdim=True)
                    for s, e in pairwise(starts)
                ],
                -1,
            )
        outputs.append(scores.detach())
    return torch.stack(outputs)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
@pytest.mark.parametrize(
    ("hidden", "skip"),
    [((), False), ((7,), False), ((7,), True), ((6, 5), True), ((4, 3, 8), False)],
)
@pytest.mark.parametrize(
    ("output", "groups"),
    [("linear", ()), ("softmax", ()), ("grouped", (3, 3)), ("grouped", (1, 2, 3))],
)
def test_outputs_and_mixture_equal_sequential_modules(activation, hidden, skip, output, groups):
    rng = np.random.default_rng(1)
    architecture = NetworkArchitecture(
        4,
        6,
        hidden=hidden,
        activation=activation,
        skip=skip,
        output=output,
        groups=groups,
        shift=rng.normal(size=4),
        scale=rng.uniform(0.5, 2, size=4),
    )
    members = make(architecture)
    x = torch.randn(11, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = reference(members, x)
    torch.testing.assert_close(members.outputs(x), expected, rtol=1e-12, atol=1e-12)
    weights = rng.dirichlet(np.ones(5))
    mixed = torch.einsum("i,inr->nr", torch.tensor(weights), expected)
    torch.testing.assert_close(members.mixture(x, weights), mixed, rtol=1e-12, atol=1e-12)


def test_is_what_the_interfaces_ask_for():
    architecture: Architecture = NetworkArchitecture(3, 2)
    members: Members = make(NetworkArchitecture(3, 2))
    assert (architecture.input_size, members.output_size, len(members)) == (3, 2, 5)
    outputs = members.outputs(torch.zeros(4, 3))
    assert outputs.dtype == torch.float64
    assert members.differentiable


@pytest.mark.parametrize(
    "architecture",
    [
        NetworkArchitecture(5, 3, hidden=(6,), skip=True),
        NetworkArchitecture(5, 3, hidden=(6, 4), output="softmax"),
        NetworkArchitecture(5, 3, hidden=()),
    ],
)
def test_small_chunks_change_nothing(architecture, monkeypatch):
    members = make(architecture, 7)
    x = torch.randn(23, 5, dtype=torch.float64)
    whole, mixed = members.outputs(x), members.mixture(x, np.arange(7.0))
    monkeypatch.setattr(layers_module, "CPU_CHUNK", 60)
    monkeypatch.setattr(layers_module, "INPUT_CHUNK", 4)
    torch.testing.assert_close(members.outputs(x), whole, rtol=0, atol=1e-13)
    torch.testing.assert_close(members.mixture(x, np.arange(7.0)), mixed, rtol=0, atol=1e-13)
    z = x.clone().requires_grad_()
    members.outputs(z).square().sum().backward()
    y = x.clone().requires_grad_()
    monkeypatch.undo()
    members.outputs(y).square().sum().backward()
    torch.testing.assert_close(z.grad, y.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
@pytest.mark.parametrize("output", ["linear", "softmax"])
def test_gradients_by_finite_differences(activation, output):
    architecture = NetworkArchitecture(
        3, 2, hidden=(4, 3), activation=activation, output=output, skip=True, shift=np.ones(3)
    )
    generator = torch.Generator().manual_seed(3)
    parameters = {
        name: value.double().requires_grad_()
        for name, value in architecture.initialise(2, generator).items()
    }
    names = list(parameters)
    x = torch.randn(3, 3, dtype=torch.float64, generator=generator, requires_grad=True)

    def forward(inputs, *values):
        return architecture.forward(dict(zip(names, values, strict=True)), inputs)

    assert torch.autograd.gradcheck(forward, (x, *parameters.values()))
    members = architecture.members(parameters)
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(members.outputs, (x,))
    assert torch.autograd.gradcheck(members.mixture, (x, weights))


def test_relu_gradient_reaches_parameters():
    architecture = NetworkArchitecture(2, 1, hidden=(3,))
    parameters = architecture.initialise(2, torch.Generator().manual_seed(0))
    for value in parameters.values():
        value.requires_grad_()
    x = torch.randn(20, 2)
    architecture.forward(parameters, x).sum().backward()
    hidden = x @ parameters["weight_0"][0].T + parameters["bias_0"][0]
    expected = hidden.relu().sum(0)
    torch.testing.assert_close(parameters["weight_1"].grad[0, 0], expected.detach())


def test_own_inputs_for_each_member():
    architecture = NetworkArchitecture(3, 2, hidden=(4,), skip=True)
    parameters = architecture.initialise(3, torch.Generator().manual_seed(0))
    x = torch.randn(3, 6, 3)
    own = architecture.forward(parameters, x)
    for i in range(3):
        torch.testing.assert_close(own[i], architecture.forward(parameters, x[i])[i])


def test_initialise_is_deterministic_and_scaled():
    architecture = NetworkArchitecture(400, 10, hidden=(64,))
    first = architecture.initialise(20, torch.Generator().manual_seed(5))
    again = architecture.initialise(20, torch.Generator().manual_seed(5))
    other = architecture.initialise(20, torch.Generator().manual_seed(6))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["weight_0"], other["weight_0"])
    assert first["weight_0"].var().item() == pytest.approx(2 / 400, rel=0.05)
    assert first["weight_1"].var().item() == pytest.approx(1 / 64, rel=0.05)
    assert first["bias_0"].abs().max().item() <= 1 / 20


def test_members_do_not_follow_later_training():
    architecture = NetworkArchitecture(2, 1, hidden=(2,))
    parameters = {k: v.double() for k, v in architecture.initialise(1, torch.Generator()).items()}
    members = architecture.members(parameters)
    x = torch.ones(1, 2, dtype=torch.float64)
    before = members.outputs(x)
    parameters["bias_1"] += 1
    assert torch.equal(members.outputs(x), before)
    members.architecture.parameters(members)["bias_1"] += 1
    assert torch.equal(members.outputs(x), before)


def test_warm_start_only_from_the_same_architecture():
    architecture = NetworkArchitecture(2, 1, hidden=(2,), shift=np.zeros(2))
    members = make(architecture)
    warm = architecture.parameters(members)
    assert torch.equal(warm["weight_0"], members.parameters["weight_0"])
    assert NetworkArchitecture(2, 1, hidden=(2,), shift=np.ones(2)).parameters(members) is None
    assert NetworkArchitecture(2, 1, hidden=(2,)).parameters(members) is None
    same = NetworkArchitecture(2, 1, hidden=(2,), shift=np.zeros(2))
    assert same == architecture
    assert hash(same) == hash(architecture)


@pytest.mark.parametrize("skip", [True, False])
def test_output_units_are_folded_into_members_and_taken_out_again(skip):
    architecture = NetworkArchitecture(
        3,
        2,
        hidden=(4,),
        skip=skip,
        output_shift=np.array([5.0, -1.0]),
        output_scale=np.array([10.0, 0.1]),
    )
    parameters = {k: v.double() for k, v in architecture.initialise(3, torch.Generator()).items()}
    plain = NetworkArchitecture(3, 2, hidden=(4,), skip=skip)
    x = torch.randn(6, 3, dtype=torch.float64)
    expected = plain.forward(parameters, x) * torch.tensor([10.0, 0.1]) + torch.tensor([5.0, -1.0])
    torch.testing.assert_close(architecture.forward(parameters, x), expected.double())
    members = architecture.members(parameters)
    torch.testing.assert_close(members.outputs(x), expected.double())
    assert members.architecture == plain
    back = architecture.parameters(members)
    for name in parameters:
        torch.testing.assert_close(back[name], parameters[name])
    with raises(InvalidInput, "unsupported"):
        NetworkMembers(architecture, parameters)
    with raises(InvalidInput, "conflict", "linear"):
        NetworkArchitecture(3, 2, output="softmax", output_shift=np.zeros(2))


def test_normalisation_made_without_gradients_serves_training():
    architecture = NetworkArchitecture(2, 1, hidden=(2,), scale=np.ones(2))
    members = make(architecture)
    x = torch.ones(1, 2, dtype=torch.float64)
    with torch.inference_mode():
        members.outputs(x)
    x.requires_grad_()
    members.outputs(x).sum().backward()
    assert x.grad is not None


@settings(max_examples=30, deadline=None)
@given(
    d=st.integers(1, 4),
    r=st.integers(1, 4),
    hidden=st.lists(st.integers(1, 4), max_size=3),
    count=st.integers(1, 4),
    n=st.integers(0, 5),
    data=st.data(),
)
def test_state_take_and_concatenate_keep_outputs(d, r, hidden, count, n, data):
    output = data.draw(st.sampled_from(["linear", "softmax"]))
    scale = data.draw(st.sampled_from([None, np.full(d, 3.0)]))
    members = make(
        NetworkArchitecture(d, r, hidden=tuple(hidden), output=output, scale=scale), count
    )
    x = torch.linspace(-1, 1, n * d, dtype=torch.float64).reshape(n, d)
    outputs = members.outputs(x)
    assert outputs.shape == (count, n, r)
    state = members.state()
    again = MemberState(state.kind, json.loads(json.dumps(state.config)), state.arrays)
    assert torch.equal(restore(again).outputs(x), outputs)
    pick = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=4)), dtype=np.int64)
    torch.testing.assert_close(members.take(pick).outputs(x), outputs[pick])
    joined = concatenate([members, members.take(pick)])
    assert len(joined) == count + len(pick)
    torch.testing.assert_close(joined.outputs(x), torch.cat([outputs, outputs[pick]]))
    assert members.mixture(x, np.zeros(count)).shape == (n, r)


def test_to_keeps_outputs_and_other_devices_are_refused():
    members = make(NetworkArchitecture(2, 1, hidden=(2,)))
    x = torch.ones(1, 2, dtype=torch.float64)
    assert torch.equal(members.to("cpu").outputs(x), members.outputs(x))
    with raises(InvalidInput, "conflict", "meta"):
        members.outputs(x.to("meta"))


def test_numbers_in_lists_and_read_only_arrays_keep_double_precision():
    bias = np.array([[0.1]])
    bias.setflags(write=False)
    for given_bias in ([[0.1]], bias):
        members = affine([[[0.2]]], given_bias)
        assert members.outputs(torch.ones(1, 1)).item() == 0.2 + 0.1
    weights = np.ones(1)
    weights.setflags(write=False)
    assert members.mixture(torch.ones(1, 1), weights).item() == 0.2 + 0.1


def test_affine_is_a_matrix_product():
    rng = np.random.default_rng(0)
    weights, bias, x = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 2)), rng.normal(size=(5, 4))
    members = affine(weights, bias)
    expected = np.einsum("nd,idr->inr", x, weights) + bias[:, None]
    np.testing.assert_allclose(members.outputs(torch.tensor(x)).numpy(), expected, atol=1e-13)
    exp = np.exp(expected)
    np.testing.assert_allclose(
        affine(weights, bias, output="softmax").outputs(torch.tensor(x)).numpy(),
        exp / exp.sum(-1, keepdims=True),
        atol=1e-13,
    )
    with raises(InvalidInput, "shape", "weights"):
        affine(weights, bias.T)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"activation": "rleu"}, "unknown-name"),
        ({"output": "softmx"}, "unknown-name"),
        ({"hidden": (0,)}, "range"),
        ({"hidden": (), "skip": True}, "conflict"),
        ({"output": "grouped"}, "conflict"),
        ({"groups": (2,)}, "conflict"),
        ({"output": "grouped", "groups": (1, 2)}, "shape"),
        ({"scale": np.array([1.0, 0.0, 1.0])}, "range"),
        ({"shift": np.zeros(2)}, "not-finite"),
        ({"shift": np.array([0.0, np.nan, 0.0])}, "not-finite"),
    ],
)
def test_wrong_architectures_are_refused(changes, code):
    with raises(InvalidInput, code):
        NetworkArchitecture(3, 2, **changes)
    with raises(InvalidInput, "range", "input_size"):
        NetworkArchitecture(0, 2)


def test_wrong_inputs_are_refused():
    members = make(NetworkArchitecture(3, 2, hidden=(4,)))
    with raises(InvalidInput, "shape"):
        members.outputs(torch.zeros(2, 4))
    with raises(InvalidInput, "type"):
        members.outputs(np.zeros((2, 3)))  # type: ignore[arg-type]
    with raises(InvalidInput, "shape"):
        members.mixture(torch.zeros(2, 3), np.ones(4))
    with raises(InvalidInput, "not-finite", "finite"):
        members.mixture(torch.zeros(2, 3), np.full(5, np.nan))
    with raises(InvalidInput, "range"):
        members.take(np.array([5]))
    with raises(InvalidInput, "type", "integers"):
        members.take(np.array([0.5]))


def test_wrong_parameters_are_refused():
    architecture = NetworkArchitecture(3, 2, hidden=(4,))
    good = architecture.initialise(2, torch.Generator())
    with raises(InvalidInput, "unknown-name", "bias_1"):
        architecture.members({k: v for k, v in good.items() if k != "bias_1"})
    with raises(InvalidInput, "shape", "bias_0"):
        architecture.members({**good, "bias_0": good["bias_0"][:1]})
    with raises(InvalidInput, "not-finite", "weight_1"):
        architecture.members({**good, "weight_1": good["weight_1"] * torch.inf})
    with raises(InvalidInput, "range", "count"):
        architecture.initialise(0, torch.Generator())


def test_damaged_states_are_refused():
    state = make(NetworkArchitecture(3, 2, hidden=(4,), shift=np.ones(3))).state()
    without = {k: v for k, v in state.arrays.items() if k != "weight_1"}
    for config, arrays, message in [
        (state.config, without, "weight_1"),
        (state.config, {**state.arrays, "bias_1": np.zeros((5, 3))}, "bias_1"),
        (state.config, {**state.arrays, "normalise_shift": np.zeros(7)}, "shift"),
        (state.config, {**state.arrays, "bias_1": np.array(["a"])}, "numbers"),
        ({k: v for k, v in state.config.items() if k != "hidden"}, state.arrays, "hidden"),
        ({**state.config, "skip": "yes"}, state.arrays, "skip"),
        ({**state.config, "hidden": ["4"]}, state.arrays, "hidden"),
        ({**state.config, "input_size": True}, state.arrays, "input_size"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            restore(MemberState("network", config, arrays))
