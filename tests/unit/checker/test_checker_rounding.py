"""False certificates that live on rounding: sums that lose their small terms, products that vanish.

Each is false in exact arithmetic about what float64 inference returns; none may be proven.
"""

from __future__ import annotations

from fractions import Fraction

import certificate_cases as cases
import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import FEW, Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, NetworkMembers, TreeMembers
from cg4ai.members.mixture import Part
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from cg4ai_checker import Rejected, check
from cg4ai_checker.bound import rule_bound
from cg4ai_checker.cells import Cells

LAST_BIT = 2.0**-52


def mixed(members, weights=None):
    """All members in one block, equally weighted if nothing else is said."""
    count = len(members)
    weights = np.full(count, 1 / count) if weights is None else np.array(weights)
    part = Part(members, np.zeros(count, np.int64), weights)
    return Ensemble((part,), Layout.single(members.output_size))


def rejected(data, reason="not proven"):
    with pytest.raises(Rejected, match=reason):
        check(data)


def exact_value(ensemble, coefficients, point):
    """One rule at one input, exactly, from the outputs that inference returns there in a batch."""
    outputs = ensemble.predict(np.repeat([point], FEW + 1, 0))[0].tolist()
    return sum(Fraction(c) * Fraction(y) for c, y in zip(coefficients, outputs, strict=True))


def test_slopes_that_stand_at_one_place_are_rejected():
    """1e60 + 1 - 1e60 is 0 in float64 and 1 in truth, which at x = 1 is above the limit."""
    ensemble = mixed(ConstantMembers(np.ones((1, 1)), 1))
    rules = cases.AffineRules(np.zeros((1, 1)), np.ones((1, 1, 1)))
    data = cases.certificate(ensemble, cases.requirement(rules, [0.0], [1.0], 2.0))
    check(data)

    def repeat(claim, arrays):
        for name in ("slope_rule", "slope_output", "slope_input"):
            arrays[name] = np.zeros(3, np.int64)
        arrays["slope_value"] = np.array([1e60, 1.0, -1e60])
        arrays["limit"], arrays["leaf_bound"] = np.array([0.5]), np.array([0.0])

    rejected(cases.altered(data, repeat), "two slopes stand at one rule, output and input")


def test_a_softmax_that_loses_its_small_outputs_is_accounted_for():
    """exp(-37.4) is lost 3000 times from a sum that starts with 1, but not from the outputs."""
    size = 3000
    bias = torch.full((1, size), -37.4, dtype=torch.float64)
    bias[0, 0] = 0.0
    architecture = NetworkArchitecture(1, size, hidden=(), output="softmax")
    members = architecture.members({"weight_0": torch.zeros(1, size, 1).double(), "bias_0": bias})
    ensemble, ones = mixed(members), np.ones(size)
    limit = 1 + 1e-13
    assert exact_value(ensemble, ones, [0.5]) > Fraction(limit)
    wanted = Linear(Box([0.0], [1.0]), ones[None], limit, "<=", name="cap")
    rejected(cases.certificate(ensemble, wanted))
    check(cases.certificate(ensemble, Linear(Box([0.0], [1.0]), ones[None], 1 + 1e-10, "<=")))


def test_a_factor_under_which_leaves_vanish_but_not_their_sum_is_accounted_for():
    """5e-324 x 0.4 is zero, ten times 5e-324 x 0.4 is not; times 1e60 it exceeds the limit 0."""
    leaf = np.zeros((1, 10, 1), np.int64)
    members = TreeMembers(
        leaf,
        leaf * 0.0,
        left=leaf,
        right=leaf,
        value=np.full((1, 10, 1, 1), 5e-324),
        factor=np.array([0.4]),
        input_size=1,
    )
    ensemble = mixed(members)
    assert exact_value(ensemble, [1e60], [0.5]) > 0
    wanted = Linear(Box([0.0], [1.0]), [[1e60]], 0.0, "<=", name="cap")
    rejected(cases.certificate(ensemble, wanted))


def test_a_weight_under_which_the_size_of_a_term_vanishes_is_accounted_for():
    """1e-300 x 1e-20 is above zero, 1e-300 x (1e-20 x 1e-10) is not in float64."""
    ensemble = mixed(ConstantMembers(np.array([[1e-20], [0.0]]), 1), [1e-300, 1.0])
    assert exact_value(ensemble, [1e-10], [0.5]) > 0
    wanted = Linear(Box([0.0], [1.0]), [[1e-10]], 0.0, "<=", name="cap")
    rejected(cases.certificate(ensemble, wanted))


def test_outputs_that_are_always_zero_need_no_room():
    ensemble = mixed(ConstantMembers(np.array([[0.0, 1.0]]), 1))
    wanted = Linear(Box([0.0], [1.0]), [[1e60, 0.0]], 0.0, "<=", name="cap")
    assert check(cases.certificate(ensemble, wanted)).room[0] == 0.0


