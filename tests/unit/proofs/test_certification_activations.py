"""Lines around activations against dense grids and the exact shapes of the functions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from cg4ai.errors import InvalidInput
from cg4ai.proofs.bounds import activations
from cg4ai.proofs.bounds.activations import (
    GELU_AT_ROOT,
    GELU_LOWEST,
    GELU_STEEPEST,
    LIPSCHITZ,
    ROOT_TWO,
    compute_lines,
)
from raising import raises

FUNCTIONS = {
    "relu": lambda t: np.maximum(t, 0.0),
    "tanh": np.tanh,
    "gelu": lambda t: t * ndtr(t),
}


def fitted(activation, centre, lower, upper):
    one = [torch.tensor([value], dtype=torch.float64) for value in (centre, lower, upper)]
    return [float(part) for part in compute_lines(activation, one[0], lower=one[1], upper=one[2])]


@pytest.mark.parametrize("activation", list(FUNCTIONS))
@settings(max_examples=300, deadline=None)
@given(
    lower=st.floats(-12, 12),
    width=st.one_of(st.floats(0, 1e-6), st.floats(0, 2), st.floats(0, 20)),
    share=st.floats(0, 1),
)
@example(lower=-ROOT_TWO, width=2 * ROOT_TWO, share=0.5)
@example(lower=-3.0, width=0.0, share=0.0)
@example(lower=-40.0, width=80.0, share=0.5)
def test_lines_enclose_the_function_on_the_whole_interval(activation, lower, width, share):
    upper = lower + width
    centre = min(upper, lower + share * width)
    f: Any = FUNCTIONS[activation]
    up, up_offset, down, down_offset = fitted(activation, centre, lower, upper)
    t = np.concatenate([np.linspace(lower, upper, 4001), [centre, lower, upper]])
    t = t.clip(lower, upper)
    slack = 1e-13 * (1 + np.abs(t).max())
    assert np.all(f(t) <= f(centre) + up * (t - centre) + up_offset + slack)
    assert np.all(f(t) >= f(centre) + down * (t - centre) + down_offset - slack)
    assert up_offset >= 0 >= down_offset
    assert max(abs(up), abs(down)) <= LIPSCHITZ[activation] + 1e-6


@pytest.mark.parametrize("activation", list(FUNCTIONS))
@settings(max_examples=200, deadline=None)
@given(centre=st.floats(-6, 6), radius=st.floats(1e-3, 0.3))
def test_offsets_shrink_with_the_square_of_the_interval(activation, centre, radius):
    if activation == "relu" and abs(centre) < radius:
        return  # a kink has no curvature
    _, up_offset, _, down_offset = fitted(activation, centre, centre - radius, centre + radius)
    # |gelu''| <= 0.8 and |tanh''| <= 0.77; where curvature changes sign lines cost a little more
    assert up_offset <= 0.4 * radius**2 + 0.3 * radius**3 + 1e-12
    assert down_offset >= -0.4 * radius**2 - 0.3 * radius**3 - 1e-12


def test_relu_lines_are_the_known_ones():
    assert fitted("relu", 1.0, -1.0, 3.0) == pytest.approx([0.75, 0.5, 1.0, 0.0])
    assert fitted("relu", -0.5, -1.0, 0.0) == pytest.approx([0.0, 0.0, 0.0, 0.0])
    assert fitted("relu", 2.0, 1.0, 3.0) == pytest.approx([1.0, 0.0, 1.0, 0.0])


def test_gelu_constants_are_values_of_gelu_and_its_derivative_where_that_turns():
    derivative = lambda t: ndtr(t) + t * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    assert pytest.approx(derivative(ROOT_TWO), abs=1e-15) == GELU_STEEPEST
    assert pytest.approx(derivative(-ROOT_TWO), abs=1e-15) == GELU_LOWEST
    assert pytest.approx(ROOT_TWO * ndtr(ROOT_TWO), abs=1e-15) == GELU_AT_ROOT
    grid = np.array([derivative(t) for t in np.linspace(-8, 8, 16001)])
    assert grid.max() <= GELU_STEEPEST
    assert grid.min() >= GELU_LOWEST


@pytest.mark.parametrize("activation", list(FUNCTIONS))
def test_gradients_are_finite_also_for_points_and_wide_intervals(activation):
    centre = torch.tensor([0.0, 0.0, 1.0, -30.0, 2.0], dtype=torch.float64, requires_grad=True)
    radius = torch.tensor([0.0, 5.0, 1e-9, 60.0, 1.0], dtype=torch.float64, requires_grad=True)
    fit = compute_lines(activation, centre, lower=centre - radius, upper=centre + radius)
    torch.stack([part.sum() for part in fit]).sum().backward()
    assert torch.isfinite(centre.grad).all()
    assert torch.isfinite(radius.grad).all()


def test_unknown_activation_is_refused():
    with raises(InvalidInput, "unsupported", "swish"):
        fitted("swish", 0.0, -1.0, 1.0)


def test_gradients_of_gelu_lines_are_those_that_autograd_finds():
    generator = torch.Generator().manual_seed(0)
    draw = [torch.rand(20_000, generator=generator, dtype=torch.float64) for _ in range(3)]
    centre = 8 * draw[0] - 4
    ends = (centre, centre - 4 * draw[1] ** 3, centre + 4 * draw[2] ** 3)
    inputs = [value.clone().requires_grad_() for value in ends]
    ways = [torch.randn(20_000, generator=generator, dtype=torch.float64) for _ in range(4)]

    def gradients(found):
        total = sum((part * way).sum() for part, way in zip(found, ways, strict=True))
        return torch.autograd.grad(total, inputs)

    by_hand = gradients(compute_lines("gelu", inputs[0], lower=inputs[1], upper=inputs[2]))
    recorded = gradients(activations._gelu(*inputs))
    for own, other in zip(by_hand, recorded, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-7, atol=1e-7)
