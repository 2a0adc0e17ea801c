"""Agents behind shields of their own: a network for each demand that reads its agent's demands.

They are trained together on the MLU that they cause together, and run apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.guarantees import AffineMap, check_given
from cg4ai.members import ConstantMembers, NetworkArchitecture, Shield, SideBySideArchitecture
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.settings import AgentScope
from cg4ai.routing.train.agents import (
    AgentLoads,
    agents_of,
    budget_rule,
    compute_sight,
    make_bounding_box,
)
from cg4ai.routing.train.optimal import (
    SAFETY,
    TOLERANCE,
    find_bottleneck,
    routing_program,
    solve_program,
    utilisation_per_share,
)
from cg4ai.rules import guard_of
from cg4ai.solvers import LinearProgram


def local_networks(
    instance: Instance, scope: AgentScope, *, hidden: tuple[int, ...]
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
    return SideBySideArchitecture(network, compute_sight(instance, scope), sizes)


def budget_shield(instance: Instance, scope: AgentScope, samples: Array) -> Shield:
    """Every agent is moved towards its part of one constant split where it exceeds a budget.

    The shares of a demand move together, so that they still sum to one.
    """
    found = budgets_of(instance, scope, samples)
    rule = budget_rule(instance, scope, found.limits)
    # also where another agent's demands leave the box, of which this one knows nothing
    guard = replace(guard_of(rule, len(found.split)), everywhere=True)
    size = len(instance.demand_max)
    check_given((guard,), AffineMap.constant(found.split, size))
    coupled = tuple(tuple(int(path) for path in block) for block in instance.blocks)
    shield = Shield(ConstantMembers(found.split[None], size), (guard,), coupled)
    _check_local(instance, scope, shield)
    return shield


def _check_local(instance: Instance, scope: AgentScope, shield: Shield) -> None:
    """Whatever moves together belongs to one agent, or its shares would depend on another's."""
    moved = shield.blending.components
    owner = np.zeros(len(instance.demand_max), np.int64)
    for number, agent in enumerate(agents_of(instance, scope)):
        owner[list(agent.demands)] = number
    pairs = np.unique(np.stack([moved, owner[instance.path_demand]]), axis=1)
    ruled = set(moved[shield.guards[0].find_read_outputs(len(moved)).any(axis=0)].tolist())
    for component in ruled:
        assert (pairs[0] == component).sum() == 1, "a budget ties two agents together"


INTERVALS = 8  # of each demand, in which a split is constant
SCENARIOS = 300  # demand vectors at most over which the mean MLU is least
EXACT = 1e-7  # by how much a scenario may be worse than the program says


@dataclass(frozen=True, eq=False)
class Budgets:
    """`limits` (L,) as `AgentLoads` orders them, in units of a link's capacity; `split` (P,).

    The split keeps them at the largest demands, and so everywhere.
    """

    limits: Array
    split: Array


def budgets_of(instance: Instance, scope: AgentScope, samples: Array) -> Budgets:
    """Budgets of least mean MLU over `samples` (N, D); what they leave of a link is shared out.

    Refused where the largest demands do not fit all at once: agents cannot know that they never
    come together.
    """
    level = find_bottleneck(instance).mlu
    if level > 1 + TOLERANCE:
        raise InvalidInput(
            f"agents that see {scope} demands cannot be shielded on this set: all demands at their "
            f"largest load a link {level:.3g} times its capacity, a shield that rules this out "
            "would need to know all demands, and budgets of single agents must fit there; ask for "
            "--guarantee certified, for --agent-scope all, or for a smaller --load",
            code="unsupported",
        )
    program = _Intervals(instance, samples[:SCENARIOS], most=max(level, 1.0 - SAFETY))
    shares = program.solve()  # (K, P)
    full = utilisation_per_share(instance)
    reached = (program.ends * shares)[:, :, None] * full  # (K, P, A)
    loads = AgentLoads(instance, scope)
    own = _of_demands(instance, reached).max(axis=0)  # (D, A)
    of_agents = [own[list(agent.demands)].sum(axis=0) for agent in agents_of(instance, scope)]
    limits = np.stack(of_agents)[loads.agent, loads.arc]
    return Budgets(_shared_out(instance, loads, limits), shares[-1])


def _of_demands(instance: Instance, per_path: Array) -> Array:
    """(..., P, A) -> (..., D, A): summed over the paths of each demand."""
    starts = [int(block[0]) for block in instance.blocks]
    return np.asarray(np.add.reduceat(per_path, starts, axis=-2))


def _shared_out(instance: Instance, loads: AgentLoads, limits: Array) -> Array:
    """Budgets that sum to the capacity: the rest of a link goes to those who could use it most.

    All get a little more than that, so that rounding leaves room for a proof of the anchor.
    """
    largest = instance.demand_max[instance.path_demand][:, None] * loads.per_flow
    # a demand on one of its paths, whichever adds most, is the most that it can add
    able = np.stack([largest[block].max(axis=0) for block in instance.blocks]).sum(axis=0)
    wish = np.maximum(able - limits, 0.0)
    total = np.bincount(loads.arc, limits, len(instance.arcs))
    wished = np.bincount(loads.arc, wish, len(instance.arcs))
    rest = np.maximum(1.0 - SAFETY - total, 0.0)
    share = np.divide(rest, wished, out=np.zeros_like(rest), where=wished > 0)
    limits = limits + np.minimum(share, 1.0)[loads.arc] * wish
    left = 1.0 - np.bincount(loads.arc, limits, len(instance.arcs))
    room = np.clip(left, 0.0, SAFETY) / (2 * np.bincount(loads.arc))
    return np.asarray(limits + room[loads.arc])


