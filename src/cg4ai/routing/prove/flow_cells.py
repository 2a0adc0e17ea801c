"""The best affine flows of a box of demands: how far above the optimum they are at worst, proven.

On a box [l, h] of demands b the flow of path p is `slope_p . b + offset_p`, so a link has the load
`g . b + g0`. It is at most R times the optimum at every b of the box if and only if there is one
price vector y of the demands, feasible in the dual of the routing program, with

    g0 + sum_d max over l_d <= b_d <= h_d of b_d (g_d - R y_d) <= 0,

for loads minus R y . b are bilinear in b and y, and both lie in compact convex sets. Flows of least
R are found by cutting planes: the worst demand vector of each link is one small program
(`worst.py`), whose dual solution is that y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.data import Array, IntArray
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.prove.worst import WorstRatio
from cg4ai.routing.train.optimal import (
    TOLERANCE,
    make_membership,
    solve_program,
    utilisation_per_share,
)
from cg4ai.rules import Box
from cg4ai.solvers import LinearProgram

CLOSE = 1e-3  # how far above its least a cell's ratio may be: the last cuts take the longest
ROUNDS = 60  # of cutting planes in a cell, at most
SMALL = 1e-7  # what slopes cost, so that of equal ones the smallest are taken
KEPT = 80  # cuts that halves of a cell start from, at most, beside those that bind
ZERO = 1e-9  # prices and loads below this are none


@dataclass(frozen=True, eq=False)
class Cuts:
    """Loads of links `arcs` (k,) at vectors `shares` / `scale`, (k, D) of least MLU 1 and (k,)."""

    arcs: IntArray
    shares: Array
    scale: Array

    def __len__(self) -> int:
        return len(self.arcs)

    def take(self, which: IntArray | NDArray[np.bool_]) -> Cuts:
        return Cuts(self.arcs[which], self.shares[which], self.scale[which])

    def join(self, other: Cuts) -> Cuts:
        return Cuts(
            np.concatenate([self.arcs, other.arcs]),
            np.concatenate([self.shares, other.shares]),
            np.concatenate([self.scale, other.scale]),
        )

    def restrict_to_box(self, lower: Array, upper: Array) -> Cuts:
        """Those of a smaller box, at the scale nearest to the old one."""
        least = (self.shares / upper).max(axis=1, initial=0.0)
        most = (self.shares / lower).min(axis=1, initial=np.inf)
        kept = self.take(np.flatnonzero(least <= most))
        ends = least[least <= most], most[least <= most]
        return Cuts(kept.arcs, kept.shares, np.clip(kept.scale, *ends))

    @classmethod
    def empty(cls, demands: int) -> Cuts:
        return cls(np.zeros(0, np.int64), np.zeros((0, demands)), np.zeros(0))


@dataclass(frozen=True, eq=False)
class FlowCell:
    """Flows over a box of demands, all in units of the largest demands.

    `slope` (P, D), `offset` (P,); `ratio`: what every link keeps; `arc_prices` (k, A) prove it.
    """

    lower: Array
    upper: Array
    slope: Array
    offset: Array
    ratio: float
    arc_prices: Array
    cuts: Cuts


class FlowPrograms:
    """Finds the flows of one cell after the other."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.per_share = utilisation_per_share(instance)
        self.paths, self.arcs = self.per_share.shape
        self.demands = len(instance.demand_max)
        own, size = make_membership(instance), self.paths * self.demands
        each = sparse.kron(own, sparse.identity(self.demands))  # a row for each pair of demands
        blank = sparse.csr_matrix((self.demands**2, self.paths + 1))
        offsets = sparse.hstack([sparse.csr_matrix((self.demands, 2 * size)), own])
        last = sparse.csr_matrix((self.demands, 1))
        self._sums = sparse.vstack(
            [sparse.hstack([each, -each, blank]), sparse.hstack([offsets, last])], format="csr"
        )
        self._totals = np.concatenate([np.eye(self.demands).ravel(), np.zeros(self.demands)])

    def solve_cell(
        self, lower: Array, upper: Array, cuts: Cuts | None = None, known: Array | None = None
    ) -> FlowCell:
        """For the box [lower, upper] (D,), above 0, in units of the largest demands.

        `cuts` and `known` arc prices (k, A) are those of a larger box to start from.
        """
        cuts = Cuts.empty(self.demands) if cuts is None else cuts.restrict_to_box(lower, upper)
        prices = np.zeros((0, self.arcs)) if known is None else known
        program = self._program(lower, upper, cuts)
        largest = self.instance.demand_max
        worst = WorstRatio(self.instance, Box(lower * largest, upper * largest))
        for _ in range(ROUNDS):
            solve_program(program)
            slope, offset, level = self._flows(program)
            aim = level + CLOSE
            loads, fixed = self.per_share.T @ slope, self.per_share.T @ offset
            open_arcs = self._unproven(loads, fixed, prices, box=(lower, upper), ratio=aim)
            found = [worst.find(loads[arc], float(fixed[arc])) for arc in open_arcs]
            if found:
                new = np.array([one.arc_prices for one in found])
                new = new[new.sum(axis=1) > ZERO]
                prices = np.concatenate([prices, new / new.sum(axis=1, keepdims=True)])
            broken = [number for number, one in enumerate(found) if one.ratio > aim]
            if not broken:
                break
            added = Cuts(
                np.array([open_arcs[number] for number in broken]),
                np.array([found[number].shares for number in broken]),
                np.array([found[number].scale for number in broken]),
            )
            self._cut(program, added)
            cuts = cuts.join(added)
        reached = max([aim, *(one.ratio for one in found)])
        binding = np.abs(program.solution().duals[len(self._totals) + self.paths :]) > ZERO
        binding = np.concatenate([binding, np.zeros(len(cuts) - len(binding), bool)])
        binding[-KEPT:] = True
        return FlowCell(
            lower, upper, slope, offset, reached, prices[-2 * self.arcs :], cuts.take(binding)
        )

    def demand_prices(self, arc_prices: Array) -> Array:
        """(k, A) -> (k, D): what the cheapest path of each whole demand costs."""
        per_path = arc_prices @ self.per_share.T
        return np.stack([per_path[:, block].min(axis=1) for block in self.instance.blocks], axis=1)

    def _unproven(
        self,
        loads: Array,
        fixed: Array,
        arc_prices: Array,
        *,
        box: tuple[Array, Array],
        ratio: float,
    ) -> list[int]:
        """Links that none of the prices proves to keep the ratio; those without load do."""
        used = np.maximum(np.abs(loads).max(axis=1), np.abs(fixed)) > ZERO
        if len(arc_prices):
            most = compute_excess(
                loads, fixed, self.demand_prices(arc_prices), box=box, ratio=ratio
            )
            used &= ~(most <= 0).any(axis=1)
        return np.flatnonzero(used).tolist()

    def _program(self, lower: Array, upper: Array, cuts: Cuts) -> LinearProgram:
        """Slopes as differences, offsets and the level; flows are not below 0 in the box."""
        size = self.paths * self.demands
        cost = np.concatenate([np.full(2 * size, SMALL), np.zeros(self.paths), [1.0]])
        least = np.zeros(len(cost))
        least[2 * size : -1] = -np.inf
        program = LinearProgram(TOLERANCE)
        program.add_columns(cost, least, sparse.csc_matrix((0, len(cost))))
        program.add_rows(self._totals, self._totals, self._sums)
        one = sparse.identity(self.paths)
        flows = [sparse.kron(one, lower[None]), -sparse.kron(one, upper[None]), one]
        matrix = sparse.hstack([*flows, sparse.csr_matrix((self.paths, 1))], format="csr")
        program.add_rows(np.zeros(self.paths), np.full(self.paths, np.inf), matrix)
        if len(cuts):
            self._cut(program, cuts)
        return program

    def _cut(self, program: LinearProgram, cuts: Cuts) -> None:
        """Rows `load at the vector <= level`."""
        per_path = self.per_share.T[cuts.arcs]
        slopes = (per_path[:, :, None] * cuts.shares[:, None]).reshape(len(cuts), -1)
        level = np.full((len(cuts), 1), -1.0)
        matrix = np.hstack([slopes, -slopes, per_path * cuts.scale[:, None], level])
        none = np.full(len(cuts), -np.inf)
        program.add_rows(none, np.zeros(len(cuts)), sparse.csr_matrix(matrix))

    def _flows(self, program: LinearProgram) -> tuple[Array, Array, float]:
        """Slopes, offsets and level; what rounding leaves of sums goes to the first paths."""
        values = program.solution().values
        size = self.paths * self.demands
        slope = (values[:size] - values[size : 2 * size]).reshape(self.paths, self.demands)
        offset = values[2 * size : -1].copy()
        own = make_membership(self.instance)
        first = [block[0] for block in self.instance.blocks]
        slope[first] += np.eye(self.demands) - own @ slope
        offset[first] -= own @ offset
        return slope, offset, float(values[-1])


def compute_excess(
    loads: Array, fixed: Array, prices: Array, *, box: tuple[Array, Array], ratio: float
) -> Array:
    """(A, k): by how much loads (A, D), (A,) exceed ratio x prices (k, D) in a box, at most."""
    over = loads[:, None] - ratio * prices[None]
    lower, upper = box
    return np.asarray(fixed[:, None] + np.maximum(over * lower, over * upper).sum(axis=2))
