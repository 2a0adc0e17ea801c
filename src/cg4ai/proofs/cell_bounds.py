"""Bounds of given cells for training: differentiable in parameters, and as rows of the master.

Training asks for a few cells of every rule at a time. So the terms of all rules stand in tables; a
cell is paired with the terms of its rule, and pairs stand beside each other network by network, so
that a few calls bound them all. The search, which has many cells of one rule, does not need this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs.bounds.bound import (
    CellQuadratic,
    Cells,
    Pieces,
    bound_quadratic,
    compute_pieces,
    find_separable_peak,
    sum_quadratic,
)
from cg4ai.proofs.bounds.networks import Relaxation, relax
from cg4ai.proofs.bounds.softmax import (
    UpperBound,
    bound_log_sum_exp,
    bound_ratio,
    bound_scores,
)
from cg4ai.proofs.bounds.terms import Group, Parts, RuleTerms
from cg4ai.protocols import Parameters
from cg4ai.records import Array, IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.affine import find_affine_rules
from cg4ai.rules.regions import Ball, Box

SLOTS = 8  # pairs of one network that are bounded beside each other


class CellBounds:
    """The rules of a requirement over an ensemble's members, bounded on cells of one's choice.

    Members count through all parts of the ensemble, in order; those of zero weight take part.
    """

    def __init__(self, ensemble: Ensemble, requirement: Requirement) -> None:
        region = requirement.region
        self.rules = find_affine_rules(requirement, output_size=ensemble.output_size)
        self.rules.require_plain("bounds of cells")
        if not isinstance(region, Box | Ball):
            raise InvalidInput(f"{requirement.name} holds over no Box or Ball", code="unsupported")
        lower, upper = region.bounds()
        self.parts = Parts(ensemble.parts, ensemble.layout, lower=lower, upper=upper)
        self.weights = torch.as_tensor(
            np.concatenate([part.weights for part in ensemble.parts]), device=self.parts.device
        )
        self._pairs: dict[torch.dtype, _Pairs] = {}

    @cached_property
    def _terms(self) -> list[RuleTerms]:
        terms = [self.parts.take_apart(self.rules, rule) for rule in range(len(self.rules))]
        for one in terms:
            if one.trees is not None:
                raise InvalidInput(
                    f"rule {one.rule} involves trees, whose bounds have no gradients and no pieces",
                    code="unsupported",
                )
        return terms

    def _cells(self, lower: Array, upper: Array) -> Cells:
        device = self.parts.device
        return Cells(torch.as_tensor(lower, device=device), torch.as_tensor(upper, device=device))

    def upper(
        self,
        rules: IntArray,
        lower: Array,
        upper: Array,
        *,
        parameters: Mapping[int, Parameters] | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """(m,): the bound of rule `rules[j]` on the cell `lower[j]` to `upper[j]`.

        Differentiable in `parameters` (by part, stacked like the members' own, any precision) and
        in `weights` (of all members); both default to the ensemble's. Without rounding margin, and
        in the precision of the parameters: twice as fast in single, which proves nothing.
        """
        mixing = self.weights if weights is None else weights
        given = parameters or {}
        dtype = next((v.dtype for own in given.values() for v in own.values()), torch.float64)
        if dtype not in self._pairs:
            self._pairs[dtype] = _Pairs(self._terms, dtype)
        cells = Cells(*(corner.to(dtype) for corner in self._cells(lower, upper)))
        return self._pairs[dtype].upper(rules, cells, weights=mixing.to(dtype), parameters=given)

    def coefficients(
        self, rules: IntArray, lower: Array, upper: Array, *, weights: Array | None = None
    ) -> Array:
        """(members, m): rows `sum_i coefficient[i, j] weight_i <= limit` for the master.

        The quadratic bound is convex and homogeneous in the weights; this is its slope at
        `weights`, so the row holds with equality of bound and value there and every mixture whose
        bound is within the limit keeps it.
        """
        mixing = self.weights
        if weights is not None:
            mixing = torch.as_tensor(weights, device=self.parts.device)
        result = np.zeros((len(self.weights), len(rules)))
        with torch.no_grad():
            for rule in np.unique(rules):
                chosen = np.flatnonzero(rules == rule)
                cells = self._cells(lower[chosen], upper[chosen])
                for at, values in _cut(compute_pieces(self._terms[rule], cells), cells, mixing):
                    np.add.at(
                        result, (at.cpu().numpy()[:, None], chosen[None]), values.cpu().numpy()
                    )
        return result


def _cut(summed: list[Pieces], cells: Cells, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Each piece at the maximiser of the whole quadratic's bound, with its signs."""
    radius = cells.radius
    form = sum_quadratic(summed, weights)
    diagonal = torch.diagonal(form.square, dim1=-2, dim2=-1)
    peak = find_separable_peak(form.linear, diagonal, radius)
    crossed = torch.sign(form.square) * radius.unsqueeze(-1) * radius.unsqueeze(-2)
    at_peak = torch.diagonal_scatter(crossed, peak * peak, dim1=-2, dim2=-1)
    result = []
    for piece in summed:
        values = piece.constant + (piece.linear * peak).sum(-1)
        if piece.share is not None:
            values = values + torch.einsum("ni,bij,nbj->nb", piece.factor, at_peak, piece.share)
        result.append((piece.at, values))
    return result


class _Sums:
    """A quadratic and an affine bound per cell, summed up from pairs."""

    def __init__(self, cells: Cells) -> None:
        batch, size = cells.lower.shape
        self.constant, self.ceiling = (cells.lower.new_zeros(batch) for _ in range(2))
        self.linear, self.ceiling_slope = (cells.lower.new_zeros(batch, size) for _ in range(2))
        self.square = cells.lower.new_zeros(batch, size, size)

    def add_affine(self, cell: Tensor, value: Tensor, slope: Tensor) -> None:
        """value + slope . delta, pair by pair."""
        self.constant = self.constant.index_add(0, cell, value)
        self.linear = self.linear.index_add(0, cell, slope)
        self.ceiling = self.ceiling.index_add(0, cell, value)
        self.ceiling_slope = self.ceiling_slope.index_add(0, cell, slope)

    def add_shares(self, cell: Tensor, factor: Tensor, slope: Tensor, above: UpperBound) -> None:
        """(factor + slope . delta)(share), pair by pair: share <= value + q . delta."""
        value, q, ceiling = above.value, above.slope, above.ceiling
        linear = factor.unsqueeze(-1) * q + value.unsqueeze(-1) * slope
        self.constant = self.constant.index_add(0, cell, factor * value)
        self.linear = self.linear.index_add(0, cell, linear)
        self.square = self.square.index_add(0, cell, slope.unsqueeze(-1) * q.unsqueeze(-2))
        self.ceiling = self.ceiling.index_add(0, cell, factor * ceiling)
        self.ceiling_slope = self.ceiling_slope.index_add(0, cell, ceiling.unsqueeze(-1) * slope)

    def upper(self, radius: Tensor) -> Tensor:
        form = CellQuadratic(self.constant, self.linear, 0.5 * (self.square + self.square.mT))
        ceiling = self.ceiling + (self.ceiling_slope.abs() * radius).sum(-1)
        return torch.minimum(bound_quadratic(form, radius), ceiling)


class _Pairs:
    """The rules of a requirement, each taken apart, in tables of one precision."""

    def __init__(self, rules: Sequence[RuleTerms], dtype: torch.dtype) -> None:
        self._tables = [_Table(rules, part, dtype) for part in _parts_of(rules)]
        # most bases are nothing: of members some of whose outputs a rule leaves out
        kept = [(rule.base_constant != 0) | (rule.base_slope != 0).any(-1) for rule in rules]
        own = list(zip(rules, kept, strict=True))
        self._base_start = np.cumsum([0, *(int(some.sum()) for some in kept)])
        self._base_at = torch.cat([rule.base_at[some] for rule, some in own])
        self._base_constant = torch.cat([rule.base_constant[some] for rule, some in own]).to(dtype)
        self._base_slope = torch.cat([rule.base_slope[some] for rule, some in own]).to(dtype)

    def upper(
        self,
        rules: IntArray,
        cells: Cells,
        *,
        weights: Tensor,
        parameters: Mapping[int, Parameters],
    ) -> Tensor:
        centre, radius, sums = cells.centre, cells.radius, _Sums(cells)
        term, cell = (_index(found, centre) for found in _paired(self._base_start, rules))
        if len(term):
            weight, slope = weights[self._base_at[term]], self._base_slope[term]
            value = self._base_constant[term] + (slope * centre[cell]).sum(-1)
            sums.add_affine(cell, weight * value, weight.unsqueeze(-1) * slope)
        for table in self._tables:
            table.add(sums, rules, centre, radius, weights=weights, given=parameters)
        return sums.upper(radius)


class _Table:
    """The terms of one part in all rules, by the number of outputs on; 0: linear outputs.

    Of each of these kinds rule l has the terms from `start[l]` on.
    """

    def __init__(self, rules: Sequence[RuleTerms], part: int, dtype: torch.dtype) -> None:
        self.part = part
        by_kind: dict[int, list[list[Group]]] = {}
        for number, rule in enumerate(rules):
            for group in rule.groups:
                if group.part == part:
                    own = by_kind.setdefault(_kind(group), [[] for _ in rules])
                    own[number].append(group)
        self.starts, groups, first = [], [], 0
        for kind in sorted(by_kind):
            counts = [sum(len(g.weights_at) for g in own) for own in by_kind[kind]]
            self.starts.append(first + np.cumsum([0, *counts]))
            first += sum(counts)
            groups.append([group for own in by_kind[kind] for group in own])
        every = [group for own in groups for group in own]
        self.networks = every[0].networks
        self.own = {name: v.to(dtype) for name, v in self.networks.parameters.items()}
        self.network = torch.cat([group.network for group in every]).cpu().numpy()
        self.weights_at = torch.cat([group.weights_at for group in every])
        self.constant = torch.cat([group.constant for group in every]).to(dtype)
        self.slope = torch.cat([group.slope for group in every]).to(dtype)
        self.on = [_joined([group.on for group in own]) for own in groups]
        self.off = _joined([group.off for group in every])
        combination = _joined([group.combination for group in every])
        self.combination = None if combination is None else combination.to(dtype)

    def add(
        self,
        sums: _Sums,
        rules: IntArray,
        centre: Tensor,
        radius: Tensor,
        *,
        weights: Tensor,
        given: Mapping[int, Parameters],
    ) -> None:
        """Bound the terms of these rules on the cell beside each, and add them up by cell."""
        beside = _beside([_paired(start, rules) for start in self.starts], self.network)
        if beside is None:
            return
        own, used = given.get(self.part, self.own), _index(beside.networks, centre)
        cell, term = _index(beside.cell, centre), _index(beside.term, centre)
        relaxed = relax(
            self.networks.architecture,
            {name: value.index_select(0, used) for name, value in own.items()},
            centre=centre[cell],
            radius=radius[cell],
        )
        above, real = self._above(relaxed, term, beside.kinds), _index(beside.real, centre)
        cell, term = cell.flatten()[real], term.flatten()[real]
        weight, slope = weights[self.weights_at[term]], self.slope[term]
        factor = weight * (self.constant[term] + (slope * centre[cell]).sum(-1))
        taken = UpperBound(*(one.flatten(0, 1).index_select(0, real) for one in above))
        sums.add_shares(cell, factor, weight.unsqueeze(-1) * slope, taken)

    def _above(self, relaxed: Relaxation, term: Tensor, kinds: list[slice]) -> UpperBound:
        if self.combination is not None:
            return bound_scores(relaxed, self.combination[term])
        assert self.off is not None
        values, combinations = [], []
        for on, start, rows in zip(self.on, self.starts, kinds, strict=True):
            if rows.start < rows.stop:
                assert on is not None
                own = relaxed.take(rows)
                value, combination = bound_log_sum_exp(own, on[term[rows] - int(start[0])])
                values.append(value)
                combinations.append(combination)
        return bound_ratio(relaxed, torch.cat(values), torch.cat(combinations), off=self.off[term])


class _Beside(NamedTuple):
    """Pairs laid out as (rows, `SLOTS`): those of one network, `networks[row]`, stand in a row.

    Rows that are not full repeat their first pair; `real` are the places of the pairs, rows one
    after another. `kinds` are the rows of each number of outputs on.
    """

    networks: IntArray
    term: IntArray
    cell: IntArray
    real: IntArray
    kinds: list[slice]


def _beside(pairs: list[tuple[IntArray, IntArray]], network: IntArray) -> _Beside | None:
    networks, terms, cells, reals, kinds, first = [], [], [], [], [], 0
    for term, cell in pairs:
        order = np.argsort(network[term], kind="stable")
        term, cell = term[order], cell[order]
        used, counts = np.unique(network[term], return_counts=True)
        rows = -(-counts // SLOTS)
        # places skip what the last row of every network leaves empty
        skipped = np.cumsum(rows * SLOTS - counts) - (rows * SLOTS - counts)
        real = np.arange(len(term)) + np.repeat(skipped, counts)
        begin = np.arange(rows.sum()) * SLOTS
        filled = np.repeat(np.searchsorted(real, begin), SLOTS)
        filled[real] = np.arange(len(term))
        networks.append(np.repeat(used, rows))
        terms.append(term[filled])
        cells.append(cell[filled])
        reals.append(first * SLOTS + real)
        kinds.append(slice(first, first + int(rows.sum())))
        first = kinds[-1].stop
    if not first:
        return None
    shape = (first, SLOTS)
    return _Beside(
        np.concatenate(networks),
        np.concatenate(terms).reshape(shape),
        np.concatenate(cells).reshape(shape),
        np.concatenate(reals),
        kinds,
    )


def _paired(start: IntArray, rules: IntArray) -> tuple[IntArray, IntArray]:
    """Every term of a cell's rule beside the cell: term and cell numbers, (pairs,) each."""
    first, count = start[rules], start[rules + 1] - start[rules]
    cell = np.repeat(np.arange(len(rules)), count)
    begin = np.cumsum(count) - count
    return np.arange(len(cell)) - np.repeat(begin - first, count), cell


def _parts_of(rules: Sequence[RuleTerms]) -> list[int]:
    return sorted({group.part for rule in rules for group in rule.groups})


def _kind(group: Group) -> int:
    return 0 if group.on is None else group.on.shape[1]


def _index(numbers: IntArray, like: Tensor) -> Tensor:
    return torch.as_tensor(numbers, device=like.device)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
