"""Bounds of given cells for training: differentiable in parameters, and as rows of the master.

Training asks for a few cells of every rule at a time. So the terms of all rules stand in tables; a
cell is paired with the terms of its rule, and each pair is bounded by itself. The search, which
has many cells of one rule, does not need this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.proofs.bounds.bound import (
    Cells,
    Pieces,
    Quadratic,
    pieces,
    quadratic,
    quadratic_above,
    separable_peak,
    shares_above,
)
from cg4ai.proofs.bounds.networks import Relaxation, relax
from cg4ai.proofs.bounds.softmax import Above
from cg4ai.proofs.bounds.terms import Group, Parts, RuleTerms
from cg4ai.protocols import Parameters
from cg4ai.records import Array, IntArray
from cg4ai.rules import Requirement
from cg4ai.rules.affine import rules_of
from cg4ai.rules.regions import Ball, Box


class CellBounds:
    """The rules of a requirement over an ensemble's members, bounded on cells of one's choice.

    Members count through all parts of the ensemble, in order; those of zero weight take part.
    """

    def __init__(self, ensemble: Ensemble, requirement: Requirement) -> None:
        region = requirement.region
        self.rules = rules_of(requirement, output_size=ensemble.output_size)
        self.rules.need_plain("bounds of cells")
        if not isinstance(region, Box | Ball):
            raise InvalidInput(f"{requirement.name} holds over no Box or Ball")
        lower, upper = region.bounds()
        self.parts = Parts(ensemble.parts, ensemble.layout, lower=lower, upper=upper)
        self.weights = torch.as_tensor(
            np.concatenate([part.weights for part in ensemble.parts]), device=self.parts.device
        )

    @cached_property
    def _terms(self) -> list[RuleTerms]:
        terms = [self.parts.take_apart(self.rules, rule) for rule in range(len(self.rules))]
        for one in terms:
            if one.trees is not None:
                raise InvalidInput(
                    f"rule {one.rule} involves trees, whose bounds have no gradients and no pieces"
                )
        return terms

    @cached_property
    def _pairs(self) -> _Pairs:
        return _Pairs(self._terms)

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
        in `weights` (of all members); both default to the ensemble's. Without rounding margin.
        """
        mixing = self.weights if weights is None else weights
        given = {
            part: {name: value.double() for name, value in own.items()}
            for part, own in (parameters or {}).items()
        }
        cells = self._cells(lower, upper)
        return self._pairs.upper(rules, cells, weights=mixing, parameters=given)

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
                for at, values in _cut(pieces(self._terms[rule], cells), cells, mixing):
                    np.add.at(
                        result, (at.cpu().numpy()[:, None], chosen[None]), values.cpu().numpy()
                    )
        return result


