from typing import Any

import numpy as np
import pytest
import torch
from pricing_requests import make_request, point_rows
from sklearn.cluster import KMeans
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.colgen.pricing.trees import TreePricer
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
        return np.ones((len(which), 1))


def constant_ensemble(values, input_size):
    values = np.atleast_2d(values)
    part = Part(ConstantMembers(values, input_size), np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(values.shape[1]))


def regression(rng, *, loss="squared", kind="average", outputs=1):
    inputs = rng.uniform(-1, 1, size=(80, 3))
    targets = np.tile(np.sin(3 * inputs[:, :1]), (1, outputs))
    at = rng.uniform(-1, 1, size=(10, 3))
    rows = RowSet(
        Layout.single(outputs), [point_rows(at, np.ones((10, outputs)), np.full(10, 0.5))]
    )
    return Supervised(inputs, targets, loss=loss, kind=kind), rows


def classification(rng):
    inputs = rng.normal(size=(90, 2))
    labels = (inputs[:, 0] > 0).astype(np.int64) + (inputs[:, 1] > 0)
    wanted = np.eye(3)[(labels[:8] + 1) % 3]  # rows that contradict the data
    rows = RowSet(Layout.single(3), [point_rows(inputs[:8], wanted, np.full(8, 0.5))])
    return Supervised(inputs, labels, "log_loss"), rows


def mixture_cost(request, ensemble):
    """Reduced cost of the mixture's only member: what a proposal must beat."""
    (part,) = ensemble.parts
    return compute_reduced_costs(request, part.members, part.blocks)[0]


REGRESSORS = [
    DecisionTreeRegressor(max_depth=4),
    GradientBoostingRegressor(n_estimators=20),
    Ridge(),
]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", ["average", "mixture"])
def test_regressors_price_out_against_a_poor_mixture(estimator, kind):
    rng = np.random.default_rng(0)
    objective, rows = regression(rng, kind=kind)
    ensemble = constant_ensemble([0.0], 3)
    duals = rng.random(10) * 0.1
    trial = make_request(objective, rows, duals=duals, ensemble=ensemble)
    gamma = mixture_cost(trial, ensemble)
    request = make_request(objective, rows, duals=duals, gammas=[gamma], ensemble=ensemble)
    result = TreePricer(estimator).price(request)
    assert result.members is not None
    assert result.lower_bound is None
    costs = compute_reduced_costs(request, result.members, result.blocks)
    assert costs.max() < 0
    assert np.all(np.diff(costs) >= 0)


def test_scales_trade_the_data_against_the_rows():
    rng = np.random.default_rng(1)
    objective, rows = regression(rng)
    request = make_request(
        objective,
        rows,
        duals=np.full(10, 0.5),
        gammas=[100.0],
        ensemble=constant_ensemble([0.0], 3),
    )
    raised = []
    for scale in (0.01, 20.0):
        result = TreePricer(DecisionTreeRegressor(max_depth=6), scales=(scale,)).price(request)

        at = torch.as_tensor(rows.batches[0].inputs)
        raised.append(float(result.members.outputs(at).mean()))
    assert raised[1] > raised[0] + 1.0


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=5),
        RandomForestClassifier(n_estimators=10, max_depth=5),
        LogisticRegression(),
    ],
    ids=lambda e: type(e).__name__,
)
def test_classifiers_follow_the_classes_that_the_prices_favour(estimator):

    rng = np.random.default_rng(2)
    objective, rows = classification(rng)
    ensemble = constant_ensemble(np.full(3, 1 / 3), 2)
    duals = np.full(8, 2.0)
    trial = make_request(objective, rows, duals=duals, ensemble=ensemble)
    request = make_request(
        objective, rows, duals=duals, gammas=[mixture_cost(trial, ensemble)], ensemble=ensemble
    )
    result = TreePricer(estimator).price(request)
    assert compute_reduced_costs(request, result.members, result.blocks).min() < 0
    batch = rows.batches[0]
    outputs = result.members.outputs(torch.as_tensor(batch.inputs))
    assert float(batch.values(outputs).mean()) > 1 / 3


def test_rows_alone_are_enough():
    rng = np.random.default_rng(3)
    for objective in (
        regression(rng, loss="none")[0],
        Epigraph(rng.normal(size=(5, 3)), FirstOutput()),
    ):
        rows = regression(rng)[1]
        request = make_request(objective, rows, duals=np.ones(10))
        result = TreePricer(DecisionTreeRegressor(max_depth=3)).price(request)
        assert compute_reduced_costs(request, result.members, result.blocks).min() < 0


def test_without_prices_or_loss_nothing_is_proposed():
    objective, rows = regression(np.random.default_rng(3), loss="none")
    result = TreePricer(DecisionTreeRegressor()).price(
        make_request(objective, rows, duals=np.zeros(10))
    )
    assert result.members is None
    assert len(result.blocks) == 0


def test_concave_rows_are_followed_by_their_gradient():
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(6, 2))
    concave = ConcaveRows(0, inputs, lambda z, rows: z.amin(-1), np.zeros(6), np.arange(6))
    objective = Supervised(inputs, np.zeros((6, 2)), loss="none")
    request = make_request(
        objective,
        RowSet(Layout.single(2), [concave]),
        duals=np.ones(6),
        ensemble=constant_ensemble([0.0, 0.1], 2),
    )
    result = TreePricer(DecisionTreeRegressor(), scales=(0.05,)).price(request)
    assert compute_reduced_costs(request, result.members, result.blocks)[0] < 0


def test_the_same_seed_gives_the_same_members():
    rng = np.random.default_rng(5)
    objective, rows = classification(rng)
    request = make_request(objective, rows, duals=np.ones(8), gammas=[50.0])
    pricer = TreePricer(RandomForestClassifier(n_estimators=3))
    members: list[Any] = [pricer.price(request).members for _ in range(2)]
    np.testing.assert_array_equal(members[0].value.numpy(), members[1].value.numpy())


def test_blocks_get_their_own_members_and_must_agree_in_size():
    rng = np.random.default_rng(6)
    inputs, targets = rng.normal(size=(30, 2)), rng.normal(size=(30, 3))
    equal = RowSet(Layout((np.array([0]), np.array([2]), np.array([1]))))
    request = make_request(Supervised(inputs, targets), equal, duals=[], gammas=[9.0, 9.0, 9.0])
    result = TreePricer(DecisionTreeRegressor(), per_call=1).price(request)
    assert result.blocks.tolist() == [0, 1, 2]

    fitted = result.members.outputs(torch.as_tensor(inputs))[..., 0].numpy()
    np.testing.assert_allclose(fitted, targets[:, [0, 2, 1]].T, atol=1e-9)
    unequal = RowSet(Layout((np.array([0, 1]), np.array([2]))))
    with raises(InvalidInput, "unsupported"):
        TreePricer(DecisionTreeRegressor()).price(
            make_request(Supervised(inputs, targets), unequal, duals=[], gammas=[9.0, 9.0])
        )


def test_what_does_not_fit_is_refused():
    objective, rows = regression(np.random.default_rng(7))
    with raises(InvalidInput, "shape"):
        TreePricer(DecisionTreeClassifier()).price(make_request(objective, rows, duals=np.ones(10)))
    with raises(InvalidInput, "type"):
        TreePricer(3)
    with raises(InvalidInput, "range", "scales"):
        TreePricer(Ridge(), scales=(0.0,))
    with raises(InvalidInput, "range", "per_call"):
        TreePricer(Ridge(), per_call=0)
    with raises(InvalidInput, "unsupported"):
        TreePricer(KMeans(2)).price(make_request(objective, rows, duals=np.ones(10)))
