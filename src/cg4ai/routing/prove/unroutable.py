"""Whether some demand vector of a set fits over no paths of an instance, proven by link prices.

For prices w >= 0 of the links that sum to one, every routing of b over the instance's paths has a
maximum link utilisation of at least sum_d b_d min over paths p of d of sum_{a in p} w_a /
capacity_a: whoever has vector and prices can add that up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.scaling import format_of_capacity
from cg4ai.routing.demands.traffic_sets import worst_optimum
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.train.anchors import worst_vectors
from cg4ai.routing.train.optimal import link_prices, utilisation_per_share
from cg4ai.rules import Box, Polytope

REMEDIES = (
    "Set load to at most 1, tighten the set, raise the capacity of these links, or allow more paths"
)
NAMED = 20  # demands that one line names
ROUNDING = 1e-9  # by so much a utilisation may exceed one and still be taken for it
BOUNDING = 1e-7  # the price from which on a link bounds the utilisation


@dataclass(frozen=True, eq=False)
class UnroutableDemand:
    """A demand vector (D,) whose least MLU is `bound` > 1 or more, by the prices (A,) of links."""

    vector: Array
    prices: Array
    bound: float

    def to_record(self, instance: Instance) -> dict[str, Any]:
        """As JSON: demands by name, and the links that have a price."""
        arcs = np.flatnonzero(self.prices > BOUNDING)
        return {
            "bound": self.bound,
            "demands": dict(zip(instance.demand_names, self.vector.tolist(), strict=True)),
            "links": [[*instance.arcs[arc], float(self.prices[arc])] for arc in arcs],
        }

    def describe(self, instance: Instance) -> tuple[str, str]:
        """The links that have a price, and the demands that must pay one, with their volumes."""
        links = ["->".join(instance.arcs[arc]) for arc in np.flatnonzero(self.prices > BOUNDING)]
        paid = priced_demands(instance, self.prices) * self.vector
        order = [demand for demand in np.argsort(-paid, kind="stable") if paid[demand] > 0]
        names = [f"{instance.demand_names[one]} {self.vector[one]:.6g}" for one in order[:NAMED]]
        more = f" and {len(order) - NAMED} more" if len(order) > NAMED else ""
        return ", ".join(links), ", ".join(names) + more


def priced_demands(instance: Instance, prices: Array) -> Array:
    """(D,): what a unit of each demand adds to any routing's MLU at least, by prices (A,)."""
    largest = instance.demand_max[instance.path_demand]
    per_unit = utilisation_per_share(instance) @ prices / largest
    cheapest = [per_unit[block].min() for block in instance.blocks]
    return np.asarray(cheapest) / max(float(prices.sum()), 1e-300)


def recompute_bound(instance: Instance, record: Mapping[str, Any]) -> float:
    """The bound that the vector and the prices of a record prove, added up anew."""
    position = {arc: number for number, arc in enumerate(instance.arcs)}
    prices = np.zeros(len(instance.arcs))
    for source, target, price in record["links"]:
        prices[position[source, target]] = price
    vector = np.array([record["demands"][name] for name in instance.demand_names])
    return float(priced_demands(instance, prices) @ vector)


def find_unroutable(instance: Instance, *, seed: int = 0) -> UnroutableDemand | None:
    """A vector of the set that no routing fits; None: there is none, or none was found.

    In a box the corner answers it. In a polytope the vector of the highest optimum is searched for,
    from the worst vectors of the best constant split, too.
    """
    if isinstance(instance.region, Box):
        return _at(instance, instance.region.upper)
    if instance.level <= 1 + ROUNDING:
        return None
    known = worst_vectors(instance, instance.robust.split).vectors
    return _at(instance, worst_optimum(instance, known, seed=seed).vector)


def _at(instance: Instance, vector: Array) -> UnroutableDemand | None:
    prices = link_prices(instance, vector)
    prices = np.where(prices > BOUNDING, prices, 0.0)
    bound = float(priced_demands(instance, prices) @ vector)
    return UnroutableDemand(vector, prices, bound) if bound > 1 + ROUNDING else None


class UnroutableError(InvalidInput):
    """No router can keep the capacities; `proof` has the demand vector and the prices of links.

    It is None where all that is known is that no constant split keeps them.
    """

    code = "infeasible"

    def __init__(self, message: str, proof: dict[str, Any] | None) -> None:
        super().__init__(message)
        self.proof = proof


def make_refusal(
    made: Instance, level: float, remedies: Callable[[float], str] | None = None
) -> UnroutableError:
    """Why there can be no shield, where the best constant split keeps `level` > 1.

    `remedies` of that level say what to do; usual ones if None.
    """
    found = find_unroutable(made)
    advice = REMEDIES if remedies is None else remedies(level)
    proof = None if found is None else found.to_record(made)
    return UnroutableError(f"{_why_refused(made, level, found)}. {advice}", proof)


def _why_refused(made: Instance, level: float, found: UnroutableDemand | None) -> str:
    if found is None:
        links = ", ".join("->".join(made.arcs[arc]) for arc in made.robust.arcs)
        return (
            f"no constant split keeps the capacities of {made.name} at every demand vector of the "
            f"set: some link is loaded to {format_of_capacity(level, made.capacity_factor)} "
            "or more, though no vector "
            f"was found that cannot be routed. The links that make it so: {links}"
        )
    links, demands = found.describe(made)
    what = f"the largest demands of {made.name} cannot be routed together"
    if isinstance(made.region, Polytope):
        what = f"a demand vector of the set cannot be routed in {made.name}"
    return (
        f"{what}: over its {len(made.paths)} paths every routing loads some link to "
        f"{format_of_capacity(found.bound, made.capacity_factor)} or more. The links "
        f"that make it so: {links}; the "
        f"demands that must cross them: {demands}"
    )
