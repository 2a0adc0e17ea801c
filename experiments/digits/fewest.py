"""How few of the members trained would have met every row: a count by prefix, after training."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cg4ai.errors import SolverFailure
from cg4ai.master.highs import OPTIMAL, LinearProgram
from cg4ai.records import Array

MOST_ROWS = 2000  # with more the programs take longer than the answer is worth


def fewest_columns(values: Array, bounds: Array, *, tolerance: float) -> int | None:
    """The least k such that a mixture of the first k members meets every row; None if none does.

    values (rows, members) holds each member's own value in each row. A mixture of k members is one
    of k + 1 too, so that bisection finds k.
    """
    if shortfall(values, bounds) > tolerance:
        return None
    low, high = 0, int(values.shape[1])  # low members do not suffice, high do
    while high - low > 1:
        middle = (low + high) // 2
        if shortfall(values[:, :middle], bounds) > tolerance:
            low = middle
        else:
            high = middle
    return high


def shortfall(values: Array, bounds: Array) -> float:
    """How much the best mixture still lacks in its worst row; 0 if it meets all.

    The program: minimise s >= 0 subject to values . weights + s >= bounds, weights of sum 1.
    """
    rows, members = values.shape
    if bool((values.max(axis=1) < bounds).any()):  # no mixture exceeds its best member
        return float((bounds - values.max(axis=1)).max())
    program = LinearProgram(1e-9)
    lower = np.append(bounds, 1.0)
    upper = np.append(np.full(rows, np.inf), 1.0)
    program.add_rows(lower, upper, sparse.csr_array((rows + 1, 0)))
    matrix = np.zeros((rows + 1, 1 + members))
    matrix[:-1, 0] = 1.0
    matrix[:-1, 1:] = values
    matrix[-1, 1:] = 1.0
    costs = np.append(1.0, np.zeros(members))
    program.add_columns(costs, np.zeros(1 + members), sparse.csc_array(matrix))
    ending = program.run()
    if ending.status != OPTIMAL:
        raise SolverFailure(
            f"HiGHS answered {ending.status} to a program of {rows} rows and {members} members; "
            f"expected {OPTIMAL}"
        )
    return max(0.0, program.objective())
