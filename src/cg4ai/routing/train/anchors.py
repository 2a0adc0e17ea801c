"""Constant splits that are safe at every demand vector of a set: the anchors of routers.

With a constant split the load of a link is linear in the demands. Over a box it is largest at the
corner. Over a polytope its maximum is, by duality, the minimum of a linear program, so that "the
load is at most t at every vector of the set" is a system of linear inequalities in the split and
further variables: one program, whose size grows with the pairs of a link and a demand that can use
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai import clock
from cg4ai.clock import Review
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, TimeIsOver
from cg4ai.routing.train.granular import find_granular_split
from cg4ai.routing.train.optimal import (
    SAFETY,
    SafeRows,
    best_split,
    make_loads,
    make_membership,
    make_safe_rows_at,
    routing_program,
    solve_program,
)
from cg4ai.rules import Box, Polytope

if TYPE_CHECKING:
    from cg4ai.routing.network.instance import Instance

MOST_USES = 100_000  # pairs of a demand and a link that it can use: rows of one linear program
BINDING = 1e-7  # the price from which on a link bounds the level


@dataclass(frozen=True, eq=False)
class WorstVectors:
    """Of each link the demand vector (A, D) that loads it most, and how much (A,)."""

    vectors: Array
    loads: Array


@dataclass(frozen=True, eq=False)
class RobustSplit:
    """The constant split (P,) of least worst utilisation over a set, and the `level` it keeps.

    `arcs` are the links that bound it.
    """

    level: float
    split: Array
    arcs: list[int]


def robust_split(instance: Instance) -> RobustSplit:
    """By one linear program."""
    safe = safe_rows(instance)
    paths, extra, demands = len(instance.path_demand), safe.extra, len(instance.demand_max)
    blank = sparse.csr_matrix((demands, extra + 1))
    matrix = sparse.vstack([sparse.hstack([make_membership(instance), blank]), safe.matrix], "csr")
    cost = np.zeros(paths + extra + 1)
    cost[-1] = 1.0
    ones, open_below = np.ones(demands), np.full(len(safe.upper), -np.inf)
    lower = np.concatenate([ones, open_below])
    program = routing_program(cost, matrix, lower, np.concatenate([ones, safe.upper]))
    least = "the constant split of least worst load over the set"
    with clock.review().stage(least, needed=True) as stage:
        solve_program(program, deadline=stage.deadline)
    answer = program.solution()
    split = np.maximum(answer.values[:paths], 0.0)
    split /= np.bincount(instance.path_demand, split)[instance.path_demand]
    prices = -answer.duals[demands:][: len(instance.arcs)]
    level = float(worst_vectors(instance, split).loads.max())
    return RobustSplit(level, split, np.flatnonzero(prices > BINDING).tolist())


def safe_rows(instance: Instance) -> SafeRows:
    """Splits that load no link above t at any vector of the set."""
    region = instance.region
    if isinstance(region, Box):
        return make_safe_rows_at(instance, region.upper)
    return _dual_rows(instance, region)


def _dual_rows(instance: Instance, region: Polytope) -> SafeRows:
    """For a link with load sigma . b, sigma linear in the split, over l <= b <= h, M b <= L:

        sigma . l + u . (L - M l) + sum_d r_d <= t,   r_d >= (h_d - l_d) (sigma_d - M_d . u),

    with u and r >= 0. Demands are stated in units of their largest and limits in units of theirs,
    so that all figures are near one. Where a demand cannot use a link and no limit falls with it,
    its r is 0 and left out.
    """
    lower = region.box.lower / instance.demand_max
    matrix = region.matrix * instance.demand_max
    size = np.maximum(np.abs(region.limit), np.abs(matrix).max(axis=1))
    matrix, limit = matrix / size[:, None], region.limit / size
    per_share = make_loads(instance)
    arcs, limits = len(instance.arcs), len(limit)
    users = find_users(instance)  # (D, A)
    count = int(users.sum())
    if count > MOST_USES:
        raise InvalidInput(
            f"{instance.name}: the constant split that is best over limits on sums of demands is a "
            f"linear program of {count:,} pairs of a demand and a link it can use, and up to "
            f"{MOST_USES:,} are solved; leave out hose and budget, or route fewer demands",
            code="memory",
        )
    demand, arc = np.nonzero(users | (matrix < 0).any(axis=0)[:, None])
    count = len(demand)
    place, number = np.arange(arcs * limits), np.arange(count)
    # one row for each link, then one for each pair of a demand and a link
    room = np.tile(limit - matrix @ lower, arcs)
    links = [
        per_share.T.multiply(lower[instance.path_demand]),
        sparse.csr_matrix((room, (place // limits, place)), (arcs, len(place))),
        sparse.csr_matrix((np.ones(count), (arc, number)), (arcs, count)),
        sparse.csr_matrix(-np.ones((arcs, 1))),
    ]
    width = (1.0 - lower)[demand][:, None]
    of_demand = sparse.csr_matrix(matrix.T)[demand].tocoo()  # few limits concern a demand
    column = arc[of_demand.row] * limits + of_demand.col
    weight = -width[of_demand.row, 0] * of_demand.data
    pairs = [
        per_share.T.tocsr()[arc]
        .multiply(make_membership(instance).tocsr()[demand])
        .multiply(width),
        sparse.csr_matrix((weight, (of_demand.row, column)), (count, len(place))),
        -sparse.identity(count),
        sparse.csr_matrix((count, 1)),
    ]
    stacked = sparse.vstack([sparse.hstack(links), sparse.hstack(pairs)], format="csr")
    return SafeRows(stacked, np.zeros(stacked.shape[0]), arcs * limits + count)


def find_users(instance: Instance) -> NDArray[np.bool_]:
    """(D, A): which demands can use which links."""
    return np.asarray((make_membership(instance) @ make_loads(instance)).toarray() > 0)


def worst_vectors(instance: Instance, split: Array) -> WorstVectors:
    """For each link the demand vector of the set at which a constant split loads it most."""
    path, arc = np.nonzero(instance.incidence)
    share = instance.incidence[path, arc] * split[path] / instance.capacity[arc]
    shares = sparse.csr_matrix((share, (path, arc)), instance.incidence.shape)
    slopes = (make_membership(instance) @ shares).toarray().T
    peaks = instance.region.peaks(slopes)
    return WorstVectors(peaks.inputs, peaks.values)


def anchor(instance: Instance, samples: Array, *, reserve: float = SAFETY) -> Array:
    """The constant split (P,) of least mean MLU over `samples` (N, D) that fits on the whole set.

    Where the load leaves room, links keep a share `reserve` of it at their worst vectors. Where
    time ends the search, it is the split of least worst load. With a granularity it is the split in
    multiples of 1/N that is found near that one.
    """
    split = _least_mean(instance, samples, reserve=reserve)
    if instance.granularity is None:
        return split
    return find_granular_split(instance, instance.granularity, near=split)


def _least_mean(instance: Instance, samples: Array, *, reserve: float) -> Array:
    limit = max(instance.level, 1.0 - reserve)
    try:
        with clock.review().stage("the constant split of least mean load that is safe on the set"):
            return best_split(instance, samples, safe=safe_rows(instance), limit=limit)
    except TimeIsOver:
        clock.review().cut.append(
            "the constant split of least mean load; that of least worst load is in its place"
        )
        with Review().activate():  # without it there is no router; it is known where it takes long
            return instance.robust.split
