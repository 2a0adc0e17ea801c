"""Attacks on digit classifiers, and `Withstand`: what they find must be answered right, cut by cut.

An attack is any callable `(mixture, images, labels, seed=...) -> perturbed images` of the same
shape, pixels in [0, 1]; an image for which it found nothing comes back as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Mixture
from cg4ai.protocols import SeparatorDefaults
from cg4ai.records import Array, IntArray, SeparationResult
from cg4ai.rules.labels import member_margins
from cg4ai.rules.regions import Box
from cg4ai.rules.requirement import Requirement, RequirementDefaults
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, compute_shortfall
from cg4ai.rules.violations import OutputModel, predictions
from experiments.digits.data import CLASSES, PIXELS
from experiments.digits.settings import Rule

CHUNK = 1024  # images attacked at once


class Attack(Protocol):
    """What the robust scenario asks of an attack; functions of this shape will do."""

    def __call__(
        self, mixture: OutputModel, images: Array, labels: IntArray, *, seed: int
    ) -> Array: ...


def answers(mixture: OutputModel, images: Array) -> IntArray:
    """The class of the highest score, (n,)."""
    return predictions(mixture, images).argmax(-1).numpy()


def broken(mixture: OutputModel, images: Array, labels: IntArray) -> NDArray[np.bool_]:
    """Which images are answered wrongly, (n,)."""
    return np.asarray(answers(mixture, images) != labels)


def checked(
    attack: Attack, mixture: OutputModel, images: Array, labels: IntArray, seed: int
) -> Array:
    """The attack's images, refused unless they are images; for user-supplied attacks too.

    An attack gets copies: one that works in place does not change what is trained on.
    """
    found = np.asarray(attack(mixture, images.copy(), labels.copy(), seed=seed), np.float64)
    if found.shape != images.shape or not np.all((found >= 0) & (found <= 1)):
        raise InvalidInput(
            f"an attack must return images {images.shape} with pixels in [0, 1], got shape "
            f"{found.shape} with values from {found.min(initial=0):.3g} to "
            f"{found.max(initial=0):.3g}"
        )
    return found


def lead(outputs: Tensor, labels: Tensor) -> Tensor:
    """How far the right class leads the best other one: (n, r), (n,) -> (n,)."""
    own = outputs.gather(-1, labels[:, None]).squeeze(-1)
    return own - outputs.scatter(-1, labels[:, None], -torch.inf).amax(-1)


@dataclass(frozen=True)
class PixelFlips:
    """Greedy saliency: flip the pixels that cost the right class most, up to `pixels` of them.

    A flip turns a pixel to 0 or 1, whichever is further. Its saliency is the change of the right
    class's lead to first order, recomputed after every `at_once` flips; an image is done as soon
    as its answer is wrong, so few flips are used where few suffice.
    """

    pixels: int = 100
    at_once: int = 5

    def __post_init__(self) -> None:
        if self.at_once < 1 or not 1 <= self.pixels <= PIXELS:
            raise InvalidInput(
                f"pixel flips need pixels from 1 to {PIXELS} and at_once of 1 or more, got pixels "
                f"{self.pixels} and at_once {self.at_once}"
            )

    def __call__(
        self, mixture: OutputModel, images: Array, labels: IntArray, *, seed: int
    ) -> Array:
        parts = [
            self._flip(mixture, images[start : start + CHUNK], labels[start : start + CHUNK])
            for start in range(0, len(images), CHUNK)
        ]
        return np.concatenate(parts) if parts else images.copy()

    def _flip(self, mixture: OutputModel, images: Array, labels: IntArray) -> Array:
        x = torch.tensor(images, dtype=torch.float64)
        y = torch.as_tensor(labels)
        flipped = torch.zeros(x.shape, dtype=torch.bool)
        left = self.pixels
        while left > 0:
            with torch.no_grad():
                going = torch.nonzero(lead(mixture.outputs(x), y) > 0).squeeze(-1)
            if not len(going):
                break
            count = min(self.at_once, left)
            here = x[going]
            target = (here < 0.5).to(here)
            change = _slopes(mixture, here, y[going]) * (target - here)
            change[flipped[going]] = torch.inf
            worst = change.topk(count, dim=-1, largest=False).indices
            x[going] = here.scatter(-1, worst, target.gather(-1, worst))
            flipped[going] = flipped[going].scatter(-1, worst, torch.ones_like(worst).bool())
            left -= count
        withstood = ~broken(mixture, x.numpy(), labels)
        return np.where(withstood[:, None], images, x.numpy())


def _slopes(mixture: OutputModel, inputs: Tensor, labels: Tensor) -> Tensor:
    """d lead / d pixel, (n, 784)."""
    point = inputs.clone().requires_grad_(True)
    with torch.enable_grad():
        (slopes,) = torch.autograd.grad(lead(mixture.outputs(point), labels).sum(), point)
    return slopes


@dataclass(frozen=True)
class SmallestChange:
    """A black-box search for the smallest perturbation that breaks the answer: scores only.

    Starts at the nearest image of another class that is answered otherwise, goes back towards the
    image by bisection, then tries `rounds` times to restore random pixels. What is larger than
    `within` (Euclidean norm over pixels) does not count: halfway to another digit a wrong answer
    is no mistake.
    """

    within: float = 2.0
    rounds: int = 60
    bisections: int = 12

    def __post_init__(self) -> None:
        if not self.within > 0 or self.rounds < 0 or self.bisections < 1:
            raise InvalidInput(
                "a search for the smallest change needs within > 0, rounds >= 0 and bisections "
                f">= 1, got {self}"
            )

    def __call__(
        self, mixture: OutputModel, images: Array, labels: IntArray, *, seed: int
    ) -> Array:
        made = np.random.default_rng(seed)
        wrong = broken(mixture, images, labels)
        start, known = self._starts(mixture, images, labels)
        found = self._towards(mixture, images, start, labels)
        for _ in range(self.rounds):
            restored = made.random(images.shape) < made.uniform(0.02, 0.3, (len(images), 1))
            trial = np.where(restored, images, found)
            better = broken(mixture, trial, labels)
            found = np.where(better[:, None], trial, found)
        found = self._towards(mixture, images, found, labels)
        near = np.linalg.norm(found - images, axis=1) <= self.within
        return np.where((known & near & ~wrong)[:, None], found, images)

    def _starts(
        self, mixture: OutputModel, images: Array, labels: IntArray
    ) -> tuple[Array, NDArray[np.bool_]]:
        """For each image the nearest other one answered otherwise, and whether there is one."""
        answered = answers(mixture, images)
        square = (images**2).sum(1)
        start, known = images.copy(), np.zeros(len(images), bool)
        for first in range(0, len(images), CHUNK):
            part = slice(first, first + CHUNK)
            distance = square[part, None] + square - 2 * images[part] @ images.T
            distance[answered[None, :] == labels[part, None]] = np.inf
            nearest = distance.argmin(axis=1)
            known[part] = np.isfinite(distance[np.arange(len(nearest)), nearest])
            start[part] = np.where(known[part][:, None], images[nearest], images[part])
        return start, known

    def _towards(
        self, mixture: OutputModel, images: Array, found: Array, labels: IntArray
    ) -> Array:
        """The wrongly answered point nearest to the image on the way from `found`."""
        low, high = np.zeros(len(images)), np.ones(len(images))
        for _ in range(self.bisections):
            middle = (low + high) / 2
            trial = images + middle[:, None] * (found - images)
            wrong = broken(mixture, trial, labels)
            low, high = np.where(wrong, low, middle), np.where(wrong, middle, high)
        return np.clip(images + high[:, None] * (found - images), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Withstand(RequirementDefaults):
    """Images (n, 784) with labels (n,): what `attacks` find must be answered right as well.

    A row is a perturbed image with the label of the image it was made from, `which` being that
    image's number; it demands a lead or a probability of `at_least`, by `rule`.
    """

    images: Array
    labels: IntArray
    attacks: Sequence[Attack]
    rule: Rule
    at_least: float
    name: str = "withstand attacks"
    heard: list[Rows] | None = None  # everything that separation finds is also put here

    slack = "row"
    input_size = PIXELS

    @property
    def region(self) -> Box:
        return Box(np.zeros(PIXELS), np.ones(PIXELS))

    @property
    def separator(self) -> Attacking:
        return Attacking()

    def check(self, input_size: int, output_size: int) -> None:
        if (input_size, output_size) != (PIXELS, CLASSES):
            raise InvalidInput(
                f"{self.name} is about {PIXELS} pixels and {CLASSES} classes, the predictor has "
                f"{input_size} and {output_size}"
            )

    def rows(self, number: int) -> None:
        """None: perturbed images cannot be listed before an attack has found them."""

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        count = len(which)
        bounds = np.full(count, self.at_least)
        origin = np.stack([np.full(count, -1, np.int64), which.astype(np.int64)], axis=1)
        if self.rule == "margin":
            return ConcaveRows(number, inputs, self._margins, bounds, which, origin, jensen=True)
        own = np.zeros((count, CLASSES))
        own[np.arange(count), self.labels[which]] = 1.0
        return LinearRows(number, inputs, own, bounds, np.arange(count), None, origin)

    def _margins(self, outputs: Tensor, positions: IntArray) -> Tensor:
        return member_margins(outputs, self.labels[positions])

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        raise InvalidInput(
            f"{self.name} has a label for each image, not for all of a region: it is searched by "
            "its own attacks only"
        )

    def describe(self, rows: Rows, j: int) -> str:
        image = int(rows.origin[j, 1]) if rows.origin is not None else -1
        return (
            f"{self.name}: a perturbed copy of image {image}, class {self.labels[image]}, "
            f"{self.rule} >= {rows.bounds[j]:.6g}"
        )


@dataclass(frozen=True)
class Attacking(SeparatorDefaults):
    """The separator of `Withstand`: every attack on every image, kept where the answer is wrong."""

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        if not isinstance(requirement, Withstand):
            raise InvalidInput(f"Attacking is for Withstand, got {type(requirement).__name__}")
        inputs, which = attacked(ensemble, requirement, seed=seed)
        effort = {"search": "attacks", "images": len(requirement.images), "found": len(which)}
        if not len(which):
            return SeparationResult(None, np.empty(0), -requirement.at_least, effort)
        rows = requirement.rows_at(inputs, which, -1)
        with torch.no_grad():
            violations = compute_shortfall(
                rows.bounds, rows.values(predictions(ensemble, inputs)).numpy()
            )
        order = np.argsort(-violations, kind="stable")[:limit]
        kept = rows.take(order)
        if requirement.heard is not None:
            requirement.heard.append(kept)
        return SeparationResult(kept, violations[order], float(violations.max()), effort)


def attacked(mixture: OutputModel, requirement: Withstand, *, seed: int) -> tuple[Array, IntArray]:
    """Perturbed images that are answered wrongly, and the numbers of the images they come from."""
    inputs, which = [np.empty((0, PIXELS))], [np.empty(0, np.int64)]
    for number, attack in enumerate(requirement.attacks):
        found = checked(attack, mixture, requirement.images, requirement.labels, seed + number)
        wrong = np.flatnonzero(broken(mixture, found, requirement.labels))
        inputs.append(found[wrong])
        which.append(wrong)
    return np.concatenate(inputs), np.concatenate(which)
