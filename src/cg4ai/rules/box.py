"""`Box`, the simplest region, and what all regions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.records import Array

HAIR = 1e-12  # inputs that rounding puts this far outside, relative to the region, are near it


@dataclass(frozen=True)
class Peaks:
    """The largest values (L,) of affine functions over a region, and inputs (L, d) that have them.

    Over a polytope `multipliers` (L, k) >= 0 of its limits prove the values: that of `c . x` is
    `u . limit` plus the maximum of `(c - u . matrix) . x` over the box, whatever u >= 0 is.
    """

    values: Array
    inputs: Array
    multipliers: Array | None = None


class BoundedRegion:
    """Whether inputs lie in a box or ball but for rounding; the ends are worked out once."""

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

    def project(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def approach(self, inputs: Tensor) -> Tensor:
        """About the nearest input inside, (n, d) -> (n, d): enough for a search."""
        return self.project(inputs)

    def pull(self, inputs: Tensor) -> Tensor:
        """(m, d) -> (m, d): quickly inside, where inputs that are inside stay as they are."""
        return self.project(inputs)

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
            if not is_traced():
                self._end_tensors[key] = ends
        lower, upper = ends
        return ((inputs >= lower) & (inputs <= upper)).all(-1)

    def is_near(self, x: Array) -> bool:
        """`near` for one input (d,)."""
        return bool(self.near(torch.from_numpy(x[None]))[0])


def pick_corners(lower: Array, upper: Array, count: int, generator: torch.Generator) -> Tensor:
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


def find_end_categories(ends: Any) -> tuple[Any, ...] | None:
    """The categories that stand for the ends of a column; None where they are numbers."""
    if isinstance(ends, str):
        return (ends,)
    if not isinstance(ends, set | frozenset):
        return None
    if not ends:
        raise InvalidInput("a Box needs one category or more, got an empty set", code="empty")
    return tuple(sorted(ends, key=str))


@dataclass(frozen=True, eq=False)
class Box(BoundedRegion):
    """All inputs with `lower <= x <= upper` in every coordinate; both (d,), equal ends allowed.

    >>> Box({"income": (0, 1e5)})

    names columns, for the estimators: the other features have the range of the training data.
    Before a pipeline that encodes them, columns of categories are named with one of theirs, or
    with a set of them: `Box({"income": (0, 1e5), "city": "Oslo"})`, `{"city": {"Oslo", "Bern"}}`.
    """

    lower: Any
    upper: Any = None

    def __post_init__(self) -> None:
        if self.by_name:
            self._check_names()
            return
        lower = arrays.as_vector(self.lower, "the lower end of a Box")
        upper = arrays.as_vector(self.upper, "the upper end of a Box")
        if lower.shape != upper.shape:
            raise InvalidInput(
                "the ends of a Box must have the same length, got "
                f"lower {lower.shape} and upper {upper.shape}",
                code="shape",
            )
        if (lower > upper).any():
            i = int(np.flatnonzero(lower > upper)[0])
            raise InvalidInput(
                f"a Box needs lower <= upper, got [{lower[i]}, {upper[i]}] in coordinate {i}; "
                "swap the two ends",
                code="range",
            )
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def by_name(self) -> bool:
        """Whether it is stated by names of features, which `resolve_names` turns into positions."""
        return isinstance(self.lower, Mapping)

    def _check_names(self) -> None:
        if self.upper is not None or not self.lower:
            raise InvalidInput(
                "a Box is given by lower and upper ends, or by {feature: (lower, upper)} alone",
                code="conflict",
            )
        for name, ends in self.lower.items():
            if find_end_categories(ends) is not None:
                continue
            if np.shape(ends) != (2,) or not ends[0] <= ends[1]:
                raise InvalidInput(
                    f"a Box needs two ends, lower <= upper, for feature {name!r}, got {ends!r}",
                    code="range",
                )

    def resolve_names(
        self, features: Sequence[str], ends: tuple[Array, Array], rule: str = "a Box"
    ) -> Box:
        """The box by positions, with the `ends` (d,) of features that it leaves out."""
        lower, upper = np.array(ends[0], np.float64), np.array(ends[1], np.float64)
        for name, ends_of in self.lower.items():
            known = list(features)
            if find_end_categories(ends_of) is not None:
                raise InvalidInput(
                    f"{rule} names categories of {name!r}, which a step before encodes: put that "
                    "step into a pipeline, and use cg4ai.data.fit_with_requirements",
                    code="unsupported",
                )
            low, high = ends_of
            if isinstance(name, str) and name not in known:
                shown = ", ".join(known[:10]) or "none, so give positions"
                raise InvalidInput(
                    f"{rule} names the feature {name!r}{did_you_mean(name, known)}; there are: "
                    f"{shown}",
                    code="unknown-name",
                )
            place = known.index(name) if isinstance(name, str) else name
            if not 0 <= place < len(lower):
                raise InvalidInput(
                    f"{rule} names feature {name!r}; there are {len(lower)}, from 0", code="range"
                )
            lower[place], upper[place] = low, high
        return Box(lower, upper)

    def _need_positions(self) -> None:
        if self.by_name:
            raise InvalidInput(
                f"a Box over {', '.join(map(str, self.lower))} names features, which estimators "
                "know; elsewhere give lower and upper ends of all features",
                code="unsupported",
            )

    @property
    def size(self) -> int:
        self._need_positions()
        return len(self.lower)

    def bounds(self) -> tuple[Array, Array]:
        self._need_positions()
        return self.lower, self.upper

    @property
    def middle(self) -> Array:
        """An input (d,) well inside."""
        return np.asarray((self.lower + self.upper) / 2)

    def peaks(self, slopes: Array) -> Peaks:
        """Where `slopes` (L, d) times the input are largest: corners."""
        inputs = np.where(slopes > 0, self.upper, self.lower)
        return Peaks((slopes * inputs).sum(axis=1), inputs)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` uniform inputs, (count, d) float64 on CPU."""
        share = torch.rand(count, self.size, generator=generator, dtype=torch.float64)
        return torch.as_tensor(self.lower) + share * torch.as_tensor(self.upper - self.lower)

    def extremes(self, count: int, generator: torch.Generator) -> Tensor:
        """Vertices: all of them if they are at most `count`, else `count` random ones."""
        return pick_corners(self.lower, self.upper, count, generator)

    def project(self, inputs: Tensor) -> Tensor:
        """The nearest input inside, (..., d) -> (..., d)."""
        lower = torch.as_tensor(self.lower, dtype=inputs.dtype, device=inputs.device)
        upper = torch.as_tensor(self.upper, dtype=inputs.dtype, device=inputs.device)
        return torch.minimum(torch.maximum(inputs, lower), upper)

    def contains(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,), ends included."""
        inside = (inputs >= self.lower) & (inputs <= self.upper)
        return np.asarray(inside.all(axis=-1))

    def is_near(self, x: Array) -> bool:
        """`near` for one input (d,), by NumPy."""
        lower, upper = self._ends
        return int(np.count_nonzero((x >= lower) & (x <= upper))) == len(lower)

    def covers(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,): what a proof over the region speaks of."""
        return self.contains(inputs)

    def record(self) -> dict[str, Any]:
        """As JSON, for `region_of`."""
        return {"kind": "box", "lower": self.lower.tolist(), "upper": self.upper.tolist()}

    def __str__(self) -> str:
        if self.by_name:
            return f"a box over {', '.join(map(str, self.lower))}"
        return f"a box in {self.size} dimensions"
