"""Figures of a trained classifier: accuracies, and the share of images that withstand attacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cg4ai.apps.digits.data import CLASSES
from cg4ai.apps.digits.separation import Attack, broken, checked
from cg4ai.records import Array, IntArray
from cg4ai.separation.scan import Predictor


def accuracy(scores: Array, labels: IntArray) -> float:
    """Share of images whose highest score is that of their label."""
    return float(np.mean(scores.argmax(1) == labels))


def class_accuracies(scores: Array, labels: IntArray) -> list[float]:
    """The accuracy on each class, 0 to 9."""
    return [accuracy(scores[labels == c], labels[labels == c]) for c in range(CLASSES)]


@dataclass(frozen=True, slots=True)
class Robustness:
    """`withstand`: share of images answered right as they are and after every attack.

    `change`: mean Euclidean size, over pixels, of the smallest perturbation found for each image
    that was answered right before; None if none was found.
    """

    withstand: float
    change: float | None


def robustness(
    mixture: Predictor, images: Array, labels: IntArray, attacks: Sequence[Attack], *, seed: int
) -> Robustness:
    """Attack this very mixture with every attack, on every image."""
    right = ~broken(mixture, images, labels)
    smallest = np.full(len(images), np.inf)
    for number, attack in enumerate(attacks):
        found = checked(attack, mixture, images, labels, seed + number)
        size = np.linalg.norm(found - images, axis=1)
        smallest = np.where(broken(mixture, found, labels), np.minimum(smallest, size), smallest)
    fooled = right & np.isfinite(smallest)
    change = float(smallest[fooled].mean()) if fooled.any() else None
    return Robustness(float((right & ~fooled).mean()), change)
