"""`Shield` keeps random rules in the floats that come out, and moves nothing that keeps them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from random_rules import KINDS, Case, case
from torch import Tensor, nn

from cg4ai.anchors.affine_maps import AffineMap
from cg4ai.errors import InvalidInput, MissingAnchor
from cg4ai.members import ConstantMembers, NetworkArchitecture, ShieldedMembers
from cg4ai.members import Shield as MemberShield
from cg4ai.members.affine_maps import build_affine_member
from cg4ai.nn import Completion, OutputSet, SequentialWithInput, Shield
from cg4ai.rules import (
    AffineBound,
    Ball,
    Box,
    Concave,
    Equality,
    Linear,
    Margin,
    Monotone,
    Ordered,
    Probability,
    Quadratic,
    Range,
    SumTo,
)
from raising import raises

EPS = np.finfo(np.float64).eps
UNITS = (1e-9, 1e-4, 1.0, 1e3, 1e9)
SIZES = (1, 2, 7, 40)


def made(one: Case) -> Shield:
    return Shield(one.rules, region=one.region, output_size=one.outputs)


def drawn(one: Case, count: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs in the region, outputs of many sizes."""
    generator = torch.Generator().manual_seed(seed)
    x = one.region.sample(count, generator)
    size = 10.0 ** (3 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 1)
    y = torch.randn(count, one.outputs, generator=generator, dtype=torch.float64) * size * one.unit
    return x.to(dtype).double(), y.to(dtype)


def check_kept(one: Case, layer: Shield, dtype: torch.dtype, count: int = 12) -> int:
    """Every output keeps the rules exactly, or as float64 computes them if it was left alone."""
    x, y = drawn(one, count, dtype)
    inside = torch.as_tensor(one.region.contains(x.numpy()))
    kept = layer(y, x)
    assert kept.dtype == dtype
    moved = 0
    for place, before, after, within in zip(x, y, kept, inside, strict=True):
        if not within:
            continue
        point, found = place.numpy(), after.double().numpy()
        slack = one.slack(point, found)
        if torch.equal(before, after):
            assert slack >= -Fraction(20 * one.outputs * EPS * one.size(point, found))
        else:
            moved += 1
            assert slack >= 0, float(slack)
            # and the outputs as they were did not keep them, but for rounding
            was = one.slack(point, before.double().numpy())
            assert was <= Fraction(20 * one.outputs * EPS) * Fraction(
                one.size(point, before.double().numpy())
            )
    return moved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rules_of_all_kinds_are_kept_exactly(kind: str, dtype: torch.dtype) -> None:
    moved = 0
    for seed, (unit, size) in enumerate(itertools.product(UNITS, SIZES)):
        if kind == "ordered" and size == 1:
            continue
        one = case(kind, size, seed, unit)
        moved += check_kept(one, made(one), dtype)
    assert moved > 50


@pytest.mark.slow
@pytest.mark.guard
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "count"), [(100, 4), (500, 1)])
def test_many_outputs(kind: str, size: int, count: int) -> None:
    for seed, unit in enumerate((1e-9, 1.0, 1e9)):
        one = case(kind, size, seed, unit)
        layer = made(one)
        for dtype in (torch.float32, torch.float64):
            check_kept(one, layer, dtype, count=count)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_inside_are_not_moved(kind: str) -> None:
    one = case(kind, 5, 3)
    layer = made(one)
    for dtype in (torch.float32, torch.float64):
        x, y = drawn(one, 200, dtype)
        kept = layer(y, x)
        again = layer(kept, x)
        assert torch.equal(kept, again)
        assert torch.equal(layer.double()(kept, x), kept)


