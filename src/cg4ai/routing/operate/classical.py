"""Classical routings, each by linear programs: what learned routers are compared with.

All but the last give a static split (P,), the same shares of paths for every demand vector, with
the `level` that it keeps: of what, the functions say. A robust split of least worst utilisation is
`Instance.robust`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.data import Array, IntArray
from cg4ai.errors import InvalidInput
from cg4ai.routing.prove.worst import WorstRatio
from cg4ai.routing.train.optimal import (
    SafeRows,
    best_split,
    make_membership,
    routing_program,
    solve_program,
    utilisation_per_share,
)
from cg4ai.solvers import INFEASIBLE, OPTIMAL

if TYPE_CHECKING:
    from cg4ai.routing.demands.sets import DemandSet
    from cg4ai.routing.network.instance import Instance

EQUAL = 1e-6  # lengths that differ by less are equal
CLOSE = 1e-7  # how far above its level a row may be and is not added
Measure = Literal["ratio", "utilisation"]
# loads (A, D) by links and shares of demands -> the worst of each link (A,), and where (A, D)
Oracle = Callable[[Array], tuple[Array, Array]]


@dataclass(frozen=True, eq=False)
class StaticRouting:
    """A split (P,) for all demand vectors, and what it keeps or reaches: `level`."""

    split: Array
    level: float


def equal_cost(instance: Instance) -> StaticRouting:
    """Each demand evenly over its shortest paths of equal length (ECMP); level: worst MLU."""
    shortest = np.array([instance.path_length[block].min() for block in instance.blocks])
    chosen = instance.path_length <= shortest[instance.path_demand] + EQUAL
    counts = np.bincount(instance.path_demand, chosen)
    split = chosen / counts[instance.path_demand]
    return StaticRouting(split, worst_utilisation(instance, split))


def best_static(instance: Instance, samples: Array) -> StaticRouting:
    """The split of least mean MLU / optimum over `samples` (N, D), which is its level."""
    scaled = _of_optimum_one(instance, samples)
    none = sparse.csr_matrix((0, len(instance.path_demand) + 1))
    split = best_split(instance, scaled, safe=SafeRows(none, np.zeros(0)), limit=1.0)
    return StaticRouting(
        split, float(instance.compute_utilisation(scaled, split).max(axis=1).mean())
    )


def find_oblivious(instance: Instance, region: DemandSet | None = None) -> StaticRouting:
    """The split whose worst MLU / optimum is least, Applegate and Cohen's; that is its level.

    `region`: over these demand vectors; None: over all that there are.
    """
    program = _Splits(instance)
    worst = ratio_oracle(instance, region)
    while True:
        program.solve()
        values, vectors = worst(loads_of(instance, program.split))
        if not program.add(vectors, np.arange(len(values)), values > program.level + CLOSE):
            return StaticRouting(program.split, float(values.max()))


def find_cope(
    instance: Instance,
    samples: Array,
    *,
    ceiling: float,
    region: DemandSet | None = None,
    measure: Measure = "ratio",
) -> StaticRouting:
    """The split whose largest MLU / optimum over `samples` (N, D) is least, which is its level.

    Among those whose worst over `region` is at most `ceiling`: MLU / optimum (None: over all demand
    vectors), or the utilisation of a link (None: over the instance's own set). As Wang and others
    have it (COPE, 2006), with samples for the set of expected demands.
    """
    program = _Splits(instance, ceiling=ceiling)
    shares = _of_optimum_one(instance, samples) / instance.demand_max
    worst = ratio_oracle(instance, region)
    if measure == "utilisation":
        worst = utilisation_oracle(instance, instance.region if region is None else region)
    while True:
        if not program.solve():
            raise InvalidInput(
                f"no static split of {instance.name} has a worst {measure} of at most {ceiling:g}; "
                "give a higher ceiling, at least the level of find_oblivious or Instance.robust",
                code="infeasible",
            )
        loads = loads_of(instance, program.split)
        own = shares @ loads.T
        expected = program.add(shares, own.argmax(axis=1), own.max(axis=1) > program.level + CLOSE)
        values, vectors = worst(loads)
        kept = program.add(vectors, np.arange(len(values)), values > ceiling + CLOSE, ceiled=True)
        if not expected and not kept:
            return StaticRouting(program.split, float(own.max()))


def previous_optimum(instance: Instance, matrices: Array) -> Array:
    """Splits (N - 1, P): for each of `matrices` (N, D) but the first the optimum of the one before.

    The canonical optimum, where there are several.
    """
    splits = instance.find_optimal(matrices[:-1], splits=True).splits
    assert splits is not None
    return splits


def worst_utilisation(instance: Instance, split: Array, region: DemandSet | None = None) -> float:
    """The highest utilisation of a link under a static split over a set, the instance's if None."""
    where = instance.region if region is None else region
    return float(utilisation_oracle(instance, where)(loads_of(instance, split))[0].max())


def worst_ratio(instance: Instance, split: Array, region: DemandSet | None = None) -> float:
    """The largest MLU / optimum of a static split over a set; None: all demand vectors."""
    return float(ratio_oracle(instance, region)(loads_of(instance, split))[0].max())


def loads_of(instance: Instance, split: Array) -> Array:
    """(A, D): what a demand at its largest adds to the utilisation of each link."""
    return np.asarray(
        make_membership(instance) @ (utilisation_per_share(instance) * split[:, None])
    ).T


def ratio_oracle(instance: Instance, region: DemandSet | None) -> Oracle:
    program = WorstRatio(instance, region)

    def find_worst(loads: Array) -> tuple[Array, Array]:
        found = [program.find(own) for own in loads]
        return np.array([one.ratio for one in found]), np.array([one.shares for one in found])

    return find_worst


def utilisation_oracle(instance: Instance, region: DemandSet) -> Oracle:
    def find_worst(loads: Array) -> tuple[Array, Array]:
        peaks = region.peaks(loads / instance.demand_max)
        return peaks.values, peaks.inputs / instance.demand_max

    return find_worst


def _of_optimum_one(instance: Instance, samples: Array) -> Array:
    """Samples (N, D), each scaled such that its least MLU is 1; vectors of zeros are left out."""
    vectors = instance.check_vectors(samples)
    vectors = vectors[vectors.any(axis=1)]
    return np.asarray(vectors / instance.find_optimal(vectors).mlu[:, None])


class _Splits:
    """The split of least level, with rows added as they are violated.

    With a `ceiling`, some rows have that in place of the level.
    """

    def __init__(self, instance: Instance, *, ceiling: float = np.inf) -> None:
        self.instance, self.ceiling = instance, ceiling
        self.per_share = utilisation_per_share(instance)
        paths, demands = len(instance.path_demand), len(instance.demand_max)
        self.split, self.level = np.zeros(paths), 0.0
        matrix = sparse.hstack([make_membership(instance), sparse.csr_matrix((demands, 1))])
        cost, ones = np.zeros(paths + 1), np.ones(demands)
        cost[-1] = 1.0
        self.program = routing_program(cost, matrix, ones, ones)

    def solve(self) -> bool:
        """False if no split keeps the ceiling."""
        if solve_program(self.program, (OPTIMAL, INFEASIBLE)) == INFEASIBLE:
            return False
        values = self.program.solution().values
        split, demand = np.maximum(values[:-1], 0.0), self.instance.path_demand
        self.split, self.level = split / np.bincount(demand, split)[demand], float(values[-1])
        return True

    def add(
        self, vectors: Array, arcs: IntArray, chosen: NDArray[np.bool_], *, ceiled: bool = False
    ) -> bool:
        """Rows `load of link arcs[i] at vectors[i] <= level` of those chosen; False if none is."""
        which = np.flatnonzero(chosen)
        if not len(which):
            return False
        loads = self.per_share.T[arcs[which]] * vectors[which][:, self.instance.path_demand]
        last = np.full((len(which), 1), 0.0 if ceiled else -1.0)
        upper = np.full(len(which), self.ceiling if ceiled else 0.0)
        matrix = sparse.csr_matrix(np.hstack([loads, last]))
        self.program.add_rows(np.full(len(which), -np.inf), upper, matrix)
        return True
