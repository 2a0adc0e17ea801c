"""One quadratic program of a convex master, solved by Clarabel; the only file that uses it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import clarabel
import numpy as np
from scipy import sparse

from cg4ai.errors import SolverFailure
from cg4ai.records import Array, IntArray

if TYPE_CHECKING:
    from cg4ai.colgen.master.convex.program import Program

POLISH_LIMIT = 800  # a least-squares solve of this size still takes well under a second
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


@dataclass(frozen=True, slots=True)
class Answer:
    """`x` (n,), duals `z` of all inequalities, `s` = b - Ax as Clarabel has it, its iterations."""

    x: Array
    z: Array
    s: Array
    iterations: int


@dataclass(frozen=True, slots=True)
class QuadraticProgram:
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
        cls, program: Program, active: IntArray, *, hessian: Array, linear: Array
    ) -> QuadraticProgram:
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

    def solve(self) -> Answer:
        """The answer of an interior-point method: good to about 8 digits."""
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
        return Answer(x, z, s, int(solution.iterations))

    def polish(self, answer: Answer) -> Answer | None:
        """Solve exactly on the active set that the interior-point answer suggests.

        Sharpens 8 digits to 14 and makes unused weights exactly zero where the guess is right;
        None where the system is too large. The caller judges the result.
        """
        n = len(self.q)
        tight = answer.z > answer.s
        tight[: self.n_equal] = True
        free = np.flatnonzero(~tight[-n:])
        held = np.flatnonzero(tight[:-n])
        if len(free) + len(held) > POLISH_LIMIT:
            return None
        x = np.where(tight[-n:], 0.0, answer.x)
        z = np.where(tight, answer.z, 0.0)[:-n]
        A = self.A[:-n].tocsr()
        E = A[held][:, free].toarray()
        K = np.block([[self.P[free][:, free].toarray(), E.T], [E, np.zeros((len(held),) * 2)]])
        stationarity = (self.P @ x + self.q + A.T @ z)[free]
        residual = np.concatenate([-stationarity, self.b[held] - (A @ x)[held]])
        correction = np.linalg.lstsq(K, residual, rcond=1e-13)[0]
        x[free] += correction[: len(free)]
        z[held] += correction[len(free) :]
        return replace(answer, x=x, z=z)
