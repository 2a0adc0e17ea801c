"""Proofs of convex quadratic rules: anchors in closed form, networks against samples."""

from __future__ import annotations

from fractions import Fraction

import certification_limits_cases as limits
import numpy as np
import pytest

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, Shield, ShieldedMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate
from cg4ai.records import Strength
from cg4ai.rules import Quadratic
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Ball
from cg4ai_checker import Rejected, check
from cg4ai_checker.run_folder import compare
from raising import raises

SQUARE = np.array([[2.0, 0.5], [0.5, 1.0]])
LINEAR = np.array([0.3, -0.2])


def value(y):
    return np.einsum("...i,ij,...j->...", y, SQUARE, y) + y @ LINEAR


def behind(rule, anchor):
    members = ShieldedMembers(
        ConstantMembers(np.array([[7.0, -9.0]]), 3), Shield(anchor, (guard_of(rule, 2),))
    )
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(2))


def test_a_constant_anchor_is_proven_by_its_value(tmp_path):
    constant = np.array([0.4, -0.3])
    anchor = ConstantMembers(constant[None], 3)
    rule = Quadratic(limits.HOSE, SQUARE, value(constant) + 1e-9, LINEAR, name="cap")
    ensemble = behind(rule, anchor)
    answer = certify(ensemble, rule)
    assert (answer.status, answer.strength, answer.cells) == ("proven", Strength.SHIELDED, 1)
    assert answer.closed_form
    data = build_certificate(ensemble, requirement=rule, certification=answer)
    verdict = check(data)
    assert verdict.bounds[0] == pytest.approx(value(constant), abs=1e-9)
    assert "2 y[0]^2 + 0.5 y[0] y[1] + 0.5 y[1] y[0] + 1 y[1]^2" in str(verdict)
    ensemble.save(tmp_path / "same")
    compare(verdict.claim, tmp_path / "same")
    other = Quadratic(limits.HOSE, 1.001 * SQUARE, rule.bound + 0.01, LINEAR, name="cap")
    behind(other, anchor).save(tmp_path / "other")
    with raises(Rejected, "altered"):
        compare(verdict.claim, tmp_path / "other")
    tight = Quadratic(limits.HOSE, SQUARE, value(constant) - 1e-9, LINEAR, name="cap")
    assert certify(behind(tight, anchor), tight).status == "unknown"


@pytest.mark.parametrize("region", [limits.BOX, Ball(np.full(3, 0.1), 0.8), limits.HOSE])
def test_an_affine_anchor_is_proven_on_cells(region):
    ensemble = limits.line([[0.5, -0.2, 0.1], [0.0, 0.3, 0.2]], [0.1, 0.2])
    free = Quadratic(region, SQUARE, 100.0, LINEAR, name="cap")
    reached = 100.0 + float(limits.most(ensemble, free).max())
    rule = Quadratic(region, SQUARE, reached + 0.02, LINEAR, name="cap")
    answer = certify(ensemble, rule, time_limit_s=60)
    assert answer.status == "proven"
    verdict = check(build_certificate(ensemble, requirement=rule, certification=answer))
    assert reached <= verdict.bounds[0] <= reached + 0.02
    broken = Quadratic(region, SQUARE, reached - 0.01, LINEAR, name="cap")
    assert certify(ensemble, broken, time_limit_s=60).status == "refuted"


@pytest.mark.parametrize("activation", ["gelu", "relu", "tanh"])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_proven_of_networks_holds_at_every_sample(activation, seed):
    ensemble = limits.networks(seed, activation=activation)
    free = Quadratic(limits.BOX, SQUARE, 100.0, LINEAR, name="cap")
    reached = 100.0 + float(limits.most(ensemble, free).max())
    rule = Quadratic(limits.BOX, SQUARE, 1.05 * reached, LINEAR, name="cap")
    answer = certify(ensemble, rule, time_limit_s=60)
    assert answer.status == "proven"
    verdict = check(build_certificate(ensemble, requirement=rule, certification=answer))
    assert verdict.bounds[0] >= reached


def test_softmax_outputs():
    """Squares of shares: the outputs of a softmax have a norm of at most 1."""
    ensemble = limits.networks(5, outputs=3, output="softmax")
    rule = Quadratic(limits.BOX, np.eye(3), 1.01, name="norm")
    assert certify(ensemble, rule, time_limit_s=60).status == "proven"
    tight = Quadratic(limits.BOX, np.eye(3), 0.33, name="norm")
    assert certify(ensemble, tight, time_limit_s=60).status == "refuted"


