"""Sequential quadratic programming: the steps from a start to the least of a convex program."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cg4ai.colgen.master.convex.dense import LARGE, DenseQuadratic
from cg4ai.colgen.master.convex.program import Point, Program, assess, check_curvature
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.records import Array, IntArray
from cg4ai.solvers.conic import Answer, QuadraticProgram

STEP_LIMIT = 100
PATIENCE = 10  # steps without progress after which more would not help
NARROWINGS = 8  # of where a line has its least, by a third each


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An answer of the quadratic program: weights (M,) and row duals (m,), to be judged."""

    weights: Array
    beta: Array


@dataclass(frozen=True, slots=True)
class _Model:
    """The quadratic model weights' hessian weights / 2 + linear . weights around a point.

    Hessian, linear part and the prices of the program are divided by `scale`.
    """

    program: Program
    hessian: Array
    linear: Array
    scale: float

    @classmethod
    def around(cls, program: Program, point: Point) -> _Model:
        hessian = check_curvature(program.objective.curvature(point.weights))
        linear = point.gradient - hessian @ point.weights
        # Losses with steep ends (log of a probability near 0) reach slopes of 1e12, and rows that
        # cannot be met reach the penalty; Clarabel needs the objective divided by the largest.
        scale = max(1.0, np.abs(linear).max(initial=0.0), point.duals.rows.max(initial=0.0))
        if program.penalty is not None:
            prices = (program.penalty / scale, program.dummy_price / scale)
            program = replace(program, penalty=prices[0], dummy_price=prices[1])
        return cls(program, hessian / scale, linear / scale, scale)

    def restricted_to(self, rows: IntArray) -> QuadraticProgram:
        return QuadraticProgram.build(self.program, rows, hessian=self.hessian, linear=self.linear)

    def solve(self, rows: IntArray) -> Answer:
        """The least of the model with these rows alone."""
        program = self.program
        if program.penalty is None or not DenseQuadratic.suits(program, rows):
            return self.restricted_to(rows).solve()
        dense = DenseQuadratic.build(program, rows, hessian=self.hessian, linear=self.linear)
        return dense.solve().answer(penalty=program.penalty, dummy_price=program.dummy_price)

    def slack(self, rows: IntArray, x: Array) -> Array:
        """All slack variables (n_groups,), from an answer of the model restricted to `rows`."""
        slack, size = np.zeros(self.program.n_groups), len(self.linear)
        if self.program.penalty is not None:
            used = np.unique(self.program.groups[rows])
            slack[used] = x[size : size + len(used)] / self.program.penalty
        return slack

    def candidate(self, rows: IntArray, answer: Answer) -> _Candidate:
        first, beta = self.program.n_blocks, np.zeros(len(self.program.bounds))
        beta[rows] = self.scale * answer.z[first : first + len(rows)]
        return _Candidate(self.program.tidy(answer.x[: len(self.linear)]), beta)


@dataclass(frozen=True, slots=True)
class _Step:
    candidates: list[_Candidate]
    active: NDArray[np.bool_]
    iterations: int


def _quadratic_step(program: Program, point: Point, active: NDArray[np.bool_]) -> _Step:
    """Minimise the quadratic model with all rows, of which only violated ones take part."""
    model, iterations = _Model.around(program, point), 0
    none = np.zeros(program.n_groups)
    active = _with_violated(program, point.weights, active=active, slack=none)
    while True:
        chosen = np.flatnonzero(active)
        answer = model.solve(chosen)
        iterations += answer.iterations
        weights, slack = answer.x[: len(point.weights)], model.slack(chosen, answer.x)
        wider = _with_violated(program, weights, active=active, slack=slack)
        if np.array_equal(wider, active):
            break
        active = wider
    polished = model.restricted_to(chosen).polish(answer)
    answers = [answer] if polished is None else [answer, polished]
    # Rows far from tight only slow the next step down; if needed they come back.
    rows = slice(program.n_blocks, program.n_blocks + len(chosen))
    active[chosen[answer.z[rows] < 1e-3 * answer.s[rows]]] = False
    return _Step([model.candidate(chosen, found) for found in answers], active, iterations)


