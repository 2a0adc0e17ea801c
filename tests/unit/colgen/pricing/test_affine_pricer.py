import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pricing_requests import make_request, point_rows
from scipy.optimize import linprog, minimize

from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.exact.affine_problem import AffineProblem, Standardiser
from cg4ai.colgen.pricing.exact.ball import BallQuadratic
from cg4ai.colgen.pricing.reduced_cost import (
    compute_all_values,
    compute_block_outputs,
    compute_reduced_costs,
)
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import concatenate
from cg4ai.members.mixture import Part
from cg4ai.members.networks import affine
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.rules.rows import ConcaveRows, LinearRows, RowSet
from raising import raises

LOSSES = ["squared", "cross_entropy", "absolute", "none"]


class FirstOutput:
    count = 1

    def values(self, inputs, outputs):
        return outputs[..., :1]

    def coefficients(self, inputs, which):
        return np.eye(2)[np.zeros(len(which), np.int64)]


def random_request(rng, loss, *, kind="average", layout=None, ensemble=None, loss_weight=1.0):
    layout = layout or Layout.single(3)
    inputs = rng.normal(size=(20, 4)) * [1.0, 5.0, 0.1, 1.0] + 2.0
    targets = rng.integers(0, 3, 20) if loss == "cross_entropy" else rng.normal(size=(20, 3))
    rows = RowSet(
        layout,
        [
            point_rows(rng.normal(size=(5, 4)), rng.normal(size=(5, 3)), np.zeros(5)),
            LinearRows(
                1,
                rng.normal(size=(6, 4)),
                rng.normal(size=(2, 3)),
                np.zeros(2),
                mixing=rng.normal(size=(2, 6)) / 6,
            ),
        ],
    )
    objective = Supervised(
        inputs, targets, loss=loss, kind=kind, sample_weight=rng.random(20) + 0.1
    )
    return make_request(
        objective,
        rows,
        duals=0.1 * rng.random(7),
        gammas=rng.normal(size=len(layout)),
        loss_weight=loss_weight,
        ensemble=ensemble,
    )


def random_members(rng, request, radius, count):
    """Members of the class, many of them on its boundary."""
    size = request.rows.layout.output_size
    parameters = rng.normal(size=(count, 5, size))
    share = np.minimum(1.0, 2 * rng.random((count, 1, 1)))
    parameters *= share * radius / np.linalg.norm(parameters, axis=(1, 2), keepdims=True)
    weights, bias = Standardiser.of(request.objective.inputs).original(parameters)
    return affine(weights, bias)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    loss=st.sampled_from(LOSSES),
    radius=st.sampled_from([0.3, 3.0, 50.0]),
)
def test_no_member_of_the_class_beats_the_bound(seed, loss, radius):
    rng = np.random.default_rng(seed)
    request = random_request(rng, loss)
    result = AffinePricer(4, 3, radius=radius, extra=2).price(request)
    others = random_members(rng, request, radius, 400)
    costs = compute_reduced_costs(request, others, np.zeros(400, np.int64))
    assert costs.min() >= result.lower_bound[0]
    own = compute_reduced_costs(request, result.members, result.blocks)
    assert own.min() >= result.lower_bound[0]
    if loss != "absolute":  # not smooth: the bound holds but is loose
        assert own.min() - result.lower_bound[0] <= 1e-8 * (1 + abs(own.min()))


@pytest.mark.parametrize(("loss", "radius"), [("squared", 0.5), ("cross_entropy", 40.0)])
def test_the_minimum_agrees_with_scipy(loss, radius):
    rng = np.random.default_rng(11)
    request = random_request(rng, loss)
    standardiser = Standardiser.of(request.objective.inputs)

    def cost(flat):
        weights, bias = standardiser.original(flat.reshape(1, 5, 3))
        return compute_reduced_costs(request, affine(weights, bias), np.zeros(1, np.int64))[0]

    found = minimize(
        cost,
        np.full(15, 0.01),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: radius**2 - v @ v},
        options={"maxiter": 150, "ftol": 1e-9},
    ).x
    found = cost(found * min(1.0, radius / np.linalg.norm(found)))  # back into the ball exactly
    result = AffinePricer(4, 3, radius=radius).price(request)
    assert result.lower_bound[0] <= found
    assert result.lower_bound[0] == pytest.approx(found, abs=1e-4)


def test_projected_gradient_serves_large_problems_with_a_valid_bound():
    request = random_request(np.random.default_rng(4), "cross_entropy")
    tight = AffinePricer(4, 3, radius=5.0).price(request).lower_bound[0]
    large = AffinePricer(4, 3, radius=5.0, newton_size=1).price(request).lower_bound[0]
    assert tight - 1e-4 <= large <= tight + 1e-9


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rank=st.integers(0, 4),
    radius=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_quadratics_over_the_ball_meet_the_optimality_conditions(seed, rank, radius):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, rank))
    matrix, linear = root @ root.T, rng.normal(size=(4, 2))
    point = BallQuadratic.of(matrix).minimise(linear, radius)
    gradient = 2 * matrix @ point + linear
    norm = np.linalg.norm(point)
    assert norm <= radius * (1 + 1e-12)
    gap = (gradient * point).sum() + radius * np.linalg.norm(gradient)
    assert gap <= 1e-9 * (1 + radius * np.linalg.norm(linear))