def test_far_outputs_come_back() -> None:
    one = case("several", 6, 1)
    layer = made(one)
    x, y = drawn(one, 8, torch.float64)
    for size in (1e8, 1e15, 1e17, 1e25, 1e150, 1e300):
        kept = layer(y * size, x)
        for place, after in zip(x, kept, strict=True):
            assert one.slack(place.numpy(), after.numpy()) >= 0
    for size in (1e8, 1e20, 1e37):
        kept = layer((y * size).float(), x).double()
        for place, after in zip(x, kept, strict=True):
            assert one.slack(place.numpy(), after.numpy()) >= 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_are_not_finite_give_the_anchor(dtype: torch.dtype) -> None:
    rule = Linear(Box([0.0], [1.0]), [1.0, 1.0, 0.0], 1.0, "<=")
    layer = Shield(rule, anchor=[0.25, 0.25, 3.0])
    wrong = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=dtype)
    y = torch.cat([torch.diag(wrong), torch.full((1, 3), torch.nan, dtype=dtype)])
    y[y == 0] = 0.1
    kept = layer(y, torch.full((4, 1), 0.5))
    assert torch.equal(kept, torch.tensor([0.25, 0.25, 3.0], dtype=dtype).expand(4, 3))
    z = y.clone().requires_grad_()
    layer(z).sum().backward()
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("kind", KINDS)
def test_it_agrees_with_the_shield_of_members(kind: str) -> None:
    one = case(kind, 6, 11)
    layer = made(one)
    generator = torch.Generator().manual_seed(0)
    architecture = NetworkArchitecture(one.region.size, 6, hidden=(8,))
    inner = architecture.members(architecture.initialise(3, generator))
    inner = architecture.members(
        architecture.scale_outputs(inner.parameters, torch.full((3,), 20.0))
    )
    shield = MemberShield(build_affine_member(layer.anchor), layer.guards)
    x = one.region.sample(300, generator)
    with torch.no_grad():
        wanted = ShieldedMembers(inner, shield).outputs(x)
        found = torch.stack([layer(y, x) for y in inner.outputs(x)])
    assert (wanted != inner.outputs(x)).any()
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
    same = (found == wanted).double().mean()
    assert same > 0.3  # bit for bit where members aim far enough inside already


@pytest.mark.parametrize("kind", ["linear", "tilted", "pieces", "moving", "quadratic", "range"])
def test_gradients(kind: str) -> None:
    one = case(kind, 4, 5)
    layer = made(one)
    x, y = drawn(one, 6, torch.float64, seed=2)
    y = (y * 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: layer(z, x), (y,), eps=1e-7, atol=1e-4)


def test_gradients_of_an_anchor_that_moves() -> None:
    region = Box([0.0, 0.0], [1.0, 1.0])
    rule = Linear(
        region, [[1.0, 0.0], [-1.0, 0.0]], AffineBound([0.1, 0.1], [[5, 0], [-5, 0]]), "<="
    )
    layer = Shield(rule)
    assert not layer.anchor.is_constant
    x = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    y = 10 + torch.rand(5, 2, dtype=torch.float64)
    y.requires_grad_()
    assert torch.autograd.gradcheck(layer, (y, x), eps=1e-7, atol=1e-4)
    assert (layer(y, x)[:, 0] - 5 * x[:, 0]).abs().max() <= 0.1


def test_concave_rules_labels_and_balls() -> None:
    def room(outputs: Tensor) -> Tensor:
        return 2.0 - torch.linalg.vector_norm(outputs, dim=-1)

    ball = Ball([0.5, 0.5], 0.3)
    layer = Shield(
        [
            Concave(ball, room, 0.5, name="within"),
            Probability(ball, 0, 0.4, name="likely"),
            Margin(ball, 0, 0.1, name="clear"),
        ],
        output_size=3,
    )
    y = 5 * torch.randn(300, 3)
    kept = layer(y).double()
    assert (room(kept) - 0.5).min() >= -1e-6
    assert kept[:, 0].min() >= 0.4
    assert (kept[:, :1] - kept[:, 1:]).min() >= 0.1


# ---- shapes, places and arguments --------------------------------------------------------------


