"""`Quadratic`: convex quadratic functions of the outputs stay below a bound, and their normal form.

Rule l reads `sum_k (factor[l, :, k] . y)^2 + linear[l] . y <= limit[l]`: a matrix that is given as
a factor times its transpose is positive semidefinite whatever its numbers are.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AIM, Worst
from cg4ai.rules.place import Placed, where
from cg4ai.rules.regions import Region
from cg4ai.rules.rows import ConcaveRows, Rows, region_origin

ARRAYS = ("factor", "linear", "limit")
ROUNDING = 1e-10  # eigenvalues down to minus this share of the largest count as zero
ZERO = 1e-14  # and so do those up to this share of it


def quadratic_values(factor: Tensor, linear: Tensor, outputs: Tensor) -> Tensor:
    """(m, r, K), (m, r) and outputs (..., m, r) -> (..., m): rule j at the outputs of row j."""
    along = torch.einsum("...mr,mrk->...mk", outputs, factor)
    return along.square().sum(-1) + (outputs * linear).sum(-1)


@dataclass(frozen=True, eq=False)
class QuadraticRules:
    """All rules in normal form: `factor` (L, r, K), `linear` (L, r), `limit` (L,)."""

    factor: Array
    linear: Array
    limit: Array
    input_size: int
    _tensors: dict[tuple[torch.dtype, torch.device], dict[str, Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for name in ARRAYS:
            array = arrays.numbers(getattr(self, name), f"{name} of quadratic rules")
            object.__setattr__(self, name, array)
        shapes = self.factor.shape, self.linear.shape, self.limit.shape
        if self.factor.ndim != 3 or shapes[1:] != (shapes[0][:2], shapes[0][:1]):
            raise InvalidInput(
                "quadratic rules need a factor (L, r, K), linear (L, r) and limit (L,), got "
                f"{shapes[0]}, {shapes[1]} and {shapes[2]}"
            )

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def reads(self) -> NDArray[np.bool_]:
        """(L, r): which outputs each rule reads."""
        return np.asarray((self.factor != 0).any(-1) | (self.linear != 0))

    @property
    def output_size(self) -> int:
        return int(self.linear.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rules as named arrays, for `restored`."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def restored(cls, stored: Mapping[str, NDArray[Any]], *, input_size: int) -> QuadraticRules:
        """What `arrays` gave; KeyError or InvalidInput if it is damaged."""
        return cls(**{name: stored[name] for name in ARRAYS}, input_size=input_size)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the arrays, not of where the rules hold."""
        total = hashlib.sha256(b"quadratic")
        for name, array in self.arrays.items():
            total.update(f"{name} {array.shape}".encode())
            total.update(array.tobytes())
        return total.hexdigest()

    def values(self, outputs: Array) -> Array:
        """(n, r) -> (n, L): to be compared with `limit`."""
        along = np.einsum("nr,lrk->nlk", outputs, self.factor)
        return np.asarray((along**2).sum(-1) + outputs @ self.linear.T)

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L), `limit - value`: at least 0 where a rule is kept."""
        return self._left(outputs, self._along(outputs))

    def scale(self, like: Tensor) -> Tensor:
        """(L,) max(1, |limit|) of each rule, on the device of `like`."""
        return self._on(like)["limit"].abs().clamp_min(1.0)

    def shares(self, inputs: Tensor, outputs: Tensor, anchor: Tensor) -> Tensor:
        """(..., n, L): the smallest t with `outputs + t (anchor - outputs)` in each rule.

        Along the segment the excess is `A t^2 - (A + c + e) t + c`, less the aim: A >= 0 is the
        squared part of the difference, c > 0 what the outputs lack and e >= 0 what the anchor has
        to spare. The discriminant is a sum of squares and products of these, so the smaller root
        is in [0, 1] and exact to rounding; it is c / (c + e) where A = 0. Where the anchor breaks
        a rule as well it is 1.
        """
        along, there = self._along(outputs), self._along(anchor)
        own, other = self._left(outputs, along), self._left(anchor, there)
        aim = torch.minimum(other.clamp_min(0.0), AIM * self.scale(outputs))
        broken = ~(own >= 0)  # not a number keeps no rule
        # what is masked must not divide by 0, or its gradient would be no number
        lack = torch.where(broken, aim - own, 1.0)
        spare = torch.where(broken, (other - aim).clamp_min(0.0), 1.0)
        curve = torch.where(broken, self._squares(there - along), 0.0)
        total = lack + spare + curve
        square = (curve - lack).square() + spare * (spare + 2 * (curve + lack))
        # a double root has no gradient: what is far below rounding is as good as none
        least = (torch.finfo(total.dtype).eps * total.detach()).square()
        share = 2 * lack / (total + torch.maximum(square, least).sqrt())
        return torch.where(broken, torch.where(other < 0, 1.0, share), 0.0)

    def _along(self, outputs: Tensor) -> Tensor:
        """(..., n, r) -> (..., n, L K): what is squared."""
        return outputs @ self._on(outputs)["factor"]

    def _squares(self, along: Tensor) -> Tensor:
        """(..., n, L K) -> (..., n, L)."""
        return along.square().reshape(*along.shape[:-1], len(self), -1).sum(-1)

    def _left(self, outputs: Tensor, along: Tensor) -> Tensor:
        own = self._on(outputs)
        return own["limit"] - self._squares(along) - outputs @ own["linear"]

    def _on(self, like: Tensor) -> dict[str, Tensor]:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = self._made(*key)
        return self._tensors[key]

    def _made(self, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        factor = np.moveaxis(self.factor, 1, 0).reshape(self.output_size, -1)
        made = {"factor": factor, "linear": self.linear.T, "limit": self.limit}
        return {
            name: torch.tensor(array, dtype=dtype, device=device) for name, array in made.items()
        }

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What `slack` multiplies by in float64, for `with_tensors`."""
        return self._made(torch.float64, device)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> QuadraticRules:
        """The same rules, whose `slack` multiplies by tensors such as `tensors` gave."""
        made = copy.copy(self)
        limit = tensors["limit"]
        object.__setattr__(made, "_tensors", {(limit.dtype, limit.device): dict(tensors)})
        return made

    def rows(self, inputs: Array, which: IntArray, number: int) -> ConcaveRows:
        """Rows of the master, `-value >= -limit`: rule `which[j]` at `inputs[j]`."""
        return ConcaveRows(
            number, inputs, self.minus_value, -self.limit[which], which, region_origin(which)
        )

    def minus_value(self, outputs: Tensor, which: IntArray) -> Tensor:
        """Concave: (..., m, r) -> (..., m), minus the value of rule `which[j]` in row j."""

        def on(array: Array) -> Tensor:
            return torch.as_tensor(array[which], dtype=outputs.dtype, device=outputs.device)

        return -quadratic_values(on(self.factor), on(self.linear), outputs)

    def worst(self, outputs: Array, region: Region) -> Worst:
        """For constant outputs (r,): the slack of each rule, the same at every input."""
        return self.worst_affine(np.zeros((self.output_size, region.size)), outputs, region)

    def closed_form(self, slopes: Array) -> NDArray[np.bool_]:
        """(L,): for which rules `worst_affine` is exact: their squares do not move with x."""
        moving = np.einsum("lrk,rd->lkd", self.factor, slopes) != 0
        return np.asarray(~moving.any(axis=(1, 2)))

    def worst_affine(self, slopes: Array, offsets: Array, region: Region) -> Worst:
        """For outputs `slopes @ x + offsets`: slack that each rule has at every input, and a point.

        A form t that runs from l to u has t^2 <= (l + u) t - l u, so a rule is at most affine in
        x: the slack of that is a proof, less than the true least slack where forms move with x.
        The point is where the bound is reached, the true slack there may be larger.
        """
        count, width = len(self), self.factor.shape[2]
        forms = np.einsum("lrk,rd->lkd", self.factor, slopes).reshape(-1, region.size)
        start = np.einsum("lrk,r->lk", self.factor, offsets).reshape(-1)
        upper = start + region.peaks(forms).values
        lower = start - region.peaks(-forms).values
        both = (lower + upper)[:, None]
        tilt = (both * forms).reshape(count, width, -1).sum(axis=1) + self.linear @ slopes
        fixed = (both[:, 0] * start - lower * upper).reshape(count, width).sum(axis=1)
        peaks = region.peaks(tilt)
        return Worst(self.limit - fixed - self.linear @ offsets - peaks.values, peaks.inputs)