def test_mixture_epigraph_and_slack_phase_are_linear_and_exact():
    rng = np.random.default_rng(8)
    layout = Layout((np.array([2, 0]), np.array([1])))
    base = random_request(rng, "squared")
    members = random_members(rng, base, 1.0, 2)
    ensemble = Ensemble((Part(members, np.array([0, 1]), np.ones(2)),), layout)
    mixture = random_request(rng, "squared", kind="mixture", layout=layout, ensemble=ensemble)
    slack = random_request(rng, "squared", layout=layout, loss_weight=0.0)
    inputs = mixture.objective.inputs
    epigraph = make_request(
        Epigraph(inputs, FirstOutput()), mixture.rows, duals=mixture.duals.rows, gammas=[1.0, 0.0]
    )
    for request in (mixture, slack, epigraph):
        result = AffinePricer(4, 2, radius=2.0).price(request)
        costs = compute_reduced_costs(request, result.members, result.blocks)
        for block in range(2):
            best = costs[result.blocks == block].min()
            assert best == pytest.approx(result.lower_bound[block], abs=1e-9)
            assert best >= result.lower_bound[block]


def test_the_collapsed_mixture_is_proposed():
    rng = np.random.default_rng(9)
    layout = Layout.single(3)
    base = random_request(rng, "squared")
    members = random_members(rng, base, 2.0, 3)
    weights = np.array([0.2, 0.5, 0.3])
    ensemble = Ensemble((Part(members, np.zeros(3, np.int64), weights),), layout)
    request = random_request(rng, "squared", ensemble=ensemble)
    problem = AffineProblem(request, radius=2.0, tolerance=1e-12, newton_size=500)
    (collapsed,) = problem.collapse_mixture()
    slopes, bias = problem.standardiser.original(collapsed[None])
    inputs = rng.normal(size=(6, 4))
    outputs = affine(slopes, bias).outputs(torch.as_tensor(inputs))[0].numpy()
    np.testing.assert_allclose(outputs, ensemble.predict(inputs), atol=1e-10)


class ColumnGeneration:
    """The smallest loop there is: linprog as master, the pricer, groups admitted whole."""

    def __init__(self, objective, rows, penalty=1e3):
        self.objective, self.rows, self.penalty = objective, rows, penalty
        self.members, self.blocks = None, np.empty(0, np.int64)
        self.bound, self.iterations = -np.inf, 0

    def master(self):
        layout, m = self.rows.layout, len(self.rows)
        count, groups = len(self.blocks), len(layout)
        costs, values = np.empty(0), np.zeros((m, 0))
        if self.members is not None:
            values = compute_all_values(self.rows, self.members, self.blocks, "cpu")
            full = compute_block_outputs(
                self.objective.inputs, layout, self.members, self.blocks, "cpu"
            )
            costs = np.empty(count)
            for block, positions in enumerate(layout.blocks):
                mine = np.flatnonzero(self.blocks == block)
                costs[mine] = self.objective.costs(full[mine][..., positions], positions).numpy()
        convexity = np.zeros((groups, count + m + groups))
        convexity[self.blocks, np.arange(count)] = 1
        convexity[np.arange(groups), count + m + np.arange(groups)] = 1
        solved = linprog(
            np.concatenate([costs, np.full(m, self.penalty), np.full(groups, 1e4)]),
            A_ub=-np.concatenate([values, np.eye(m), np.zeros((m, groups))], axis=1),
            b_ub=-self.rows.bounds,
            A_eq=convexity,
            b_eq=np.ones(groups),
        )
        assert solved.status == 0, solved.message
        return solved

    def ensemble(self, weights):
        if self.members is None:
            return None
        weights, total = np.maximum(weights, 0.0), np.zeros(len(self.rows.layout))
        np.add.at(total, self.blocks, weights)
        if np.any(total < 0.99):
            return None
        part = Part(self.members, self.blocks, weights / total[self.blocks])
        return Ensemble((part,), self.rows.layout)

    def run(self, pricer, *, iterations, gap):
        for self.iterations in range(iterations):
            solved = self.master()
            request = make_request(
                self.objective,
                self.rows,
                duals=np.maximum(-solved.ineqlin.marginals, 0.0),
                gammas=solved.eqlin.marginals,
                ensemble=self.ensemble(solved.x[: len(self.blocks)]),
            )
            result = pricer.price(request)
            self.bound = max(self.bound, solved.fun + np.minimum(result.lower_bound, 0).sum())
            if solved.fun - self.bound <= gap:
                break
            costs = compute_reduced_costs(request, result.members, result.blocks)
            whole = costs[result.groups == 0].sum() < -1e-9
            self.admit(result, (result.groups < 0) & (costs < -1e-9) | (result.groups == 0) & whole)
        return solved.fun

    def admit(self, result, chosen):
        new = result.members.take(np.flatnonzero(chosen))
        self.members = new if self.members is None else concatenate([self.members, new])
        self.blocks = np.concatenate([self.blocks, result.blocks[chosen]])


