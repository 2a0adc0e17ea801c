"""Certificates of shielded ensembles: what the anchor keeps, every prediction keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cg4ai.ensemble.claims import record_certified
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import load
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, Shield, ShieldedMembers, affine
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate, write_certificate
from cg4ai.records import Strength
from cg4ai.rules import Linear
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Ball, Box
from cg4ai_checker import Rejected, check
from cg4ai_checker.run_folder import compare
from raising import raises

INPUTS, OUTPUTS = 3, 2
BOX = Box(-np.ones(INPUTS), np.ones(INPUTS))
SLOPE = np.array([[0.2, -0.1, 0.0], [0.0, 0.3, 0.1]])
OFFSET = np.array([0.1, -0.2])
COEFFICIENTS = np.array([[1.0, 0.5], [-1.0, 2.0], [0.3, -1.0]])


def line(slope=SLOPE, offset=OFFSET):
    return affine(slope.T[None], offset[None])


def highest(region, slope=SLOPE, offset=OFFSET):
    """What the rules reach at an affine anchor, by hand: a corner, or along the slope."""
    rising, start = COEFFICIENTS @ slope, COEFFICIENTS @ offset
    if isinstance(region, Box):
        middle, half = np.mean(region.bounds(), axis=0), np.ptp(region.bounds(), axis=0) / 2
        return start + rising @ middle + np.abs(rising) @ half
    size = np.linalg.norm(rising, axis=1) if region.norm == 2 else np.abs(rising).sum(axis=1)
    return start + rising @ region.centre + region.radius * size


def wanted(region=BOX, room=1e-9, anchor=None):
    slope, offset = anchor or (SLOPE, OFFSET)
    return Linear(region, COEFFICIENTS, highest(region, slope, offset) + room, "<=", name="cap")


def networks(seed=0, count=3, scale=3.0):
    architecture = NetworkArchitecture(INPUTS, OUTPUTS, hidden=(8,))
    parameters = architecture.initialise(count, torch.Generator().manual_seed(seed))
    return architecture.members({name: scale * value for name, value in parameters.items()})


def behind(requirement, *, anchor=None, stacks=None):
    """Random networks, each behind the same shield."""
    shield = Shield(anchor or line(), (guard_of(requirement, OUTPUTS),))
    stacks = stacks or [networks(0, 3), ConstantMembers(np.array([[5.0, -7.0]]), INPUTS)]
    counts = [len(stack) for stack in stacks]
    shares = np.split(np.random.default_rng(0).dirichlet(np.ones(sum(counts))), np.cumsum(counts))
    parts = [
        Part(ShieldedMembers(stack, shield), np.zeros(len(stack), np.int64), own)
        for stack, own in zip(stacks, shares, strict=False)
    ]
    return Ensemble(tuple(parts), Layout.single(OUTPUTS))


@pytest.mark.parametrize(
    "region", [BOX, Ball(np.array([0.3, 0.0, -0.2]), 0.7), Ball(np.zeros(INPUTS), 0.5, math.inf)]
)
def test_an_affine_anchor_is_proven_in_closed_form(region, tmp_path):
    """With hardly more room than rounding needs, one cell for each rule is enough."""
    rule = wanted(region, room=1e-10)
    ensemble = behind(rule)
    answer = certify(ensemble, rule)
    assert answer.status == "proven"
    assert (answer.strength, answer.closed_form) == (Strength.SHIELDED, True)
    assert answer.cells == len(COEFFICIENTS)
    write_certificate(tmp_path / "file", ensemble, requirement=rule, certification=answer)
    ensemble.save(tmp_path)
    verdict = check(tmp_path / "file")
    assert "every mixture of members" in str(verdict)
    # a ball is proven with a radius that is a hair larger
    assert verdict.bounds == pytest.approx(highest(region), abs=1e-9)
    assert "behind a shield with this anchor" in compare(verdict.claim, tmp_path)[0]
    points = region.sample(5000, torch.Generator().manual_seed(1)).numpy()
    values = load(tmp_path).predict(points) @ COEFFICIENTS.T
    assert (values <= highest(region) + 1e-10).all()


def test_what_the_anchor_breaks_by_a_hair_is_not_proven():
    rule = wanted(room=-1e-9)
    answer = certify(behind(rule), rule)
    assert answer.status == "unknown"
    assert "anchor of the shield breaks rule" in answer.note
    assert answer.counterexample is None


def test_an_anchor_without_room_is_recognised_before_many_cells_are_split():
    """It took five million cells to say so."""
    rule = wanted(room=1e-15)
    answer = certify(behind(rule), rule)
    assert answer.status == "unknown"
    assert answer.cells < 20_000 * len(COEFFICIENTS)
    assert "too close to their limits" in answer.note
    assert "another anchor" in answer.note
    assert answer.exhausted
    again = certify(behind(rule), rule, resume=answer)
    assert again.cells == answer.cells


def test_the_anchor_may_be_a_network():
    anchor = networks(9, 1, scale=1.0)
    points = BOX.sample(20000, torch.Generator().manual_seed(2))
    most = (anchor.outputs(points)[0].numpy() @ COEFFICIENTS.T).max(axis=0) + 0.3
    rule = Linear(BOX, COEFFICIENTS, most, "<=", name="cap")
    answer = certify(behind(rule, anchor=anchor), rule)
    assert answer.status == "proven"
    assert (answer.strength, answer.closed_form) == (Strength.SHIELDED, False)


def test_the_shield_of_a_whole_mixture(tmp_path):
    anchor = (np.zeros((OUTPUTS, INPUTS)), np.array([0.4, -0.3]))
    rule = wanted(room=1e-6, anchor=anchor)
    parts = (Part(networks(), np.zeros(3, np.int64), np.full(3, 1 / 3)),)
    bare = Ensemble(parts, Layout.single(OUTPUTS))
    ensemble = bare.apply_shield(anchor[1], rule)
    answer = certify(ensemble, rule)
    assert (answer.status, answer.shield) == ("proven", "mixture")
    write_certificate(tmp_path / "file", ensemble, requirement=rule, certification=answer)
    claim = check(tmp_path / "file").claim
    ensemble.save(tmp_path)
    assert "this anchor, these rules and this region" in compare(claim, tmp_path)[0]
    bare.save(tmp_path / "bare")
    with raises(Rejected, "rejected", "shield"):
        compare(claim, tmp_path / "bare")
    bare.apply_shield(anchor[1] - 1e-7, rule).save(tmp_path / "other")
    with raises(Rejected, "altered", "anchor"):
        compare(claim, tmp_path / "other")


def test_a_proof_is_recorded_only_for_the_shield_it_speaks_of():
    rule = wanted(room=1e-6)
    ensemble = behind(rule)
    record_certified(ensemble, rule, certification=certify(ensemble, rule))
    x = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]])
    assert ensemble.predict(x, explain=True).labels.tolist() == ["shielded", "unverified"]
    looser = behind(wanted(room=1.0))
    with raises(InvalidInput, "altered"):
        record_certified(looser, rule, certification=certify(ensemble, rule))


def test_rules_that_the_shield_does_not_keep_are_refused():
    ensemble = behind(wanted(room=1e-6))
    for other in (wanted(room=2e-6), wanted(Box(-np.ones(INPUTS), 2 * np.ones(INPUTS)), 5.0)):
        with raises(InvalidInput, "conflict", "cap"):
            certify(ensemble, other)


def test_members_outside_the_shield_are_refused():
    rule = wanted(room=1e-6)
    part = behind(rule, stacks=[networks()]).parts[0]
    bare = Part(networks(4, 1), np.zeros(1, np.int64), np.array([0.5]))
    mixed = Ensemble((Part(part.members, part.blocks, part.weights / 2), bare), Layout.single(2))
    with raises(InvalidInput, "unsupported"):
        certify(mixed, rule)


# ---- the folder must hold what the certificate speaks of -----------------------------------------


def shipped(tmp_path, ensemble, name):
    ensemble.save(tmp_path / name)
    return tmp_path / name


def test_folders_with_another_shield_are_refused(tmp_path):
    rule = wanted(room=1e-6)
    ensemble = behind(rule)
    claim = check(
        build_certificate(ensemble, requirement=rule, certification=certify(ensemble, rule))
    ).claim
    compare(claim, shipped(tmp_path, ensemble, "same"))
    retrained = behind(rule, stacks=[networks(7)])
    assert compare(claim, shipped(tmp_path, retrained, "retrained"))  # behind the same shield
    lower, bare = OFFSET - 1e-3, Part(networks(), np.zeros(3, np.int64), np.full(3, 1 / 3))
    others = {
        "anchor": (behind(rule, anchor=line(offset=lower)), "differs from the certificate's"),
        "rule": (behind(wanted(room=1.0)), "other rules or regions"),
        "region": (
            behind(Linear(Box(-BOX.upper, 0.5 * BOX.upper), COEFFICIENTS, rule.bound, "<=")),
            "other rules or regions",
        ),
        "none": (Ensemble((bare,), Layout.single(OUTPUTS)), "not behind a shield"),
    }
    for name, (other, reason) in others.items():
        with pytest.raises(Rejected, match=reason):
            compare(claim, shipped(tmp_path, other, name))


def test_a_member_that_is_not_shielded_is_refused_unless_it_has_no_weight(tmp_path):
    rule = wanted(room=1e-6)
    ensemble = behind(rule)
    claim = check(
        build_certificate(ensemble, requirement=rule, certification=certify(ensemble, rule))
    ).claim
    part = behind(rule, stacks=[networks()]).parts[0]
    for weight in (0.0, 1e-9):
        bare = Part(networks(4, 1), np.zeros(1, np.int64), np.array([weight]))
        shares = part.weights / part.weights.sum() * (1 - weight)
        mixed = Ensemble((Part(part.members, part.blocks, shares), bare), Layout.single(OUTPUTS))
        folder = shipped(tmp_path, mixed, f"{weight}")
        if weight:
            with raises(Rejected, "rejected", "part 1"):
                compare(claim, folder)
        else:
            assert "1 members of weight 0" in compare(claim, folder)[1]
