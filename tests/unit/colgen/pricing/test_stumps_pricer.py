from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pricing_requests import make_request, point_rows

from cg4ai.colgen.pricing.exact.stumps import BoxLeaves, SimplexLeaves, StumpPricer
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.rules.rows import ConcaveRows, RowSet
from raising import raises


class FirstOutput:
    count = 1

    def values(self, inputs, outputs):
        return outputs[..., :1]

    def coefficients(self, inputs, which):
        return np.eye(2)[np.zeros(len(which), np.int64)]


def naive_best(data, prices, *, weights, targets, low, high):
    """Least cost of a stump by a triple loop: features, thresholds, a fine grid of leaf values."""
    (train, rows), best = data, np.inf
    everything = np.concatenate([train, rows])
    for feature in range(train.shape[1]):
        for threshold in np.unique(everything[:, feature]):
            cost = 0.0
            for side in (True, False):
                mine = (train[:, feature] <= threshold) == side
                priced = (rows[:, feature] <= threshold) == side
                for output in range(targets.shape[1]):
                    grid = np.linspace(low[output], high[output], 4001)
                    error = (grid[:, None] - targets[mine, output]) ** 2 @ weights[mine]
                    cost += (error + grid * prices[priced, output].sum()).min()
            best = min(best, cost)
    return best


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), repeated=st.booleans(), outputs=st.integers(1, 2))
def test_squared_loss_matches_a_naive_triple_loop(seed, repeated, outputs):
    rng = np.random.default_rng(seed)
    train, rows = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    if repeated:
        train, rows = train.round(), rows.round()
    targets, weights = rng.normal(size=(6, outputs)), rng.random(6) + 0.1
    coefficients, duals = rng.normal(size=(4, outputs)), rng.random(4) * (rng.random(4) > 0.3)
    row_set = RowSet(Layout.single(outputs), [point_rows(rows, coefficients, np.zeros(4))])
    objective = Supervised(train, targets, sample_weight=weights)
    request = make_request(objective, row_set, duals=duals, gammas=[5.0], loss_weight=0.8)
    result = StumpPricer(2, outputs).price(request)
    expected = naive_best(
        (train, rows),
        -duals[:, None] * coefficients,
        weights=0.8 * weights / weights.sum(),
        targets=targets,
        low=targets.min(0),
        high=targets.max(0),
    )
    assert result.lower_bound[0] <= expected - 5.0
    assert result.lower_bound[0] == pytest.approx(expected - 5.0, abs=1e-5)
    assert result.members is not None
    costs = compute_reduced_costs(request, result.members, result.blocks)
    assert costs.min() == pytest.approx(result.lower_bound[0], abs=1e-10)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.01, 1.0, 100.0]))
def test_no_probabilities_beat_the_bound_of_a_leaf(seed, scale):
    rng = np.random.default_rng(seed)
    counts = rng.random((5, 3)) * (rng.random((5, 3)) > 0.3)
    prices = scale * rng.normal(size=(5, 3))
    leaves = SimplexLeaves(3, 1e-3)
    solution = leaves.solve(np.concatenate([counts, prices], axis=1))
    np.testing.assert_allclose(solution.values.sum(1), 1.0)
    assert solution.values.min() >= 1e-3 - 1e-12
    tried = 1e-3 + (1 - 3e-3) * np.concatenate(
        [rng.dirichlet(np.ones(3), 3000), rng.dirichlet(np.full(3, 0.05), 3000), np.eye(3)]
    )
    costs = -np.log(tried) @ counts.T + tried @ prices.T
    margin = 1e-12 * (1 + scale)
    assert np.all(costs.min(0) >= solution.lower_bound - margin)
    np.testing.assert_allclose(solution.cost, solution.lower_bound, atol=1e-9 * (1 + scale))


def test_log_loss_stumps_match_every_split_solved_by_itself():
    from scipy.optimize import minimize

    rng = np.random.default_rng(5)
    train, rows = rng.normal(size=(8, 2)), rng.normal(size=(4, 2))
    labels, duals = np.array([0, 1, 2, 0, 1, 2, 0, 1]), rng.random(4)
    coefficients = np.eye(3)[[0, 1, 2, 0]]
    row_set = RowSet(Layout.single(3), [point_rows(rows, coefficients, np.zeros(4))])
    request = make_request(
        Supervised(train, labels, "log_loss"), row_set, duals=duals, gammas=[9.0]
    )
    result = StumpPricer(2, 3).price(request)
    best = np.inf
    for feature in range(2):
        for threshold in np.concatenate([train, rows])[:, feature]:
            cost = 0.0
            for side in (True, False):
                mine = (train[:, feature] <= threshold) == side
                priced = (rows[:, feature] <= threshold) == side
                counts = np.bincount(labels[mine], minlength=3) / 8
                price = -(duals[:, None] * coefficients)[priced].sum(0)
                cost += minimize(
                    lambda p, c=counts, q=price: -c @ np.log(p) + q @ p,
                    np.full(3, 1 / 3),
                    method="SLSQP",
                    bounds=[(1e-3, 1)] * 3,
                    constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
                    options={"ftol": 1e-12},
                ).fun
            best = min(best, cost)
    assert result.lower_bound[0] == pytest.approx(best - 9.0, abs=1e-6)
    costs = compute_reduced_costs(request, result.members, result.blocks)
    assert costs.min() == pytest.approx(result.lower_bound[0], abs=1e-9)


