"""Re-check OPTIMAL, INFEASIBLE, bounds, gaps and named conflicts by a conic solver.

    python benchmarks/optima.py --count 1000 --seed 1 --jobs 2

Each seed draws one problem of which the best mixture can be written down: given members in one
block or several under linear, quadratic, concave and margin rules, or exactly priced affine models
and stumps. Clarabel solves it, stated anew in units of 1; `cg4ai` gets it in units from 1e-9 to
1e9. A statement is false where the two contradict each other by more than the stated tolerances.
Rules of the mixture that is returned are evaluated in rationals. Options as of `claims.py`.
"""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import clarabel
import exact
import numpy as np
import torch
from claims import Found, concave_function, excesses, outputs_of, run
from exact import Curved, Form, Square
from scipy import sparse

import cg4ai
from cg4ai import StopReason
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.exact.stumps import StumpPricer
from cg4ai.conflicts.conflict import Scope
from cg4ai.errors import Cg4aiError
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.records import Array, IntArray

AUDITED = 1e-6  # of a row's size: what a row may lack and still count as met
MET = 1e-7  # to which the master meets its rows
GAP = 1e-6  # of the objective's size: how far OPTIMAL may be above its bound
SOLVER = 1e-7  # to which the conic solver is trusted, of the sizes of the numbers
CERTAIN = 0.1  # share of a tolerance that is left to rounding


# ---- conic programs ------------------------------------------------------------------------------


