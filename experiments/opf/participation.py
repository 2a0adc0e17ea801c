"""The classical rule: `p = g + w x (total deviation)`, one participation factor per generator.

The flow of a line changes by `alpha - a_j` per MW of load j, alpha what the factors make of the
line and a_j its transfer factor. Its worst case over the box, the sum of `|alpha - a_j| radius_j`,
is convex and piecewise linear in the one number alpha: tangents describe it, and are added to the
linear program until none is missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.records import Array
from experiments.opf.dispatch import Dispatch

ROUNDS = 100
MISSED = 1e-8  # of a rate
NO_POINT = 2  # status of `linprog` where no rule keeps all limits


@dataclass(frozen=True, eq=False)
class ParticipationRule:
    """`base + factors x (total load - its nominal value)`, (G,) each, MW."""

    base: Array
    factors: Array

    def dispatch(self, problem: Dispatch, loads: Array) -> Array:
        """(n, D) -> (n, G)."""
        total = (loads - problem.grid.loads).sum(1)
        return np.asarray(self.base + total[:, None] * self.factors)


def compute_worst_flows(problem: Dispatch, rule: ParticipationRule) -> Array:
    """(L,): the largest size of each flow over the box, in closed form."""
    grid = problem.grid
    change = (grid.by_generator @ rule.factors)[:, None] - grid.by_load
    middle = grid.flows(rule.base[None], grid.loads[None])[0]
    return np.asarray(np.abs(middle) + np.abs(change) @ problem.radius)


def find_participation(problem: Dispatch) -> ParticipationRule | None:
    """The rule of least cost at nominal loads that keeps all limits on the box, if any.

    Quadratic costs count by their slope at the middle of each generator's range.
    """
    grid, radius = problem.grid, problem.radius
    if grid.islands > 1:
        raise InvalidInput("one participation factor is for one island", code="unsupported")
    size, total = len(grid.lower), float(radius.sum())
    kept = np.flatnonzero(problem.kept)
    along, rate = grid.by_generator[kept], grid.rate[kept]
    middle = grid.constant[kept] - grid.by_load[kept] @ grid.loads
    each = np.eye(size)
    rows = [np.hstack([sign * each, turn * total * each]) for sign in (1, -1) for turn in (1, -1)]
    limits = [sign * end for sign, end in ((1, grid.upper), (-1, grid.lower)) for _ in range(2)]
    equal = np.kron(np.eye(2), np.ones(size))
    need = [grid.loads.sum() + grid.fixed[0], 1.0]
    slope = grid.costs[:, 1] + grid.costs[:, 0] * (grid.lower + grid.upper)
    for _ in range(ROUNDS):
        answer = linprog(
            np.append(slope, np.zeros(size)),
            np.concatenate(rows),
            np.concatenate(limits),
            equal,
            need,
            bounds=(None, None),
            method="highs",
        )
        if answer.status == NO_POINT:
            return None
        if answer.status:
            raise SolverFailure(f"HiGHS ended a participation rule: {answer.message}")
        rule = ParticipationRule(answer.x[:size], answer.x[size:])
        alpha = along @ rule.factors
        change = alpha[:, None] - grid.by_load[kept]
        worst, tangent = np.abs(change) @ radius, np.sign(change) @ radius
        level = along @ rule.base + middle
        found = False
        for sign in (1.0, -1.0):
            over = np.flatnonzero(sign * level + worst > (1 + MISSED) * rate)
            found |= bool(len(over))
            rows.append(np.hstack([sign * along[over], tangent[over, None] * along[over]]))
            limits.append(
                rate[over] - worst[over] + tangent[over] * alpha[over] - sign * middle[over]
            )
        if not found:
            return rule
    raise SolverFailure(f"tangents were added {ROUNDS} times, and lines are still missed")
