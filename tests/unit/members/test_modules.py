"""Stacks of a user's own modules against calling each module by itself."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cg4ai.errors import InvalidInput
from cg4ai.members import ModuleArchitecture, affine, concatenate, restore
from cg4ai.members import modules as modules_module
from cg4ai.records import MemberState
from raising import raises


class Convolution(nn.Module):
    """A small image network with batch norm (running statistics) and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(self.convolution(x.view(-1, 1, 4, 4))).relu()
        return self.last(self.drop(z).flatten(1))


class Branching(nn.Module):
    """Looks at values in Python, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.linear(x)
        return z if self.linear.bias.sum().item() > 0 else 2 * z


X = torch.randn(9, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def convolutions():
    return ModuleArchitecture(Convolution, 16, 3, "convolution")


def singles(architecture, members):
    """Each member as a module of its own."""
    for i in range(len(members)):
        module = architecture.factory().double().eval()
        state = {k: v[i] for k, v in (members.parameters | members.buffers).items()}
        module.load_state_dict(state)
        yield module


def test_outputs_equal_single_modules(monkeypatch):
    architecture = convolutions()
    assert architecture.vectorised
    members = architecture.members(architecture.initialise(4, torch.Generator().manual_seed(1)))
    with torch.no_grad():
        expected = torch.stack([module(X) for module in singles(architecture, members)])
    torch.testing.assert_close(members.outputs(X), expected, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(modules_module, "CHUNK_VALUES", 100)
    torch.testing.assert_close(members.outputs(X), expected, rtol=1e-12, atol=1e-12)
    assert members.take(np.array([], dtype=np.int64)).outputs(X).shape == (0, 9, 3)


def test_modules_that_vmap_cannot_run_are_looped_over():
    architecture = ModuleArchitecture(Branching, 4, 2, "branching")
    assert not architecture.vectorised
    assert "vmap" in architecture.loop_reason
    members = architecture.members(architecture.initialise(6, torch.Generator().manual_seed(1)))
    x = X[:, :4].clone().requires_grad_()
    expected = torch.stack([module(x) for module in singles(architecture, members)])
    torch.testing.assert_close(members.outputs(x), expected, rtol=1e-12, atol=1e-12)
    assert members.outputs(x).requires_grad
    assert len(members.take(np.array([], dtype=np.int64)).outputs(X[:, :4])) == 0


@pytest.mark.parametrize("factory", [lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh()), Branching])
def test_gradients_by_finite_differences(factory):
    size = 2 if factory is Branching else 3
    architecture = ModuleArchitecture(factory, 4, size, "any")
    parameters = {
        name: value.double().requires_grad_()
        for name, value in architecture.initialise(2, torch.Generator().manual_seed(0)).items()
    }
    names = list(parameters)

    def forward(inputs, *values):
        return architecture.forward(dict(zip(names, values, strict=True)), inputs)

    x = X[:2, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(forward, (x, *parameters.values()))


def test_initialise_is_deterministic_and_leaves_the_global_state():
    architecture = convolutions()
    before = torch.random.get_rng_state()
    first = architecture.initialise(3, torch.Generator().manual_seed(4))
    again = architecture.initialise(3, torch.Generator().manual_seed(4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["last.weight"][0], first["last.weight"][1])
    assert "norm.running_mean" not in first


def test_trained_modules_bring_their_own_buffers():
    architecture = convolutions()
    trained = []
    for seed in range(3):
        torch.manual_seed(seed)
        module = Convolution()
        module(torch.randn(20, 16) * (seed + 1))  # moves the running statistics
        trained.append(module.double().eval())
    members = architecture.stack(trained)
    with torch.no_grad():
        expected = torch.stack([module(X) for module in trained])
    torch.testing.assert_close(members.outputs(X), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        members.take(np.array([2])).outputs(X), expected[2:], rtol=1e-12, atol=1e-12
    )
    assert architecture.parameters(members) is None
    joined = concatenate([members, members.to("cpu")])
    torch.testing.assert_close(joined.outputs(X)[3:], expected, rtol=1e-12, atol=1e-12)
    with raises(InvalidInput, "type", "Linear"):
        architecture.stack([nn.Linear(16, 3)])
    with raises(InvalidInput, "empty"):
        architecture.stack([])


def test_warm_start_only_from_the_same_kind():
    architecture = convolutions()
    members = architecture.members(architecture.initialise(2, torch.Generator()))
    warm = architecture.parameters(members)
    assert torch.equal(warm["last.bias"], members.parameters["last.bias"])
    assert architecture.parameters(affine(np.zeros((1, 2, 1)), np.zeros((1, 1)))) is None
    assert ModuleArchitecture(Convolution, 16, 3, "other").parameters(members) is None


def test_state_needs_the_factory_again():
    architecture = convolutions()
    members = architecture.members(architecture.initialise(2, torch.Generator()))
    state = members.state()
    config = json.loads(json.dumps(state.config))
    again = restore(
        MemberState(state.kind, config, state.arrays), factories={"convolution": Convolution}
    )
    assert torch.equal(again.outputs(X), members.outputs(X))
    with raises(InvalidInput, "missing-factory", "convolution"):
        restore(state)
    with raises(InvalidInput, "missing-factory", "convolutions"):
        restore(state, factories={"convolutions": Convolution})
    without = {k: v for k, v in state.arrays.items() if k != "parameter:last.bias"}
    with raises(InvalidInput, "unknown-name", "last.bias"):
        restore(MemberState("module", config, without), {"convolution": Convolution})
    with raises(InvalidInput, "unknown-name", "odd"):
        restore(
            MemberState("module", config, {**state.arrays, "odd": np.ones(1)}),
            {"convolution": Convolution},
        )
    wrong = {**state.arrays, "buffer:norm.running_var": np.ones((2, 3))}
    with raises(InvalidInput, "shape", "running_var"):
        restore(MemberState("module", config, wrong), {"convolution": Convolution})


class RandomBuffer(nn.Linear):
    table: Tensor

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("table", torch.randn(2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.table


class AlwaysRandom(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(x), training=True)


class Constant(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


@pytest.mark.parametrize(
    ("factory", "code"),
    [
        (lambda: 3, "type"),
        (lambda: nn.ReLU(), "unsupported"),
        (lambda: nn.Linear(5, 2), "unsupported"),
        (lambda: nn.Linear(4, 3), "shape"),
        (nn.Linear(4, 2), "type"),
        (nn.Linear, "unsupported"),
        (lambda: 1 / 0, "unsupported"),
        (lambda: nn.LazyLinear(2), "unsupported"),
        (lambda: nn.LSTM(4, 2), "type"),
        (lambda: nn.Conv2d(1, 2, 2), "unsupported"),
        (lambda: nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 2)), "unsupported"),
        (lambda: nn.TransformerEncoderLayer(4, 2, 8), "shape"),
        (lambda: Constant(4, 2), "unsupported"),
        (lambda: AlwaysRandom(4, 2), "unsupported"),
        (
            lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=False)),
            "unsupported",
        ),
    ],
)
def test_modules_that_cannot_be_members_are_refused(factory, code):
    with raises(InvalidInput, code) as caught:
        ModuleArchitecture(factory, 4, 2, "bad")
    assert "\n" not in str(caught.value)


class Attention(nn.Module):
    """Two words of four numbers each, through a layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.last = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(x.view(-1, 2, 4)).flatten(1))


