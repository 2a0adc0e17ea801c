"""Bounds of rules on cells: the quadratic, its pieces for the master, its gradients."""

import numpy as np
import pytest
import torch
from certification_cases import points_in, single_block
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import CellBounds
from cg4ai.proofs.bounds.bound import CellQuadratic, Cells, bound_cells, bound_quadratic
from cg4ai.routing import instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.members import SplitNetwork
from cg4ai.routing.train.problem import capacity
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from raising import raises


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 4))
def test_quadratics_stay_below_their_bound_and_separable_ones_reach_it(seed, size):
    generator = np.random.default_rng(seed)
    radius = generator.uniform(0, 2, size)
    linear, square = generator.normal(size=size), generator.normal(size=(size, size))
    square = 0.5 * (square + square.T)
    delta = points_in(-radius, radius, 500, seed)

    def bound(matrix):
        form = CellQuadratic(*(torch.as_tensor(np.asarray(a))[None] for a in (0.7, linear, matrix)))
        values = 0.7 + delta @ linear + ((delta @ matrix) * delta).sum(1)
        return float(bound_quadratic(form, torch.as_tensor(radius)[None])), values

    upper, values = bound(square)
    assert values.max() <= upper + 1e-12
    upper, values = bound(np.diag(np.diag(square)))
    fine = np.linspace(-1, 1, 2001)[:, None] * radius
    best = (fine * linear + np.diag(square) * fine**2).max(0).sum() + 0.7
    assert upper == pytest.approx(best, abs=1e-4)
    assert upper >= best - 1e-12


@pytest.fixture(scope="module", params=[(8,), (6, 5)], ids=["shallow", "deep"])
def routing(request):
    """Untrained routers, two per demand, beside a constant one, with some weights."""
    network = instance("abilene", 5, 3)
    split = SplitNetwork(network, hidden=request.param)
    parameters = split.initialise(10, torch.Generator().manual_seed(3))
    members = split.members({name: value.double() * 1.0 for name, value in parameters.items()})
    blocks = np.tile(np.arange(5), 2)
    shares = np.full((5, members.output_size), 1.0 / members.output_size)
    constant = ConstantMembers(shares, 5)
    ensemble = Ensemble(
        (
            Part(members, blocks, np.repeat([0.5, 0.3], 5)),
            Part(constant, np.arange(5), np.full(5, 0.2)),
        ),
        Layout(network.blocks),
    )
    return network, ensemble, capacity(network, Recipe())


def random_cells(network, count, seed=0, width=0.2):
    generator = np.random.default_rng(seed)
    lower = generator.uniform(0, 1 - width, (count, 5)) * network.demand_max
    return lower, lower + width * network.demand_max


def test_routing_bounds_hold_on_their_cells(routing):
    network, ensemble, requirement = routing
    bounds = CellBounds(ensemble, requirement)
    rules = np.arange(len(network.arcs))
    for width in (0.01, 0.2, 1.0):
        lower, upper = random_cells(network, len(rules), width=width)
        got = bounds.upper(rules, lower, upper).numpy()
        for rule in rules:
            x = points_in(lower[rule], upper[rule], 200, int(rule))
            values = network.compute_utilisation(x, ensemble.predict(x))[:, rule]
            assert values.max() <= got[rule] + 1e-12
            assert got[rule] - values.max() <= 3 * width


def test_cells_of_many_rules_have_the_bounds_of_the_search(routing):
    network, ensemble, requirement = routing
    bounds = CellBounds(ensemble, requirement)
    rules = np.repeat(np.arange(len(network.arcs)), 2)
    for width in (0.05, 0.5):
        lower, upper = random_cells(network, len(rules), width=width)
        together = bounds.upper(rules, lower, upper).numpy()
        for rule in np.unique(rules):
            own = rules == rule
            cells = Cells(torch.as_tensor(lower[own]), torch.as_tensor(upper[own]))
            terms = bounds.parts.take_apart(bounds.rules, int(rule))
            alone = bound_cells(terms, cells, weights=bounds.weights)
            assert together[own] == pytest.approx(alone.upper.numpy(), abs=1e-12)


def test_single_precision_is_for_training_and_differs_by_rounding_alone(routing):
    network, ensemble, requirement = routing
    bounds = CellBounds(ensemble, requirement)
    rules = np.repeat(np.arange(len(network.arcs)), 20)
    lower, upper = random_cells(network, len(rules), width=0.1)
    own = {k: v.float() for k, v in ensemble.parts[0].members.parameters.items()}
    single = bounds.upper(rules, lower, upper, parameters={0: own})
    assert single.dtype == torch.float32
    assert single.numpy() == pytest.approx(bounds.upper(rules, lower, upper).numpy(), abs=2e-5)


