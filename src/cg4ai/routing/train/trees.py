"""Trees as routers: one partition of the demand box for all demands, a constant split per leaf.

Under a constant split the load of a link grows with every demand, so a leaf overloads no link if it
does not at its top corner: one product per leaf proves what takes networks a search over cells.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from cg4ai import clock
from cg4ai.colgen import PricerDefaults, PricingRequest, PricingResult, derive_seed
from cg4ai.data import Array
from cg4ai.members import ConstantMembers, Members, Shield, ShieldedMembers, TreeMembers
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.optimal import (
    SAFETY,
    best_split,
    find_bottleneck,
    make_safe_rows_at,
    utilisation_per_share,
)
from cg4ai.routing.train.rare_demands import LeastMlu

if TYPE_CHECKING:
    from cg4ai.members import Mixture

SAMPLES = 64  # demand vectors over which a leaf's mean MLU is least
CUTS = (0.25, 0.5, 0.75)  # of a leaf's width, where it may be cut


@dataclass(frozen=True, eq=False)
class Leaf:
    """A box of demands [`lower`, `upper`] (D,) with one split (P,), and how it serves samples.

    `vectors` (n, D) are uniform in the box, `beside` (n, A) is what other members load links with,
    `gap` the mean MLU above the optimum times the leaf's share of the whole box.
    """

    lower: Array
    upper: Array
    split: Array
    vectors: Array
    beside: Array
    gap: float


@dataclass(frozen=True, eq=False)
class TreeGrower:
    """Grows a tree that is to have the weight `share` beside a mixture (None: all the weight)."""

    instance: Instance
    least: LeastMlu
    mixture: Mixture | None = None
    share: float = 1.0

    def grow(self, leaves: int, *, seed: int, until: float) -> TreeMembers:
        """A tree of at most so many leaves: the one that loses most is cut next."""
        made = np.random.default_rng(seed)
        largest = self.instance.demand_max
        limit = max(find_bottleneck(self.instance).mlu, 1.0 - SAFETY)
        root = self._leaf(*self.instance.region.bounds(), limit, made=made)
        tree = _SplitTree([root])
        waiting = [(-root.gap, 0)]
        while waiting and len(tree.nodes) < 2 * leaves - 1 and clock.now() < until:
            _, node = heapq.heappop(waiting)
            leaf = tree.nodes[node]
            demand, threshold = self._cut(leaf)
            below, above = leaf.upper.copy(), leaf.lower.copy()
            below[demand] = above[demand] = threshold
            halves = [
                self._leaf(leaf.lower, below, limit, made=made),
                self._leaf(above, leaf.upper, limit, made=made),
            ]
            for number, half in enumerate(halves, start=len(tree.nodes)):
                heapq.heappush(waiting, (-half.gap, number))
            tree.cut(node, demand, threshold, halves)
        return tree.to_members(len(largest))

    def _leaf(self, lower: Array, upper: Array, limit: float, *, made: np.random.Generator) -> Leaf:
        """The best split of a box that fits at its top corner."""
        whole = self.instance.demand_max
        vectors = lower + made.uniform(0, 1, (SAMPLES, len(whole))) * (upper - lower)
        beside = self._beside(vectors)
        split = best_split(
            self.instance,
            vectors,
            safe=make_safe_rows_at(self.instance, upper),
            limit=limit,
            share=self.share,
            beside=beside,
        )
        reached = beside + self.share * self.instance.compute_utilisation(vectors, split)
        gap = reached.max(axis=1) - self.least(torch.as_tensor(vectors)).numpy()
        volume = float(np.prod((upper - lower) / whole))
        return Leaf(lower, upper, split, vectors, beside, volume * float(gap.mean()))

    def _beside(self, vectors: Array) -> Array:
        if self.mixture is None:
            return np.zeros((len(vectors), len(self.instance.arcs)))
        with torch.no_grad():
            inputs = torch.as_tensor(vectors, device=self.mixture.device)
            splits = self.mixture.outputs(inputs).cpu().numpy()
        return np.asarray((1 - self.share) * self.instance.compute_utilisation(vectors, splits))

    def _cut(self, leaf: Leaf) -> tuple[int, float]:
        """The demand and threshold whose sides ask most differently for other splits.

        What a sample asks for is the gradient of its MLU in the splits, without what no change of
        shares that sum to one can answer; the gain of a cut is how much of the gradients' variance
        lies between its sides.
        """
        pulls = self._pulls(leaf)
        relative = (leaf.vectors - leaf.lower) / np.maximum(leaf.upper - leaf.lower, 1e-300)
        best = (-1.0, 0, 0.5)
        for place in CUTS:
            right = (relative > place).astype(float)
            count = right.sum(axis=0)
            both = np.maximum(count * (len(right) - count), 1.0)
            gains = ((right.T @ pulls) ** 2).sum(axis=1) * len(right) / both
            demand = int(gains.argmax())
            best = max(best, (float(gains[demand]), demand, place))
        _, demand, place = best
        width = leaf.upper[demand] - leaf.lower[demand]
        return demand, float(leaf.lower[demand] + place * width)

    def _pulls(self, leaf: Leaf) -> Array:
        """(n, P): gradients of each sample's MLU, centred by demand and over the samples."""
        instance = self.instance
        reached = leaf.beside + self.share * instance.compute_utilisation(leaf.vectors, leaf.split)
        shares = leaf.vectors / instance.demand_max
        loads = utilisation_per_share(instance).T[reached.argmax(axis=1)]
        pulls = shares[:, instance.path_demand] * loads
        mean = np.zeros((len(instance.path_demand), len(instance.demand_max)))
        counts = np.bincount(instance.path_demand)
        mean[np.arange(len(mean)), instance.path_demand] = 1.0 / counts[instance.path_demand]
        pulls = pulls - (pulls @ mean)[:, instance.path_demand]
        return np.asarray(pulls - pulls.mean(axis=0))


