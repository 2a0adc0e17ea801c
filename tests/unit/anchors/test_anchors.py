"""Anchors that are found keep every rule on the whole region; where there is none it is said."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.search import NoAnchor, check_given, find_anchor
from cg4ai.errors import InvalidInput
from cg4ai.rules import AffineBound, Ball, Box, Concave, Linear, Polytope
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.guards import Guard, guard_of
from raising import raises

BOX = Box([-1.0, 0.0], [1.0, 2.0])


def guards_of(*requirements, outputs=2):
    for requirement in requirements:
        requirement.check(2, outputs)
    return [guard_of(requirement, outputs) for requirement in requirements]


def anchor_for(guards, space=None, reference=None) -> Any:
    return find_anchor(guards, space=space or Space.free(2, 2), reference=reference)


def constant(*values):
    return AffineMap.constant(np.array(values, np.float64), 2)


def sampled_room(guards, anchor, count=20_000):
    """The oracle: least slack over random and extreme inputs, an upper bound of the room."""
    made = torch.Generator().manual_seed(0)
    least = np.inf
    for guard in guards:
        x = torch.cat([guard.region.sample(count, made), guard.region.extremes(64, made)])
        y = x @ torch.as_tensor(anchor.slopes).T + torch.as_tensor(anchor.offsets)
        slack = guard.rules.slack(x, y) / torch.as_tensor(guard.scale)
        least = min(least, float(slack.min()))
    return least


REGIONS = [
    Box([-1, 0.5], [1, 2]),
    Ball([0, 1], 0.5),
    Ball([0, 1], 0.5, np.inf),
    Polytope(Box([-1, 0.5], [1, 2]), [[1.0, 1.0]], [2.0]),
]


@pytest.mark.parametrize("region", REGIONS)
def test_a_constant_anchor_for_rules_that_depend_on_the_input(region):
    """x0 y0 <= 0.5, x1 y1 >= 0.1 and x0 y0 + x1 y1 <= 3."""
    pairs = np.array([0, 1, 0, 1])
    products = AffineRules(
        np.zeros((3, 2)),
        np.array([0.5, -0.1, 3.0]),
        np.array([0, 1, 2, 2]),
        pairs,
        pairs,
        np.array([1.0, -1.0, 1.0, 1.0]),
        2,
    )
    guards = [Guard("products", region, products)]
    found = anchor_for(guards)
    assert found.room > 0.02
    assert sampled_room(guards, found.map) >= found.room - 1e-9


def test_the_most_central_constant():
    """-1 <= y0 <= 3 and y0 + y1 <= 2, y1 >= -4: most relative room, against the LP itself."""
    rule = Linear(BOX, [[1.0, 0.0], [-1.0, 0.0], [1.0, 1.0], [0.0, -1.0]], [3, 1, 2, 4], "<=")
    guards = guards_of(rule)
    found = anchor_for(guards, reference=constant(9, 9))
    matrix = np.array([[1, 0, 3], [-1, 0, 1], [1, 1, 2], [0, -1, 4]])
    most = linprog([0, 0, -1], matrix, [3, 1, 2, 4], bounds=[(None, None)] * 2 + [(None, 1)])
    assert 0.25 * most.x[2] <= found.room <= most.x[2] + 1e-9
    assert found.map.is_constant
    assert sampled_room(guards, found.map) == pytest.approx(found.room, abs=1e-9)


def test_a_reference_with_room_is_the_anchor():
    guards = guards_of(Linear(BOX, [1.0, 0.0], 5.0, "<="))
    near = AffineMap(np.array([[0.5, 0.1], [3.0, -1.0]]), np.array([1.0, 7.0]))
    found = anchor_for(guards, reference=near)
    assert found.map is near
    assert sampled_room(guards, near) == pytest.approx(found.room, abs=1e-9)


def test_an_affine_anchor_where_no_constant_keeps_the_rules():
    """x0 <= y0 <= x0 + 1 over x0 in [-1, 1]: only decision rules that follow x0."""
    none = np.empty(0, np.int64)
    coefficients, tilt = np.array([[-1.0, 0.0], [1.0, 0.0]]), np.array([[-1.0, 0.0], [1.0, 0.0]])
    band = AffineRules(
        coefficients, np.array([0.0, 1.0]), none, none, none, np.empty(0), 2, tilt, np.arange(2)
    )
    guards = [Guard("band", BOX, band)]
    found = anchor_for(guards)
    assert found.room >= 0.02
    assert not found.map.is_constant
    assert sampled_room(guards, found.map) >= found.room - 1e-9


def test_equalities_and_as_many_inequalities_as_freedoms():
    """Outputs with A y = x: the anchor moves inside that space alone (a random QP's rules)."""
    made = np.random.default_rng(0)
    a, g = made.normal(size=(2, 6)), made.normal(size=(4, 6))
    particular = np.asarray(np.linalg.pinv(a), np.float64)
    basis = np.linalg.svd(a)[2][2:].T
    box = Box([-1.0, -1.0], [1.0, 1.0])
    rule = Linear(box, g, np.abs(g @ particular).sum(1), "<=")
    guards = guards_of(rule, outputs=6)
    space = Space(np.zeros(6), particular, basis, np.empty((0, 6)), np.empty(0))
    found = anchor_for(guards, space)
    np.testing.assert_allclose(a @ found.map.slopes, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(a @ found.map.offsets, 0, atol=1e-12)
    assert found.room > 0.01
    assert sampled_room(guards, found.map) >= found.room - 1e-9


def test_an_affine_anchor_that_only_the_limits_of_a_polytope_allow():
    """y0 >= x0 + x1 and y1 >= x0 - x1, y0 + y1 <= 1.2: in the box x0 = x1 = 1 asks for 2."""
    box = Box([0.0, 0.0], [1.0, 1.0])
    rules = np.array([[1.0, 0.0], [0.0, 1.0]])
    bound = AffineBound([0.0, 0.0], [[1.0, 1.0], [1.0, -1.0]])

    def guards(region):
        cap = Linear(region, [1.0, 1.0], 1.2, "<=", name="cap")
        return guards_of(Linear(region, rules, bound, name="floor"), cap)

    assert isinstance(anchor_for(guards(box)), NoAnchor)
    halves = Polytope(box, [[1.0, 0.0]], [0.5])
    found = anchor_for(guards(halves))
    assert not isinstance(found, NoAnchor)
    assert not found.map.is_constant
    assert 0 < found.room <= sampled_room(guards(halves), found.map) + 1e-9


def test_probabilities_stay_probabilities():
    rule = Linear(BOX, [0.0, 1.0, 0.0], 0.7)
    guards = guards_of(rule, outputs=3)
    space = Space.probabilities((3,), 2)
    third = AffineMap.constant(np.full(3, 1 / 3), 2)
    found = anchor_for(guards, space, third)
    assert found.map.offsets.sum() == pytest.approx(1)
    assert found.map.offsets.min() >= -1e-12
    assert found.map.offsets[1] >= 0.7


def test_rules_that_are_not_linear():
    """A disc and a half plane that leave a small cap."""
    disc = Concave(BOX, lambda y: 1 - y.square().sum(-1), 0.0, name="disc")
    guards = guards_of(disc, Linear(BOX, [1.0, 0.0], 0.9))
    found = anchor_for(guards)
    assert np.square(found.map.offsets).sum() < 1
    assert found.map.offsets[0] > 0.9
    assert found.room > 0.003


def test_no_anchor_is_said_with_the_rule_and_an_input():
    rows = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
    found = anchor_for(guards_of(Linear(BOX, rows, [-1, -1, 0], "<=", name="impossible")))
    assert isinstance(found, NoAnchor)
    assert found.rule == "impossible"
    assert "misses rule" in found.reason


def test_a_given_anchor_that_breaks_a_rule_is_refused_with_the_worst_input():
    guards = guards_of(Linear(BOX, [1.0, 0.0], 1.0, "<=", name="cap"))
    tilted = AffineMap(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.0]))
    with raises(InvalidInput, "anchor", "cap"):
        check_given(guards, tilted)
    assert check_given(guards, constant(0.5, 0.0)).room == pytest.approx(0.5)


