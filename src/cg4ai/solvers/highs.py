"""HiGHS behind checked calls on whole arrays: the only file that imports highspy.

A `LinearProgram`, or a `MixedProgram` with whole numbers among its variables, knows nothing of what
its rows and columns mean; those who state it do, and explain a status that is no answer to them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import highspy
import numpy as np
from numpy.typing import NDArray

from cg4ai import clock
from cg4ai.clock import Deadline
from cg4ai.errors import SolverFailure, TimeIsOver
from cg4ai.records import Array, IntArray

NEVER = Deadline()
SMALLEST = 1e-12  # HiGHS drops smaller coefficients
BASIC = int(highspy.HighsBasisStatus.kBasic)

# Model statuses by the names HiGHS gives them.
OPTIMAL, INFEASIBLE, STUCK = "kOptimal", "kInfeasible", "kIterationLimit"
MIXED_ANSWERS = (OPTIMAL, INFEASIBLE, "kUnboundedOrInfeasible", "kTimeLimit", "kSolutionLimit")
FEASIBLE_POINT = int(highspy.SolutionStatus.kSolutionStatusFeasible)

# A simplex run that takes more iterations than this, or than so many per row and column, is going
# in circles; a solve of the master takes about two per row.
MOST_ITERATIONS = 5_000
MOST_PER_LINE = 20

# Scaling by the largest entries. The default, equilibration, also looks at the smallest: entries
# of 1e-12, such as probabilities have, get factors by which the simplex method cannot finish. It
# struck programs that were built whole, as restored ones are, and not those that grew.
SCALING = 4

Method = Literal["primal", "dual", "interior"]


@dataclass(frozen=True, slots=True)
class SolveStatus:
    """How a run of HiGHS ended: the name of its status, and the simplex iterations it took."""

    status: str
    iterations: int


@dataclass(frozen=True, slots=True)
class Solution:
    """Values and reduced costs of columns, duals of rows, in the signs of HiGHS.

    Its duals are the change of the optimum per unit of a row's bound.
    """

    values: Array
    duals: Array
    reduced_costs: Array


class LinearProgram:
    """Minimise costs . x over x >= lower and row_lower <= A x <= row_upper, again and again.

    Each run starts from the basis of the last. `cold_restarts` counts how often that failed, by
    numerical trouble or without getting anywhere, and the run was repeated from scratch.
    """

    def __init__(self, tolerance: float) -> None:
        self.cold_restarts = 0
        self._highs = highspy.Highs()
        options: dict[str, bool | int | float | str] = {
            "output_flag": False,
            "threads": 1,
            "simplex_scale_strategy": SCALING,
            "presolve": "off",  # it would lose the basis, and gains little on small changes
            "small_matrix_value": SMALLEST,
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
        }
        for name, value in options.items():
            _check(self._highs.setOptionValue(name, value), f"option {name}")

    def add_columns(self, costs: Array, lower: Array, matrix: Any) -> None:
        """Add columns with `matrix` (rows so far, new columns), a scipy matrix in CSC form."""
        upper = np.full(len(costs), np.inf)
        entries = _entries(matrix)
        _check(self._highs.addCols(len(costs), costs, lower, upper, *entries), "addCols")

    def add_rows(self, lower: Array, upper: Array, matrix: Any) -> None:
        """Add rows with `matrix` (new rows, columns so far), a scipy matrix in CSR form."""
        _check(self._highs.addRows(len(lower), lower, upper, *_entries(matrix)), "addRows")

    def change_costs(self, costs: Array) -> None:
        every = np.arange(len(costs), dtype=np.int32)
        _check(self._highs.changeColsCost(len(costs), every, costs), "changeColsCost")

    def change_row_bounds(self, lower: Array, upper: Array) -> None:
        every = np.arange(len(lower), dtype=np.int32)
        _check(self._highs.changeRowsBounds(len(lower), every, lower, upper), "changeRowsBounds")

    def delete(self, rows: IntArray, columns: IntArray) -> None:
        _check(self._highs.deleteRows(len(rows), rows.astype(np.int32)), "deleteRows")
        _check(self._highs.deleteCols(len(columns), columns.astype(np.int32)), "deleteCols")

    def basis(self) -> tuple[IntArray, IntArray]:
        """Statuses of columns and rows as numbers; empty before the first run."""
        basis = self._highs.getBasis()
        if not basis.valid:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        columns = np.array([int(status) for status in basis.col_status], dtype=np.int64)
        return columns, np.array([int(status) for status in basis.row_status], dtype=np.int64)

    def set_basis(self, columns: IntArray, rows: IntArray) -> None:
        basis = highspy.HighsBasis()
        basis.col_status = [highspy.HighsBasisStatus(status) for status in columns.tolist()]
        basis.row_status = [highspy.HighsBasisStatus(status) for status in rows.tolist()]
        basis.valid, basis.alien = True, False
        _check(self._highs.setBasis(basis), "setBasis")

    def begin_with(self, columns: IntArray, rows: IntArray) -> None:
        """Start from the basis of these columns, with as many rows at their bounds."""
        lower, free = int(highspy.HighsBasisStatus.kLower), int(highspy.HighsBasisStatus.kNonbasic)
        of_columns = np.full(self._highs.getNumCol(), lower)
        of_rows = np.full(self._highs.getNumRow(), BASIC)
        of_columns[columns], of_rows[rows] = BASIC, free
        self.set_basis(of_columns, of_rows)

    def restart_from(self, columns: IntArray, rows: IntArray) -> None:
        """Forget all runs, so that the next one depends on this basis and not on those before."""
        _check(self._highs.clearSolver(), "clearSolver")
        self.set_basis(columns, rows)

    def run(
        self,
        *,
        primal: bool = False,
        answers: tuple[str, ...] = (OPTIMAL,),
        deadline: Deadline = NEVER,
    ) -> SolveStatus:
        """Solve from the present basis, by the primal or the dual simplex method.

        A warm start that ends in none of `answers` is repeated from scratch; so is a run that is
        stuck, and if it is again, an interior point finds the optimum. All of it is decided by
        counts of iterations, never by the clock. What other statuses mean is for the caller to say.
        TimeIsOver, if there is a `deadline` that ends it.
        """
        left = deadline.compute_seconds_left()
        if math.isfinite(left):  # HiGHS counts the seconds of all runs together
            left += self._highs.getRunTime()
        _check(self._highs.setOptionValue("time_limit", left), "option time_limit")
        warm = bool(self._highs.getBasis().valid)
        ending = self._attempt("primal" if primal else "dual")
        if ending.status == STUCK or (warm and ending.status not in answers):
            ending = self._afresh("dual", ending)
        if ending.status == STUCK:
            ending = self._afresh("interior", ending)
        return ending

    def _afresh(self, method: Method, before: SolveStatus) -> SolveStatus:
        self.cold_restarts += 1
        _check(self._highs.clearSolver(), "clearSolver")
        again = self._attempt(method)
        return SolveStatus(again.status, before.iterations + again.iterations)

    def _attempt(self, method: Method) -> SolveStatus:
        size = self._highs.getNumRow() + self._highs.getNumCol()
        options: dict[str, int | str] = {
            "solver": "ipm" if method == "interior" else "simplex",  # with crossover to a basis
            "simplex_strategy": 4 if method == "primal" else 1,
            "simplex_iteration_limit": max(MOST_ITERATIONS, MOST_PER_LINE * size),
        }
        for name, value in options.items():
            _check(self._highs.setOptionValue(name, value), f"option {name}")
        outcome = self._highs.run()
        status = self._highs.getModelStatus().name
        if status == "kTimeLimit":
            raise TimeIsOver("the time limit ended a linear program")
        if outcome == highspy.HighsStatus.kError and status == OPTIMAL:
            status = "kSolveError"  # the optimum is left over from an earlier run
        return SolveStatus(status, max(0, int(self._highs.getInfo().simplex_iteration_count)))

    def objective(self) -> float:
        return float(self._highs.getObjectiveValue())

    def solution(self) -> Solution:
        found = self._highs.getSolution()
        return Solution(
            np.array(found.col_value), np.array(found.row_dual), np.array(found.col_dual)
        )


@dataclass(frozen=True, slots=True)
class MixedProgram:
    """Minimise costs . x over lower <= x <= upper and row_lower <= A x <= row_upper.

    `integer` (n,) marks the variables that must be whole numbers; `matrix` is a scipy matrix in
    CSR form.
    """

    costs: Array
    lower: Array
    upper: Array
    integer: NDArray[np.bool_]
    matrix: Any
    row_lower: Array
    row_upper: Array


@dataclass(frozen=True, slots=True)
class MixedSolution:
    """The best point found, None if there is none, and what no point can be below.

    `objective` is that of the point (inf without one), `bound` is proven up to the solver's
    tolerance (inf where nothing is feasible); `status` is the name that HiGHS gives.
    """

    status: str
    values: Array | None
    objective: float
    bound: float

    @property
    def infeasible(self) -> bool:
        return self.status in (INFEASIBLE, "kUnboundedOrInfeasible")


def solve_mixed(
    program: MixedProgram,
    *,
    time_limit_s: float = np.inf,
    node_limit: int = 2**31 - 1,
    gap: float = 0.0,
    start: Array | None = None,
    tolerance: float = 1e-9,
) -> MixedSolution:
    """Branch and bound by HiGHS until the absolute `gap` is proven or a limit is reached.

    That of the run is one of these (`clock.review`), and whoever set it says so.

    `start` is a point to begin from. All variables must be bounded below where their cost is
    positive, so that a program without an answer is infeasible and not unbounded.
    """
    highs = highspy.Highs()
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 1,
        "small_matrix_value": SMALLEST,
        "primal_feasibility_tolerance": tolerance,
        "dual_feasibility_tolerance": tolerance,
        "mip_feasibility_tolerance": tolerance,
        "mip_abs_gap": gap,
        "mip_rel_gap": 0.0,
        "mip_max_nodes": node_limit,
        "time_limit": float(min(time_limit_s, clock.review().deadline.compute_seconds_left())),
    }
    for name, value in options.items():
        _check(highs.setOptionValue(name, value), f"option {name}")
    _check(highs.passModel(_model(program)), "passModel")
    if start is not None:
        given = highspy.HighsSolution()
        given.col_value = np.asarray(start, np.float64).tolist()
        _check(highs.setSolution(given), "setSolution")
    outcome = highs.run()
    status, info = highs.getModelStatus().name, highs.getInfo()
    if outcome == highspy.HighsStatus.kError or status not in MIXED_ANSWERS:
        raise SolverFailure(f"HiGHS ended a mixed-integer program with status {status}")
    if status in (INFEASIBLE, "kUnboundedOrInfeasible"):
        return MixedSolution(status, None, np.inf, np.inf)
    known = info.primal_solution_status == FEASIBLE_POINT
    mixed = bool(program.integer.any())
    objective = float(info.objective_function_value) if known else np.inf
    bound = float(info.mip_dual_bound) if mixed else objective if status == OPTIMAL else -np.inf
    values = np.array(highs.getSolution().col_value) if known else None
    return MixedSolution(status, values, objective, min(bound, objective))


def _model(program: MixedProgram) -> highspy.HighsLp:
    count, start, indices, values = _entries(program.matrix)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.costs), len(program.row_lower)
    model.col_cost_ = program.costs
    model.col_lower_, model.col_upper_ = program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.num_col_, model.a_matrix_.num_row_ = model.num_col_, model.num_row_
    model.a_matrix_.start_ = np.append(start, count)
    model.a_matrix_.index_ = indices
    model.a_matrix_.value_ = values
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    if program.integer.any():
        model.integrality_ = [kinds[int(whole)] for whole in program.integer]
    return model


def _entries(matrix: Any) -> tuple[int, Any, Any, Any]:
    """Count, starts, indices and values, without those that HiGHS would drop with a warning."""
    small = np.abs(matrix.data) <= SMALLEST
    if small.any():
        matrix = matrix.copy()
        matrix.data[small] = 0.0
        matrix.eliminate_zeros()
    return matrix.nnz, matrix.indptr[:-1], matrix.indices, matrix.data


def _check(outcome: highspy.HighsStatus, action: str) -> None:
    if outcome != highspy.HighsStatus.kOk:
        raise SolverFailure(f"HiGHS answered {outcome.name} to {action}; expected kOk")
