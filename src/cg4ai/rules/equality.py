"""`Equality`: sums of outputs that equal a bound at every input, kept by how members are built.

All outputs with `A y = b(x)` are `offset + slope x + basis z` with z free: members that compute z
and complete it so keep the equalities whatever they learn, and so do their mixtures.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.bounds import AffineBound
from cg4ai.rules.linear import Linear
from cg4ai.rules.requirement import InputRule
from cg4ai.rules.rows import Rows

RANK = 1e-10  # singular values below this share of the largest count as zero, rows of length one
AGREES = 1e-9  # relative: dependent rows whose bounds differ by more contradict each other
ALIKE = 1e3  # units of outputs that differ by more are told apart
BALANCED = 8  # rounds that find them
EXACT = 1e-12  # relative: to which completed outputs keep equalities


@dataclass(frozen=True, eq=False)
class Completion:
    """Outputs `offset + slope x + basis z`: (r,), (r, d), (r, k).

    `units` (r,), if outputs have units of very different sizes: the basis is orthonormal in these.
    """

    offset: Array
    slope: Array
    basis: Array
    units: Array | None = None

    def __post_init__(self) -> None:
        for name in ("offset", "slope", "basis"):
            object.__setattr__(self, name, arrays.as_numbers(getattr(self, name), name))
        size = len(self.offset)
        shapes = (self.offset.shape, self.slope.shape[:1], self.basis.shape[:1])
        if shapes != ((size,),) * 3 or self.slope.ndim != 2 or self.basis.ndim != 2:
            raise InvalidInput(
                "a completion needs offset (r,), slope (r, d) and basis (r, k), got "
                f"{self.offset.shape}, {self.slope.shape} and {self.basis.shape}",
                code="shape",
            )

    @property
    def input_size(self) -> int:
        return int(self.slope.shape[1])

    @property
    def output_size(self) -> int:
        return len(self.offset)

    @property
    def free_size(self) -> int:
        """How many numbers z members compute."""
        return int(self.basis.shape[1])

    def project(self) -> Completion:
        """The same outputs from z with as many entries as outputs, where the basis is orthonormal.

        The outputs are those nearest to z, as far as the input leaves them free.
        """
        units = np.ones(self.output_size) if self.units is None else self.units
        across = self.basis / units[:, None]
        return replace(self, basis=units[:, None] * (across @ across.T) / units)

    @cached_property
    def digest(self) -> str:
        """Equal for completions of the same numbers."""
        total = hashlib.sha256()
        for array in (self.offset, self.slope, self.basis):
            total.update(f"{array.shape}".encode())
            total.update(np.ascontiguousarray(array).tobytes())
        return total.hexdigest()


@dataclass(frozen=True, eq=False)
class Equality(InputRule):
    """`matrix @ f(x) == bound`, (k, r) and (k,): at every input if `inputs` is None.

    `bound` is one number, (k,), or an `AffineBound` with a slope (d,) or (k, d). `inputs`, a region
    or a list, say where it is looked at if members do not keep it by construction. Rows that follow
    from others are left out; rows that contradict others are refused.
    """

    matrix: Any
    bound: Any

    def __post_init__(self) -> None:
        if self.inputs is None:
            object.__setattr__(self, "name", self.name or type(self).__name__)
        else:
            super().__post_init__()
        matrix = arrays.as_numbers(self.matrix, "the matrix of an Equality")
        matrix = matrix[None] if matrix.ndim == 1 else matrix
        if matrix.ndim != 2 or matrix.size == 0:
            raise InvalidInput(
                f"the matrix of an Equality must be (k, r) or (r,), got shape {matrix.shape}",
                code="shape",
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "output_size", matrix.shape[1])
        _ = self._solution  # contradictions are refused here
        if self.inputs is not None:
            self._check_slope(self.input_size)

    @property
    def input_size(self) -> int:
        if self.inputs is None:
            raise InvalidInput(
                f"{self.name} holds at every input and names none", code="unsupported"
            )
        return super().input_size

    @property
    def affine_width(self) -> int:
        """How many inputs the slope of the bound is over; 0 for a bound of numbers."""
        return int(self._bound[1].shape[1])

    @cached_property
    def _bound(self) -> tuple[Array, Array]:
        """Offset (k,) and slope (k, d); d is 0 for a bound of numbers."""
        count = len(self.matrix)
        if not isinstance(self.bound, AffineBound):
            offset = arrays.as_vector(self.bound, "the bound of an Equality", count)
            return offset, np.zeros((count, 0))
        slope = np.broadcast_to(self.bound.slope, (count, self.bound.slope.shape[-1]))
        return arrays.as_vector(self.bound.offset, "the offset of the bound", count), np.array(
            slope
        )

    @property
    def depends_on_inputs(self) -> bool:
        """Whether the bound is another one at other inputs."""
        return bool(self._bound[1].any())

    def _check_slope(self, input_size: int) -> None:
        given = self._bound[1].shape[1]
        if given not in (0, input_size):
            raise InvalidInput(
                f"the bound of {self.name} has a slope over {given} inputs, the predictor takes "
                f"{input_size}",
                code="shape",
            )

    @cached_property
    def _solution(self) -> Completion:
        """The solution of least norm and the null space, by singular values."""
        units = _output_units(self.matrix)
        scaled = self.matrix * units
        largest = np.abs(scaled).max(axis=1, keepdims=True)
        largest = np.where(largest > 0, largest, 1.0)
        length = largest * np.linalg.norm(scaled / largest, axis=1, keepdims=True)
        length = np.where(length > 0, length, 1.0)
        unit, bound = scaled / length, np.column_stack(self._bound) / length
        left, values, right = np.linalg.svd(unit, full_matrices=True)
        rank = int((values > RANK * max(float(values.max()), RANK)).sum())
        # in two steps: the second mends what rounding left of the first
        solved = np.zeros((self.matrix.shape[1], bound.shape[1]))
        for _ in range(2):
            rest = bound - unit @ solved
            solved += right[:rank].T @ ((left[:, :rank].T @ rest) / values[:rank, None])
        self._refuse_contradictions(bound - unit @ solved, np.abs(bound) + np.abs(unit @ solved))
        own = units[:, None]
        mixed = units if (units != 1).any() else None
        return Completion(
            own[:, 0] * solved[:, 0], own * solved[:, 1:], own * right[rank:].T, mixed
        )

    def _refuse_contradictions(self, rest: Array, size: Array) -> None:
        """`rest` is at right angles to all that sums of outputs can be: those rows exclude."""
        missed = (np.abs(rest) / np.where(size > 0, size.max(axis=0), 1.0)).max(axis=1)
        if missed.max() > AGREES:
            rows = np.flatnonzero(missed > 1e-6 * missed.max())
            shown = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
            raise InvalidInput(
                f"{self.name} contradicts itself: rows {shown} of its matrix depend on each other "
                "and their bounds do not agree, so that no outputs keep them all; correct or "
                "leave out some of them",
                code="infeasible",
            )

    def completion(self, input_size: int | None = None) -> Completion:
        """All outputs that keep the equalities; the basis is orthonormal in the units of
        outputs.
        """
        solution = self._solution
        size = self.input_size if input_size is None else input_size
        self._check_slope(size)
        if solution.slope.shape[1] == size:
            return solution
        return replace(solution, slope=np.zeros((solution.output_size, size)))

    def extend_to_all_inputs(self) -> Equality:
        """The same at every input, for members that keep it by construction."""
        return Equality(None, self.matrix, self.bound, name=self.name)

    def affine_bound(self, input_size: int) -> tuple[Array, Array]:
        """Offset (k,) and slope (k, d) of the bound."""
        offset, slope = self._bound
        self._check_slope(input_size)
        return offset, slope if slope.shape[1] else np.zeros((len(offset), input_size))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of matrix and bound."""
        return Completion(self._bound[0], self._bound[1], self.matrix).digest

    def is_kept_by(self, offset: Array, slope: Array, basis: Array) -> bool:
        """Whether outputs `offset + slope x + basis z` keep it at all x and z but for rounding."""
        own_offset, own_slope = self.affine_bound(slope.shape[1])
        size = np.abs(self.matrix)
        pairs = (
            (self.matrix @ offset - own_offset, size @ np.abs(offset) + np.abs(own_offset)),
            (self.matrix @ slope - own_slope, size @ np.abs(slope) + np.abs(own_slope)),
            (self.matrix @ basis, size @ np.abs(basis)),
        )
        return all(bool((np.abs(miss) <= EXACT * scale).all()) for miss, scale in pairs)

    @property
    def is_pointwise(self) -> bool:
        return self.inputs is None or self.over_region

    def slack_at(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        if self.inputs is not None:
            return super().slack_at(inputs, outputs)
        matrix = torch.as_tensor(self.matrix)
        offset, slope = map(torch.as_tensor, self.affine_bound(inputs.shape[1]))
        return -(outputs @ matrix.mT - offset - inputs @ slope.mT).abs().amax(1)

    def compute_violation(self, inputs: Array, outputs: Array) -> Array:
        """(n, d), (n, r) -> (n,): the largest |matrix @ y - bound| at each input."""
        offset, slope = self._bound
        bound = offset + inputs @ slope.T if slope.shape[1] else offset
        return np.asarray(np.abs(outputs @ self.matrix.T - bound).max(axis=1))

    def require_inputs(self) -> None:
        if self.inputs is None:
            raise InvalidInput(
                f"{self.name} lists no inputs to audit: members keep it by completion, and these "
                "members were not built for it; to measure them, give a region or a list of inputs",
                code="unsupported",
            )

    @cached_property
    def _linear(self) -> Linear:
        self.require_inputs()
        matrix = self.matrix if self.over_region else self.matrix[None]
        return Linear(
            self.inputs,
            matrix,
            self.bound,
            "==",
            name=self.name,
            slack=self.slack,
            separator=self.separator,
        )

    @property
    def normal_form(self) -> AffineRules | None:
        return self._linear.normal_form if self.over_region else None

    def check(self, input_size: int, output_size: int) -> None:
        self._check_slope(input_size)
        if self.inputs is not None:
            self.fit(input_size, output_size)
        elif output_size != self.output_size:
            raise InvalidInput(
                f"{self.name} has coefficients for {self.output_size} outputs, the predictor has "
                f"{output_size}",
                code="shape",
            )

    def rows(self, number: int) -> Rows | None:
        return None if self.inputs is None else self._linear.rows(number)

    def rows_at(self, inputs: Array, which: IntArray, number: int) -> Rows:
        return self._linear.rows_at(inputs, which, number)

    def violations(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return self._linear.violations(inputs, outputs)

    def describe(self, rows: Rows, j: int) -> str:
        return self._linear.describe(rows, j)


def _output_units(matrix: Array) -> Array:
    """(r,): powers of two in which coefficients of all outputs are alike; 1 where they are."""
    units: Array = np.ones(matrix.shape[1])
    size = np.abs(matrix[matrix.any(axis=1)])
    for _ in range(BALANCED):  # rows and columns in turn
        rows = (size * units).max(axis=1, keepdims=True)
        columns = (size / rows).max(axis=0, initial=0.0)
        used = columns > 0
        units = np.where(used, 1 / np.where(used, columns, 1.0), units)
    units = np.asarray(2.0 ** np.round(np.log2(units)))
    own = units[size.any(axis=0)]
    return units if len(own) and own.max() > ALIKE * own.min() else np.ones(len(units))


def join_equalities(equalities: list[Equality], *, input_size: int) -> Completion:
    """The completion that keeps all of them, which must be about the same outputs."""
    bounds = [one.affine_bound(input_size) for one in equalities]
    both = Equality(
        None,
        np.concatenate([one.matrix for one in equalities]),
        AffineBound(*(np.concatenate(part) for part in zip(*bounds, strict=True))),
        name=" and ".join(one.name for one in equalities),
    )
    return both.completion(input_size)