class Conic:
    """`min 1/2 x'Px + q'x` under rows in cones, built bit by bit."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[Array] = []
        self.right: list[float] = []
        self.cones: list[tuple[str, int]] = []

    def add(self, kind: str, rows: Any, right: Any) -> None:
        """`right - rows x` lies in the cone."""
        rows = np.atleast_2d(rows)
        self.rows += list(rows)
        self.right += np.atleast_1d(right).tolist()
        self.cones.append((kind, len(rows)))

    def widened(self, count: int) -> int:
        """Room for further variables; the number of the first."""
        first = self.size
        self.size += count
        return first

    def solve(self, P: Array, q: Array) -> tuple[str, float, Array]:
        made = {
            "zero": clarabel.ZeroConeT,
            "least": clarabel.NonnegativeConeT,
            "second": clarabel.SecondOrderConeT,
        }
        cones = [
            clarabel.ExponentialConeT() if kind == "exponential" else made[kind](count)
            for kind, count in self.cones
        ]
        A = np.stack([np.pad(row, (0, self.size - len(row))) for row in self.rows])
        P = np.pad(P, ((0, self.size - len(P)),) * 2)
        q = np.pad(q, (0, self.size - len(q)))
        options = clarabel.DefaultSettings()
        options.verbose = False
        options.tol_feas = options.tol_gap_abs = options.tol_gap_rel = 1e-10
        solver = clarabel.DefaultSolver(
            sparse.csc_matrix(np.triu(P)),
            q,
            sparse.csc_matrix(A),
            np.array(self.right),
            cones,
            options,
        )
        found = solver.solve()
        return str(found.status), float(found.obj_val), np.array(found.x)


@dataclass(frozen=True)
class Row:
    """One inequality at one input, in units of 1: about the outputs `at` (r, variables) x + `by`.

    `linear`: `weights . y <= limit`. `square`: |factor' y|^2 + weights . y <= limit. Concave
    functions by name, `-value(y) <= limit`, with their weights. `size` is that of the bound.
    """

    kind: str
    weights: Array
    limit: float
    at: Array
    by: Array
    factor: Array | None = None
    size: float = 1.0
    requirement: int = 0

    def bind(self, program: Conic, slack: Array) -> None:
        """`value <= limit + slack . x`, slack (variables,)."""
        w, at, by = self.weights, self.at, self.by
        if self.kind == "linear":
            program.add("least", w @ at - slack, self.limit - w @ by)
        elif self.kind == "square":
            assert self.factor is not None
            F = self.factor
            lean, rest = w @ at - slack, self.limit - w @ by  # |F'y|^2 <= t = rest - lean x
            program.add(
                "second",
                np.vstack([lean, lean, -2 * F.T @ at]),
                np.concatenate([[rest + 1, rest - 1], 2 * F.T @ by]),
            )
        elif self.kind == "norm":
            scaled, fixed = w[:, None] * at, w * by
            program.add(
                "second",
                np.vstack([-slack, np.zeros_like(slack), -scaled]),
                np.concatenate([[self.limit, 1.0], fixed]),
            )
        elif self.kind == "absolute":
            first = program.widened(len(w))
            for q in range(len(w)):
                for sign in (1.0, -1.0):
                    row = np.zeros(program.size)
                    row[: at.shape[1]] = sign * at[q]
                    row[first + q] = -1.0
                    program.add("least", row, -sign * by[q])
            row = np.zeros(program.size)
            row[: len(slack)] = -slack
            row[first : first + len(w)] = w
            program.add("least", row, self.limit)
        elif self.kind == "exponential":
            first = program.widened(len(w))
            for q in range(len(w)):  # exp(w y - limit - slack) <= u
                row = np.zeros((3, program.size))
                row[0, : at.shape[1]] = -(w[q] * at[q] - slack)
                row[2, first + q] = -1.0
                program.add("exponential", row, [w[q] * by[q] - self.limit, 1.0, 0.0])
            row = np.zeros(program.size)
            row[first : first + len(w)] = 1.0
            program.add("least", row, 1.0)
        else:  # lowest: -(w + y) <= limit for each output
            for q in range(len(w)):
                program.add("least", -at[q] - slack, self.limit + w[q] + by[q])


@dataclass(frozen=True)
class Stated:
    """A convex program: x in a set, rows, and `1/2 x'Px + q'x + start` to be least."""

    size: int
    rows: Sequence[Row]
    bind: Any  # adds the set that x lies in
    P: Array
    q: Array
    start: float
    pieces: Sequence[tuple[IntArray, Any]] = ()

    def _program(self, more: int) -> Conic:
        program = Conic(self.size + more)
        self.bind(program, self.size + more)
        return program

    def best(self, allowed: float) -> float:
        """The least objective with rows relaxed by this share of their sizes; inf, nan: unknown."""
        program = self._program(0)
        for row in self.rows:
            loose = replace(row, limit=row.limit + allowed * row.size)
            loose.bind(program, np.zeros(self.size))
        status, value, _ = program.solve(self.P, self.q)
        if "Infeasible" in status:
            return np.inf
        return value + self.start if status == "Solved" else np.nan

    def shortest(self, chosen: Sequence[Row]) -> float:
        """The least t with these rows relaxed by t x size; at most 0 where they can be kept."""
        program = self._program(1)
        slack = np.zeros(self.size + 1)
        for row in chosen:
            slack[-1] = row.size
            wide = np.pad(row.at, ((0, 0), (0, 1)))
            replace(row, at=wide).bind(program, slack)
        least = np.zeros(self.size + 1)
        least[-1] = -1.0
        program.add("least", least, 10.0)  # t >= -10, or it may fall without end
        q = np.zeros(self.size + 1)
        q[-1] = 1.0
        status, value, _ = program.solve(np.zeros((self.size + 1,) * 2), q)
        return value if status == "Solved" else np.nan

    def least_slack(self, shared: Sequence[bool]) -> float:
        """The least sum of slacks, one for each row or, where shared, for each requirement."""
        numbers = [
            row.requirement if shared[row.requirement] else len(shared) + j
            for j, row in enumerate(self.rows)
        ]
        _, places = np.unique(numbers, return_inverse=True)
        count = int(places.max()) + 1
        program = self._program(count)
        for row, place in zip(self.rows, places, strict=True):
            slack = np.zeros(self.size + count)
            slack[self.size + place] = 1.0
            replace(row, at=np.pad(row.at, ((0, 0), (0, count)))).bind(program, slack)
        program.add("least", -np.eye(self.size + count)[self.size :], np.zeros(count))
        q = np.concatenate([np.zeros(self.size), np.ones(count)])
        status, value, _ = program.solve(np.zeros((self.size + count,) * 2), q)
        return value if status == "Solved" else np.nan


# ---- problems in units of 1 ----------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A requirement, its facts at each row for `exact`, and its rows in units of 1."""

    requirement: Any
    facts: Sequence[tuple[Any, int]]  # with the number of the input
    shared: bool


