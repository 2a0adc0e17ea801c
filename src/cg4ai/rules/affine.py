"""The normal form of rules over a region: rows, search, shield, claims and proofs all read it.

Rule l reads `sum_k (constant[l, k] + slope[l, k] . x) y_k(x) <= limit[l]` with y the outputs of
the predictor; rules with ">=" are negated, "==" gives the ">=" sides and then the "<=" sides.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.objectives import LinearFunctional
from cg4ai.records import Array, IntArray
from cg4ai.rules.regions import Ball, Box, Region
from cg4ai.rules.rows import LinearRows, region_origin

if TYPE_CHECKING:
    from cg4ai.rules.place import Requirement

# what the normal form consists of, in the order in which it is digested
ARRAYS = {
    "constant": np.float64,
    "limit": np.float64,
    "rule": np.int64,
    "output": np.int64,
    "input": np.int64,
    "value": np.float64,
}


@dataclass(frozen=True, eq=False)
class AffineCoefficients:
    """Coefficients of outputs that are affine in the input, as a functional states them.

    `constant` (L, r); the slopes are sparse: d coefficient[rule, output] / d x[input] = value.
    """

    constant: Array
    rule: IntArray
    output: IntArray
    input: IntArray
    value: Array

    @classmethod
    def fixed(cls, matrix: Array) -> AffineCoefficients:
        """The same (L, r) at every input."""
        none = np.empty(0, np.int64)
        return cls(matrix, none, none, none, np.empty(0))


class AffineFunctional(LinearFunctional, Protocol):
    """A functional whose coefficients are affine in the input: certificates need this."""

    def affine(self) -> AffineCoefficients: ...


@dataclass(frozen=True)
class _Products:
    """The slopes as one matrix: every pair (input, output) that occurs is a product x_i y_q.

    `inputs`, `outputs` (p,) are the pairs, `matrix` (p, L) the slopes of all rules along them.
    """

    inputs: IntArray
    outputs: IntArray
    matrix: Array


@dataclass(frozen=True)
class _Tensors:
    """What `slack` multiplies by; None where nothing is to be added, or looked up."""

    limit: Tensor
    scale: Tensor
    fixed: Tensor | None
    inputs: Tensor
    outputs: Tensor | None
    slopes: Tensor | None


@dataclass(frozen=True, eq=False)
class AffineRules:
    """All rules of a requirement in normal form, in the order of its rule numbers.

    `constant` (L, r) and `limit` (L,); `rule`, `output`, `input`, `value` (k,) are the slopes,
    each (rule, output, input) at most once: summing repeats would depend on their order.
    """

    constant: Array
    limit: Array
    rule: IntArray
    output: IntArray
    input: IntArray
    value: Array
    input_size: int
    _tensors: dict[tuple[torch.dtype, torch.device], _Tensors] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for name, kind in ARRAYS.items():
            given = np.asarray(getattr(self, name))
            array = np.ascontiguousarray(given, kind)
            if not np.array_equal(array, given) or not np.isfinite(array).all():
                raise InvalidInput(f"{name} of affine rules must be finite and {kind.__name__}")
            object.__setattr__(self, name, array)
        if self.constant.ndim != 2 or self.limit.shape != self.constant.shape[:1]:
            raise InvalidInput(
                f"affine rules need constant (L, r) and limit (L,), got {self.constant.shape} "
                f"and {self.limit.shape}"
            )
        self._check_slopes()

    def _check_slopes(self) -> None:
        place = np.stack([np.ravel(self.rule), np.ravel(self.output), np.ravel(self.input)])
        sizes = np.array([len(self), self.output_size, self.input_size])[:, None]
        if not self.rule.shape == self.output.shape == self.input.shape == self.value.shape:
            raise InvalidInput("rule, output, input and value of affine rules must be as long")
        if (place < 0).any() or (place >= sizes).any():
            raise InvalidInput(
                f"slopes of affine rules must lie within {len(self)} rules, {self.output_size} "
                f"outputs and {self.input_size} inputs, counted from 0"
            )
        places, times = np.unique(place, axis=1, return_counts=True)
        if (times > 1).any():
            rule, output, entry = places[:, times > 1][:, 0]
            raise InvalidInput(
                f"the slope of rule {rule}, output {output} along input {entry} is given "
                f"{times.max()} times; give the sum once"
            )

    @classmethod
    def of(
        cls, coefficients: AffineCoefficients, bound: Array, sense: str, *, input_size: int
    ) -> AffineRules:
        """`coefficients . y sense bound`, brought to "<="."""
        a = coefficients
        parts = [(-1.0, 0)] if sense == ">=" else [(1.0, 0)]
        if sense == "==":
            parts = [(-1.0, 0), (1.0, len(bound))]
        return cls(
            np.concatenate([sign * a.constant for sign, _ in parts]),
            np.concatenate([sign * bound for sign, _ in parts]),
            np.concatenate([a.rule + first for _, first in parts]),
            np.tile(a.output, len(parts)),
            np.tile(a.input, len(parts)),
            np.concatenate([sign * a.value for sign, _ in parts]),
            input_size,
        )

    def __len__(self) -> int:
        return len(self.limit)

    @property
    def output_size(self) -> int:
        return int(self.constant.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rules as named arrays, for `restored`."""
        return {name: getattr(self, name) for name in ARRAYS}

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]], *, input_size: int) -> AffineRules:
        """What `arrays` gave; KeyError or InvalidInput if it is damaged."""
        return cls(**{name: arrays[name] for name in ARRAYS}, input_size=input_size)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of coefficients and limits, not of where the rules hold."""
        total = hashlib.sha256()
        for name, array in self.arrays.items():
            total.update(f"{name} {array.shape}".encode())
            total.update(array.tobytes())
        return total.hexdigest()

    @cached_property
    def _products(self) -> _Products:
        pairs, place = np.unique(np.stack([self.input, self.output]), axis=1, return_inverse=True)
        matrix = np.zeros((pairs.shape[1], len(self)))
        matrix[place.reshape(-1), self.rule] = self.value
        return _Products(pairs[0], pairs[1], matrix)

    def slopes(self, rule: int) -> Array:
        """(r, d), dense, of one rule."""
        own = self.rule == rule
        dense = np.zeros((self.output_size, self.input_size))
        dense[self.output[own], self.input[own]] = self.value[own]
        return dense

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """(m, r): the coefficients of rule `which[j]` at `inputs[j]`."""
        p = self._products
        result = self.constant[which]
        if len(p.matrix):
            np.add.at(result.T, p.outputs, (inputs[:, p.inputs] * p.matrix.T[which]).T)
        return result

    def values(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n, L): to be compared with `limit`."""
        p = self._products
        products = inputs[:, p.inputs] * outputs[:, p.outputs]
        return np.asarray(outputs @ self.constant.T + products @ p.matrix)

    def slack(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L), `limit - value`: at least 0 where a rule is kept."""
        own = self._on(outputs)
        shape = (*outputs.shape[:-1], len(self))
        result = own.limit
        if own.fixed is not None:
            result = torch.addmm(result, outputs.reshape(-1, self.output_size), own.fixed)
        if own.slopes is not None:
            chosen = outputs if own.outputs is None else outputs.index_select(-1, own.outputs)
            products = inputs.index_select(-1, own.inputs) * chosen
            result = torch.addmm(result, products.reshape(-1, len(own.slopes)), own.slopes)
        return result.expand(shape) if result is own.limit else result.reshape(shape)

    def scale(self, like: Tensor) -> Tensor:
        """(L,) max(1, |limit|) of each rule, on the device of `like`."""
        return self._on(like).scale

    def _on(self, like: Tensor) -> _Tensors:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = self._made(*key)
        return self._tensors[key]

    def _made(self, dtype: torch.dtype, device: torch.device) -> _Tensors:
        p = self._products
        limit = torch.as_tensor(self.limit, dtype=dtype, device=device)
        in_order = np.array_equal(p.outputs, np.arange(self.output_size))  # then no copy is needed
        fixed, slopes = -self.constant.T, -p.matrix
        return _Tensors(
            limit,
            limit.abs().clamp_min(1.0),
            torch.as_tensor(fixed, dtype=dtype, device=device) if fixed.any() else None,
            torch.as_tensor(p.inputs, device=device),
            None if in_order else torch.as_tensor(p.outputs, device=device),
            torch.as_tensor(slopes, dtype=dtype, device=device) if len(slopes) else None,
        )

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What `slack` multiplies by in float64, for `with_tensors`."""
        made = self._made(torch.float64, device)
        return {name: tensor for name, tensor in vars(made).items() if tensor is not None}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> AffineRules:
        """The same rules, whose `slack` multiplies by tensors such as `tensors` gave."""
        made = copy.copy(self)
        own = _Tensors(**{name: tensors.get(name) for name in _Tensors.__dataclass_fields__})  # type: ignore[arg-type]
        object.__setattr__(made, "_tensors", {(own.limit.dtype, own.limit.device): own})
        return made

    def rows(self, inputs: Array, which: IntArray, number: int) -> LinearRows:
        """Rows of the master, `-value >= -limit`: rule `which[j]` at `inputs[j]`."""
        return LinearRows(
            number,
            inputs,
            -self.coefficients(inputs, which),
            -self.limit[which],
            np.arange(len(inputs)),
            None,
            region_origin(which),
        )

    def worst(self, outputs: Array, region: Region) -> tuple[Array, Array]:
        """For constant outputs (r,): the least slack (L,) of each rule in the region, and where.

        Such values are affine in the input, so their maximum over a Box is at a corner and over a
        Ball along the slope, both in closed form.
        """
        slopes = np.zeros((len(self), region.size))
        np.add.at(slopes, (self.rule, self.input), self.value * outputs[self.output])
        if isinstance(region, Ball) and region.norm == 2:
            length = np.linalg.norm(slopes, axis=1, keepdims=True)
            points = region.centre + region.radius * slopes / np.maximum(length, 1e-300)
        else:
            lower, upper = region.bounds()
            points = np.where(slopes > 0, upper, lower)
        highest = self.constant @ outputs + (slopes * points).sum(axis=1)
        return self.limit - highest, points


def rules_of(requirement: Requirement, *, output_size: int) -> AffineRules:
    """The normal form of a linear requirement over a Box or Ball, or an error that says why not."""
    name, kind = requirement.name, type(requirement).__name__
    if not isinstance(requirement.region, Box | Ball):
        raise InvalidInput(
            f"{name} lists its inputs; a certificate speaks of a Box or Ball. Audit listed inputs "
            "with ensemble.audit(requirement)"
        )
    requirement.check(requirement.input_size, output_size)
    rules: AffineRules | None = getattr(requirement, "normal_form", None)
    if rules is not None:
        return rules
    functional = getattr(requirement, "coefficients", None)
    if functional is None:
        raise InvalidInput(
            f"{name} ({kind}) cannot be certified; Linear, Probability and Margin over a Box or "
            "Ball can"
        )
    raise InvalidInput(
        f"the functional of {name}, {type(functional).__name__}, cannot be certified: it has no "
        "method affine() that gives its coefficients as affine functions of the input "
        "(cg4ai.proofs.AffineCoefficients)"
    )
