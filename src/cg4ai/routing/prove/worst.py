"""The demand vector of a set at which given loads are furthest above the optimum, by one program.

For loads g . b + g0 and the least MLU m(b), the largest (g . b + g0) / m(b) over a set is a linear
program once b is scaled such that m(b) = 1. Its dual solution are prices of the links, which prove
the answer: they make a lower bound of m that is nowhere in the set below the loads over the ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from cg4ai.data import Array
from cg4ai.errors import SolverFailure
from cg4ai.routing.train.optimal import (
    TOLERANCE,
    make_membership,
    utilisation_per_share,
)
from cg4ai.rules import Box
from cg4ai.solvers import OPTIMAL, LinearProgram

if TYPE_CHECKING:
    from cg4ai.routing.demands.sets import DemandSet
    from cg4ai.routing.network.instance import Instance


@dataclass(frozen=True, eq=False)
class RatioMaximum:
    """The largest `ratio` of loads to the least MLU, and where.

    `shares` (D,) are the demands in units of their largest, of least MLU 1; divided by `scale` they
    are a vector of the set. `arc_prices` (A,) >= 0 sum up to the ratio.
    """

    ratio: float
    shares: Array
    scale: float
    arc_prices: Array


class WorstRatio:
    """One program for a set of demands (None: all that are not negative) and any loads."""

    def __init__(self, instance: Instance, region: DemandSet | None) -> None:
        self.demands, self.arcs = len(instance.demand_max), len(instance.arcs)
        paths, demands = len(instance.path_demand), self.demands
        count = demands + 1 + paths  # the demands, their scale and the flows, in units of largest
        self.costs = np.zeros(count)
        identity = sparse.identity(demands, format="csr")
        routed = sparse.hstack(
            [-identity, sparse.csr_matrix((demands, 1)), make_membership(instance)], format="csr"
        )
        loads = sparse.csr_matrix(utilisation_per_share(instance).T)
        used = sparse.hstack([sparse.csr_matrix((self.arcs, demands + 1)), loads], format="csr")
        self.program = LinearProgram(TOLERANCE)
        self.program.add_columns(self.costs, np.zeros(count), sparse.csc_matrix((0, count)))
        zeros = np.zeros(demands)
        self.program.add_rows(zeros, zeros, routed)
        self.program.add_rows(np.full(self.arcs, -np.inf), np.ones(self.arcs), used)
        if region is not None:
            rows = _scaled(instance, region)
            blank = sparse.csr_matrix((rows.shape[0], paths))
            matrix = sparse.hstack([rows, blank], format="csr")
            self.program.add_rows(np.full(len(rows), -np.inf), np.zeros(len(rows)), matrix)

    def find(self, slopes: Array, offset: float = 0.0) -> RatioMaximum:
        """For loads `slopes . shares + offset`, slopes (D,), of one link.

        An offset needs a set without demands of zero, or the scale has no end.
        """
        self.costs[: self.demands] = -slopes
        self.costs[self.demands] = -offset
        self.program.change_costs(self.costs)
        status = self.program.run(primal=True).status
        if status != OPTIMAL:
            raise SolverFailure(
                f"the program of the worst demand vector ended as {status}, expected {OPTIMAL}; "
                "demands or capacities may differ by too many orders of magnitude"
            )
        answer = self.program.solution()
        prices = np.maximum(-answer.duals[self.demands : self.demands + self.arcs], 0.0)
        values = answer.values
        return RatioMaximum(
            -self.program.objective(),
            np.maximum(values[: self.demands], 0.0),
            float(values[self.demands]),
            prices,
        )


def _scaled(instance: Instance, region: DemandSet) -> Array:
    """(R, D + 1): rows of `shares - scale * set <= 0`, so that shares / scale lie in the set."""
    largest = instance.demand_max
    box = region if isinstance(region, Box) else region.box
    identity = np.eye(len(largest))
    rows = [
        np.column_stack([-identity, box.lower / largest]),
        np.column_stack([identity, -box.upper / largest]),
    ]
    if not isinstance(region, Box):
        matrix = region.matrix * largest
        size = np.maximum(np.abs(region.limit), np.abs(matrix).max(axis=1))[:, None]
        rows.append(np.column_stack([matrix, -region.limit]) / size)
    return np.concatenate(rows)
