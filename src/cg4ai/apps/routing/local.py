"""Agents behind shields of their own: a network for each demand that reads its agent's demands.

They are trained together on the MLU that they cause together, and run apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cg4ai.apps.routing.agents import agents_of, budget_rule, seen_by
from cg4ai.apps.routing.budgets import budgets_of
from cg4ai.apps.routing.data import Instance
from cg4ai.apps.routing.settings import Sees
from cg4ai.ensemble.anchors import check_given
from cg4ai.ensemble.maps import AffineMap
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.members.shielded import Shield
from cg4ai.members.side_by_side import SideBySideArchitecture
from cg4ai.records import Array
from cg4ai.rules.guards import guard_of


def local_networks(
    instance: Instance, sees: Sees, *, hidden: tuple[int, ...]
) -> SideBySideArchitecture:
    """A network for each demand, of the demands that its agent sees."""
    lower, upper = instance.region.bounds()
    sizes = tuple(len(block) for block in instance.blocks)
    network = NetworkArchitecture(
        len(upper),
        max(sizes),
        hidden=hidden,
        activation="relu",
        skip=True,
        output="softmax",
        shift=(lower + upper) / 2,
        scale=(upper - lower) / np.sqrt(12),
    )
    return SideBySideArchitecture(network, seen_by(instance, sees), sizes)


def budget_shield(instance: Instance, sees: Sees, samples: Array) -> Shield:
    """Every agent is moved towards its part of one constant split where it exceeds a budget.

    The shares of a demand move together, so that they still sum to one.
    """
    found = budgets_of(instance, sees, samples)
    rule = budget_rule(instance, sees, found.limits)
    # also where another agent's demands leave the box, of which this one knows nothing
    guard = replace(guard_of(rule, len(found.split)), everywhere=True)
    size = len(instance.demand_max)
    check_given((guard,), AffineMap.constant(found.split, size))
    coupled = tuple(tuple(int(path) for path in block) for block in instance.blocks)
    shield = Shield(ConstantMembers(found.split[None], size), (guard,), coupled)
    _check_local(instance, sees, shield)
    return shield


def _check_local(instance: Instance, sees: Sees, shield: Shield) -> None:
    """Whatever moves together belongs to one agent, or its shares would depend on another's."""
    moved = shield.blending.components
    owner = np.zeros(len(instance.demand_max), np.int64)
    for number, agent in enumerate(agents_of(instance, sees)):
        owner[list(agent.demands)] = number
    pairs = np.unique(np.stack([moved, owner[instance.path_demand]]), axis=1)
    ruled = set(moved[shield.guards[0].touched(len(moved)).any(axis=0)].tolist())
    for component in ruled:
        assert (pairs[0] == component).sum() == 1, "a budget ties two agents together"
