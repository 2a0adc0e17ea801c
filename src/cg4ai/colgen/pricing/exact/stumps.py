"""Exact pricing of decision stumps: every feature and every threshold, best leaf values.

Leaf values come in closed form, many leaves at a time. A leaf gathers what its inputs contribute:
`weight` and `moment` of the loss, `price` of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.finite import TOLERANCE
from cg4ai.colgen.pricing.exact.listed import MemberListing, find_next_members
from cg4ai.colgen.pricing.leaf_values import TOLERANCE as ROW_TOLERANCE
from cg4ai.colgen.pricing.leaf_values import (
    LeafRefitPricer,
    build_probability_extremes,
    build_range_extremes,
    fit_leaves,
)
from cg4ai.colgen.pricing.reduced_cost import PriceTerms, compute_price_terms
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import AnyObjective, Supervised
from cg4ai.protocols import Pricer, PricerCapabilities, PricingRequest
from cg4ai.records import Array, IntArray, PricingResult

ROUNDING = 1e-13  # relative to the sum of absolute terms; subtracted from every bound


@dataclass(frozen=True, slots=True)
class LeafSolution:
    """`values` (leaves, q), `cost` and `lower_bound` (leaves,).

    The bound is proven up to rounding: no admissible leaf value costs less.
    """

    values: Array
    cost: Array
    lower_bound: Array


class LeafSolver(Protocol):
    """Solves leaves from sums over their inputs of per-input statistics."""

    def solve(self, statistics: Array) -> LeafSolution:
        """`statistics` (leaves, s) -> the best value of each leaf."""
        ...

    def magnitude(self, totals: Array) -> float:
        """A bound on the absolute terms summed into any leaf's cost, for rounding margins."""
        ...


@dataclass(frozen=True, slots=True)
class BoxLeaves:
    """Squared loss or none: `weight v^2 - 2 moment v + price v` per output, low <= v <= high.

    Statistics (leaves, 1 + 2 q): weight, moments, prices.
    """

    low: Array
    high: Array

    def solve(self, statistics: Array) -> LeafSolution:
        count = len(self.low)
        weight = np.maximum(statistics[:, :1], 0.0)
        linear = statistics[:, 1 + count :] - 2 * statistics[:, 1 : 1 + count]
        corner = np.where(linear > 0, self.low, self.high)
        inner = -linear / (2 * np.where(weight > 0, weight, 1.0))
        values = np.where(weight > 0, np.clip(inner, self.low, self.high), corner)
        cost = (weight * values**2 + linear * values).sum(1)
        return LeafSolution(values, cost, cost)

    def magnitude(self, totals: Array) -> float:
        largest = float(np.maximum(np.abs(self.low), np.abs(self.high)).max())
        return float(totals[0]) * largest**2 * len(self.low) + float(totals[1:].sum()) * 2 * largest


@dataclass(frozen=True, slots=True)
class SimplexLeaves:
    """Log loss or none: `sum_c -count_c log p_c + price_c p_c`, p in the simplex, p_c >= floor.

    Statistics (leaves, 2 q): counts, prices. The multiplier nu of `sum p = 1` is found by
    bisection; the Lagrangian at any nu is a lower bound.
    """

    size: int
    floor: float

    def solve(self, statistics: Array) -> LeafSolution:
        counts = np.maximum(statistics[:, : self.size], 0.0)
        prices = statistics[:, self.size :]
        if not counts.any():
            return self._linear(prices)
        low = -prices.min(1)  # one class at its cap: the sum is at least 1
        high = (counts / self.floor - prices).max(1)  # all classes at the floor: at most 1
        for _ in range(64):
            middle = (low + high) / 2
            above = self._values(counts, prices, middle).sum(1) > 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        over, under = self._values(counts, prices, low), self._values(counts, prices, high)
        excess, lack = over.sum(1) - 1, 1 - under.sum(1)
        gap = excess + lack
        share = np.where(gap > 0, excess / np.where(gap > 0, gap, 1.0), 0.0)[:, None]
        values = (1 - share) * over + share * under
        values /= values.sum(1, keepdims=True)
        cost = (-counts * np.log(values) + prices * values).sum(1)
        bound = np.maximum(
            self._lagrangian(counts, prices, over, low),
            self._lagrangian(counts, prices, under, high),
        )
        return LeafSolution(values, cost, np.minimum(bound, cost))

    def _values(self, counts: Array, prices: Array, multiplier: Array) -> Array:
        """Minimiser over [floor, cap] of each class's Lagrangian term."""
        slope = prices + multiplier[:, None]
        cap = 1 - (self.size - 1) * self.floor
        inner = counts / np.where(slope > 0, slope, 1.0)
        return np.asarray(np.where(slope > 0, np.clip(inner, self.floor, cap), cap))

    @staticmethod
    def _lagrangian(counts: Array, prices: Array, values: Array, multiplier: Array) -> Array:
        slope = prices + multiplier[:, None]
        return np.asarray((-counts * np.log(values) + slope * values).sum(1) - multiplier)

    def _linear(self, prices: Array) -> LeafSolution:
        values = np.full_like(prices, self.floor)
        values[np.arange(len(prices)), prices.argmin(1)] += 1 - self.size * self.floor
        cost = (prices * values).sum(1)
        return LeafSolution(values, cost, cost)

    def magnitude(self, totals: Array) -> float:
        counts, prices = totals[: self.size], totals[self.size :]
        return float(counts.sum() * -np.log(self.floor) / self.floor + prices.sum())


