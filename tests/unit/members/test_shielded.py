"""Shielded members keep rules at every input, alone and mixed, and train through the shield."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput
from cg4ai.members import (
    ConstantMembers,
    NetworkArchitecture,
    Shield,
    ShieldedArchitecture,
    ShieldedMembers,
    affine,
    concatenate,
    restore,
)
from cg4ai.members.shielded import HOLD
from cg4ai.nn import blending
from cg4ai.rules import AffineBound, Box, Concave, Largest, Linear, Quadratic
from cg4ai.rules.guards import guard_of
from raising import raises

BOX = Box([-1.0, -1.0], [1.0, 1.0])


def disc(outputs):
    return 1.0 - outputs.square().sum(-1)


def triangle() -> Linear:
    """y1 + y2 <= 1, y1 >= -1, y2 >= -1 with the origin inside."""
    return Linear(BOX, [[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]], [-1.0, -1.0, -1.0], name="triangle")


def shield_of(*requirements, anchor=(0.0, 0.0)) -> Shield:
    for requirement in requirements:
        requirement.check(2, 2)
    guards = tuple(guard_of(requirement, 2) for requirement in requirements)
    return Shield(ConstantMembers([list(anchor)], 2), guards)


def random_members(seed, count=3, size=3.0):
    generator = np.random.default_rng(seed)
    return affine(generator.normal(size=(count, 2, 2)) * size, generator.normal(size=(count, 2)))


def inputs(seed, count=200):
    return torch.as_tensor(np.random.default_rng(seed).uniform(-1, 1, (count, 2)))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), weights=st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_every_member_and_every_mixture_keeps_the_rules(seed, weights):
    members = ShieldedMembers(random_members(seed), shield_of(triangle()))
    outputs = members.outputs(inputs(seed))
    share = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    mixed = torch.einsum("m,mnr->nr", share, outputs)
    for values in (*outputs, mixed):
        assert float(values.sum(-1).max()) <= 1 + 1e-12
        assert float(values.min()) >= -1 - 1e-12


def test_linear_rules_get_the_smallest_step_and_what_keeps_them_stays():
    """The oracle is one small LP per point: least t with f + t (a - f) feasible."""
    shield = shield_of(triangle(), anchor=(0.2, -0.3))
    inner = random_members(7, count=1)
    x = inputs(3, 50)
    plain, theta = inner.outputs(x)[0].numpy(), ShieldedMembers(inner, shield).theta(x)[0].numpy()
    a = np.array([0.2, -0.3])
    matrix, limit = np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), np.ones(3)
    for f, t in zip(plain, theta, strict=True):
        found = linprog([1.0], (matrix @ (a - f))[:, None], limit - matrix @ f, bounds=(0, 1))
        assert t == pytest.approx(found.x[0], abs=1e-9)
    kept = (matrix @ plain.T <= 1).all(0)
    assert 5 < kept.sum() < 45
    outputs = ShieldedMembers(inner, shield).outputs(x)[0].numpy()
    np.testing.assert_array_equal(outputs[kept], plain[kept])


def test_concave_rules_are_kept():
    rule = Concave(BOX, disc, 0.0, name="disc")
    members = ShieldedMembers(random_members(1), shield_of(rule, triangle()))
    assert float(members.outputs(inputs(1)).square().sum(-1).max()) <= 1 + 1e-12


def test_quadratic_rules_and_bounds_that_move_are_kept_by_mixtures():
    """And comes back from its state with the same outputs."""
    ellipse = Quadratic(BOX, [[2.0, 0.5], [0.5, 1.0]], 1.0, [0.1, -0.2], name="ellipse")
    bound = Largest([0.2, AffineBound(0.3, [0.4, -0.1])])
    roof = Linear(BOX, [1.0, 1.0], bound, "<=", name="roof")
    members = ShieldedMembers(random_members(4), shield_of(ellipse, roof))
    x = inputs(4, 5000)
    outputs = members.outputs(x)
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    mixed = torch.einsum("m,mnr->nr", weights, outputs).numpy()
    y1, y2 = mixed.T
    assert (2 * y1**2 + y1 * y2 + y2**2 + 0.1 * y1 - 0.2 * y2).max() <= 1 + 1e-12
    limit = np.maximum(0.2, 0.3 + x.numpy() @ [0.4, -0.1])
    assert (y1 + y2 - limit).max() <= 1e-12
    again = restore(members.state())
    torch.testing.assert_close(again.outputs(x), outputs, rtol=0, atol=0)


def test_outside_the_region_members_are_left_alone():
    inner = random_members(2)
    x = inputs(2) + 5.0
    members = ShieldedMembers(inner, shield_of(triangle()))
    torch.testing.assert_close(members.outputs(x), inner.outputs(x), rtol=0, atol=0)


def test_infinite_outputs_become_the_anchor():
    inner = affine(np.full((1, 2, 2), 1e308), np.full((1, 2), 1e308))
    outputs = ShieldedMembers(inner, shield_of(triangle())).outputs(torch.ones(1, 2).double())
    np.testing.assert_array_equal(outputs[0].numpy(), [[0.0, 0.0]])


def test_saved_members_give_the_same_outputs_and_stacks_join():
    members = ShieldedMembers(random_members(4), shield_of(triangle()))
    again = restore(members.state())
    x = inputs(4)
    torch.testing.assert_close(again.outputs(x), members.outputs(x), rtol=0, atol=0)
    joined = concatenate([members, again])
    assert isinstance(joined, ShieldedMembers)
    assert len(joined) == 6
    other = ShieldedMembers(random_members(4), shield_of(triangle(), anchor=(0.1, 0.0)))
    assert concatenate([members, other]) is None


def test_rules_that_are_functions_are_given_again():
    rule = Concave(BOX, disc, 0.0, name="disc")
    members = ShieldedMembers(random_members(1), shield_of(rule))
    with raises(InvalidInput, "missing-factory", "disc"):
        restore(members.state())
    again = restore(members.state(), {"disc": rule})
    torch.testing.assert_close(again.outputs(inputs(1)), members.outputs(inputs(1)))


def test_outputs_that_no_rule_connects_move_alone():
    """y0 <= 0.5 moves y0 alone; with both coupled, y1 follows."""
    cap = Linear(BOX, [1.0, 0.0], 0.5, "<=", name="cap")
    inner, x = random_members(5), inputs(5)
    plain, apart = inner.outputs(x), ShieldedMembers(inner, shield_of(cap)).outputs(x)
    np.testing.assert_allclose(apart[..., 0], plain[..., 0].clamp_max(0.5), atol=1e-11)
    torch.testing.assert_close(apart[..., 1], plain[..., 1], rtol=0, atol=0)
    both = Shield(ConstantMembers([[0.0, 0.0]], 2), shield_of(cap).guards, ((0, 1),))
    together = ShieldedMembers(inner, both).outputs(x)
    broken = plain[..., 0] > 0.5
    assert bool((together[..., 1] != plain[..., 1])[broken].all())


def test_the_shield_is_trained_through():
    """A target outside the triangle: the best reachable point is where the shield puts it."""
    architecture = ShieldedArchitecture(
        NetworkArchitecture(2, 2, hidden=(), activation="relu"), shield_of(triangle())
    )
    parameters = architecture.initialise(1, torch.Generator().manual_seed(0))
    values = [value.double().requires_grad_(True) for value in parameters.values()]
    parameters = dict(zip(parameters, values, strict=True))
    optimiser = torch.optim.Adam(values, lr=0.05)
    x, target = inputs(5), torch.tensor([2.0, -0.5]).double()
    for _ in range(400):
        loss = (architecture.forward(parameters, x) - target).square().sum(-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    members = architecture.members({name: value.detach() for name, value in parameters.items()})
    # the point of the triangle nearest to (2, -0.5) is (1.75, -0.75)
    np.testing.assert_allclose(members.outputs(x)[0].mean(0).numpy(), [1.75, -0.75], atol=0.03)
    again = architecture.parameters(members)
    assert again is not None
    assert architecture.parameters(random_members(0)) is not None


@pytest.mark.parametrize("hidden", [(), (16,), (16, 16)])
@pytest.mark.parametrize("skip", [False, True])
def test_training_starts_near_an_affine_anchor(hidden, skip):
    slopes, offsets = np.array([[0.2, -0.3], [0.1, 0.4]]), np.array([0.3, -0.2])
    anchor = affine(slopes.T[None], offsets[None])
    architecture = NetworkArchitecture(
        2, 2, hidden=hidden, skip=skip and bool(hidden), shift=np.array([0.5, -1.0]),
        scale=np.array([2.0, 0.5]), output_shift=np.array([3.0, -2.0]),
        output_scale=np.array([0.1, 5.0]),
    )  # fmt: skip
    started = architecture.initialise_near(
        {name: 0.0 * value for name, value in _initial(architecture).items()}, slopes, offsets
    )
    x = inputs(0)
    reached = architecture.members(started).outputs(x)
    if skip or not hidden:
        assert torch.allclose(reached, anchor.outputs(x).expand_as(reached), atol=1e-6)
    else:  # nothing carries the slopes: as the anchor is at the middle of the inputs
        middle = anchor.outputs(torch.tensor([[0.5, -1.0]], dtype=torch.float64))
        assert torch.allclose(reached, middle.expand_as(reached), atol=1e-6)
    through = ShieldedArchitecture(architecture, Shield(anchor, shield_of(triangle()).guards))
    shape = {name: value.shape for name, value in _initial(architecture).items()}
    assert {name: value.shape for name, value in _initial(through).items()} == shape


def _initial(architecture):
    return architecture.initialise(3, torch.Generator().manual_seed(0))


def test_the_length_beyond_the_rules_is_held_in_the_unit_of_the_loss():
    """Outputs (4, 0) at every input, y0 <= 1, anchor 0: r = 4, and change = (1, 0)."""
    rule = Linear(BOX, [1.0, 0.0], 1.0, "<=")
    rule.check(2, 2)
    shield = Shield(ConstantMembers([[0.0, 0.0]], 2), (guard_of(rule, 2),))
    network = NetworkArchitecture(2, 2, hidden=())
    x = inputs(0)
    for outwards, unit in ((4.0, 1.0), (4.0, 1e3), (0.5, 1.0)):
        gradients = []
        for holds in (False, True):
            architecture = ShieldedArchitecture(network, shield, holds_length=holds)
            bias = torch.tensor([[outwards, 0.0]]).double().requires_grad_(True)
            parameters = {"weight_0": torch.zeros(1, 2, 2).double(), "bias_0": bias}
            outputs = architecture.forward(parameters, x)
            torch.testing.assert_close(outputs[0, :, 0].max().item(), min(outwards, 1.0))
            loss = unit * (outputs[..., 0] * 3 + outputs[..., 1]).mean()
            gradients.append(torch.autograd.grad(loss, bias)[0][0])
        added = gradients[1] - gradients[0]
        # d/dy0 of HOLD * |loss' . change| * log r
        expected = HOLD * 3 * unit / outwards if outwards > 1 else 0.0
        np.testing.assert_allclose(added.numpy(), [expected, 0.0], rtol=1e-6, atol=1e-12)


def test_another_function_of_the_same_name_is_another_rule():
    """Two functions cannot be compared: what one shield keeps says nothing of the other."""
    mine, other = (Concave(BOX, disc, bound, name="disc") for bound in (0.0, 0.5))
    keys = [guard_of(rule, 2).key for rule in (mine, mine, other)]
    for rule in (mine, other):
        rule.check(2, 2)
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


@pytest.mark.parametrize("size", [0.01, 1.0, 10.0])  # none, some and nearly all rules are broken
def test_training_by_broken_rules_alone_is_the_same(monkeypatch, size):
    """Rules of opposite signs, of other limits, and with bounds that move with the input."""
    rng = np.random.default_rng(3)
    rows, tilt = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    bound = AffineBound([2, 3, 2, 3, 4, 3, 2, 4], np.concatenate([tilt, -0.5 * tilt]))
    rule = Linear(BOX, np.concatenate([rows, -rows]), bound, "<=")
    shield = Shield(ConstantMembers([[0.0, 0.0, 0.1]], 2), (guard_of(rule, 3),))
    x, found = inputs(5), []
    values = torch.as_tensor(rng.normal(size=(2, len(x), 3)) * size)
    values[0, 7, 1] = torch.nan
    for terms in (0, 10**18):
        monkeypatch.setattr(blending, "MANY_TERMS", terms)
        free = values.clone().requires_grad_(True)
        outputs, theta = shield.blend(x, free)
        (slope,) = torch.autograd.grad(outputs.nan_to_num().square().sum() + theta.sum(), free)
        found.append((outputs.detach(), theta.detach(), slope))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert (size < 0.1) == bool(found[0][1].nan_to_num()[1].max() == 0)