def random_requirements(
    rng: np.random.Generator,
    points: Array,
    inside: Array,
    at: Array,
    by: Array,
    units: tuple[float, float],
) -> tuple[list[Asked], list[Row]]:
    """Rules at listed inputs; `inside` (n, r) are outputs that keep most of them.

    `at` (n, r, variables) and `by` (n, r) give the outputs; `units` are those of outputs and rules.
    """
    r = inside.shape[1]
    unit, of_rule = units
    asked: list[Asked] = []
    rows: list[Row] = []
    hard = float(rng.choice([0.0, 0.3, 1.5], p=[0.5, 0.3, 0.2]))  # how far beyond `inside`
    for number in range(int(rng.integers(1, 4))):
        kinds = [
            "linear",
            "linear",
            "square",
            "square",
            "norm",
            "absolute",
            "exponential",
            "lowest",
        ]
        kind = str(rng.choice([*kinds, *(["margin", "margin"] if r > 1 else [])]))
        shared = bool(rng.random() < 0.3)
        slack = "shared" if shared else "row"
        chosen = np.sort(rng.choice(len(points), int(rng.integers(1, len(points) + 1)), False))
        listed, name = points[chosen], f"rule {number}"
        weights: Array = rng.uniform(0.1, 1.0, (r,))
        facts: list[tuple[Any, int]] = []
        new: list[Row] = []
        made: Any

        def room() -> float:
            return float(rng.uniform(0, 0.4) - hard * rng.random())

        if kind in ("linear", "margin"):
            count = int(rng.integers(1, 3))
            matrix = rng.normal(size=(count, r))
            if kind == "margin":
                label = int(inside[chosen].mean(0).argmax())
                matrix = np.delete(np.eye(r), label, 0) - np.eye(r)[[label]]
            values = inside[chosen] @ matrix.T
            limits = values + np.array([[room() for _ in matrix] for _ in chosen])
            if kind == "margin":
                least = -float(limits.max())
                limits = np.full_like(limits, -least)
                made = cg4ai.rules.Margin(
                    listed, np.full(len(chosen), label), unit * least, name=name, slack=slack
                )
                scale = unit
                stated = matrix
            else:
                scale, stated = of_rule, of_rule * matrix / unit
                sense = str(rng.choice(["<=", ">="]))
                sign = 1.0 if sense == "<=" else -1.0
                made = cg4ai.rules.Linear(
                    listed, sign * stated[None], sign * of_rule * limits, sense,
                    name=name, slack=slack,
                )  # fmt: skip
            for i, limit in zip(chosen, limits, strict=True):
                facts.append((Form(stated, scale * limit[None]), int(i)))
                for own, end in zip(matrix, limit, strict=True):
                    new.append(Row("linear", own, float(end), at[i], by[i], size=abs(end)))
        elif kind == "square":
            factor = rng.normal(size=(r, int(rng.integers(1, r + 1))))
            lean = rng.normal(size=r) * rng.choice([0.0, 0.5])
            lean = factor @ (factor.T @ lean)  # in the range, so that there is a least value
            square = factor @ factor.T
            y = inside[chosen]
            limits = np.einsum("nr,rs,ns->n", y, square, y) + y @ lean
            limits += np.array([room() * (1 + abs(v)) for v in limits])
            floor = -0.25 * lean @ np.linalg.pinv(square) @ lean
            limits = np.maximum(limits, floor + 0.01)
            stated = of_rule * square / unit**2
            stated = (stated + stated.T) / 2
            leaning = of_rule * lean / unit
            made = cg4ai.rules.Quadratic(
                listed, stated, of_rule * limits, leaning, name=name, slack=slack
            )
            for i, limit in zip(chosen, limits, strict=True):
                facts.append((Square(stated, leaning, float(of_rule * limit)), int(i)))
                new.append(
                    Row("square", lean, float(limit), at[i], by[i], factor=factor, size=abs(limit))
                )
        else:
            function = concave_function(kind, weights, unit)
            values = function(torch.as_tensor(unit * inside[chosen])).numpy()
            bounds = values - np.array([room() * (1 + abs(v)) for v in values])
            if kind == "norm":
                bounds = np.minimum(bounds, -1.01)  # its largest value is -1
            if kind == "absolute":
                bounds = np.minimum(bounds, -0.01)
            made = cg4ai.rules.Concave(listed, function, bounds, name=name, slack=slack)
            for i, end in zip(chosen, bounds, strict=True):
                facts.append((Curved(kind, weights, unit, float(end)), int(i)))
                new.append(Row(kind, weights, -float(end), at[i], by[i], size=abs(end)))
        asked.append(Asked(made, facts, shared))
        sizes = 1e-6 * max(row.size for row in new)
        rows += [replace(row, size=max(row.size, sizes), requirement=number) for row in new]
    return asked, rows


