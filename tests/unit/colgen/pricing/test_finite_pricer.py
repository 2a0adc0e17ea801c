import numpy as np
import pytest
import torch
from pricing_requests import make_request, point_rows

from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.reduced_cost import compute_price_terms, compute_reduced_costs
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.members.networks import affine
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.rules.rows import ConcaveRows, LinearRows, RowSet
from raising import raises

LAYOUT = Layout((np.array([2, 0]), np.array([1])))


class AllOutputs:
    """Two functions, the outputs' sum and the first output, for an epigraph."""

    count = 2

    def values(self, inputs, outputs):
        return torch.stack([outputs.sum(-1), outputs[..., 0]], dim=-1)

    def coefficients(self, inputs, which):
        return np.where(which[:, None] == 0, 1.0, np.eye(3)[0])


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def candidates(rng):
    return affine(rng.normal(size=(7, 4, 2)), rng.normal(size=(7, 2)), output="linear")


def some_rows(rng, layout):
    r = layout.output_size
    mixing = LinearRows(
        1,
        rng.normal(size=(6, 4)),
        rng.normal(size=(3, r)),
        rng.normal(size=3),
        mixing=rng.normal(size=(3, 6)),
    )
    idle = point_rows(rng.normal(size=(2, 4)), rng.normal(size=(2, r)), np.zeros(2))
    points = point_rows(rng.normal(size=(5, 4)), rng.normal(size=(5, r)), np.zeros(5))
    return RowSet(layout, [points, idle, mixing]), np.r_[rng.random(5), 0, 0, 0, rng.random(2)]


def by_hand(member_outputs, request, block):
    """Reduced cost from the definition, one row at a time; `member_outputs(x)` -> (n, q)."""
    positions = request.rows.layout.blocks[block]
    total = -request.duals.blocks[block]
    row = 0
    for batch in request.rows.batches:
        outputs = member_outputs(batch.inputs)
        for j in range(len(batch)):
            coefficient = batch.coefficients[j, positions]
            if batch.index is not None:
                value = outputs[batch.index[j]] @ coefficient
            else:
                value = sum(batch.mixing[j, k] * outputs[k] @ coefficient for k in range(6))
            total -= request.duals.rows[row] * value
            row += 1
    objective = request.objective
    if objective.kind == "epigraph":
        return total
    weights = objective.sample_weight / objective.sample_weight.sum()
    outputs, targets = member_outputs(objective.inputs), objective.targets[:, positions]
    if objective.kind == "average":
        losses = ((outputs - targets) ** 2).sum(1)
        return total + request.loss_weight * weights @ losses
    now = request.ensemble.predict(objective.inputs)[:, positions]
    slope = 2 * weights[:, None] * (now - targets)
    return total + request.loss_weight * (slope * outputs).sum()


@pytest.mark.parametrize("kind", ["average", "mixture", "epigraph"])
def test_reduced_costs_agree_with_the_definition(rng, candidates, kind):
    rows, duals = some_rows(rng, LAYOUT)
    inputs = rng.normal(size=(9, 4))
    objective = (
        Epigraph(inputs, AllOutputs())
        if kind == "epigraph"
        else Supervised(inputs, rng.normal(size=(9, 3)), kind=kind, sample_weight=rng.random(9))
    )
    mixed = np.array([0, 0, 1])
    ensemble = Ensemble(
        (Part(candidates.take(np.arange(3)), mixed, np.array([0.4, 0.6, 1.0])),), LAYOUT
    )
    request = make_request(
        objective, rows, duals=duals, gammas=[0.7, -1.1], loss_weight=0.6, ensemble=ensemble
    )
    blocks = np.array([0, 1, 1, 0, 1, 0, 0])
    found = compute_reduced_costs(request, candidates, blocks)
    for number, block in enumerate(blocks):
        width = len(LAYOUT.blocks[block])

        def outputs(x, number=number, width=width):
            return candidates.outputs(torch.as_tensor(x))[number, :, :width].numpy()

        assert found[number] == pytest.approx(by_hand(outputs, request, block), abs=1e-11)


