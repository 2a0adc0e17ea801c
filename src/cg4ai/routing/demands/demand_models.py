"""Demands by a model, where none were measured, and the best that any routing makes of demands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import block_diag, csr_matrix, hstack
from scipy.sparse.csgraph import connected_components

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.routing.network.network import Network

Volumes = dict[tuple[int, int], float]
MODELS = ("gravity", "uniform")
MOST_FLOWS = 200_000  # of a program that takes minutes at most


@dataclass(frozen=True)
class LeastUtilisation:
    """The least possible maximum link utilisation, and the arcs that make it so."""

    mlu: float
    arcs: list[tuple[int, int]]


def make_demands(network: Network, model: str, load: float) -> Volumes:
    """Demands between all nodes that reach each other, such that the best MLU is `load`.

    "uniform" are all alike; of "gravity" each is the product of what its source can send and its
    target receive, the capacities of their links.
    """
    reach = _reachable(network)
    count = len(network.nodes)
    sent, received = np.zeros(count), np.zeros(count)
    for (source, target), arc in network.arcs.items():
        sent[source] += arc.capacity
        received[target] += arc.capacity
    share = np.outer(sent, received) if model == "gravity" else np.ones((count, count))
    share = np.where(reach & ~np.eye(count, dtype=bool), share, 0.0)
    if not share.any():
        raise InvalidInput(
            f"{network.name}: no node reaches another, so that there are no demands", code="empty"
        )
    share /= share.max()
    pairs = [(int(s), int(t)) for s, t in np.argwhere(share > 0)]
    unit = max(arc.capacity for arc in network.arcs.values())
    volumes = {pair: unit * float(share[pair]) for pair in pairs}
    scale = load / least_mlu(network, volumes).mlu
    return {pair: scale * volume for pair, volume in volumes.items()}


def _reachable(network: Network) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(n, n): whether there is a path; every node reaches itself."""
    count = len(network.nodes)
    _, which = connected_components(_adjacency(network), directed=True, connection="strong")
    same = which[:, None] == which[None]
    if same.all():
        return np.asarray(same)
    reach = np.eye(count, dtype=bool)
    step = _adjacency(network).toarray() > 0
    for _ in range(count):
        further = reach | (reach @ step)
        if (further == reach).all():
            break
        reach = further
    return reach


def _adjacency(network: Network) -> csr_matrix:
    sources, targets = np.array(list(network.arcs), np.int64).T
    count = len(network.nodes)
    return csr_matrix((np.ones(len(sources)), (sources, targets)), shape=(count, count))


def count_flows(network: Network, volumes: Volumes) -> int:
    """How many flows, of one source over one arc each, the program of `least_mlu` has."""
    return len(network.arcs) * len({source for source, _ in volumes})


def least_mlu(network: Network, volumes: Volumes) -> LeastUtilisation:
    """The best MLU over all ways to route these demands, split as one likes.

    A flow from each source to all its targets; the flows together load the arcs.
    """
    from scipy.optimize import linprog  # slow to import

    if count_flows(network, volumes) > MOST_FLOWS:
        raise InvalidInput(
            f"{network.name}: {len(volumes)} demands over {len(network.arcs)} arcs are too many "
            "to solve for the best routing of all of them at once",
            code="memory",
        )
    arcs = list(network.arcs)
    sources = sorted({source for source, _ in volumes})
    capacity = np.array([network.arcs[arc].capacity for arc in arcs])
    unit = float(max(volumes.values()))
    balance, wanted = _balance(network, arcs, sources, volumes, unit)
    loads = hstack([csr_matrix(np.diag(unit / capacity))] * len(sources), format="csr")
    above = hstack([loads, csr_matrix(-np.ones((len(arcs), 1)))], format="csr")
    kept = hstack([balance, csr_matrix((balance.shape[0], 1))], format="csr")
    cost = np.append(np.zeros(loads.shape[1]), 1.0)
    found = linprog(cost, above, np.zeros(len(arcs)), kept, wanted, method="highs")
    if found.status == 2:
        raise InvalidInput(
            f"{network.name} has no path for {_unreached(network, volumes)}", code="infeasible"
        )
    if not found.success:
        raise SolverFailure(f"the program of the best routing ended with: {found.message}")
    tight = np.flatnonzero(-found.ineqlin.marginals > 1e-7)
    return LeastUtilisation(float(found.fun), [arcs[k] for k in tight])


def _balance(
    network: Network,
    arcs: list[tuple[int, int]],
    sources: list[int],
    volumes: Volumes,
    unit: float,
) -> tuple[csr_matrix, Array]:
    """What flows of each source leave at nodes, and what they must: the demands, in `unit`s.

    The row of the source itself follows from the others.
    """
    ends: IntArray = np.array(arcs, np.int64)
    count, every = len(network.nodes), np.arange(len(arcs))
    values = np.concatenate([np.ones(len(arcs)), -np.ones(len(arcs))])
    places = (np.concatenate([ends[:, 1], ends[:, 0]]), np.concatenate([every, every]))
    arriving = csr_matrix((values, places), shape=(count, len(arcs)))
    blocks, wanted = [], []
    for source in sources:
        others = np.arange(count) != source
        blocks.append(arriving[others])
        wanted.append(
            [volumes.get((source, k), 0.0) / unit for k in np.flatnonzero(others).tolist()]
        )
    return block_diag(blocks, format="csr"), np.concatenate(wanted)


def _unreached(network: Network, volumes: Volumes) -> str:
    reach = _reachable(network)
    lacking = [pair for pair in volumes if not reach[pair]]
    named = [f"{network.nodes[source]}->{network.nodes[target]}" for source, target in lacking[:5]]
    more = f" and {len(lacking) - 5} more demands" if len(lacking) > 5 else ""
    return ", ".join(named) + more
