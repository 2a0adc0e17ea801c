"""Who decides in a network: one router for all demands, or agents that see only their own.

An agent splits some of the demands and reads nothing but these. Its load on a link is then a
function of its own demands, so over a box the largest load of a link is the sum of what each agent
adds at most: agents keep the capacities together if and only if each keeps a budget of its own on
every link, and the budgets of a link sum to its capacity at most. So their shields are local.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cg4ai import Ensemble
from cg4ai.colgen import GradientAscent
from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.guarantees import Totals
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import AgentScope
from cg4ai.routing.train.utilisation import Utilisation
from cg4ai.rules import AffineRules, Box, Linear

RULE = "capacity by budgets"
LOCAL: tuple[AgentScope, ...] = ("own", "source")


@dataclass(frozen=True)
class Agent:
    """`name`, the node or demand that it is of, and the numbers of its `demands`."""

    name: str
    demands: tuple[int, ...]


def agents_of(instance: Instance, scope: AgentScope) -> tuple[Agent, ...]:
    """An agent for each demand (own), for each node that sends (source), or one for all."""
    if scope == "own":
        return tuple(Agent(name, (at,)) for at, name in enumerate(instance.demand_names))
    if scope == "source":
        found: dict[str, list[int]] = {}
        for number, (source, _) in enumerate(instance.ends):
            found.setdefault(source, []).append(number)
        return tuple(Agent(node, tuple(demands)) for node, demands in found.items())
    return (Agent("all", tuple(range(len(instance.demand_max)))),)


def compute_sight(instance: Instance, scope: AgentScope) -> NDArray[np.bool_]:
    """(D, D): whether what splits a demand (row) reads another (column)."""
    count = len(instance.demand_max)
    seen = np.zeros((count, count), bool)
    for agent in agents_of(instance, scope):
        seen[np.ix_(agent.demands, agent.demands)] = True
    return seen


class AgentLoads(Utilisation):
    """One function per agent and link it can use: what it adds to the link's utilisation.

    `agent`, `arc` (L,) say which; agents come one after the other.
    """

    def __init__(self, instance: Instance, scope: AgentScope) -> None:
        whole, columns, agents, arcs = instance.incidence / instance.capacity, [], [], []
        for number, agent in enumerate(agents_of(instance, scope)):
            own = np.isin(instance.path_demand, agent.demands)
            for arc in np.flatnonzero(whole[own].any(axis=0)).tolist():
                columns.append(np.where(own, whole[:, arc], 0.0))
                agents.append(number)
                arcs.append(arc)
        super().__init__(instance, np.stack(columns, axis=1))
        self.agent: IntArray = np.array(agents, np.int64)
        self.arc: IntArray = np.array(arcs, np.int64)


def make_bounding_box(instance: Instance) -> Box:
    """The box of all demand vectors of the set, in which agents know nothing of each other."""
    region = instance.region
    return region if isinstance(region, Box) else region.box


def budget_rule(instance: Instance, scope: AgentScope, budgets: Array) -> Linear:
    """Every agent within its budget on every link: `budgets` (L,), as `AgentLoads` orders them."""
    loads = AgentLoads(instance, scope)
    if np.shape(budgets) != (loads.count,):
        raise InvalidInput(
            f"there are {loads.count} pairs of an agent and a link that it can use, got "
            f"{np.shape(budgets)} budgets; give those of this network and --agent-scope {scope}",
            code="shape",
        )
    return Linear(
        make_bounding_box(instance),
        loads,
        np.asarray(budgets, np.float64),
        sense="<=",
        name=RULE,
        separator=GradientAscent(starts=8, steps=25, vertices=512),
    )


@dataclass(frozen=True)
class BudgetShields:
    """What the shields of agents keep: their rule, and how its parts add up to capacities."""

    scope: AgentScope
    rule: Linear
    rule_names: list[str]
    totals: Totals


def find_budgets(instance: Instance, ensemble: Ensemble) -> BudgetShields | None:
    """The budgets that a router's members are shielded by; None if they are not."""
    for guard in ensemble.guards:
        if guard.name != RULE or not isinstance(guard.rules, AffineRules):
            continue
        for scope in LOCAL:
            loads = AgentLoads(instance, scope)
            if loads.count != len(guard.rules.limit):
                continue
            rule = budget_rule(instance, scope, guard.rules.limit)
            rule.check(ensemble.input_size, ensemble.output_size)
            if rule.normal_form is not None and rule.normal_form.digest == guard.rules.digest:
                names = [agent.name for agent in agents_of(instance, scope)]
                links = [f"link {source}->{target}" for source, target in instance.arcs]
                said = [
                    f"{names[agent]} on {links[arc]}"
                    for agent, arc in zip(loads.agent, loads.arc, strict=True)
                ]
                totals = Totals(links, loads.arc, np.ones(len(links)))
                return BudgetShields(scope, rule, said, totals)
    return None
