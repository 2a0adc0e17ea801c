"""Attacks on classifiers simple enough that the best attack is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.rules.labels import member_margins
from experiments.digits.app import alone
from experiments.digits.data import digits
from experiments.digits.evaluate import robustness
from experiments.digits.separation import PixelFlips, SmallestChange, Withstand, broken, checked
from raising import raises


def two_classes(seed: int, bias: float) -> tuple[Ensemble, np.ndarray]:
    """Class 1 leads class 0 by `w . x + bias`; all other classes are far behind."""
    w = np.random.default_rng(seed).normal(size=784)
    weight, offset = np.zeros((1, 10, 784)), np.full((1, 10), -1e6)
    weight[0, 1], offset[0, :2] = w, [0.0, bias]
    architecture = NetworkArchitecture(784, 10, hidden=())
    return alone(
        architecture.members(
            {"weight_0": torch.as_tensor(weight), "bias_0": torch.as_tensor(offset)}
        )
    ), w


@pytest.fixture
def images() -> np.ndarray:
    return digits().images[::500]


def test_flips_are_the_fewest_for_a_linear_classifier(images: np.ndarray) -> None:
    mixture, w = two_classes(0, bias=60.0)
    labels = np.ones(len(images), np.int64)
    assert not broken(mixture, images, labels).any()
    found = PixelFlips(100, at_once=1)(mixture, images, labels, seed=0)
    for image, perturbed in zip(images, found, strict=True):
        gain = np.sort(w * ((image < 0.5) - image))
        needed = int(np.argmax(np.cumsum(gain) + w @ image + 60.0 <= 0)) + 1
        changed = perturbed != image
        assert changed.sum() == needed
        assert set(np.unique(perturbed[changed])) <= {0.0, 1.0}
    assert broken(mixture, found, labels).all()


def test_images_that_withstand_come_back_unchanged(images: np.ndarray) -> None:
    mixture, _ = two_classes(0, bias=1e4)
    labels = np.ones(len(images), np.int64)
    np.testing.assert_array_equal(PixelFlips(20)(mixture, images, labels, seed=0), images)
    np.testing.assert_array_equal(SmallestChange()(mixture, images, labels, seed=0), images)
    stands = robustness(mixture, images, labels, [PixelFlips(20)], seed=0)
    assert stands.withstand == 1.0
    assert stands.change is None


def test_smallest_change_breaks_and_is_no_smaller_than_possible(images: np.ndarray) -> None:
    w = two_classes(3, bias=0.0)[1]
    middle = float(np.median(images @ w))
    mixture, _ = two_classes(3, bias=-middle)
    lead = images @ w - middle
    labels = (lead > 0).astype(np.int64)
    found = SmallestChange(within=100.0)(mixture, images, labels, seed=1)
    size = np.linalg.norm(found - images, axis=1)
    assert broken(mixture, found, labels).all()
    assert np.all(size >= np.abs(lead) / np.linalg.norm(w) - 1e-9)  # the distance to the boundary
    whole = SmallestChange(within=100.0, rounds=0)(mixture, images, labels, seed=1)
    assert np.all(size <= np.linalg.norm(whole - images, axis=1) + 1e-9)
    near = SmallestChange(within=float(np.median(size)))(mixture, images, labels, seed=1)
    assert 0 < (near != images).any(axis=1).sum() < len(images)
    result = robustness(mixture, images, labels, [SmallestChange(within=100.0)], seed=1)
    assert result.withstand == 0.0
    assert result.change == pytest.approx(size.mean())


@pytest.mark.parametrize("rule", ["margin", "probability"])
def test_what_an_attack_finds_becomes_rows_with_the_right_labels(
    rule: str, images: np.ndarray
) -> None:
    mixture, _ = two_classes(0, bias=60.0)
    labels = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1, 1])  # image 2 is answered wrongly as it is
    requirement = Withstand(images, labels, [PixelFlips(60)], rule, 0.3)  # type: ignore[arg-type]
    found = requirement.separator.find(mixture, requirement, seed=0, limit=100, tolerance=1e-7)
    assert found.rows is not None
    assert found.rows.origin is not None
    which = found.rows.origin[:, 1]
    assert set(which) == set(range(10))
    outputs = torch.as_tensor(np.random.default_rng(0).normal(size=(len(which), 10)))
    expected = (
        member_margins(outputs, labels[which])
        if rule == "margin"
        else outputs[torch.as_tensor(found.rows.index), torch.as_tensor(labels[which])]
    )
    torch.testing.assert_close(found.rows.values(outputs), expected)
    np.testing.assert_array_equal(found.rows.bounds, 0.3)
    assert np.all(np.diff(found.violations) <= 0)
    assert "image 2, class 0" in requirement.describe(found.rows, int(np.argmax(which == 2)))
    few = requirement.separator.find(mixture, requirement, seed=0, limit=3, tolerance=1e-7)
    assert few.rows is not None
    assert len(few.rows) == 3


def test_attacks_of_others_are_checked(images: np.ndarray) -> None:
    mixture, _ = two_classes(0, bias=60.0)
    labels = np.ones(len(images), np.int64)

    def inverted(mixture: object, images: np.ndarray, labels: object, *, seed: int) -> np.ndarray:
        return 1.0 - images

    np.testing.assert_array_equal(checked(inverted, mixture, images, labels, 0), 1.0 - images)
    with raises(InvalidInput, "invalid-input", "pixels"):
        checked(lambda m, x, y, seed: x + 1, mixture, images, labels, 0)


def test_attacks_in_place_change_nothing_else(images: np.ndarray) -> None:
    mixture, _ = two_classes(0, bias=60.0)
    labels = np.ones(len(images), np.int64)
    before = images.copy()

    def spoiling(
        mixture: object, images: np.ndarray, labels: np.ndarray, *, seed: int
    ) -> np.ndarray:
        np.subtract(1.0, images, out=images)
        labels[:] = 0
        return images

    np.testing.assert_array_equal(checked(spoiling, mixture, images, labels, 0), 1.0 - before)
    np.testing.assert_array_equal(images, before)
    assert (labels == 1).all()


def test_fewer_flips_than_are_made_at_once(images: np.ndarray) -> None:
    mixture, w = two_classes(0, bias=0.0)
    labels = (images @ w > 0).astype(np.int64)
    found = PixelFlips(2)(mixture, images, labels, seed=0)
    assert (found != images).sum(axis=1).max() <= 2


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"pixels": 0}, {"pixels": 785}, {"at_once": 0}):
        with raises(InvalidInput, "invalid-input", "pixels"):
            PixelFlips(**wrong)
    with raises(InvalidInput, "invalid-input", "within"):
        SmallestChange(within=0)
    requirement = Withstand(np.zeros((1, 784)), np.zeros(1, np.int64), [], "margin", 0.1)
    with raises(InvalidInput, "invalid-input", "pixels"):
        requirement.check(5, 10)
