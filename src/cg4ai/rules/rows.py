"""Rows of the master: what a requirement demands at concrete inputs, for master and pricer alike.

A row reads `value(outputs at its inputs) >= bound`. Requirements with `<=` are negated and `==`
becomes two rows before they get here. `LinearRows` are linear in the outputs; `ConcaveRows` are
concave. The master keeps those exactly by cuts, `tangents` at mixtures that break them. Rows in
`jensen` form bound the mean of the members' own values instead, which is at most the value of the
mixture (Jensen): sufficient, not necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.records import Array, IntArray


@dataclass(frozen=True, slots=True)
class LinearRows:
    """m linear rows over the outputs at k inputs; row j needs `value_j >= bounds[j]`.

    `inputs` (k, d), `coefficients` (m, r), `bounds` (m,). Exactly one of `index` and `mixing` is
    given. With `index` (m,) row j reads one input, `inputs[index[j]]`, and its value is
    `coefficients[j] . outputs[index[j]]`. With `mixing` (m, k) a row sums over inputs:
    `value_j = sum_k mixing[j, k] * (coefficients[j] . outputs[k])`.
    `origin` (m, 2) says which (input, rule) of the requirement made each row.
    """

    requirement: int
    inputs: Array
    coefficients: Array
    bounds: Array
    index: IntArray | None = None
    mixing: Array | None = None
    origin: IntArray | None = None

    linear: ClassVar[bool] = True
    JOINED: ClassVar = ("inputs", "coefficients", "bounds")

    def __post_init__(self) -> None:
        """Rules of other packages make rows, too: refuse those that do not fit together."""
        count, size = len(self.bounds), len(self.inputs)
        fits = len(self.coefficients) == count and (self.index is None) != (self.mixing is None)
        if self.index is not None:
            fits &= self.index.shape == (count,) and (
                not count or (self.index.min() >= 0 and self.index.max() < size)
            )
        elif self.mixing is not None:
            fits &= self.mixing.shape == (count, size)
        if not fits:
            index, mixing = (None if a is None else a.shape for a in (self.index, self.mixing))
            raise InvalidInput(
                "linear rows need bounds (m,), coefficients (m, r), inputs (k, d), and either "
                f"index (m,) of positions below k or mixing (m, k), got {count} bounds, "
                f"{len(self.coefficients)} coefficients, {size} inputs, index {index} and mixing "
                f"{mixing}"
            )

    def __len__(self) -> int:
        return len(self.bounds)

    def values(self, outputs: Tensor, positions: IntArray | None = None) -> Tensor:
        """`outputs` (..., k, r) -> (..., m). With `positions`, outputs holds only those."""
        coefficients = self.coefficients if positions is None else self.coefficients[:, positions]
        a = torch.as_tensor(coefficients, dtype=outputs.dtype, device=outputs.device)
        if self.index is not None:
            picked = outputs[..., torch.as_tensor(self.index, device=outputs.device), :]
            return (picked * a).sum(-1)
        mixing = torch.as_tensor(self.mixing, dtype=outputs.dtype, device=outputs.device)
        return torch.einsum("jk,...kr,jr->...j", mixing, outputs, a)

    def gradient(self, weights: Array) -> Array:
        """d/d outputs of `sum_j weights_j value_j`: (k, r), the linear price of each output."""
        if self.index is not None:
            total = np.zeros((len(self.inputs), self.coefficients.shape[1]))
            np.add.at(total, self.index, weights[:, None] * self.coefficients)
            return total
        assert self.mixing is not None
        return np.asarray(self.mixing.T @ (weights[:, None] * self.coefficients))

    def scale(self, scale: float) -> LinearRows:
        """The same rows divided by `scale` > 0."""
        if scale == 1.0:
            return self
        return replace(self, coefficients=self.coefficients / scale, bounds=self.bounds / scale)

    def take(self, rows: IntArray) -> Self:
        """Some of the rows, with only the inputs they need."""
        origin = None if self.origin is None else self.origin[rows]
        if self.index is not None:
            used, index = np.unique(self.index[rows], return_inverse=True)
            mixing = None
        else:
            assert self.mixing is not None
            used = np.flatnonzero(np.any(self.mixing[rows] != 0, axis=0))
            index, mixing = None, self.mixing[np.ix_(rows, used)]
        return type(self)(
            self.requirement,
            self.inputs[used],
            self.coefficients[rows],
            self.bounds[rows],
            index,
            mixing,
            origin,
        )


@dataclass(frozen=True, slots=True)
class ConcaveRows:
    """`value_j = functional(outputs of inputs[j], j)`, concave in the outputs, `>= bounds[j]`.

    `functional(outputs (..., m, r), rows (m,)) -> (..., m)` in torch; `rows` are positions in the
    requirement's own list, so that per-row data (labels) can be looked up. `jensen`: the master
    bounds the mean of the members' values. That implies the row, but a master with such rows
    proves nothing about what other mixtures can reach.
    """

    requirement: int
    inputs: Array
    functional: Callable[[Tensor, IntArray], Tensor]
    bounds: Array
    positions: IntArray
    origin: IntArray | None = None
    jensen: bool = False

    linear: ClassVar[bool] = False
    index: ClassVar[None] = None
    JOINED: ClassVar = ("inputs", "bounds", "positions")

    def __len__(self) -> int:
        return len(self.bounds)

    def values(self, outputs: Tensor, positions: IntArray | None = None) -> Tensor:
        """`outputs` (..., m, r) -> (..., m). With `positions`, outputs come in that order."""
        if positions is not None:
            if not np.array_equal(np.sort(positions), np.arange(outputs.shape[-1])):
                raise InvalidInput(
                    "a concave requirement needs all outputs in one block", code="unsupported"
                )
            outputs = outputs[..., torch.as_tensor(np.argsort(positions), device=outputs.device)]
        return self.functional(outputs, self.positions)

    def scale(self, scale: float) -> ConcaveRows:
        """The same rows divided by `scale` > 0."""
        if scale == 1.0:
            return self
        functional = _Scaled(self.functional, scale)
        return replace(self, functional=functional, bounds=self.bounds / scale)

    def tangents(self, outputs: Array) -> LinearRows:
        """Row j linearised at `outputs[j]` (m, r): `value + slope . (f - outputs[j]) >= bound`.

        Concave functions lie below their tangents, so whatever keeps a row keeps its tangents.
        Raises InvalidInput where a slope is not finite.
        """
        z = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
        values = self.values(z)
        (gradient,) = torch.autograd.grad(values.sum(), z)
        slopes, at = gradient.numpy(), values.detach().numpy()
        wild = ~(np.isfinite(slopes).all(axis=1) & np.isfinite(at))
        if wild.any():
            j = int(np.flatnonzero(wild)[0])
            shown = ", ".join(f"{number:.6g}" for number in outputs[j, :6])
            raise InvalidInput(
                f"the concave function of requirement {self.requirement} has no finite value and "
                f"slope at the outputs [{shown}{', ...' if outputs.shape[1] > 6 else ''}] (value "
                f"{at[j]:.6g}), where a mixture came to; a rule needs them at all outputs: state "
                "it by a function without steep edges, such as a square in place of a root",
                code="not-finite",
            )
        bounds = self.bounds - at + (slopes * outputs).sum(axis=1)
        index = np.arange(len(outputs))
        return LinearRows(self.requirement, self.inputs, slopes, bounds, index, None, self.origin)

    def take(self, rows: IntArray) -> Self:
        origin = None if self.origin is None else self.origin[rows]
        return type(self)(
            self.requirement,
            self.inputs[rows],
            self.functional,
            self.bounds[rows],
            self.positions[rows],
            origin,
            self.jensen,
        )


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A functional of concave rows divided by `scale`; equal if both are."""

    functional: Callable[[Tensor, IntArray], Tensor]
    scale: float

    def __call__(self, outputs: Tensor, positions: IntArray) -> Tensor:
        return self.functional(outputs, positions) / self.scale