@dataclass(frozen=True, slots=True)
class _Stump:
    cost: float
    feature: int
    threshold: float
    left: Array
    right: Array


class StumpPricer(PricerDefaults):
    """All stumps `left if x[feature] <= threshold else right`, by full enumeration.

    A reduced cost depends on a stump only through its outputs at the training and row inputs, so
    thresholds between their distinct values are all there are. Leaf values lie in the box
    [`low`, `high`] per output (default: the range of the targets) for the losses `squared` and
    `none`, or, with `leaves="simplex"` (the default for `log_loss`), are probabilities of at
    least `floor`. A `mixture` objective is the linear case of the same. Rows must be linear.
    A call proposes the best stump of each of the `per_call` best features of each block.
    """

    capabilities = PricerCapabilities(needs_labels=True, linear_rows_only=True, proves="stumps")
    fits_rows = True

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        low: float | Array | None = None,
        high: float | Array | None = None,
        leaves: Literal["box", "simplex"] | None = None,
        floor: float = 1e-3,
        per_call: int = 4,
    ) -> None:
        if input_size < 1 or output_size < 1:
            raise InvalidInput(
                f"sizes must be at least 1, got {input_size} inputs and {output_size} outputs",
                code="range",
            )
        if leaves not in (None, "box", "simplex"):
            raise InvalidInput(
                f"leaves must be 'box' or 'simplex', got {leaves!r}", code="unknown-name"
            )
        if not 0 < floor < 1:
            raise InvalidInput(
                f"floor must lie strictly between 0 and 1, got {floor}", code="range"
            )
        if per_call < 1:
            raise InvalidInput(f"per_call must be at least 1, got {per_call}", code="range")
        self.input_size, self.output_size = input_size, output_size
        self.low, self.high = low, high
        self.leaves = leaves
        self.floor = floor
        self.per_call = per_call

    def price(self, request: PricingRequest) -> PricingResult:
        self._check(request)
        terms = compute_price_terms(request)
        chosen: list[_Stump] = []
        blocks: list[int] = []
        bounds = np.empty(len(request.rows.layout))
        for block, positions in enumerate(request.rows.layout.blocks):
            leaves = self._leaves(request, positions)
            stumps, bound = _enumerate(request, terms, positions, leaves)
            gamma = float(request.duals.blocks[block])
            bounds[block] = bound - gamma - ROUNDING * abs(gamma)
            good = [stump for stump in stumps if stump.cost - gamma < -TOLERANCE * request.unit]
            chosen += good[: self.per_call]
            blocks += [block] * len(good[: self.per_call])
        return PricingResult(
            members=self._members(chosen) if chosen else None,
            blocks=np.array(blocks, dtype=np.int64),
            groups=np.full(len(chosen), -1),
            lower_bound=bounds,
        )

    def for_single_models(self, pressure: float) -> Pricer:
        """With leaf values that keep the rows."""
        return LeafRefitPricer(self)

    def can_list(self, objective: AnyObjective, layout: Layout) -> bool:
        """Of one block: leaf values of several would have to be fitted together."""
        return len(layout) == 1 and isinstance(objective, Supervised)

    def list_members(
        self, request: PricingRequest, lower: Array, *, start: int, count: int, most: float
    ) -> MemberListing:
        """Thresholds by excess, each with the leaf values that are best under all rows."""
        self._check(request)
        positions = request.rows.layout.blocks[0]
        leaves = self._leaves(request, positions)
        cuts = list(_cuts(request, _at_all_inputs(request), positions, leaves))
        bounds = np.array([cut.cost for cut in cuts])
        excess = bounds - float(request.duals.blocks[0]) - lower[0]
        wanted, beyond = find_next_members(excess, start=start, count=count, most=most)
        if isinstance(leaves, SimplexLeaves):
            extremes = build_probability_extremes(2, leaves.size, leaves.floor)
        else:
            assert isinstance(leaves, BoxLeaves)
            extremes = build_range_extremes(2, leaves.low, leaves.high)
        trees = [self._members([cuts[number]]) for number in wanted.tolist()]
        fitted = [fit_leaves(tree, request, extremes) for tree in trees]
        kept = [one for one in fitted if one.lacking <= ROW_TOLERANCE]
        best = min(kept, key=lambda one: one.bound, default=None)  # of one block it is all we need
        found = [] if best is None else [(best.tree, np.zeros(1, np.int64))]
        inside = min((one.bound for one in fitted), default=np.inf)
        return MemberListing(found, len(wanted), beyond, inside)

    def _check(self, request: PricingRequest) -> None:
        width = request.objective.inputs.shape[1]
        longest = max(len(block) for block in request.rows.layout.blocks)
        if width != self.input_size or longest > self.output_size:
            raise InvalidInput(
                f"the stump pricer was made for {self.input_size} features and blocks of up to "
                f"{self.output_size} outputs, the problem has {width} and {longest}",
                code="shape",
            )

    def _leaves(self, request: PricingRequest, positions: IntArray) -> LeafSolver:
        objective = request.objective
        loss = objective.loss if isinstance(objective, Supervised) else "none"
        kind = self.leaves or ("simplex" if loss == "log_loss" else "box")
        fitting = {"box": ("squared", "none"), "simplex": ("log_loss", "none")}[kind]
        if loss not in fitting:
            raise InvalidInput(
                f"stumps with {kind} leaves are priced exactly for the losses "
                f"{' and '.join(fitting)}, got {loss!r}; change the loss or the leaves, "
                "or use TreePricer",
                code="unsupported",
            )
        if kind == "simplex":
            if len(positions) != request.rows.layout.output_size or len(positions) < 2:
                raise InvalidInput(
                    "probability leaves need all outputs, two or more, in one block",
                    code="unsupported",
                )
            if self.floor * len(positions) > 1:
                raise InvalidInput(
                    f"floor {self.floor} leaves no probabilities for {len(positions)} classes",
                    code="range",
                )
            return SimplexLeaves(len(positions), self.floor)
        low, high = self._box(request)
        return BoxLeaves(low[positions], high[positions])

    def _box(self, request: PricingRequest) -> tuple[Array, Array]:
        objective, size = request.objective, request.rows.layout.output_size
        targets = np.asarray(objective.targets) if isinstance(objective, Supervised) else None
        usable = targets is not None and targets.ndim == 2
        if (self.low is None or self.high is None) and not usable:
            raise InvalidInput(
                "without numeric targets (n, r) there is no default range of leaf values; "
                "set StumpPricer(low=..., high=...)",
                code="missing-argument",
            )
        low = targets.min(0) if self.low is None and targets is not None else self.low
        high = targets.max(0) if self.high is None and targets is not None else self.high
        lower = np.broadcast_to(np.asarray(low, np.float64), (size,))
        upper = np.broadcast_to(np.asarray(high, np.float64), (size,))
        if np.any(lower > upper) or not np.all(np.isfinite([lower, upper])):
            raise InvalidInput(
                f"leaf values need finite low <= high, got {low} and {high}", code="range"
            )
        return lower, upper

    def _members(self, stumps: list[_Stump]) -> TreeMembers:
        """Trees of three nodes: root, left, right; shorter blocks are padded with zero outputs."""
        count = len(stumps)
        feature = np.zeros((count, 1, 3), dtype=np.int64)
        threshold = np.zeros((count, 1, 3))
        value = np.zeros((count, 1, 3, self.output_size))
        for number, stump in enumerate(stumps):
            feature[number, 0, 0] = stump.feature
            threshold[number, 0, 0] = stump.threshold
            value[number, 0, 1, : len(stump.left)] = stump.left
            value[number, 0, 2, : len(stump.right)] = stump.right
        return TreeMembers(
            feature,
            threshold,
            left=np.tile([1, 1, 2], (count, 1, 1)),
            right=np.tile([2, 1, 2], (count, 1, 1)),
            value=value,
            input_size=self.input_size,
        )


