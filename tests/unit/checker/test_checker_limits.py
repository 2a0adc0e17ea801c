"""False certificates of shields, tilted limits, pieces and polytopes: one line says why not."""

from __future__ import annotations

from fractions import Fraction

import certificate_cases as cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, Shield, ShieldedMembers, affine
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate
from cg4ai.rules import Linear
from cg4ai.rules.bounds import AffineBound, Largest
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Ball, Box, Polytope
from cg4ai_checker import Rejected, check
from cg4ai_checker.bound import rule_bound
from cg4ai_checker.cells import Cells
from cg4ai_checker.region import Region
from cg4ai_checker.terms import Limits, RuleTerms
from raising import raises

BOX = Box([-1.0, -1.0], [1.0, 1.0])
HOSE = Polytope(BOX, [[1.0, 1.0], [-1.0, 0.5]], [0.5, 0.75])


def behind(rule, slope, offset):
    """Wild constants, each behind a shield with this affine anchor."""
    anchor = affine(np.asarray(slope, float).T[None], np.asarray(offset, float)[None])
    shield = Shield(anchor, (guard_of(rule, len(offset)),))
    inner = ConstantMembers(np.array([[7.0, -9.0], [-5.0, 4.0]]), 2)
    members = ShieldedMembers(inner, shield)
    part = Part(members, np.zeros(2, np.int64), np.array([0.25, 0.75]))
    return Ensemble((part,), Layout.single(2))


SLOPE, OFFSET = np.array([[0.5, -0.25], [0.0, 0.5]]), np.array([0.0, 0.25])
# at the anchor y0 + y1 = x0 / 2 + x1 / 4 + 1 / 4, at most 0.625 over the polytope, at (1, -0.5)
RULES = {
    "box": Linear(BOX, np.eye(2), [0.76, 0.76], "<=", name="cap"),
    "polytope": Linear(HOSE, [[1.0, 1.0]], [0.63], "<=", name="cap"),
    "ball": Linear(Ball([0.0, 0.0], 0.5), np.eye(2), [0.29, 0.51], "<=", name="cap"),
    "tilted": Linear(BOX, [[1.0, 1.0]], AffineBound([0.26], [0.5, 0.25]), "<=", name="cap"),
    "pieces": Linear(
        BOX,
        [[1.0, 0.0]],
        Largest([AffineBound(0.01, [1.0, -0.5]), AffineBound(0.01, [-1.0, 0.5])]),
        "<=",
        name="cap",
    ),
}


def certificate(name):
    rule = RULES[name]
    ensemble = behind(rule, SLOPE, OFFSET)
    answer = certify(ensemble, rule)
    assert answer.status == "proven", (name, answer)
    return build_certificate(ensemble, requirement=rule, certification=answer)


CERTIFICATES = {name: certificate(name) for name in RULES}


@pytest.mark.parametrize("name", RULES)
def test_the_certificate_itself_is_accepted(name):
    verdict = check(CERTIFICATES[name])
    assert verdict.claim.shield == "members"
    assert verdict.leaves == len(verdict.bounds)  # closed form: one cell for each rule


def _array(name, value):
    def change(claim, arrays):
        arrays[name] = value(arrays[name]) if callable(value) else np.array(value)

    return change


def _set(name, index, value):
    def change(claim, arrays):
        arrays[name][index] = value

    return change


def _say(value):
    def change(claim, arrays):
        claim["shield"] = value

    return change


def _two_anchors(claim, arrays):
    for name in ("weight_0", "bias_0"):
        arrays[f"part0.{name}"] = np.repeat(arrays[f"part0.{name}"], 2, axis=0)
    arrays["part0.weights"] = np.full(2, 0.5)
    claim["parts"][0]["blocks"] = [0, 0]


def _shuffled(claim, arrays):
    claim["blocks"] = [[1, 0]]


def _swapped(one, other):
    def change(claim, arrays):
        arrays[one], arrays[other] = arrays[other], arrays[one]

    return change