Rows = LinearRows | ConcaveRows
RowsT = TypeVar("RowsT", bound=Rows)


def region_origin(which: IntArray) -> IntArray:
    """Origins of rows found in a region: no input number, rule `which`."""
    return np.stack([np.full(len(which), -1, np.int64), which.astype(np.int64)], axis=1)


def merge_batches(batches: Sequence[RowsT]) -> RowsT:
    """One batch of several that `compute_batch_key` puts together; `requirement` is the first
    one's.
    """
    parts: dict[str, Any] = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in batches[0].JOINED
    }
    starts = np.cumsum([0, *(len(batch.inputs) for batch in batches)])
    if isinstance(batches[0], LinearRows):
        indices = [np.asarray(batch.index) for batch in batches]
        moved = [index + start for index, start in zip(indices, starts, strict=False)]
        parts["index"] = np.concatenate(moved)
    origins = [batch.origin for batch in batches]
    known = [origin for origin in origins if origin is not None]
    parts["origin"] = np.concatenate(known) if len(known) == len(origins) else None
    return replace(batches[0], **parts)


def compute_batch_key(rows: Rows) -> Hashable:
    """Equal for rows that one batch can hold; None for rows that sum over inputs: none can."""
    if isinstance(rows, ConcaveRows):
        return rows.functional
    return "linear" if rows.index is not None else None


def join_batches(batches: Sequence[Rows]) -> list[Rows]:
    """The same rows in the same order, in as few batches as can be: each costs several calls."""
    result: list[Rows] = []
    for kind, group in groupby(batches, key=compute_batch_key):
        together = list(group)
        result += together if kind is None or len(together) == 1 else [merge_batches(together)]
    return result


def compute_shortfall(bounds: Array, values: Array) -> Array:
    """By how much each row is missed, negative with room to spare; the one definition.

    A value that is no finite number meets no row.
    """
    short = bounds - values
    return np.where(np.isfinite(short), short, np.inf)


class RowSet:
    """All rows of a master in order: batches of rows, each evaluated in one call."""

    def __init__(self, layout: Layout, batches: Sequence[Rows] = ()) -> None:
        self.layout = layout
        self.batches: list[Rows] = list(batches)

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches)

    def add(self, rows: Rows) -> None:
        self.batches.append(rows)

    @property
    def bounds(self) -> Array:
        return np.concatenate([batch.bounds for batch in self.batches] or [np.empty(0)])

    def split(self, per_row: Array) -> list[Array]:
        """One array per batch, from an array over all rows."""
        ends = np.cumsum([len(batch) for batch in self.batches])
        return list(np.split(per_row, ends[:-1])) if self.batches else []
