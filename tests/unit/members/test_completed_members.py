"""Completed members of every kind: the equalities hold, and everything else goes on working."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from cg4ai import members
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.equalities import CompletedArchitecture, CompletedMembers
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.protocols import Architecture, Members
from cg4ai.rules import AffineBound, Equality
from raising import raises

D, R = 3, 5
RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(2, R))
SLOPE, OFFSET = RNG.normal(size=(2, D)), RNG.normal(size=2)
RULE = Equality(None, MATRIX, AffineBound(OFFSET, SLOPE))
NULL = RULE.completion(D)
WHOLE = NULL.project()
X = torch.as_tensor(RNG.normal(size=(40, D)))


def factory() -> nn.Module:
    return nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, R))


def networks(**options: object) -> NetworkArchitecture:
    return NetworkArchitecture(D, R - 2, **options)  # type: ignore[arg-type]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def made(architecture: Architecture, count: int = 3) -> Members:
    return architecture.members(architecture.initialise(count, seeded()))


SHIFTED = {"shift": np.array([1.0, 2.0, 3.0]), "scale": np.array([0.5, 2.0, 1.0])}
ARCHITECTURES: list[Architecture] = [
    CompletedArchitecture(networks(hidden=(8,), activation="gelu"), NULL),
    CompletedArchitecture(networks(hidden=(8,), skip=True, **SHIFTED), NULL),
    CompletedArchitecture(networks(hidden=(6, 5), **SHIFTED), NULL),
    CompletedArchitecture(networks(hidden=()), NULL),
    CompletedArchitecture(NetworkArchitecture(D, R, hidden=(4,), output="softmax"), WHOLE),
    CompletedArchitecture(members.ModuleArchitecture(factory, D, R, "factory"), WHOLE),
]


def every_kind() -> list[CompletedMembers]:
    forest = DecisionTreeRegressor(max_depth=3).fit(X.numpy(), RNG.normal(size=(40, R)))
    constant = members.ConstantMembers(RNG.normal(size=(3, R)), D)
    trees = members.from_sklearn(forest)
    others = [CompletedMembers(inner, WHOLE) for inner in (constant, trees)]
    return [*(made(one) for one in ARCHITECTURES), *others]  # type: ignore[list-item]


def misses(outputs: torch.Tensor) -> float:
    """The largest |A y - b| relative to the sums it is made of."""
    y = outputs.numpy()
    size = np.abs(y) @ np.abs(MATRIX).T + 1
    return float((np.abs(y @ MATRIX.T - OFFSET - X.numpy() @ SLOPE.T) / size).max())


@pytest.mark.parametrize("stack", every_kind())
def test_equalities_hold_for_every_member_and_mixture(stack: CompletedMembers) -> None:
    outputs = stack.outputs(X)
    assert outputs.shape == (len(stack), 40, R)
    assert misses(outputs) < 1e-12
    weights = torch.full((len(stack),), 1 / len(stack), dtype=torch.float64)
    assert torch.allclose(stack.mixture(X, weights), outputs.mean(0), atol=1e-12)
    again = members.restore(stack.state(), {"factory": factory})
    assert torch.equal(again.outputs(X), outputs)
    both = members.concatenate([stack, again])
    assert both is not None
    assert torch.allclose(both.outputs(X)[len(stack) :], outputs, atol=1e-14)
    assert torch.allclose(stack.take(np.array([0])).outputs(X), outputs[:1], atol=1e-14)
    same = stack.with_tensors(stack.tensors())
    assert torch.equal(same.outputs(X), outputs)


def test_other_completions_are_no_common_stack() -> None:
    other = Equality(None, MATRIX, AffineBound(OFFSET + 1, SLOPE)).completion(D)
    one = made(ARCHITECTURES[0])
    two = made(CompletedArchitecture(networks(hidden=(8,), activation="gelu"), other))
    assert members.concatenate([one, two]) is None
    assert ARCHITECTURES[0].parameters(two) is None


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_training_moves_only_what_is_free(architecture: Architecture) -> None:
    parameters = architecture.initialise(2, seeded())
    own = {name: value.double().requires_grad_() for name, value in parameters.items()}
    outputs = architecture.forward(own, X)
    assert misses(outputs.detach()) < 1e-12
    (outputs**2).sum().backward()
    assert any(value.grad is not None and bool(value.grad.any()) for value in own.values())
    frozen = architecture.members(own)
    assert torch.allclose(frozen.outputs(X), outputs.detach(), atol=1e-12)
    warm = architecture.parameters(frozen)
    assert warm is not None
    assert all(torch.allclose(warm[name], own[name].detach()) for name in warm)


@pytest.mark.parametrize("number", range(4))
def test_networks_fold_into_plain_ones_and_fuse(number: int) -> None:
    stack = made(ARCHITECTURES[number])
    assert isinstance(stack, CompletedMembers)
    folded = stack.fold()
    assert folded is not None
    assert torch.allclose(folded.outputs(X), stack.outputs(X), atol=1e-12)
    weights = np.array([0.5, 0.25, 0.25])
    ensemble = Ensemble((Part(stack, np.zeros(3, np.int64), weights),), Layout.single(R))
    expected = ensemble.outputs(X)
    assert torch.allclose(ensemble.fuse()(X), expected, atol=1e-12)
    module = ensemble.as_module()
    assert torch.allclose(module(X), expected, atol=1e-14)
    assert misses(module(X).detach()) < 1e-12
    exported = torch.export.export(module, (X,)).module()
    assert torch.allclose(exported(X), expected, atol=1e-14)


def test_probabilities_do_not_fold() -> None:
    stack = made(ARCHITECTURES[4])
    assert isinstance(stack, CompletedMembers)
    assert stack.fold() is None


def test_sizes_must_fit() -> None:
    with raises(InvalidInput, "shape"):
        CompletedMembers(members.ConstantMembers(np.zeros((1, R)), D), NULL)
    nothing = Equality(None, np.eye(2), [1.0, 2.0]).completion(D)
    with raises(InvalidInput, "empty"):
        CompletedArchitecture(NetworkArchitecture(D, 1), nothing)
