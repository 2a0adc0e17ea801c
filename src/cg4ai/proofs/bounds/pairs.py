"""Cells of many rules bounded in one call: training asks for a few cells of every rule at a time.

The terms of all rules stand in tables; a cell is paired with the terms of its rule, and each pair
is bounded by itself. The search, which has many cells of one rule, does not need this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.proofs.bounds.bound import Cells, Quadratic, quadratic_above
from cg4ai.proofs.bounds.networks import relax
from cg4ai.proofs.bounds.softmax import Above, scores_above, share_above
from cg4ai.proofs.bounds.terms import Group, RuleTerms
from cg4ai.protocols import Parameters
from cg4ai.records import IntArray


@dataclass(frozen=True)
class Table:
    """Terms of all rules that one call can bound; rule l has those from `start[l]` on.

    `network` (T,) are members within the part; the rest is as in `terms.Group`.
    """

    part: int
    start: IntArray
    network: Tensor
    weights_at: Tensor
    constant: Tensor
    slope: Tensor
    on: Tensor | None
    off: Tensor | None
    combination: Tensor | None


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


class PairBounds:
    """The rules of a requirement, each taken apart, in tables."""

    def __init__(self, rules: Sequence[RuleTerms], parts: Sequence[Part]) -> None:
        self.parts = parts
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
        """(m,): the bound of `rules[j]` on cell j, differentiable in parameters and weights."""
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
                above = self._above(table, term, cell, cells=cells, parameters=parameters)
                slope = table.slope[term]
                factor = table.constant[term] + (slope * centre[cell]).sum(-1)
                weight = weights[table.weights_at[term]]
                sums.add(cell, weight, factor=factor, slope=slope, above=above)
        return sums.upper(cells.radius)

    def _above(
        self,
        table: Table,
        term: Tensor,
        cell: Tensor,
        *,
        cells: Cells,
        parameters: Mapping[int, Parameters],
    ) -> Above:
        members = self.parts[table.part].members
        if not isinstance(members, NetworkMembers):
            raise InvalidInput(f"terms of {type(members).__name__} cannot be bounded")
        used, network = torch.unique(table.network[term], return_inverse=True)
        given = parameters.get(table.part, members.parameters)
        chosen = {name: value[used] for name, value in given.items()}
        relaxed = relax(
            members.architecture, chosen, centre=cells.centre, radius=cells.radius
        ).pairs(network, cell)
        if table.combination is not None:
            return scores_above(relaxed, table.combination[term])
        if table.on is None or table.off is None:
            raise InvalidInput("a table of terms has either outputs on and off, or a combination")
        return share_above(relaxed, table.on[term], off=table.off[term])


def _paired(start: IntArray, rules: IntArray, *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every term of a cell's rule beside the cell: term and cell numbers, (pairs,) each."""
    first, count = start[rules], start[rules + 1] - start[rules]
    cell = np.repeat(np.arange(len(rules)), count)
    begin = np.cumsum(count) - count
    term = np.arange(len(cell)) - np.repeat(begin - first, count)
    return torch.as_tensor(term, device=device), torch.as_tensor(cell, device=device)


def _tables(rules: Sequence[RuleTerms]) -> list[Table]:
    """One table per part and number of outputs on, over all rules."""
    kinds: dict[tuple[int, int], list[list[Group]]] = {}
    for number, rule in enumerate(rules):
        for group in rule.groups:
            kind = (group.part, 0 if group.on is None else group.on.shape[1])
            kinds.setdefault(kind, [[] for _ in rules])[number].append(group)
    return [_table(groups) for groups in kinds.values()]


def _table(by_rule: list[list[Group]]) -> Table:
    counts = [sum(len(group.weights_at) for group in groups) for groups in by_rule]
    groups = [group for own in by_rule for group in own]
    network = [
        group.members if group.term_network is None else group.members[group.term_network]
        for group in groups
    ]
    return Table(
        groups[0].part,
        np.cumsum([0, *counts]),
        torch.cat(network),
        torch.cat([group.weights_at for group in groups]),
        torch.cat([group.constant for group in groups]),
        torch.cat([group.slope for group in groups]),
        _joined([group.on for group in groups]),
        _joined([group.off for group in groups]),
        _joined([group.combination for group in groups]),
    )


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