class _SplitTree:
    """Nodes in the order they were made, as `TreeMembers` wants them."""

    def __init__(self, nodes: list[Leaf]) -> None:
        self.nodes = nodes
        self.cuts: dict[int, tuple[int, float, int]] = {}

    def cut(self, node: int, demand: int, threshold: float, halves: list[Leaf]) -> None:
        self.cuts[node] = (demand, threshold, len(self.nodes))
        self.nodes += halves

    def to_members(self, input_size: int) -> TreeMembers:
        count = len(self.nodes)
        feature, left = np.zeros(count, np.int64), np.arange(count)
        right, threshold = left.copy(), np.zeros(count)
        for node, (demand, place, first) in self.cuts.items():
            feature[node], threshold[node] = demand, place
            left[node], right[node] = first, first + 1
        value = np.stack([leaf.split for leaf in self.nodes])
        return TreeMembers(
            feature[None, None],
            threshold[None, None],
            left=left[None, None],
            right=right[None, None],
            value=value[None, None],
            input_size=input_size,
        )


@dataclass(frozen=True)
class RoutingTreePricer(PricerDefaults):
    """Grows one tree a call; later ones are boosted: they answer what the mixture leaves.

    The second tree is grown to have half of the weight beside the first, the third a third beside
    the mixture of both, and so on; the master decides what they get. Each tree keeps the capacities
    by itself, so every mixture does. `shield`: what they stand behind beside networks.
    """

    instance: Instance
    least: LeastMlu
    leaves: int
    shield: Shield | None = None

    def price(self, request: PricingRequest) -> PricingResult:
        known = 0 if request.ensemble is None else _trained(request.ensemble)
        mixture = request.ensemble if known else None
        nursery = TreeGrower(self.instance, self.least, mixture, 1.0 / (1 + known))
        seed = derive_seed(request.seed, 0, "leaves")
        tree: Members = nursery.grow(self.leaves, seed=seed, until=request.until)
        tree = tree.to(request.device)
        if self.shield is not None:
            tree = ShieldedMembers(tree, self.shield)
        return PricingResult(tree, np.zeros(1, np.int64), np.full(1, -1))


def _trained(mixture: Mixture) -> int:
    """How many members that are not constant have weight."""
    inside = [
        (
            part.members.inner if isinstance(part.members, ShieldedMembers) else part.members,
            len(part.weights),
        )
        for part in mixture.used
    ]
    return sum(count for members, count in inside if not isinstance(members, ConstantMembers))
