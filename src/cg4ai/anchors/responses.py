"""Affine decision rules that respond to a few sums of the inputs, by cutting planes.

Where equalities make outputs depend on the input, they do so through a few sums: a balance only
through the total. Rules `y(x) = Y [U (x - middle), 1]` with these sums U have as many numbers as
outputs, whatever the number of inputs. That a rule holds in its whole region is kept by rows at
single inputs, those at which it is tightest, which are added until none is missed; most rules need
one or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cg4ai.anchors.affine_maps import AffineMap, Space
from cg4ai.anchors.splitting import QuadraticModel
from cg4ai.errors import SolverFailure
from cg4ai.records import Array, IntArray
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.guards import Guard
from cg4ai.solvers.conic import QuadraticProgram
from cg4ai.solvers.highs import INFEASIBLE, OPTIMAL, LinearProgram

MOST_SUMS = 8  # beyond which there is little to save
DEPENDENT = 1e-9  # singular values below this share of the largest count as zero
ROUNDS = 100  # of rows added
TOLERANCE = 1e-9
UNBOUNDED = ("kUnbounded", "kUnboundedOrInfeasible")
ANSWERS = (OPTIMAL, INFEASIBLE, *UNBOUNDED)
FEW = 2  # outputs that a simple limit reads: rows of these are there from the start
MISSED = 1e-6  # of a rule's scale, by which it may be missed: rooms asked for are much larger


def find_sums(space: Space) -> Array | None:
    """(m, d): sums of the inputs on which outputs depend; None if they are many, or none."""
    if len(space.least) or not space.slope.any():
        return None
    if min(space.slope.shape) > MOST_SUMS:  # the rank at once, without all singular vectors
        probe = np.random.default_rng(0).normal(size=(len(space.slope), MOST_SUMS + 1))
        across = np.linalg.svd(probe.T @ space.slope, full_matrices=False)
    else:
        across = np.linalg.svd(space.slope, full_matrices=False)
    rank = int((across[1] > DEPENDENT * across[1].max()).sum())
    return np.asarray(across[2][:rank]) if rank <= MOST_SUMS else None


@dataclass(frozen=True, eq=False)
class ResponseRows:
    """Rules with this room on all outputs of a space that respond to `sums` (m, d)."""

    guards: Sequence[Guard]
    space: Space
    sums: Array
    middle: Array
    room: float
    program: LinearProgram = field(default_factory=lambda: LinearProgram(TOLERANCE))
    matrices: list[Any] = field(default_factory=list)
    limits: list[Array] = field(default_factory=list)

    @classmethod
    def build(
        cls, guards: Sequence[Guard], space: Space, sums: Array, room: float
    ) -> ResponseRows | None:
        """None where rules are of other kinds."""
        if any(not isinstance(one.rules, AffineRules) or len(one.rules.value) for one in guards):
            return None
        lower, upper = guards[0].region.bounds()
        reach = np.abs(sums) @ ((upper - lower) / 2)
        scaled = sums / np.where(reach > 0, reach, 1.0)[:, None]  # at most 1 in the region
        made = cls(guards, space, scaled, (lower + upper) / 2, room)
        made._start()
        return made

    def minimise(self, model: QuadraticModel) -> Array:
        """W (k, d + 1) of least value; SolverFailure where no rule keeps the rows."""
        onto = self._features(model.centre)
        basis, fixed = self.space.basis, self._fixed()
        here = fixed + basis @ model.here @ np.linalg.pinv(onto)
        curvature, moments = basis @ model.curvature @ basis.T, onto @ model.moments @ onto.T
        slope = basis @ model.slope @ onto.T
        found: Array | None
        if curvature.any():
            found = self._solve_quadratic(curvature, moments, slope - curvature @ here @ moments)
        else:
            found = self._solve_linear(slope)
        if found is None:
            raise SolverFailure("a linear loss has no least value under these rules")
        return np.asarray(basis.T @ (found - fixed) @ onto)

    def find_cheap(self, slope: Array, centre: Array) -> AffineMap | None:
        """Outputs of least `<slope, W>`, (k, d + 1), that leave the room; None where none do."""
        try:
            found = self._solve_linear(self.space.basis @ slope @ self._features(centre).T)
        except SolverFailure:
            return None
        return None if found is None else self._map(found)

    def _features(self, centre: Array) -> Array:
        """(m + 1, d + 1): `[U (x - middle), 1]` from `[x - centre, 1]`."""
        shift = self.sums @ (centre - self.middle)
        last = np.append(np.zeros(len(centre)), 1.0)
        return np.concatenate([np.column_stack([self.sums, shift]), last[None]])

    def _fixed(self) -> Array:
        """(r, m + 1): the outputs of the space at z = 0, which respond to the sums alone."""
        across = np.linalg.pinv(self.sums)
        level = self.space.offset + self.space.slope @ self.middle
        return np.column_stack([self.space.slope @ across, level])

    def _map(self, found: Array) -> AffineMap:
        slopes = found[:, :-1] @ self.sums
        return AffineMap(slopes, found[:, -1] - slopes @ self.middle)

    def _start(self) -> None:
        """Variables, and rows for what no z moves and for all rules at a few inputs."""
        fixed = self._fixed()
        sizes, values, _ = np.linalg.svd(self.space.basis, full_matrices=True)
        rest = sizes[:, int((values > DEPENDENT * values.max(initial=1.0)).sum()) :].T
        equal = sparse.kron(sparse.csr_matrix(rest), sparse.identity(fixed.shape[1]), "csr")
        self.matrices.append(equal)
        self.limits.append((rest @ fixed).ravel())
        count = fixed.size
        free = np.full(count, -np.inf)
        self.program.add_columns(np.zeros(count), free, sparse.csc_matrix((0, count)))
        self.program.add_rows(self.limits[0], self.limits[0], equal)
        self._add_at_ends(lambda count: count <= FEW)

    def _add_at_ends(self, chosen: Callable[[IntArray], NDArray[np.bool_]]) -> None:
        """Rows of the rules that read so many outputs, where each sum is at its ends.

        What responds to one sum alone is tightest there.
        """
        for guard in self.guards:
            which = np.flatnonzero(chosen((guard.rules.constant != 0).sum(1)))
            ends = [guard.region.peaks(sign * self.sums).inputs for sign in (1.0, -1.0)]
            for point in np.concatenate([guard.region.middle[None], *ends]):
                self._add(guard, which, np.tile(point, (len(which), 1)))

    def _solve_linear(self, slope: Array) -> Array | None:
        """Y (r, m + 1) of least `<slope, Y>`; None where there is none or it has no end."""
        bounded = False
        self.program.change_costs(slope.ravel() / (float(np.abs(slope).max()) or 1.0))
        for _ in range(ROUNDS):
            status = self.program.run(answers=ANSWERS).status
            if status in UNBOUNDED and not bounded:
                bounded = True
                self._add_at_ends(lambda count: count > FEW)
                continue
            if status != OPTIMAL:
                return None
            found = self.program.solution().values.reshape(slope.shape)
            if not self._add_missed(self._map(found)):
                return found
        raise SolverFailure(f"rows were added {ROUNDS} times, and rules are still missed")

    def _solve_quadratic(self, curvature: Array, moments: Array, slope: Array) -> Array:
        """Y of least `<slope, Y> + tr(Y' curvature Y moments) / 2`."""
        unit = float(np.abs(slope).max()) or 1.0
        curved = sparse.csc_matrix(np.kron(curvature, moments) / unit)
        for _ in range(ROUNDS):
            matrix, limits = sparse.vstack(self.matrices, "csc"), np.concatenate(self.limits)
            equal = self.matrices[0].shape[0]
            program = QuadraticProgram(curved, slope.ravel() / unit, matrix, limits, equal)
            found = program.solve().x.reshape(slope.shape)
            if not self._add_missed(self._map(found)):
                return found
        raise SolverFailure(f"rows were added {ROUNDS} times, and rules are still missed")

    def _add_missed(self, one: AffineMap) -> bool:
        """Rows of all rules that this map does not keep with the room, at their tightest input."""
        any_missed = False
        for guard in self.guards:
            worst = guard.rules.worst_affine(one.slopes, one.offsets, guard.region)
            missed = np.flatnonzero(worst.slack < (self.room - MISSED) * guard.scale)
            if len(missed):
                self._add(guard, missed, worst.points[missed])
                any_missed = True
        return any_missed

    def _add(self, guard: Guard, which: IntArray, points: Array) -> None:
        """Rows of these rules, each at a point of its own, in the rules' own scales."""
        if not len(which):
            return
        rules, scale = guard.rules, guard.scale[which]
        features = np.column_stack([(points - self.middle) @ self.sums.T, np.ones(len(which))])
        own = sparse.csr_matrix(rules.constant[which] / scale[:, None])
        columns = [own.multiply(feature[:, None]).tocsc() for feature in features.T]
        order = np.arange(own.shape[1] * len(columns)).reshape(len(columns), -1).T.ravel()
        matrix = sparse.hstack(columns, format="csc")[:, order].tocsr()
        limits = rules.bounds(points, which) / scale - self.room
        self.matrices.append(matrix)
        self.limits.append(limits)
        self.program.add_rows(np.full(len(limits), -np.inf), limits, matrix)
