"""A rule taken apart before any cell is bounded: which members matter, and through which terms.

Over the region the value of a rule is a sum over members i of
`weight_i (base_i(x) + sum_t factor_t(x) share_t(x))`, where base and factors are affine in x,
every factor is >= 0 on the region, and a share is the softmax share of some outputs or a
combination of linear outputs. So upper bounds of shares are all that is needed. Trees have no
such terms: `trees.py` bounds them as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.trees import TreeMembers
from cg4ai.proofs.bounds.networks import relax
from cg4ai.proofs.bounds.trees import TreeBound, WeightedTrees, remove_input_rounding
from cg4ai.records import Array
from cg4ai.rules.affine import AffineRules

# Outputs whose softmax share is below exp(-690) < 1e-299 all over the region are left out.
ABSENT = 690.0


@dataclass(frozen=True, eq=False)
class Affine:
    """`constant + slope . x`."""

    constant: float
    slope: Array

    def minus(self, other: Affine) -> Affine:
        return Affine(self.constant - other.constant, self.slope - other.slope)

    def range(self, lower: Array, upper: Array) -> tuple[float, float]:
        """Least and largest over a box."""
        down = np.where(self.slope >= 0, lower, upper) @ self.slope
        up = np.where(self.slope >= 0, upper, lower) @ self.slope
        return float(self.constant + down), float(self.constant + up)


@dataclass(frozen=True, eq=False)
class Term:
    """One share of one member: `on` and `off` outputs of a softmax, or a `combination` of scores.

    The fields that do not apply are None.
    """

    member: int
    factor: Affine
    on: tuple[int, ...] | None = None
    off: tuple[int, ...] | None = None
    combination: Array | None = None


@dataclass(frozen=True)
class Group:
    """Terms of one stack of networks, that of part `part`, that are bounded in one call.

    `members` (M,) are the networks in the stack, `term_network` (N,) says which of them each term
    uses (None: term n uses network n), `weights_at` (N,) the terms' members in the whole ensemble.
    Either `on` (N, n) and `off` (N, K), or `combination` (N, K), is given. Factors are
    `constant` (N,) + `slope` (N, d) . x.
    """

    part: int
    networks: NetworkMembers
    members: Tensor
    term_network: Tensor | None
    weights_at: Tensor
    constant: Tensor
    slope: Tensor
    on: Tensor | None
    off: Tensor | None
    combination: Tensor | None

    @property
    def network(self) -> Tensor:
        """(N,): the network of each term."""
        return self.members if self.term_network is None else self.members[self.term_network]

    def take(self, terms: Tensor) -> Group:
        """Some of the terms, each with a network of its own."""
        return Group(
            self.part,
            self.networks,
            self.network[terms],
            None,
            self.weights_at[terms],
            self.constant[terms],
            self.slope[terms],
            None if self.on is None else self.on[terms],
            None if self.off is None else self.off[terms],
            None if self.combination is None else self.combination[terms],
        )


@dataclass(frozen=True)
class RuleTerms:
    """One rule: groups of terms, the members' affine bases, and tree members bounded apart.

    `base_constant` (n,), `base_slope` (n, d) for the members `base_at` (n,) of the ensemble;
    """

    rule: int
    groups: tuple[Group, ...]
    base_at: Tensor
    base_constant: Tensor
    base_slope: Tensor
    trees: TreeBound | None


class Parts:
    """The members of an ensemble, numbered through all parts, as rules see them."""

    def __init__(
        self, parts: tuple[Part, ...], layout: Layout, *, lower: Array, upper: Array
    ) -> None:
        for part in parts:
            if not isinstance(part.members, NetworkMembers | TreeMembers | ConstantMembers):
                raise InvalidInput(
                    f"members of kind {type(part.members).__name__} cannot be certified; "
                    "networks, affine models, trees and constants can",
                    code="unsupported",
                )
            if isinstance(part.members, TreeMembers) and part.members.subset is not None:
                raise InvalidInput(
                    "trees with categorical splits cannot be certified: bounds over boxes know "
                    "thresholds only; fit them without categorical features",
                    code="unsupported",
                )
            self.device = part.members.device  # one for all parts
        self.parts, self.layout = parts, layout
        self.lower, self.upper = lower, upper
        self.starts = np.cumsum([0, *(len(part.members) for part in parts)])
        self.absent = [self._absent_outputs(part) for part in parts]

    def _absent_outputs(self, part: Part) -> NDArray[np.bool_]:
        """(count, K): outputs with no share worth a rounding error anywhere in the region."""
        members = part.members
        if not isinstance(members, NetworkMembers) or not members.architecture.softmax_groups:
            return np.zeros((len(members), members.output_size), bool)
        device = members.device
        centre = torch.as_tensor(0.5 * (self.lower + self.upper), device=device)[None]
        radius = torch.as_tensor(0.5 * (self.upper - self.lower), device=device)[None]
        with torch.no_grad():
            relaxed = relax(members.architecture, members.parameters, centre=centre, radius=radius)
            eye = torch.eye(members.output_size, dtype=torch.float64, device=device)
            ranges = [relaxed.range(row.expand(len(members), 1, -1)) for row in eye]
        scores = relaxed.scores[:, 0].cpu().numpy()
        low = scores + np.stack([down[:, 0].cpu().numpy() for down, _ in ranges], 1)
        high = scores + np.stack([up[:, 0].cpu().numpy() for _, up in ranges], 1)
        absent = np.zeros_like(low, dtype=bool)
        start = 0
        for size in members.architecture.softmax_groups:
            own = slice(start, start + size)
            absent[:, own] = high[:, own] + ABSENT < low[:, own].max(1, keepdims=True)
            start += size
        return absent

    def take_apart(self, rules: AffineRules, rule: int) -> RuleTerms:
        """The terms of one rule."""
        constant, slope = rules.constant[rule], rules.slopes(rule)
        bases: dict[int, Affine] = {}
        trees: list[WeightedTrees] = []
        groups: list[Group] = []
        for number, part in enumerate(self.parts):
            chosen = [
                i
                for i, block in enumerate(part.blocks.tolist())
                if self._used(block, constant, slope)
            ]
            if isinstance(part.members, TreeMembers):
                if chosen:
                    trees.append(self._weighted(part.members, part, chosen, constant, slope))
                continue
            terms: list[Term] = []
            for i in chosen:
                outputs = self._coefficients(part, i, constant, slope)
                base, own = self._member_terms(part, number, i, outputs)
                bases[int(self.starts[number]) + i] = base
                terms += own
            if isinstance(part.members, NetworkMembers):
                groups += self._grouped(number, part.members, terms)
        device = self.device
        return RuleTerms(
            rule,
            tuple(groups),
            torch.as_tensor(np.array(list(bases), np.int64), device=device),
            torch.as_tensor(np.array([b.constant for b in bases.values()]), device=device),
            torch.as_tensor(
                np.array([b.slope for b in bases.values()]).reshape(-1, len(self.lower)),
                device=device,
            ),
            TreeBound(trees) if trees else None,
        )

    def _used(self, block: int, constant: Array, slope: Array) -> bool:
        positions = self.layout.blocks[block]
        return bool(constant[positions].any() or slope[positions].any())

    def _weighted(
        self, trees: TreeMembers, part: Part, chosen: list[int], constant: Array, slope: Array
    ) -> WeightedTrees:
        """The chosen members with their coefficients, zero beyond the outputs of their blocks."""
        blocks = [self.layout.blocks[int(part.blocks[i])] for i in chosen]
        size = max(len(positions) for positions in blocks)
        own_constant = np.zeros((len(chosen), size))
        own_slope = np.zeros((len(chosen), size, len(self.lower)))
        for n, positions in enumerate(blocks):
            own_constant[n, : len(positions)] = constant[positions]
            own_slope[n, : len(positions)] = slope[positions]
        which = np.array(chosen)
        return WeightedTrees(
            remove_input_rounding(trees.take(which)), part.weights[which], own_constant, own_slope
        )

    def _coefficients(self, part: Part, member: int, constant: Array, slope: Array) -> list[Affine]:
        """One per output of the member; outputs beyond its block count nothing."""
        positions = self.layout.blocks[int(part.blocks[member])]
        own = [Affine(float(constant[k]), slope[k]) for k in positions]
        surplus = part.members.output_size - len(positions)
        return own + [Affine(0.0, np.zeros(slope.shape[1]))] * surplus

    def _member_terms(
        self, part: Part, number: int, member: int, outputs: list[Affine]
    ) -> tuple[Affine, list[Term]]:
        members = part.members
        zero = Affine(0.0, np.zeros(len(self.lower)))
        if isinstance(members, ConstantMembers):
            values = members.values[member].cpu().numpy()
            return _sum([_scaled(a, float(v)) for a, v in zip(outputs, values, strict=True)]), []
        if not isinstance(members, NetworkMembers):
            raise InvalidInput(f"{type(members).__name__} has no terms", code="unsupported")
        if not members.architecture.softmax_groups:
            return zero, self._score_terms(member, outputs)
        base, terms, start = zero, [], 0
        for size in members.architecture.softmax_groups:
            absent = self.absent[number][member]
            present = [k for k in range(start, start + size) if not absent[k]]
            own_base, own = self._share_terms(member, present, outputs)
            base, start = _sum([base, own_base]), start + size
            terms += own
        return base, terms

    def _score_terms(self, member: int, outputs: list[Affine]) -> list[Term]:
        """Fixed coefficients make one combination; outputs with slopes have a term each."""
        size, one = len(outputs), Affine(1.0, np.zeros(len(self.lower)))
        fixed = np.array([0.0 if a.slope.any() else a.constant for a in outputs])
        terms = [Term(member, one, combination=fixed)] if fixed.any() else []
        for k, coefficient in enumerate(outputs):
            if coefficient.slope.any():
                row = np.eye(size)[k]
                for factor, sign in self._signed(coefficient):
                    terms.append(Term(member, factor, combination=sign * row))
        return terms

    def _share_terms(
        self, member: int, present: list[int], outputs: list[Affine]
    ) -> tuple[Affine, list[Term]]:
        """Outputs with equal coefficients are one share; the smallest coefficient is the base."""
        classes: dict[bytes, list[int]] = {}
        for k in present:
            key = np.append(outputs[k].slope + 0.0, outputs[k].constant + 0.0).tobytes()
            classes.setdefault(key, []).append(k)
        middle = 0.5 * (self.lower + self.upper)
        listed = sorted(
            classes.values(),
            key=lambda ks: outputs[ks[0]].constant + float(outputs[ks[0]].slope @ middle),
        )
        base, terms = outputs[listed[0][0]], []
        lowest = base
        for own in listed[1:]:
            rest = tuple(k for k in present if k not in own)
            for factor, sign in self._signed(outputs[own[0]].minus(lowest)):
                if sign > 0:
                    terms.append(Term(member, factor, on=tuple(own), off=rest))
                else:  # -factor * share = -factor + factor * (share of the others)
                    terms.append(Term(member, factor, on=rest, off=tuple(own)))
                    base = base.minus(factor)
        return base, terms

    def _signed(self, factor: Affine) -> list[tuple[Affine, int]]:
        """`factor` as a sum of sign times factors that are >= 0 over the region."""
        low, high = factor.range(self.lower, self.upper)
        if low >= 0:
            return [(factor, 1)] if high > 0 else []
        if high <= 0:
            return [(_scaled(factor, -1.0), -1)]
        flat = np.zeros_like(factor.slope)
        return [(Affine(factor.constant - low, factor.slope), 1), (Affine(-low, flat), -1)]

    def _grouped(self, number: int, networks: NetworkMembers, terms: list[Term]) -> list[Group]:
        """Terms with as many outputs on in one group each, and those of linear outputs in one."""
        kinds: dict[int, list[Term]] = {}
        for term in terms:
            kinds.setdefault(0 if term.on is None else len(term.on), []).append(term)
        return [self._group(number, networks, own) for own in kinds.values()]

    def _group(self, number: int, networks: NetworkMembers, terms: list[Term]) -> Group:
        device = self.device
        network, place = np.unique([term.member for term in terms], return_inverse=True)
        alone = len(network) == len(terms) and np.array_equal(place, np.arange(len(terms)))
        first = terms[0]
        off = combination = None
        if first.combination is not None:
            rows = np.stack([np.asarray(term.combination) for term in terms])
            combination = torch.as_tensor(rows, device=device)
        else:
            mask = np.zeros((len(terms), networks.output_size), bool)
            for n, term in enumerate(terms):
                mask[n, list(term.off or ())] = True
            off = torch.as_tensor(mask, device=device)
        on = None if first.on is None else torch.tensor([t.on for t in terms], device=device)
        return Group(
            number,
            networks,
            torch.as_tensor(network, device=device),
            None if alone else torch.as_tensor(place, device=device),
            torch.as_tensor(self.starts[number] + network[place], device=device),
            torch.tensor([t.factor.constant for t in terms], dtype=torch.float64, device=device),
            torch.as_tensor(np.stack([t.factor.slope for t in terms]), device=device),
            on,
            off,
            combination,
        )


def _scaled(affine: Affine, factor: float) -> Affine:
    return Affine(factor * affine.constant, factor * affine.slope)


def _sum(parts: list[Affine]) -> Affine:
    return Affine(sum(p.constant for p in parts), np.sum([p.slope for p in parts], axis=0))
