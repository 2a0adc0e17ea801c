"""Certificates of equalities: kept by the form of every member, refused where one is of another."""

from __future__ import annotations

import certification_limits_cases as cases
import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import (
    ConstantMembers,
    NetworkArchitecture,
    Shield,
    ShieldedMembers,
    affine,
)
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate, write_certificate
from cg4ai.rules import Linear
from cg4ai.rules.bounds import AffineBound
from cg4ai.rules.equality import Completion, Equality
from cg4ai.rules.guards import guard_of
from cg4ai.rules.regions import Box
from cg4ai_checker import Rejected, verdict
from cg4ai_checker.run_folder import compare
from raising import raises

INPUTS, OUTPUTS = 3, 5
RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.normal(size=(2, OUTPUTS))
BOUND = AffineBound(RANDOM.normal(size=2), RANDOM.normal(size=(2, INPUTS)))
EQUALITY = Equality(None, MATRIX, BOUND, name="balance")
COMPLETION = EQUALITY.completion(INPUTS)
BOX = Box(-np.ones(INPUTS), np.ones(INPUTS))


def mixture(*stacks):
    parts = [Part(stack, np.zeros(len(stack), np.int64), np.ones(len(stack))) for stack in stacks]
    total = sum(len(part.weights) for part in parts)
    parts = [Part(part.members, part.blocks, part.weights / total) for part in parts]
    return Ensemble(tuple(parts), Layout.single(stacks[0].output_size))


def networks(outputs, count=2):
    architecture = NetworkArchitecture(INPUTS, outputs, hidden=(4,))
    parameters = architecture.initialise(count, torch.Generator().manual_seed(0))
    return architecture.members({name: 3.0 * value for name, value in parameters.items()})


def completed(completion=COMPLETION):
    return CompletedMembers(networks(completion.free_size), completion)


def shielded(anchor=None):
    """Completed networks behind a shield; the anchor is the completion of z = 0."""
    anchor = anchor or affine(COMPLETION.slope.T[None], COMPLETION.offset[None])
    cap = Linear(BOX, np.eye(OUTPUTS), 100.0, "<=", name="cap")
    together = (tuple(range(OUTPUTS)),)  # outputs that an equality ties
    return ShieldedMembers(completed(), Shield(anchor, (guard_of(cap, OUTPUTS),), together))


def certificate(ensemble):
    answer = certify(ensemble, EQUALITY)
    assert (answer.status, answer.strength) == ("proven", "constructed")
    return build_certificate(ensemble, requirement=EQUALITY, certification=answer)


@pytest.mark.parametrize(
    "stacks",
    [
        (completed(),),
        (completed(), completed(COMPLETION.project())),
        (shielded(),),
        (shielded(), affine(COMPLETION.slope.T[None], COMPLETION.offset[None])),
    ],
)
def test_completed_members_are_proven_and_found_in_their_folder(stacks, tmp_path):
    ensemble = mixture(*stacks)
    answer = certify(ensemble, EQUALITY)
    write_certificate(tmp_path / "file", ensemble, requirement=EQUALITY, certification=answer)
    proven = verdict(tmp_path / "file")
    assert "each of 2 equalities holds to 1e-12" in str(proven)
    ensemble.save(tmp_path / "run")
    assert "of such a form" in compare(proven.claim, tmp_path / "run")[0]
    x = 10 * RANDOM.normal(size=(500, INPUTS))
    missed = ensemble.predict(x) @ MATRIX.T - BOUND.offset - x @ BOUND.slope.T
    size = np.abs(ensemble.predict(x)) @ np.abs(MATRIX).T + np.abs(x) @ np.abs(BOUND.slope).T
    assert (np.abs(missed) <= 1e-12 * size).all()


def test_members_without_such_a_form_are_not_proven():
    answer = certify(mixture(networks(OUTPUTS)), EQUALITY)
    assert answer.status == "unknown"
    assert "misses equality 0" in answer.note
    with raises(InvalidInput, "altered"):
        build_certificate(mixture(networks(OUTPUTS)), requirement=EQUALITY, certification=answer)
    other = affine(COMPLETION.slope.T[None], COMPLETION.offset[None] + 1e-9)
    assert certify(mixture(shielded(other)), EQUALITY).status == "unknown"