def unit_of(rng: np.random.Generator) -> float:
    return float(10.0 ** rng.integers(-9, 10)) if rng.random() < 0.6 else 1.0


def simplex(blocks: IntArray) -> Any:
    def bind(program: Conic, size: int) -> None:
        count = len(blocks)
        ones = np.zeros((int(blocks.max()) + 1, size))
        ones[blocks, np.arange(count)] = 1.0
        program.add("zero", ones, np.ones(len(ones)))
        program.add("least", -np.eye(size)[:count], np.zeros(count))

    return bind


@dataclass(frozen=True)
class Posed:
    """A problem for `cg4ai` and the same for the conic solver, whose objective is in `unit`."""

    kind: str
    problem: Any
    stated: Stated
    asked: Sequence[Asked]
    unit: float
    points: Array
    settings: Any
    plain: bool  # whether slacks of all rules add up in one unit


def finite(rng: np.random.Generator) -> Posed:
    """Given members in blocks, priced from a pool or there from the start."""
    n, r, count = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(2, 13))
    x_unit, unit, of_rule = unit_of(rng), unit_of(rng), unit_of(rng)
    if r > 1 and rng.random() < 0.35:
        cut = int(rng.integers(1, r))
        order = rng.permutation(r)
        layout = Layout((np.sort(order[:cut]), np.sort(order[cut:])))
        blocks = np.concatenate([[0, 1], rng.integers(0, 2, max(count - 2, 2))])
    else:
        layout, blocks = Layout.single(r), np.zeros(count, np.int64)
    count = len(blocks)
    width = max(len(block) for block in layout.blocks)
    own = rng.normal(size=(count, n, width))  # outputs at n inputs e_1 .. e_n
    outputs = np.zeros((count, n, r))
    for m, block in enumerate(blocks):
        places = layout.blocks[block]
        outputs[m][:, places] = own[m][:, : len(places)]
    members = affine(unit * own / x_unit, np.zeros((count, width)))
    points = x_unit * np.eye(n)
    mixed = np.zeros((n, r))
    for block in range(len(layout)):
        mine = np.flatnonzero(blocks == block)
        mixed += np.einsum("m,mnr->nr", rng.dirichlet(np.ones(len(mine))), outputs[mine])
    at, by = outputs.transpose(1, 2, 0), np.zeros((n, r))
    asked, rows = random_requirements(rng, points, mixed, at, by, (unit, of_rule))
    kind = str(rng.choice(["average", "mixture", "epigraph"]))
    targets = rng.normal(size=(n, r))
    objective: Any
    P, q, start, scale = np.zeros((count, count)), np.zeros(count), 0.0, unit**2
    size, bind = count, simplex(blocks)
    if kind == "epigraph":
        pieces = rng.normal(size=(int(rng.integers(1, 4)), r))
        objective = Epigraph(points, cg4ai.rules.AffineCoefficients.fixed(pieces), floor=0.0)
        values = np.einsum("kr,nrm->nkm", pieces, at)
        size, scale = count + n, unit
        P, q = np.zeros((size, size)), np.concatenate([np.zeros(count), np.full(n, 1 / n)])
        inner = bind

        def bind(program: Conic, whole: int) -> None:
            inner(program, whole)
            for i in range(n):
                row = np.zeros((len(pieces) + 1, whole))
                row[:-1, :count] = values[i]
                row[:, count + i] = -1.0
                program.add("least", row, np.zeros(len(row)))

        rows = [replace(row, at=np.pad(row.at, ((0, 0), (0, n)))) for row in rows]
    else:
        objective = Supervised(points, unit * targets, kind=kind)  # type: ignore[arg-type]
        if kind == "average":
            for m, block in enumerate(blocks):
                places = layout.blocks[block]
                q[m] = ((outputs[m] - targets)[:, places] ** 2).sum() / n
        else:
            flat = outputs.reshape(count, -1)
            P, q = 2 * flat @ flat.T / n, -2 * flat @ targets.reshape(-1) / n
            start = float((targets**2).sum() / n)
    problem = cg4ai.Problem(
        objective,
        [one.requirement for one in asked],
        [FinitePricer([(members, blocks)])],
        layout,
    )
    settings = cg4ai.Settings(column_limit=10_000, final_weights="vertex", estimate_restarts=0)
    name = f"given members, {kind}, {len(layout)} block" + "s" * (len(layout) > 1)
    plain = of_rule == unit == 1.0
    stated = Stated(size, rows, bind, P, q, start)
    return Posed(name, problem, stated, asked, scale, points, settings, plain)


