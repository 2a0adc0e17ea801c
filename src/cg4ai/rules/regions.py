"""Where a requirement holds when it is not a plain list: a box, a ball, or a large finite pool.

Separators draw starting points from a region, walk in it by projection, and report what they find.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array

HAIR = 1e-12  # inputs that rounding puts this far outside, relative to the region, are near it


class _Near:
    """Whether inputs lie in a region but for rounding; the ends are worked out once."""

    def bounds(self) -> tuple[Array, Array]:
        raise NotImplementedError

    @cached_property
    def _hair(self) -> Array:
        lower, upper = self.bounds()
        return HAIR * (upper - lower + np.maximum(np.abs(lower), np.abs(upper)))

    @cached_property
    def _ends(self) -> tuple[Array, Array]:
        lower, upper = self.bounds()
        return lower - self._hair, upper + self._hair

    @cached_property
    def _end_tensors(self) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]]:
        return {}

    def near(self, inputs: Tensor) -> Tensor:
        """(m, d) -> (m,): inside, or so close that only rounding put it outside.

        Ends are kept as tensors: making them would be a copy at every step of training.
        """
        key = (inputs.dtype, inputs.device)
        ends = self._end_tensors.get(key)
        if ends is None:
            # inputs of less precision were rounded by more
            looser = max(1.0, torch.finfo(inputs.dtype).eps / HAIR) - 1.0
            lower, upper = (
                torch.as_tensor(end + sign * looser * self._hair, device=inputs.device)
                for end, sign in zip(self._ends, (-1, 1), strict=True)
            )
            ends = (lower.to(inputs.dtype), upper.to(inputs.dtype))
            if not torch.compiler.is_compiling():
                self._end_tensors[key] = ends
        lower, upper = ends
        return ((inputs >= lower) & (inputs <= upper)).all(-1)


def _corners(lower: Array, upper: Array, count: int, generator: torch.Generator) -> Tensor:
    """All distinct vertices of a box if they are at most `count`, else `count` random ones."""
    free = np.flatnonzero(upper > lower)
    points = torch.as_tensor(lower).repeat(count, 1)
    if 2 ** len(free) <= count:
        numbers = np.arange(2 ** len(free))[:, None]
        chosen = torch.as_tensor(numbers >> np.arange(len(free)) & 1).bool()
        points = points[: len(chosen)]
    else:
        chosen = torch.randint(2, (count, len(free)), generator=generator).bool()
    ends = torch.as_tensor(upper)[free].expand(len(points), -1)
    points[:, free] = torch.where(chosen, ends, points[:, free])
    return points


@dataclass(frozen=True, eq=False)
class Box(_Near):
    """All inputs with `lower <= x <= upper` in every coordinate; both (d,), equal ends allowed."""

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        lower = arrays.vector(self.lower, "the lower end of a Box")
        upper = arrays.vector(self.upper, "the upper end of a Box")
        if lower.shape != upper.shape:
            raise InvalidInput(
                "the ends of a Box must have the same length, got "
                f"lower {lower.shape} and upper {upper.shape}"
            )
        if (lower > upper).any():
            i = int(np.flatnonzero(lower > upper)[0])
            raise InvalidInput(
                f"a Box needs lower <= upper, got [{lower[i]}, {upper[i]}] in coordinate {i}; "
                "swap the two ends"
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def size(self) -> int:
        return len(self.lower)

    def bounds(self) -> tuple[Array, Array]:
        return self.lower, self.upper

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` uniform inputs, (count, d) float64 on CPU."""
        share = torch.rand(count, self.size, generator=generator, dtype=torch.float64)
        return torch.as_tensor(self.lower) + share * torch.as_tensor(self.upper - self.lower)

    def extremes(self, count: int, generator: torch.Generator) -> Tensor:
        """Vertices: all of them if they are at most `count`, else `count` random ones."""
        return _corners(self.lower, self.upper, count, generator)

    def project(self, inputs: Tensor) -> Tensor:
        """The nearest input inside, (..., d) -> (..., d)."""
        lower = torch.as_tensor(self.lower, dtype=inputs.dtype, device=inputs.device)
        upper = torch.as_tensor(self.upper, dtype=inputs.dtype, device=inputs.device)
        return torch.minimum(torch.maximum(inputs, lower), upper)

    def contains(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,), ends included."""
        inside = (inputs >= self.lower) & (inputs <= self.upper)
        return np.asarray(inside.all(axis=-1))

    def covers(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,): what a proof over the region speaks of."""
        return self.contains(inputs)

    def record(self) -> dict[str, Any]:
        """As JSON, for `region_of`."""
        return {"kind": "box", "lower": self.lower.tolist(), "upper": self.upper.tolist()}

    def __str__(self) -> str:
        return f"a box in {self.size} dimensions"


@dataclass(frozen=True, eq=False)
class Ball(_Near):
    """All inputs within `radius` of `centre` (d,) in the Euclidean (2) or maximum (inf) norm."""

    centre: Any
    radius: float
    norm: float = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", arrays.vector(self.centre, "the centre of a Ball"))
        radius = arrays.numbers(self.radius, "the radius of a Ball")
        if radius.ndim != 0 or radius <= 0:
            raise InvalidInput(f"the radius of a Ball must be one number > 0, got {self.radius!r}")
        object.__setattr__(self, "radius", float(radius))
        if self.norm not in (2, math.inf):
            raise InvalidInput(f"the norm of a Ball must be 2 or inf (math.inf), got {self.norm!r}")

    @property
    def size(self) -> int:
        return len(self.centre)

    def bounds(self) -> tuple[Array, Array]:
        """The smallest box around the ball."""
        return self.centre - self.radius, self.centre + self.radius

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
            return _corners(*self.bounds(), count, generator)
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
        offset = inputs - torch.as_tensor(self.centre, device=inputs.device)
        distance: Tensor = torch.linalg.vector_norm(offset, dim=-1)
        return inside & (distance <= self.radius + float(self._hair.max()))

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", arrays.matrix(self.inputs, "the inputs of a Pool"))


Region = Box | Ball


def region_of(record: Mapping[str, Any]) -> Region:
    """The region that `record()` described; KeyError or InvalidInput if it is damaged."""
    if record["kind"] == "box":
        return Box(record["lower"], record["upper"])
    if record["kind"] == "ball" and record["norm"] in (2, "max"):
        norm = math.inf if record["norm"] == "max" else 2
        return Ball(record["centre"], record["radius"], norm)
    raise InvalidInput(
        f"a region is a box, or a ball of norm 2 or max, got {record['kind']!r} and "
        f"{record.get('norm')!r}"
    )