FORGERIES = {
    "another anchor": ("box", _set("part0.bias_0", (0, 0), 0.1), "not proven: rule 0"),
    "steeper anchor": ("box", _array("part0.weight_0", lambda w: 1.5 * w), "not proven"),
    "anchor not a number": ("box", _set("part0.bias_0", (0, 0), np.nan), "holds nan"),
    "huge anchor": ("box", _set("part0.weight_0", (0, 0, 0), 1e61), r"holds 1e\+61"),
    "two anchors": ("box", _two_anchors, "must be one member of weight 1"),
    "outputs swapped": ("box", _shuffled, "outputs in their order"),
    "shield of nothing": ("box", _say({"of": "nobody"}), "a shield is of members or of mixture"),
    "shield with more words": ("box", _say({"of": "members", "x": 1}), "shield must be an object"),
    "shield not stated": ("box", _say(3), "shield must be an object"),
    "larger box": ("box", _array("upper", lambda u: 1.1 * u), "not proven"),
    "larger ball": ("ball", _array("radius", 0.6), "does not hold the whole ball"),
    "other centre": ("ball", _array("centre", [0.1, 0.0]), "does not hold the whole ball"),
    "wider polytope": ("polytope", _array("region_most", lambda b: b + 0.2), "not proven"),
    "row dropped": ("polytope", _array("region_rows", lambda a: a[:1]), "region_most has"),
    "rows negated": ("polytope", _array("region_rows", lambda a: -a), "not proven"),
    "multiplier negative": ("polytope", _set("leaf_use", 0, -1.0), "at least 0, got -1"),
    "multiplier not a number": ("polytope", _set("leaf_use", 0, np.nan), "leaf_use holds nan"),
    "multiplier huge": ("polytope", _set("leaf_use", 0, 1e59), "not proven"),
    "multiplier infinite": ("polytope", _set("leaf_use", 0, np.inf), "leaf_use holds inf"),
    "multipliers swapped": ("polytope", _array("leaf_use", lambda u: u[::-1].copy()), "not proven"),
    "multipliers missing": ("polytope", _array("leaf_use", np.zeros(0)), "leaf_use has the shape"),
    "multipliers too many": ("polytope", _array("leaf_use", np.zeros(4)), "leaf_use has the shape"),
    "rows and limits swapped": ("polytope", _swapped("region_most", "limit"), "shape"),
    "tilt turned": ("tilted", _array("tilt", lambda t: -t), "not proven"),
    "tilt too long": ("tilted", _array("tilt", np.zeros((1, 3))), "tilt has the shape"),
    "tilt not a number": ("tilted", _set("tilt", (0, 0), np.nan), "tilt holds nan"),
    "limit lowered": ("tilted", _array("limit", [0.2]), "not proven"),
    "share negative": ("pieces", _set("leaf_use", 0, -0.5), "at least 0, got -0.5"),
    "no shares": ("pieces", _array("leaf_use", np.zeros(2)), "must not all be zero"),
    "piece of no rule": ("pieces", _array("piece", [0, 1]), "piece must rise"),
    "piece before the first": ("pieces", _array("piece", [-1, 0]), "piece must rise"),
    "piece twice the rule": ("pieces", _array("piece", [0.0, 0.0]), "dtype"),
    "one piece lowered": ("pieces", _set("limit", 0, -0.5), "not proven"),
    "both pieces the same": ("pieces", _array("tilt", [[1.0, -0.5]] * 2), "not proven"),
    "leaf above 0": ("pieces", _array("leaf_bound", [0.1]), "above the limit"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_refused_in_one_line(name):
    of, change, reason = FORGERIES[name]
    with pytest.raises(Rejected, match=reason) as refused:
        check(cases.altered(CERTIFICATES[of], change))
    assert "\n" not in str(refused.value)


def test_an_empty_polytope_proves_nothing():
    """Every rule holds where nothing is; that must not be called proven."""

    def change(claim, arrays):
        arrays["region_most"] = np.array([-3.0, 0.75])
        arrays["leaf_use"] = np.array([1.0, 0.0])

    with raises(Rejected, "empty"):
        check(cases.altered(CERTIFICATES["polytope"], change))


# ---- soundness of what is added to bounds, in exact arithmetic -----------------------------------


def exact(constant, slope, point):
    """`constant + slope . point` as a fraction."""
    pairs = zip(slope.tolist(), point.tolist(), strict=True)
    return Fraction(float(constant)) + sum(Fraction(a) * Fraction(v) for a, v in pairs)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 1e-8, 1e12]))
def test_shares_and_multipliers_never_lower_a_bound_below_a_value(seed, scale):
    """Whatever they are: at corners of cells, in exact arithmetic."""
    random = np.random.default_rng(seed)
    lower = scale * random.normal(size=(4, 2))
    upper = lower + scale * random.uniform(0, 1, (4, 2)) * random.choice([0.0, 1e-9, 1.0], (4, 1))
    rows, most = random.normal(size=(2, 2)), scale * random.normal(size=2)
    region = Region(lower.min(axis=0), upper.max(axis=0), rows=rows, most=most)
    limits = Limits(scale * random.normal(size=3), random.normal(size=(3, 2)))
    shares = random.dirichlet(np.ones(3), 4)
    multipliers = random.exponential(size=(4, 2)) * random.choice([0, 1, 1e6], (4, 2))
    cells = Cells(lower, upper, shares, multipliers)
    bounds = rule_bound(RuleTerms([], limits), cells, region).value
    missed = region.missed_by(cells)
    for number, ends in enumerate(zip(lower, upper, strict=True)):
        for corner in np.ndindex(2, 2):
            x = np.array([ends[end][at] for at, end in enumerate(corner)])
            if any(exact(-b, row, x) > 0 for row, b in zip(rows, most, strict=True)):
                continue
            assert not missed[number]
            # the rule asks that nothing, 0, is at most the largest limit
            pieces = zip(limits.limit, limits.tilt, strict=True)
            excess = -max(exact(limit, tilt, x) for limit, tilt in pieces)
            assert excess <= Fraction(float(bounds[number]))
