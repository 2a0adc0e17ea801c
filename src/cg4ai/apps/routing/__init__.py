"""Routing: split each demand over paths so that no link is overloaded, for every demand vector."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cg4ai.apps.routing.data import CONFIGURATIONS, Instance, instance
    from cg4ai.apps.routing.functional import Utilisation
    from cg4ai.apps.routing.network import Network
    from cg4ai.apps.routing.optimal import OptimalRouting, anchor
    from cg4ai.apps.routing.sndlib import names

# where each name lives; imported when asked for, so that the settings are read in no time
_HOMES = {
    "CONFIGURATIONS": "data",
    "Instance": "data",
    "Network": "network",
    "OptimalRouting": "optimal",
    "Utilisation": "functional",
    "anchor": "optimal",
    "instance": "data",
    "names": "sndlib",
}

__all__ = [
    "CONFIGURATIONS",
    "Instance",
    "Network",
    "OptimalRouting",
    "Utilisation",
    "anchor",
    "instance",
    "names",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"cg4ai.apps.routing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'cg4ai.apps.routing' has no attribute {name!r}")
