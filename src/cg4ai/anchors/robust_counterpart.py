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


@dataclass(frozen=True, eq=False)
class Counterpart:
    """`matrix v <= limits` for `v = (Z (k, d) by rows, z (k,), |g - u . matrix|, u, room)`.

    The decision rule is `space.outputs` of `Z (x - centre) + z`; from `positive` on v is >= 0, and
    room is relative to each rule's scale.
    """

    matrix: Any
    limits: Array
    positive: int

    def maximise_room(self, size: int, limit: float) -> Array | None:
        """Z (k, d) of most room up to `limit`, by a linear program; None where there is none."""
        columns = self.matrix.shape[1]
        cost = np.append(np.zeros(columns - 1), -1.0)
        bounds = [(None, None)] * self.positive + [(0, None)] * (columns - 1 - self.positive)
        units = compute_variable_units(abs(self.matrix).max(axis=0).toarray().ravel())
        units[-1] = 1.0  # room
        scaled = self.matrix @ sparse.diags_array(units)
        answer = linprog(cost, scaled, self.limits, bounds=[*bounds, (None, limit)], method="highs")
        if answer.status != 0:
            return None
        free = self.positive // (size + 1)
        return np.asarray((answer.x * units)[: free * size].reshape(free, size))

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
    origin = np.zeros(size) if centre is None else centre
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
    whole = sparse.hstack([sparse.kron(effect, (middle - origin)[None]), effect])
    limits = sparse.kron(each, matrix.T)
    known = rules.constant @ space.offset + fixed @ middle
    # in the rules' own units: the solver's tolerances are those of numbers around 1
    own = sparse.diags_array(1 / np.concatenate([np.tile(np.repeat(scale, size), 2), scale]))
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
