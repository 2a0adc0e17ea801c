"""Polytopes against SciPy's linear and quadratic programs, brute force and exact arithmetic."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_array

from cg4ai.anchors.affine_maps import Space
from cg4ai.anchors.search import NoAnchor, find_anchor
from cg4ai.colgen.separation import BlackBox, GradientAscent, MixedInteger
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.bounds import AffineBound, Largest
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.guards import guard_of
from cg4ai.rules.linear import Linear
from cg4ai.rules.regions import Ball, Box, Polytope, region_of
from raising import raises

HOSE = Polytope(Box(np.zeros(3), [1.0, 2.0, 1.0]), [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]], [1.5, 1.25])
PLANE = Polytope(Box(np.zeros(3), np.ones(3)), [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]], [1.0, -1.0])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_polytope(seed: int, size: int, limits: int) -> Polytope:
    rng = np.random.default_rng(seed)
    lower = rng.uniform(-2, 0, size)
    box = Box(lower, lower + rng.uniform(0.5, 3, size))
    matrix = rng.normal(size=(limits, size))
    inside = rng.uniform(box.lower, box.upper)
    return Polytope(box, matrix, matrix @ inside + rng.uniform(0.05, 0.5, limits))


def all_vertices(region: Polytope) -> NDArray[np.float64]:
    unit = np.eye(region.size)
    sides = np.concatenate([region.matrix, unit, -unit])
    ends = np.concatenate([region.limit, region.box.upper, -region.box.lower])
    found = []
    for chosen in combinations(range(len(sides)), region.size):
        part = sides[list(chosen)]
        if abs(np.linalg.det(part)) > 1e-9:
            point = np.linalg.solve(part, ends[list(chosen)])
            if (sides @ point <= ends + 1e-9).all():
                found.append(point)
    return np.unique(np.round(found, 8), axis=0)


@pytest.mark.parametrize("region", [HOSE, PLANE, random_polytope(1, 12, 9)])
def test_samples_and_vertices_are_inside_and_seeded(region: Polytope) -> None:
    for draw in (region.sample, region.extremes):
        points = draw(300, seeded())
        assert points.dtype == torch.float64
        assert region.contains(points.numpy()).all()
        assert region.near(points).all()
        assert region.near(points.float()).all()
        assert torch.equal(points, draw(300, seeded()))
    assert region.contains(region.middle[None]).all()


def test_walks_fill_a_thin_polytope_evenly() -> None:
    size = 6  # the simplex: a share of 1/720 of the cube, so that samples are walked
    simplex = Polytope(Box(np.zeros(size), np.ones(size)), np.ones((1, size)), [1.0])
    points = simplex.sample(8000, seeded()).numpy()
    assert points.mean(0) == pytest.approx(1 / (size + 1), abs=0.01)
    # the share of the simplex with sum at most t is t to the power of its dimension
    assert np.mean(points.sum(1) <= 0.8) == pytest.approx(0.8**size, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_extremes_are_vertices(seed: int) -> None:
    region = random_polytope(seed, 3, 3)
    known = all_vertices(region)
    found = region.extremes(400, seeded()).numpy()
    away = np.abs(found[:, None] - known).max(-1).min(1)
    assert away.max() < 1e-6
    assert len(np.unique(np.round(found, 6), axis=0)) >= 0.7 * len(known)


@pytest.mark.parametrize(("size", "limits", "seed"), [(2, 1, 0), (4, 6, 1), (9, 5, 2)])
def test_projection_is_that_of_a_quadratic_program(size: int, limits: int, seed: int) -> None:
    region = random_polytope(seed, size, limits)
    outside = np.random.default_rng(seed).uniform(-6, 6, (6, size))
    nearest = region.project(torch.as_tensor(outside)).numpy()
    assert region.covers(nearest).all()
    for point, ours in zip(outside, nearest, strict=True):
        best = minimize(
            lambda x, p=point: ((x - p) ** 2).sum(),
            region.middle,
            jac=lambda x, p=point: 2 * (x - p),
            bounds=list(zip(region.box.lower, region.box.upper, strict=True)),
            constraints={
                "type": "ineq",
                "fun": lambda x: region.limit - region.matrix @ x,
                "jac": lambda x: -region.matrix,
            },
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert np.linalg.norm(ours - point) <= np.sqrt(best.fun) + 1e-6
        assert ours == pytest.approx(best.x, abs=2e-4)
    inside = region.sample(50, seeded())
    assert torch.equal(region.project(inside), inside)
    assert torch.equal(region.pull(inside), inside)
    assert region.covers(region.pull(torch.as_tensor(outside)).numpy()).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_peaks_are_the_optima_of_linear_programs_and_proven_by_multipliers(seed: int) -> None:
    region = random_polytope(seed, 5, 4)
    slopes = np.random.default_rng(seed).normal(size=(6, 5))
    peaks = region.peaks(slopes)
    assert peaks.multipliers is not None
    assert (peaks.multipliers >= 0).all()
    for slope, value, point in zip(slopes, peaks.values, peaks.inputs, strict=True):
        best = linprog(
            -slope,
            A_ub=region.matrix,
            b_ub=region.limit,
            bounds=list(zip(region.box.lower, region.box.upper, strict=True)),
        )
        assert value == pytest.approx(-best.fun, abs=1e-7)
        assert slope @ point == pytest.approx(value, abs=1e-7)
    assert region.contains(peaks.inputs).all()
    # weak duality holds at every input
    points = region.sample(100, seeded()).numpy()
    assert (points @ slopes.T <= peaks.values + 1e-12).all()


def test_bounds_are_the_smallest_box() -> None:
    lower, upper = HOSE.bounds()
    assert lower == pytest.approx([0, 0, 0])
    assert upper == pytest.approx([1.0, 1.25, 1.0])
    region = random_polytope(3, 4, 5)
    lower, upper = region.bounds()
    vertices = all_vertices(region)
    assert lower == pytest.approx(vertices.min(0), abs=1e-6)
    assert upper == pytest.approx(vertices.max(0), abs=1e-6)


def test_what_proofs_speak_of_is_exact() -> None:
    region = Polytope(Box([0.0, 0.0], [1.0, 1.0]), [[0.1, 0.2]], [0.1 + 0.2])  # 0.30000000000000004
    corner = np.array([[1.0, 1.0]])
    # the coefficients 0.1 and 0.2 as stored sum to a little less than the stored limit
    assert region.covers(corner).all()
    below = Polytope(Box([0.0, 0.0], [1.0, 1.0]), [[0.1, 0.2]], [0.3])  # stored as less than that
    assert not below.covers(corner).any()
    assert below.contains(corner).all()
    assert below.near(torch.as_tensor(corner)).all()
    assert not below.near(torch.as_tensor(corner) * (1 + 1e-9)).any()


def test_an_empty_polytope_is_refused_with_the_limits_that_exclude_each_other() -> None:
    with raises(InvalidInput, "infeasible", "limits 0, 2"):
        Polytope(
            Box([0.0, 0.0], [1.0, 1.0]), [[1.0, 1.0], [1.0, 0.0], [-1.0, -1.0]], [0.5, 1.0, -0.7]
        )
    with raises(InvalidInput, "infeasible", "limits 0"):
        Polytope(Box([0.0, 0.0], [1.0, 1.0]), [[-1.0, -1.0]], [-2.1])
    with raises(InvalidInput, "infeasible", "limit 0"):
        Polytope(Box([0.0, 0.0], [1.0, 1.0]), [[0.0, 0.0]], [-1.0])
    touching = Polytope(Box([0.0, 0.0], [1.0, 1.0]), [[-1.0, -1.0]], [-2.0])
    assert touching.middle == pytest.approx([1.0, 1.0])
    assert touching.sample(3, seeded()).numpy() == pytest.approx(1.0)


def test_what_does_not_fit_is_refused() -> None:
    with raises(InvalidInput, "shape"):
        Polytope(Box(np.zeros(3), np.ones(3)), [[1.0, 2.0]], [1.0])
    with raises(InvalidInput, "type", "Box"):
        Polytope([0.0, 1.0], [[1.0]], [1.0])  # type: ignore[arg-type]
    with raises(InvalidInput, "shape"):
        Polytope(Box([0.0], [1.0]), [[1.0]], [1.0, 2.0])


def test_coordinates_without_width_and_sparse_limits() -> None:
    region = Polytope(Box([0.0, 3.0], [2.0, 3.0]), csr_array([[1.0, 1.0]]), 4.0)
    assert region.bounds()[1] == pytest.approx([1.0, 3.0])
    assert (region.sample(20, seeded())[:, 1] == 3.0).all()
    assert region.project(torch.tensor([[5.0, 0.0]])).tolist()[0] == pytest.approx([1.0, 3.0])


def test_records_are_plain_data() -> None:
    again = region_of(json.loads(json.dumps(HOSE.record())))
    assert isinstance(again, Polytope)
    assert np.array_equal(again.matrix, HOSE.matrix)
    assert torch.equal(again.sample(5, seeded()), HOSE.sample(5, seeded()))
    assert str(HOSE) == "a box with 2 limits in 3 dimensions"


def test_the_worst_of_rules_over_a_polytope() -> None:
    """Of constant and affine outputs, by linear programs; with pieces, by one for each rule."""
    rng = np.random.default_rng(0)
    region = random_polytope(7, 4, 3)
    coefficients = AffineCoefficients.fixed(rng.normal(size=(3, 2)))
    rules = AffineRules.of(coefficients, np.array([1.0, 2.0, 3.0]), "<=", input_size=4)
    slopes, offsets = rng.normal(size=(2, 4)), rng.normal(size=2)
    worst = rules.worst_affine(slopes, offsets, region)
    vertices = all_vertices(region)
    slack = rules.limit - rules.values(vertices, vertices @ slopes.T + offsets)
    assert worst.slack == pytest.approx(slack.min(0), abs=1e-6)
    assert worst.multipliers is not None
    pieces = Linear(region, [1.0], Largest([AffineBound(0.3, [1.0, 0, 0, 0]), 0.1]), "<=")
    form = pieces.normal_form
    assert form is not None
    found = form.worst(np.array([0.2]), region)
    lowest = all_vertices(region)[:, 0].min()
    assert found.slack[0] == pytest.approx(max(0.3 + lowest, 0.1) - 0.2, abs=1e-6)


# ---- regions without inside --------------------------------------------------------------------

DEGENERATE = [
    Box([0.3, 0.2], [0.3, 0.2]),
    Box([0.3, -1.0], [0.3, 1.0]),
    Polytope(Box([0.3, 0.2], [0.3, 0.2]), [[1.0, 1.0]], [0.6]),
    Polytope(Box([0.3, -1.0], [0.3, 1.0]), [[1.0, 1.0]], [0.5]),
    Polytope(Box([-1, -1], [1, 1]), [[1.0, 0], [-1, 0], [0, 1], [0, -1]], [0.3, -0.3, 0.2, -0.2]),
    Polytope(Box([-1, -1], [1, 1]), [[1.0, 1.0]], [-2.0]),
    Polytope(Box([-1, -1], [1, 1]), [[1.0, 1.0], [-1.0, -1.0]], [0.3, -0.3]),
    Polytope(Box([-1, -1], [1, 1]), [[1.0, 1.0], [-1.0, -1.0]], [0.3, -0.3 + 1e-10]),
    Polytope(Box([-1e9, -1e-9], [1e9, 1e-9]), [[1e-9, 1e9], [-1e-9, -1e9]], [0.3, -0.3]),
    Ball([0.3, 0.2], 1e-20),
]


@pytest.mark.parametrize("region", DEGENERATE)
def test_regions_without_inside_are_searched_proven_and_shielded(region):
    """The sum of the inputs, two constants as anchors, and every way to look at a region."""
    ensemble = single(affine(np.ones((1, 2, 1)), np.zeros((1, 1))))
    made = torch.Generator().manual_seed(0)
    for points in (region.sample(20, made), region.extremes(20, made), region.middle[None]):
        assert len(points)
        assert region.contains(np.asarray(points)).all()
    top = float(region.peaks(np.ones((1, 2))).values[0])
    scale = max(1.0, abs(top))
    kept = Linear(region, [1.0], top + 0.01 * scale, "<=", name="kept")
    broken = Linear(region, [1.0], top - 0.01 * scale, "<=", name="broken")
    for separator in (GradientAscent(), BlackBox(), MixedInteger()):
        if isinstance(region, Ball) and isinstance(separator, MixedInteger):
            continue
        least = 1e-9 * scale
        found = separator.find(ensemble, broken, seed=0, limit=5, tolerance=least)
        assert found.worst == pytest.approx(0.01 * scale, rel=1e-3)
        assert region.contains(found.rows.inputs).all()
        assert separator.find(ensemble, kept, seed=0, limit=5, tolerance=least).rows is None
    assert ensemble.audit(kept).holds
    assert not ensemble.audit(broken).holds
    assert certify(ensemble, kept).status == "proven"
    assert certify(ensemble, broken).status == "refuted"
    shielded = ensemble.apply_shield([top - scale], broken)
    assert shielded.audit(broken).holds
    assert certify(shielded, broken).status == "proven"
    with raises(InvalidInput, "anchor"):
        ensemble.apply_shield([top], broken)
    anchors = [guard_of(one, 1) for one in (kept, broken)]
    assert not isinstance(find_anchor(anchors, space=Space.free(1, 2)), NoAnchor)


def single(members):
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    return Ensemble((part,), Layout.single(members.output_size))


@pytest.mark.parametrize("radius", [0.0, -1.0])
def test_a_ball_needs_a_radius(radius):
    with raises(InvalidInput, "range", "radius"):
        Ball([0.0], radius)


def test_points_of_many_dimensions_are_uniform() -> None:
    size, share = 120, 0.25  # x in [0, 1]^120 whose sum is at most a quarter of that
    region = Polytope(Box([0.0] * size, [1.0] * size), np.ones((1, size)), [share * size])
    found = region.sample(4000, torch.Generator().manual_seed(1)).numpy()
    # drawn in the box by exponential tilting, kept by their weight: an independent way
    made = np.random.default_rng(0)
    tilt = 3.5935  # of which the mean of each coordinate is the share
    drawn = -np.log1p(-made.uniform(size=(200_000, size)) * -np.expm1(-tilt)) / tilt
    total = drawn.sum(axis=1)
    weight = np.exp(tilt * (total - share * size)) * (total <= share * size)
    mean, square = (np.average(part, weights=weight) for part in (total, (drawn**2).mean(axis=1)))
    assert found.sum(axis=1).mean() == pytest.approx(mean, rel=0.01)
    assert (found**2).mean() == pytest.approx(square, rel=0.03)


def test_bounds_and_inside_points_of_sums_need_no_programs_and_agree_with_them() -> None:
    made = np.random.default_rng(3)
    matrix = made.uniform(size=(4, 6)) * (made.uniform(size=(4, 6)) < 0.6) * [1, 1, -1, 1, -1, 1]
    box = Box(-made.uniform(size=6), made.uniform(0.5, 2, size=6))
    region = Polytope(box, matrix, matrix @ box.middle + 0.05)
    low, high = region.bounds()
    unit = np.eye(6)
    values = region.peaks(np.concatenate([unit, -unit])).values
    assert high == pytest.approx(values[:6], abs=1e-9)
    assert low == pytest.approx(-values[6:], abs=1e-9)
    assert region.covers(region.middle[None]).all()
    assert ((matrix @ region.middle) < region.limit).all()


def test_vertices_of_many_dimensions_are_vertices() -> None:
    size = 230
    region = Polytope(Box([0.0] * size, [1.0] * size), np.ones((1, size)), [3.5])
    found = region.extremes(5, torch.Generator().manual_seed(0)).numpy()
    assert region.contains(found).all()
    inner = (found > 1e-6) & (found < 1 - 1e-6)
    assert (inner.sum(axis=1) <= 1).all()  # as many sides are met as there are coordinates
