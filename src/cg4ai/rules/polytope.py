"""`Polytope`: the inputs of a box that keep linear limits too, such as hose limits or budgets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.data import arrays
from cg4ai.data.arrays import is_traced
from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules.box import HAIR, Box, Peaks
from cg4ai.rules.polytope_sampling import (
    ITERATIONS,
    ROUGHLY,
    Cube,
    find_nearest,
    find_vertices,
    maximise,
    spread_points,
    sweep_points,
    walk_points,
)

EPSILON = float(np.finfo(np.float64).eps)
FLAT = 1e-9  # relative to the box: a polytope thinner than this has no inside
THIN = 1e-3  # likewise: single coordinates can hardly move in a thinner one
ACCEPTED = 0.1  # share of the box above which inputs are drawn there and thrown away outside
ALIKE = 1e3  # widths of a box that differ by more are units that differ
PILOT = 2048  # inputs by which that share is measured
VERTICES = 2**27  # the most that are looked for in one call, times the cube of the dimension


class _Inside(NamedTuple):
    """`point` (d,) as far from all sides as it goes; `tight` (m,) are sides it cannot leave."""

    point: Array
    tight: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Polytope:
    """All inputs x of `box` with `matrix @ x <= limit`; matrix (k, d) dense or sparse, limit (k,).

    A polytope without any input is refused with limits that exclude each other. One that is flat,
    such as `a . x <= 1` beside `-a . x <= -1`, is allowed; its inputs keep the limits but for
    rounding.
    """

    box: Box
    matrix: Any
    limit: Any

    def __post_init__(self) -> None:
        if not isinstance(self.box, Box):
            raise InvalidInput(
                f"a Polytope is a Box with further limits, got {type(self.box).__name__} first; "
                "use Polytope(Box(lower, upper), A, b)",
                code="type",
            )
        matrix = arrays.as_matrix(self.matrix, "the limits' matrix of a Polytope")
        if matrix.shape[1] != self.box.size:
            raise InvalidInput(
                f"the matrix of a Polytope has {matrix.shape[1]} columns, its box {self.box.size} "
                "coordinates; each row holds one coefficient per coordinate",
                code="shape",
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "limit", arrays.as_vector(self.limit, "limit", len(matrix)))
        _ = self._inside  # an empty polytope is refused here

    @property
    def size(self) -> int:
        return self.box.size

    @property
    def middle(self) -> Array:
        """An input (d,) as deep inside as there is."""
        return self._inside.point

    def bounds(self) -> tuple[Array, Array]:
        """The smallest box around it, found by linear programs; no input lies outside."""
        return self._bounds

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        if self._is_one_signed:
            return self._one_signed_bounds()
        unit = np.eye(self.size)
        values = self.peaks(np.concatenate([unit, -unit])).values
        slip = 8 * EPSILON * np.maximum(np.abs(self.box.lower), np.abs(self.box.upper))
        upper = np.minimum(self.box.upper, values[: self.size] + slip)
        return np.maximum(self.box.lower, -values[self.size :] - slip), upper

    @property
    def _is_one_signed(self) -> bool:
        """Whether no coordinate helps one limit and harms another, as in sums of volumes."""
        return bool(((self.matrix >= 0).all(axis=0) | (self.matrix <= 0).all(axis=0)).all())

    def _one_signed_bounds(self) -> tuple[Array, Array]:
        """Each coordinate goes as far as the limits allow where the others harm them least."""
        lower, upper = self.box.lower, self.box.upper
        rises = (self.matrix >= 0).all(axis=0)
        easiest = np.where(rises, lower, upper)
        room = np.maximum(self.limit - self.matrix @ easiest, 0.0) + self._row_slip
        size = np.abs(self.matrix)
        far = np.divide(room[:, None], size, where=size > 0, out=np.full(size.shape, np.inf))
        reach = far.min(axis=0, initial=np.inf)
        reach = reach + 8 * EPSILON * np.maximum(np.abs(lower), np.abs(upper))
        return (
            np.where(rises, lower, np.maximum(lower, upper - reach)),
            np.where(rises, np.minimum(upper, lower + reach), upper),
        )

    @cached_property
    def _cube(self) -> Cube:
        """The polytope in coordinates of the box, [-1, 1] each; those without width are left out.

        Rows are scaled to sum up to one, so that their slack is a share of the box.
        """
        half = (self.box.upper - self.box.lower) / 2
        free = np.flatnonzero(half > 0)
        rows = self.matrix[:, free] * half[free]
        reach = np.abs(rows).sum(axis=1)
        room = self.limit - self.matrix @ self.box.middle
        self._refuse_constant(reach, room)
        used = np.flatnonzero(reach > 0)
        return Cube(free, used, rows[used] / reach[used, None], room[used] / reach[used])

    def _refuse_constant(self, reach: Array, room: Array) -> None:
        """Limits that no coordinate moves, and that do not hold."""
        wrong = np.flatnonzero((reach == 0) & (room < -self._row_hair))
        if len(wrong):
            raise InvalidInput(
                f"the polytope is empty: no input keeps limit {wrong[0]}, at most "
                f"{self.limit[wrong[0]]:.6g}; correct or remove it",
                code="infeasible",
            )

    @cached_property
    def _inside(self) -> _Inside:
        """The input of largest slack, all sides counted but those that have none anywhere."""
        from scipy import sparse

        cube = self._cube
        if self._is_one_signed and len(cube.rows):  # as far from the ends that ease all limits
            slack = min(1.0, float((cube.room + 1).min()) / 2)
            if slack > FLAT:
                eased = np.where((cube.rows >= 0).all(axis=0), -1.0, 1.0)
                point = self._from_cube((eased * (1 - slack))[None])[0]
                return _Inside(point, np.zeros(len(cube.rows) + 2 * cube.size, bool))

        sides, ends = cube.sides(), cube.ends()
        soft, points = np.ones(len(ends), bool), [np.zeros(cube.size)]
        while soft.any():
            found = maximise(
                np.append(np.zeros(cube.size), 1.0),
                sparse.hstack([sides, sparse.csr_array(soft[:, None] * 1.0)], format="csr"),
                ends,
                bounds=[(-2.0, 2.0)] * cube.size + [(None, 2.0)],
            )
            multipliers = found.multipliers * soft
            self._refuse_empty(multipliers[: len(cube.rows)])
            points.append(found.point[:-1])
            if found.point[-1] > FLAT:
                break
            soft &= multipliers <= 1e-6 * multipliers.max()
        first, last = points[1 if len(points) > 1 else 0], points[-1]
        # later points may leave a thin polytope by the solver's tolerance, the first one does not
        room, gain = np.maximum(ends - sides @ first, 0.0), sides @ (last - first)
        beyond = gain > room + 4 * EPSILON * (cube.size + 4)
        share = float((room[beyond] / gain[beyond]).min(initial=1.0))
        return _Inside(self._from_cube((first + share * (last - first))[None])[0], ~soft)

    def _refuse_empty(self, multipliers: Array) -> None:
        """By Farkas: a sum of limits, weighted >= 0, that no input of the box can keep."""
        cube = self._cube
        least = -np.abs(multipliers @ cube.rows).sum()
        allowed = multipliers @ cube.room
        slip = 16 * EPSILON * (cube.size + len(multipliers)) * (multipliers.sum() + abs(allowed))
        if least > allowed + slip:
            share = multipliers / multipliers.max()
            rows = ", ".join(str(row) for row in cube.used[share > 1e-6][:10])
            more = ", ..." if (share > 1e-6).sum() > 10 else ""
            raise InvalidInput(
                f"the polytope is empty: limits {rows}{more} cannot hold together in its box; "
                f"their sum, weighted by {_shown(share[share > 1e-6])}, is missed by every input",
                code="infeasible",
            )

    def _from_cube(self, points: Array) -> Array:
        """(n, free) in [-1, 1] -> (n, d) inputs."""
        full = np.tile(self.box.middle, (len(points), 1))
        half = (self.box.upper - self.box.lower)[self._cube.free] / 2
        full[:, self._cube.free] += np.clip(points, -1, 1) * half
        return np.clip(full, self.box.lower, self.box.upper)

    def peaks(self, slopes: Array) -> Peaks:
        """Where `slopes` (L, d) times the input are largest: one linear program each.

        Values are those that the multipliers prove, never below the true ones but for rounding.
        """
        corners = self.box.peaks(slopes)
        inputs, multipliers = corners.inputs, np.zeros((len(slopes), len(self.limit)))
        inputs[~slopes.any(axis=1)] = self.middle  # what is the same everywhere needs no program
        for number in np.flatnonzero(~self.contains(inputs)).tolist():
            found = self._peak(slopes[number])
            inputs[number], multipliers[number] = found
        inputs = self.pull(torch.as_tensor(inputs)).numpy()
        rest = self.box.peaks(slopes - multipliers @ self.matrix).values
        return Peaks(multipliers @ self.limit + rest, inputs, multipliers)

    def _peak(self, slope: Array) -> tuple[Array, Array]:
        """One such input (d,), and the multipliers (k,)."""
        cube, half = self._cube, (self.box.upper - self.box.lower) / 2
        rows = self.matrix[:, cube.free] * half[cube.free]
        reach = np.abs(rows).sum(axis=1)[cube.used]
        goal = slope[cube.free] * half[cube.free]
        scale = max(float(np.abs(goal).max(initial=0.0)), 1e-300)
        found = maximise(goal / scale, cube.rows, cube.room, bounds=[(-1.0, 1.0)] * cube.size)
        multipliers = np.zeros(len(self.limit))
        multipliers[cube.used] = found.multipliers * scale / reach
        return self._from_cube(found.point[None])[0], multipliers

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` inputs, (count, d) float64 on CPU.

        Uniform, by drawing in the box and keeping what is inside; where that is less than a tenth,
        by random walks, which are uniform in the limit of many steps only: one coordinate after
        the other, or hit and run where the polytope is flat or thin.
        """
        if self._share >= ACCEPTED:
            return self._drawn(count, generator)
        starts = self._spread[torch.randint(len(self._spread), (count,), generator=generator)]
        if self._is_thin:
            points = walk_points(self._cube, starts, generator, normals=self._normals)
        else:
            points = sweep_points(self._cube, starts, generator)
        return self.pull(torch.as_tensor(self._from_cube(points.numpy())))

    @cached_property
    def _share(self) -> float:
        """The share of the box inside; 0 for a flat polytope."""
        if self._inside.tight.any():
            return 0.0
        points = self.box.sample(PILOT, torch.Generator().manual_seed(0)).numpy()
        return float(self.contains(points).mean())

    def _drawn(self, count: int, generator: torch.Generator) -> Tensor:
        kept = torch.empty(0, self.size, dtype=torch.float64)
        while len(kept) < count:
            more = self.box.sample(int(1.2 * (count - len(kept)) / self._share) + 8, generator)
            kept = torch.cat([kept, more[torch.as_tensor(self.contains(more.numpy()))]])
        return kept[:count]

    @cached_property
    def _spread(self) -> Tensor:
        """Inputs all over the polytope in coordinates of the box, where walks begin."""
        normals = self._normals if self._is_thin else None
        return spread_points(self._cube, torch.as_tensor(self._centre), normals=normals)

    @cached_property
    def _centre(self) -> Array:
        """(free,): the middle in coordinates of the box."""
        free = self._cube.free
        half = (self.box.upper - self.box.lower)[free] / 2
        return np.asarray((self.middle - self.box.middle)[free] / half)

    @cached_property
    def _is_thin(self) -> bool:
        """Whether single coordinates can hardly move."""
        cube = self._cube
        return bool((cube.room - cube.rows @ self._centre).min(initial=np.inf) < THIN)

    @cached_property
    def _normals(self) -> Array:
        """(t, free): of the sides that no input leaves."""
        return self._cube.pick_sides(np.flatnonzero(self._inside.tight))

    def extremes(self, count: int, generator: torch.Generator) -> Tensor:
        """At most `count` vertices, fewer in many dimensions; repeats are left out.

        Each is reached from inside by moving towards a random direction as far as limits allow,
        then along the limits that were met, until none is left to move along.
        """
        if not self._cube.size:  # a box that is one input
            return torch.as_tensor(self.middle)[None]
        normals = self._normals
        number = min(count, max(16, VERTICES // max(1, self._cube.size) ** 3))
        starts = self._spread[torch.randint(len(self._spread), (number,), generator=generator)]
        found = find_vertices(self._cube, starts, generator, normals=normals).numpy()
        points = torch.as_tensor(self._from_cube(np.unique(np.round(found, 12), axis=0)))
        return self.pull(points)

    def project(self, inputs: Tensor) -> Tensor:
        """The nearest input inside, (..., d) -> (..., d).

        Where the widths of the box differ by orders of magnitude they are the units of distances.
        """
        return self._nearest(inputs, ITERATIONS)

    def approach(self, inputs: Tensor) -> Tensor:
        """About the nearest input inside, off by a small share of the distance: much quicker."""
        return self._nearest(inputs, ROUGHLY)

    def _nearest(self, inputs: Tensor, iterations: int) -> Tensor:
        points = inputs.reshape(-1, self.size).to(torch.float64)
        result = self.box.project(points)
        matrix, limit = self._rows_on(points.device)
        outside = (result @ matrix.T > limit).any(-1)
        if bool(outside.any()):
            lower, upper = self.box.bounds()
            ends = (torch.as_tensor(lower).to(points), torch.as_tensor(upper).to(points))
            units = torch.as_tensor(self._units).to(points)
            moved = find_nearest(
                points[outside] / units,
                matrix * units,
                limit,
                (ends[0] / units, ends[1] / units),
                iterations=iterations,
            )
            result[outside] = moved * units
            result = self.pull(result)
        return result.reshape(inputs.shape).to(inputs.dtype)

    @cached_property
    def _units(self) -> Array:
        """(d,) powers of two, 1 unless the widths of the box differ by orders of magnitude."""
        width = self.box.upper - self.box.lower
        free = width > 0
        units = np.ones(self.size)
        if free.any() and width[free].max() > ALIKE * width[free].min():
            units[free] = 2.0 ** np.round(np.log2(width[free]))
        return units

    def pull(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, d): what lies outside is moved towards the middle, until just inside.

        Quicker than `project`, and every input of the polytope stays where it is.
        """
        points = self.box.project(inputs)
        matrix, limit = self._rows_on(points.device)
        middle = torch.as_tensor(self.middle, device=points.device)
        # more than rounding, so that what is just inside is so in exact numbers too
        margin = torch.as_tensor(self._row_slip, device=points.device)
        beyond = points @ matrix.T - limit + margin
        room = (limit - middle @ matrix.T).clamp_min(0.0)
        short = (beyond > 0) & (room > 2 * margin)
        share = torch.where(short, beyond / (beyond + room), 0.0).amax(-1, keepdim=True)
        return self.box.project(points + share * (middle - points))

    def _rows_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        matrix, limit = (torch.as_tensor(a, device=device) for a in (self.matrix, self.limit))
        return matrix, limit

    @cached_property
    def _size(self) -> Array:
        """(k,) the largest sum of magnitudes in each limit."""
        largest = np.maximum(np.abs(self.box.lower), np.abs(self.box.upper))
        return np.asarray(np.abs(self.matrix) @ largest + np.abs(self.limit))

    @property
    def _row_hair(self) -> Array:
        return HAIR * self._size

    @property
    def _row_slip(self) -> Array:
        """(k,) more than the rounding of a limit's value."""
        return (self.size + 4) * EPSILON * self._size

    def contains(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,); points that rounding puts a hair beyond a limit still count as inside."""
        kept = (inputs @ self.matrix.T <= self.limit + self._row_hair).all(axis=-1)
        return np.asarray(self.box.contains(inputs) & kept)

    def covers(self, inputs: Array) -> NDArray[np.bool_]:
        """(m, d) -> (m,): what a proof over the region speaks of, the limits in exact numbers."""
        inside = self.box.contains(inputs)
        excess = inputs @ self.matrix.T - self.limit
        inside &= (excess <= self._row_slip).all(axis=1)
        for point, row in np.argwhere(inside[:, None] & (excess >= -self._row_slip)).tolist():
            inside[point] &= self._exactly_kept(inputs[point], row)
        return inside

    def _exactly_kept(self, point: Array, row: int) -> bool:
        used = np.flatnonzero(self.matrix[row])
        pairs = zip(self.matrix[row, used].tolist(), point[used].tolist(), strict=True)
        value = sum((Fraction(a) * Fraction(x) for a, x in pairs), Fraction(0))
        return value <= Fraction(float(self.limit[row]))

    def near(self, inputs: Tensor) -> Tensor:
        """(m, d) -> (m,): inside, or so close that only rounding put it outside."""
        key = (inputs.dtype, inputs.device)
        found = self._near_tensors.get(key)
        if found is None:
            # inputs of less precision were rounded by more
            looser = max(1.0, torch.finfo(inputs.dtype).eps * self.size / HAIR)
            matrix, ends = self.matrix.T, self.limit + looser * self._row_hair
            found = (torch.as_tensor(matrix).to(*key[::-1]), torch.as_tensor(ends).to(*key[::-1]))
            if not is_traced():
                self._near_tensors[key] = found
        return self.box.near(inputs) & (inputs @ found[0] <= found[1]).all(-1)

    def is_near(self, x: Array) -> bool:
        """`near` for one input (d,)."""
        return bool(self.near(torch.from_numpy(x[None]))[0])

    @cached_property
    def _near_tensors(self) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]]:
        return {}

    def record(self) -> dict[str, Any]:
        """As JSON, for `region_of`."""
        return {
            "kind": "polytope",
            "lower": self.box.lower.tolist(),
            "upper": self.box.upper.tolist(),
            "matrix": self.matrix.tolist(),
            "limit": self.limit.tolist(),
        }

    def __str__(self) -> str:
        limits = "one limit" if len(self.limit) == 1 else f"{len(self.limit)} limits"
        return f"a box with {limits} in {self.size} dimensions"


def _shown(numbers: Array) -> str:
    text = ", ".join(f"{number:.4g}" for number in numbers[:10])
    return f"({text}{', ...' if len(numbers) > 10 else ''})"