class _Intervals:
    """The program: shares of each path in each interval, budgets of demands, levels of scenarios.

    Shares (K, P) come first, then a budget for each demand and link it can use, then the MLU of
    each scenario. `ends` (K,) are the upper ends of the intervals, of the largest demands.
    """

    def __init__(self, instance: Instance, samples: Array, *, most: float) -> None:
        self.instance, self.full = instance, utilisation_per_share(instance)
        self.paths, arcs = self.full.shape
        lower = make_bounding_box(instance).lower / instance.demand_max
        cuts = np.arange(1, INTERVALS + 1) / INTERVALS
        self.vectors = instance.check_vectors(samples) / instance.demand_max
        width = np.maximum(1.0 - lower, 1e-300)
        place = np.ceil((self.vectors - lower) / width * INTERVALS - 1e-9).astype(np.int64) - 1
        self.place = np.clip(place, 0, INTERVALS - 1)
        self.ends = (lower + np.outer(cuts, width))[:, instance.path_demand]  # (K, P)
        self.demand, self.arc = np.nonzero(_of_demands(instance, self.full))
        self.program = self._stated(arcs, most)

    def _stated(self, arcs: int, most: float) -> LinearProgram:
        instance, shares, pairs = self.instance, INTERVALS * self.paths, len(self.demand)
        count, demands = len(self.vectors), len(instance.demand_max)
        group = np.tile(instance.path_demand, INTERVALS) + demands * np.repeat(
            np.arange(INTERVALS), self.paths
        )
        whole = sparse.csr_matrix(
            (np.ones(shares), (group, np.arange(shares))), (demands * INTERVALS, shares)
        )
        own = (instance.path_demand == self.demand[:, None]) * self.full[
            :, self.arc
        ].T  # (pairs, P)
        loads = sparse.block_diag([sparse.csr_matrix(own * end) for end in self.ends])
        within = sparse.vstack([-sparse.identity(pairs)] * INTERVALS)
        summed = sparse.csr_matrix((np.ones(pairs), (self.arc, np.arange(pairs))), (arcs, pairs))
        matrix = sparse.bmat([[whole, None], [loads, within], [None, summed]], format="csr")
        blank = sparse.csr_matrix((matrix.shape[0], count))
        ones, free = np.ones(whole.shape[0]), np.full(INTERVALS * pairs + arcs, -np.inf)
        upper = np.concatenate([ones, np.zeros(INTERVALS * pairs), np.full(arcs, most)])
        cost = np.concatenate([np.zeros(shares + pairs), np.full(count, 1.0 / count)])
        lower = np.concatenate([ones, free])
        return routing_program(cost, sparse.hstack([matrix, blank], format="csr"), lower, upper)

    def solve(self) -> Array:
        """(K, P): the best shares; rows of scenarios are added as they are violated."""
        known: set[tuple[int, int]] = set()
        demand, count = self.instance.path_demand, len(self.vectors)
        while True:
            solve_program(self.program)
            values = self.program.solution().values
            shares = np.maximum(values[: INTERVALS * self.paths], 0.0)
            shares = shares.reshape(INTERVALS, self.paths)
            total = np.stack([np.bincount(demand, one) for one in shares])
            shares = shares / total[:, demand]
            flows = self.vectors[:, demand] * shares[self.place[:, demand], np.arange(self.paths)]
            reached = flows @ self.full
            worst, top = reached.argmax(axis=1), reached.max(axis=1)
            short = np.flatnonzero(top > values[-count:] + EXACT)
            new = [pair for s in short if (pair := (int(s), int(worst[s]))) not in known]
            if not new:
                return np.asarray(shares)
            known.update(new)
            self._add(np.array(new, np.int64))

    def _add(self, pairs: IntArray) -> None:
        """Rows `load of link a at scenario s - t_s <= 0` for pairs (k, 2) of s and a."""
        scenario, arc = pairs.T
        demand, count = self.instance.path_demand, len(pairs)
        number = np.repeat(np.arange(count), self.paths)
        column = self.place[scenario][:, demand] * self.paths + np.arange(self.paths)
        value = self.vectors[scenario][:, demand] * self.full[:, arc].T
        shares = sparse.csr_matrix(
            (value.ravel(), (number, column.ravel())), (count, INTERVALS * self.paths)
        )
        blank = sparse.csr_matrix((count, len(self.demand)))
        levels = sparse.csr_matrix(
            (-np.ones(count), (np.arange(count), scenario)), (count, len(self.vectors))
        )
        rows = sparse.hstack([shares, blank, levels], format="csr")
        self.program.add_rows(np.full(count, -np.inf), np.zeros(count), rows)