def test_without_a_mixture_a_member_is_charged_its_own_loss(rng, candidates):
    inputs, targets = rng.normal(size=(9, 4)), rng.normal(size=(9, 2))
    rows = RowSet(Layout.single(2))
    costs = [
        compute_reduced_costs(
            make_request(Supervised(inputs, targets, kind=kind), rows, duals=[]),
            candidates,
            np.zeros(7, np.int64),
        )
        for kind in ("average", "mixture")
    ]
    np.testing.assert_allclose(costs[0], costs[1])


def test_concave_rows_use_each_members_own_value(rng, candidates):
    layout = Layout.single(2)
    inputs = rng.normal(size=(4, 4))
    concave = ConcaveRows(0, inputs, lambda z, rows: z.amin(-1), np.zeros(4), np.arange(4))
    objective = Supervised(inputs, np.zeros((4, 2)), loss="none")
    duals = np.array([1.0, 0.0, 2.0, 0.5])
    request = make_request(objective, RowSet(layout, [concave]), duals=duals)
    found = compute_reduced_costs(request, candidates, np.zeros(7, np.int64))
    outputs = candidates.outputs(torch.as_tensor(inputs)).numpy()
    np.testing.assert_allclose(found, -(outputs.min(2) * duals).sum(1))
    with raises(InvalidInput, "unsupported", "pairwise"):
        compute_price_terms(request)


def test_concave_rows_over_several_blocks_are_refused(rng, candidates):
    inputs = rng.normal(size=(2, 4))
    concave = ConcaveRows(0, inputs, lambda z, rows: z.amin(-1), np.zeros(2), np.arange(2))
    request = make_request(
        Supervised(inputs, np.zeros((2, 3)), loss="none"), RowSet(LAYOUT, [concave]), duals=[1, 1]
    )
    with raises(InvalidInput, "unsupported"):
        compute_reduced_costs(request, candidates, np.zeros(7, np.int64))


def test_proposes_the_best_of_each_block_and_bounds_all(rng):
    values = np.array([[3.0], [-1.0], [2.0], [5.0], [-4.0]])
    blocks = np.array([0, 0, 1, 0, 1])
    layout = Layout((np.array([0]), np.array([1])))
    rows = RowSet(layout, [point_rows(np.zeros((1, 2)), np.ones((1, 2)), [0.0])])
    objective = Supervised(np.zeros((1, 2)), np.zeros((1, 2)), loss="none")
    pricer = FinitePricer(
        [
            (ConstantMembers(values, 2), blocks),
            (ConstantMembers(np.array([[1.5]]), 2), np.array([1])),
        ],
        per_call=1,
    )
    result = pricer.price(make_request(objective, rows, duals=[2.0], gammas=[-9.0, 1.0]))
    # cost -2 value - gamma: block 0 has 3, 11, -1 and block 1 has -5, 7, -4
    np.testing.assert_allclose(result.lower_bound, [-1.0, -5.0])
    assert result.blocks.tolist() == [0, 1]
    assert result.members.outputs(torch.zeros(1, 2, dtype=torch.float64))[:, 0, 0].tolist() == [
        5,
        2,
    ]


def test_nothing_is_proposed_when_nothing_improves():
    rows = RowSet(Layout.single(1))
    objective = Supervised(np.zeros((1, 1)), np.zeros((1, 1)))
    pricer = FinitePricer([(ConstantMembers(np.array([[1.0], [2.0]]), 1), np.zeros(2, np.int64))])
    result = pricer.price(make_request(objective, rows, duals=[], gammas=[1.0]))
    assert result.members is None
    np.testing.assert_allclose(result.lower_bound, [0.0], atol=1e-15)


def test_wrong_candidates_are_refused():
    with raises(InvalidInput, "empty"):
        FinitePricer([])
    with raises(InvalidInput, "shape"):
        FinitePricer([(ConstantMembers(np.zeros((1, 1)), 1), np.zeros(2, np.int64))])
    with raises(InvalidInput, "range", "per_call"):
        FinitePricer([(ConstantMembers(np.zeros((1, 1)), 1), np.zeros(1, np.int64))], per_call=0)
