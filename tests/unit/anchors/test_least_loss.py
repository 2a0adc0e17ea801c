"""Anchors of least loss: decision rules as good as any other solver finds, with room left."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.least_loss import MeanLoss, minimise_loss
from cg4ai.anchors.search import LEAST, find_anchor
from cg4ai.rules import Ball, Box, Linear, Polytope, Quadratic
from cg4ai.rules.guards import guard_of

SQUARE = Box([-1.0, -1.0], [1.0, 1.0])
TRIANGLE = Polytope(SQUARE, [[1.0, 1.0]], [0.0])
CORNERS = {
    "box": np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]),
    "polytope": np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]]),
}
X = np.random.default_rng(0).uniform([-1, -0.5], [1, 1], (400, 2))


def mean_loss(function, inputs=X):
    points = torch.as_tensor(inputs)
    return MeanLoss(inputs, lambda outputs: function(outputs, points).mean())


def found_for(rules, loss, outputs=2, space=None) -> Any:
    for one in rules:
        one.check(2, outputs)
    guards = [guard_of(one, outputs) for one in rules]
    return find_anchor(guards, space=space or Space.free(outputs, 2), loss=loss)


def value(loss, one):
    return float(loss.value(torch.as_tensor(loss.inputs @ one.slopes.T + one.offsets)))


def bowl(outputs, inputs):
    """Convex, not quadratic, and best far outside of the rules."""
    aim = torch.stack([3 * inputs[:, 0] + 1, inputs[:, 1] - 2 * inputs[:, 0]], -1)
    away = outputs - aim
    return away.square().sum(-1) + (away[..., 0] + away[..., 1]).cosh() / 4


def best_by_corners(loss, matrix, limits, corners, room):
    """The oracle: SLSQP over slopes and offsets with every rule at every corner of the region."""

    def rule(v):
        return AffineMap(v[:4].reshape(2, 2), v[4:])

    def left(v):
        values = (corners @ rule(v).slopes.T + rule(v).offsets) @ matrix.T
        return (limits - values - room * np.maximum(1, limits)).ravel()

    answer = minimize(
        lambda v: value(loss, rule(v)),
        np.zeros(6),
        constraints={"type": "ineq", "fun": left},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert answer.success
    return answer.fun


@pytest.mark.parametrize("region", ["box", "polytope"])
def test_no_other_rule_with_as_much_room_has_less_loss(region):
    matrix = np.array([[1.0, 0.5], [-1.0, 0.2], [0.3, 1.0], [0.0, -1.0]])
    limits = np.array([1.0, 1.5, 2.0, 0.7])
    rule = Linear(SQUARE if region == "box" else TRIANGLE, matrix, limits, "<=")
    loss = mean_loss(bowl)
    found = found_for([rule], loss)
    left = limits - (CORNERS[region] @ found.map.slopes.T + found.map.offsets) @ matrix.T
    assert (left / np.maximum(1, limits)).min() == pytest.approx(found.room, abs=1e-9)
    best = best_by_corners(loss, matrix, limits, CORNERS[region], found.room)
    assert value(loss, found.map) == pytest.approx(best, rel=1e-3)


def test_a_rule_that_is_known_by_hand():
    """(y - 2x)^2 with |y| <= 1 on [-1, 1]: y = (1 - share) x, as steep as the room allows."""
    rule = Linear(SQUARE, [[1.0], [-1.0]], [1.0, 1.0], "<=")

    def loss(outputs, inputs):
        return (outputs[..., 0] - 2 * inputs[..., 0]).square()

    even = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    found = found_for([rule], mean_loss(loss, np.concatenate([even, -even])), outputs=1)
    np.testing.assert_allclose(found.map.slopes, [[1 - LEAST, 0.0]], atol=1e-3)
    np.testing.assert_allclose(found.map.offsets, 0, atol=1e-3)


def test_the_rule_stays_in_the_space_of_an_equality():
    """y0 + y1 = x0 and y0 <= 0.5: of least (y0 - x1)^2 + y1^2 within it."""
    sums = np.array([[1.0, 1.0]])
    space = Space(
        np.zeros(2),
        np.linalg.pinv(sums) @ [[1.0, 0.0]],
        np.array([[1.0], [-1.0]]) / np.sqrt(2),
        np.empty((0, 2)),
        np.empty(0),
    )

    def loss(outputs, inputs):
        return (outputs[..., 0] - inputs[..., 1]).square() + outputs[..., 1].square()

    found = found_for([Linear(SQUARE, [1.0, 0.0], 0.5, "<=")], mean_loss(loss), space=space)
    np.testing.assert_allclose(sums @ found.map.slopes, [[1.0, 0.0]], atol=1e-12)
    assert abs(sums @ found.map.offsets) < 1e-12
    room = found.room

    # y0 = s x + t: |s0| + |s1| + t <= 0.5 - room
    def mean(v):
        first = X @ v[:2] + v[2]
        return ((first - X[:, 1]) ** 2 + (X[:, 0] - first) ** 2).mean()

    limit = {"type": "ineq", "fun": lambda v: 0.5 - room - CORNERS["box"] @ v[:2] - v[2]}
    best = minimize(mean, np.zeros(3), constraints=limit, method="SLSQP", options={"ftol": 1e-12})
    assert value(mean_loss(loss), found.map) == pytest.approx(best.fun, rel=1e-3)


def test_a_loss_that_is_not_convex_ends_lower_than_the_middle():
    def loss(outputs, inputs):
        return outputs.square().sum(-1) / 2 + 3 * (outputs + inputs).sin().sum(-1)

    rule = Linear(SQUARE, np.concatenate([np.eye(2), -np.eye(2)]), np.full(4, 2.0), "<=")
    found = found_for([rule], mean_loss(loss))
    middle = found_for([rule], None)
    assert value(mean_loss(loss), found.map) < value(mean_loss(loss), middle.map) - 0.5
    assert found.room >= LEAST - 1e-9


@pytest.mark.parametrize(
    "rule",
    [
        Linear(Ball([0.0, 0.0], 1.0), [1.0, 1.0], 1.0, "<="),
        Quadratic(SQUARE, np.eye(2), 1.0),
    ],
)
def test_rules_without_rows_move_the_free_optimum(rule):
    """Balls and quadratic rules: between the best of all rules and the one of most room."""
    loss = mean_loss(bowl)
    found = found_for([rule], loss)
    made = torch.Generator().manual_seed(0)
    inputs = rule.region.sample(5000, made)
    outputs = inputs @ torch.as_tensor(found.map.slopes).T + torch.as_tensor(found.map.offsets)
    assert float(guard_of(rule, 2).rules.slack(inputs, outputs).min()) >= found.room > 0
    assert value(loss, found.map) < value(loss, found_for([rule], None).map)


def test_without_rules_the_least_is_that_of_least_squares():
    target = np.column_stack([X[:, 0] ** 2 - X[:, 1], X.prod(1)])

    def loss(outputs, inputs):
        return (outputs - torch.as_tensor(target)).square().sum(-1)

    start = AffineMap(np.zeros((2, 2)), np.zeros(2))
    found = minimise_loss(mean_loss(loss), Space.free(2, 2), start)
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), target, rcond=None)[0]
    np.testing.assert_allclose(found.slopes, exact[:2].T, atol=1e-3)
    np.testing.assert_allclose(found.offsets, exact[2], atol=1e-3)


def test_losses_that_are_bent_only_in_kinks():
    """|y - 3 x| has its least, 0, at y = 3 x, which keeps y0 <= 5 with room."""

    def loss(outputs, inputs):
        return (outputs - 3 * inputs).abs().sum(-1)

    found = found_for([Linear(SQUARE, [1.0, 0.0], 5.0, "<=")], mean_loss(loss))
    assert value(mean_loss(loss), found.map) < 0.01
    np.testing.assert_allclose(found.map.slopes, 3 * np.eye(2), atol=0.01)
