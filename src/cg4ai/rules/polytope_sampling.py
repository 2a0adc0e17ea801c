"""Random inputs and vertices of a polytope, many at a time, in coordinates of its box."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cg4ai import clock
from cg4ai.errors import SolverFailure
from cg4ai.records import Array, IntArray

CHAINS = 128  # walks that are spread over the polytope once
STEPS = 24  # of each walk that goes on from there
SPREAD_SWEEPS, SWEEPS = 100, 3  # likewise, where all coordinates are drawn anew one after the other
BATCH = 512  # vertices that are looked for at a time: each keeps a basis (d, d)
CLIMBED = 200  # coordinates up to which vertices are found so; beyond, by a linear program each


@dataclass(frozen=True, eq=False)
class Cube:
    """`rows @ z <= room` and `-1 <= z <= 1`, for the coordinates `free` and limits `used`."""

    free: IntArray
    used: IntArray
    rows: Array
    room: Array

    @property
    def size(self) -> int:
        return len(self.free)

    def sides(self) -> Any:
        """(m, size), sparse: the rows, then the upper and the lower ends of the coordinates."""
        from scipy import sparse  # slow to import

        unit = sparse.eye_array(self.size, format="csr")
        return sparse.vstack([sparse.csr_array(self.rows), unit, -unit], format="csr")

    def pick_sides(self, numbers: IntArray) -> Array:
        """(n, size): some of the sides."""
        picked = np.zeros((len(numbers), self.size))
        end = numbers - len(self.rows)
        limits, places = np.flatnonzero(end < 0), np.flatnonzero(end >= 0)
        picked[limits] = self.rows[numbers[limits]]
        picked[places, end[places] % self.size] = np.where(end[places] < self.size, 1.0, -1.0)
        return picked

    def ends(self) -> Array:
        """(m,): what the sides allow."""
        return np.concatenate([self.room, np.ones(2 * self.size)])

    @cached_property
    def groups(self) -> list[Group]:
        """All coordinates; those of a group share no row, so that they can move side by side."""
        columns: list[list[tuple[IntArray, Array]]] = []
        places: list[list[int]] = []
        taken = np.zeros((16, len(self.rows)), bool)
        for place in range(self.size):
            used = np.flatnonzero(self.rows[:, place])
            number = int(taken[:, used].any(axis=1).argmin()) if len(used) else 0
            if taken[number, used].any():
                number = len(taken)
            if number >= len(taken) - 1:  # always one row that is free
                taken = np.concatenate([taken, np.zeros_like(taken)])
            while len(places) <= number:
                places.append([])
                columns.append([])
            taken[number, used] = True
            places[number].append(place)
            columns[number].append((used, self.rows[used, place]))
        spare = len(self.rows)  # a row without an end, for coordinates in fewer rows than others
        return [
            Group.make(np.array(mine), held, spare)
            for mine, held in zip(places, columns, strict=True)
            if mine
        ]


class Group(NamedTuple):
    """Coordinates (g,), the rows (g, r) that each is in, and its coefficients (g, r, 1) there."""

    places: IntArray
    rows: IntArray
    coefficients: Array

    @classmethod
    def make(cls, places: IntArray, held: list[tuple[IntArray, Array]], spare: int) -> Group:
        most = max(1, *(len(used) for used, _ in held))
        rows = np.full((len(places), most), spare)
        coefficients = np.ones((len(places), most, 1))
        for number, (used, values) in enumerate(held):
            rows[number, : len(used)] = used
            coefficients[number, : len(used), 0] = values
        return cls(places, rows, coefficients)


def _reach(cube: Cube, points: Tensor, ways: Tensor) -> tuple[Tensor, Tensor]:
    """How far each point may go along its way, (n,), and the side (n,) that ends it."""
    rows, room = torch.as_tensor(cube.rows), torch.as_tensor(cube.room)
    rate = torch.cat([ways @ rows.T, ways, -ways], dim=1)
    left = torch.cat([room - points @ rows.T, 1 - points, 1 + points], dim=1).clamp_min(0.0)
    length, side = torch.where(rate > 1e-12, left / rate.clamp_min(1e-12), torch.inf).min(dim=1)
    return length, side


def walk_points(
    cube: Cube, points: Tensor, generator: torch.Generator, *, normals: Array, steps: int = STEPS
) -> Tensor:
    """Points (n, size) after so many steps of hit and run, at right angles to `normals` (t, size).

    Each step goes to a uniform place on the line through the point in a random direction. They end
    where the time of the run does: such points are inside all the same.
    """
    basis, starts = torch.as_tensor(_orthonormal(normals)), points
    stage = clock.Stage(clock.review(), f"random walks in {cube.size:,} dimensions")
    for step in range(steps):
        if not stage.is_in_time(step, steps):
            break
        ways = torch.randn(points.shape, generator=generator, dtype=torch.float64)
        ways = ways - (ways @ basis) @ basis.T
        ahead, _ = _reach(cube, points, ways)
        behind, _ = _reach(cube, points, -ways)
        share = torch.rand(len(points), generator=generator, dtype=torch.float64)
        length = share * (ahead + behind) - behind
        points = points + torch.where(torch.isfinite(length), length, 0.0)[:, None] * ways
    return _levelled(points, starts, basis)


def sweep_points(
    cube: Cube, points: Tensor, generator: torch.Generator, *, sweeps: int = SWEEPS
) -> Tensor:
    """Points (n, size) after each coordinate was drawn anew, uniformly, so many times.

    This leaves uniform points uniform, as hit and run does, and a sweep over all coordinates takes
    about as long as one of its steps; but only inside, not along sides that all points touch.
    """
    free = np.ascontiguousarray(points.numpy().T)
    slack = np.full((len(cube.rows) + 1, len(points)), np.inf)
    stage = clock.Stage(clock.review(), f"random walks in {cube.size:,} dimensions")
    for sweep in range(sweeps):
        if not stage.is_in_time(sweep, sweeps):
            break
        slack[:-1] = np.maximum(cube.room[:, None] - cube.rows @ free, 0.0)
        for places, rows, coefficients in cube.groups:
            start, room = free[places], slack[rows] / coefficients  # (g, n), (g, r, n)
            upwards = coefficients > 0
            ahead = np.where(upwards, room, np.inf).min(axis=1)
            behind = np.where(upwards, -np.inf, room).max(axis=1)
            ahead = np.clip(ahead, 0.0, 1 - start)
            behind = np.clip(behind, -1 - start, 0.0)
            drawn = torch.rand(start.shape, generator=generator, dtype=torch.float64).numpy()
            step = behind + drawn * (ahead - behind)
            free[places] = start + step
            slack[rows] = np.maximum(slack[rows] - coefficients * step[:, None], 0.0)
    return torch.as_tensor(np.ascontiguousarray(free.T))


def spread_points(cube: Cube, centre: Tensor, *, normals: Array | None) -> Tensor:
    """(CHAINS, size) points all over the cube, walked there from its centre.

    Without normals (None) by sweeps, which is quicker and mixes better where there is room.
    """
    generator = torch.Generator().manual_seed(0)
    starts = centre.repeat(CHAINS, 1)
    with clock.review().take_share(0.5).activate():
        if normals is None:
            return sweep_points(cube, starts, generator, sweeps=SPREAD_SWEEPS)
        return walk_points(cube, starts, generator, normals=normals, steps=50 + 2 * cube.size)


def find_vertices(
    cube: Cube, points: Tensor, generator: torch.Generator, *, normals: Array
) -> Tensor:
    """A vertex (n, size) from each point, in the direction of a random vector of its own."""
    goals = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    if cube.size > CLIMBED:
        return _peaks(cube, points, goals)
    basis = torch.as_tensor(_orthonormal(normals))
    parts = zip(torch.split(points, BATCH), torch.split(goals, BATCH), strict=True)
    found = torch.cat([_climbed(cube, part, goal, basis) for part, goal in parts])
    return _levelled(found, points, basis)


def _peaks(cube: Cube, points: Tensor, goals: Tensor) -> Tensor:
    """The vertices (n, size) where the goals are largest; points where time ends before."""
    from scipy import sparse

    rows, found = sparse.csr_array(cube.rows), points.clone()
    stage = clock.Stage(clock.review(), f"vertices in {cube.size:,} dimensions")
    for number, goal in enumerate(goals.numpy()):
        if not stage.is_in_time(number, len(goals)):
            break
        optimum = maximise(goal, rows, cube.room, bounds=[(-1.0, 1.0)] * cube.size)
        found[number] = torch.as_tensor(optimum.point)
    return found


def _levelled(points: Tensor, starts: Tensor, basis: Tensor) -> Tensor:
    """Without what rounding added along the basis, in which nothing was to move."""
    return points - ((points - starts) @ basis) @ basis.T


def _climbed(cube: Cube, points: Tensor, goals: Tensor, basis: Tensor) -> Tensor:
    """Along the goals until a side is met, then along it, until as many are met as hold a point."""
    count, size = points.shape
    first = basis.shape[1]
    met = torch.zeros(count, size, size, dtype=torch.float64)  # orthonormal columns
    met[:, :, :first] = basis
    ways = _off(goals, met[:, :, :first])
    stage = clock.Stage(clock.review(), f"vertices in {size:,} dimensions")
    for number in range(first, size):
        if not stage.is_in_time(number, size):
            break  # on fewer sides than a vertex is
        length, side = _reach(cube, points, ways)
        moving = torch.isfinite(length)[:, None]
        points = points + torch.where(moving, length[:, None] * ways, 0.0)
        normal = _off(torch.as_tensor(cube.pick_sides(side.numpy())), met[:, :, :number])
        normal = _off(normal, met[:, :, :number])
        normal = normal / torch.linalg.vector_norm(normal, dim=1, keepdim=True).clamp_min(1e-300)
        met[:, :, number] = torch.where(moving, normal, 0.0)
        ways = _off(ways, met[:, :, number : number + 1])
        ways = ways / torch.linalg.vector_norm(ways, dim=1, keepdim=True).clamp_min(1e-300)
    return points


def _off(vectors: Tensor, met: Tensor) -> Tensor:
    """What of the vectors (n, size) is at right angles to the columns of `met`."""
    return vectors - (met @ (met.transpose(1, 2) @ vectors[:, :, None]))[:, :, 0]


def _orthonormal(normals: Array) -> Array:
    """(size, rank): a basis of what the normals (t, size) span."""
    if not len(normals):
        return np.zeros((normals.shape[1], 0))
    left, values, _ = np.linalg.svd(normals.T, full_matrices=False)
    return np.asarray(left[:, values > 1e-9 * values.max()])


class Optimum(NamedTuple):
    """`point` that maximises, and `multipliers` >= 0 of the rows."""

    point: Array
    multipliers: Array


def maximise(goal: Array, rows: Any, ends: Array, *, bounds: list[Any]) -> Optimum:
    """Maximise goal . x over rows @ x <= ends and bounds."""
    from scipy.optimize import linprog  # slow to import

    if not len(goal):
        return Optimum(np.empty(0), np.zeros(rows.shape[0]))
    found = linprog(-goal, A_ub=rows, b_ub=ends, bounds=bounds, method="highs")
    if found.status != 0:
        raise SolverFailure(
            f"HiGHS found no answer for a linear program over a polytope: {found.message}"
        )
    return Optimum(np.asarray(found.x), np.maximum(-np.asarray(found.ineqlin.marginals), 0.0))


ITERATIONS = 2000  # to be exact but for rounding
ROUGHLY = 50  # to lose a small share of the distance
LOOK = 25  # iterations between looks at who has arrived
ENOUGH = 1e-12  # residual relative to the size of the points and limits


def find_nearest(
    points: Tensor, matrix: Tensor, limit: Tensor, box: tuple[Tensor, Tensor], *, iterations: int
) -> Tensor:
    """(n, d) -> (n, d): the nearest point of the box with matrix @ x <= limit.

    With y >= 0 the multipliers of the limits it is `x(y) = clip(point - y matrix)`, where y
    maximises the dual function: concave, with slope `matrix x(y) - limit`. Momentum is dropped
    where it points downhill. A point that has not arrived after all iterations is a little off,
    and may break limits by as little.
    """
    lower, upper = box
    size = torch.linalg.vector_norm(matrix, dim=1)
    rows, ends = matrix[size > 0] / size[size > 0, None], limit[size > 0] / size[size > 0]
    length = 1 / torch.linalg.matrix_norm(rows, ord=2) ** 2
    enough = ENOUGH * (1 + points.abs().amax() + ends.abs().amax())

    def place(given: Tensor, multipliers: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(given - multipliers @ rows, lower), upper)

    result, left = points.clone(), torch.arange(len(points), device=points.device)
    last = points.new_zeros(len(points), len(rows))
    ahead, pace = last, points.new_ones(len(points), 1)
    for iteration in range(iterations):
        given = points[left]
        y = (ahead + length * (place(given, ahead) @ rows.T - ends)).clamp_min(0.0)
        downhill = ((y - ahead) * (y - last)).sum(-1, keepdim=True) < 0
        quicker = (1 + torch.sqrt(1 + 4 * pace**2)) / 2
        ahead = y + torch.where(downhill, 0.0, (pace - 1) / quicker) * (y - last)
        last, pace = y, torch.where(downhill, 1.0, quicker)
        if iteration % LOOK == LOOK - 1:
            result[left] = x = place(given, y)
            away = torch.minimum(y, ends - x @ rows.T).abs().amax(-1) > enough
            if not bool(away.any()):
                break
            left, last, ahead, pace = left[away], last[away], ahead[away], pace[away]
    return result