def _with_violated(
    program: Program, weights: Array, *, active: NDArray[np.bool_], slack: Array
) -> NDArray[np.bool_]:
    """`active` and the worst rows outside it that fall short by more than the tolerance."""
    shortfall = program.bounds - program.coefficients @ weights - slack[program.groups]
    shortfall[active] = -np.inf
    violated = np.flatnonzero(shortfall > program.row_tolerance)
    # Many more than can be tight at once would only slow the quadratic program down, but where
    # thousands lack something, as many as can be tight at a time would take a hundred rounds. Hard
    # rows are all met in the end, and Clarabel solves them: for them few at a time are faster.
    many = program.penalty is not None and len(program.bounds) > LARGE
    limit = max(50, len(weights) // 2, LARGE if many else 0)
    worst = violated[np.argsort(-shortfall[violated], kind="stable")[:limit]]
    wider = active.copy()
    wider[worst] = True
    return wider


def _merit_at(program: Program, point: Point, weights: Array) -> float:
    """What the solver minimises, at other weights; a loss below a tangent is not convex."""
    reached = program.objective.value(weights)
    steps = point.gradient * (weights - point.weights)
    tangent = point.value + float(steps.sum())
    terms = abs(point.value) + abs(reached) + float(np.abs(steps).sum())
    if reached < tangent - 1e-7 * (1.0 + terms):
        raise InvalidInput(
            f"the loss is not convex: a mixture has loss {reached:.9g}, below the tangent "
            f"{tangent:.9g} at another; use a convex loss, such as squared, log_loss or "
            "cross_entropy",
            code="not-convex",
        )
    return reached + program.charge(weights)


def _line_search(program: Program, point: Point, target: Array) -> tuple[Array, float]:
    """The best weights on the way to `target`, or the point itself if none is better.

    The merit is convex along the line: half, quarter ... steps are tried until it rises again after
    a fall, and thirds then narrow down where it is least. A whole step that is better than none may
    still end at an edge, where a steep loss holds all further steps back; the least does not.
    """

    def at(share: float) -> tuple[Array, float]:
        trial = target if share == 1.0 else point.weights + share * (target - point.weights)
        return trial, _merit_at(program, point, trial)

    best, share, fraction = (point.weights, point.merit), 1.0, 1.0
    while fraction > 1e-15:
        trial = at(fraction)
        if trial[1] < best[1]:
            best, share = trial, fraction
        elif best[0] is not point.weights:
            break
        fraction *= 0.5
    if best[0] is point.weights:
        return best
    low, high = share / 2, min(2 * share, 1.0)
    for _ in range(NARROWINGS):
        third = (high - low) / 3
        left, right = at(low + third), at(high - third)
        best = min(best, left, right, key=lambda pair: pair[1])
        low, high = (low, high - third) if left[1] < right[1] else (low + third, high)
    return best


def _advance(program: Program, point: Point, candidates: list[_Candidate]) -> Point:
    """The next point; the same weights, perhaps with better duals, if none is better."""
    choices = [point.duals.rows, *(candidate.beta for candidate in candidates)]
    # Near the optimum the merit is flat to rounding while the gap still falls: trust the gap.
    rounding = 1e-12 * max(1.0, abs(point.merit))
    sharper = [
        assess(program, candidate.weights, choices)
        for candidate in candidates
        if _merit_at(program, point, candidate.weights) <= point.merit + rounding
    ]
    best = min(sharper, key=lambda option: option.gap, default=point)
    if best.gap < 0.5 * point.gap:
        return best
    targets = [*(candidate.weights for candidate in candidates), program.centre()]
    found = [_line_search(program, point, target) for target in targets]
    return assess(program, min(found, key=lambda pair: pair[1])[0], choices)


def _stalled(earlier: Point, point: Point) -> bool:
    """Whether neither merit nor gap fell by much in as many steps as patience allows."""
    fell = earlier.merit - point.merit
    return fell <= 1e-9 * abs(earlier.merit) and point.gap > 0.5 * earlier.gap


@dataclass(frozen=True, slots=True)
class Minimum:
    point: Point
    active: NDArray[np.bool_]
    iterations: int


def minimise(
    program: Program,
    start: Array,
    *,
    beta: Array,
    active: NDArray[np.bool_],
    tolerance: float,
) -> Minimum:
    """Sequential quadratic programming until the certified gap is closed or nothing improves."""
    point, iterations = assess(program, program.tidy(start), [beta]), 0
    earlier = point
    for steps in range(STEP_LIMIT):
        if point.gap <= tolerance * max(1.0, abs(point.merit)):
            break
        if steps and steps % PATIENCE == 0:
            if _stalled(earlier, point):
                break
            earlier = point
        try:
            step = _quadratic_step(program, point, active)
        except SolverFailure:
            if steps == 0:
                raise
            break  # what was reached, with its certified gap, is still an answer
        active, iterations = step.active, iterations + step.iterations
        before, point = point, _advance(program, point, step.candidates)
        if point.weights is before.weights:
            break
    return Minimum(point, active, iterations)
