"""Rows as tensors that lie ready where training happens.

Many batches of rows become one where they can: a batch costs a dozen small calls at every step,
and small members take less time than such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.pricing.gradient.row_choice import Weighted
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRows:
    """Rows of any kind at `inputs` (k, d), and of each row (m,):

    `needed` is what training aims at, `hinge` the weight of what it lacks of that, `guide` the
    guiding dual.
    """

    inputs: Tensor
    needed: Tensor
    hinge: Tensor
    guide: Tensor
    rows: Rows | None = None

    def scaled(self, factor: float) -> Self:
        """The same with another weight of what is lacking."""
        return replace(self, hinge=self.hinge * factor)

    def values(self, outputs: Tensor) -> Tensor:
        """`outputs` (..., k, r) -> (..., m)."""
        assert self.rows is not None
        return self.rows.values(outputs)

    def drawn(self, which: IntArray, factors: Array) -> ReadyRows:
        """Some rows of one input each, their weights times `factors`; see `RowDraws`."""
        assert isinstance(self.rows, ConcaveRows)
        # training has the inputs as a tensor: those of the rows themselves need not be copied
        rows = replace(self.rows, inputs=self.rows.inputs[:0], positions=self.rows.positions[which])
        return replace(self._at(which, factors), rows=rows)

    def _at(self, which: IntArray, factors: Array) -> Self:
        """The same but for what gives the values."""
        at = torch.as_tensor(which, device=self.inputs.device)
        scale = torch.as_tensor(factors, dtype=self.hinge.dtype, device=self.hinge.device)
        return replace(
            self,
            inputs=self.inputs[at],
            needed=self.needed[at],
            hinge=self.hinge[at] * scale,
            guide=self.guide[at] * scale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleRows(ReadyRows):
    """Linear rows of one input each: `value_j = coefficients[j] . outputs[index[j]]`.

    `coefficients` (m, r); without an index row j looks at input j.
    """

    coefficients: Tensor
    index: Tensor | None

    def values(self, outputs: Tensor) -> Tensor:
        return (self._own(outputs) * self.coefficients).sum(-1)

    def _own(self, outputs: Tensor) -> Tensor:
        if self.index is None:
            return outputs
        # on a GPU the quicker way adds up gradients in any order, which no run would repeat
        return (
            outputs[..., self.index, :] if outputs.is_cuda else outputs.index_select(-2, self.index)
        )

    def spread(self) -> SimpleRows:
        """The same rows with an input for each, repeated where several look at one."""
        if self.index is None:
            return self
        return replace(self, inputs=self.inputs[self.index], index=None)

    def drawn(self, which: IntArray, factors: Array) -> SimpleRows:
        assert self.index is None
        at = torch.as_tensor(which, device=self.inputs.device)
        return replace(self._at(which, factors), coefficients=self.coefficients[at])


def ready(
    entry: Weighted, tensor: Callable[[Array], Tensor], *, headroom: float, weight: float
) -> ReadyRows:
    """Rows with their weights; `tensor` puts an array where training happens."""
    rows, hinge, guide = entry
    general = ReadyRows(
        inputs=tensor(rows.inputs),
        needed=tensor(rows.bounds + headroom),
        hinge=tensor(weight * hinge),
        guide=tensor(guide),
        rows=rows,
    )
    if not isinstance(rows, LinearRows) or rows.index is None:
        return general
    in_order = np.array_equal(rows.index, np.arange(len(rows.inputs)))
    return SimpleRows(
        inputs=general.inputs,
        needed=general.needed,
        hinge=general.hinge,
        guide=general.guide,
        coefficients=tensor(rows.coefficients),
        index=None if in_order else torch.as_tensor(rows.index, device=general.inputs.device),
    )


def joined(entries: Sequence[ReadyRows]) -> list[ReadyRows]:
    """All rows, the simple ones as a single entry that comes first."""
    simple = [entry for entry in entries if isinstance(entry, SimpleRows)]
    others = [entry for entry in entries if not isinstance(entry, SimpleRows)]
    return [_one(simple), *others] if simple else others


def _one(entries: Sequence[SimpleRows]) -> SimpleRows:
    if len(entries) == 1:
        return entries[0]
    index: Tensor | None = None
    if any(entry.index is not None for entry in entries):
        starts = np.cumsum([0, *(len(entry.inputs) for entry in entries)]).tolist()
        index = torch.cat(
            [start + _index(entry) for entry, start in zip(entries, starts, strict=False)]
        )
    return SimpleRows(
        inputs=torch.cat([entry.inputs for entry in entries]),
        needed=torch.cat([entry.needed for entry in entries]),
        hinge=torch.cat([entry.hinge for entry in entries]),
        guide=torch.cat([entry.guide for entry in entries]),
        coefficients=torch.cat([entry.coefficients for entry in entries]),
        index=index,
    )


def _index(entry: SimpleRows) -> Tensor:
    if entry.index is not None:
        return entry.index
    return torch.arange(len(entry.inputs), device=entry.inputs.device)