def test_any_number_of_leading_axes() -> None:
    region = Box([0.0], [1.0])
    layer = Shield(Linear(region, [1.0, 1.0], AffineBound(0.5, [1.0]), "<="))
    x, y = torch.rand(3, 4, 1), 4 * torch.randn(3, 4, 2)
    wanted = layer(y.reshape(12, 2), x.reshape(12, 1)).reshape(3, 4, 2)
    assert torch.equal(layer(y, x), wanted)
    assert torch.equal(layer(y[0, 0], x[0, 0]), wanted[0, 0])
    assert torch.equal(layer(y, x[0]), layer(y, x[0].expand(3, 4, 1)))
    assert layer(y[:0], x[:0]).shape == (0, 4, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_at_all(kind: str) -> None:
    one = case(kind, 3, 2)
    layer = made(one)
    y = torch.zeros(0, 3, requires_grad=True)
    kept = layer(y, torch.zeros(0, one.region.size))
    kept.sum().backward()
    assert kept.shape == y.grad.shape == (0, 3)


def test_an_anchor_of_another_size_moves_outputs_no_further_than_they_need() -> None:
    """Orders name no size: the anchor's steps are large beside outputs of small units."""
    layer = Shield(Ordered(), output_size=200)
    y = 1e-4 * torch.randn(50, 200, generator=torch.Generator().manual_seed(0))
    kept = layer(y)
    assert (kept.diff(dim=-1) >= 0).all()
    theta = (y[:, :-1] - y[:, 1:]).amax(-1, keepdim=True) / torch.as_tensor(
        np.diff(layer.anchor.offsets).min()
    )
    step = (theta / (1 + theta)) * torch.as_tensor(layer.anchor.offsets)
    exact = y.double() * (1 - theta / (1 + theta)) + step
    assert (kept.double() - exact).abs().max() <= 1e-4 * exact.abs().max()


def test_without_the_input_rules_hold_everywhere_and_with_it_in_their_region() -> None:
    layer = Shield(Linear(Box([0.0], [1.0]), [1.0], 1.0, "<="))
    y, x = torch.full((2, 1), 5.0), torch.tensor([[0.5], [2.0]])
    assert layer(y).max() <= 1
    kept = layer(y, x)
    assert kept[0] <= 1
    assert kept[1] == 5
    assert "Called without x" in layer.guarantee()


def test_inputs_outside_the_region_or_not_a_number_are_left_alone_and_the_words_say_so() -> None:
    layer = Shield(Linear(Box([0.0], [1.0]), [1.0], AffineBound(1.0, [1.0]), "<="))
    y, x = torch.full((4, 1), 5.0), torch.tensor([[0.5], [2.0], [torch.nan], [torch.inf]])
    assert layer(y, x)[:, 0].tolist()[1:] == [5.0, 5.0, 5.0]
    assert layer(y, x)[0] <= 1.5
    assert "outside a region, or with NaN" in layer.guarantee()
    everywhere = Shield(Linear(None, [1.0], 1.0, "<="))
    assert "outside a region" not in everywhere.guarantee()
    assert everywhere(y, x).max() <= 1


def test_an_input_that_rounding_put_outside_counts_as_inside() -> None:
    layer = Shield(Linear(Box([0.0], [0.1]), [1.0], 1.0, "<="))
    x = torch.tensor([[0.1]])
    assert x.double().item() > 0.1
    assert layer(torch.tensor([[5.0]]), x) <= 1


def test_one_region_for_rules_that_name_none() -> None:
    region = Box([0.0], [1.0])
    rules = [
        Linear(None, [1.0, 1.0], AffineBound(0.5, [1.0]), "<=", name="cap"),
        Quadratic(None, np.eye(2), 0.6, name="disc"),
        Range(0.0, None, name="positive"),
        Linear(Box([0.0], [0.5]), [1.0, 0.0], 0.2, "<=", name="left"),
    ]
    layer = Shield(rules, region=region)
    x, y = torch.rand(500, 1), 3 * torch.randn(500, 2)
    kept = layer(y, x).double()
    assert kept.min() >= 0
    assert (kept.sum(-1) - 0.5 - x.double()[:, 0]).max() <= 0
    assert kept.square().sum(-1).max() <= 0.6
    left = x[:, 0] <= 0.5
    assert kept[left, 0].max() <= 0.2
    assert kept[~left, 0].max() > 0.2


def test_within_other_layers() -> None:
    balance = Equality(None, [1.0, 1.0, 1.0], 1.0, name="balance")
    cap = Linear(None, [1.0, 0.0, 0.0], 0.5, "<=", name="cap")
    whole = nn.Sequential(Completion(balance), Shield(cap, within=balance))
    kept = whole(5 * torch.randn(400, 2)).double()
    assert kept[:, 0].max() <= 0.5
    assert (kept.sum(-1) - 1).abs().max() <= 1e-6
    shares = SumTo(1.0, name="shares")
    whole = nn.Sequential(OutputSet(shares, output_size=3), Shield(cap, within=shares))
    kept = whole(5 * torch.randn(400, 3)).double()
    assert kept[:, 0].max() <= 0.5
    assert kept.min() >= 0
    assert (kept.sum(-1) - 1).abs().max() <= 1e-6


def test_given_anchors_are_proven() -> None:
    region = Box([0.0], [1.0])
    rule = Linear(
        region, [[1.0], [-1.0]], AffineBound([1.0, 0.0], [[1.0], [-1.0]]), "<=", name="band"
    )
    slopes = np.array([[1.0]])
    for given in ((slopes, [0.5]), AffineMap(slopes, np.array([0.5])), (torch.ones(1, 1), [0.5])):
        layer = Shield(rule, anchor=given)
        assert layer.room == pytest.approx(0.25)  # of bounds up to 2
        y = layer(torch.tensor([[torch.nan]]), torch.tensor([[0.5]]))
        assert y.item() == 1.0
    with raises(InvalidInput, "anchor", "band"):
        Shield(rule, anchor=[9.0])
    with raises(InvalidInput, "shape"):
        Shield(rule, anchor=[1.0, 2.0])
    with raises(InvalidInput, "not-finite"):
        Shield(rule, anchor=[np.nan])
    balance = Equality(None, [1.0, 1.0], 1.0, name="balance")
    cap = Linear(None, [1.0, 0.0], 0.9, "<=")
    with raises(InvalidInput, "anchor", "balance"):
        Shield(cap, within=balance, anchor=[0.0, 0.0])
    assert Shield(cap, within=balance, anchor=[0.5, 0.5]).room > 0
    near = Shield(Linear(None, [1.0], 10.0, "<="), reference=[7.0])
    assert near.anchor.offsets == pytest.approx([7.0])


def test_no_anchor_says_which_rule_and_where() -> None:
    rule = Linear(
        Box([0.0], [1.0]),
        [[1.0], [-1.0]],
        AffineBound([-1.0, 0.0], [[0.0], [1.0]]),
        "<=",
        name="no",
    )
    with raises(MissingAnchor, "anchor", "no") as caught:
        Shield(rule)
    assert isinstance(caught.value, MissingAnchor)
    assert caught.value.rule == "no"
    assert len(caught.value.point) == 1


def test_arguments_that_do_not_fit() -> None:
    cap = Linear(None, [1.0, 1.0], 1.0, "<=", name="cap")
    tilted = Linear(None, [1.0, 1.0], AffineBound(1.0, [1.0]), "<=", name="tilted")
    region = Box([0.0], [1.0])
    with raises(InvalidInput, "missing-argument", "tilted"):
        Shield(tilted)
    with raises(InvalidInput, "type", "Monotone"):
        Shield(Monotone({0: +1}))
    with raises(InvalidInput, "empty"):
        Shield([])
    with raises(InvalidInput, "missing-argument"):
        Shield(Range(0.0, 1.0))
    with raises(InvalidInput, "shape"):
        Shield([cap, Linear(None, [1.0], 1.0, "<=")])
    with raises(InvalidInput, "unsupported"):
        Shield(Equality(None, [1.0, 1.0], 1.0))
    with raises(InvalidInput, "unsupported"):
        Shield(SumTo(1.0), output_size=2)
    with raises(InvalidInput, "unsupported"):
        Shield(cap, within=tilted)
    with raises(InvalidInput, "shape"):
        Shield([Linear(region, [1.0], 1.0, "<="), Linear(Box([0, 0], [1, 1]), [1.0], 1.0, "<=")])
    layer = Shield(tilted, region=region)
    with raises(InvalidInput, "missing-argument"):
        layer(torch.zeros(3, 2))
    with raises(InvalidInput, "shape"):
        layer(torch.zeros(3, 3), torch.zeros(3, 1))
    with raises(InvalidInput, "shape"):
        layer(torch.zeros(3, 2), torch.zeros(3, 2))
    with raises(InvalidInput, "type"):
        layer(torch.zeros(3, 2, dtype=torch.int64), torch.zeros(3, 1))
    for rule in (
        cap,
        Quadratic(None, np.eye(2), 1.0, name="cap"),
        Margin(None, 0, 0.1, name="cap"),
    ):
        with raises(InvalidInput, "missing-argument", "cap"):
            rule.check(1, 2)


def test_a_sequence_that_hands_the_input_on() -> None:
    region = Box([0.0], [1.0])
    cap = Linear(region, [1.0, 1.0], AffineBound(0.5, [1.0]), "<=")
    model = SequentialWithInput(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 2), Shield(cap))
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    x = torch.rand(256, 1)
    first = None
    for _ in range(60):
        loss = (model(x) - 2.0).square().mean()
        first = first or loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    kept = model(x).double()
    assert (kept.sum(-1) - 0.5 - x.double()[:, 0]).max() <= 0
    assert loss.item() < first
    best = (2 - (0.5 + x) / 2).square().mean().item()
    assert loss.item() < 1.1 * best


