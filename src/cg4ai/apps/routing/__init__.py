"""Routing: split each demand over paths so that no link is overloaded, for every demand vector."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cg4ai.apps.routing.data import CONFIGURATIONS, Instance, instance
    from cg4ai.apps.routing.functional import Utilisation
    from cg4ai.apps.routing.network import Network
    from cg4ai.apps.routing.optimal import OptimalRouting
    from cg4ai.apps.routing.robust import anchor
    from cg4ai.apps.routing.sndlib import names
    from cg4ai.apps.routing.traffic import Traffic
    from cg4ai.apps.routing.traffic_files import read_traffic
    from cg4ai.apps.routing.traffic_sets import contained, from_traffic, worst_optimum

# where each name lives; imported when asked for, so that the settings are read in no time
_HOMES = {
    "CONFIGURATIONS": "data",
    "Instance": "data",
    "Network": "network",
    "OptimalRouting": "optimal",
    "Traffic": "traffic",
    "Utilisation": "functional",
    "anchor": "robust",
    "contained": "traffic_sets",
    "from_traffic": "traffic_sets",
    "instance": "data",
    "names": "sndlib",
    "read_traffic": "traffic_files",
    "worst_optimum": "traffic_sets",
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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"cg4ai.apps.routing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cg4ai.apps.routing' has no attribute {name!r}")
