"""`Withstand`: listed images whose answers must survive an attack, cut by cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.apps.digits.data import CLASSES, PIXELS
from cg4ai.apps.digits.separation import Attack, checked
from cg4ai.apps.digits.settings import Rule
from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Mixture
from cg4ai.records import Array, IntArray, SeparationResult
from cg4ai.rules.labels import member_margins
from cg4ai.rules.place import Requirement
from cg4ai.rules.regions import Box
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, shortfall
from cg4ai.separation.scan import Predictor, predictions


@dataclass(frozen=True, eq=False)
class Withstand:
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
            return ConcaveRows(number, inputs, self._margins, bounds, which, origin)
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
class Attacking:
    """The separator of `Withstand`: every attack on every image, kept where the answer is wrong."""

    def thorough(self) -> Attacking:
        return self

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
            violations = shortfall(rows.bounds, rows.values(predictions(ensemble, inputs)).numpy())
        order = np.argsort(-violations, kind="stable")[:limit]
        kept = rows.take(order)
        if requirement.heard is not None:
            requirement.heard.append(kept)
        return SeparationResult(kept, violations[order], float(violations.max()), effort)


def attacked(mixture: Predictor, requirement: Withstand, *, seed: int) -> tuple[Array, IntArray]:
    """Perturbed images that are answered wrongly, and the numbers of the images they come from."""
    inputs, which = [np.empty((0, PIXELS))], [np.empty(0, np.int64)]
    for number, attack in enumerate(requirement.attacks):
        found = checked(attack, mixture, requirement.images, requirement.labels, seed + number)
        answered = predictions(mixture, found).argmax(-1).numpy()
        wrong = np.flatnonzero(answered != requirement.labels)
        inputs.append(found[wrong])
        which.append(wrong)
    return np.concatenate(inputs), np.concatenate(which)
