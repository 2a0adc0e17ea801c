"""ReLU members priced by programs: against every corner of the class, and in whole runs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pricing_requests import make_request, point_rows

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, Problem, Settings, solve
from cg4ai.colgen.pricing.exact import relu_units as units
from cg4ai.colgen.pricing.exact.relu_networks import ReluPricer
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.objectives import Supervised
from cg4ai.records import StopReason
from cg4ai.rules import Linear
from cg4ai.rules.rows import RowSet
from raising import raises

RADIUS = 2.0


def every_corner(design):
    """All units at which hyperplanes of inputs and axes meet, both ways."""
    size = design.shape[1]
    planes = np.concatenate([design, np.eye(size)])
    found = [np.zeros(size)]
    for meeting in itertools.combinations(range(len(planes)), size - 1):
        direction = np.linalg.svd(planes[list(meeting)])[2][-1]
        direction /= np.abs(direction).sum()
        found += [direction, -direction]
    return np.array(found)


def constant_mixture(values, inputs):
    members = ConstantMembers(np.array([values]), inputs)
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(len(values)))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), features=st.integers(1, 2), outputs=st.integers(1, 2))
def test_the_best_member_is_that_of_all_corners(seed, features, outputs):
    rng = np.random.default_rng(seed)
    train, points = rng.normal(size=(7, features)), rng.normal(size=(3, features))
    targets, coefficients = rng.normal(size=(7, outputs)), rng.normal(size=(3, outputs))
    duals, current = rng.random(3), rng.normal(size=outputs)
    rows = RowSet(Layout.single(outputs), [point_rows(points, coefficients, np.zeros(3))])
    request = make_request(
        Supervised(train, targets, "squared", "mixture"),
        rows,
        duals=duals,
        gammas=[0.7],
        ensemble=constant_mixture(current, features),
    )
    result = ReluPricer(features, outputs, radius=RADIUS).price(request)

    inputs = np.concatenate([train, points])
    prices = np.concatenate([2 * (current - targets) / 7, -duals[:, None] * coefficients])
    design = np.column_stack([(inputs - train.mean(0)) / train.std(0), np.ones(10)])
    centre, unit = targets.mean(0), targets.std(0)
    total = prices.sum(0)
    constant = total @ centre - RADIUS * np.abs(total) @ unit
    outputs_of_units = np.maximum(every_corner(design) @ design.T, 0.0)
    expected = constant - RADIUS * np.abs(outputs_of_units @ prices * unit).max() - 0.7

    assert result.lower_bound[0] <= expected + 1e-12
    assert result.lower_bound[0] >= expected - 0.5 * abs(expected)  # coarse: members improve much
    costs = compute_reduced_costs(request, result.members, result.blocks)
    assert costs.min() == pytest.approx(expected, abs=1e-7)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), features=st.integers(1, 2))
def test_bounds_of_units_are_tight_and_never_above_the_best(seed, features):
    rng = np.random.default_rng(seed)
    design = np.column_stack([rng.normal(size=(9, features)), np.ones(9)])
    prices = rng.normal(size=9)
    best = min(0.0, units.compute_worth(every_corner(design), design, prices[:, None]).min())
    found = units.find_best_unit(design, prices, rng.normal(size=features + 1) / 10)
    assert found.bound <= best
    assert found.bound == pytest.approx(best, abs=1e-6)
    assert found.worth == pytest.approx(best, abs=1e-6)
    assert np.abs(found.parameters).sum() <= 1 + 1e-12


def test_a_bound_holds_where_the_program_is_cut_short(monkeypatch):
    rng = np.random.default_rng(1)
    design = np.column_stack([rng.normal(size=(14, 2)), np.ones(14)])
    prices = rng.normal(size=14)
    monkeypatch.setattr(units, "NODES", 1)
    found = units.find_best_unit(design, prices, np.zeros(3))
    assert found.bound <= units.compute_worth(every_corner(design), design, prices[:, None]).min()
    assert np.isfinite(found.bound)


def test_members_stay_within_their_class():
    rng = np.random.default_rng(3)
    inputs, targets = rng.normal(5, 3, size=(12, 2)), rng.normal(100, 7, size=(12, 1))
    objective = Supervised(inputs, targets, "squared", "mixture")
    result = solve(Problem(objective, [], [ReluPricer(2, 1, radius=RADIUS)], Layout.single(1)))
    assert result.stop_reason is StopReason.OPTIMAL
    for part in result.ensemble.used:
        values = {name: np.asarray(array) for name, array in part.members.state().arrays.items()}
        slopes = values["weight_0"] * inputs.std(0)
        offsets = values["bias_0"] + (values["weight_0"] * inputs.mean(0)).sum(-1)
        size = np.abs(slopes).sum(-1) + np.abs(offsets)
        assert size.max() <= 1 + 1e-9
        assert np.abs(values["weight_1"]).max() <= RADIUS * targets.std() * (1 + 1e-9)
        distance = np.abs(values["bias_1"] - targets.mean())
        assert distance.max() <= RADIUS * targets.std() * (1 + 1e-9)


def test_what_affine_members_cannot_meet_relu_members_do_with_a_proof():
    inputs = np.linspace(0, 1, 9)[:, None]
    rules = [
        Linear([[0.0], [1.0]], [1.0], 1.0, ">=", name="high at the ends"),
        Linear([[0.5]], [1.0], 0.2, "<=", name="low half-way"),
    ]
    model = ConstrainedRegressor(members="relu", random_state=0)
    model.fit(inputs, np.full(9, 0.5), requirements=rules)
    assert model.result_.stop_reason is StopReason.OPTIMAL
    assert model.result_.gap <= 1e-6
    assert model.predict([[0.0], [1.0]]).min() >= 1 - 1e-6
    assert model.predict([[0.5]])[0] <= 0.2 + 1e-6


def test_a_rule_beyond_the_class_is_infeasible():
    inputs = np.linspace(0, 1, 6)[:, None]
    rule = Linear([[0.5]], [1.0], 1000.0, ">=", name="too high")
    objective = Supervised(inputs, np.sin(6 * inputs), "squared", "mixture")
    problem = Problem(objective, [rule], [ReluPricer(1, 1)], Layout.single(1))
    assert solve(problem).stop_reason is StopReason.INFEASIBLE


def test_two_blocks_and_logits():
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(10, 1)), rng.normal(size=(10, 2))
    layout = Layout((np.array([0]), np.array([1])))
    objective = Supervised(inputs, targets, "squared", "mixture")
    result = solve(Problem(objective, [], [ReluPricer(1, 1, radius=RADIUS)], layout))
    assert result.stop_reason is StopReason.OPTIMAL
    labels = (inputs[:, 0] ** 2 > 0.5).astype(int)
    model = ConstrainedClassifier(members="relu", scores="logit", random_state=0)
    model.fit(inputs, labels)
    assert model.result_.stop_reason is StopReason.OPTIMAL
    assert model.score(inputs, labels) == 1.0


def test_sizes_that_do_not_solve_are_refused_before_training():
    rng = np.random.default_rng(0)
    with raises(InvalidInput, "memory"):
        ConstrainedRegressor(members="relu").fit(rng.normal(size=(61, 2)), rng.normal(size=61))
    with raises(InvalidInput, "memory"):
        ConstrainedRegressor(members="relu").fit(rng.normal(size=(30, 10)), rng.normal(size=30))
    model = ConstrainedRegressor(members="relu", objective="average")
    with raises(InvalidInput, "unsupported", "mixture"):
        model.fit(rng.normal(size=(20, 2)), rng.normal(size=20))
    with raises(InvalidInput, "conflict"):
        ConstrainedClassifier(members="relu").fit(rng.normal(size=(20, 2)), np.arange(20) % 2)
    with raises(InvalidInput, "range"):
        ReluPricer(1, 1, radius=0.0)


def test_a_time_limit_leaves_a_bound():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(30, 2))
    objective = Supervised(inputs, rng.normal(size=(30, 1)), "squared", "mixture")
    problem = Problem(objective, [], [ReluPricer(2, 1)], Layout.single(1))
    result = solve(problem, Settings(iteration_limit=3))
    assert result.stop_reason is StopReason.ITERATION_LIMIT
    assert result.gap is not None
    assert result.gap > 0
