"""Routing: split each demand over paths so that no link is overloaded, for every demand vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cg4ai.apps import register
from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.routing.app import APPLICATION, Routing
    from cg4ai.routing.demands.traffic import Traffic
    from cg4ai.routing.demands.traffic_files import read_traffic
    from cg4ai.routing.demands.traffic_sets import (
        compute_contained_share,
        from_traffic,
        worst_optimum,
    )
    from cg4ai.routing.network.instance import CONFIGURATIONS, Instance, instance
    from cg4ai.routing.network.network import Network
    from cg4ai.routing.network.new_network import new_network
    from cg4ai.routing.network.sndlib import list_names
    from cg4ai.routing.operate.classical import find_oblivious
    from cg4ai.routing.operate.failure_study import study
    from cg4ai.routing.prove.attack import Attack, attack
    from cg4ai.routing.prove.guarantee import train_certified
    from cg4ai.routing.prove.ratio import ratio_anchor
    from cg4ai.routing.settings import Recipe, RouteSettings
    from cg4ai.routing.train.agent_members import budgets_of
    from cg4ai.routing.train.agents import agents_of
    from cg4ai.routing.train.anchors import anchor
    from cg4ai.routing.train.optimal import OptimalRouting
    from cg4ai.routing.train.problem import (
        attacked_problem,
        capacity,
        routing_problem,
        routing_settings,
        shielded_problem,
    )
    from cg4ai.routing.train.shield import record_cuts, shield
    from cg4ai.routing.train.utilisation import Utilisation
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.routing.app": ["APPLICATION", "Routing"],
            "cg4ai.routing.demands.traffic": ["Traffic"],
            "cg4ai.routing.demands.traffic_files": ["read_traffic"],
            "cg4ai.routing.demands.traffic_sets": [
                "compute_contained_share",
                "from_traffic",
                "worst_optimum",
            ],
            "cg4ai.routing.network.instance": ["CONFIGURATIONS", "Instance", "instance"],
            "cg4ai.routing.network.network": ["Network"],
            "cg4ai.routing.network.new_network": ["new_network"],
            "cg4ai.routing.network.sndlib": ["list_names"],
            "cg4ai.routing.operate.classical": ["find_oblivious"],
            "cg4ai.routing.operate.failure_study": ["study"],
            "cg4ai.routing.prove.attack": ["Attack", "attack"],
            "cg4ai.routing.prove.guarantee": ["train_certified"],
            "cg4ai.routing.prove.ratio": ["ratio_anchor"],
            "cg4ai.routing.settings": ["Recipe", "RouteSettings"],
            "cg4ai.routing.train.agent_members": ["budgets_of"],
            "cg4ai.routing.train.agents": ["agents_of"],
            "cg4ai.routing.train.anchors": ["anchor"],
            "cg4ai.routing.train.optimal": ["OptimalRouting"],
            "cg4ai.routing.train.problem": [
                "attacked_problem",
                "capacity",
                "routing_problem",
                "routing_settings",
                "shielded_problem",
            ],
            "cg4ai.routing.train.shield": ["record_cuts", "shield"],
            "cg4ai.routing.train.utilisation": ["Utilisation"],
        },
    )

__all__ = [
    "APPLICATION",
    "CONFIGURATIONS",
    "Attack",
    "Instance",
    "Network",
    "OptimalRouting",
    "Recipe",
    "RouteSettings",
    "Routing",
    "Traffic",
    "Utilisation",
    "agents_of",
    "anchor",
    "attack",
    "attacked_problem",
    "budgets_of",
    "capacity",
    "compute_contained_share",
    "find_oblivious",
    "from_traffic",
    "instance",
    "list_names",
    "new_network",
    "ratio_anchor",
    "read_traffic",
    "record_cuts",
    "routing_problem",
    "routing_settings",
    "shield",
    "shielded_problem",
    "study",
    "train_certified",
    "worst_optimum",
]


def _application() -> Any:
    from cg4ai.routing.app import APPLICATION

    return APPLICATION


register("route", kind="routing", load=_application)
