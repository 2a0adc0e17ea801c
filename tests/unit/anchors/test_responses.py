"""Affine rules that respond to few sums: as good as a program with rows for all vertices."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize

from cg4ai.anchors import search
from cg4ai.anchors.affine_maps import Space
from cg4ai.anchors.least_loss import MeanLoss
from cg4ai.anchors.responses import MOST_SUMS, ResponseRows, find_sums
from cg4ai.anchors.search import Anchor, find_anchor, find_tightest
from cg4ai.anchors.splitting import QuadraticModel
from cg4ai.rules import AffineBound, Ball, Box, Equality, Linear
from cg4ai.rules.guards import guard_of

OUTPUTS, INPUTS = 4, 3
REGION = Box([-1.0, 0.0, -0.5], [1.0, 0.5, 0.5])


def drawn(seed, region=REGION):
    """A balance `sum y = 4 + sum x`, limits 0 <= y <= 3 and four rules that move with x."""
    rng = np.random.default_rng(seed)
    each, nothing = np.eye(OUTPUTS), np.zeros((OUTPUTS, INPUTS))
    sums = rng.uniform(-1, 1, (4, OUTPUTS))
    level = sums @ np.ones(OUTPUTS)
    rule = Linear(
        region,
        np.concatenate([each, -each, sums]),
        AffineBound(
            np.concatenate([np.full(4, 3.0), np.zeros(4), level + 1.0]),
            np.concatenate([nothing, nothing, 0.3 * rng.normal(size=(4, INPUTS))]),
        ),
        "<=",
    )
    rule.check(INPUTS, OUTPUTS)
    balance = Equality(None, np.ones(OUTPUTS), AffineBound(4.0, np.ones(INPUTS)))
    made = balance.completion(INPUTS)
    space = replace(
        Space.free(OUTPUTS, INPUTS), offset=made.offset, slope=made.slope, basis=made.basis
    )
    return guard_of(rule, OUTPUTS), space, rng.uniform(1, 3, OUTPUTS)


def vertices():
    lower, upper = REGION.bounds()
    return np.array(list(product(*zip(lower, upper, strict=True))))


def cheapest(guard, prices, room):
    """The oracle: `y = g + w (sum x - its middle)` with rows for every vertex."""
    moved = (vertices() - REGION.middle).sum(1)
    matrix, scale, rules = guard.rules.constant, guard.scale, guard.rules
    rows = [np.hstack([matrix, total * matrix]) for total in moved]
    limits = [rules.limit + rules.tilt @ x - room * scale for x in vertices()]
    equal = np.kron(np.eye(2), np.ones(OUTPUTS))
    return linprog(
        np.append(prices, np.zeros(OUTPUTS)),
        np.concatenate(rows),
        np.concatenate(limits),
        equal,
        [4.0 + REGION.middle.sum(), 1.0],
        bounds=(None, None),
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("room", [0.02, 0.1])
def test_linear_losses_are_as_low_as_with_all_vertices(seed, room):
    guard, space, prices = drawn(seed)
    rows = ResponseRows.build([guard], space, find_sums(space), room)
    slope = np.column_stack([np.zeros((3, INPUTS)), space.basis.T @ prices])
    found = rows.find_cheap(slope, REGION.middle)
    best = cheapest(guard, prices, room)
    assert (found is None) == (best.status == 2)
    if found is not None:
        assert prices @ found.at(REGION.middle[None])[0] == pytest.approx(best.fun, abs=1e-5)
        assert find_tightest([guard], found).room >= room - 1e-5
        assert np.allclose(found.at(vertices()).sum(1), 4.0 + vertices().sum(1))


@pytest.mark.parametrize("seed", range(3))
def test_curved_losses_are_as_low_as_another_solver_finds(seed):
    guard, space, prices = drawn(seed)
    rows = ResponseRows.build([guard], space, find_sums(space), 0.02)
    spread = np.diag([0.3, 0.1, 0.2, 1.0])
    slope = np.column_stack([np.zeros((3, INPUTS)), space.basis.T @ prices])
    model = QuadraticModel(np.zeros((3, 4)), slope, np.eye(3), spread, REGION.middle)
    found = rows.minimise(model)

    def value(flat):
        W = np.outer(flat[:3], np.ones(INPUTS))
        both = np.column_stack([W, flat[3:]])
        return (slope * both).sum() + np.trace(both.T @ both @ spread) / 2

    def kept(flat):
        W = np.outer(flat[:3], np.ones(INPUTS))
        one = space.outputs(W, flat[3:] - W @ REGION.middle)
        values = one.at(vertices()) @ guard.rules.constant.T
        return (guard.rules.bounds(vertices()) - values - 0.02 * guard.scale).ravel()

    best = minimize(
        value,
        np.zeros(6),
        constraints={"type": "ineq", "fun": kept},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert best.success
    flat = np.append(found[:, 0], found[:, -1])
    assert np.allclose(found[:, 1:3], found[:, :1])
    assert value(flat) == pytest.approx(best.fun, abs=1e-5)
    assert kept(flat).min() > -1e-5


@pytest.mark.parametrize("bent", [0.0, 1.0])
def test_large_problems_get_such_an_anchor(monkeypatch, bent):
    monkeypatch.setattr(search, "LARGE", 0.0)
    guard, space, prices = drawn(1)
    inputs = REGION.sample(200, torch.Generator().manual_seed(0)).numpy()
    price = torch.as_tensor(prices)
    loss = MeanLoss(inputs, lambda y: (y @ price + bent * y.square().sum(-1)).mean())
    found = find_anchor([guard], space=space, loss=loss)
    assert isinstance(found, Anchor)
    assert np.allclose(np.diff(found.map.slopes, axis=1), 0)  # it responds to the total alone
    assert found.room > 0
    start = space.outputs(np.zeros((3, INPUTS)), np.zeros(3))
    assert loss.value(torch.as_tensor(found.map.at(inputs))) < loss.value(
        torch.as_tensor(start.at(inputs))
    )


def test_sums_are_those_that_equalities_name():
    _, space, _ = drawn(0)
    (total,) = find_sums(space)
    assert np.allclose(np.abs(total), 1 / np.sqrt(INPUTS))
    assert find_sums(Space.free(OUTPUTS, INPUTS)) is None
    many = np.random.default_rng(0).normal(size=(20, MOST_SUMS + 1))
    wide = replace(Space.free(20, MOST_SUMS + 1), slope=many)
    assert find_sums(wide) is None


def test_rules_over_balls_are_kept_too():
    guard, space, prices = drawn(2, Ball([0.0, 0.0, 0.0], 0.5))
    rows = ResponseRows.build([guard], space, find_sums(space), 0.02)
    slope = np.column_stack([np.zeros((3, INPUTS)), space.basis.T @ prices])
    found = rows.find_cheap(slope, np.zeros(INPUTS))
    assert find_tightest([guard], found).room >= 0.02 - 1e-5
