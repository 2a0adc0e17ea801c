"""The convex master (`mixture` objective) and the final weights; the only file that uses Clarabel.

Both minimise a smooth convex function of the weights over mixtures that meet the rows, by
sequential quadratic programming: value, gradient and Hessian in the space of the weights (one
number per member, however large the data), a quadratic program with the rows by Clarabel, a line
search. Why not one conic program? It would need cones of the size of the data and a hand-written
form of every loss; here any twice differentiable torch function will do, squared error takes one
step and the others a handful.

Optimality is not taken on the solver's word. For every weight vector l, convexity gives
`loss(l) >= loss(w) + gradient . (l - w)`, and for the linear right-hand side any row duals give a
bound in closed form; the difference to it is the certified gap. It needs only float64 arithmetic
on the full table of rows, so an inexact quadratic program costs steps but never correctness.

Sizes: everything is dense in the number of columns, meant for up to about 400; rows enter the
quadratic program only when violated, so tens of thousands of rows are fine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import clarabel
import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.master import DUMMY_MULTIPLE
from cg4ai.records import Array, Duals, IntArray, MasterSolution

Loss = Callable[[Tensor], Tensor]

STEP_LIMIT = 100
POLISH_LIMIT = 800  # a least-squares solve of this size still takes well under a second
TINY_WEIGHT = 1e-11  # what an interior-point method leaves on members it does not use
# Statuses whose iterate is worth a try: the line search and the certificate judge it.
USABLE = {
    "Solved",
    "AlmostSolved",
    "InsufficientProgress",
    "MaxIterations",
    "MaxTime",
    "NumericalError",
}
# These cannot be true here: the feasible set is never empty and always bounded.
IMPOSSIBLE = {
    "PrimalInfeasible",
    "AlmostPrimalInfeasible",
    "DualInfeasible",
    "AlmostDualInfeasible",
}


class _Objective(Protocol):
    def value(self, weights: Array) -> float: ...

    def slope(self, weights: Array) -> tuple[float, Array]: ...

    def curvature(self, weights: Array) -> Array: ...


class _MixtureLoss:
    """`loss(sum_i weights_i outputs_i)` with `outputs` (M, n, r) in float64."""

    def __init__(self, loss: Loss, outputs: Tensor) -> None:
        self.loss = loss
        self.outputs = outputs
        self.flat = outputs.flatten(1)

    def mixture(self, weights: Array) -> Tensor:
        w = torch.as_tensor(weights, dtype=torch.float64, device=self.flat.device)
        return (w @ self.flat).reshape(self.outputs.shape[1:])

    def value(self, weights: Array) -> float:
        with torch.no_grad():
            return float(self.loss(self.mixture(weights)))

    def output_gradient(self, weights: Array) -> tuple[float, Tensor]:
        """The loss and its gradient (n, r) by the outputs of the mixture."""
        point = self.mixture(weights).requires_grad_()
        with torch.enable_grad():
            value = self.loss(point)
        if value.ndim != 0 or not value.requires_grad:
            raise InvalidInput(
                "the loss of a convex master must be a differentiable torch scalar, got shape "
                f"{tuple(value.shape)} with requires_grad={value.requires_grad}; "
                "return a mean over the data computed from the given outputs"
            )
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient

    def slope(self, weights: Array) -> tuple[float, Array]:
        value, gradient = self.output_gradient(weights)
        slopes = np.asarray((self.flat @ gradient.reshape(-1)).cpu().numpy())
        if not (np.isfinite(value) and np.isfinite(slopes).all()):
            raise InvalidInput(
                f"the loss of the current mixture is {value} or its gradient is not finite; "
                "use a loss that is finite for every mixture of the members (log_loss is)"
            )
        return value, slopes

    def curvature(self, weights: Array) -> Array:
        """Z' (d2 loss / d outputs2) Z: one batch of Hessian-vector products, no n x n matrix."""
        point = self.mixture(weights).requires_grad_()
        size = len(self.outputs)
        hessian = torch.zeros(size, size, dtype=torch.float64, device=self.flat.device)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.loss(point), point, create_graph=True)
        if gradient.requires_grad:  # otherwise the loss is linear in the outputs
            chunk = max(1, 20_000_000 // max(1, self.flat.shape[1]))
            for first in range(0, size, chunk):
                (product,) = torch.autograd.grad(
                    gradient,
                    point,
                    self.outputs[first : first + chunk],
                    retain_graph=True,
                    is_grads_batched=True,
                    allow_unused=True,
                )
                if product is not None:
                    hessian[first : first + chunk] = product.flatten(1) @ self.flat.T
        return np.asarray(hessian.cpu().numpy())


class _DistanceToUniform:
    """Squared distance of the weights to equal weights within each block."""

    def __init__(self, blocks: IntArray) -> None:
        self.centre = 1.0 / np.bincount(blocks)[blocks]

    def value(self, weights: Array) -> float:
        return float(np.sum((weights - self.centre) ** 2))

    def slope(self, weights: Array) -> tuple[float, Array]:
        return self.value(weights), 2.0 * (weights - self.centre)

    def curvature(self, weights: Array) -> Array:
        return 2.0 * np.eye(len(weights))


@dataclass(frozen=True, slots=True)
class _Program:
    """minimise objective + penalties over block-wise convex weights that meet the rows.

    `groups` (m,) numbers the slack variable of each row from 0. `penalty` is the price of slack
    and `dummy_price` that of a dummy; a penalty of None means hard rows and no dummies. A
    violation up to `row_tolerance` (m,) is not charged, so that rounding times a huge
    penalty does not drown the objective.
    """

    objective: _Objective
    coefficients: Array
    bounds: Array
    groups: IntArray
    blocks: IntArray
    n_blocks: int
    row_tolerance: Array
    penalty: float | None = None
    dummy_price: float = np.inf

    @property
    def n_groups(self) -> int:
        return int(self.groups.max(initial=-1)) + 1

    def block_sums(self, weights: Array) -> Array:
        return np.asarray(np.bincount(self.blocks, weights, self.n_blocks), dtype=np.float64)

    def group_slack(self, weights: Array) -> Array:
        """What each slack variable must be: the largest shortfall of its rows beyond tolerance."""
        slack = np.zeros(self.n_groups)
        np.maximum.at(
            slack, self.groups, self.bounds - self.row_tolerance - self.coefficients @ weights
        )
        return slack

    def charge(self, weights: Array) -> float:
        if self.penalty is None:
            return 0.0
        dummies = np.maximum(0.0, 1.0 - self.block_sums(weights)).sum()
        slack = self.group_slack(weights).sum()
        return float(self.penalty * slack + self.dummy_price * dummies)

    def tidy(self, weights: Array) -> Array:
        """Nonnegative weights with block sums at most 1 (with hard rows: exactly 1)."""
        weights = np.where(weights < TINY_WEIGHT, 0.0, weights)
        sums = self.block_sums(weights)
        exact = (sums > 1.0 - 1e-9) | (self.penalty is None)
        return np.asarray(weights / np.where(exact & (sums > 0), sums, 1.0)[self.blocks])

    def duals(self, gradient: Array, beta: Array) -> Duals:
        """Row duals made feasible, and the best block duals for them: no reduced cost is < 0."""
        beta = np.maximum(beta, 0.0)
        if self.penalty is not None:
            total = np.bincount(self.groups, beta, minlength=self.n_groups)
            beta = beta * (self.penalty / np.maximum(total, self.penalty))[self.groups]
        gamma = np.full(self.n_blocks, self.dummy_price)
        np.minimum.at(gamma, self.blocks, gradient - self.coefficients.T @ beta)
        return Duals(beta, gamma)


@dataclass(frozen=True, slots=True)
class _Point:
    """Weights with what is known there; `bound` is proven for a convex loss by `duals`."""

    weights: Array
    value: float
    merit: float
    gradient: Array
    duals: Duals
    bound: float

    @property
    def gap(self) -> float:
        return self.merit - self.bound


def _assess(program: _Program, weights: Array, choices: list[Array]) -> _Point:
    """The point with those of the given row duals that prove the largest bound.

    For all feasible l, slack and dummies, `loss(l) >= value + gradient . (l - weights)`; duals
    that are feasible for that linear program bound it from below.
    """
    value, gradient = program.objective.slope(weights)
    options = [program.duals(gradient, beta) for beta in choices]
    bounds = [
        float(value - gradient @ weights + duals.rows @ program.bounds + duals.blocks.sum())
        for duals in options
    ]
    best = int(np.argmax(bounds))
    merit = value + program.charge(weights)
    return _Point(weights, value, merit, gradient, options[best], bounds[best])


def _checked_curvature(hessian: Array) -> Array:
    """Symmetric and positive definite, or the loss is not convex."""
    if not hessian.size:
        return hessian
    hessian = 0.5 * (hessian + hessian.T)
    if not np.isfinite(hessian).all():
        raise InvalidInput(
            "the Hessian of the loss is not finite at the current mixture; "
            "a convex master needs a twice differentiable loss"
        )
    eigenvalues = np.linalg.eigvalsh(hessian)
    scale = max(abs(eigenvalues[0]), abs(eigenvalues[-1]))
    if eigenvalues[0] < -1e-7 * scale - 1e-12:
        raise InvalidInput(
            "the loss is not convex in the outputs of the mixture: its Hessian has the eigenvalue "
            f"{eigenvalues[0]:.3g} (largest {eigenvalues[-1]:.3g}); use a convex loss, such as "
            "squared, log_loss or cross_entropy"
        )
    # Where the loss is flat or rounding made the Hessian indefinite, a shift keeps the step
    # defined; it changes the step only, never the point the steps lead to.
    shift = max(0.0, -2.0 * eigenvalues[0]) + 1e-12 * scale
    return np.asarray(hessian + shift * np.eye(len(hessian)))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An answer of the quadratic program: weights (M,) and row duals (m,), to be judged."""

    weights: Array
    beta: Array


@dataclass(frozen=True, slots=True)
class _Quadratic:
    """minimise x'Px/2 + q'x with Ax <= b, the first `n_equal` as equations, the last n: x >= 0.

    x = (weights, slacks x their price, dummies x theirs): with that scaling all costs are of
    order one and a large penalty does not spoil the precision of the duals.
    """

    P: Any
    q: Array
    A: Any
    b: Array
    n_equal: int

    @classmethod
    def build(
        cls, program: _Program, active: IntArray, *, hessian: Array, linear: Array
    ) -> _Quadratic:
        size, blocks = len(linear), program.n_blocks
        member = sparse.csc_matrix(
            (np.ones(size), (program.blocks, np.arange(size))), shape=(blocks, size)
        )
        rows = sparse.csc_matrix(-program.coefficients[active])
        if program.penalty is None:
            extra = 0
            main = sparse.vstack([member, rows])
        else:
            used, column = np.unique(program.groups[active], return_inverse=True)
            extra = len(used) + blocks
            place = (np.arange(len(active)), column)
            slack = sparse.csc_matrix(
                (np.full(len(active), -1.0 / program.penalty), place),
                shape=(len(active), len(used)),
            )
            dummies = sparse.csc_matrix(np.eye(blocks) / program.dummy_price)
            parts = [[member, None, dummies], [rows, slack, None]]
            main = sparse.bmat(parts) if len(active) else sparse.hstack([member, dummies])
        total = size + extra
        return cls(
            P=sparse.block_diag([hessian, sparse.csc_matrix((extra, extra))], format="csc"),
            q=np.concatenate([linear, np.ones(extra)]),
            A=sparse.vstack([main, -sparse.identity(total)], format="csc"),
            b=np.concatenate([np.ones(blocks), -program.bounds[active], np.zeros(total)]),
            n_equal=blocks,
        )

    def solve(self) -> tuple[Array, Array, Array, int]:
        """x, duals of A, cone slack of A and iterations."""
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.direct_solve_method = "qdldl"  # serial, hence the same result every time
        settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-11
        cones = [
            clarabel.ZeroConeT(self.n_equal),
            clarabel.NonnegativeConeT(len(self.b) - self.n_equal),
        ]
        solver = clarabel.DefaultSolver(
            sparse.triu(self.P, format="csc"), self.q, self.A, self.b, cones, settings
        )
        solution = solver.solve()
        status = str(solution.status)
        x, z, s = (
            np.asarray(part, dtype=np.float64) for part in (solution.x, solution.z, solution.s)
        )
        if status in IMPOSSIBLE:
            raise SolverFailure(
                f"Clarabel calls a quadratic program {status} that always has a solution; "
                "scale outputs, rows and bounds to magnitudes near 1"
            )
        if status not in USABLE or not (np.isfinite(x).all() and np.isfinite(z).all()):
            raise SolverFailure(
                f"Clarabel ended with status {status} and no usable iterate; "
                "scale outputs, rows and bounds to magnitudes near 1"
            )
        return x, z, s, int(solution.iterations)

    def polish(self, x: Array, z: Array, s: Array) -> tuple[Array, Array] | None:
        """Solve exactly on the active set that the interior-point answer suggests.

        Sharpens 8 digits to 14 and makes unused weights exactly zero where the guess is right;
        None where the system is too large. The caller judges the result.
        """
        n = len(self.q)
        tight = z > s
        tight[: self.n_equal] = True
        free = np.flatnonzero(~tight[-n:])
        held = np.flatnonzero(tight[:-n])
        if len(free) + len(held) > POLISH_LIMIT:
            return None
        x = np.where(tight[-n:], 0.0, x)
        z = np.where(tight, z, 0.0)[:-n]
        A = self.A[:-n].tocsr()
        E = A[held][:, free].toarray()
        K = np.block([[self.P[free][:, free].toarray(), E.T], [E, np.zeros((len(held),) * 2)]])
        stationarity = (self.P @ x + self.q + A.T @ z)[free]
        residual = np.concatenate([-stationarity, self.b[held] - (A @ x)[held]])
        correction = np.linalg.lstsq(K, residual, rcond=1e-13)[0]
        x[free] += correction[: len(free)]
        z[held] += correction[len(free) :]
        return x, z


@dataclass(frozen=True, slots=True)
class _Step:
    candidates: list[_Candidate]
    active: NDArray[np.bool_]
    iterations: int


def _quadratic_step(program: _Program, point: _Point, active: NDArray[np.bool_]) -> _Step:
    """Minimise the quadratic model with all rows, of which only violated ones take part."""
    weights = point.weights
    hessian = _checked_curvature(program.objective.curvature(weights))
    linear = point.gradient - hessian @ weights
    # Losses with steep ends (log of a probability near 0) reach slopes of 1e12, and rows that
    # cannot be met reach the penalty; Clarabel needs the objective divided by the largest.
    scale = max(1.0, np.abs(linear).max(initial=0.0), point.duals.rows.max(initial=0.0))
    hessian, linear = hessian / scale, linear / scale
    if program.penalty is not None:
        prices = (program.penalty / scale, program.dummy_price / scale)
        program = replace(program, penalty=prices[0], dummy_price=prices[1])
    size, iterations = len(weights), 0
    active = _with_violated(program, weights, active=active, slack=np.zeros(program.n_groups))
    while True:
        chosen = np.flatnonzero(active)
        quadratic = _Quadratic.build(program, chosen, hessian=hessian, linear=linear)
        x, z, s, count = quadratic.solve()
        iterations += count
        slack = np.zeros(program.n_groups)
        if program.penalty is not None:
            used = np.unique(program.groups[chosen])
            slack[used] = x[size : size + len(used)] / program.penalty
        wider = _with_violated(program, x[:size], active=active, slack=slack)
        if np.array_equal(wider, active):
            break
        active = wider
    pairs = [(x, z)]
    polished = quadratic.polish(x, z, s)
    if polished is not None:
        pairs.append(polished)
    candidates = []
    for answer, dual in pairs:
        beta = np.zeros(len(program.bounds))
        beta[chosen] = scale * dual[program.n_blocks : program.n_blocks + len(chosen)]
        candidates.append(_Candidate(program.tidy(answer[:size]), beta))
    # Rows far from tight only slow the next step down; if needed they come back.
    held = z[program.n_blocks : program.n_blocks + len(chosen)]
    room = s[program.n_blocks : program.n_blocks + len(chosen)]
    active[chosen[held < 1e-3 * room]] = False
    return _Step(candidates, active, iterations)


def _with_violated(
    program: _Program, weights: Array, *, active: NDArray[np.bool_], slack: Array
) -> NDArray[np.bool_]:
    """`active` and the worst rows outside it that fall short by more than the tolerance."""
    shortfall = program.bounds - program.coefficients @ weights - slack[program.groups]
    shortfall[active] = -np.inf
    violated = np.flatnonzero(shortfall > program.row_tolerance)
    # Many more than can be tight at once would only slow the quadratic program down.
    limit = max(50, len(weights) // 2)
    worst = violated[np.argsort(-shortfall[violated], kind="stable")[:limit]]
    wider = active.copy()
    wider[worst] = True
    return wider


def _merit_at(program: _Program, point: _Point, weights: Array) -> float:
    """What the solver minimises, at other weights; a loss below a tangent is not convex."""
    reached = program.objective.value(weights)
    tangent = point.value + float(point.gradient @ (weights - point.weights))
    if reached < tangent - 1e-7 * (1.0 + abs(point.value) + abs(reached) + abs(tangent)):
        raise InvalidInput(
            f"the loss is not convex: a mixture has loss {reached:.9g}, below the tangent "
            f"{tangent:.9g} at another; use a convex loss, such as squared, log_loss or "
            "cross_entropy"
        )
    return reached + program.charge(weights)


def _line_search(program: _Program, point: _Point, target: Array) -> tuple[Array, float]:
    """The best of half, quarter ... steps to `target`, or the point itself if none is better.

    The merit is convex along the line, so the first rise after a fall ends the search.
    """
    best, best_merit, fraction = point.weights, point.merit, 1.0
    while fraction > 1e-15:
        trial = target if fraction == 1.0 else point.weights + fraction * (target - point.weights)
        merit = _merit_at(program, point, trial)
        if merit < best_merit:
            best, best_merit = trial, merit
        elif best is not point.weights:
            break
        fraction *= 0.5
    return best, best_merit


def _advance(program: _Program, point: _Point, candidates: list[_Candidate]) -> _Point:
    """The next point; the same weights, perhaps with better duals, if none is better."""
    choices = [point.duals.rows, *(candidate.beta for candidate in candidates)]
    # Near the optimum the merit is flat to rounding while the gap still falls: trust the gap.
    rounding = 1e-12 * max(1.0, abs(point.merit))
    sharper = [
        _assess(program, candidate.weights, choices)
        for candidate in candidates
        if _merit_at(program, point, candidate.weights) <= point.merit + rounding
    ]
    best = min(sharper, key=lambda option: option.gap, default=point)
    if best.gap < 0.5 * point.gap:
        return best
    found = [_line_search(program, point, candidate.weights) for candidate in candidates]
    return _assess(program, min(found, key=lambda pair: pair[1])[0], choices)


@dataclass(frozen=True, slots=True)
class _Minimum:
    point: _Point
    active: NDArray[np.bool_]
    iterations: int


def _minimise(
    program: _Program,
    start: Array,
    *,
    beta: Array,
    active: NDArray[np.bool_],
    tolerance: float,
) -> _Minimum:
    """Sequential quadratic programming until the certified gap is closed or nothing improves."""
    point, iterations = _assess(program, program.tidy(start), [beta]), 0
    for steps in range(STEP_LIMIT):
        if point.gap <= tolerance * max(1.0, abs(point.merit)):
            break
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
    return _Minimum(point, active, iterations)


def _slack_groups(slack: IntArray) -> IntArray:
    """Number the slack variables from 0: one per row with -1, one per shared number."""
    own = np.flatnonzero(slack < 0)
    _, groups = np.unique(np.where(slack < 0, 0, slack + 1), return_inverse=True)
    groups = groups.astype(np.int64) + len(own)
    groups[own] = np.arange(len(own))
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _no_loss(outputs: Tensor) -> Tensor:
    return (outputs * 0.0).sum()


class ConvexMaster:
    """The master whose objective is a convex loss of the mixture; twin of `LinearMaster`.

    minimise  loss(sum_i weight_i Z_i) + penalty * (slacks + DUMMY_MULTIPLE * dummies)
    s.t.      for each block: sum of its weights + dummy = 1
              for each row:   sum_i coefficient_i weight_i + slack >= bound

    The reduced cost of a member is `<gradient(), Z> - sum beta x coefficient - gamma[block]`. At a
    solution it is >= 0 for every member of the master and 0, up to `gap`, where the weight is
    positive: weights x reduced costs, duals x surplus and so on are all >= 0 and sum to `gap`.

    `tolerance` is the relative gap aimed at, and what a row may lack (x (1 + |bound|)) without
    charge. Rows enter the solver only when violated; solving is deterministic and starts from the
    previous weights.
    """

    def __init__(
        self,
        blocks: int,
        loss: Loss,
        *,
        penalty: float = 10.0,
        penalty_growth: float = 10.0,
        penalty_limit: float = 1e8,
        tolerance: float = 1e-9,
    ) -> None:
        if blocks < 1 or not 0 < penalty <= penalty_limit or penalty_growth <= 1 or tolerance <= 0:
            raise InvalidInput(
                "a master needs blocks >= 1, 0 < penalty <= penalty_limit, penalty_growth > 1 and "
                f"tolerance > 0, got {blocks}, {penalty}, {penalty_limit}, {penalty_growth} and "
                f"{tolerance}"
            )
        self.n_blocks = blocks
        self.penalty = penalty
        self._loss = loss
        self._growth, self._limit, self._tolerance = penalty_growth, penalty_limit, tolerance
        self._slack_only = False
        self._outputs: Tensor | None = None
        self._blocks: IntArray = np.empty(0, np.int64)
        self._coefficients: Array = np.empty((0, 0))
        self._bounds: Array = np.empty(0)
        self._slack: IntArray = np.empty(0, np.int64)
        self._weights: Array = np.empty(0)
        self._beta: Array = np.empty(0)
        self._active: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._gradient: Array | None = None
        self._gap = np.inf

    @property
    def n_rows(self) -> int:
        return len(self._bounds)

    @property
    def n_columns(self) -> int:
        return len(self._blocks)

    @property
    def coefficients(self) -> Array:
        """The whole table (n_rows, n_columns); not to be written to."""
        return self._coefficients

    @property
    def bounds(self) -> Array:
        return self._bounds

    @property
    def slack_numbers(self) -> IntArray:
        return self._slack

    @property
    def gap(self) -> float:
        """Certified: the last `penalised` is at most this far above the least; inf if unsolved."""
        return self._gap

    def gradient(self) -> Array:
        """d loss / d outputs of the mixture (n, r) at the last solution; 0 if slack alone counts.

        A candidate with outputs Z (n, r) costs `<gradient, Z>`.
        """
        if self._gradient is None:
            raise InvalidInput("a gradient is known only after solve(); call it first")
        return self._gradient

    def add_columns(self, outputs: Tensor | Array, blocks: IntArray, coefficients: Array) -> None:
        """Members with `outputs` (c, n, r) in all r outputs, `coefficients` (n_rows, c).

        With c = 0 this only tells the master n and r, which it must know to be solved.
        """
        new = torch.as_tensor(outputs, dtype=torch.float64).detach()
        blocks = np.asarray(blocks, dtype=np.int64)
        coefficients = np.asarray(coefficients, dtype=np.float64)
        count = len(blocks)
        shape = new.shape[1:] if self._outputs is None else self._outputs.shape[1:]
        if new.ndim != 3 or new.shape != (count, *shape):
            raise InvalidInput(
                f"{count} new columns need outputs of shape {(count, *shape)}, "
                f"got {tuple(new.shape)}; embed each member's outputs in all outputs"
            )
        if count and (blocks.min() < 0 or blocks.max() >= self.n_blocks):
            raise InvalidInput(
                f"blocks must lie in 0..{self.n_blocks - 1}, got {blocks.min()}..{blocks.max()}"
            )
        _check_table("coefficients", coefficients, (self.n_rows, count))
        if not bool(torch.isfinite(new).all()):
            raise InvalidInput("outputs of new columns must be finite, got NaN or infinity")
        self._outputs = new if self._outputs is None else torch.cat([self._outputs, new])
        self._blocks = np.concatenate([self._blocks, blocks])
        self._coefficients = np.hstack([self._coefficients, coefficients])
        self._weights = np.concatenate([self._weights, np.zeros(count)])

    def add_rows(self, coefficients: Array, bounds: Array, slack: IntArray) -> None:
        """`coefficients` (k, n_columns), `bounds` (k,), `slack` (k,): -1 own, >= 0 shared."""
        coefficients = np.asarray(coefficients, dtype=np.float64)
        bounds = np.asarray(bounds, dtype=np.float64)
        slack = np.asarray(slack, dtype=np.int64)
        count = len(bounds)
        _check_table("coefficients", coefficients, (count, self.n_columns))
        _check_table("bounds", bounds, (count,))
        if slack.shape != (count,) or (count and slack.min() < -1):
            raise InvalidInput(
                f"slack needs one number per row ({count}), -1 for its own or the number >= 0 of "
                f"a shared one, got {slack.tolist()[:10]} with shape {slack.shape}"
            )
        self._coefficients = np.vstack([self._coefficients, coefficients])
        self._bounds = np.concatenate([self._bounds, bounds])
        self._slack = np.concatenate([self._slack, slack])
        self._beta = np.concatenate([self._beta, np.zeros(count)])
        self._active = np.concatenate([self._active, np.zeros(count, np.bool_)])

    def raise_penalty(self) -> bool:
        """Multiply the penalty, up to its limit; False if it was there already."""
        if self.penalty >= self._limit:
            return False
        self.penalty = min(self.penalty * self._growth, self._limit)
        return True

    def minimise_slack(self, on: bool) -> None:
        """Switch the phase in which the loss is left out, slack and dummy cost 1 each."""
        self._slack_only = on

    def solve(self) -> MasterSolution:
        """Minimise over all columns and rows; see `gap` for how well that was achieved.

        While slack is minimised, `objective` is 0 and `penalised` is the sum of all slack.
        """
        started = time.perf_counter()
        if self._outputs is None:
            raise InvalidInput("the master knows no outputs yet; call add_columns before solve")
        objective = _MixtureLoss(_no_loss if self._slack_only else self._loss, self._outputs)
        program = _Program(
            objective=objective,
            coefficients=self._coefficients,
            bounds=self._bounds,
            groups=_slack_groups(self._slack),
            blocks=self._blocks,
            n_blocks=self.n_blocks,
            row_tolerance=self._tolerance * (1.0 + np.abs(self._bounds)),
            penalty=1.0 if self._slack_only else self.penalty,
            dummy_price=1.0 if self._slack_only else self.penalty * DUMMY_MULTIPLE,
        )
        result = _minimise(
            program,
            _spread(self._weights, self._blocks, self.n_blocks),
            beta=self._beta,
            active=self._active,
            tolerance=self._tolerance,
        )
        point, weights = result.point, result.point.weights
        values = self._coefficients @ weights
        self._weights, self._beta = weights, point.duals.rows
        # Rows near their bound stay in the solver's sight; the others left it for good reason.
        near = values - self._bounds < 1e-6 * (1.0 + np.abs(self._bounds))
        self._active = result.active & (near | (self._beta > 0))
        self._gradient = objective.output_gradient(weights)[1].cpu().numpy()
        self._gap = max(0.0, point.gap)
        return MasterSolution(
            weights=weights.copy(),
            duals=point.duals,
            objective=point.value,
            penalised=point.merit,
            slack=np.maximum(0.0, self._bounds - values),
            dummy=np.maximum(0.0, 1.0 - program.block_sums(weights)),
            active_rows=int(result.active.sum()),
            active_columns=int(np.count_nonzero(weights)),
            solver_iterations=result.iterations,
            seconds=time.perf_counter() - started,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """What the next solve starts from; rows and columns are the caller's to keep."""
        return {
            "weights": self._weights.copy(),
            "row_duals": self._beta.copy(),
            "active": self._active.copy(),
            "penalty": np.array(self.penalty),
            "slack_only": np.array(self._slack_only),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state()`, after the same rows and columns have been added again."""
        sizes = (len(state["weights"]), len(state["row_duals"]), len(state["active"]))
        if sizes != (self.n_columns, self.n_rows, self.n_rows):
            raise InvalidInput(
                f"the state is of a master with {sizes[0]} columns and {sizes[1]} rows, this one "
                f"has {self.n_columns} and {self.n_rows}; add the same ones before restore"
            )
        self._weights = np.array(state["weights"], dtype=np.float64)
        self._beta = np.array(state["row_duals"], dtype=np.float64)
        self._active = np.array(state["active"], dtype=np.bool_)
        self.penalty = float(state["penalty"])
        self._slack_only = bool(state["slack_only"])
        self._gradient, self._gap = None, np.inf


def _check_table(name: str, table: Array, shape: tuple[int, ...]) -> None:
    if table.shape != shape or not np.isfinite(table).all():
        raise InvalidInput(
            f"{name} must be finite with shape {shape}, got shape {table.shape}"
            f"{'' if np.isfinite(table).all() else ' with NaN or infinite entries'}"
        )


def _spread(weights: Array, blocks: IntArray, n_blocks: int) -> Array:
    """The same weights, equal ones in blocks that have none: far from the edges of log losses."""
    empty = np.bincount(blocks, weights, minlength=n_blocks) <= 0
    counts = np.bincount(blocks, minlength=n_blocks)
    return np.where(empty[blocks], 1.0 / counts[blocks], weights)


@dataclass(frozen=True, slots=True)
class FinalWeights:
    """Weights (M,) of the product, what their worst row lacks (>= 0) and how good they are.

    `gap` is certified: no weights that meet the rows have an objective lower by more; it is inf
    where the start had to be returned. `note` says what was done to get there, or is empty.
    """

    weights: Array
    worst_violation: float
    gap: float
    note: str


def final_weights(
    choice: Literal["loss", "uniform"],
    *,
    coefficients: Array,
    bounds: Array,
    blocks: IntArray,
    n_blocks: int,
    start: Array,
    loss: Loss | None = None,
    outputs: Tensor | Array | None = None,
) -> FinalWeights:
    """The best weights that keep every row: least loss of the mixture, or closest to equal.

    `coefficients` (m, M), `bounds` (m,), `blocks` (M,), `start` (M,) from the master, `outputs`
    (M, n, r) for "loss". Where `start` misses a bound, the bound becomes what it achieves, so the
    result is never worse than `start` in any row, nor in the objective.
    """
    objective = _final_objective(choice, blocks, loss=loss, outputs=outputs)
    _check_table("coefficients", coefficients, (len(bounds), len(blocks)))
    _check_table("bounds", bounds, (len(bounds),))
    _check_table("start", start, (len(blocks),))
    start = np.maximum(start, 0.0)
    sums = np.bincount(blocks, start, minlength=n_blocks)
    if (sums <= 0).any():
        raise InvalidInput(
            f"blocks {np.flatnonzero(sums <= 0).tolist()} have no weight in start; a mixture needs "
            "members in every block"
        )
    start = start / sums[blocks]
    reached = coefficients @ start
    needed = np.minimum(bounds, reached)
    program = _Program(
        objective=objective,
        coefficients=coefficients,
        # A tiny inward margin, where start has it, so that rounding does not break a row.
        bounds=np.minimum(bounds + 1e-9 * (1.0 + np.abs(bounds)), reached),
        groups=np.arange(len(bounds)),
        blocks=blocks,
        n_blocks=n_blocks,
        row_tolerance=1e-10 * (1.0 + np.abs(bounds)),
    )
    try:
        result = _minimise(
            program,
            start,
            beta=np.zeros(len(bounds)),
            active=np.zeros(len(bounds), np.bool_),
            tolerance=1e-9,
        )
    except SolverFailure as error:
        return _final(start, bounds - reached, np.inf, f"kept the master's weights: {error}")
    point = result.point
    bound = point.bound - float(point.duals.rows @ (program.bounds - needed))
    weights, note = _restored(point.weights, start, coefficients=coefficients, needed=needed)
    value = objective.value(weights)
    if not value <= objective.value(start):
        weights, value = start, objective.value(start)
        note = "kept the master's weights: no others that meet the rows are better"
    gap = max(0.0, value - bound)
    if gap > 1e-6 * max(1.0, abs(value)):
        note = "; ".join(filter(None, [note, f"optimal only to within {gap:.2g}"]))
    return _final(weights, bounds - coefficients @ weights, gap, note)


def _final(weights: Array, shortfall: Array, gap: float, note: str) -> FinalWeights:
    return FinalWeights(weights, float(shortfall.max(initial=0.0)), gap, note)


def _final_objective(
    choice: str, blocks: IntArray, *, loss: Loss | None, outputs: Tensor | Array | None
) -> _Objective:
    if choice == "uniform":
        return _DistanceToUniform(blocks)
    if choice != "loss":
        raise InvalidInput(f"final weights can be chosen by 'loss' or 'uniform', got {choice!r}")
    if loss is None or outputs is None or len(outputs) != len(blocks):
        raise InvalidInput(
            "final weights by 'loss' need the loss and outputs (M, n, r) of all "
            f"{len(blocks)} members, got loss={loss!r} and outputs of "
            f"{None if outputs is None else len(outputs)}"
        )
    return _MixtureLoss(loss, torch.as_tensor(outputs, dtype=torch.float64).detach())


def _restored(
    weights: Array, start: Array, *, coefficients: Array, needed: Array
) -> tuple[Array, str]:
    """The weights, moved towards `start` by the least that meets every row to 1e-9."""
    values, reached = coefficients @ weights, coefficients @ start
    broken = needed - values > 1e-9
    if not broken.any():
        return weights, ""
    share = float(np.max((needed - values)[broken] / (reached - values)[broken]))
    share = min(1.0, share)
    return (
        weights + share * (start - weights),
        f"blended with a share {share:.2g} of the master's weights to meet the rows",
    )
