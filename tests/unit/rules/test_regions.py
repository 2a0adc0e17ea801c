"""Regions: validation, sampling, projection and vertices against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.errors import InvalidInput
from cg4ai.rules.regions import Ball, Box, Pool
from raising import raises

BOX = Box([0.0, -1.0, 2.0], [1.0, 1.0, 2.0])
REGIONS: list[Box | Ball] = [BOX, Ball([1.0, 2.0, 3.0], 0.5), Ball([1.0, 2.0, 3.0], 0.5, math.inf)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("region", REGIONS)
def test_samples_and_extremes_are_inside_and_seeded(region: Box | Ball) -> None:
    for draw in (region.sample, region.extremes):
        points = draw(500, seeded())
        assert points.dtype == torch.float64
        assert region.contains(points.numpy()).all()
        assert torch.equal(points, draw(500, seeded()))
    lower, upper = region.bounds()
    spread = region.sample(4000, seeded()).numpy()
    assert np.allclose(spread.mean(0), (lower + upper) / 2, atol=0.05)


def test_ball_samples_fill_the_ball_uniformly() -> None:
    distance = (Ball([0.0, 0.0], 1.0).sample(20000, seeded())).norm(dim=1)
    # the share within radius t of a disc is t squared
    for t in (0.3, 0.6, 0.9):
        assert float((distance <= t).double().mean()) == pytest.approx(t * t, abs=0.02)


def test_extremes_are_all_vertices_when_few_and_random_ones_when_many() -> None:
    vertices = {tuple(v) for v in BOX.extremes(4, seeded()).tolist()}
    assert vertices == {(a, b, 2.0) for a in (0.0, 1.0) for b in (-1.0, 1.0)}
    wide = Box(np.zeros(40), np.ones(40)).extremes(16, seeded())
    assert wide.shape == (16, 40)
    assert set(wide.unique().tolist()) == {0.0, 1.0}
    on_sphere = REGIONS[1].extremes(10, seeded()).numpy() - np.array([1.0, 2.0, 3.0])
    assert np.allclose(np.linalg.norm(on_sphere, axis=1), 0.5)


@pytest.mark.parametrize("region", REGIONS)
@settings(max_examples=25, deadline=None)
@given(point=st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_projection_is_the_nearest_point(region: Box | Ball, point: list[float]) -> None:
    outside = torch.tensor([point], dtype=torch.float64)
    nearest = region.project(outside)
    assert region.contains(nearest.numpy()).all()
    others = region.sample(300, seeded())
    assert (nearest - outside).norm() <= (others - outside).norm(dim=1).min() + 1e-9
    assert torch.allclose(region.project(nearest), nearest, atol=1e-12)


def test_contains_says_no_outside() -> None:
    assert not BOX.contains(np.array([[0.5, 0.0, 2.1]]))[0]
    assert not REGIONS[1].contains(np.array([[1.4, 2.4, 3.0]]))[0]
    assert REGIONS[2].contains(np.array([[1.4, 2.4, 3.0]]))[0]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Box([0.0, 1.0], [1.0]), "shape"),
        (lambda: Box([2.0], [1.0]), "range"),
        (lambda: Box([float("nan")], [1.0]), "not-finite"),
        (lambda: Box([], []), "shape"),
        (lambda: Box(["a"], ["b"]), "type"),
        (lambda: Ball([0.0], 0.0), "range"),
        (lambda: Ball([0.0], float("inf")), "not-finite"),
        (lambda: Ball([0.0], 1.0, 1), "unknown-name"),
        (lambda: Pool(np.empty((0, 2))), "empty"),
        (lambda: Pool([1.0, 2.0]), "shape"),
        (lambda: Pool([[1.0], [2.0, 3.0]]), "shape"),
        (lambda: Pool(np.array([[1j]])), "type"),
    ],
)
def test_wrong_regions_are_refused(make, code: str) -> None:
    with raises(InvalidInput, code):
        make()


def test_what_users_bring_becomes_float64_and_is_copied() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [True, False], "c": [0.5, 1.5]})
    assert Pool(frame).inputs.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]
    raw = pandas.DataFrame({"a": [1, None], "b": ["x", "y"]})  # for a pipeline that encodes it
    assert Pool(raw).inputs[:, 1].tolist() == ["x", "y"]
    assert Pool(raw).feature_names == ("a", "b")
    with raises(InvalidInput, "type"):
        Pool([[1, "x"], [2, "y"]])
    tensor = torch.ones(2, 3, requires_grad=True)
    assert Pool(tensor).inputs.dtype == np.float64
    mine = np.zeros((2, 2))
    pool = Pool(mine)
    mine[0, 0] = 7.0
    assert pool.inputs[0, 0] == 0.0
