"""Extra columns for affine members: the best members around the maximum of the dual function.

The master sees the dual function `duals . bounds + sum_g min reduced cost` only through the
columns it has, as an upper model of tangent planes, and its duals jump between far corners of it.
The exact pricer can evaluate the function itself, so it climbs to the maximum and hands the
master the tangent planes there and in a small neighbourhood, from which it can read the optimum.
"""

from __future__ import annotations

import numpy as np

from cg4ai.pricing.exact.affine_problem import AffineProblem
from cg4ai.records import Array, IntArray

GAP = 1e-7  # relative gap aimed at; much closer neighbours drown in the master's tolerances


class _Climb:
    """The dual function of a problem, warm-started, with the best point seen."""

    def __init__(self, problem: AffineProblem, start: Array) -> None:
        self.problem = problem
        self.bounds = problem.request.rows.bounds
        self.warm = start
        self.best_value = -np.inf
        self.best_duals = problem.request.duals.rows

    def value(self, duals: Array) -> tuple[float, Array]:
        """Value and gradient `bounds - rows` at `duals`."""
        priced = self.problem.best_by_loss(duals, self.warm)
        self.warm = priced.parameters
        gammas = self.problem.request.duals.blocks  # constants of the reduced costs, not of this
        value = float(duals @ self.bounds) + float((priced.values + gammas).sum())
        if value > self.best_value:
            self.best_value, self.best_duals = value, duals.copy()
        return value, self.bounds - self.problem.row_values(priced.parameters)

    def run(self) -> None:
        """L-BFGS-B in duals scaled by the size of each row, from the best multiple of the duals."""
        from scipy.optimize import minimize

        duals = self.problem.request.duals.rows
        for factor in 10.0 ** np.arange(-5, 1):
            self.value(factor * duals)
        sizes = np.linalg.norm(self.problem.row_inputs, axis=1)
        sizes = sizes * np.linalg.norm(self.problem.row_outputs, axis=1)
        scale = 1.0 / np.where(sizes > 0, sizes, 1.0)

        def negative(scaled: Array) -> tuple[float, Array]:
            value, gradient = self.value(scaled * scale)
            return -value, -gradient * scale

        # Where no member meets the rows the function has no maximum: stay near the master's duals.
        highest = 10.0 * float(duals.max()) / scale
        minimize(
            negative,
            self.best_duals / scale,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(np.zeros_like(highest), highest, strict=True)),
            options={
                "maxfun": self.problem.evaluations,
                "ftol": 1e-16,
                "gtol": 1e-11,
                "maxcor": 40,
            },
        )


def around_dual_maximum(problem: AffineProblem, start: Array, *, limit: int) -> list[Array]:
    """The best member at the best duals, then at most `limit` neighbours; nothing if that is 0.

    Neighbours lie both ways along the principal axes of the dual function's curvature on the rows
    that bind, so far out that it falls by f. With all of them in the master, its duals are within
    half that distance along each axis, so the gap is at most f/4 for each binding row.
    Members are best for duals of either sign, so a neighbour may leave the nonnegative duals.
    """
    duals = problem.request.duals.rows
    if limit == 0 or problem.evaluations == 0 or not np.any(duals > 0):
        return []
    climb = _Climb(problem, start)
    climb.run()
    top = climb.best_duals
    centre = problem.best_by_loss(top, climb.warm).parameters
    binding = np.flatnonzero(top > 1e-9 * top.max())
    binding = np.sort(binding[np.argsort(-top[binding])][: limit // 2])
    found = [centre]
    fall = 4.0 * GAP * (1.0 + abs(climb.best_value)) / max(1, len(binding))
    for step in _principal_steps(problem, top, centre, binding=binding, fall=fall):
        for sign in (1.0, -1.0):
            found.append(problem.best_by_loss(top + sign * step, centre).parameters)
    return found


def _principal_steps(
    problem: AffineProblem, top: Array, centre: Array, *, binding: IntArray, fall: float
) -> list[Array]:
    """Steps (m,) from `top` along the axes of curvature, each lowering the function by `fall`."""
    values = problem.row_values(centre)[binding]
    curvature = np.empty((len(binding), len(binding)))
    for number, row in enumerate(binding):
        moved = top.copy()
        moved[row] *= 1.001
        response = problem.row_values(problem.best_by_loss(moved, centre).parameters)[binding]
        curvature[:, number] = (response - values) / (moved[row] - top[row])
    sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    steps = []
    for size, axis in zip(sizes, axes.T, strict=True):
        if size > 1e-10 * sizes[-1]:
            step = np.zeros_like(top)
            step[binding] = axis * np.sqrt(2 * fall / size)
            steps.append(step)
    return steps