def test_other_folders_are_refused(tmp_path):
    claim = verdict(certificate(mixture(shielded()))).claim
    near = Completion(COMPLETION.offset + 1e-10, COMPLETION.slope, COMPLETION.basis)
    tilted = Completion(COMPLETION.offset, COMPLETION.slope, COMPLETION.basis + 1e-10)
    anchor = affine(COMPLETION.slope.T[None], COMPLETION.offset[None] + 1e-9)
    heavy = Part(completed(), np.zeros(2, np.int64), np.array([0.5, 0.5 + 1e-9]))
    for name, ensemble, code in (
        ("near", mixture(completed(near)), "not-proven"),
        ("tilted", mixture(completed(tilted)), "not-proven"),
        ("plain", mixture(completed(), networks(OUTPUTS)), "not-proven"),
        ("anchor", mixture(shielded(anchor)), "not-proven"),
        ("weights", Ensemble((heavy,), Layout.single(OUTPUTS)), "rejected"),
    ):
        ensemble.save(tmp_path / name)
        with raises(Rejected, code):
            compare(claim, tmp_path / name)


def test_forged_certificates_are_refused():
    data = certificate(mixture(shielded()))

    def array(name, new):
        return cases.altered(data, lambda claim, own: own.update({name: new(own[name])}))

    def said(key, value):
        return cases.altered(data, lambda claim, own: claim.update({key: value}))

    for forged, code in (
        (array("matrix", lambda a: a + 1e-9), "not-proven"),
        (array("matrix", lambda a: a[::-1].copy()), "not-proven"),
        (array("matrix", lambda a: a * np.nan), "not-finite"),
        (array("matrix", lambda a: a[:0]), "shape"),
        (array("offset", lambda a: a + 1e-9), "not-proven"),
        (array("slope", lambda a: -a), "not-proven"),
        (array("form0.basis", lambda a: a + 1e-9), "not-proven"),
        (array("form0.basis", lambda a: a * 1e61), "not-finite"),
        (array("form0.slope", lambda a: a.T.copy()), "shape"),
        (said("forms", 1), "rejected"),
        (said("forms", 0), "range"),
        (said("forms", 9), "rejected"),
        (said("kind", "inequality"), "rejected"),
        (said("title", "two\nlines"), "bad-name"),
    ):
        with raises(Rejected, code) as refused:
            verdict(forged)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("size", [1e308, 1e-81, 1e-200])
def test_a_basis_whose_products_overflow_or_vanish_is_refused(size, tmp_path):
    """With free outputs of 1 / size x its outputs are of moderate size, and miss the sum by 2 x."""
    sums = Equality(None, np.ones((1, 2)), AffineBound(np.ones(1), np.zeros((1, 1))), name="one")
    constant = mixture(ConstantMembers(np.array([[0.3, 0.7]]), 1))
    claim = verdict(
        build_certificate(constant, requirement=sums, certification=certify(constant, sums))
    ).claim
    free = affine(np.full((1, 1, 1), 1 / size), np.zeros((1, 1)))
    wrong = Completion(np.array([0.3, 0.7]), np.zeros((2, 1)), np.full((2, 1), size))
    folder = mixture(CompletedMembers(free, wrong))
    assert folder.predict(np.ones((1, 1))).sum() == pytest.approx(3.0)
    folder.save(tmp_path / "run")
    with pytest.raises(Rejected, match="the basis of part 0"):
        compare(claim, tmp_path / "run")


def test_constants_whose_sum_overflows_are_refused(tmp_path):
    sums = Equality(None, np.ones((1, 2)), AffineBound(np.ones(1), np.zeros((1, 1))), name="one")
    constant = mixture(ConstantMembers(np.array([[0.3, 0.7]]), 1))
    claim = verdict(
        build_certificate(constant, requirement=sums, certification=certify(constant, sums))
    ).claim
    mixture(ConstantMembers(np.full((1, 2), 1e308), 1)).save(tmp_path / "run")
    with raises(Rejected, "not-finite"):
        compare(claim, tmp_path / "run")
    mixture(ConstantMembers(np.array([[0.3, 0.7]]), 2)).save(tmp_path / "wider")
    with raises(Rejected, "altered"):
        compare(claim, tmp_path / "wider")