def _statistics(
    request: PricingRequest, terms: PriceTerms, positions: IntArray, leaves: LeafSolver
) -> tuple[Array, Array, float]:
    """Inputs (N, d), what each adds to its leaf (N, s), and the constant of the loss."""
    priced = terms.prices[:, positions]
    count = len(positions)
    width = 2 * count + (1 if isinstance(leaves, BoxLeaves) else 0)
    inputs = terms.inputs
    rows = np.concatenate([np.zeros((len(priced), width - count)), priced], axis=1)
    objective, constant = request.objective, 0.0
    if terms.charge and isinstance(objective, Supervised) and objective.loss != "none":
        n = len(objective.inputs)
        raw = np.ones(n) if objective.sample_weight is None else objective.sample_weight
        weights = terms.charge * raw / raw.sum()
        data = np.zeros((n, width))
        if isinstance(leaves, BoxLeaves):
            targets = np.asarray(objective.targets, np.float64)[:, positions]
            data[:, 0] = weights
            data[:, 1 : 1 + count] = weights[:, None] * targets
            constant = float((weights[:, None] * targets**2).sum())
        else:
            data[np.arange(n), np.asarray(objective.targets, np.int64)] = weights
        inputs = np.concatenate([objective.inputs, inputs])
        rows = np.concatenate([data, rows])
    if len(inputs) == 0:  # nothing is priced: any stump will do, one dummy input names one
        inputs, rows = np.zeros((1, objective.inputs.shape[1])), np.zeros((1, width))
    return inputs, rows, constant


