"""Rules that hold for a whole region as finitely many rows on an affine decision rule.

The robust counterpart: with multipliers u of a polytope's limits a value `g . x` is at most
`u . limit` plus that of `g - u . matrix` on the box. Balls count by their boxes, and of a bound
that is the largest of several pieces the first, so that rows are sufficient and not always
necessary there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from cg4ai.anchors.affine_maps import Space
from cg4ai.records import Array
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.guards import Guard
from cg4ai.rules.regions import Polytope
from cg4ai.rules.row_sizes import compute_variable_units

LARGEST = 200_000  # entries of the rows
BALANCING_ROUNDS = 5


@dataclass(frozen=True, eq=False)
class Counterpart:
    """`matrix v <= limits` for `v = (Z (k, d) by rows, z (k,), |g - u . matrix|, u, room)`.

    The decision rule is `space.outputs` of `Z (x - centre) + z`; from `positive` on v is >= 0, and
    room is relative to each rule's scale.
    """

    matrix: Any
    limits: Array
    positive: int

    def maximise_room(self, size: int, limit: float, *, balanced: bool = False) -> Array | None:
        """Z (k, d) of most room up to `limit`, by a linear program; None where there is none.

        `balanced` brings all entries of the rows near 1: of what is far smaller the solver takes
        nothing, but its tolerances are no longer those of the rules.
        """
        rest = self.matrix.shape[1] - 1 - self.positive
        bounds = [(None, None)] * self.positive + [(0.0, None)] * rest
        found = maximise_last(self.matrix, self.limits, [*bounds, (None, limit)], balanced=balanced)
        if found is None:
            return None
        free = self.positive // (size + 1)
        return found[: free * size].reshape(free, size)

    def leaving(self, room: float) -> tuple[Any, Array]:
        """The rows, with those of the signs, on all of v but the room, which is given."""
        rest = self.matrix.shape[1] - 1 - self.positive
        signs = sparse.hstack([sparse.csc_matrix((rest, self.positive)), -sparse.identity(rest)])
        every = self.matrix.tocsc()
        limits = self.limits - room * every[:, [-1]].toarray()[:, 0]
        return (
            sparse.vstack([every[:, :-1], signs], format="csc"),
            np.append(limits, np.zeros(rest)),
        )


def maximise_last(
    matrix: Any, limits: Array, bounds: Sequence[tuple[Any, Any]], *, balanced: bool
) -> Array | None:
    """The v with most of its last number among `matrix v <= limits`, or None."""
    if balanced:
        rows, units = _balance_entries(sparse.coo_array(matrix))
    else:
        largest = abs(sparse.csc_array(matrix)).max(axis=0).toarray().ravel()
        rows, units = np.ones(len(limits)), compute_variable_units(largest)
        units[-1] = 1.0
    scaled = sparse.diags_array(rows) @ sparse.csr_array(matrix) @ sparse.diags_array(units)
    ends = [
        (low, None if high is None else high / unit)
        for (low, high), unit in zip(bounds, units, strict=True)
    ]
    cost = np.append(np.zeros(len(units) - 1), -1.0)
    answer = linprog(cost, scaled, rows * limits, bounds=ends, method="highs")
    return np.asarray(answer.x * units) if answer.status == 0 else None


def _balance_entries(matrix: Any) -> tuple[Array, Array]:
    """Powers of two by which rows (m,) and columns (n,) are multiplied to bring entries near 1."""
    known = matrix.data != 0
    i, j, logs = matrix.row[known], matrix.col[known], np.log2(np.abs(matrix.data[known]))
    rows, columns = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
    for _ in range(BALANCING_ROUNDS):  # geometric means, of rows and columns in turn
        for own, other, at, across in ((rows, columns, i, j), (columns, rows, j, i)):
            total = np.bincount(at, logs + other[across], len(own))
            own[:] = -total / np.maximum(np.bincount(at, minlength=len(own)), 1)
    return np.exp2(np.round(rows)), np.exp2(np.round(columns))


def build_counterpart(
    guards: Sequence[Guard], space: Space, centre: Array | None = None
) -> Counterpart | None:
    """The rows of all guards; None where rules are of another kind, or it would be too large."""
    if len(space.least) or not all(
        isinstance(guard.rules, AffineRules) and not len(guard.rules.value) for guard in guards
    ):
        return None
    free, size = space.basis.shape[1], space.slope.shape[1]
    if sum(len(guard.rules) for guard in guards) * size * (free + 2) > LARGEST:
        return None
    origin = guards[0].region.middle if centre is None else centre
    made = [_rows(guard, space, origin) for guard in guards]
    rules = sparse.vstack([one.rules for one in made])
    sizes = sparse.block_diag([one.sizes for one in made])
    multipliers = sparse.block_diag([one.multipliers for one in made])
    room = np.concatenate([one.room for one in made])[:, None]
    matrix = sparse.hstack([rules, sizes, multipliers, sparse.csr_matrix(room)], format="csr")
    return Counterpart(matrix, np.concatenate([one.limits for one in made]), free * (size + 1))


@dataclass(frozen=True, eq=False)
class _GuardRows:
    """Columns of one guard's rows, by what they multiply."""

    rules: Any  # (m, k (d + 1))
    sizes: Any  # (m, L d)
    multipliers: Any  # (m, L limits)
    room: Array
    limits: Array


def _rows(guard: Guard, space: Space, origin: Array) -> _GuardRows:
    """For each rule `+-(g - u . matrix) <= size` along each input, and the sum at the worst."""
    rules, size = guard.rules, space.slope.shape[1]
    first, count = rules.pieces[:, 0], len(rules)
    lower, upper = guard.region.bounds()
    middle, radius = (lower + upper) / 2, (upper - lower) / 2
    effect = rules.constant @ space.basis  # (L, k)
    fixed = rules.constant @ space.slope - rules.tilt[first]  # (L, d): g with Z = 0
    matrix, left = np.empty((0, size)), np.empty(0)
    if isinstance(guard.region, Polytope):
        matrix, left = guard.region.matrix, guard.region.limit - guard.region.matrix @ middle
    each, scale = sparse.identity(count), guard.scale
    slopes = sparse.kron(effect, sparse.identity(size))
    nothing = sparse.csr_matrix((count * size, effect.shape[1]))
    along = sparse.hstack([slopes, nothing])
    whole = sparse.hstack([np.kron(effect, (middle - origin)[None]), sparse.csr_matrix(effect)])
    limits = sparse.kron(each, matrix.T)
    known = rules.constant @ space.offset + fixed @ middle
    # in the units of rules and inputs: the solver's tolerances are those of numbers around 1
    width = np.where(radius > 0, radius, 1.0)
    moving = np.outer(1 / scale, width).ravel()
    own = sparse.diags_array(np.concatenate([moving, moving, 1 / scale]))
    return _GuardRows(
        own @ sparse.vstack([along, -along, whole]),
        own
        @ sparse.vstack(
            [
                -sparse.identity(count * size),
                -sparse.identity(count * size),
                sparse.kron(each, radius[None]),
            ]
        ),
        own @ sparse.vstack([-limits, limits, sparse.kron(each, left[None])]),
        np.concatenate([np.zeros(2 * count * size), np.ones(count)]),
        own @ np.concatenate([-fixed.ravel(), fixed.ravel(), rules.limit[first] - known]),
    )
