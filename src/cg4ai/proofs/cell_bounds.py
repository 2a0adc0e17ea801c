"""Bounds of given cells for training: differentiable in parameters, and as rows of the master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

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
)
from cg4ai.proofs.bounds.pairs import PairBounds
from cg4ai.proofs.bounds.terms import Parts, RuleTerms
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
        if not isinstance(region, Box | Ball):
            raise InvalidInput(f"{requirement.name} holds over no Box or Ball")
        lower, upper = region.bounds()
        self.parts = Parts(ensemble.parts, ensemble.layout, lower=lower, upper=upper)
        self.weights = torch.as_tensor(
            np.concatenate([part.weights for part in ensemble.parts]), device=self.parts.device
        )
        self._terms: dict[int, RuleTerms] = {}
        self._pairs: PairBounds | None = None

    def _rule(self, rule: int) -> RuleTerms:
        if rule not in self._terms:
            terms = self.parts.take_apart(self.rules, rule, everyone=True)
            if terms.trees:
                raise InvalidInput(
                    f"rule {rule} involves trees, whose bounds have no gradients and no pieces"
                )
            self._terms[rule] = terms
        return self._terms[rule]

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
        if self._pairs is None:
            everything = [self._rule(rule) for rule in range(len(self.rules))]
            self._pairs = PairBounds(everything, self.parts.parts)
        cells = self._cells(lower, upper)
        return self._pairs.upper(rules, cells, weights=mixing, parameters=given)

    def coefficients(
        self,
        rules: IntArray,
        lower: Array,
        upper: Array,
        *,
        weights: Array | None = None,
        form: Literal["cut", "sufficient"] = "cut",
    ) -> Array:
        """(members, m): rows `sum_i coefficient[i, j] weight_i <= limit` for the master.

        "cut": the quadratic bound is convex and homogeneous in the weights; this is its slope at
        `weights`, so the row holds with equality of bound and value there and every mixture whose
        bound is within the limit keeps it. "sufficient": each member's own bound on the cell, so
        that every mixture that keeps the row is within the limit all over the cell.
        """
        if form not in ("cut", "sufficient"):
            raise InvalidInput(f'form must be "cut" or "sufficient", got {form!r}')
        mixing = self.weights
        if weights is not None:
            mixing = torch.as_tensor(weights, device=self.parts.device)
        result = np.zeros((len(self.weights), len(rules)))
        with torch.no_grad():
            for rule in np.unique(rules):
                chosen = np.flatnonzero(rules == rule)
                cells = self._cells(lower[chosen], upper[chosen])
                summed = pieces(self._rule(int(rule)), self.parts.parts, cells)
                own = _cut(summed, cells, mixing) if form == "cut" else _own(summed, cells)
                for at, values in own:
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


def _own(summed: list[Pieces], cells: Cells) -> list[tuple[Tensor, Tensor]]:
    """Each member's quadratic bounded by itself, base and terms together."""
    members, place = torch.unique(torch.cat([piece.at for piece in summed]), return_inverse=True)
    constant = torch.cat([piece.constant for piece in summed])
    linear = torch.cat([piece.linear for piece in summed])
    batch, size = cells.lower.shape
    square = linear.new_zeros(len(members), batch, size, size)
    starts = np.cumsum([0, *(len(piece.at) for piece in summed)])
    for piece, start in zip(summed, starts, strict=False):
        if piece.share is not None:
            own = place[int(start) : int(start) + len(piece.at)]
            products = torch.einsum("ni,nbj->nbij", piece.factor, piece.share)
            square = square.index_add(0, own, products)
    form = Quadratic(
        constant.new_zeros(len(members), batch).index_add(0, place, constant).flatten(),
        linear.new_zeros(len(members), batch, size).index_add(0, place, linear).flatten(0, 1),
        (0.5 * (square + square.mT)).flatten(0, 1),
    )
    bounds = quadratic_above(form, cells.radius.repeat(len(members), 1))
    return [(members, bounds.reshape(len(members), batch))]
