"""Convex minimisation over a Euclidean ball with a proven lower bound, for exact pricing.

The bound is the linearisation bound: for convex f and any feasible w,
`f(v) >= f(w) + <g, v - w> >= f(w) - <g, w> - R ||g||` for all ||v|| <= R, with g a (sub)gradient
at w. It holds whatever produced w, and is tight when w is optimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cg4ai.records import Array


@dataclass(frozen=True, slots=True)
class BallSolution:
    """A point (p, r) of the ball, its value, and a bound no point of the ball goes below."""

    point: Array
    value: float
    lower_bound: float


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Value and gradient (p, r) of a convex function at a point."""

    value: float
    gradient: Array


Function = Callable[[Array], LocalModel]
Hessian = Callable[[Array], Array]  # (p, r) -> (p * r, p * r), row-major


def compute_linearisation_bound(local: LocalModel, point: Array, radius: float) -> float:
    gradient = local.gradient
    return float(local.value - np.sum(gradient * point) - radius * np.linalg.norm(gradient))


def project(point: Array, radius: float) -> Array:
    norm = float(np.linalg.norm(point))
    return point if norm <= radius else point * (radius / norm)


def minimise_linear(linear: Array, radius: float) -> BallSolution:
    """min <linear, V> over ||V|| <= radius: closed form."""
    norm = float(np.linalg.norm(linear))
    point = np.zeros_like(linear) if norm == 0 else -linear * (radius / norm)
    return BallSolution(point, -radius * norm, -radius * norm)


@dataclass(frozen=True, slots=True)
class BallQuadratic:
    """`V -> <V, A V> + <B, V> + constant` with A = vectors diag(values) vectors^T, values >= 0."""

    values: Array
    vectors: Array

    @classmethod
    def of(cls, matrix: Array) -> BallQuadratic:
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values, 0.0), vectors)

    def minimise(self, linear: Array, radius: float) -> Array:
        """The minimiser over the ball: (A + mu I) V = -B / 2, mu >= 0, mu (||V|| - R) = 0.

        mu solves the secular equation ||V(mu)|| = R; Newton on 1/||V|| - 1/R, which is concave
        and increasing in mu, comes from the left without overshooting.
        """
        rotated = self.vectors.T @ linear / 2
        squares = np.square(rotated).sum(1)
        flat = self.values <= 1e-14 * max(float(self.values.max()), 1e-300)
        kept = np.where(flat, 1.0, self.values)
        free = np.where(flat[:, None], 0.0, rotated / kept[:, None])
        curved = float(np.linalg.norm(free)) <= radius
        # A flat direction with a slope has its minimum on the sphere, however small the slope.
        slope = float(np.sqrt(squares[flat].sum()))
        if curved and slope <= 1e-14 * float(np.sqrt(squares.sum())):
            return project(-self.vectors @ free, radius)
        mu = self._multiplier(squares, radius)
        return project(-self.vectors @ (rotated / (self.values + mu)[:, None]), radius)

    def _multiplier(self, squares: Array, radius: float) -> float:
        low, high = 0.0, float(np.sqrt(squares.sum())) / radius
        # Left end with a positive denominator everywhere: the norm there is still above R.
        mu = float(np.max(np.sqrt(squares) / radius - self.values))
        mu = max(mu, high * 1e-16, 1e-300)
        for _ in range(100):
            denominators = self.values + mu
            norm = float(np.sqrt(np.sum(squares / np.square(denominators))))
            low, high = (mu, high) if norm > radius else (low, mu)
            slope = float(np.sum(squares / denominators**3)) / norm**3
            step = (1 / radius - 1 / norm) / slope
            following = mu + step
            if not low <= following <= high:
                following = (low + high) / 2
            if abs(following - mu) <= 1e-16 * mu:
                break
            mu = following
        return mu


def minimise_newton(
    function: Function, hessian: Hessian, start: Array, *, radius: float, tolerance: float
) -> BallSolution:
    """Newton's method whose quadratic model is minimised over the whole ball, then a line search.

    Steps stay feasible because the ball is convex. Stops when value and bound agree to
    `tolerance` (relative to 1 + |value|), or when rounding ends progress; the bound says so.
    """
    point = project(start, radius)
    local = function(point)
    bound = -np.inf
    for _ in range(60):
        bound = max(bound, compute_linearisation_bound(local, point, radius))
        if local.value - bound <= tolerance * (1 + abs(local.value)):
            break
        curvature = hessian(point)
        slope = local.gradient.reshape(-1, 1) - curvature @ point.reshape(-1, 1)
        target = BallQuadratic.of(curvature / 2).minimise(slope, radius).reshape(point.shape)
        moved = _line_search(function, point, local, target - point)
        if moved is None:
            break
        point, local = moved
    return BallSolution(point, local.value, bound)


def _line_search(
    function: Function, point: Array, local: LocalModel, direction: Array
) -> tuple[Array, LocalModel] | None:
    descent = float(np.sum(local.gradient * direction))
    step = 1.0
    while descent < 0 and step > 1e-10:
        candidate = point + step * direction
        reached = function(candidate)
        if reached.value < local.value + 1e-4 * step * descent:
            return candidate, reached
        step /= 2
    return None


def minimise_projected_gradient(
    function: Function, start: Array, *, radius: float, tolerance: float, steps: int = 2000
) -> BallSolution:
    """Spectral projected gradient, for problems too large for a Hessian."""
    point = project(start, radius)
    local = function(point)
    bound = -np.inf
    length = 1.0 / max(float(np.linalg.norm(local.gradient)), 1e-12)
    for _ in range(steps):
        bound = max(bound, compute_linearisation_bound(local, point, radius))
        if local.value - bound <= tolerance * (1 + abs(local.value)):
            break
        direction = project(point - length * local.gradient, radius) - point
        moved = _line_search(function, point, local, direction)
        if moved is None:
            break
        change = moved[0] - point
        turned = float(np.sum(change * (moved[1].gradient - local.gradient)))
        length = float(np.sum(change * change)) / turned if turned > 0 else 10 * length
        point, local = moved
    return BallSolution(point, local.value, bound)
