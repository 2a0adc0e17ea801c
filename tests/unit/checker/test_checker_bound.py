"""Bounds of rules on cells against predictions of the ensemble at many inputs of the cells."""

from __future__ import annotations

import certificate_cases as cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai_checker.bound import rule_bound
from cg4ai_checker.cells import Cells
from cg4ai_checker.rule_total import largest_value

INPUTS = 3
MIXTURES = {
    "relu linear": lambda r: cases.mixture(r, cases.network(r, INPUTS, 2, hidden=(4,))),
    "tanh linear, deep": lambda r: cases.mixture(
        r, cases.network(r, INPUTS, 2, hidden=(4, 3), activation="tanh", skip=True)
    ),
    "gelu linear, three layers": lambda r: cases.mixture(
        r, cases.network(r, INPUTS, 2, hidden=(3, 3, 3), activation="gelu")
    ),
    "affine": lambda r: cases.mixture(r, cases.network(r, INPUTS, 2, hidden=())),
    "affine softmax": lambda r: cases.mixture(
        r, cases.network(r, INPUTS, 3, hidden=(), output="softmax")
    ),
    "gelu softmax": lambda r: cases.mixture(
        r,
        cases.network(r, INPUTS, 4, hidden=(5,), activation="gelu", skip=True, output="softmax"),
        cases.constants(r, INPUTS, 4),
    ),
    "relu softmax, two layers": lambda r: cases.mixture(
        r, cases.network(r, INPUTS, 5, hidden=(4, 4), output="softmax", scale=np.full(INPUTS, 0.5))
    ),
    "tanh grouped": lambda r: cases.mixture(
        r,
        cases.network(
            r, INPUTS, 5, hidden=(4,), activation="tanh", output="grouped", groups=(2, 3)
        ),
    ),
    "trees": lambda r: cases.mixture(r, cases.trees(r, INPUTS, 2)),
    "trees, softmax, float32": lambda r: cases.mixture(
        r,
        cases.trees(r, INPUTS, 3, link="softmax", single_precision=True),
        cases.constants(r, INPUTS, 3),
    ),
    "router": lambda r: cases.two_blocks(r, INPUTS),
}


def cells_and_points(random, count=6, points=400):
    """Random cells of the unit box, and inputs inside each: vertices and uniform ones."""
    centre = random.uniform(-0.7, 0.7, (count, INPUTS))
    radius = random.uniform(0, 0.3, (count, INPUTS)) * random.choice([0.01, 0.3, 1.0], (count, 1))
    cells = Cells(centre - radius, centre + radius)
    share = random.uniform(0, 1, (count, points, INPUTS))
    share[:, : points // 2] = np.round(share[:, : points // 2])
    low, high = cells.lower[:, None], cells.upper[:, None]
    return cells, np.clip(low + share * (high - low), low, high)


@pytest.mark.parametrize("name", MIXTURES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), slopes=st.booleans())
def test_no_input_of_a_cell_exceeds_its_bound(name, seed, slopes):
    random = np.random.default_rng(seed)
    ensemble = MIXTURES[name](random)
    rules = cases.random_rules(random, ensemble.output_size, INPUTS, slopes=slopes)
    wanted = cases.requirement(rules, -np.ones(INPUTS), np.ones(INPUTS))
    claim = cases.claim(ensemble, wanted)
    cells, points = cells_and_points(random)
    seen = cases.values(ensemble, wanted, points.reshape(-1, INPUTS))
    most = seen.reshape(len(cells), -1, rules.count).max(axis=1)
    for rule in range(rules.count):
        assert (most[:, rule] <= rule_bound(claim.terms(rule), cells).value).all()


@pytest.mark.parametrize("name", [name for name in MIXTURES if "tree" not in name])
def test_bounds_close_in_on_the_value_quadratically(name):
    random = np.random.default_rng(5)
    ensemble = MIXTURES[name](random)
    rules = cases.random_rules(random, ensemble.output_size, INPUTS)
    wanted = cases.requirement(rules, -np.ones(INPUTS), np.ones(INPUTS))
    claim = cases.claim(ensemble, wanted)
    centre = random.uniform(-0.7, 0.7, (40, INPUTS))
    gaps = []
    for radius in (2e-2, 1e-3):
        cells = Cells(centre - radius, centre + radius)
        corners = centre[:, None] + radius * np.array(list(np.ndindex(2, 2, 2))) * 2 - radius
        seen = cases.values(ensemble, wanted, corners.reshape(-1, INPUTS))
        most = seen.reshape(len(centre), -1, rules.count).max(axis=1)
        bounds = np.stack(
            [rule_bound(claim.terms(rule), cells).value for rule in range(rules.count)], axis=1
        )
        gaps.append(np.median(bounds - most))
    assert gaps[1] < gaps[0] / 100 + 1e-9


def test_a_missing_path_costs_nothing():
    """Logits of -1e4 leave the other outputs as they would be alone."""
    random = np.random.default_rng(1)
    ensemble = cases.two_blocks(random, INPUTS)
    rules = cases.AffineRules(np.array([[0.0, 0, 0, 1, 1]]), np.zeros((1, 5, INPUTS)))
    wanted = cases.requirement(rules, -np.ones(INPUTS), np.ones(INPUTS))
    cells = Cells(-np.ones((1, INPUTS)), np.ones((1, INPUTS)))
    bound = rule_bound(cases.claim(ensemble, wanted).terms(0), cells).value
    assert 1.0 <= bound[0] < 1 + 1e-8  # the two real paths take everything


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), steep=st.sampled_from([0.0, 1.0, 10.0]))
def test_largest_value_of_a_quadratic(seed, steep):
    random = np.random.default_rng(seed)
    n, size = 5, 3
    constant, linear = random.normal(size=n), steep * random.normal(size=(n, size))
    quadratic = random.normal(size=(n, size, size))
    radius = random.uniform(0, 1, (n, size))
    bound = largest_value(constant, linear, quadratic=quadratic, radius=radius)
    share = np.concatenate(
        [random.uniform(-1, 1, (2000, size)), 2.0 * np.array(list(np.ndindex(2, 2, 2))) - 1]
    )
    delta = share[None] * radius[:, None]
    values = (
        constant[:, None]
        + np.einsum("ni,npi->np", linear, delta)
        + np.einsum("npi,nij,npj->np", delta, quadratic, delta)
    )
    assert (values.max(axis=1) <= bound + 1e-12).all()
    if steep == 10.0:  # with steady slopes the maximum is a vertex, found exactly
        steady = np.abs(linear) > 2 * np.abs(quadratic).sum(axis=(1, 2))[:, None]
        exact = steady.all(axis=1)
        assert values.max(axis=1)[exact] == pytest.approx(bound[exact], abs=1e-9)


def test_one_falling_square_is_solved_exactly():
    bound = largest_value(
        np.zeros(1),
        np.array([[1.0]]),
        quadratic=np.array([[[-2.0]]]),
        radius=np.ones((1, 1)),
    )
    assert bound[0] == pytest.approx(1 / 8)