def _enumerate(
    request: PricingRequest, terms: PriceTerms, positions: IntArray, leaves: LeafSolver
) -> tuple[list[_Stump], float]:
    """The best stump of each feature, best first, and a lower bound over all of them.

    Costs and bound are without gamma.
    """
    inputs, statistics, constant = _statistics(request, terms, positions, leaves)
    magnitude = leaves.magnitude(np.abs(statistics).sum(0)) + constant
    stumps, bound = [], np.inf
    for feature in range(inputs.shape[1]):
        place_of = _places(inputs, statistics, feature, leaves)
        column, ends, solution = place_of.column, place_of.ends, place_of.solution
        cost = solution.cost.reshape(2, -1).sum(0)
        bound = min(bound, float(solution.lower_bound.reshape(2, -1).sum(0).min()))
        place = int(cost.argmin())
        stumps.append(
            _Stump(
                cost=float(cost[place]) + constant,
                feature=feature,
                threshold=_between(column, int(ends[place])),
                left=solution.values[place],
                right=solution.values[len(ends) + place],
            )
        )
    stumps.sort(key=lambda stump: stump.cost)
    return stumps, bound + constant - ROUNDING * magnitude


def _at_all_inputs(request: PricingRequest) -> PriceTerms:
    """The prices, with the inputs of rows that have none: thresholds tell those apart, too."""
    terms = compute_price_terms(request)
    unpriced = [rows.inputs for rows in request.rows.batches]
    inputs = np.concatenate([terms.inputs, *unpriced])
    prices = np.zeros((len(inputs), terms.prices.shape[1]))
    prices[: len(terms.prices)] = terms.prices
    return PriceTerms(inputs, prices, terms.charge)


def _cuts(
    request: PricingRequest, terms: PriceTerms, positions: IntArray, leaves: LeafSolver
) -> Iterator[_Stump]:
    """Every feature and threshold, its `cost` a lower bound of what its stumps cost."""
    inputs, statistics, constant = _statistics(request, terms, positions, leaves)
    rounding = ROUNDING * (leaves.magnitude(np.abs(statistics).sum(0)) + constant)
    for feature in range(inputs.shape[1]):
        place = _places(inputs, statistics, feature, leaves)
        lower = place.solution.lower_bound.reshape(2, -1).sum(0)
        for number, end in enumerate(place.ends.tolist()):
            yield _Stump(
                cost=float(lower[number]) + constant - rounding,
                feature=feature,
                threshold=_between(place.column, end),
                left=place.solution.values[number],
                right=place.solution.values[len(place.ends) + number],
            )


@dataclass(frozen=True, slots=True)
class _Places:
    """Where one feature can be cut: its sorted values, the last of each left side, the leaves."""

    column: Array
    ends: IntArray
    solution: LeafSolution


def _places(inputs: Array, statistics: Array, feature: int, leaves: LeafSolver) -> _Places:
    order = np.argsort(inputs[:, feature], kind="stable")
    column = inputs[order, feature]
    # The last place keeps everything left: the constant members.
    ends = np.append(np.flatnonzero(column[1:] > column[:-1]), len(column) - 1)
    sums = np.cumsum(statistics[order], axis=0)
    left = sums[ends]
    right = sums[-1] - left
    right[-1] = 0.0
    return _Places(column, ends, leaves.solve(np.concatenate([left, right])))


def _between(column: Array, end: int) -> float:
    """A threshold t with column[end] <= t < column[end + 1], midway if rounding allows."""
    if end + 1 == len(column):
        return float(column[end])
    middle = float(column[end] / 2 + column[end + 1] / 2)
    return middle if column[end] <= middle < column[end + 1] else float(column[end])
