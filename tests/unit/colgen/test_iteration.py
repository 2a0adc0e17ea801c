"""Smoothed duals: earlier prices, new rows, an even share, and a state that is one array."""

from __future__ import annotations

import numpy as np

from cg4ai.colgen.iteration import Stabiliser

BOTH = np.array([True, True])


def test_without_smoothing_the_duals_are_left_alone() -> None:
    duals = np.array([1.0, 2.0])
    assert Stabiliser(0.0, 0.0).smooth(duals, BOTH) is duals


def test_earlier_duals_and_an_even_share() -> None:
    stabiliser = Stabiliser(0.75, 0.5)
    np.testing.assert_allclose(stabiliser.smooth(np.array([4.0, 0.0]), BOTH), [3.0, 1.0])
    # 0.75 (4, 0) + 0.25 (0, 8) = (3, 2), half of it spread evenly
    np.testing.assert_allclose(stabiliser.smooth(np.array([0.0, 8.0]), BOTH), [2.75, 2.25])


def test_new_rows_had_no_price_before() -> None:
    stabiliser = Stabiliser(0.5, 0.0)
    stabiliser.smooth(np.array([2.0]), BOTH[:1])
    np.testing.assert_allclose(stabiliser.smooth(np.array([4.0, 6.0]), BOTH), [3.0, 3.0])


def test_only_rows_of_requirements_share() -> None:
    found = Stabiliser(0.5, 0.5).smooth(np.array([4.0, 0.0, 8.0]), np.array([True, True, False]))
    np.testing.assert_allclose(found, [3.0, 1.0, 8.0])


def test_a_copy_with_the_same_guide_goes_on_alike() -> None:
    one, other = Stabiliser(0.5, 0.1), Stabiliser(0.5, 0.1)
    one.smooth(np.array([2.0, 1.0]), BOTH)
    other.guide = one.guide.copy()
    following = np.array([0.0, 3.0])
    np.testing.assert_array_equal(one.smooth(following, BOTH), other.smooth(following, BOTH))
