"""Exact pricing on random problems, against the optimum over the whole class by another solver.

The class is written out without the package: affine functions as a ball of parameters, stumps and
ReLU units by listing the corners of what their mixtures can be. Mixtures are then one convex
program in parameters or corner weights, which cvxpy and Clarabel solve.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cg4ai import Problem, Settings, solve
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.exact.relu_networks import ReluPricer
from cg4ai.colgen.pricing.exact.stumps import StumpPricer
from cg4ai.layout import Layout
from cg4ai.objectives import Supervised
from cg4ai.protocols import Pricer
from cg4ai.records import Array, StopReason
from cg4ai.rules import Linear

RADIUS = 3.0
KINDS = ("affine", "stump", "relu")


@dataclass(frozen=True)
class Case:
    """Data (n, d), targets (n, 1), and bounds of the output at points (m, d), each a side."""

    inputs: Array
    targets: Array
    points: Array
    bounds: Array
    sides: tuple[str, ...]

    def problem(self, pricer: Pricer) -> Problem:
        rules = [
            Linear(point[None], [1.0], float(bound), side, name=f"rule {number}")
            for number, (point, bound, side) in enumerate(
                zip(self.points, self.bounds, self.sides, strict=True)
            )
        ]
        objective = Supervised(self.inputs, self.targets, "squared", "mixture")
        return Problem(objective, rules, [pricer], Layout.single(1))

    @property
    def everywhere(self) -> Array:
        return np.concatenate([self.inputs, self.points])


def random_case(seed: int) -> Case:
    """Up to 12 rows of one or two features, and up to three rules that cost something."""
    random = np.random.default_rng(seed)
    count, size, rules = random.integers(6, 13), random.integers(1, 3), random.integers(0, 4)
    inputs = random.normal(size=(count, size))
    targets = np.sin(2 * inputs.sum(1, keepdims=True)) + 0.3 * random.normal(size=(count, 1))
    points = random.normal(size=(rules, size))
    sides = tuple(random.choice(["<=", ">="], size=rules).tolist())
    return Case(inputs, targets, points, random.normal(0, 0.5, size=rules), sides)


def pricer_of(kind: str, case: Case) -> Pricer:
    size = case.inputs.shape[1]
    if kind == "affine":
        return AffinePricer(size, 1, radius=RADIUS)
    return StumpPricer(size, 1) if kind == "stump" else ReluPricer(size, 1, radius=RADIUS)


def optimum(kind: str, case: Case) -> float:
    """The least mean squared error of any mixture that keeps the rules; inf if none does."""
    import cvxpy

    predicted, limits = {"affine": _affine, "stump": _stumps, "relu": _units}[kind](case)
    count = len(case.inputs)
    for place, (bound, side) in enumerate(zip(case.bounds, case.sides, strict=True)):
        value = predicted[count + place]
        limits.append(value <= bound if side == "<=" else value >= bound)
    loss = cvxpy.sum_squares(predicted[:count] - case.targets[:, 0]) / count
    program = cvxpy.Problem(cvxpy.Minimize(loss), limits)
    # SciPy's and OSQP's answers are good to fewer digits than the bounds are
    program.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return math.inf if program.status == "infeasible" else float(program.value)


def _design(case: Case) -> Array:
    mean, deviation = case.inputs.mean(0), case.inputs.std(0)
    return np.column_stack([(case.everywhere - mean) / deviation, np.ones(len(case.everywhere))])


def _affine(case: Case) -> tuple[Any, list[Any]]:
    import cvxpy

    parameters = cvxpy.Variable(case.inputs.shape[1] + 1)
    return _design(case) @ parameters, [cvxpy.norm2(parameters) <= RADIUS]


def _stumps(case: Case) -> tuple[Any, list[Any]]:
    """Every side of every threshold, with the extreme leaf values."""
    import cvxpy

    low, high = float(case.targets.min()), float(case.targets.max())
    inputs = case.everywhere
    corners = [
        np.where(inputs[:, feature] <= threshold, left, right)
        for feature in range(inputs.shape[1])
        for threshold in np.unique(inputs[:, feature])
        for left, right in itertools.product((low, high), repeat=2)
    ]
    weights = cvxpy.Variable(len(corners), nonneg=True)
    return np.column_stack(corners) @ weights, [cvxpy.sum(weights) == 1]


def _units(case: Case) -> tuple[Any, list[Any]]:
    """Every unit at which hyperplanes of inputs and axes meet, and a constant."""
    import cvxpy

    design = _design(case)
    size = design.shape[1]
    planes = np.concatenate([design, np.eye(size)])
    units = []
    for meeting in itertools.combinations(range(len(planes)), size - 1):
        direction = np.linalg.svd(planes[list(meeting)])[2][-1]
        units += [direction / np.abs(direction).sum(), -direction / np.abs(direction).sum()]
    outputs = np.maximum(design @ np.array(units).T, 0.0)
    centre, unit = float(case.targets.mean()), float(case.targets.std())
    weights, constant = cvxpy.Variable(len(units)), cvxpy.Variable()
    limits = [
        cvxpy.norm1(weights) <= RADIUS * unit,
        cvxpy.abs(constant - centre) <= RADIUS * unit,
    ]
    return outputs @ weights + constant, limits


def pricing(kind: str, cases: int) -> Iterator[dict[str, Any]]:
    """Runs of one kind of members, each beside the optimum of its class."""
    for seed in range(cases):
        case = random_case(seed)
        best = optimum(kind, case)
        started = time.process_time()
        settings = Settings(final_weights="vertex", column_limit=2000)
        result = solve(case.problem(pricer_of(kind, case)), settings)
        spent = time.process_time() - started
        possible = math.isfinite(best)
        scale = max(1.0, best) if possible else 1.0
        bounds = [record.bound for record in result.history if record.bound is not None]
        wanted = StopReason.OPTIMAL if possible else StopReason.INFEASIBLE
        yield {
            "case": seed,
            "kind": kind,
            "stop_reason": result.stop_reason.value,
            "feasible_class": possible,
            "as_expected": result.stop_reason is wanted,
            "bound_above_optimum": (max(bounds) - best) / scale if possible and bounds else None,
            "objective_above_optimum": (result.objective - best) / scale if possible else None,
            "gap": result.gap,
            "iterations": len(result.history),
            "columns": result.columns,
            "seconds": spent,
        }