def priced_affine(rng: np.random.Generator) -> Posed:
    """Affine members in a ball: the best mixture is one of them, by convexity."""
    n, d, r = int(rng.integers(4, 9)), int(rng.integers(1, 3)), int(rng.integers(1, 3))
    x_unit, unit, of_rule = unit_of(rng), unit_of(rng), unit_of(rng)
    X = rng.normal(size=(n, d))
    targets = rng.normal(size=(n, r))
    radius = float(rng.uniform(0.5, 4.0))
    z = (X - X.mean(0)) / X.std(0)
    design = np.concatenate([z, np.ones((n, 1))], axis=1)
    count = (d + 1) * r
    at = np.stack([np.kron(row[None], np.eye(r)) for row in design])  # V as (d + 1) blocks of r
    fit = np.linalg.lstsq(design, targets, rcond=None)[0]
    fit *= min(1.0, 0.7 * radius / np.linalg.norm(fit))
    asked, rows = random_requirements(
        rng, x_unit * X, design @ fit, at, np.zeros((n, r)), (unit, of_rule)
    )
    flat = at.reshape(-1, count)
    P, q = 2 * flat.T @ flat / n, -2 * flat.T @ targets.reshape(-1) / n

    def bind(program: Conic, size: int) -> None:
        ball = np.zeros((count + 1, size))
        ball[1:, :count] = -np.eye(count)
        program.add("second", ball, np.concatenate([[radius], np.zeros(count)]))

    problem = cg4ai.Problem(
        Supervised(x_unit * X, unit * targets, kind="mixture"),
        [one.requirement for one in asked],
        [AffinePricer(d, r, radius=unit * radius)],
        Layout.single(r),
    )
    stated = Stated(count, rows, bind, P, q, float((targets**2).sum() / n))
    settings = cg4ai.Settings(iteration_limit=60, final_weights="vertex", estimate_restarts=0)
    plain = of_rule == unit == 1.0
    return Posed("affine, mixture", problem, stated, asked, unit**2, x_unit * X, settings, plain)


