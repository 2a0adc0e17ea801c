"""DC3's two problems: 100 variables, 50 equalities A y = x, 50 inequalities G y <= h, no labels.

Objective `y'Qy / 2 + p'y` (convex) or `y'Qy / 2 + p'sin(y)`, Q diagonal; inputs in [-1, 1]^50.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from experiments.peers.cones import Cones

FILES = {True: "dc3-simple-test.npz", False: "dc3-nonconvex-test.npz"}
SEARCHED = 100_000


@dataclass(frozen=True, eq=False)
class QuadraticProblem:
    """`inputs` (n, d) are for testing, with the `optimum` (n,) of each."""

    curvature: Array
    slope: Array
    equality: Array
    inequality: Array
    limit: Array
    convex: bool
    inputs: Array
    optimum: Array

    @property
    def name(self) -> str:
        return "convex" if self.convex else "non-convex"

    def loss(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """(..., n, r) -> (..., n)."""
        curvature = torch.as_tensor(self.curvature, dtype=outputs.dtype)
        slope = torch.as_tensor(self.slope, dtype=outputs.dtype)
        bent = outputs if self.convex else outputs.sin()
        return 0.5 * outputs.square() @ curvature + bent @ slope

    def above(self, outputs: Tensor) -> Array:
        """Per cent above the optimum at each test input."""
        found = self.loss(outputs, torch.as_tensor(self.inputs)).numpy()
        return np.asarray(100 * (found - self.optimum) / np.abs(self.optimum))

    def violation(self, outputs: Tensor, inputs: Array) -> dict[str, float]:
        y = outputs.numpy()
        return {
            "inequality": max(0.0, float((y @ self.inequality.T - self.limit).max())),
            "equality": float(np.abs(y @ self.equality.T - inputs).max()),
        }

    def searched(self, seed: int, count: int = SEARCHED) -> Array:
        """Inputs to look for violations at: half of the box, half of its corners."""
        rng = np.random.default_rng([seed, 1])
        drawn = rng.uniform(-1, 1, (count, self.inputs.shape[1]))
        drawn[::2] = np.sign(drawn[::2])
        return np.asarray(drawn)


def loaded(folder: Path, *, convex: bool) -> QuadraticProblem:
    """The published problem with its test inputs and reference solutions."""
    path = folder / FILES[convex]
    if not path.exists():
        raise InvalidInput(f"{path} is not there; leave --data out to make a problem of this kind")
    with np.load(path) as data:
        one = {name: data[name] for name in data.files}
    made = _problem(
        np.diag(one["Q"][0]).copy(), one["p"][0, :, 0], one["A"][0], one["G"][0], one["h"][0, :, 0],
        one["X"][..., 0], convex=convex,
    )  # fmt: skip
    return _with_optimum(made, one["Ystar"][..., 0])


def generated(seed: int, *, convex: bool, tests: int = 256) -> QuadraticProblem:
    """A problem of the same kind: `h = sum |G pinv(A)|` leaves room at every input of the box."""
    rng = np.random.default_rng([seed, 0])
    equality, inequality = rng.normal(size=(2, 50, 100))
    limit = np.abs(inequality @ np.linalg.pinv(equality)).sum(1)
    curvature, slope = rng.uniform(size=(2, 100))
    inputs = rng.uniform(-1, 1, (tests, 50))
    made = _problem(curvature, slope, equality, inequality, limit, inputs, convex=convex)
    return _with_optimum(made, np.array([solution(made, x) for x in inputs]))


def _problem(
    curvature: Array, slope: Array, equality: Array, inequality: Array, limit: Array,
    inputs: Array, *, convex: bool,
) -> QuadraticProblem:  # fmt: skip
    missing = np.full(len(inputs), np.nan)
    return QuadraticProblem(curvature, slope, equality, inequality, limit, convex, inputs, missing)


def _with_optimum(problem: QuadraticProblem, solutions: Array) -> QuadraticProblem:
    values = problem.loss(torch.as_tensor(solutions), torch.as_tensor(problem.inputs)).numpy()
    return QuadraticProblem(**{**vars(problem), "optimum": values})


def solution(problem: QuadraticProblem, point: Array) -> Array:
    """The optimum at one input; of the non-convex problem a stationary point from its relaxation.

    That one is found by Newton's method with the curvature kept positive, one program per step.
    """
    cones = Cones(problem.equality, problem.inequality)
    q, p = problem.curvature, problem.slope
    y = cones.minimise(np.diag(q), p, point, problem.limit)
    for _ in range(0 if problem.convex else 50):
        curvature = np.maximum(q - p * np.sin(y), 0.05)
        slope = q * y + p * np.cos(y) - curvature * y
        following = cones.minimise(np.diag(curvature), slope, point, problem.limit)
        if np.abs(following - y).max() < 1e-7:
            return following
        y = following
    return y
