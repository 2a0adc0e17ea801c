"""`OutputSet` and `Completion`: what comes out lies in the set, in float32 and float64."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor, nn

from cg4ai.errors import InvalidInput
from cg4ai.members import (
    ArrangedArchitecture,
    ArrangedMembers,
    CompletedArchitecture,
    NetworkArchitecture,
)
from cg4ai.nn import Completion, OutputSet, SequentialWithInput
from cg4ai.rules import AffineBound, Box, Equality, Linear, Ordered, Range, SumTo
from raising import raises

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
ODD = [0.0, 1e-30, -1e20, 1e30, float("nan"), float("inf"), -float("inf")]


def outputs(count: int, size: int, dtype: torch.dtype, unit: float = 1.0) -> Tensor:
    """Of many sizes, some of them not finite."""
    generator = torch.Generator().manual_seed(0)
    y = unit * 3 * torch.randn(count, size, generator=generator, dtype=torch.float64)
    y[: len(ODD), 0] = torch.tensor(ODD, dtype=torch.float64)
    return y.to(dtype)


@BOTH
@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 1e9])
@pytest.mark.parametrize("size", [2, 9, 500])
def test_ranges_orders_and_sums(dtype: torch.dtype, unit: float, size: int) -> None:
    random = np.random.default_rng(size)
    low = unit * np.sort(random.normal(size=size))
    high = np.sort(low + unit * random.random(size))
    total = float(low.sum() + 0.4 * (high - low).sum())
    layer = OutputSet([Range(low, high), Ordered(), SumTo(total, low=None)])
    free = OutputSet([Range(low, high), Ordered()])
    y = outputs(40, size, dtype, unit)
    for one in (layer, free):
        found = one(y)
        assert found.dtype == dtype
        kept = found.double().numpy()
        assert (kept >= low - 1e-14 * np.abs(low)).all() if one is layer else (kept >= low).all()
        assert (kept <= high + 1e-14 * np.abs(high)).all() if one is layer else True
        assert (np.diff(kept) >= 0).all()
    sums = [sum(map(Fraction, row)) for row in layer(y).double().numpy().tolist()]
    allowed = (6.1e-8 if dtype == torch.float32 else 1e-13) * float(
        np.maximum(np.abs(low), np.abs(high)).sum()
    )
    assert max(abs(one - Fraction(total)) for one in sums) <= allowed


@BOTH
def test_ranges_are_kept_in_the_floats_that_come_out(dtype: torch.dtype) -> None:
    low, high = np.array([0.1, -0.3, 0.7]), np.array([0.2, -0.1, np.inf])
    kept = OutputSet(Range(low, high))(outputs(50, 3, dtype)).double().numpy()
    assert (kept >= low).all()
    assert (kept <= high).all()
    assert np.isfinite(kept).all()
    single = OutputSet(Range(0.1, 0.1), output_size=1)
    assert single(torch.zeros(1, 1)).item() == np.float32(0.1)
    assert "no float32" in single.guarantee()


@given(st.integers(2, 12), st.integers(0, 10_000))
def test_what_lies_inside_stays(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    low = np.sort(random.normal(size=size))
    high = np.sort(low + random.random(size))
    layer = OutputSet([Range(low, high), Ordered()])
    inside = np.sort(low + random.random(size) * (high - low))
    y = torch.as_tensor(np.clip(inside, np.maximum.accumulate(low), high))
    if all(a <= b for a, b in pairwise(y.tolist())):
        assert torch.equal(layer(y), y)


def test_the_nearest_shares() -> None:
    """SumTo with a least end is the projection: against a general solver."""
    y = outputs(20, 4, torch.float64)[len(ODD) :]
    found = OutputSet(SumTo(1.0), output_size=4)(y).numpy()
    for row, own in zip(y.numpy(), found, strict=True):
        solved = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            np.full(4, 0.25),
            jac=lambda z, row=row: 2 * (z - row),
            bounds=[(0, None)] * 4,
            constraints={"type": "eq", "fun": lambda z: z.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(own, solved.x, atol=1e-6)


def test_it_agrees_with_arranged_members_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = OutputSet(
        [Range(-0.5, 2.0), Ordered([0, 1]), SumTo(1.0, [2, 3], low=None)], output_size=4
    )
    architecture = NetworkArchitecture(3, 4, hidden=(8,))
    parameters = architecture.initialise(2, generator)
    inner = architecture.members(parameters)
    x = torch.rand(100, 3, dtype=torch.float64, generator=generator)
    wanted = ArrangedMembers(inner, layer.source).outputs(x)
    assert torch.equal(torch.stack([layer.eval()(y) for y in inner.outputs(x)]), wanted)
    # and gradients as in training
    whole = ArrangedArchitecture(architecture, layer.source)
    double = {name: one.double().requires_grad_() for name, one in parameters.items()}
    whole.forward(double, x).square().sum().backward()
    slopes = [one.grad.clone() for one in double.values()]
    for one in double.values():
        one.grad = None
    layer.train()(architecture.forward(double, x)).square().sum().backward()
    for one, slope in zip(double.values(), slopes, strict=True):
        torch.testing.assert_close(one.grad, slope, rtol=1e-12, atol=1e-12)


def test_gradients_of_sets() -> None:
    layer = OutputSet([SumTo(1.0, low=None), Ordered()], output_size=4).eval()
    y = outputs(30, 4, torch.float64)[len(ODD) :].requires_grad_()
    assert torch.autograd.gradcheck(layer, (y,), atol=1e-5)


def test_a_gradient_that_leads_back_inside_passes_in_training_alone() -> None:
    layer, y = OutputSet(Range(0.0, 1.0), output_size=2), torch.tensor([2.0, -1.0])
    for training, wanted in ((True, [1.0, 0.0]), (False, [0.0, 0.0])):
        z = y.clone().requires_grad_()
        layer.train(training)(z).sum().backward()
        assert z.grad.tolist() == wanted


# ---- equalities --------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(("count", "size"), [(1, 2), (2, 5), (20, 100)])
def test_equalities(dtype: torch.dtype, unit: float, count: int, size: int) -> None:
    random = np.random.default_rng(count)
    matrix = random.normal(size=(count, size))
    slope, offset = unit * random.normal(size=(count, 3)), unit * random.normal(size=count)
    layer = Completion(Equality(None, matrix, AffineBound(offset, slope), name="balance"))
    assert layer.widths == (size, size - count)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(30, 3, generator=generator, dtype=torch.float64)
    bound = offset + x.numpy() @ slope.T
    for width in layer.widths:
        z = unit * torch.randn(30, width, generator=generator, dtype=torch.float64)
        y = layer(z.to(dtype), x)
        assert y.dtype == dtype
        found = y.double().numpy()
        sizes = np.abs(found) @ np.abs(matrix).T + np.abs(bound)
        allowed = 6.1e-8 if dtype == torch.float32 else 1e-12
        assert (np.abs(found @ matrix.T - bound) <= allowed * sizes).all()
    # nearest: what is projected differs from what came by a mixture of the rows alone
    z = unit * torch.randn(1, size, dtype=torch.float64)
    step = (layer(z, x[:1]) - z)[0].numpy()
    rest = step - matrix.T @ np.linalg.lstsq(matrix.T, step, rcond=None)[0]
    assert np.abs(rest).max() <= 1e-10 * unit


def test_it_agrees_with_completed_architectures() -> None:
    generator = torch.Generator().manual_seed(0)
    rule = Equality(None, [[1.0, 1.0, 0.5]], AffineBound(1.0, [0.3, 0.2]), name="balance")
    layer = Completion(rule)
    architecture = NetworkArchitecture(2, 2, hidden=(8,))
    parameters = {name: one.double() for name, one in architecture.initialise(1, generator).items()}
    x = torch.rand(50, 2, dtype=torch.float64, generator=generator)
    wanted = CompletedArchitecture(architecture, rule.completion(2)).forward(parameters, x)[0]
    completed = layer(architecture.forward(parameters, x)[0], x)
    torch.testing.assert_close(completed, wanted, rtol=1e-13, atol=1e-14)


def test_gradients_and_odd_numbers_of_completions() -> None:
    layer = Completion(Equality(None, [1.0, 2.0, -1.0], AffineBound(1.0, [0.5]), name="balance"))
    x = torch.rand(4, 1, dtype=torch.float64, requires_grad=True)
    for width in layer.widths:
        z = torch.randn(4, width, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(layer, (z, x))
    z = outputs(10, 2, torch.float32)
    y = layer(z, x[:1].detach().expand(10, 1))
    assert torch.isfinite(y).all()
    assert torch.isnan(layer(z, torch.full((10, 1), torch.nan))).all()
    assert "Where x has NaN" in layer.guarantee()


def test_a_network_trained_through_a_completion() -> None:
    rule = Equality(None, [1.0, 1.0], AffineBound(0.0, [1.0]), name="sums to x")
    model = SequentialWithInput(nn.Linear(1, 1), Completion(rule))
    optimiser, x = torch.optim.Adam(model.parameters(), 0.05), torch.rand(64, 1)
    target = torch.cat([0.3 * x, 0.7 * x], 1)
    for _ in range(300):
        optimiser.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimiser.step()
    assert loss.item() < 1e-4
    assert (model(x).double().sum(-1) - x[:, 0]).abs().max() < 1e-6


# ---- arguments ----------------------------------------------------------------------------------


def test_arguments_that_do_not_fit() -> None:
    with raises(InvalidInput, "missing-argument"):
        OutputSet(SumTo(1.0))
    with raises(InvalidInput, "type"):
        OutputSet(Linear(None, [1.0], 1.0))
    with raises(InvalidInput, "type"):
        OutputSet([])
    with raises(InvalidInput, "type"):
        Completion(Range(0.0, 1.0))
    with raises(InvalidInput, "shape"):
        OutputSet(SumTo(1.0), output_size=3)(torch.zeros(2, 4))
    layer = Completion(Equality(None, [1.0, 1.0], AffineBound(0.0, [1.0]), name="one"))
    with raises(InvalidInput, "missing-argument"):
        layer(torch.zeros(2, 1))
    with raises(InvalidInput, "shape"):
        layer(torch.zeros(2, 3), torch.zeros(2, 1))


def test_equalities_that_rounding_would_miss_are_refused() -> None:
    """Which ones are depends on the processor: those accepted hold in exact arithmetic."""
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        matrix = random.normal(size=(3, 4)) * 10.0 ** random.uniform(-9, 9, (3, 4))
        rule = Equality(None, matrix, 1.0, name="of very different sizes")
        layer: Completion | None = None
        with contextlib.suppress(InvalidInput):
            layer = Completion(rule)
        if layer is None:
            refused += 1
            with raises(InvalidInput, "range"):
                Completion(rule)
            continue
        y = layer(torch.zeros(1, 4, dtype=torch.float64))[0].tolist()
        for row in matrix.tolist():
            terms = [Fraction(a) * Fraction(b) for a, b in zip(row, y, strict=True)]
            size = max(Fraction(1), *map(abs, terms))
            assert abs(sum(terms, Fraction(0)) - 1) <= Fraction(1, 10**12) * 4 * size
    assert refused >= 10


def test_words() -> None:
    layer = OutputSet([SumTo(1.0, name="shares"), Ordered(name="in order")], output_size=3)
    assert "shares holds at every input" in layer.guarantee()
    assert "6.1e-08" in layer.guarantee(torch.float32)
    assert "1e-14" in layer.guarantee(torch.float64)
    assert "shares, in order; 3 outputs" in repr(layer)
    completion = Completion(Equality(Box([0.0], [1.0]), [1.0, 1.0], 1.0, name="one"))
    assert not completion.needs_input
    assert "one holds at every input" in completion.guarantee()
    assert "2 or 1 numbers to 2 outputs" in repr(completion)