def priced_stumps(rng: np.random.Generator) -> Posed:
    """Stumps with leaf values in a range: mixtures are sums of steps whose sizes share it."""
    n, d, r = int(rng.integers(3, 7)), int(rng.integers(1, 3)), 1
    x_unit, unit, of_rule = unit_of(rng), unit_of(rng), unit_of(rng)
    X, targets = rng.normal(size=(n, d)), rng.normal(size=(n, r))
    low, high = float(targets.min()) - 0.1, float(targets.max()) + 0.1
    sides = []
    for feature in range(d):
        for value in np.sort(X[:, feature])[:-1]:
            sides.append(X[:, feature] <= value)
    steps = len(sides)
    at = np.zeros((n, r, 3 * steps))  # share, left and right value of each
    for k, left in enumerate(sides):
        at[left, 0, 3 * k + 1] = 1.0
        at[~left, 0, 3 * k + 2] = 1.0
    asked, rows = random_requirements(
        rng, x_unit * X, targets * 0.8, at, np.zeros((n, r)), (unit, of_rule)
    )
    flat = at.reshape(n, -1)
    P, q = 2 * flat.T @ flat / n, -2 * flat.T @ targets.reshape(-1) / n

    def bind(program: Conic, size: int) -> None:
        whole = np.zeros(size)
        whole[: 3 * steps : 3] = 1.0
        program.add("zero", whole, 1.0)
        for k in range(steps):
            for value in (3 * k + 1, 3 * k + 2):
                ends = np.zeros((2, size))
                ends[0, value], ends[0, 3 * k] = 1.0, -high
                ends[1, value], ends[1, 3 * k] = -1.0, low
                program.add("least", ends, np.zeros(2))
            share = np.zeros(size)
            share[3 * k] = -1.0
            program.add("least", share, 0.0)

    problem = cg4ai.Problem(
        Supervised(x_unit * X, unit * targets, kind="mixture"),
        [one.requirement for one in asked],
        [StumpPricer(d, r, low=unit * low, high=unit * high)],
        Layout.single(r),
    )
    stated = Stated(3 * steps, rows, bind, P, q, float((targets**2).sum() / n))
    settings = cg4ai.Settings(iteration_limit=60, final_weights="vertex", estimate_restarts=0)
    plain = of_rule == unit == 1.0
    return Posed("stumps, mixture", problem, stated, asked, unit**2, x_unit * X, settings, plain)


# ---- checking ------------------------------------------------------------------------------------


def missed(posed: Posed, ensemble: Any) -> list[Array]:
    """By how much each requirement's rules are missed at each of its inputs, exactly."""
    y = outputs_of(ensemble, posed.points)
    return [
        np.array([excesses(fact, posed.points[i], y[i]) for fact, i in one.facts])
        for one in posed.asked
    ]


