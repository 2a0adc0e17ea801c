"""What of a routing run makes no sense beyond some size, refused before anything is trained."""

from __future__ import annotations

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import RouteSettings
from cg4ai.routing.train.effort import MANY_PATHS
from cg4ai.routing.train.optimal import make_loads, make_membership

MOST_AGENT_FIGURES = 100_000_000  # paths times pairs of an agent and a link, 800 MB
MOST_OWN_NETWORKS = 2000  # demands of which each has a network that reads all of them
MOST_FAILED_PATHS = 1_000_000  # failures times paths: each takes a training
MOST_PROVEN = 2**23  # demands times paths, or as many as the certificate has bytes: what is checked


def refuse_too_large(instance: Instance, settings: RouteSettings) -> None:
    """InvalidInput where what is asked takes memory or time that grows too fast with demands."""
    demands, paths = len(instance.demand_max), len(instance.path_demand)
    if settings.guarantee == "certified" and demands > MOST_OWN_NETWORKS:
        raise _too_large(
            instance,
            "guarantee certified trains a network for each demand that reads all demands",
            f"route up to {MOST_OWN_NETWORKS:,} demands, or ask for guarantee shielded",
        )
    if paths > MANY_PATHS:
        asked = [f"members {settings.members}"] * (settings.members != "network")
        asked += [f"objective {settings.objective}"] * (settings.objective == "split")
        asked += ["baseline"] * settings.baseline
        if asked:
            raise _too_large(
                instance,
                f"{' and '.join(asked)} takes exact splits of hundreds of demand vectors",
                f"leave it out, or route demands with up to {MANY_PATHS:,} paths in all",
            )
    if settings.agent_scope != "all":
        figures = paths * count_agent_links(instance, by_source=settings.agent_scope == "source")
        if figures > MOST_AGENT_FIGURES:
            raise _too_large(
                instance,
                f"agents of scope {settings.agent_scope} have a budget on each link that they can "
                f"use, which makes {figures:,} figures, and up to {MOST_AGENT_FIGURES:,} are held",
                "route fewer demands, or let all demands be read (agent_scope all)",
            )


def refuse_large_study(instance: Instance, failures: int) -> None:
    """InvalidInput where so many failures would each take a training of many paths."""
    paths = len(instance.path_demand)
    most = max(1, MOST_FAILED_PATHS // paths)
    if failures > most:
        raise _too_large(
            instance,
            f"a study of {failures} failures trains as many routers",
            f"name up to {most} failures, such as A-B;C-D, or route fewer demands",
        )


def count_agent_links(instance: Instance, *, by_source: bool) -> int:
    """Pairs of an agent, which is a node that sends or a demand, and a link that it can use."""
    owner = np.arange(len(instance.demand_max))
    if by_source:
        names = [source for source, _ in instance.ends]
        owner = np.unique(names, return_inverse=True)[1].reshape(-1)
    used = (make_membership(instance) @ make_loads(instance)).tocoo()
    return len(np.unique(owner[used.row] * len(instance.arcs) + used.col))


def describe_unproven(instance: Instance) -> str | None:
    """Why there is no certificate of so many demands; None where there can be one."""
    demands, paths = len(instance.demand_max), len(instance.path_demand)
    if demands * paths <= max(MOST_PROVEN, 8 * len(instance.arcs) * paths):
        return None
    return (
        f"there is no certificate: the checker would have to hold {demands:,} demands times "
        f"{paths:,} paths; that the constant split behind the shield keeps all capacities is "
        "computed by this run alone"
    )


def _too_large(instance: Instance, why: str, remedy: str) -> InvalidInput:
    demands, paths = len(instance.demand_max), len(instance.path_demand)
    return InvalidInput(
        f"{instance.name} has {demands:,} demands with {paths:,} paths in all, and {why}; {remedy}",
        code="memory",
    )
