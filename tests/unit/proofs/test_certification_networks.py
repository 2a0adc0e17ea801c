"""Linear bounds of networks of any depth against samples, autograd and interval arithmetic."""

from typing import Any

import numpy as np
import pytest
import torch
from certification_cases import points_in, random_networks
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.proofs.bounds.networks import relax


def scores(members, x):
    """Forward pass written out in NumPy: (count, n, K)."""
    a, p = members.architecture, {k: v.numpy() for k, v in members.parameters.items()}
    normal = (x - a.shift) / a.scale
    activations: dict[str, Any] = {
        "relu": lambda t: np.maximum(t, 0),
        "tanh": np.tanh,
        "gelu": lambda t: torch.nn.functional.gelu(torch.as_tensor(t)).numpy(),
    }
    f, result = activations[a.activation], []
    for i in range(len(members)):
        h = normal
        for layer in range(a.depth):
            h = f(h @ p[f"weight_{layer}"][i].T + p[f"bias_{layer}"][i])
        z = h @ p[f"weight_{a.depth}"][i].T + p[f"bias_{a.depth}"][i]
        result.append(z + normal @ p["skip"][i].T if a.skip else z)
    return np.stack(result)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    activation=st.sampled_from(["relu", "gelu", "tanh"]),
    hidden=st.sampled_from([(), (4,), (4, 3), (3, 4, 3)]),
    skip=st.booleans(),
    width=st.sampled_from([0.0, 1e-2, 0.3, 3.0]),
)
def test_combinations_of_scores_stay_below_their_line(seed, activation, hidden, skip, width):
    members = random_networks(seed, hidden=hidden, activation=activation, skip=skip)
    generator = np.random.default_rng(seed)
    lower = generator.uniform(-1, 1, (2, 2))
    upper = lower + width * generator.uniform(0, 1, (2, 2))
    centre, radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
    relaxation = relax(
        members.architecture,
        members.parameters,
        centre=torch.as_tensor(centre),
        radius=torch.as_tensor(radius),
    )
    at_centre = scores(members, centre)
    assert relaxation.scores.numpy() == pytest.approx(at_centre, abs=1e-12)
    combination = generator.normal(size=(2, 1, 3))
    linear = relaxation.above(torch.as_tensor(combination), spread=True)
    low, high = (part.numpy() for part in relaxation.range(torch.as_tensor(combination)))
    for cell in range(2):
        x = points_in(lower[cell], upper[cell], 300, seed)
        moved = scores(members, x) - at_centre[:, cell : cell + 1]
        values = (moved * combination).sum(-1)
        line = linear.offset.numpy()[:, cell, None] + np.einsum(
            "nd,md->nm", linear.slope.numpy()[:, cell], x - centre[cell]
        )
        assert np.all(values <= line + 1e-11)
        assert np.all(values <= high[:, cell, None] + 1e-11)
        assert np.all(values >= low[:, cell, None] - 1e-11)
    assert np.all(linear.spread.numpy() >= -1e-12)


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
@pytest.mark.parametrize("hidden", [(6,), (5, 4)])
def test_on_tiny_cells_the_slope_is_the_gradient(activation, hidden):
    members = random_networks(1, hidden=hidden, activation=activation, skip=True)
    x = torch.tensor([[0.3, -0.2]], dtype=torch.float64, requires_grad=True)
    combination = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    relaxation = relax(
        members.architecture,
        members.parameters,
        centre=x.detach(),
        radius=torch.full((1, 2), 1e-6, dtype=torch.float64),
    )
    linear = relaxation.above(combination.expand(2, 1, 3))
    for i in range(2):
        value = (members.outputs(x)[i, 0] * combination).sum()
        (gradient,) = torch.autograd.grad(value, x)
        assert linear.slope[i, 0].numpy() == pytest.approx(gradient[0].numpy(), abs=1e-4)
        assert abs(float(linear.offset[i, 0])) < 1e-9


def test_spread_names_the_input_that_bends_the_network():
    members = random_networks(2, hidden=(6,), count=1)
    first = members.parameters["weight_0"].clone()
    first[..., 1] *= 1e-3
    bent = members.architecture.members({**members.parameters, "weight_0": first})
    relaxation = relax(
        bent.architecture,
        bent.parameters,
        centre=torch.zeros(1, 2, dtype=torch.float64),
        radius=torch.ones(1, 2, dtype=torch.float64),
    )
    spread = relaxation.above(torch.ones(1, 1, 3, dtype=torch.float64), spread=True).spread[0, 0]
    assert spread[0] > 50 * spread[1]