def test_one_sum_over_the_hidden_units_of_all_members_is_accounted_for():
    """Inference adds the units of all members at once: one after the other, small ones are lost."""
    count, width = 300, 300
    small = -0.49 * LAST_BIT / 2
    architecture = NetworkArchitecture(1, 1, hidden=(width,), activation="relu")
    last = np.full((count, 1, width), count * small)
    members = NetworkMembers(
        architecture,
        {
            "weight_0": np.zeros((count, width, 1)),
            "bias_0": np.ones((count, width)),
            "weight_1": last,
            "bias_1": np.ones((count, 1)),
        },
    )
    ensemble = mixed(members)
    wanted = Linear(Box([0.0], [1.0]), [[1.0]], 2.0, "<=", name="cap")
    claim = cases.claim(ensemble, wanted)
    one_by_one = 1.0
    for _ in range(count * width):
        one_by_one += small
    assert one_by_one == 1.0
    point = Cells(np.array([[0.5]]), np.array([[0.5]]))
    assert rule_bound(claim.terms(0), point).value[0] >= one_by_one


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"part0.weight_0": 1e60, "part0.weight_1": 1e60, "part0.weight_2": 1e-90}, "sums inside"),
        ({"limit": np.nan}, "limit holds nan"),
        ({"slope_value": np.inf}, "slope_value holds inf"),
        ({"part0.bias_1": -np.inf}, "bias_1 of network members holds -inf"),
    ],
)
def test_numbers_beyond_the_analysis_are_rejected(numbers, reason):
    random = np.random.default_rng(0)
    ensemble = mixed(cases.network(random, 1, 1, count=1, hidden=(2, 2), activation="relu"))
    rules = cases.AffineRules(np.zeros((1, 1)), np.ones((1, 1, 1)))
    data = cases.certificate(ensemble, cases.requirement(rules, [0.0], [1.0], 1e6))
    check(data)

    def change(claim, arrays):
        for name, number in numbers.items():
            arrays[name] = np.full_like(arrays[name], number)

    rejected(cases.altered(data, change), reason)


def test_a_skip_that_inference_leaves_out_is_rejected():
    """Without hidden layers there is nothing to skip, and inference does not look at it."""
    random = np.random.default_rng(0)
    ensemble = mixed(cases.network(random, 1, 1, count=1, hidden=()))
    data = cases.certificate(ensemble, Linear(Box([0.0], [1.0]), [[1.0]], 1e6, "<=", name="cap"))

    def change(claim, arrays):
        claim["parts"][0]["config"]["skip"] = True
        claim["parts"][0]["arrays"].append("skip")
        arrays["part0.skip"] = np.ones((1, 1, 1))

    rejected(cases.altered(data, change), "skip must be")


@pytest.mark.parametrize("dtype", [">f8", "f4", "c16", "U8", "V8", "M8[s]", "i8", [("a", "f8")]])
@pytest.mark.parametrize("name", ["limit", "lower", "part0.bias_0", "part0.weights", "leaf_bound"])
def test_only_native_double_precision_is_read(name, dtype):
    random = np.random.default_rng(0)
    ensemble = mixed(cases.network(random, 1, 1, count=1, hidden=()))
    data = cases.certificate(ensemble, Linear(Box([0.0], [1.0]), [[1.0]], 1e6, "<=", name="cap"))

    def change(claim, arrays):
        arrays[name] = np.zeros(arrays[name].shape, dtype)

    rejected(cases.altered(data, change), "dtype|must be of float64")


EXTREMES = (-280, -150, -20, 0, 8, 20)


@pytest.mark.parametrize("seed", range(12))
def test_bounds_at_a_point_are_above_exact_and_float_values(seed):
    """On cells of no width only rounding is left: is what is added for it enough?"""
    random = np.random.default_rng(seed)
    inputs, outputs = 2, 3
    kind = ("relu", "gelu", "tanh", "tree")[seed % 4]
    if kind == "tree":
        members = cases.trees(random, inputs, outputs)
    else:
        members = cases.network(random, inputs, outputs, hidden=(4,), activation=kind)
        scaled = {
            name: array.numpy() * 10.0 ** random.choice(EXTREMES, array.shape)
            for name, array in members.parameters.items()
        }
        members = NetworkMembers(members.architecture, scaled)
    ensemble = cases.mixture(random, members)
    rules = cases.random_rules(random, outputs, inputs)
    points = random.uniform(-1, 1, (20, inputs)) * 10.0 ** random.choice(EXTREMES, (20, inputs))
    wanted = cases.requirement(rules, points.min(axis=0), points.max(axis=0), 1e50)
    claim = cases.claim(ensemble, wanted)
    predicted = ensemble.predict(points)
    for rule in range(rules.count):
        with np.errstate(over="ignore", invalid="ignore"):  # as `check` does
            bounds = rule_bound(claim.terms(rule), Cells(points, points)).value
        for point, outputs_, bound in zip(points, predicted, bounds, strict=True):
            value = sum(
                (
                    Fraction(rules.constant[rule, k])
                    + sum(map(_product, rules.slope[rule, k], point))
                )
                * Fraction(outputs_[k])
                for k in range(outputs)
            )
            assert not np.isfinite(bound) or Fraction(bound) >= value


def _product(one, other):
    return Fraction(float(one)) * Fraction(float(other))
