"""A proven distance from the optimum: no link is loaded above R times what the best routing needs.

The best routing of demands b over given paths has a maximum link utilisation of at least y . b for
every y that is feasible in the dual program: w >= 0 prices of the links that sum to one, y_d the
least of `sum over the links e of a path of w_e / capacity_e` over the paths of demand d. A
certificate carries such w. What is proven is that the anchor of a shield, flows that are affine in
the demands on each cell of a tree, keeps `load <= R y . b` on every cell, with one y for each link.
A shield moves any answer towards it until it keeps `load <= max over j of R y_j . b`, or takes it
whole, so each load is at most the larger of that bound and the anchor's own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.bands import Array
from cg4ai_checker.claim import Heading, checked, fields
from cg4ai_checker.errors import Rejected
from cg4ai_checker.file import Content
from cg4ai_checker.region import Region
from cg4ai_checker.scale import UNDERFLOW, UNIT, refuse_large, within_scale
from cg4ai_checker.words import ends, exact

KEYS = {"kind", "title", "requirement", "input_size", "output_size", "made_by", "about"}
WHOLE = 1e-9  # of a demand: by how much flows may miss it; what that adds to loads is counted
SMALLEST = 1e-60  # capacities, units and lower ends of demands
TREE = ("feature", "threshold", "left", "right", "slope", "offset")


@dataclass(frozen=True)
class Leaves:
    """The cells of a tree that demands can reach: node numbers (n,), and ends (n, d)."""

    nodes: NDArray[np.int64]
    lower: Array
    upper: Array


class RatioClaim(Heading):
    """A validated claim: network, demands, flows, prices and which of them proves what."""

    def __init__(self, content: Content) -> None:
        self._arrays, self._size = dict(content.arrays), content.size
        claim = fields(content.claim, KEYS, "the claim")
        super().__init__(claim)
        demands, paths = self.input_size, self.output_size
        self.ratio = float(self._take("ratio", ()))
        if not self.ratio >= 1:
            raise Rejected(f"a ratio to the optimum is at least 1, got {self.ratio}", code="range")
        self.region = self._region(demands)
        self.incidence: Array = self._take("incidence", (paths, None))
        self.arcs = self.incidence.shape[1]
        self.capacity: Array = self._positive("capacity", (self.arcs,))
        self.path_demand = self._index("path_demand", (paths,), demands)
        self._check_paths(demands)
        self._flows(demands, paths)
        self.arc_prices = self._prices("arc_prices")
        self.choice = self._index("choice", (len(self.feature), self.arcs), len(self.arc_prices))
        self.shield_prices = self._prices("shield_prices")
        self.rule_prices: Array = self._take("rule_prices", (len(self.shield_prices), demands))
        self.safe_split: Array = self._take("safe_split", (paths,))
        if self._arrays:
            raise Rejected(
                f"the archive holds arrays of no use, such as {sorted(self._arrays)[:5]}"
            )

    def _take(self, name: str, shape: tuple[int | None, ...], dtype: Any = np.float64) -> Any:
        if name not in self._arrays:
            raise Rejected(f"the array {name!r} is missing")
        return checked(self._arrays.pop(name), name, shape, dtype)

    def _positive(self, name: str, shape: tuple[int, ...]) -> Array:
        array: Array = self._take(name, shape)
        within_scale(array, name, least=SMALLEST)
        return array

    def _index(self, name: str, shape: tuple[int, ...], end: int) -> NDArray[np.int64]:
        index: NDArray[np.int64] = self._take(name, shape, np.int64)
        if index.size and (index.min() < 0 or index.max() >= end):
            raise Rejected(f"{name} must lie in 0..{end - 1}", code="range")
        return index

    def _region(self, demands: int) -> Region:
        lower = self._positive("lower", (demands,))
        upper: Array = self._take("upper", (demands,))
        if (lower > upper).any():
            raise Rejected("the region is empty: lower exceeds upper", code="empty")
        return Region(lower, upper)

    def _check_paths(self, demands: int) -> None:
        if not self.arcs:  # any number of prices of no link would take no byte
            raise Rejected("the network has no link", code="empty")
        if not np.isin(self.incidence, (0.0, 1.0)).all():
            raise Rejected("incidence must be 0 or 1: whether a path uses a link")
        if not np.array_equal(np.unique(self.path_demand), np.arange(demands)):
            raise Rejected("every demand needs a path")

    def _flows(self, demands: int, paths: int) -> None:
        self.feature: NDArray[np.int64] = self._take("feature", (None,), np.int64)
        nodes = len(self.feature)
        self.threshold: Array = self._take("threshold", (nodes,))
        self.left = self._index("left", (nodes,), nodes)
        self.right = self._index("right", (nodes,), nodes)
        self.slope: Array = self._take("slope", (nodes, paths, demands))
        self.offset: Array = self._take("offset", (nodes, paths))
        self.unit = self._positive("unit", (demands,))
        here = np.arange(nodes)
        self.is_leaf = (self.left == here) & (self.right == here)
        later = (self.left > here) & (self.right > here)
        if nodes == 0 or not (self.is_leaf | later).all():
            raise Rejected("children of a node of the tree must come after it")
        if (self.feature < 0).any() or (self.feature >= demands).any():
            raise Rejected(f"feature must lie in 0..{demands - 1}", code="range")

    def _prices(self, name: str) -> Array:
        prices: Array = self._take(name, (None, self.arcs))
        if not len(prices) or (prices < 0).any() or not (prices.sum(axis=1) > SMALLEST).all():
            raise Rejected(f"{name} must be at least 0, and not all of a vector 0", code="range")
        return prices

    @property
    def tree(self) -> dict[str, NDArray[Any]]:
        """The arrays of the anchor, by name."""
        return {name: getattr(self, name) for name in TREE}

    def demand_prices(self, arc_prices: Array) -> Array:
        """(k, A) -> (k, D): a unit of each demand at least costs this, rounded down."""
        refuse_large(arc_prices, self.incidence.T, least=self._size)
        per_path = (arc_prices / self.capacity) @ self.incidence.T
        cheapest = np.stack(
            [
                per_path[:, self.path_demand == demand].min(axis=1)
                for demand in range(self.input_size)
            ],
            axis=1,
        )
        down = 1.0 - UNIT * (2 * self.arcs + 64)
        each = cheapest / arc_prices.sum(axis=1, keepdims=True)
        return np.asarray(np.maximum(each * down - UNDERFLOW, 0.0))

    def leaves(self) -> Leaves:
        """Closed cells, which together cover the region; a cell that two nodes lead to: both."""
        size = (len(self.feature), self.input_size)
        lower, upper = np.full(size, np.inf), np.full(size, -np.inf)
        lower[0], upper[0] = self.region.lower, self.region.upper
        for node in np.flatnonzero(~self.is_leaf).tolist():
            low, high = lower[node], upper[node]
            if not (low <= high).all():
                continue
            column, cut = self.feature[node], self.threshold[node]
            below, above = high.copy(), low.copy()
            below[column], above[column] = min(high[column], cut), max(low[column], cut)
            for child, (one, other) in (
                (self.left[node], (low, below)),
                (self.right[node], (above, high)),
            ):
                if (one <= other).all():
                    lower[child] = np.minimum(lower[child], one)
                    upper[child] = np.maximum(upper[child], other)
        reached = np.flatnonzero(self.is_leaf & (lower <= upper).all(axis=1))
        return Leaves(reached, lower[reached], upper[reached])

    def verify(self) -> tuple[float, int]:
        """The most that a load exceeds R times its bound, at most 0, and cells; or Rejected."""
        self._verify_shield()
        self._verify_safe()
        prices, leaves = self.demand_prices(self.arc_prices), self.leaves()
        worst = -np.inf
        for node, low, high in zip(leaves.nodes.tolist(), leaves.lower, leaves.upper, strict=True):
            over = self._excess(node, low, high, prices[self.choice[node]])
            arc = int(np.nan_to_num(over, nan=np.inf).argmax())
            if not over[arc] <= 0:
                cell = ends(Region(low, high))
                raise Rejected(
                    f"not proven: the load of link {arc} exceeds {exact(self.ratio)} times its "
                    f"bound by up to {over[arc]:.3g} on the cell {cell}",
                    code="not-proven",
                )
            worst = max(worst, float(over[arc]))
        return worst, len(leaves.nodes)

    def _excess(self, node: int, low: Array, high: Array, prices: Array) -> Array:
        """(A,): by how much loads exceed ratio x prices (A, D) on a cell, at most."""
        slope, offset = self.slope[node], self.offset[node]
        below = self._below_zero(slope, offset, low, high)
        self._verify_sums(node, low, high)
        share = self.incidence * (self.unit[self.path_demand][:, None] / self.capacity)
        share = share.T * (1 + WHOLE)  # (A, P): what a flow adds to a load
        loads, fixed = share @ slope, share @ (offset + below)
        over = loads - self.ratio * prices
        value = fixed + np.maximum(over * low, over * high).sum(axis=1)
        sizes = share @ np.abs(slope) + self.ratio * prices
        mass = sizes @ high + share @ (np.abs(offset) + below)
        count = self.output_size + self.input_size + 64
        return np.asarray(value + UNIT * count * mass + UNDERFLOW)

    def _below_zero(self, slope: Array, offset: Array, low: Array, high: Array) -> Array:
        """(P,): by how much each flow may be below 0 on a cell, which is then taken for 0."""
        least = offset + np.minimum(slope * low, slope * high).sum(axis=1)
        mass = np.abs(offset) + np.abs(slope) @ high
        lost = UNIT * (self.input_size + 64) * mass + UNDERFLOW
        return np.asarray(np.maximum(lost - least, 0.0))

    def _verify_sums(self, node: int, low: Array, high: Array) -> None:
        """Flows of a demand, in its unit, sum up to no less than it, but for a hair."""
        own = np.zeros((self.input_size, self.output_size))
        own[self.path_demand, np.arange(self.output_size)] = self.unit[self.path_demand]
        slope = own @ self.slope[node] * (1 + WHOLE) - np.eye(self.input_size)
        fixed = own @ self.offset[node] * (1 + WHOLE)
        least = fixed + np.minimum(slope * low, slope * high).sum(axis=1)
        sizes = own @ np.abs(self.slope[node]) + np.eye(self.input_size)
        mass = sizes @ high + own @ np.abs(self.offset[node])
        count = self.output_size + self.input_size + 64
        if not (least >= UNIT * count * mass + UNDERFLOW).all():
            demand = int(np.argmin(least))
            raise Rejected(
                f"not proven: the flows of demand {demand} do not sum up to it", code="not-proven"
            )

    def _verify_shield(self) -> None:
        """The rule of the shield asks for no more than the optimum allows."""
        most = self.ratio * self.demand_prices(self.shield_prices) * (1 - UNIT)
        if not (self.rule_prices <= most).all():
            raise Rejected(
                "not proven: the shield's bound is above the ratio times what its prices prove",
                code="not-proven",
            )

    def _verify_safe(self) -> None:
        """The split that a shield of the capacities moves to overloads no link at the corner."""
        split, demand = self.safe_split, self.path_demand
        if (split < 0).any() or (np.abs(np.bincount(demand, split) - 1) > WHOLE).any():
            raise Rejected("the safe split must be shares of paths that sum to one")
        flows = split * self.region.upper[demand]
        loads = (flows @ self.incidence) / self.capacity * (1 + UNIT * (self.output_size + 64))
        if not (loads <= 1).all():
            arc = int(loads.argmax())
            raise Rejected(
                f"not proven: the safe split loads link {arc} to {loads[arc]:.9g}",
                code="not-proven",
            )


@dataclass(frozen=True)
class RatioVerdict:
    """What has been proven; only a complete proof gives one, all else is `Rejected`."""

    claim: RatioClaim
    digest: str
    cells: int
    seconds: float

    def __str__(self) -> str:
        claim = self.claim
        ratio = exact(claim.ratio)
        return "\n".join(
            [
                f"Proven: {claim.requirement!r} of {claim.title}.",
                f"  For every demand vector of the box of {claim.input_size} dimensions, no link "
                f"is loaded above {ratio} times",
                f"  the least possible maximum over these {claim.output_size} paths. This holds "
                "for every prediction behind a",
                "  shield with this bound and these flows. Rounding of the prediction is not "
                "included: see 'Ratios' in docs/mathematics.md.",
                "  A further shield of the capacities does not change this: where it acts, the "
                f"optimum is above 1 / {ratio} and the answer at most 1.",
                f"  Demands: {ends(claim.region)}.",
                f"  {self.cells} cells cover them. {len(claim.arc_prices)} price vectors of "
                f"{claim.arcs} links were checked to be dual feasible;",
                f"  one proves each link of each cell. {len(claim.rule_prices)} more bound the "
                f"shield, {self.seconds:.1f} s.",
                f"  Certificate sha256 {self.digest}.",
            ]
        )


def check_ratio(content: Content) -> RatioVerdict:
    """Verify a certificate of a ratio; Rejected unless all is proven."""
    started = time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        claim = RatioClaim(content)
        _, cells = claim.verify()
    return RatioVerdict(claim, content.digest, cells, time.perf_counter() - started)
