"""Affine rules by operator splitting: as good as other solvers find, at sizes they do not reach."""

import clarabel
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

from cg4ai.anchors.affine_maps import Space
from cg4ai.anchors.least_loss import MeanLoss
from cg4ai.anchors.search import Anchor, find_anchor, find_tightest
from cg4ai.anchors.splitting import QuadraticModel, build_region_rows
from cg4ai.errors import SolverFailure
from cg4ai.rules import AffineBound, Ball, Box, Linear
from cg4ai.rules.guards import guard_of

REGIONS = {
    "box": Box([-1.0, 0.0, 2.0], [1.0, 3.0, 2.5]),
    "flat": Box([-1.0, 0.5, 2.0], [1.0, 0.5, 2.5]),
    "ball": Ball([0.5, -1.0, 2.0], 1.5),
}


def drawn(region, outputs=2, rules=5, seed=0):
    """Rules that the zero map keeps, with slopes in their bounds, and a quadratic model."""
    rng = np.random.default_rng(seed)
    bound = AffineBound(rng.uniform(1.0, 2.0, rules), 0.1 * rng.normal(size=(rules, 3)))
    rule = Linear(region, rng.normal(size=(rules, outputs)), bound, "<=")
    rule.check(3, outputs)
    curved, moments = rng.normal(size=(outputs, outputs)), rng.normal(size=(4, 4))
    model = QuadraticModel(
        np.zeros((outputs, 4)),
        5 * rng.normal(size=(outputs, 4)),
        curved @ curved.T + np.eye(outputs),
        moments @ moments.T + np.eye(4),
        rng.normal(size=3),
    )
    return guard_of(rule, outputs), model


def value(model, flat):
    W = flat.reshape(model.here.shape)
    return (model.slope * W).sum() + np.trace(W.T @ model.curvature @ W @ model.moments) / 2


def worst(guard, model, flat, room):
    """The oracle: the room left at each rule's worst input, from slopes that are written out."""
    W = flat.reshape(model.here.shape)
    rules, region = guard.rules, guard.region
    slopes = rules.constant @ W[:, :-1] - rules.tilt
    middle = region.middle
    size = (
        1.5 * np.linalg.norm(slopes, axis=1)
        if isinstance(region, Ball)
        else np.abs(slopes) @ (region.bounds()[1] - middle)
    )
    at_middle = rules.constant @ (W[:, :-1] @ (middle - model.centre) + W[:, -1])
    return rules.limit + rules.tilt @ middle - at_middle - size - room * guard.scale


@pytest.mark.parametrize("region", list(REGIONS))
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_other_map_that_keeps_the_rows_is_better(region, seed):
    guard, model = drawn(REGIONS[region], seed=seed)
    rows = build_region_rows([guard], Space.free(2, 3), 0.05)
    found = rows.minimise(model).ravel()
    assert worst(guard, model, found, 0.05).min() > -1e-4
    start = np.zeros(found.size)
    best = min(
        (
            minimize(
                lambda flat: value(model, flat),
                start + 0.1 * np.random.default_rng(number).normal(size=found.size),
                constraints={"type": "ineq", "fun": lambda flat: worst(guard, model, flat, 0.05)},
                method="SLSQP",
                options={"maxiter": 2000, "ftol": 1e-12},
            )
            for number in range(3)
        ),
        key=lambda answer: answer.fun if answer.success else np.inf,
    )
    assert value(model, found) == pytest.approx(best.fun, rel=1e-3)


def test_rules_that_cannot_be_kept_are_said_to_be():
    """y <= -2 and y >= 2."""
    box = Box([-1.0], [1.0])
    rule = Linear(box, [[1.0], [-1.0]], [-2.0, -2.0], "<=")
    rule.check(1, 1)
    rows = build_region_rows([guard_of(rule, 1)], Space.free(1, 1), 0.0)
    assert rows.find_shortest() is None
    model = QuadraticModel(np.zeros((1, 2)), np.zeros((1, 2)), np.eye(1), np.eye(2), np.zeros(1))
    with pytest.raises(SolverFailure):
        rows.minimise(model, rounds=200)


def test_rules_over_two_regions_are_left_to_others():
    one, other = (Linear(Box([-1.0], [end]), [1.0], 1.0, "<=") for end in (1.0, 2.0))
    for rule in (one, other):
        rule.check(1, 1)
    guards = [guard_of(rule, 1) for rule in (one, other)]
    assert build_region_rows(guards, Space.free(1, 1), 0.0) is None
    assert build_region_rows(guards[:1], Space.free(1, 1), 0.0) is not None


def large(outputs, rules, seed=0):
    """`outputs` of which half follow from the input, and rules that the shortest of them keep."""
    rng = np.random.default_rng(seed)
    half = outputs // 2
    equality, inequality = rng.normal(size=(half, outputs)), rng.normal(size=(rules, outputs))
    inverse = np.asarray(np.linalg.pinv(equality), np.float64)
    space = Space(
        np.zeros(outputs),
        inverse,
        np.linalg.svd(equality)[2][half:].T,
        np.empty((0, outputs)),
        np.empty(0),
    )
    box = Box(np.full(half, -1.0), np.ones(half))
    rule = Linear(box, inequality, np.abs(inequality @ inverse).sum(1), "<=")
    rule.check(half, outputs)
    return [guard_of(rule, outputs)], space, rng.uniform(size=(2, outputs))


def optimum(guard, space, q, p, point):
    """The oracle: Clarabel's least loss at one input, which no rule can be below."""
    fixed, basis = space.slope @ point, space.basis
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    matrix = guard.rules.constant
    answer = clarabel.DefaultSolver(
        sparse.triu(sparse.csc_matrix(basis.T @ (q[:, None] * basis)), format="csc"),
        basis.T @ (q * fixed + p),
        sparse.csc_matrix(matrix @ basis),
        guard.rules.limit - matrix @ fixed,
        [clarabel.NonnegativeConeT(len(matrix))],
        settings,
    ).solve()
    return answer.obj_val + (0.5 * q * fixed + p) @ fixed


@pytest.mark.parametrize("outputs", [20, 240])
def test_the_rule_of_least_loss_is_found_at_any_size(outputs):
    (guard,), space, (q, p) = large(outputs, outputs // 2)
    curvature, slope = torch.as_tensor(q), torch.as_tensor(p)

    def mean(y):
        return (0.5 * y.square() @ curvature + y @ slope).mean()

    inputs = guard.region.sample(2000, torch.Generator().manual_seed(0)).numpy()
    found = find_anchor([guard], space=space, loss=MeanLoss(inputs, mean))
    assert isinstance(found, Anchor)
    assert find_tightest([guard], found.map).room == pytest.approx(found.room)
    assert found.room > 0
    tests = inputs[:20]
    best = np.mean([optimum(guard, space, q, p, point) for point in tests])
    reached = float(mean(torch.as_tensor(found.map.at(tests))))
    assert best < reached < best + 0.05 * abs(best)


def test_room_is_found_where_slopes_that_vary_least_leave_none():
    guards, space, _ = large(40, 160)
    found = find_anchor(guards, space=space)
    assert isinstance(found, Anchor)
    assert find_tightest(guards, found.map).room > 0
