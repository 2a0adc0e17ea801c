"""The largest excess of a sum of ReLU units over limits, anywhere in a region: climbed and proven.

The excess is `total(x) - max over pieces p of (limit_p + tilt_p . x)`. A lower bound is climbed to
from corner to corner, an upper one comes from lines above every unit or, exact, from a program with
one binary variable for every unit whose sign is not fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.members.relu import ReluSum
from cg4ai.records import Array
from cg4ai.rules.regions import Ball, Polytope, Region
from cg4ai.solvers.highs import MixedProgram, solve_mixed

NODES = 10_000  # of branch and bound for a program, most of which take some hundred
CLIMBS = 20  # corners visited from one start at most; most climbs end after three


@dataclass(frozen=True, eq=False)
class Excess:
    """`total` above the largest of its limits: `limit` (P,), `tilt` (P, d)."""

    total: ReluSum
    limit: Array
    tilt: Array

    def values(self, inputs: Array) -> Array:
        """(n, d) -> (n,), positive where the limits are exceeded."""
        return np.asarray(
            self.total.values(inputs) - (inputs @ self.tilt.T + self.limit).max(axis=1)
        )

    def slopes(self, inputs: Array) -> Array:
        """(n, d) -> (n, d): of the affine piece that each input lies on."""
        active = inputs @ self.total.hidden.T + self.total.offset > 0
        piece = (inputs @ self.tilt.T + self.limit).argmax(axis=1)
        rising = self.total.slope + (active * self.total.weight) @ self.total.hidden
        return np.asarray(rising - self.tilt[piece])


@dataclass(frozen=True, eq=False)
class Peak:
    """The best `input` (d,) known with its `value`, and what no input of the region is above.

    `units` counts the binary variables of the program; 0 where bounds without one sufficed.
    """

    input: Array
    value: float
    bound: float
    units: int = 0
    optimal: bool = True


def check_region(region: Region) -> None:
    """Refuse regions that linear rows cannot state."""
    if isinstance(region, Ball) and region.norm == 2:
        raise InvalidInput(
            f"exact separation is for boxes, polytopes and balls in the maximum norm, got {region};"
            " enclose it in a Box, or use GradientAscent",
            code="unsupported",
        )


def climb(excess: Excess, region: Region, *, starts: int, seed: int) -> Array:
    """The best input reached: from corner to corner of the affine pieces, (d,)."""
    made = torch.Generator().manual_seed(seed)
    points = np.concatenate([region.middle[None], region.sample(starts, made).numpy()])
    values = excess.values(points)
    best, value = points[values.argmax()], values.max()
    for _ in range(CLIMBS):
        points = region.peaks(excess.slopes(points)).inputs
        values = excess.values(points)
        if values.max() <= value:
            break
        best, value = points[values.argmax()], values.max()
    return np.asarray(best)


def compute_line_bound(excess: Excess, region: Region) -> float:
    """No input of the region is above: every unit replaced by a line above its contribution.

    Above `weight * max(0, z)` on [low, high] lies the chord if the weight is positive, and
    otherwise 0 or `weight * z`, whichever is closer.
    """
    lower, upper = region.bounds()
    total = excess.total.restrict_to_box(lower, upper)
    low, high = total.ranges(lower, upper)
    chord = high / (high - low)
    share = np.where(total.weight > 0, chord, (high > -low).astype(np.float64))
    raised = np.where(total.weight > 0, -chord * low * total.weight, 0.0).sum()
    factor = total.weight * share
    start = total.constant + float(factor @ total.offset) + float(raised) - excess.limit
    slopes = total.slope + factor @ total.hidden - excess.tilt
    return float((start + np.where(slopes > 0, slopes * upper, slopes * lower).sum(axis=1)).min())


def maximise_excess(
    excess: Excess,
    region: Region,
    *,
    start: Array,
    gap: float,
    units: int,
    nodes: int = NODES,
    seconds: float = math.inf,
    floor: float | None = None,
) -> Peak:
    """The largest excess by HiGHS, from the input `start`; within `gap` unless `nodes` or `seconds`
    run out.

    With a `floor` only inputs whose excess reaches it count: that there are none is known much
    sooner, and then is the bound.
    """
    lower, upper = region.bounds()
    total = excess.total.restrict_to_box(lower, upper)
    count = len(total.weight)
    if count > units:
        raise InvalidInput(
            f"exact separation takes at most {units} units whose sign changes in the region, got "
            f"{count}; use fewer or smaller members, a smaller region, or raise the limit: "
            "separator=MixedInteger(units=...)",
            code="memory",
        )
    program = _program(total, excess, region, -np.inf if floor is None else floor)
    value = float(excess.values(start[None])[0])
    begin = _start(total, excess, start) if floor is None or value >= floor else None
    found = solve_mixed(program, node_limit=nodes, time_limit_s=seconds, gap=gap, start=begin)
    if found.infeasible:
        if floor is None:
            raise SolverFailure(
                f"HiGHS reports the search over {region} as infeasible, but it is always feasible"
            )
        return Peak(start, value, max(floor, value), count)
    if not np.isfinite(found.bound):
        return Peak(start, value, compute_line_bound(excess, region), count, False)
    reached = start if found.values is None else found.values[: len(lower)]
    inputs = np.stack([start, np.clip(reached, lower, upper)])
    values = excess.values(inputs)
    best = int(values.argmax())
    top = total.constant - found.bound
    optimal = top - values[best] <= max(2 * gap, 1e-6)
    return Peak(inputs[best], float(values[best]), max(top, float(values[best])), count, optimal)


def _program(total: ReluSum, excess: Excess, region: Region, floor: float) -> MixedProgram:
    """Minimise minus the excess over inputs x, values z and outputs s of units, signs a, limit t.

    With `low < 0 < high` the range of z: s >= z, s >= 0, s <= high a, s <= z - low (1 - a); so s is
    max(0, z) exactly where a is 0 or 1. t stands for minus the largest limit. The excess is
    at least `floor`.
    """
    lower, upper = region.bounds()
    low, high = total.ranges(lower, upper)
    size, count, pieces = len(lower), len(total.weight), len(excess.limit)
    unit, none = sparse.identity(count), sparse.csr_matrix((count, count))
    column = sparse.csr_matrix((count, 1))

    def wide(first: object, *rest: object) -> object:
        return sparse.hstack([first, *rest, column])

    nothing = sparse.csr_matrix((count, size))
    free = np.full(count, np.inf)
    rows = [
        (wide(-sparse.csr_matrix(total.hidden), unit, none, none), total.offset, total.offset),
        (wide(nothing, -unit, unit, none), np.zeros(count), free),
        (wide(nothing, none, unit, -sparse.diags(high)), -free, np.zeros(count)),
        (wide(nothing, -unit, unit, -sparse.diags(low)), -free, -low),
    ]
    limits = sparse.hstack(
        [excess.tilt, sparse.csr_matrix((pieces, 3 * count)), np.ones((pieces, 1))]
    )
    rows.append((limits, np.full(pieces, -np.inf), -excess.limit))
    if isinstance(region, Polytope):
        kept = sparse.hstack([region.matrix, sparse.csr_matrix((len(region.limit), 3 * count + 1))])
        rows.append((kept, np.full(len(region.limit), -np.inf), region.limit))
    costs = -np.concatenate([total.slope, np.zeros(count), total.weight, np.zeros(count), [1.0]])
    if np.isfinite(floor):
        least = np.array([floor - total.constant])
        rows.append((sparse.csr_matrix(-costs[None]), least, np.array([np.inf])))
    reach = np.abs(excess.tilt) @ np.maximum(np.abs(lower), np.abs(upper)) + np.abs(excess.limit)
    most = float(reach.max()) + 1.0
    return MixedProgram(
        costs,
        np.concatenate([lower, low, np.zeros(2 * count), [-most]]),
        np.concatenate([upper, high, high, np.ones(count), [most]]),
        np.repeat([False, True, False], [size + 2 * count, count, 1]),
        sparse.vstack([matrix for matrix, _, _ in rows]).tocsr(),
        np.concatenate([start for _, start, _ in rows]),
        np.concatenate([end for _, _, end in rows]),
    )


def _start(total: ReluSum, excess: Excess, point: Array) -> Array:
    """The variables of the program at an input."""
    before = total.hidden @ point + total.offset
    limit = -(excess.tilt @ point + excess.limit).max()
    return np.concatenate([point, before, np.maximum(before, 0.0), before > 0, [limit]])