# ---- units -------------------------------------------------------------------------------------

UNITS = [(1e-9, 1.0), (1.0, 1e-9), (1e-9, 1e-9), (1e9, 1.0), (1.0, 1e9), (1e-9, 1e9)]


def cap_in_units(inputs: float, outputs: float) -> Linear:
    """In its own units `y0 <= 1 + x0` for x0 in [-1, 1]: a constant anchor is at most 0."""
    bound = AffineBound(outputs, np.array([outputs / inputs, 0.0]))
    box = Box([-inputs, -inputs], [inputs, inputs])
    return Linear(box, [1.0, 0.0], bound, "<=", name="cap")


@pytest.mark.parametrize(("inputs", "outputs"), UNITS)
@pytest.mark.parametrize("missed", [0.9, 1e-6, 1e-10])
def test_an_anchor_that_breaks_its_rule_is_refused_in_any_units(inputs, outputs, missed):
    (guard,) = guards_of(cap_in_units(inputs, outputs))
    with raises(InvalidInput, "anchor", f"[{-inputs:.6g}, "):
        check_given([guard], constant(missed * outputs, 0.0))
    assert check_given([guard], constant(0.0, 0.0)).room == pytest.approx(0.0, abs=1e-15)
    assert check_given([guard], constant(-0.5 * outputs, 0.0)).room > 0