def direct_solution(objective, rows):
    """The same problem as one convex program in the parameters of one affine predictor."""
    standardiser = Standardiser.of(objective.inputs)
    design = standardiser.design(objective.inputs)
    (batch,) = rows.batches
    row_design = standardiser.design(batch.inputs)
    shape = (design.shape[1], rows.layout.output_size)
    jacobian = np.einsum("md,mr->mdr", row_design, batch.coefficients).reshape(len(batch), -1)

    def cost(flat):
        outputs = torch.as_tensor(design @ flat.reshape(shape)).requires_grad_()
        value = objective.costs(outputs[None], np.arange(shape[1]))[0]
        (gradient,) = torch.autograd.grad(value, outputs)
        return float(value.detach()), (design.T @ gradient.numpy()).ravel()

    found = minimize(
        cost,
        np.zeros(shape).ravel(),
        jac=True,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda v: jacobian @ v - batch.bounds,
            "jac": lambda v: jacobian,
        },
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    assert found.success, found.message
    binding = int(np.sum(jacobian @ found.x - batch.bounds < 1e-6))
    return float(found.fun), binding


def demanding_problem(seed, *, rules):
    """Ten features, three outputs, and rules that the best fit breaks."""
    rng = np.random.default_rng(seed)
    inputs = 1.0 + 3.0 * rng.normal(size=(100, 10))
    slopes = rng.normal(size=(10, 3))
    targets = inputs @ slopes + rng.normal(size=(100, 3))
    at, coefficients = 1.0 + 3.0 * rng.normal(size=(rules, 10)), rng.normal(size=(rules, 3))
    bounds = (coefficients * (at @ slopes)).sum(1) + 0.3 * np.abs(rng.normal(size=rules)) - 0.25
    return Supervised(inputs, targets), point_rows(at, coefficients, bounds)


@pytest.mark.parametrize("seed", [0, 1])
def test_column_generation_closes_the_gap_on_squared_loss(seed):
    objective, batch = demanding_problem(seed, rules=60)
    expected, binding = direct_solution(objective, RowSet(Layout.single(3), [batch]))
    assert binding >= 15
    for layout in (Layout.single(3), Layout((np.array([2, 0]), np.array([1])))):
        loop = ColumnGeneration(objective, RowSet(layout, [batch]))
        value = loop.run(AffinePricer(10, 3), iterations=30, gap=1e-6)
        assert value - loop.bound <= 1e-6
        assert value == pytest.approx(expected, abs=1e-5)
        assert loop.bound <= expected + 1e-7
        assert loop.iterations <= 20


def test_column_generation_closes_the_gap_on_cross_entropy():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(150, 5))
    labels = np.argmax(inputs @ rng.normal(size=(5, 3)) + rng.gumbel(size=(150, 3)), axis=1)
    margins = np.eye(3)[labels[:25]] - np.eye(3)[(labels[:25] + 1) % 3]
    rows = RowSet(Layout.single(3), [point_rows(inputs[:25], margins, np.full(25, 0.3))])
    objective = Supervised(inputs, labels, "cross_entropy")
    loop = ColumnGeneration(objective, rows)
    value = loop.run(AffinePricer(5, 3, radius=50.0), iterations=20, gap=1e-6)
    assert value - loop.bound <= 1e-6
    assert value == pytest.approx(direct_solution(objective, rows)[0], abs=1e-5)


def test_the_default_radius_leaves_room_around_the_best_fit():
    request = random_request(np.random.default_rng(1), "squared")
    design = Standardiser.of(request.objective.inputs).design(request.objective.inputs)
    fit = np.linalg.lstsq(design, request.objective.targets, rcond=None)[0]
    assert AffinePricer(4, 3).choose_radius(request) == pytest.approx(10 + 10 * np.linalg.norm(fit))
    assert AffinePricer(4, 3, radius=2.5).choose_radius(request) == 2.5


def test_what_does_not_fit_is_refused():
    request = random_request(np.random.default_rng(1), "squared")
    with raises(InvalidInput, "shape"):
        AffinePricer(7, 3).price(request)
    with raises(InvalidInput, "shape"):
        AffinePricer(4, 2).price(request)
    inputs = request.objective.inputs
    unlabelled = make_request(Epigraph(inputs, FirstOutput()), RowSet(Layout.single(2)), duals=[])
    with raises(InvalidInput, "missing-argument", "radius"):
        AffinePricer(4, 2).price(unlabelled)
    concave = ConcaveRows(0, inputs, lambda z, rows: z.amin(-1), np.zeros(20), np.arange(20))
    rows = RowSet(Layout.single(3), [concave])
    with raises(InvalidInput, "unsupported", "pairwise"):
        AffinePricer(4, 3).price(make_request(request.objective, rows, duals=np.zeros(20)))
    for wrong in ({"radius": 0.0}, {"radius": np.inf}, {"extra": -1}):
        with pytest.raises(InvalidInput):
            AffinePricer(4, 3, **wrong)
    with raises(InvalidInput, "range", "sizes"):
        AffinePricer(0, 3)