@pytest.mark.parametrize("loss", ["none", "squared"])
def test_linear_prices_go_to_corners_for_epigraph_none_and_mixture(loss):
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(7, 3))
    layout = Layout((np.array([1]), np.array([0])))
    rows = RowSet(layout, [point_rows(inputs, rng.normal(size=(7, 2)), np.zeros(7))])
    targets = rng.normal(size=(7, 2))
    ensemble = Ensemble(
        (Part(ConstantMembers(np.array([[0.2], [0.1]]), 3), np.array([0, 1]), np.ones(2)),), layout
    )
    objective = (
        Epigraph(inputs, FirstOutput())
        if loss == "none"
        else Supervised(inputs, targets, kind="mixture")
    )
    request = make_request(
        objective, rows, duals=rng.random(7), gammas=[0.1, 0.2], ensemble=ensemble
    )
    result = StumpPricer(3, 1, low=-1.0, high=2.0, per_call=1).price(request)
    members: Any = result.members
    values = members.value.numpy()[:, 0, 1:]
    assert set(np.unique(values)) <= {-1.0, 2.0}
    costs = compute_reduced_costs(request, result.members, result.blocks)
    np.testing.assert_allclose(costs, result.lower_bound[result.blocks], atol=1e-10)
    # No stump on a random sample of the class does better.
    for _ in range(200):
        feature, at = rng.integers(3), rng.normal()
        leaf = rng.uniform(-1, 2, size=2)
        stump = StumpPricer(3, 1)._members([_stump(feature, at, leaf)])
        for block in range(2):
            cost = compute_reduced_costs(request, stump, np.array([block]))[0]
            assert cost >= result.lower_bound[block]


def _stump(feature, threshold, leaf):
    from cg4ai.colgen.pricing.exact.stumps import _Stump

    return _Stump(0.0, int(feature), threshold, leaf[:1], leaf[1:])


def test_all_thresholds_of_a_feature_are_solved_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    inputs, rows = rng.normal(size=(1000, 20)), rng.normal(size=(200, 20))
    row_set = RowSet(Layout.single(1), [point_rows(rows, rng.normal(size=(200, 1)), np.zeros(200))])
    objective = Supervised(inputs, rng.normal(size=(1000, 1)))
    request = make_request(objective, row_set, duals=rng.random(200), gammas=[10.0])
    solved = []
    solve = BoxLeaves.solve

    def counted(self, statistics):
        solved.append(len(statistics))
        return solve(self, statistics)

    monkeypatch.setattr(BoxLeaves, "solve", counted)
    StumpPricer(20, 1).price(request)
    assert solved == [2 * 1200] * 20  # left and right of every point, feature by feature


def test_thresholds_separate_neighbouring_floats():
    low = 1.0
    inputs = np.array([[low], [np.nextafter(low, 2)]])
    request = make_request(
        Supervised(inputs, np.array([[0.0], [1.0]])),
        RowSet(Layout.single(1)),
        duals=[],
        gammas=[1.0],
    )
    result = StumpPricer(1, 1).price(request)
    assert compute_reduced_costs(request, result.members, result.blocks)[0] == pytest.approx(-1.0)


def test_nothing_priced_gives_minus_gamma_and_no_member_when_that_is_not_negative():
    objective = Supervised(np.zeros((3, 2)), np.zeros((3, 1)), loss="none")
    request = make_request(objective, RowSet(Layout.single(1)), duals=[], gammas=[-0.5])
    result = StumpPricer(2, 1, low=0.0, high=1.0).price(request)
    assert result.members is None
    assert result.lower_bound[0] == pytest.approx(0.5)


def test_what_does_not_fit_is_refused():
    inputs = np.zeros((3, 2))
    layout = Layout.single(2)
    for objective, code in (
        (Supervised(inputs, np.zeros(3, np.int64), "cross_entropy"), "unsupported"),
        (Supervised(inputs, np.zeros(3, np.int64), "none"), "missing-argument"),
    ):
        with raises(InvalidInput, code):
            StumpPricer(2, 2).price(make_request(objective, RowSet(layout), duals=[]))
    squared = Supervised(inputs, np.zeros((3, 2)))
    with raises(InvalidInput, "shape"):
        StumpPricer(5, 2).price(make_request(squared, RowSet(layout), duals=[]))
    concave = ConcaveRows(0, inputs, lambda z, rows: z.amin(-1), np.zeros(3), np.arange(3))
    with raises(InvalidInput, "unsupported", "pairwise"):
        StumpPricer(2, 2).price(
            make_request(squared, RowSet(layout, [concave]), duals=[0.0, 0.0, 0.0])
        )
    for wrong in ({"floor": 0.0}, {"per_call": 0}, {"leaves": "ball"}):
        with pytest.raises(InvalidInput):
            StumpPricer(2, 2, **wrong)
