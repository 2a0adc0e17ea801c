"""Routing: split each demand over paths so that no link is overloaded, for every demand vector."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cg4ai.apps import register

if TYPE_CHECKING:
    from cg4ai.routing.demands.traffic import Traffic
    from cg4ai.routing.demands.traffic_files import read_traffic
    from cg4ai.routing.demands.traffic_sets import contained, from_traffic, worst_optimum
    from cg4ai.routing.network.instance import CONFIGURATIONS, Instance, instance
    from cg4ai.routing.network.network import Network
    from cg4ai.routing.network.sndlib import names
    from cg4ai.routing.train.anchors import anchor
    from cg4ai.routing.train.optimal import OptimalRouting
    from cg4ai.routing.train.utilisation import Utilisation

# where each name lives; imported when asked for, so that the settings are read in no time
_HOMES = {
    "CONFIGURATIONS": "cg4ai.routing.network.instance",
    "Instance": "cg4ai.routing.network.instance",
    "Network": "cg4ai.routing.network.network",
    "OptimalRouting": "cg4ai.routing.train.optimal",
    "Traffic": "cg4ai.routing.demands.traffic",
    "Utilisation": "cg4ai.routing.train.utilisation",
    "anchor": "cg4ai.routing.train.anchors",
    "contained": "cg4ai.routing.demands.traffic_sets",
    "from_traffic": "cg4ai.routing.demands.traffic_sets",
    "instance": "cg4ai.routing.network.instance",
    "names": "cg4ai.routing.network.sndlib",
    "read_traffic": "cg4ai.routing.demands.traffic_files",
    "worst_optimum": "cg4ai.routing.demands.traffic_sets",
}

__all__ = [
    "CONFIGURATIONS",
    "Instance",
    "Network",
    "OptimalRouting",
    "Traffic",
    "Utilisation",
    "anchor",
    "contained",
    "from_traffic",
    "instance",
    "names",
    "read_traffic",
    "worst_optimum",
]


def _application() -> Any:
    from cg4ai.routing.app import APPLICATION

    return APPLICATION


register("route", kind="routing", load=_application)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cg4ai.routing' has no attribute {name!r}")
