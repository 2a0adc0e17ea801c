"""Affine decision rules under rules over one box or ball, of any size, by operator splitting.

With inputs `x = middle + radius u` a linear rule holds in the whole region exactly when the size of
its slopes in u, plus its value at the middle, is at most its limit: the sum of their sizes over a
box, their Euclidean length over a ball. ADMM takes turns between the quadratic model of the loss,
which two eigendecompositions solve at once for any penalty, and the nearest slopes that keep each
rule, which have closed forms. A round costs a few products of matrices (rules, free outputs) and
(rules, inputs); nothing of the size of rules x inputs x outputs is ever made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from cg4ai.anchors.affine_maps import Space
from cg4ai.errors import SolverFailure
from cg4ai.records import Array
from cg4ai.rules.affine import AffineRules
from cg4ai.rules.guards import Guard
from cg4ai.rules.regions import Ball, Region

ROUNDS = 2000
FEASIBLE_WITHIN = 500  # rounds; where no rule keeps the rows residuals never fall
CHECKED_EVERY = 10  # rounds, after which residuals are looked at and the penalty follows them
SETTLED = 1e-6  # relative residuals at which it ends
USABLE = 1e-3  # and with which it may end after all rounds: what is missed is mended afterwards
RELAXED = 1.6
UNBALANCED = 3.0  # ratio of residuals from which on the penalty is changed
NEWTON_STEPS = 50  # of a projection: each takes up at least one more slope


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """`<slope, D> + tr(D' curvature D moments) / 2` for steps D = W - here, all but W (k, d + 1).

    Rules are `z(x) = W [x - centre, 1]`.
    """

    here: Array
    slope: Array
    curvature: Array
    moments: Array
    centre: Array


@dataclass(frozen=True, eq=False)
class RegionRows:
    """`size(g_l) + t_l <= limits[l]` for `[g, t] = effect W' + fixed`, W' of inputs u.

    `effect` (L, k), `fixed` (L, d + 1), `limits` (L,), all in units of their own; `radius` (d,), 0
    where the region is flat. `euclidean`: sizes are lengths, else sums.
    """

    effect: Array
    fixed: Array
    limits: Array
    middle: Array
    radius: Array
    euclidean: bool

    def minimise(self, model: QuadraticModel, *, rounds: int = ROUNDS) -> Array:
        """W of least value; SolverFailure if ADMM does not come near any that keeps the rows."""
        size = len(self.middle)
        # W' = W turn: slopes in u, and the value at the middle
        turn = np.eye(size + 1)
        turn[np.arange(size), np.arange(size)] = np.where(self.radius > 0, self.radius, 1.0)
        turn[:size, -1] = self.middle - model.centre
        back = np.linalg.inv(turn)
        moments = back @ model.moments @ back.T
        found = self._split(
            model.curvature,
            (moments + moments.T) / 2,
            model.here @ turn,
            model.slope @ back.T,
            rounds=rounds,
        )
        return np.asarray(found @ back)

    def find_shortest(self) -> Array | None:
        """W of least size around the middle, (k, d + 1); None where none is found soon."""
        free, size = self.effect.shape[1], len(self.middle)
        nothing = np.zeros((free, size + 1))
        model = QuadraticModel(nothing, nothing, np.eye(free), np.eye(size + 1), self.middle)
        try:
            return self.minimise(model, rounds=FEASIBLE_WITHIN)
        except SolverFailure:
            return None

    def _split(
        self, curvature: Array, moments: Array, here: Array, slope: Array, *, rounds: int
    ) -> Array:
        """ADMM on `effect W + fixed = V`, V in the set of slopes that keep the rows."""
        response = np.linalg.solve(curvature, self.effect.T)
        unit = np.sqrt(np.maximum(np.einsum("lk,kl->l", self.effect, response), 1e-300))
        unit = np.where(unit > 1e-12 * unit.max(), unit, 1.0)  # rules that no free output moves
        fixed, limits = self.fixed / unit[:, None], self.limits / unit
        # coordinates in which both quadratic forms are diagonal
        spread, inputs = np.linalg.eigh(moments)
        ruled = self.effect / unit[:, None]
        strength, outputs = eigh(ruled.T @ ruled, curvature)
        strength = np.maximum(strength, 0.0)
        along = ruled @ outputs
        wanted = outputs.T @ (curvature @ here @ moments - slope) @ inputs
        penalty = float(np.exp(np.log(spread).mean()) / max(strength.mean(), 1e-300))
        values = ruled @ here + fixed
        duals, shift = np.zeros_like(values), np.zeros(len(limits))
        for number in range(1, rounds + 1):
            pulled = along.T @ ((values - duals - fixed) @ inputs)
            found = (wanted + penalty * pulled) / (spread + penalty * strength[:, None])
            reached = (along @ found) @ inputs.T + fixed
            relaxed = RELAXED * reached + (1 - RELAXED) * values
            before = values
            values, shift = self._project(relaxed + duals, limits, shift)
            duals = duals + relaxed - values
            if number % CHECKED_EVERY:
                continue
            missed = _largest_norm(reached - values) / _largest_norm(
                reached - fixed, values - fixed
            )
            force = penalty * (along.T @ (duals @ inputs))
            moved = _largest_norm(penalty * (along.T @ ((values - before) @ inputs)))
            moved = moved / _largest_norm(wanted, force)
            if max(missed, moved) < SETTLED:
                break
            ratio = np.sqrt(missed / max(moved, 1e-300))
            if not 1 / UNBALANCED < ratio < UNBALANCED:
                ratio = float(np.clip(ratio, 0.1, 10.0))
                penalty, duals = penalty * ratio, duals / ratio
        if not max(missed, moved) < USABLE:
            raise SolverFailure(f"ADMM ended with residuals {missed:.1e} and {moved:.1e}")
        return np.asarray(outputs @ found @ inputs.T)

    def _project(self, values: Array, limits: Array, shift: Array) -> tuple[Array, Array]:
        """The nearest `[g, t]` that keep the rows, and by how much each t was lowered.

        `shift` is where that is sought from: the one of the round before.
        """
        sizes, level = np.abs(values[:, :-1]), values[:, -1]
        result = np.empty_like(values)
        if self.euclidean:
            length = np.linalg.norm(sizes, axis=1)
            # half of what is over is taken from each, unless the slopes end before
            shift = np.maximum((length + level - limits) / 2, 0.0)
            shift = np.where(shift > length, level - limits, shift)
            left = np.maximum(length - shift, 0.0) / np.maximum(length, 1e-300)
            result[:, :-1] = values[:, :-1] * left[:, None]
        else:
            counted = self.radius > 0
            shift = _find_shift(sizes[:, counted], level - limits, shift)
            taken = np.minimum(sizes, shift[:, None] * counted)
            result[:, :-1] = values[:, :-1] - np.copysign(taken, values[:, :-1])
        result[:, -1] = level - shift
        return result, shift


def _find_shift(sizes: Array, over: Array, shift: Array) -> Array:
    """The s >= 0 at which `sum max(sizes - s, 0) + over - s` is 0, or 0: Newton's method.

    The sum is convex and falls, so that after its first step it is neared from one side.
    """
    for _ in range(NEWTON_STEPS):
        rest = sizes - shift[:, None]
        beyond = rest > 0
        step = ((rest * beyond).sum(1) + over - shift) / (beyond.sum(1) + 1)
        following = np.maximum(shift + step, 0.0)
        if (np.abs(following - shift) <= 1e-14 * (1 + np.abs(following))).all():
            break
        shift = following
    return shift


def _largest_norm(*arrays: Array) -> float:
    """The largest Euclidean length, or something that can be divided by."""
    return max(1e-300, *(float(np.linalg.norm(one)) for one in arrays))


def build_region_rows(guards: Sequence[Guard], space: Space, room: float) -> RegionRows | None:
    """The rows that leave all rules this room; None where rules or regions are of other kinds.

    All must hold over one box or ball. A polytope counts by its box: rows are more than needed.
    """
    if len(space.least) or not all(_is_linear(guard) for guard in guards):
        return None
    region = guards[0].region
    if any(not _is_same_region(guard.region, region) for guard in guards):
        return None
    lower, upper = region.bounds()
    middle, radius = (lower + upper) / 2, (upper - lower) / 2
    width = np.where(radius > 0, radius, 1.0)
    effects, fixed, limits = [], [], []
    for guard in guards:
        rules, scale = guard.rules, guard.scale[:, None]
        first = rules.pieces[:, 0]
        slopes = rules.constant @ space.slope - rules.tilt[first]
        level = rules.constant @ space.offset + slopes @ middle
        effects.append(rules.constant @ space.basis / scale)
        fixed.append(np.column_stack([slopes * width, level]) / scale)
        limits.append(rules.limit[first] / guard.scale - room)
    euclidean = isinstance(region, Ball) and region.norm == 2
    parts = (np.concatenate(effects), np.concatenate(fixed), np.concatenate(limits))
    return RegionRows(*parts, middle, radius, euclidean)


def _is_linear(guard: Guard) -> bool:
    """Whether all rules are linear with coefficients that are numbers; one piece counts."""
    return isinstance(guard.rules, AffineRules) and not len(guard.rules.value)


def _is_same_region(one: Region, other: Region) -> bool:
    return one is other or one.record() == other.record()