@dataclass(frozen=True, eq=False)
class Quadratic(Placed):
    """`y' square y + linear . y <= bound` for outputs y, at every listed input or over a region.

    `square` (r, r) with eigenvalues >= 0 and `linear` (r,), 0 if left out; with `bound` one number
    or, for lists, (m,). Several rules at once: (L, r, r) and (L, r), with `bound` one number, (L,),
    or for lists also (m, 1) or (m, L).
    """

    square: Any
    bound: Any
    linear: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        square = arrays.numbers(self.square, "square")
        if square.ndim not in (2, 3) or square.shape[-1] != square.shape[-2] or not square.size:
            raise InvalidInput(f"square must be (r, r) or (L, r, r), got shape {square.shape}")
        several = square.ndim == 3
        factor = np.stack([self._factor(one) for one in square.reshape(-1, *square.shape[-2:])])
        used = np.flatnonzero(factor.any(axis=(0, 1)))
        factor = factor[:, :, used if len(used) else [0]]  # as many columns as the largest rank
        linear = self._vectors(square.shape[:-1])
        object.__setattr__(self, "square", square)
        object.__setattr__(self, "bound", self._bounds(len(factor), several))
        object.__setattr__(self, "output_size", square.shape[-1])
        limit = self.bound if self.over_region else self.bound.min(axis=0)
        rules = QuadraticRules(factor, linear, limit, self.input_size)
        object.__setattr__(self, "_rules", rules)
        self._refuse_impossible(rules)

    def _factor(self, square: Array) -> Array:
        """(r, r): F with F F' = (square + square') / 2."""
        values, vectors = np.linalg.eigh((square + square.T) / 2)
        largest = float(np.abs(values).max())
        if values[0] < -ROUNDING * largest:
            shown = ", ".join(f"{number:.4g}" for number in vectors[:6, 0])
            more = ", ..." if len(values) > 6 else ""
            raise InvalidInput(
                f"{self.name} is not convex: its square has the eigenvalue {values[0]:.6g}, along "
                f"y = [{shown}{more}]; only y' Q y with eigenvalues >= 0 keep the guarantee for a "
                "mixture"
            )
        values[values < ZERO * largest] = 0.0
        return np.asarray(vectors * np.sqrt(values))

    def _vectors(self, shape: tuple[int, ...]) -> Array:
        if self.linear is None:
            object.__setattr__(self, "linear", np.zeros(shape))
        given = arrays.numbers(self.linear, "linear")
        if given.shape not in (shape, shape[-1:]):
            raise InvalidInput(
                f"linear must have shape {shape[-1:]} or {shape}, as square says, got {given.shape}"
            )
        object.__setattr__(self, "linear", np.broadcast_to(given, shape))
        return np.array(self.linear.reshape(-1, shape[-1]))

    def _bounds(self, rules: int, several: bool) -> Array:
        """Over a region (L,), for lists (m, L)."""
        if self.over_region:
            return arrays.vector(self.bound, "bound", rules)
        count = len(self.points)
        if not several and np.ndim(self.bound) < 2:
            return arrays.vector(self.bound, "bound", count)[:, None]
        return arrays.per_rule(self.bound, "bound", inputs=count, rules=rules)

    def _refuse_impossible(self, rules: QuadraticRules) -> None:
        """A rule whose least value over all outputs is above its bound."""
        for rule in range(len(rules)):
            factor, linear = rules.factor[rule], rules.linear[rule]
            best = -0.5 * np.linalg.pinv(factor @ factor.T, rcond=1e-12) @ linear
            if np.abs(2 * factor @ (factor.T @ best) + linear).max() > 1e-9 * (
                1 + np.abs(linear).max()
            ):
                continue  # it falls without end
            least = float(rules.values(best[None])[0, rule])
            if least > rules.limit[rule] + 1e-9 * max(1.0, abs(rules.limit[rule])):
                raise InvalidInput(
                    f"no outputs keep rule {rule} of {self.name}: its least value is {least:.6g}, "
                    f"its bound {rules.limit[rule]:.6g}"
                )

    @property
    def rules(self) -> QuadraticRules:
        """The normal form; for lists with the least bound of each rule."""
        made: QuadraticRules = self._rules  # type: ignore[attr-defined]
        return made

    @property
    def normal_form(self) -> QuadraticRules | None:
        return self.rules if self.over_region else None

    def check(self, input_size: int, output_size: int) -> None:
        self.fit(input_size, output_size)

    def rows(self, number: int) -> ConcaveRows | None:
        if self.over_region:
            return None
        count, rules = self.bound.shape
        index, which = np.repeat(np.arange(count), rules), np.tile(np.arange(rules), count)
        return ConcaveRows(
            number,
            self.points[index],
            self.rules.minus_value,
            -self.bound.reshape(-1),
            which,
            np.stack([index, which], axis=1),
        )

    def describe(self, rows: Rows, j: int) -> str:
        rule = 0 if rows.origin is None else int(rows.origin[j, 1])
        which = f", rule {rule}" if len(self.rules) > 1 else ""
        return f"{self.name}: {where(rows, j)}{which}, quadratic <= {-rows.bounds[j]:.6g}"
