"""Proofs with limits that depend on the input and over polytopes, against programs and sampling."""

from __future__ import annotations

import numpy as np
import pytest
from certification_limits_cases import BOX, HOSE, alone, line, most, networks
from scipy.optimize import linprog

from cg4ai.members import ConstantMembers
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import build_certificate, load_unfinished, save_unfinished
from cg4ai.rules import Linear
from cg4ai.rules.bounds import AffineBound, Largest
from cg4ai.rules.regions import Ball, Box, Polytope
from cg4ai_checker import check


@pytest.mark.parametrize("region", [BOX, HOSE, Ball(np.full(3, 0.1), 0.8)])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_proven_of_networks_holds_at_every_sample(region, seed):
    random = np.random.default_rng(seed)
    ensemble = networks(seed)
    coefficients, tilts = random.normal(size=(2, 2)), random.normal(size=(2, 2, 3))
    bounds = Largest([AffineBound(np.zeros(2), tilt) for tilt in tilts])
    reached = most(ensemble, Linear(region, coefficients, bounds, "<=")).max(axis=0)
    for room, expected in ((0.1, "proven"), (-0.02, "refuted")):
        wider = [AffineBound(reached + room, tilt) for tilt in tilts]
        rule = Linear(region, coefficients, Largest(wider), "<=", name="cap")
        answer = certify(ensemble, rule, time_limit_s=60)
        assert answer.status == expected
        if expected == "proven":
            assert (most(ensemble, rule) <= 0).all()
            assert [proof.limit for proof in answer.rules] == [0.0, 0.0]
            verdict = check(build_certificate(ensemble, requirement=rule, certification=answer))
            assert (verdict.bounds <= 0).all()
            assert "above its limit" in str(verdict)


def test_one_tilted_limit_takes_one_cell():
    """y = 2 x0 + 1 <= 2 x0 + x1 + 2.1 with x1 >= -1: closed form, room 0.1."""
    rule = Linear(BOX, [1.0], AffineBound(2.1, [2.0, 1.0, 0.0]), "<=", name="cap")
    answer = certify(line([[2.0, 0.0, 0.0]], [1.0]), rule)
    assert (answer.status, answer.cells) == ("proven", 1)
    assert answer.rules[0].bound == pytest.approx(-0.1, abs=1e-9)
    tighter = Linear(BOX, [1.0], AffineBound(1.999, [2.0, 1.0, 0.0]), "<=", name="cap")
    assert certify(line([[2.0, 0.0, 0.0]], [1.0]), tighter).status == "refuted"


def test_a_mean_of_limits_proves_what_no_single_one_can():
    """0 <= max(x0, -x0, x1 - 1) + room holds everywhere by half of the first two."""
    zero = alone(ConstantMembers(np.zeros((1, 1)), 3))
    tilts = [[1.0, 0, 0], [-1.0, 0, 0], [0.0, 1, 0]]
    bounds = [
        AffineBound(offset, tilt) for offset, tilt in zip([1e-6, 1e-6, -1], tilts, strict=True)
    ]
    rule = Linear(BOX, [1.0], Largest(bounds), "<=", name="cap")
    answer = certify(zero, rule)
    assert (answer.status, answer.cells) == ("proven", 1)
    assert answer.rules[0].leaf_uses == pytest.approx(np.array([[0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("seed", range(5))
def test_affine_values_over_a_polytope_take_one_cell(seed):
    """The bound is that of a linear program."""
    random = np.random.default_rng(seed)
    slope, offset = random.normal(size=(2, 3)), random.normal(size=2)
    program = [
        linprog(-row, HOSE.matrix, HOSE.limit, bounds=[(-1, 1)] * 3, method="highs").fun
        for row in slope
    ]
    reached = offset - np.array(program)
    ensemble = line(slope, offset)
    rule = Linear(HOSE, np.eye(2), reached + 1e-8, "<=", name="cap")
    answer = certify(ensemble, rule)
    assert (answer.status, answer.cells) == ("proven", 2)
    verdict = check(build_certificate(ensemble, requirement=rule, certification=answer))
    assert verdict.bounds == pytest.approx(reached, abs=1e-8)
    assert "polytope of 2 rows" in str(verdict)
    broken = Linear(HOSE, np.eye(2), reached - 1e-6, "<=", name="cap")
    assert certify(ensemble, broken, cell_limit=2000).status != "proven"


def test_cells_outside_a_polytope_are_left_out():
    """y = -x0 x1-like values are above the limit only where x0 + x1 > 1."""
    region = Polytope(Box([0.0, 0.0], [1.0, 1.0]), [[1.0, 1.0]], [1.0])
    ensemble = networks(3, inputs=2, outputs=1, scale=3.0, activation="tanh")
    free = Linear(region, [1.0], 0.0, "<=", name="cap")
    reached = float(most(ensemble, free).max())
    whole = float(most(ensemble, Linear(region.box, [1.0], 0.0, "<=")).max())
    rule = Linear(region, [1.0], reached + 0.01 * abs(whole), "<=", name="cap")
    answer = certify(ensemble, rule, time_limit_s=60)
    assert answer.status == "proven"
    assert check(build_certificate(ensemble, requirement=rule, certification=answer)).leaves


def test_an_unfinished_proof_goes_on_from_its_file(tmp_path):
    ensemble = networks(1)
    bounds = [AffineBound(0.0, [0.5, 0.0, 0.0]), AffineBound(0.0, [0.0, 0.5, 0.0])]
    reached = most(ensemble, Linear(HOSE, [1.0, -1.0], Largest(bounds), "<=")).max()
    bounds = [AffineBound(reached + 0.01, one.slope) for one in bounds]
    rule = Linear(HOSE, [1.0, -1.0], Largest(bounds), "<=", name="cap")
    whole = certify(ensemble, rule, batch=8)
    first = certify(ensemble, rule, cell_limit=whole.cells // 2, batch=8)
    assert (whole.status, first.status) == ("proven", "unknown")
    save_unfinished(tmp_path, ensemble, rule, first)
    again = certify(ensemble, rule, resume=load_unfinished(tmp_path, ensemble, rule), batch=8)
    assert again.status == "proven"
