"""`Quadratic`: convex quadratic functions of the outputs stay below a bound, and their normal form.

Rule l reads `y' square[l] y + linear[l] . y <= limit[l]`. It is computed as a sum of squares
(`rules.squares`), which is convex whatever its numbers are and never below the rule as given.
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

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import WorstSlack
from cg4ai.rules.normal_form import NormalFormDefaults
from cg4ai.rules.regions import Region
from cg4ai.rules.requirement import InputRule, describe_input
from cg4ai.rules.rows import ConcaveRows, Rows, region_origin
from cg4ai.rules.squares import EPSILON, decompose_squares

ARRAYS = ("square", "linear", "limit")
LEAST_ABOVE = 1e-9  # relative: by which a rule's least value exceeds a bound that none can keep


def quadratic_values(factor: Tensor, rest: Tensor, linear: Tensor, *, outputs: Tensor) -> Tensor:
    """(m, r, k), (m, r) twice and outputs (..., m, r) -> (..., m): rule j at those of row j."""
    along = torch.einsum("...mr,mrk->...mk", outputs, factor)
    return along.square().sum(-1) + (outputs * (outputs * rest + linear)).sum(-1)


@dataclass(frozen=True, eq=False)
class QuadraticRules(NormalFormDefaults):
    """All rules in normal form: `square` (L, r, r) as given, `linear` (L, r), `limit` (L,).

    `y' square y` is at most `|factor' y|^2 + rest . y^2`, factor (L, r, k) and rest (L, r): the two
    are equal but for rounding, and `slack` and all that follows from it are of the second.
    """

    square: Array
    linear: Array
    limit: Array
    input_size: int
    name: str = "a quadratic rule"
    factor: Array = field(init=False, repr=False)
    rest: Array = field(init=False, repr=False)
    _tensors: dict[tuple[torch.dtype, torch.device], dict[str, Tensor]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for name in ARRAYS:
            array = arrays.as_numbers(getattr(self, name), f"{name} of quadratic rules")
            object.__setattr__(self, name, array)
        shapes = self.square.shape, self.linear.shape, self.limit.shape
        if (
            len(shapes[1]) != 2
            or shapes[0] != (*shapes[1], shapes[1][1])
            or (shapes[2] != shapes[1][:1])
        ):
            raise InvalidInput(
                "quadratic rules need a square (L, r, r), linear (L, r) and limit (L,), got "
                f"{shapes[0]}, {shapes[1]} and {shapes[2]}",
                code="shape",
            )
        found = [decompose_squares(one, self.name) for one in self.square]
        widest = max((one.factor.shape[1] for one in found), default=0)
        factor = np.zeros((*self.linear.shape, widest))
        for own, one in zip(factor, found, strict=True):
            own[:, : one.factor.shape[1]] = one.factor
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "rest", np.array([one.rest for one in found]))

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def reads(self) -> NDArray[np.bool_]:
        """(L, r): which outputs each rule reads."""
        both = (self.square != 0).any(1) | (self.square != 0).any(2)
        return np.asarray(both | (self.linear != 0))

    @property
    def output_size(self) -> int:
        return int(self.linear.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rules as named arrays, for `from_arrays`."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_arrays(cls, stored: Mapping[str, NDArray[Any]], *, input_size: int) -> QuadraticRules:
        """What `arrays` gave; KeyError or InvalidInput if it is damaged."""
        return cls(stored["square"], stored["linear"], stored["limit"], input_size)

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
        return np.asarray((along**2).sum(-1) + outputs**2 @ self.rest.T + outputs @ self.linear.T)

    def bound_sizes(self, ends: Array) -> Array:
        """(L,) the size of each bound."""
        return np.abs(self.limit)

    def sizes(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): the sum of the sizes of a rule's terms, by which it rounds."""
        size = np.abs(outputs)
        squares = np.einsum("nr,lrs,ns->nl", size, np.abs(self.square), size)
        return np.asarray(squares + size @ np.abs(self.linear).T + np.abs(self.limit))

    def term_sizes(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L): squares count twice, as they change by twice."""
        own, size = self._on(outputs), outputs.abs()
        squares = self._squares(size, size @ own["factor"].abs())
        return own["limit"].abs() + 2 * squares + size @ own["linear"].abs()

    @property
    def free_of_inputs(self) -> bool:
        return True

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L), `limit - value`: at least 0 where a rule is kept."""
        return self._left(outputs, self._along(outputs))

    def shares(
        self, inputs: Tensor, outputs: Tensor, anchor: Tensor, *, aim: Tensor | float = 0.0
    ) -> Tensor:
        """(..., n, L): the smallest t with `outputs + t (anchor - outputs)` in each rule.

        `aim` (L,) inside it, as far as the anchor is.

        Along the segment the excess is `A t^2 - (A + c + e) t + c`, less the aim: A >= 0 is the
        squared part of the difference, c > 0 what the outputs lack and e >= 0 what the anchor has
        to spare. The discriminant is a sum of squares and products of these, so the smaller root
        is in [0, 1] and exact to rounding; it is c / (c + e) where A = 0. Where the anchor breaks
        a rule as well it is 1.
        """
        along, there = self._along(outputs), self._along(anchor)
        own, other = self._left(outputs, along), self._left(anchor, there)
        reach = other.clamp_min(0.0)
        aim = torch.minimum(reach, torch.as_tensor(aim).to(reach))
        broken = ~(own >= 0)  # not a number keeps no rule
        # what is masked must not divide by 0, or its gradient would be no number
        lack = torch.where(broken, aim - own, 1.0)
        spare = torch.where(broken, (other - aim).clamp_min(0.0), 1.0)
        curve = torch.where(broken, self._squares(anchor - outputs, there - along), 0.0)
        total = lack + spare + curve
        square = (curve - lack).square() + spare * (spare + 2 * (curve + lack))
        # a double root has no gradient: what is far below rounding is as good as none
        least = (torch.finfo(total.dtype).eps * total.detach()).square()
        # of outputs so far away that this overflows nothing is left: the anchor whole
        finite = torch.isfinite(square) & torch.isfinite(least)
        square, least = torch.where(finite, square, 1.0), torch.where(finite, least, 1.0)
        share = 2 * lack / (total + torch.maximum(square, least).sqrt())
        return torch.where(broken, torch.where((other < 0) | ~finite, 1.0, share), 0.0)

    def _along(self, outputs: Tensor) -> Tensor:
        """(..., n, r) -> (..., n, L K): what is squared."""
        return outputs @ self._on(outputs)["factor"]

    def _squares(self, outputs: Tensor, along: Tensor) -> Tensor:
        """(..., n, r), (..., n, L k) -> (..., n, L)."""
        # -1 for the last would not do: there may be no rows
        shape = (*along.shape[:-1], len(self), along.shape[-1] // len(self))
        summed = along.square().reshape(shape).sum(-1)
        return summed + outputs.square() @ self._on(outputs)["rest"]

    def _left(self, outputs: Tensor, along: Tensor) -> Tensor:
        own = self._on(outputs)
        return own["limit"] - self._squares(outputs, along) - outputs @ own["linear"]

    def _on(self, like: Tensor) -> dict[str, Tensor]:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = self._made(*key)
        return self._tensors[key]

    def _made(self, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        factor = np.moveaxis(self.factor, 1, 0).reshape(self.output_size, -1)
        made = {
            "factor": factor,
            "rest": self.rest.T,
            "linear": self.linear.T,
            "limit": self.limit,
        }
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

        return -quadratic_values(on(self.factor), on(self.rest), on(self.linear), outputs=outputs)

    def worst(self, outputs: Array, region: Region) -> WorstSlack:
        """For constant outputs (r,): the slack of each rule, the same at every input."""
        return self.worst_affine(np.zeros((self.output_size, region.size)), outputs, region)

    def closed_form(self, slopes: Array) -> NDArray[np.bool_]:
        """(L,): for which rules `worst_affine` is exact: their squares do not move with x."""
        moving = np.einsum("lrk,rd->lkd", self.factor, slopes) != 0
        return np.asarray(~moving.any(axis=(1, 2)))

    def worst_affine(self, slopes: Array, offsets: Array, region: Region) -> WorstSlack:
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
        tilt = (both * forms).reshape(count, width, region.size).sum(axis=1) + self.linear @ slopes
        fixed = (both[:, 0] * start - lower * upper).reshape(count, width).sum(axis=1)
        ends = np.abs(np.stack(region.bounds())).max(axis=0)
        fixed = fixed + self.rest @ (np.abs(offsets) + np.abs(slopes) @ ends) ** 2
        peaks = region.peaks(tilt)
        return WorstSlack(self.limit - fixed - self.linear @ offsets - peaks.values, peaks.inputs)


def square_of_factor(factor: Any) -> Array:
    """What versions before 0.8 stored a factor of, with which they left out small terms."""
    given = arrays.as_numbers(factor, "factor of quadratic rules")
    if given.ndim != 3 or (given.any(axis=1).sum(axis=1) < given.shape[1]).any():
        raise InvalidInput(
            "quadratic rules stored before 0.8 hold a factor in place of the square as given, and "
            "this one has fewer columns than there are outputs, so small terms may have been left "
            "out: state the rule again and train, or shield, anew",
            code="version",
        )
    return np.asarray(given @ given.transpose(0, 2, 1))


@dataclass(frozen=True, eq=False)
class Quadratic(InputRule):
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
        if self.inputs is None:
            return
        square = arrays.as_numbers(self.square, "square")
        if square.ndim not in (2, 3) or square.shape[-1] != square.shape[-2] or not square.size:
            raise InvalidInput(
                f"square must be (r, r) or (L, r, r), got shape {square.shape}", code="shape"
            )
        several = square.ndim == 3
        squares = square.reshape(-1, *square.shape[-2:])
        linear = self._vectors(square.shape[:-1])
        object.__setattr__(self, "square", square)
        object.__setattr__(self, "bound", self._bounds(len(squares), several))
        object.__setattr__(self, "output_size", square.shape[-1])
        limit = self.bound if self.over_region else self.bound.min(axis=0)
        rules = QuadraticRules(squares, linear, limit, self.input_size, self.name)
        object.__setattr__(self, "_rules", rules)
        self._refuse_impossible(rules)

    @property
    def stated_width(self) -> int | None:
        if self.output_size is None and np.ndim(self.square):
            return int(np.shape(self.square)[-1])
        return self.output_size

    def _vectors(self, shape: tuple[int, ...]) -> Array:
        if self.linear is None:
            object.__setattr__(self, "linear", np.zeros(shape))
        given = arrays.as_numbers(self.linear, "linear")
        if given.shape not in (shape, shape[-1:]):
            raise InvalidInput(
                f"linear must have shape {shape[-1:]} or {shape}, as square says, got "
                f"{given.shape}",
                code="shape",
            )
        object.__setattr__(self, "linear", np.broadcast_to(given, shape))
        return np.array(self.linear.reshape(-1, shape[-1]))

    def _bounds(self, rules: int, several: bool) -> Array:
        """Over a region (L,), for lists (m, L)."""
        if self.over_region:
            return arrays.as_vector(self.bound, "bound", rules)
        count = len(self.points)
        if not several and np.ndim(self.bound) < 2:
            return arrays.as_vector(self.bound, "bound", count)[:, None]
        return arrays.as_rule_matrix(self.bound, "bound", inputs=count, rules=rules)

    def _refuse_impossible(self, rules: QuadraticRules) -> None:
        """A rule whose least value over all outputs is above its bound."""
        for rule in range(len(rules)):
            least = _least_value(rules.square[rule], rules.linear[rule])
            limit = float(rules.limit[rule])
            if least > limit + LEAST_ABOVE * (abs(least) + abs(limit)):
                raise InvalidInput(
                    f"no outputs keep rule {rule} of {self.name}: its least value is {least:.6g}, "
                    f"its bound {limit:.6g}",
                    code="infeasible",
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
        return f"{self.name}: {describe_input(rows, j)}{which}, quadratic <= {-rows.bounds[j]:.6g}"


def _least_value(square: Array, linear: Array) -> float:
    """The least of `y' square y + linear . y`, minus infinity where it falls without end.

    In units in which the diagonal is 1. Where a direction has no more curvature than rounding may
    have made, it counts as having none, so that the value is never too high.
    """
    unit = np.sqrt(np.diag(square))
    if linear[unit == 0].any():
        return -np.inf
    used = unit > 0
    half = (square + square.T)[np.ix_(used, used)] / 2 / np.outer(unit[used], unit[used])
    values, vectors = np.linalg.eigh(half)
    along = vectors.T @ (linear[used] / unit[used])
    noise = 4 * EPSILON * len(values)
    slip = len(values) * noise  # more than the rounding of an eigenvalue
    flat = values <= 2 * slip
    if (np.abs(along[flat]) > noise * np.abs(along).max(initial=0.0)).any():
        return -np.inf
    return 0.0 - float((along[~flat] ** 2 / (4 * (values[~flat] - slip))).sum())