def test_forged_squares_are_refused():
    constant = np.array([0.4, -0.3])
    rule = Quadratic(limits.BOX, SQUARE, value(constant) + 1e-3, LINEAR, name="cap")
    ensemble = behind(rule, ConstantMembers(constant[None], 3))
    data = build_certificate(ensemble, requirement=rule, certification=certify(ensemble, rule))

    def changed(name, new):
        return limits.altered(data, lambda claim, arrays: arrays.update({name: new(arrays[name])}))

    for name, new, code in (
        ("square_factor", lambda f: 1.1 * f, "rejected"),
        ("quadratic", lambda q: 1.1 * q, "rejected"),
        ("quadratic", lambda q: q + np.diag([0.0, 1e-3]), "rejected"),
        ("quadratic", lambda q: q * np.nan, "not-finite"),
        ("quadratic", lambda q: q[:, :1], "shape"),
        ("square_factor", lambda f: f * np.nan, "not-finite"),
        ("square_factor", lambda f: f[:1], "shape"),
        ("square_factor", lambda f: f * 1e59, "rejected"),
        ("square_rule", lambda r: r + 1, "range"),
        ("square_rule", lambda r: r.astype(float), "type"),
    ):
        with raises(Rejected, code):
            check(changed(name, new))


def members_of(values):
    part = Part(ConstantMembers(np.array([values]), 3), np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(len(values)))


def rotated(units):
    """A full matrix whose outputs are in these units, with its eigenvectors across them."""
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    return turn @ np.diag([1.0, 0.5]) @ turn.T / np.outer(units, units)


@pytest.mark.parametrize("units", [(1.0, 1e8), (1e-9, 1e9), (1e6, 1e-6), (1e9, 1e9)])
@pytest.mark.parametrize("full", [False, True])
def test_outputs_in_other_units_are_not_left_out(units, full, tmp_path):
    """At half of each unit the rule has the value of the same rule without units."""
    square = rotated(units) if full else np.diag(1 / np.square(units))
    mixture = members_of(0.5 * np.array(units))
    exact = float(exact_value(square, 0.5 * np.array(units)))
    broken = Quadratic(limits.BOX, square, 0.999 * exact, name="cap")
    assert certify(mixture, broken).status == "refuted"
    assert not mixture.audit(broken).holds
    kept = Quadratic(limits.BOX, square, 1.001 * exact, name="cap")
    answer = certify(mixture, kept)
    assert (answer.status, answer.checked) == ("proven", True)
    verdict = check(build_certificate(mixture, requirement=kept, certification=answer))
    np.testing.assert_array_equal(verdict.claim.quadratic[0], square)
    assert exact <= verdict.bounds[0] <= kept.bound
    with raises(InvalidInput, "anchor", "cap"):
        mixture.apply_shield(0.5 * np.array(units), broken)


def exact_value(square, outputs):
    return sum(
        Fraction(float(square[i, j])) * Fraction(float(y)) * Fraction(float(z))
        for i, y in enumerate(outputs)
        for j, z in enumerate(outputs)
    )


def test_certificates_of_squares_alone_prove_these_squares():
    """Earlier versions stated no more; what their squares leave out is no part of the claim."""
    constant = np.array([0.4, -0.3])
    rule = Quadratic(limits.BOX, SQUARE, value(constant) + 1e-3, LINEAR, name="cap")
    ensemble = members_of(constant)
    data = build_certificate(ensemble, requirement=rule, certification=certify(ensemble, rule))
    verdict = check(limits.altered(data, lambda claim, arrays: arrays.pop("quadratic")))
    assert verdict.claim.quadratic is None
    assert ")^2" in str(verdict)


def test_a_quadratic_that_its_squares_only_nearly_are_is_bounded_as_stated():
    """Outputs along which a matrix of nearly dependent rows is almost flat."""
    close = 1 - 2.0**-40
    rule = np.array([[1.0, -close], [-close, 1.0]])
    outputs = np.array([1e6, 1e6])
    exact = float(exact_value(rule, outputs))
    assert exact > 1.0
    mixture = members_of(outputs)
    assert certify(mixture, Quadratic(limits.BOX, rule, 0.5 * exact)).status == "refuted"
    answer = certify(mixture, Quadratic(limits.BOX, rule, 0.99999 * exact))
    assert answer.status in ("refuted", "unknown")
