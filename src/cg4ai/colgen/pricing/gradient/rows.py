"""The rows that a member is trained on: which of them, as tensors, and drawn anew at every step.

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

from cg4ai.protocols import PricingRequest
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, merge_batches

Weighted = tuple[Rows, Array, Array]  # rows, hinge weights, guiding duals
SUMMED = 512  # inputs of one batch of sums that a step looks at, where it may look at some


def select_weighted_rows(
    request: PricingRequest, *, limit: int | None, hinge_only: bool
) -> tuple[list[Weighted], list[Rows]]:
    """Rows of most weight, with hinge weights (sum one) and guiding duals; then the others.

    Only rows of requirements have hinge weights; those of an epigraph objective matter to the
    reduced cost alone. The others come in small batches, newest last. With no limit all rows of
    positive weight come first.
    """
    if not len(request.rows):
        return [], []
    ruled = np.concatenate(
        [np.full(len(batch), batch.requirement >= 0) for batch in request.rows.batches]
    )
    guide = np.maximum(request.guide, 0.0)
    total = guide[ruled].sum()
    weights = np.where(ruled, guide / total if total > 0 else 1.0 / max(1, ruled.sum()), 0.0)
    rank = weights if hinge_only else np.maximum(weights, guide)
    keep = rank > 0
    if limit is not None and keep.sum() > limit:
        keep[np.argsort(-rank, kind="stable")[limit:]] = False
    parts = list(
        zip(
            request.rows.batches,
            request.rows.split(weights),
            request.rows.split(guide),
            request.rows.split(keep.astype(np.float64)),
            strict=True,
        )
    )
    chosen: list[Weighted] = []
    rest: list[Rows] = []
    for batch, batch_weights, batch_guide, batch_keep in parts:
        used, unused = np.flatnonzero(batch_keep), np.flatnonzero(batch_keep == 0)
        if len(used):
            chosen.append((batch.take(used), batch_weights[used], batch_guide[used]))
        if len(unused) and batch.requirement >= 0:
            rest.append(batch.take(unused))
    return _joined(chosen), _chunks(rest)


def _joined(chosen: Sequence[Weighted]) -> list[Weighted]:
    """The same rows in as few batches as possible: each costs a call at every step."""
    simple = [
        (rows, weights, guide)
        for rows, weights, guide in chosen
        if isinstance(rows, LinearRows) and rows.index is not None
    ]
    if not simple:
        return list(chosen)
    taken = {id(rows) for rows, _, _ in simple}
    one = replace(merge_batches([rows for rows, _, _ in simple]), requirement=0)
    weights = np.concatenate([weights for _, weights, _ in simple])
    guide = np.concatenate([guide for _, _, guide in simple])
    return [(one, weights, guide), *(entry for entry in chosen if id(entry[0]) not in taken)]


def join_concave_rows(chosen: Sequence[Weighted]) -> list[Weighted]:
    """The same rows with the concave ones of one functional as a single batch, which come last."""
    alike: dict[Callable[..., object], list[tuple[ConcaveRows, Array, Array]]] = {}
    result: list[Weighted] = []
    for rows, weights, guide in chosen:
        if isinstance(rows, ConcaveRows):
            alike.setdefault(rows.functional, []).append((rows, weights, guide))
        else:
            result.append((rows, weights, guide))
    for group in alike.values():
        one = merge_batches([rows for rows, _, _ in group])
        together = [np.concatenate([entry[part] for entry in group]) for part in (1, 2)]
        result.append((one, together[0], together[1]))
    return result


def _chunks(batches: Sequence[Rows]) -> list[Rows]:
    """Batches of at most 64 rows, of those that look at one input each."""
    simple = [rows for rows in batches if isinstance(rows, LinearRows) and rows.index is not None]
    if not simple:
        return []
    one = merge_batches(simple)
    return [
        one.take(np.arange(start, min(start + 64, len(one)))) for start in range(0, len(one), 64)
    ]


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

    def scale(self, factor: float) -> Self:
        """The same with another weight of what is lacking."""
        return replace(self, hinge=self.hinge * factor)

    def values(self, outputs: Tensor) -> Tensor:
        """`outputs` (..., k, r) -> (..., m)."""
        assert self.rows is not None
        return self.rows.values(outputs)

    def select(self, which: IntArray, factors: Array) -> ReadyRows:
        """Some rows of one input each, their weights times `factors`; see `RowDraws`."""
        assert isinstance(self.rows, ConcaveRows)
        # training has the inputs as a tensor: those of the rows themselves need not be copied
        rows = replace(self.rows, inputs=self.rows.inputs[:0], positions=self.rows.positions[which])
        return replace(self._at(which, factors), rows=rows)

    def sample_inputs(self, made: torch.Generator) -> ReadyRows:
        """The same rows, from some of the inputs where they sum over very many."""
        return self

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

    def select(self, which: IntArray, factors: Array) -> SimpleRows:
        assert self.index is None
        at = torch.as_tensor(which, device=self.inputs.device)
        return replace(self._at(which, factors), coefficients=self.coefficients[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedRows(ReadyRows):
    """Linear rows over inputs: `value_j = sum_k mixing[j, k] coefficients[j] . outputs[k]`.

    `mixing` (m, k), `coefficients` (m, r); `ends` (k,) sum the inputs' chances to be drawn.
    """

    mixing: Tensor
    coefficients: Tensor
    ends: Tensor

    def values(self, outputs: Tensor) -> Tensor:
        return torch.einsum("jk,...kr,jr->...j", self.mixing, outputs, self.coefficients)

    def sample_inputs(self, made: torch.Generator) -> ReadyRows:
        """Sums over `SUMMED` inputs whose mean over draws is the sum over all.

        An input is drawn with a chance that grows with its largest share in a row, one from each
        of `SUMMED` stretches of equal chance, and counts as much more as its chance is smaller.
        """
        if len(self.inputs) <= SUMMED:
            return self
        shares = torch.rand(SUMMED, generator=made, dtype=torch.float64) + torch.arange(SUMMED)
        picked = torch.searchsorted(self.ends, shares.to(self.ends.device) / SUMMED)
        picked = picked.clamp_max(len(self.inputs) - 1)
        before = torch.where(picked > 0, self.ends[picked - 1], torch.zeros_like(self.ends[:1]))
        factor = 1.0 / (SUMMED * (self.ends[picked] - before))
        mixing = self.mixing[:, picked] * factor.to(self.mixing.dtype)
        return replace(self, inputs=self.inputs[picked], mixing=mixing)


def prepare_rows(
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
    if isinstance(rows, LinearRows) and rows.mixing is not None:
        largest = np.abs(rows.mixing).max(axis=0)
        return SummedRows(
            inputs=general.inputs,
            needed=general.needed,
            hinge=general.hinge,
            guide=general.guide,
            mixing=tensor(rows.mixing),
            coefficients=tensor(rows.coefficients),
            ends=torch.as_tensor(np.cumsum(largest / largest.sum()), device=general.inputs.device),
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


def join_rows(entries: Sequence[ReadyRows]) -> list[ReadyRows]:
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


def compute_chances(weights: Array, count: int) -> Array:
    """The chance of each row to be drawn, `min(1, c * weight)`, where c makes the sum `count`.

    The heaviest rows are certain. Where no more than `count` weights are positive, all those are.
    """
    positive = weights > 0
    if positive.sum() <= count:
        return positive.astype(np.float64)
    falling = np.sort(weights)[::-1]
    left = np.cumsum(falling[::-1])[::-1]  # left[k]: the weight of all but the k heaviest
    certain = int(np.argmax((count - np.arange(count)) * falling[:count] <= left[:count]))
    return np.asarray(np.minimum(1.0, weights * ((count - certain) / left[certain])))


def draw_indices(chance: Array, made: torch.Generator) -> IntArray:
    """Different rows, as many as the chances sum to, each with its own chance.

    Systematic sampling: the chances are laid end to end in random order, and a comb with teeth one
    apart picks.
    """
    order = torch.randperm(len(chance), generator=made).numpy()
    ends = np.cumsum(chance[order])
    offset = float(torch.rand((), generator=made, dtype=torch.float64))
    teeth = offset + np.arange(round(float(ends[-1])))
    at = np.searchsorted(ends, teeth, side="right")
    return np.sort(order[np.minimum(at, len(order) - 1)])  # rounding may end before the last tooth


class RowDraws:
    """At most `limit` of the known rows for each step.

    A row drawn with chance p weighs 1/p times as much, so that the mean over draws of any sum over
    rows of weight x something is the sum over all rows. Rows of most weight are in every step with
    the weight they have; so are those that sum over many inputs, which are few (of their inputs
    `SummedRows.sample_inputs` draws some).
    """

    def __init__(
        self,
        known: Sequence[Weighted],
        limit: int,
        *,
        ready: Callable[[Weighted], ReadyRows],
        hinge_only: bool,
    ) -> None:
        made = [(entry, ready(entry)) for entry in join_concave_rows(known)]
        single = [pair for pair in made if _one_input_each(pair[1])]
        self.always = [rows for _, rows in made if not _one_input_each(rows)]
        self.single = [r.spread() if isinstance(r, SimpleRows) else r for _, r in single]
        ranks = [w if hinge_only else np.maximum(w, g) for (_, w, g), _ in single]
        rank = np.concatenate([np.empty(0), *ranks])
        self.chance = compute_chances(rank, max(1, limit - sum(len(r.needed) for r in self.always)))
        self.starts = np.cumsum([0, *(len(rows.needed) for rows in self.single)])

    @property
    def known_rows(self) -> list[ReadyRows]:
        return [*self.always, *self.single]

    def draw_rows(self, made: torch.Generator) -> list[ReadyRows]:
        """The rows of one step."""
        if not self.single:
            return self.always
        picked = draw_indices(self.chance, made)
        cuts = np.searchsorted(picked, self.starts)
        parts = [
            rows.select(picked[first:last] - start, 1.0 / self.chance[picked[first:last]])
            for rows, start, first, last in zip(
                self.single, self.starts[:-1], cuts[:-1], cuts[1:], strict=True
            )
            if last > first
        ]
        return [*self.always, *parts]


def _one_input_each(rows: ReadyRows) -> bool:
    return isinstance(rows, SimpleRows) or isinstance(rows.rows, ConcaveRows)