def test_transformer_layers_are_trained_and_evaluated():
    architecture = ModuleArchitecture(Attention, 8, 2, "attention")
    parameters = architecture.initialise(2, torch.Generator().manual_seed(0))
    own = {key: value.double().requires_grad_() for key, value in parameters.items()}
    x = X[:, :8]
    architecture.forward(own, x).sum().backward()
    assert all(value.grad is not None for value in own.values())
    members = architecture.members(parameters)
    modules = [Attention().double().eval() for _ in range(2)]
    for number, module in enumerate(modules):
        module.load_state_dict({key: value[number] for key, value in own.items()})
    with torch.no_grad():
        expected = torch.stack([module(x) for module in modules])
    torch.testing.assert_close(members.outputs(x), expected)
    assert torch.backends.mha.get_fastpath_enabled()


def test_pictures_come_as_rows():
    architecture = ModuleArchitecture(
        lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2), nn.Flatten()),
        *(4, 2, "pictures"),
    )
    parameters = architecture.initialise(3, torch.Generator().manual_seed(0))
    assert architecture.members(parameters).outputs(X[:, :4]).shape == (3, len(X), 2)


def test_a_pickle_leaves_a_lambda_behind_and_predicts_the_same():
    architecture = ModuleArchitecture(lambda: nn.Linear(4, 2), 4, 2, "lambda")
    members = architecture.members(architecture.initialise(2, torch.Generator().manual_seed(0)))
    again = pickle.loads(pickle.dumps(members))
    assert torch.equal(again.outputs(X[:, :4]), members.outputs(X[:, :4]))
    with raises(InvalidInput, "missing-factory"):
        again.architecture.initialise(1, torch.Generator())
    copied = copy.deepcopy(members)
    copied.architecture.initialise(1, torch.Generator())  # a copy keeps it
    importable = ModuleArchitecture(Attention, 8, 2, "attention")
    assert pickle.loads(pickle.dumps(importable)).factory is Attention


def test_random_buffers_can_be_stacked_but_not_initialised():
    architecture = ModuleArchitecture(RandomBuffer, 4, 2, "buffered")
    with raises(InvalidInput, "unsupported", "table"):
        architecture.initialise(2, torch.Generator())
    modules = [RandomBuffer().double(), RandomBuffer().double()]
    x = X[:, :4]
    with torch.no_grad():
        expected = torch.stack([module(x) for module in modules])
    torch.testing.assert_close(architecture.stack(modules).outputs(x), expected)
