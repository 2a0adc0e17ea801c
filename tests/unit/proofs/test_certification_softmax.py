"""Sigmoid lines, log-sum-exp chords and shares against grids and samples."""

import numpy as np
import torch
from certification_cases import points_in, random_networks
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import expit, logsumexp

from cg4ai.members import affine
from cg4ai.proofs.bounds.networks import relax
from cg4ai.proofs.bounds.softmax import bound_log_sum_exp, bound_share, bound_sigmoid


@settings(max_examples=300, deadline=None)
@given(centre=st.floats(-30, 30), reach=st.one_of(st.floats(0, 1e-6), st.floats(0, 30)))
@example(centre=-1e4, reach=2.0)
@example(centre=1e4, reach=0.0)
@example(centre=0.0, reach=1.0)
@example(centre=0.0, reach=5.62716918442976e-08)
def test_sigmoid_line_lies_above_and_is_no_higher_than_it_must(centre, reach):
    c, r = torch.tensor(centre, dtype=torch.float64), torch.tensor(reach, dtype=torch.float64)
    value, slope = (float(part) for part in bound_sigmoid(c, r))
    t = np.linspace(centre - reach, centre + reach, 4001)
    excess = expit(t) - value - slope * (t - centre)
    assert excess.max() <= 1e-15
    assert excess.max() >= -1e-6  # it touches the function up to the grid's step
    # the chord of a tiny cell is a quotient of two roundings: eps / reach of slope
    assert 0 <= slope <= 0.25 + 1e-9 + 1e-15 / max(reach, 1e-300)


def relaxed(members, lower, upper):
    centre = torch.as_tensor(0.5 * (lower + upper))[None]
    radius = torch.as_tensor(0.5 * (upper - lower))[None]
    return relax(members.architecture, members.parameters, centre=centre, radius=radius), centre


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), outputs=st.integers(2, 6), on=st.integers(1, 5))
def test_log_sum_exp_of_affine_scores(seed, outputs, on):
    on = min(on, outputs)
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=(1, 3, outputs)) * generator.choice([0.1, 2.0])
    bias = generator.normal(size=(1, outputs)) * 2
    lower, upper = np.array([-1.0, 0.0, 0.3]), np.array([1.0, 0.5, 0.3])
    relaxation, centre = relaxed(affine(weights, bias), lower, upper)
    chosen = generator.permutation(outputs)[:on]
    value, combination = bound_log_sum_exp(relaxation, torch.as_tensor(chosen)[None])
    x = points_in(lower, upper, 400, seed)
    scores = x @ weights[0] + bias[0]
    moved = scores - (centre.numpy()[0] @ weights[0] + bias[0])
    bound = float(value) + moved @ combination.numpy()[0, 0]
    exact = logsumexp(scores[:, chosen], axis=1)
    assert np.all(exact <= bound + 1e-12)
    at_centre = logsumexp((centre.numpy()[0] @ weights[0] + bias[0])[chosen])
    widest = np.abs(weights[0]).T @ (upper - lower)
    assert float(value) - at_centre <= (on - 1) * widest.max() ** 2 / 8 * on + 1e-12


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    activation=st.sampled_from(["relu", "gelu", "tanh"]),
    hidden=st.sampled_from([(), (4,), (4, 3)]),
    outputs=st.integers(2, 5),
    width=st.sampled_from([1e-3, 0.2, 2.0]),
)
def test_shares_of_networks_stay_below_their_bound(seed, activation, hidden, outputs, width):
    members = random_networks(
        seed, hidden=hidden, activation=activation, outputs=outputs, output="softmax", skip=True
    )
    generator = np.random.default_rng(seed)
    lower = generator.uniform(-1, 1, 2)
    upper = lower + width * generator.uniform(0, 1, 2)
    relaxation, centre = relaxed(members, lower, upper)
    order = generator.permutation(outputs)
    count = int(generator.integers(1, outputs))
    on = torch.as_tensor(order[:count]).repeat(2, 1)
    off = torch.ones(2, outputs, dtype=torch.bool).scatter(1, on, False)
    above = bound_share(relaxation, on, off=off, spread=True)
    x = points_in(lower, upper, 500, seed)
    shares = members.outputs(torch.as_tensor(x)).numpy()[..., order[:count]].sum(-1)
    delta = x - centre.numpy()
    linear = above.value.numpy() + np.einsum("nd,md->nm", above.slope.numpy()[:, 0], delta)
    assert np.all(shares <= linear + 1e-12)
    assert np.all(shares <= above.ceiling.numpy() + 1e-12)
    assert np.all(above.spread.numpy() >= -1e-15)


def test_narrow_cells_have_bounds_close_to_the_share_itself():
    members = random_networks(3, output="softmax", outputs=5)
    middle = np.array([0.2, -0.1])
    relaxation, centre = relaxed(members, middle - 1e-4, middle + 1e-4)
    on = torch.tensor([[0, 1, 2]] * 2)
    off = torch.tensor([[False, False, False, True, True]] * 2)
    above = bound_share(relaxation, on, off=off)
    exact = members.outputs(centre).numpy()[:, 0, :3].sum(-1)
    assert np.all(above.value.numpy()[:, 0] - exact <= 1e-7)
    assert np.all(above.value.numpy()[:, 0] >= exact - 1e-15)
