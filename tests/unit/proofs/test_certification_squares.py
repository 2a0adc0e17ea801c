"""Proofs of convex quadratic rules: anchors in closed form, networks against samples."""

from __future__ import annotations

import certification_limits_cases as limits
import numpy as np
import pytest

from cg4ai.checker import Rejected, check
from cg4ai.checker.shipped import compare
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, Shield, ShieldedMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import certificate_bytes
from cg4ai.records import Strength
from cg4ai.rules import Quadratic
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Ball

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
    data = certificate_bytes(ensemble, requirement=rule, certification=answer)
    verdict = check(data)
    assert verdict.bounds[0] == pytest.approx(value(constant), abs=1e-9)
    assert ")^2" in str(verdict)
    ensemble.save(tmp_path / "same")
    compare(verdict.claim, tmp_path / "same")
    other = Quadratic(limits.HOSE, 1.001 * SQUARE, rule.bound + 0.01, LINEAR, name="cap")
    behind(other, anchor).save(tmp_path / "other")
    with pytest.raises(Rejected, match="other rules or regions"):
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
    verdict = check(certificate_bytes(ensemble, requirement=rule, certification=answer))
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
    verdict = check(certificate_bytes(ensemble, requirement=rule, certification=answer))
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
    data = certificate_bytes(ensemble, requirement=rule, certification=certify(ensemble, rule))

    def changed(name, new):
        return limits.altered(data, lambda claim, arrays: arrays.update({name: new(arrays[name])}))

    for name, new, reason in (
        ("square_factor", lambda f: 1.1 * f, "not proven"),
        ("square_factor", lambda f: f * np.nan, "holds nan"),
        ("square_factor", lambda f: f[:1], "square_rule has the shape"),
        ("square_factor", lambda f: f * 1e59, "not proven"),
        ("square_rule", lambda r: r + 1, "square_rule must lie"),
        ("square_rule", lambda r: r.astype(float), "dtype"),
    ):
        with pytest.raises(Rejected, match=reason):
            check(changed(name, new))