def _cut(summed: list[Pieces], cells: Cells, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Each piece at the maximiser of the whole quadratic's bound, with its signs."""
    radius = cells.radius
    form = quadratic(summed, weights)
    diagonal = torch.diagonal(form.square, dim1=-2, dim2=-1)
    peak = separable_peak(form.linear, diagonal, radius)
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

    def add(
        self, cell: Tensor, weight: Tensor, *, factor: Tensor, slope: Tensor, above: Above
    ) -> None:
        """weight (factor + slope . delta)(share), pair by pair: share <= value + q . delta."""
        value, q, ceiling = above.value[:, 0], above.slope[:, 0], above.ceiling[:, 0]
        wide = weight.unsqueeze(-1)
        linear = factor.unsqueeze(-1) * q + value.unsqueeze(-1) * slope
        self.constant = self.constant.index_add(0, cell, weight * factor * value)
        self.linear = self.linear.index_add(0, cell, wide * linear)
        products = (wide * slope).unsqueeze(-1) * q.unsqueeze(-2)
        self.square = self.square.index_add(0, cell, products)
        self.ceiling = self.ceiling.index_add(0, cell, weight * factor * ceiling)
        self.ceiling_slope = self.ceiling_slope.index_add(
            0, cell, (weight * ceiling).unsqueeze(-1) * slope
        )

    def upper(self, radius: Tensor) -> Tensor:
        form = Quadratic(self.constant, self.linear, 0.5 * (self.square + self.square.mT))
        ceiling = self.ceiling + (self.ceiling_slope.abs() * radius).sum(-1)
        return torch.minimum(quadratic_above(form, radius), ceiling)


@dataclass(frozen=True)
class _Table:
    """Terms of all rules that one call can bound; rule l has those from `start[l]` on."""

    start: IntArray
    terms: Group


class _Pairs:
    """The rules of a requirement, each taken apart, in tables."""

    def __init__(self, rules: Sequence[RuleTerms]) -> None:
        self._tables = _tables(rules)
        self._base_start = np.cumsum([0, *(len(rule.base_at) for rule in rules)])
        self._base_at = torch.cat([rule.base_at for rule in rules])
        self._base_constant = torch.cat([rule.base_constant for rule in rules])
        self._base_slope = torch.cat([rule.base_slope for rule in rules])

    def upper(
        self,
        rules: IntArray,
        cells: Cells,
        *,
        weights: Tensor,
        parameters: Mapping[int, Parameters],
    ) -> Tensor:
        centre, sums = cells.centre, _Sums(cells)
        term, cell = _paired(self._base_start, rules, device=centre.device)
        slope = self._base_slope[term]
        factor = self._base_constant[term] + (slope * centre[cell]).sum(-1)
        one = torch.ones_like(factor).unsqueeze(-1)
        flat = Above(one, torch.zeros_like(slope).unsqueeze(1), one, one)
        weight = weights[self._base_at[term]]
        sums.add(cell, weight, factor=factor, slope=slope, above=flat)
        for table in self._tables:
            term, cell = _paired(table.start, rules, device=centre.device)
            if len(term):
                terms = table.terms.take(term)
                relaxed = _relaxed(terms, cell, cells, parameters.get(terms.part))
                above = shares_above(terms, relaxed)
                factor = terms.constant + (terms.slope * centre[cell]).sum(-1)
                weight = weights[terms.weights_at]
                sums.add(cell, weight, factor=factor, slope=terms.slope, above=above)
        return sums.upper(cells.radius)


def _relaxed(terms: Group, cell: Tensor, cells: Cells, parameters: Parameters | None) -> Relaxation:
    """The network of term p on cell `cell[p]` for every p; with its own parameters if None.

    A network meets few of the cells, so each pair is relaxed by itself; but not deep ones, whose
    weights are too many to be copied for every pair.
    """
    given = terms.networks.parameters if parameters is None else parameters
    architecture = terms.networks.architecture
    if architecture.depth <= 1:
        own = {name: value[terms.members] for name, value in given.items()}
        centre, radius = cells.centre[cell].unsqueeze(1), cells.radius[cell].unsqueeze(1)
        return relax(architecture, own, centre=centre, radius=radius)
    used, network = torch.unique(terms.members, return_inverse=True)
    chosen = {name: value[used] for name, value in given.items()}
    relaxed = relax(architecture, chosen, centre=cells.centre, radius=cells.radius)
    return relaxed.pairs(network, cell)


def _paired(start: IntArray, rules: IntArray, *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every term of a cell's rule beside the cell: term and cell numbers, (pairs,) each."""
    first, count = start[rules], start[rules + 1] - start[rules]
    cell = np.repeat(np.arange(len(rules)), count)
    begin = np.cumsum(count) - count
    term = np.arange(len(cell)) - np.repeat(begin - first, count)
    return torch.as_tensor(term, device=device), torch.as_tensor(cell, device=device)


def _tables(rules: Sequence[RuleTerms]) -> list[_Table]:
    """One table per part and number of outputs on, over all rules."""
    kinds: dict[tuple[int, int], list[list[Group]]] = {}
    for number, rule in enumerate(rules):
        for group in rule.groups:
            kind = (group.part, 0 if group.on is None else group.on.shape[1])
            kinds.setdefault(kind, [[] for _ in rules])[number].append(group)
    return [_table(groups) for groups in kinds.values()]


def _table(by_rule: list[list[Group]]) -> _Table:
    counts = [sum(len(group.weights_at) for group in groups) for groups in by_rule]
    groups = [group for own in by_rule for group in own]
    terms = Group(
        groups[0].part,
        groups[0].networks,
        torch.cat([group.network for group in groups]),
        None,
        torch.cat([group.weights_at for group in groups]),
        torch.cat([group.constant for group in groups]),
        torch.cat([group.slope for group in groups]),
        _joined([group.on for group in groups]),
        _joined([group.off for group in groups]),
        _joined([group.combination for group in groups]),
    )
    return _Table(np.cumsum([0, *counts]), terms)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
