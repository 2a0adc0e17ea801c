"""A router that is never further than a ratio from the optimum: anchor and shield of `--ratio`.

The anchor is a tree of cells over the box of demands with affine flows on each (`cells.py`). The
cell of the largest ratio is cut next, across the demand whose largest and smallest volume are
furthest apart: ratios do not change if all demands grow alike, only proportions matter. The shield
keeps the load of every link below the ratio times a lower bound of the optimum, the largest of dual
prices.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from cg4ai import clock
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.members import FlowMembers, Parameters, Shield, ShieldedArchitecture
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.prove.flow_cells import FlowCell, FlowPrograms
from cg4ai.routing.train.optimal import arc_prices
from cg4ai.routing.train.utilisation import Utilisation
from cg4ai.rules import AffineRules, Box, Guard, SharedRules

RATIO = "ratio"
ROOM = 1e-6  # what the stated ratio is above that of the programs, for their tolerances
DOWN = 1e-10  # what bounds of the shield are below the prices, for rounding
EFFORT = 40_000  # cells times demands times paths, where no number of cells is given
MOST = 3_000  # pairs of a demand and a path of any demand, on which flows depend: beyond, the
# programs of cells take minutes each
PRICED = 5_000  # demand vectors solved for the prices of the shield, at most
UNSEEN = 0.002  # the share of vectors with a new price at which no more are solved


@dataclass(frozen=True, eq=False)
class RatioAnchor:
    """Flows (`members`, one) that no link of which is ever above `ratio` times the optimum.

    `whole` is the ratio of the best flows without cells, `leaves` counts these; `prices` (k, A) are
    prices of links, by which the shield bounds the optimum.
    """

    ratio: float
    whole: float
    leaves: int
    members: FlowMembers
    prices: Array


def check_box(instance: Instance) -> Box:
    """The set of demands, if ratios can be proven over it."""
    region = instance.region
    if not isinstance(region, Box):
        raise InvalidInput(
            "a ratio to the optimum is proven over a box of demands; leave out limits on sums "
            "(hose, budget)",
            code="unsupported",
        )
    if not (region.lower > 0).all():
        raise InvalidInput(
            "a ratio to the optimum needs demands above zero: give --min-demand, e.g. 0.1 for "
            "demands of at least a tenth of their largest",
            code="unsupported",
        )
    demands, paths = len(instance.demand_max), len(instance.path_demand)
    if demands * paths > MOST:
        most = math.isqrt(MOST * demands // paths)
        raise InvalidInput(
            "a ratio is proven by flows over each path that depend on every demand: "
            f"{instance.name} has {demands} demands and {paths} paths of all of them together, "
            f"which makes {demands * paths:,} figures, and up to {MOST:,} can be solved for; route "
            f"fewer demands ({most} at most with as many paths each), or allow fewer paths",
            code="memory",
        )
    return region


def ratio_anchor(
    instance: Instance, *, target: float = 1.0, leaves: int | None = None
) -> RatioAnchor:
    """Cut cells until all keep `target`, or there are so many leaves (None: by the effort)."""
    region = check_box(instance)
    largest = instance.demand_max
    if leaves is None:
        leaves = max(1, EFFORT // (len(largest) * len(instance.path_demand)))
    programs = FlowPrograms(instance)
    root = programs.solve_cell(region.lower / largest, region.upper / largest)
    tree = _CellTree([root])
    waiting = [(-root.ratio, 0)]
    stage = clock.Stage(clock.review(), "cells of demands by which the ratio is proven")
    while (
        len(waiting) < leaves
        and _stated(-waiting[0][0]) > target
        and stage.is_in_time(len(waiting), leaves)
    ):
        _, node = heapq.heappop(waiting)
        for number, half in enumerate(_halves(programs, tree, node), start=len(tree.nodes)):
            heapq.heappush(waiting, (-half.ratio, number))
            tree.nodes.append(half)
    prices = arc_prices(instance, instance.sample(PRICED, 0), unseen=UNSEEN)
    ratio = _stated(-waiting[0][0])
    return RatioAnchor(ratio, _stated(root.ratio), len(waiting), tree.to_members(instance), prices)


def _stated(ratio: float) -> float:
    """A ratio of the programs with room for their tolerances, in few digits."""
    return math.ceil((ratio + ROOM) * 1e6) / 1e6


def _halves(programs: FlowPrograms, tree: _CellTree, node: int) -> list[FlowCell]:
    cell = tree.nodes[node]
    demand = int(np.argmax(cell.upper / cell.lower))
    middle = float(np.sqrt(cell.upper[demand] * cell.lower[demand]))
    below, above = cell.upper.copy(), cell.lower.copy()
    below[demand] = above[demand] = middle
    tree.cuts[node] = (demand, middle, len(tree.nodes))
    return [
        programs.solve_cell(cell.lower, below, cell.cuts, cell.arc_prices),
        programs.solve_cell(above, cell.upper, cell.cuts, cell.arc_prices),
    ]


class _CellTree:
    """Cells in the order they were made; `cuts` are demand, place and first half of those cut."""

    def __init__(self, nodes: list[FlowCell]) -> None:
        self.nodes = nodes
        self.cuts: dict[int, tuple[int, float, int]] = {}

    def to_members(self, instance: Instance) -> FlowMembers:
        """Flows in units of the largest demands, as functions of the demands themselves."""
        count, largest = len(self.nodes), instance.demand_max
        feature, left = np.zeros(count, np.int64), np.arange(count)
        right, threshold = left.copy(), np.zeros(count)
        for node, (demand, place, first) in self.cuts.items():
            feature[node], threshold[node] = demand, place * largest[demand]
            left[node], right[node] = first, first + 1
        slope = np.stack([cell.slope / largest for cell in self.nodes])
        offset = np.stack([cell.offset for cell in self.nodes])
        slope[list(self.cuts)], offset[list(self.cuts)] = 0.0, 0.0
        return FlowMembers(
            feature=feature[None],
            threshold=threshold[None],
            left=left[None],
            right=right[None],
            slope=slope[None],
            offset=offset[None],
            group=instance.path_demand,
        )


def ratio_shield(instance: Instance, anchor: RatioAnchor) -> Shield:
    """No load above the ratio times what the prices prove of the optimum."""
    rules = SharedRules(load_rules(instance), rule_prices(instance, anchor))
    guard = Guard(RATIO, check_box(instance), rules)
    coupled = tuple(tuple(int(path) for path in block) for block in instance.blocks)
    return Shield(anchor.members, (guard,), coupled)


@dataclass(frozen=True, eq=False)
class RatioArchitecture(ShieldedArchitecture):
    """Members behind the shield of a ratio, which their training does not see.

    An untrained network is further from the optimum than a small ratio nearly everywhere, and from
    there a shield leaves hardly a gradient (di-yuan 5/5 at R = 1.17: mean ratio 1.134 through it,
    1.002 without, after 1,500 steps). A trained one is seldom moved.
    """

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d) -> (count, n, output_size), as the network has them."""
        return self.inner.forward(parameters, inputs)


def load_rules(instance: Instance) -> AffineRules:
    """The utilisation of each link, with a limit of 0."""
    zeros = np.zeros(len(instance.arcs))
    given = Utilisation(instance).affine()
    return AffineRules.of(given, zeros, "<=", input_size=len(instance.demand_max))


def rule_prices(instance: Instance, anchor: RatioAnchor) -> Array:
    """(k, D): the ratio times the price of a unit of each demand, a hair less."""
    per_path = anchor.prices @ (instance.incidence / instance.capacity).T
    cheapest = [per_path[:, block].min(axis=1) for block in instance.blocks]
    total = anchor.prices.sum(axis=1)[:, None]
    return np.asarray((1 - DOWN) * anchor.ratio * np.stack(cheapest, axis=1) / total)
