"""`Stable`: predictions around a row stay what they are at the row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules.box import Box
from cg4ai.rules.requirement import RequirementDefaults


@dataclass(frozen=True, eq=False)
class Stable(RequirementDefaults):
    """No input within `radius` of `row`, feature by feature, gives another class or value.

    `radius` is one number for all features, or (d,), 0 where a feature does not move. A classifier
    keeps its class; other outputs move by at most `tolerance`.

    >>> Stable([0.2, 1.5, 3.0], radius=[0.1, 0.0, 0.5], tolerance=0.05)
    """

    row: Any
    radius: Any
    tolerance: float | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        row = np.asarray(self.row, np.float64)
        radius = np.asarray(self.radius, np.float64)
        if row.ndim != 1 or not np.isfinite(row).all():
            raise InvalidInput(
                f"Stable needs one row of finite numbers, got shape {row.shape}", code="shape"
            )
        if radius.shape not in ((), row.shape) or not (radius >= 0).all() or not radius.any():
            raise InvalidInput(
                "Stable needs a radius above 0, one number or one for each feature, got "
                f"{self.radius!r:.80}",
                code="range",
            )
        if not np.isfinite(radius).all():
            raise InvalidInput("the radius of Stable must be finite", code="not-finite")
        if self.tolerance is not None and not 0 <= self.tolerance < np.inf:
            raise InvalidInput(
                f"tolerance of Stable must be at least 0, got {self.tolerance}", code="range"
            )
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "radius", np.broadcast_to(radius, row.shape).copy())
        object.__setattr__(self, "name", self.name or "Stable")

    @property
    def region(self) -> Box:
        return Box(self.row - self.radius, self.row + self.radius)

    def check(self, input_size: int) -> None:
        if len(self.row) != input_size:
            raise InvalidInput(
                f"{self.name} has a row of {len(self.row)} features, the model takes {input_size}",
                code="shape",
            )

    def find_rows(self, outputs: Array, *, classes: bool) -> tuple[Array, Array]:
        """`matrix @ y >= bound`, given what the model says at the row, (r,)."""
        unit = np.eye(len(outputs))
        if classes and self.tolerance is None:
            chosen = int(outputs.argmax())
            matrix = unit[[chosen]] - np.delete(unit, chosen, axis=0)
            return matrix, np.zeros(len(matrix))
        if self.tolerance is None:
            raise InvalidInput(
                f"{self.name} of a regressor needs a tolerance, by how much its value may move",
                code="missing-argument",
            )
        matrix = np.concatenate([unit, -unit])
        return matrix, matrix @ outputs - self.tolerance
