"""The module of an ensemble is a torch module like any other, with the ensemble's predictions."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from torch import nn

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import (
    ArrangedMembers,
    CompletedMembers,
    ConstantMembers,
    FeedbackArchitecture,
    Loads,
    MemberDefaults,
    ModuleArchitecture,
    NetworkArchitecture,
    affine,
    from_sklearn,
)
from cg4ai.members.mixture import Part
from cg4ai.members.shielded import Shield, ShieldedMembers
from cg4ai.members.side_by_side import SideBySideArchitecture
from cg4ai.protocols import Members
from cg4ai.rules import Ball, Box, Concave, Equality, Linear, Polytope, Range, SumTo
from cg4ai.rules.guards import guard_of
from cg4ai.rules.output_sets import join_output_rules
from raising import raises

# shields are asked outside their regions too
pytestmark = pytest.mark.filterwarnings("ignore::cg4ai.errors.OutsideRegion")
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (40, 3))
Y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2], X.sum(1) / 3])


def network(**settings: object) -> Members:
    kind = NetworkArchitecture(3, 3, hidden=(8,), **settings)  # type: ignore[arg-type]
    return kind.members(kind.initialise(3, torch.Generator().manual_seed(1)))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.5))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def own_modules() -> Members:
    kind = ModuleArchitecture(Own, 3, 3, "own")
    return kind.members(kind.initialise(3, torch.Generator().manual_seed(1)))


def single(members: Members) -> Ensemble:
    count = len(members)
    weights = np.arange(1.0, count + 1)
    return Ensemble(
        (Part(members, np.zeros(count, np.int64), weights / weights.sum()),), Layout.single(3)
    )


def several_blocks() -> Ensemble:
    """Two blocks, outputs out of order, members of weight zero, all kinds."""
    forest = from_sklearn(RandomForestRegressor(3, max_depth=3, random_state=0).fit(X, Y))
    parts = [
        (
            network(output="softmax", shift=np.ones(3), scale=np.full(3, 2.0)),
            [0, 1, 1],
            [0.5, 0, 1],
        ),
        (forest, [0], [0.25]),
        (ConstantMembers(np.ones((2, 3)), 3), [0, 0], [0.25, 0.0]),
        (own_modules().take(np.array([0])), [1], [0.0]),
    ]
    made = tuple(Part(m, np.array(b, np.int64), np.array(w, float)) for m, b, w in parts)
    return Ensemble(made, Layout((np.array([4, 0, 2]), np.array([1, 3]))))


def shielded() -> Ensemble:
    rules = [
        Linear(Box([0, 0, 0], [1, 1, 1]), [1.0, 1.0, 0.0], 0.2, "<=", name="sum"),
        Linear(Ball([0.5, 0.5, 0.5], 0.4), [0.0, 0.0, 1.0], 0.1, "<=", name="disc"),
    ]
    return single(network(activation="gelu")).apply_shield([-1.0, -1.0, -1.0], rules)


EQUALITY = Equality(None, np.array([[1.0, 1.0, 1.0]]), [1.0])
OUTPUT_SET = join_output_rules([Range(-1.0, [0.5, 1.0, 2.0]), SumTo(0.5, low=None)], 3)


def member_shield() -> Shield:
    rule = Linear(Box([0, 0, 0], [1, 1, 1]), [1.0, 1.0, 0.0], 0.2, "<=", name="sum")
    rule.check(3, 3)
    return Shield(ConstantMembers([[-1.0, -1.0, -1.0]], 3), (guard_of(rule, 3),))


def polytope_shield() -> Shield:
    """Of a region whose ends are found by linear programs."""
    region = Polytope(Box([0, 0, 0], [1, 1, 1]), [[1.0, 1.0, 1.0]], [2.0])
    rule = Linear(region, [1.0, 1.0, 0.0], 0.2, "<=", name="sum")
    rule.check(3, 3)
    return Shield(ConstantMembers([[-1.0, -1.0, -1.0]], 3), (guard_of(rule, 3),))


def of_architecture(kind: Any) -> Ensemble:
    return single(kind.members(kind.initialise(2, torch.Generator().manual_seed(2))))


def router() -> Ensemble:
    """Networks that see loads, whose splits stand behind a shield."""
    kind = FeedbackArchitecture(
        NetworkArchitecture(3, 3, hidden=(4,), output="grouped", groups=(1, 2)),
        Loads(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.5]]), np.array([0, 1, 1])),
        2,
    )
    rule = Linear(Box([0, 0, 0], [1, 1, 1]), [0.0, 1.0, 0.0], 0.4, "<=", name="link")
    rule.check(3, 3)
    shield = Shield(ConstantMembers([[1.0, 0.2, 0.8]], 3), (guard_of(rule, 3),))
    members = kind.members(kind.initialise(2, torch.Generator().manual_seed(2)))
    return single(ShieldedMembers(members, shield))


CASES = {
    "gelu network": lambda: single(network(activation="gelu", skip=True)),
    "scaled network": lambda: single(network(shift=np.full(3, 0.5), scale=np.full(3, 3.0))),
    "probabilities": lambda: single(network(output="grouped", groups=(1, 2))),
    "affine": lambda: single(affine(RNG.normal(size=(2, 3, 3)), RNG.normal(size=(2, 3)))),
    "boosted trees": lambda: single(
        from_sklearn(GradientBoostingClassifier(n_estimators=4).fit(X, Y.argmax(1)), classes=3)
    ),
    "constants": lambda: single(ConstantMembers(RNG.normal(size=(2, 3)), 3)),
    "own modules": lambda: single(own_modules()),
    "several blocks": several_blocks,
    "shielded": shielded,
    "members behind shields": lambda: single(ShieldedMembers(network(), member_shield())),
    "behind shields on a polytope": lambda: single(ShieldedMembers(network(), polytope_shield())),
    "completed": lambda: single(CompletedMembers(own_modules(), EQUALITY.completion(3).project())),
    "in an output set": lambda: single(ArrangedMembers(network(), OUTPUT_SET)),
    "side by side": lambda: of_architecture(
        SideBySideArchitecture(
            NetworkArchitecture(3, 3, hidden=(5,), output="softmax"),
            np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]], bool),
            (3, 1, 2),
        )
    ),
    "with feedback": lambda: of_architecture(
        FeedbackArchitecture(
            NetworkArchitecture(3, 3, hidden=(4,), output="grouped", groups=(1, 2)),
            Loads(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.5]]), np.array([0, 1, 1])),
            2,
        )
    ),
    "a router": router,
}
many = pytest.mark.parametrize("name", list(CASES))


@many
def test_it_predicts_the_same_and_has_numbers_of_its_own(name: str) -> None:
    ensemble = CASES[name]()
    module = ensemble.as_module()
    expected = ensemble.predict(X)
    np.testing.assert_allclose(module(torch.as_tensor(X)).numpy(), expected, rtol=0, atol=1e-12)
    tensors = [*module.parameters(), *module.buffers()]
    assert list(module.parameters())
    assert not any(parameter.requires_grad for parameter in module.parameters())
    with torch.no_grad():
        for tensor in tensors:
            tensor.zero_()
    np.testing.assert_array_equal(ensemble.predict(X), expected)  # the ensemble keeps its own


@many
def test_its_state_is_saved_and_loaded(name: str) -> None:
    ensemble = CASES[name]()
    module, other = ensemble.as_module(), ensemble.as_module()
    x = torch.as_tensor(X)
    for parameter in other.parameters():
        parameter.data.zero_()
    stream = io.BytesIO()
    torch.save(module.state_dict(), stream)
    stream.seek(0)
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert torch.equal(other(x), module(x))
    assert torch.equal(copy.deepcopy(module)(x), module(x))


@many
def test_it_moves_to_another_device(name: str) -> None:
    """The device without memory stands for any other: all that is left behind would not match."""
    module = CASES[name]().as_module()
    kept = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    expected = module(torch.as_tensor(X))
    module.to("meta")
    assert {tensor.device.type for tensor in module.state_dict().values()} == {"meta"}
    module.to_empty(device="cpu").load_state_dict(kept)
    assert torch.equal(module(torch.as_tensor(X)), expected)


@many
def test_it_is_exported_for_batches_of_any_size(name: str, tmp_path: Path) -> None:
    ensemble = CASES[name]()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        ensemble.as_module(), (torch.as_tensor(X[:5]),), dynamic_shapes=({0: batch},)
    )
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for count in (2, 40):
        x = torch.as_tensor(X[:count])
        np.testing.assert_allclose(
            loaded(x).numpy(), ensemble.predict(X[:count]), rtol=0, atol=1e-12
        )
    again = ensemble.as_module()(torch.as_tensor(X))  # exporting leaves nothing behind
    np.testing.assert_allclose(again.numpy(), ensemble.predict(X), rtol=0, atol=1e-12)


def test_trees_of_another_shape_are_loaded_whole() -> None:
    def forest(depth: int) -> Ensemble:
        members = from_sklearn(RandomForestRegressor(2, max_depth=depth, random_state=0).fit(X, Y))
        nodes = 31 - members.value.shape[2]  # type: ignore[attr-defined]
        assert nodes >= 0
        return single(type(members)(**_padded(members, 31)))

    shallow, deep = forest(1).as_module(), forest(4)
    shallow.load_state_dict(deep.as_module().state_dict())
    np.testing.assert_array_equal(shallow(torch.as_tensor(X)).numpy(), deep.predict(X))
    broken = {
        key: torch.full_like(tensor, 99) if key.endswith("left") else tensor
        for key, tensor in deep.as_module().state_dict().items()
    }
    with raises(InvalidInput, "range"):
        shallow.load_state_dict(broken)


def _padded(members: Members, nodes: int) -> dict[str, object]:
    trees = members.value.shape[1]  # type: ignore[attr-defined]
    arrays = members._padded(trees, nodes, (1, 1))  # type: ignore[attr-defined]
    return {**arrays, "input_size": 3, "single_precision": True}


def test_gradients_reach_inputs() -> None:
    module = CASES["gelu network"]().as_module()
    x = torch.as_tensor(X[:3]).requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None
    assert bool(x.grad.abs().sum() > 0)


@many
def test_parameters_are_what_training_moves(name: str) -> None:
    """Statistics of batch norms, units and anchors are no parameters."""
    module = CASES[name]().as_module()
    assert not module.training
    assert not any(part.training for part in module.modules())
    words = ("running", "tracked", "normalise", "anchor", "threshold", "shares", "guard", "layer")
    for key, _ in module.named_parameters():
        assert not any(word in key for word in words), key
    module.requires_grad_(True)
    assert all(parameter.requires_grad for parameter in module.parameters())
    x = torch.as_tensor(X[:7])
    target = torch.ones_like(module(x)).detach()
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    before = ((module(x) - target) ** 2).mean()
    before.backward()
    # against differences of the loss along the gradient
    moved = [p for p in module.parameters() if p.grad is not None and bool(p.grad.any())]
    assert moved
    slope = sum(float((p.grad**2).sum()) for p in moved if p.grad is not None)
    optimiser.step()
    with torch.no_grad():
        after = ((module(x) - target) ** 2).mean()
    assert float((before - after).detach()) == pytest.approx(1e-3 * slope, rel=0.2)
    module.requires_grad_(False)
    assert torch.equal(((module(x) - target) ** 2).mean(), after)
    module.train()
    assert torch.equal(((module(x) - target) ** 2).mean(), after)


@many
def test_single_precision_says_that_nothing_is_guaranteed(name: str) -> None:
    ensemble = CASES[name]()
    module, x = ensemble.as_module(), torch.as_tensor(X)
    assert "claims of the ensemble hold" in str(module)
    with pytest.warns(FitWarning, match="nothing is guaranteed"):
        module.float()
    assert "nothing is guaranteed" in module.guarantee
    assert module.guarantee in str(module)
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    found = module(x.float())
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found, ensemble.predict(X.astype(np.float32)), rtol=1e-5, atol=1e-5)
    assert module.double()(x).dtype == torch.float64
    for lower in (nn.Module.half, nn.Module.bfloat16):
        with raises(InvalidInput, "unsupported"):
            lower(module)
    assert module(x).dtype == torch.float64  # what is refused changes nothing


@many
@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated, and remarks on what it traces
def test_it_is_traced_and_pickled(name: str) -> None:
    module, x = CASES[name]().as_module(), torch.as_tensor(X)
    expected = module(x)
    stream = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, (x[:5],)), stream)
    stream.seek(0)
    traced = torch.jit.load(stream)
    for count in (1, 5, 40):
        torch.testing.assert_close(traced(x[:count]), expected[:count], rtol=0, atol=1e-12)
    again = pickle.loads(pickle.dumps(module))
    assert torch.equal(again(x), expected)
    assert not again.training


def test_members_that_say_nothing_of_their_tensors_are_refused() -> None:
    class Opaque(MemberDefaults):
        input_size = output_size = 3
        device = torch.device("cpu")

        def __len__(self) -> int:
            return 1

        def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs[None]

    with raises(InvalidInput, "unsupported"):
        single(Opaque()).as_module()  # type: ignore[arg-type]


def test_concave_rules_are_blended_too() -> None:
    rule = Concave(Box([0, 0, 0], [1, 1, 1]), lambda y: -(y**2).sum(-1), -0.01, name="disc")
    ensemble = single(network()).apply_shield([0.0, 0.0, 0.0], rule)
    np.testing.assert_allclose(
        ensemble.as_module()(torch.as_tensor(X)).numpy(), ensemble.predict(X), rtol=0, atol=1e-12
    )