def check(found: Found, posed: Posed) -> None:
    """Hold everything that a result says against the conic solver's answers."""
    result = cg4ai.solve(posed.problem, posed.settings)
    stated, reason, kind = posed.stated, result.stop_reason, posed.kind
    shortest = stated.shortest(stated.rows)
    best = stated.best(0.0) if shortest <= 0 else np.inf
    relaxed = stated.best(2 * MET)
    size = 1.0 if not np.isfinite(best) else max(1.0, abs(best))
    objective = result.objective / posed.unit

    def tell(statement: str, fault: str = "") -> None:
        found.claim(statement, kind, fault)

    broken = missed(posed, result.ensemble)
    if result.feasible:
        faults = [
            f"{audit.requirement} missed by {worst.max():.3g}, stated {audit.tolerance:.3g}"
            for audit, worst in zip(result.audits, broken, strict=True)
            if worst.max() > audit.tolerance
        ]
        tell("rules kept", faults[0] if faults else "")
    if reason is StopReason.OPTIMAL:
        fault = ""
        if not result.feasible:
            fault = "OPTIMAL and not feasible"
        elif np.isfinite(relaxed) and objective < relaxed - SOLVER * size:
            fault = f"objective {objective:.9g} is below {relaxed:.9g}, the optimum"
        elif np.isfinite(best) and objective > best + (GAP + SOLVER) * size:
            fault = f"objective {objective:.9g} is above the optimum {best:.9g}"
        elif shortest > MET * (1 + CERTAIN) + SOLVER:
            fault = f"OPTIMAL where rows lack {shortest:.3g} of their sizes"
        tell("OPTIMAL", fault)
        gap = result.gap / posed.unit
        allowed = GAP * max(abs(objective), 1.0)
        tell("gap", f"gap {gap:.3g} where {allowed:.3g} is allowed" if gap > allowed else "")
    elif reason is StopReason.INFEASIBLE:
        fault = ""
        if result.feasible:
            fault = "INFEASIBLE and feasible"
        elif shortest < AUDITED * (1 - CERTAIN):
            fault = f"INFEASIBLE where rows lack no more than {shortest:.3g} of their sizes"
        tell("INFEASIBLE", fault)
        if posed.plain:
            least = stated.least_slack([one.shared for one in posed.asked])
            total = sum(
                float(np.maximum(worst, 0).max() if one.shared else slack_of(one, posed, result))
                for one, worst in zip(posed.asked, broken, strict=True)
            )
            more = total - least
            fault = f"slack {total:.8g}, least {least:.8g}" if more > 1e-5 * (1 + least) else ""
            tell("least slack", fault)
    else:
        can = shortest <= 0
        tell(f"{reason.value}, {'met' if result.feasible else 'unmet' if can else 'unmeetable'}")
    if result.bound is not None and reason is not StopReason.INFEASIBLE:
        bound, fault = result.bound / posed.unit, ""
        if np.isfinite(best) and bound > best + SOLVER * size:
            fault = f"bound {bound:.9g} is above the optimum {best:.9g}"
        tell("bound", fault)
    if result.conflict is not None and result.conflict.scope is not Scope.MEMBERS:
        named = set(result.conflict.requirements)
        rows = [row for row in stated.rows if row.requirement in named]
        lacking = stated.shortest(rows)
        fault = ""
        if lacking < AUDITED * (1 - CERTAIN):
            fault = f"{sorted(named)} can be kept together but for {lacking:.3g} of their sizes"
        tell("conflict", fault)


def slack_of(one: Asked, posed: Posed, result: Any) -> float:
    """The sum over all rows of one requirement, each with a slack of its own."""
    y = outputs_of(result.ensemble, posed.points)
    total = 0.0
    for fact, i in one.facts:
        values = fact.excess(exact.rationals(posed.points[i]), exact.rationals(y[i]))
        total += sum(max(float(exact.centre(value)), 0.0) for value in values)
    return total


def one_problem(seed: int) -> Found:
    """All that is stated of one random problem, checked."""
    rng = np.random.default_rng(seed)
    found, started = Found(seed), time.perf_counter()
    torch.set_num_threads(1)
    pose = (finite, priced_affine, priced_stumps)[rng.choice(3, p=[0.8, 0.1, 0.1])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            check(found, pose(rng))
        except Cg4aiError as error:
            found.refused = f"{pose.__name__}: {type(error).__name__}: {error}"[:400]
        except Exception:  # noqa: BLE001 - one problem must not end the campaign
            found.crashed = f"{pose.__name__}: {traceback.format_exc(limit=-4)}"
    found.seconds = time.perf_counter() - started
    return found


if __name__ == "__main__":
    sys.exit(run(one_problem, __doc__ or ""))