def test_rules_come_back_in_the_order_they_were_given(routing):
    network, ensemble, requirement = routing
    bounds = CellBounds(ensemble, requirement)
    lower, upper = random_cells(network, 6)
    rules = np.array([3, 0, 3, 7, 0, 1])
    together = bounds.upper(rules, lower, upper)
    for j in range(6):
        alone = bounds.upper(rules[j : j + 1], lower[j : j + 1], upper[j : j + 1])
        assert float(alone) == pytest.approx(float(together[j]), abs=1e-12)


def test_the_bound_is_differentiable_in_parameters_and_weights(routing):
    network, ensemble, requirement = routing
    bounds = CellBounds(ensemble, requirement)
    lower, upper = random_cells(network, 8, width=0.1)
    rules = np.arange(8)
    own = {k: v.clone().requires_grad_() for k, v in ensemble.parts[0].members.parameters.items()}
    weights = bounds.weights.clone().requires_grad_()
    total = bounds.upper(rules, lower, upper, parameters={0: own}, weights=weights).sum()
    total.backward()
    generator = torch.Generator().manual_seed(0)
    for name in ("weight_0", "bias_1", "skip"):
        way = torch.randn(own[name].shape, generator=generator, dtype=torch.float64)
        step = 1e-6
        moved = [
            bounds.upper(
                rules, lower, upper, parameters={0: {**own, name: own[name] + s * step * way}}
            )
            .sum()
            .item()
            for s in (1, -1)
        ]
        slope = float((own[name].grad * way).sum())
        assert slope == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-4, abs=1e-6)
    assert torch.isfinite(weights.grad).all()


def test_cuts_support_the_convex_bound(routing):
    network, ensemble, requirement = routing
    bounds = CellBounds(ensemble, requirement)
    rules = np.arange(len(network.arcs))
    lower, upper = random_cells(network, len(rules), width=0.1)
    here = bounds.weights.numpy()
    cut = bounds.coefficients(rules, lower, upper)
    generator = np.random.default_rng(1)
    for weights in [here, *(generator.dirichlet(np.ones(3), 5).T.ravel() for _ in range(5))]:
        values = np.zeros((len(rules), 200))
        for rule in rules:
            x = points_in(lower[rule], upper[rule], 200, int(rule))
            y = np.zeros((200, len(network.path_demand)))
            for part, start in zip(ensemble.parts, (0, 10), strict=True):
                outputs = part.members.outputs(torch.as_tensor(x)).numpy()
                for i, block in enumerate(part.blocks):
                    at = ensemble.layout.blocks[block]
                    y[:, at] += weights[start + i] * outputs[i, :, : len(at)]
            values[rule] = network.compute_utilisation(x, y)[:, rule]
        bound = bounds.upper(rules, lower, upper, weights=torch.as_tensor(weights)).numpy()
        # the quadratic bound, which the ceiling may undercut, is that of the cut made here
        quadratic = weights @ bounds.coefficients(rules, lower, upper, weights=weights)
        assert np.all(quadratic >= bound - 1e-12)
        assert np.all(quadratic >= values.max(1) - 1e-12)
        assert np.all(weights @ cut <= quadratic + 1e-12)


def test_two_demands_by_hand():
    """One affine member, rule (1 + 2 x) y with y = 3 x - 1 on [0, 1]: the maximum is 6 at 1."""
    from cg4ai.members import affine
    from cg4ai.rules.coefficients import AffineCoefficients

    class Rule:
        count = 1

        def values(self, inputs, outputs):
            return (1 + 2 * inputs) * outputs

        def coefficients(self, inputs, which):
            return 1 + 2 * inputs

        def affine(self):
            zero = np.zeros(1, np.int64)
            return AffineCoefficients(np.ones((1, 1)), zero, zero, zero, np.full(1, 2.0))

    ensemble = single_block(affine(np.full((1, 1, 1), 3.0), np.full((1, 1), -1.0)))
    requirement = Linear(Box([0.0], [1.0]), Rule(), 6.0, sense="<=")
    bounds = CellBounds(ensemble, requirement)
    one = np.zeros(1, np.int64)
    got = bounds.upper(one, np.zeros((1, 1)), np.ones((1, 1)))
    assert float(got) == pytest.approx(6.0, abs=1e-9)


def test_trees_are_refused():
    from sklearn.tree import DecisionTreeRegressor

    from cg4ai.members import from_sklearn

    tree = from_sklearn(DecisionTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0]))
    requirement = Linear(Box([0.0], [1.0]), [1.0], 2.0, sense="<=")
    ensemble = Ensemble((Part(tree, np.zeros(1, np.int64), np.ones(1)),), Layout.single(1))
    one = np.zeros(1, np.int64)
    with raises(InvalidInput, "unsupported", "trees"):
        CellBounds(ensemble, requirement).upper(one, np.zeros((1, 1)), np.ones((1, 1)))
    with raises(InvalidInput, "unsupported", "trees"):
        CellBounds(ensemble, requirement).coefficients(one, np.zeros((1, 1)), np.ones((1, 1)))