def test_words() -> None:
    cap = Linear(Box([0.0], [1.0]), [1.0, 1.0], 1.0, "<=", name="cap")
    layer = Shield(cap)
    text = layer.guarantee()
    assert "cap (1 row) holds at every input of a box in 1 dimensions" in text
    assert "in float32" in text
    assert "closed form" in text
    assert "in float64" in layer.double().guarantee()
    assert "in float64" in layer.float().guarantee(torch.float64)
    assert "cap" in repr(layer)
    assert isinstance(build_affine_member(layer.anchor), ConstantMembers)


def test_inputs_are_repeated_to_outputs_or_refused() -> None:
    region = Box([0.0, 0.0], [1.0, 1.0])
    layer = Shield(Linear(region, [1.0, 1.0], AffineBound(0.1, [1.0, 0.0]), "<="))
    for lead in ((), (1,), (5,), (4, 1), (4, 5)):
        x, y = torch.rand(*lead, 2), torch.full((4, 5, 2), 3.0)
        shape = (4, 5, 2) if len(lead) > 1 else (5, 2)
        outputs = layer(y[0] if len(lead) < 2 else y, x)
        assert outputs.shape == shape
        assert (outputs.double().sum(-1) <= 0.1 + x.double()[..., 0]).all()
    for lead, wrong in (((4,), (5, 2)), ((5,), (1, 2)), ((5,), (2,))):
        with raises(InvalidInput, "shape"):
            layer(torch.zeros(wrong), torch.zeros(*lead, 2))
    with raises(InvalidInput, "shape"):
        layer(torch.zeros(3, 2), torch.tensor(1.0))
    with raises(InvalidInput, "type"):
        layer(np.zeros((3, 2)), torch.zeros(3, 2))
    with raises(InvalidInput, "type"):
        layer(torch.zeros(3, 2), [0.0, 0.0])
