"""Where a requirement holds when it is not a plain list: box, ball, polytope, or a large pool.

Separators draw starting points from a region, walk in it by projection, and report what they find.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules.box import HAIR, BoundedRegion, Box, Peaks, pick_corners
from cg4ai.rules.polytope import Polytope

__all__ = ["HAIR", "Ball", "Box", "Peaks", "Polytope", "Pool", "Region", "region_of"]


@dataclass(frozen=True, eq=False)
class Ball(BoundedRegion):
    """All inputs within `radius` of `centre` (d,) in the Euclidean (2) or maximum (inf) norm."""

    centre: Any
    radius: float
    norm: float = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", arrays.as_vector(self.centre, "the centre of a Ball"))
        radius = arrays.as_numbers(self.radius, "the radius of a Ball")
        if radius.ndim != 0 or radius <= 0:
            raise InvalidInput(
                f"the radius of a Ball must be one number > 0, got {self.radius!r}", code="range"
            )
        object.__setattr__(self, "radius", float(radius))
        if self.norm not in (2, math.inf):
            raise InvalidInput(
                f"the norm of a Ball must be 2 or inf (math.inf), got {self.norm!r}",
                code="unknown-name",
            )

    @property
    def size(self) -> int:
        return len(self.centre)

    def bounds(self) -> tuple[Array, Array]:
        """The smallest box around the ball."""
        return self.centre - self.radius, self.centre + self.radius

    @property
    def middle(self) -> Array:
        """An input (d,) well inside."""
        return np.asarray(self.centre)

    def peaks(self, slopes: Array) -> Peaks:
        """Where `slopes` (L, d) times the input are largest: along them, or at corners."""
        if self.norm == math.inf:
            return Box(*self.bounds()).peaks(slopes)
        length = np.linalg.norm(slopes, axis=1, keepdims=True)
        inputs = self.centre + self.radius * slopes / np.maximum(length, 1e-300)
        return Peaks((slopes * inputs).sum(axis=1), inputs)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` uniform inputs, (count, d) float64 on CPU."""
        centre: Tensor = torch.as_tensor(self.centre)
        if self.norm == math.inf:
            share = torch.rand(count, self.size, generator=generator, dtype=torch.float64)
            return centre + self.radius * (2 * share - 1)
        share = torch.rand(count, 1, generator=generator, dtype=torch.float64)
        return centre + share ** (1 / self.size) * (self._sphere(count, generator) - centre)

    def extremes(self, count: int, generator: torch.Generator) -> Tensor:
        """Points where linear functions peak: the sphere, or the vertices in the maximum norm."""
        if self.norm == math.inf:
            return pick_corners(*self.bounds(), count, generator)
        return self._sphere(count, generator)

    def _sphere(self, count: int, generator: torch.Generator) -> Tensor:
        way = torch.randn(count, self.size, generator=generator, dtype=torch.float64)
        length: Tensor = torch.linalg.vector_norm(way, dim=-1, keepdim=True)
        return torch.as_tensor(self.centre) + self.radius * way / length.clamp_min(1e-300)

    def project(self, inputs: Tensor) -> Tensor:
        """The nearest input inside, (..., d) -> (..., d)."""
        centre = torch.as_tensor(self.centre, dtype=inputs.dtype, device=inputs.device)
        offset = inputs - centre
        if self.norm == math.inf:
            return centre + offset.clamp(-self.radius, self.radius)
        length: Tensor = torch.linalg.vector_norm(offset, dim=-1, keepdim=True)
        shrink = (self.radius / length.clamp_min(1e-300)).clamp_max(1.0)
        return centre + offset * shrink

    def contains(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,); points that rounding puts a hair outside still count as inside."""
        distance = np.linalg.norm(inputs - self.centre, ord=self.norm, axis=-1)
        scale = self.radius + float(np.abs(self.centre).max())
        return np.asarray(distance <= self.radius + 1e-12 * scale)

    def covers(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,): what a proof over the region speaks of, nothing a hair outside.

        Proofs are over `bounds()` and, in the Euclidean norm, a radius enlarged by 1e-11 of the
        ball's size: far more than the rounding of the distance here.
        """
        inside = Box(*self.bounds()).contains(inputs)
        if self.norm == 2:
            inside[inside] = np.linalg.norm(inputs[inside] - self.centre, axis=1) <= self.radius
        return inside

    def near(self, inputs: Tensor) -> Tensor:
        inside = super().near(inputs)
        if self.norm == math.inf:
            return inside
        offset = inputs - torch.as_tensor(self.centre).to(inputs.dtype).to(inputs.device)
        distance: Tensor = torch.linalg.vector_norm(offset, dim=-1)
        # inputs of less precision were rounded by more
        looser = max(1.0, torch.finfo(inputs.dtype).eps / HAIR)
        return inside & (distance <= self.radius + looser * float(self._hair.max()))

    def record(self) -> dict[str, Any]:
        """As JSON, for `region_of`."""
        norm = "max" if self.norm == math.inf else 2
        centre = self.centre.tolist()
        return {"kind": "ball", "centre": centre, "radius": self.radius, "norm": norm}

    def __str__(self) -> str:
        name = "maximum" if self.norm == math.inf else "Euclidean"
        return f"a ball of radius {self.radius:g} ({name} norm) in {self.size} dimensions"


@dataclass(frozen=True, eq=False)
class Pool:
    """A finite list (m, d) too long to put into the master whole: rows enter when violated."""

    inputs: Any
    feature_names: tuple[str, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "feature_names", column_names(self.inputs))
        object.__setattr__(self, "inputs", arrays.as_table(self.inputs, "the inputs of a Pool"))


def column_names(inputs: Any) -> tuple[str, ...] | None:
    """Of a DataFrame; None of other inputs."""
    columns = getattr(inputs, "columns", None)
    return None if columns is None else tuple(map(str, columns))


Region = Box | Ball | Polytope  # where inputs cannot be listed; what isinstance asks for

BOX = {"kind", "lower", "upper"}
RECORDED = {  # what `record()` says of each
    "box": BOX,
    "ball": {"kind", "centre", "radius", "norm"},
    "polytope": BOX | {"matrix", "limit"},
}


def region_of(record: Mapping[str, Any]) -> Region:
    """The region that `record()` described; KeyError or InvalidInput if it is damaged."""
    known = RECORDED.get(str(record["kind"]))
    if known is not None and not set(record) <= known:  # as of a box with the limits of a polytope
        raise InvalidInput(
            f"a {record['kind']} is described by {sorted(known)}, got {[*record]}", code="bad-file"
        )
    if record["kind"] == "box":
        return Box(record["lower"], record["upper"])
    if record["kind"] == "ball" and record["norm"] in (2, "max"):
        norm = math.inf if record["norm"] == "max" else 2
        return Ball(record["centre"], record["radius"], norm)
    if record["kind"] == "polytope":
        return Polytope(Box(record["lower"], record["upper"]), record["matrix"], record["limit"])
    raise InvalidInput(
        f"a region is a box, a polytope, or a ball of norm 2 or max, got {record['kind']!r} and "
        f"{record.get('norm')!r}",
        code="bad-file",
    )
