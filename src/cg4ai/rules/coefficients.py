"""`AffineCoefficients`: coefficients of outputs that are affine in the input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.objectives import LinearFunctional
from cg4ai.records import Array, IntArray


def check_slopes(
    places: tuple[IntArray, IntArray, IntArray], value: Array, *, sizes: tuple[int, int, int]
) -> None:
    """Refuse slopes outside (rules, outputs, inputs), and any that is given twice.

    Summing repeats would depend on their order.
    """
    if any(place.shape != value.shape for place in places):
        raise InvalidInput("rule, output, input and value of affine rules must be as long")
    place = np.stack([np.ravel(each) for each in places])
    if (place < 0).any() or (place >= np.array(sizes)[:, None]).any():
        raise InvalidInput(
            f"slopes of affine rules must lie within {sizes[0]} rules, {sizes[1]} outputs and "
            f"{sizes[2]} inputs, counted from 0",
            code="range",
        )
    known, times = np.unique(place, axis=1, return_counts=True)
    if (times > 1).any():
        first = known[:, times > 1][:, 0]
        raise InvalidInput(
            f"the slope of rule {first[0]}, output {first[1]} along input {first[2]} is given "
            f"{times.max()} times; give the sum once",
            code="duplicate",
        )


@dataclass(frozen=True)
class Products:
    """The slopes as one matrix: every pair (input, output) that occurs is a product x_i y_q.

    `inputs`, `outputs` (p,) are the pairs, `matrix` (p, L) the slopes of all rules along them.
    """

    inputs: IntArray
    outputs: IntArray
    matrix: Array

    @classmethod
    def of(
        cls, rule: IntArray, output: IntArray, entry: IntArray, *, value: Array, count: int
    ) -> Products:
        """Of `count` rules whose slopes along (output, input) are `value`, each given once."""
        pairs, place = np.unique(np.stack([entry, output]), axis=1, return_inverse=True)
        matrix = np.zeros((pairs.shape[1], count))
        matrix[place.reshape(-1), rule] = value
        return cls(pairs[0], pairs[1], matrix)

    def coefficients(self, constant: Array, inputs: Array, which: IntArray) -> Array:
        """(m, r): the coefficients of rule `which[j]` at `inputs[j]`."""
        result = constant[which]
        if len(self.matrix):
            np.add.at(result.T, self.outputs, (inputs[:, self.inputs] * self.matrix.T[which]).T)
        return result

    def values(self, constant: Any, inputs: Any, outputs: Any) -> Any:
        """(n, d), (..., n, r) -> (..., n, L), all NumPy or all torch."""
        matrix: Any = self.matrix
        if isinstance(outputs, Tensor):
            matrix, constant = (torch.as_tensor(a).to(outputs) for a in (matrix, constant))
        products = inputs[..., self.inputs] * outputs[..., self.outputs]
        return outputs @ constant.T + products @ matrix


@dataclass(frozen=True, eq=False)
class AffineCoefficients:
    """Coefficients of outputs that are affine in the input: L rules, a functional for `Linear`.

    `constant` (L, r); the slopes are sparse: d coefficient[rule, output] / d x[input] = value, each
    given once. `dense` makes them from one array.
    """

    constant: Array
    rule: IntArray
    output: IntArray
    input: IntArray
    value: Array

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "constant", arrays.as_matrix(self.constant, "constant coefficients")
        )
        object.__setattr__(self, "value", arrays.as_numbers(self.value, "slopes of coefficients"))
        for name in ("rule", "output", "input"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        features = int(self.input.max(initial=-1)) + 1  # how many there are is not known here
        sizes = (*self.constant.shape, features)
        check_slopes((self.rule, self.output, self.input), self.value, sizes=sizes)

    @classmethod
    def fixed(cls, matrix: Array) -> AffineCoefficients:
        """The same (L, r) at every input."""
        none = np.empty(0, np.int64)
        return cls(matrix, none, none, none, np.empty(0))

    @classmethod
    def dense(cls, constant: Any, slope: Any) -> AffineCoefficients:
        """`constant[l, k] + slope[l, k] . x`: (L, r) and (L, r, d), or (r,) and (r, d) for one."""
        fixed = arrays.as_numbers(constant, "constant coefficients")
        moving = arrays.as_numbers(slope, "slopes of coefficients")
        if fixed.ndim not in (1, 2) or moving.ndim != fixed.ndim + 1 or not moving.size:
            raise InvalidInput(
                "coefficients affine in the input need a constant (L, r) and a slope (L, r, d), or "
                f"(r,) and (r, d) for one rule, got {fixed.shape} and {moving.shape}",
                code="shape",
            )
        if moving.shape[:-1] != fixed.shape:
            raise InvalidInput(
                f"the constant coefficients have shape {fixed.shape}, their slopes {moving.shape}; "
                "the latter is one axis longer, the input's features",
                code="shape",
            )
        fixed, moving = np.atleast_2d(fixed), moving.reshape(-1, *moving.shape[-2:])
        rule, output, entry = (place.astype(np.int64) for place in np.nonzero(moving))
        return cls(fixed, rule, output, entry, moving[rule, output, entry])

    @property
    def count(self) -> int:
        return len(self.constant)

    @cached_property
    def _products(self) -> Products:
        return Products.of(self.rule, self.output, self.input, value=self.value, count=self.count)

    def affine(self) -> AffineCoefficients:
        return self

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """(m, r): those of rule `which[j]` at `inputs[j]`."""
        self._need_features(inputs)
        return self._products.coefficients(self.constant, inputs, which)

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """(n, d), (..., n, r) -> (..., n, L)."""
        self._need_features(inputs)
        result: Tensor = self._products.values(self.constant, inputs, outputs)
        return result

    def _need_features(self, inputs: Any) -> None:
        if len(self.input) and self.input.max() >= inputs.shape[-1]:
            raise InvalidInput(
                f"coefficients depend on input {self.input.max()}, counted from 0, but there are "
                f"{inputs.shape[-1]} inputs",
                code="shape",
            )


class AffineFunctional(LinearFunctional, Protocol):
    """A functional whose coefficients are affine in the input: certificates need this."""

    def affine(self) -> AffineCoefficients: ...