@pytest.mark.parametrize(("inputs", "outputs"), UNITS)
def test_anchors_are_found_in_any_units_and_none_where_there_is_none(inputs, outputs):
    cap = cap_in_units(inputs, outputs)
    floor = Linear(cap.inputs, [1.0, 0.0], -0.5 * outputs, ">=", name="floor")
    found = anchor_for(guards_of(cap, floor))
    assert found.room >= 0.04
    y = found.map.at(np.array([[-inputs, 0.0], [inputs, 0.0]]))[:, 0] / outputs
    assert (y >= -0.5).all()
    assert (y <= np.array([0.0, 2.0])).all()
    above = Linear(cap.inputs, [1.0, 0.0], 2 * outputs, ">=", name="above")
    below = Linear(cap.inputs, [1.0, 0.0], outputs, "<=", name="below")
    assert isinstance(anchor_for(guards_of(above, below)), NoAnchor)


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0, 1e9])
def test_a_prediction_that_breaks_a_rule_is_not_called_shielded(unit):
    (guard,) = guards_of(Linear(BOX, [1.0, 0.0], unit, "<="))
    outputs = torch.tensor([[1.0, 0.0], [1 + 1e-6, 0.0]], dtype=torch.float64) * unit
    assert guard.is_kept(np.zeros((2, 2)), outputs).tolist() == [True, False]


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0])
def test_a_shield_that_acts_everywhere_restores_small_violations(unit):
    (guard,) = guards_of(Linear(BOX, [1.0, 0.0], unit, "<="))
    guard = replace(guard, everywhere=True)
    outputs = torch.tensor([[1.5, 0.0]], dtype=torch.float64) * unit
    x, anchor = torch.zeros(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    theta = guard.theta(x, guard.rules.slack(x, outputs), outputs, anchor)
    assert theta.item() == pytest.approx(1 / 3, rel=1e-2)


def rules_around_an_anchor(rng: np.random.Generator) -> list[Linear]:
    """Rules that one affine map keeps with room, in units of every size."""
    r, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    units = 10.0 ** rng.uniform(-6, 6, r)
    middle = rng.normal(size=d) * 10.0 ** rng.uniform(-6, 6)
    radius = 10.0 ** rng.uniform(-6, 6) * 10.0 ** rng.uniform(-1, 1, d)
    radius = np.maximum(radius, 1e-6 * np.abs(middle))
    base, slope = rng.normal(size=r), rng.normal(size=(r, d))
    rules = []
    for number in range(3):
        count = int(rng.integers(1, 2 * r + 2))
        rows, tilt = rng.normal(size=(count, r)), rng.normal(size=(count, d))
        room = 10.0 ** rng.uniform(-4, 0, count)
        limit = rows @ base + np.abs(rows @ slope - tilt).sum(1) + room
        scale = 10.0 ** rng.uniform(-6, 6)
        bound = AffineBound(scale * (limit - tilt / radius @ middle), scale * tilt / radius)
        region = Box(middle - radius, middle + radius)
        rules.append(Linear(region, scale * rows / units, bound, "<=", name=f"rules {number}"))
    return rules


@pytest.mark.parametrize("seed", [25, 37, 44, 132, 246, 339])
def test_an_affine_anchor_that_exists_is_found_in_any_units(seed: int) -> None:
    rules = rules_around_an_anchor(np.random.default_rng(seed))
    r, d = rules[0].coefficients.shape[1], rules[0].inputs.size
    for one in rules:
        one.check(d, r)
    found = find_anchor([guard_of(one, r) for one in rules], space=Space.free(r, d))
    assert not isinstance(found, NoAnchor)
    assert found.room > 0
