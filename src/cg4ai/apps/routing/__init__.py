"""Routing: split each demand over paths so that no link is overloaded, for every demand vector."""

from cg4ai.apps.routing.data import CONFIGURATIONS, Instance, instance
from cg4ai.apps.routing.functional import Utilisation
from cg4ai.apps.routing.network import Network
from cg4ai.apps.routing.optimal import OptimalRouting, anchor
from cg4ai.apps.routing.sndlib import names

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
