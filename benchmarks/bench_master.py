"""How fast the master is: warm re-solves against cold ones, and lazy rows on a large dense LP."""

from __future__ import annotations

import time

import highspy
import numpy as np

from cg4ai.master import DUMMY_MULTIPLE, OWN_SLACK, LinearMaster
from cg4ai.records import Array, MasterSolution

PENALTY = 10.0


def margins(rows: int, columns: int, *, difficulty: float, seed: int) -> tuple[Array, Array]:
    """Member margins ~ N(mean of the row, 1), means ~ N(difficulty, 0.1^2), and member costs.

    Averaging many members shrinks the noise but not a row's mean, so with means around 0.2
    hundreds of rows bind and the hardest few hundred cannot be met at all.
    """
    generator = np.random.default_rng(seed)
    means = generator.normal(difficulty, 0.1, (rows, 1))
    return generator.normal(means, 1.0, (rows, columns)), generator.random(columns)


def master_of(coefficients: Array, costs: Array) -> LinearMaster:
    rows, columns = coefficients.shape
    master = LinearMaster(1, penalty=PENALTY)
    master.add_columns(costs, np.zeros(columns, dtype=np.int64), np.empty((0, columns)))
    master.add_rows(coefficients, np.zeros(rows), np.full(rows, OWN_SLACK))
    return master


def relative_gap(solution: MasterSolution, coefficients: Array, costs: Array) -> float:
    """Primal minus dual objective, both recomputed here from weights and duals alone.

    The primal pays for the slack of every row; the dual is made feasible first: row duals
    clipped to [0, penalty], the block's dual lowered to the smallest member price.
    """
    slack = np.maximum(0.0, -(coefficients @ solution.weights))
    dummy = 1.0 - solution.weights.sum()
    primal = costs @ solution.weights + PENALTY * (slack.sum() + DUMMY_MULTIPLE * max(0.0, dummy))
    duals = np.clip(solution.duals.rows, 0.0, PENALTY)
    dual = min((costs - duals @ coefficients).min(), PENALTY * DUMMY_MULTIPLE)  # bounds are 0
    return float((primal - dual) / max(1.0, abs(primal)))


def solve_plainly(coefficients: Array, costs: Array) -> tuple[float, float]:
    """Seconds and optimum of HiGHS from scratch on the complete program, default options."""
    rows, columns = coefficients.shape
    started = time.perf_counter()
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = rows + 1, columns + 1 + rows
    model.col_cost_ = np.concatenate([costs, [PENALTY * DUMMY_MULTIPLE], np.full(rows, PENALTY)])
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.full(model.num_col_, np.inf)
    model.row_lower_ = np.append(np.zeros(rows), 1.0)
    model.row_upper_ = np.append(np.full(rows, np.inf), 1.0)
    dense = np.hstack([coefficients, np.arange(columns + 1, columns + 1 + rows)[:, None]])
    indices = np.broadcast_to(np.arange(columns + 1), dense.shape).copy()
    indices[:, -1] = dense[:, -1]
    dense[:, -1] = 1.0
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    starts = np.arange(rows + 1) * (columns + 1)
    model.a_matrix_.start_ = np.append(starts, starts[-1] + columns + 1)
    model.a_matrix_.index_ = np.concatenate([indices.ravel(), np.arange(columns + 1)])
    model.a_matrix_.value_ = np.concatenate([dense.ravel(), np.ones(columns + 1)])
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise SystemExit(f"plain HiGHS ended with {solver.getModelStatus().name}")
    return time.perf_counter() - started, solver.getInfo().objective_function_value


def warm_against_cold(
    *, rows: int = 5000, columns: int = 200, seed: int = 0
) -> list[dict[str, object]]:
    """Re-solve after one improving column, against plain HiGHS from scratch on the same LP."""
    coefficients, costs = margins(rows, columns + 1, difficulty=0.25, seed=seed)
    master = master_of(coefficients[:, :-1], costs[:-1])
    first = master.solve()
    # A member that does a little better on the rows that have a price, as a pricer would return.
    coefficients[:, -1] += 0.5 * (first.duals.rows > 0)
    master.add_columns(costs[-1:], np.zeros(1, dtype=np.int64), coefficients[:, -1:])
    second = master.solve()
    cold_s, optimum = solve_plainly(coefficients, costs)
    return [
        {
            "benchmark": "one more column",
            "rows": rows,
            "columns": columns + 1,
            "first_solve_s": round(first.seconds, 3),
            "warm_s": round(second.seconds, 4),
            "cold_s": round(cold_s, 3),
            "speedup": round(cold_s / second.seconds, 1),
            "improvement": first.penalised - second.penalised,
            "difference": abs(second.penalised - optimum) / max(1.0, abs(optimum)),
            "active_rows": second.active_rows,
        }
    ]


def lazy_rows(*, rows: int = 20_000, columns: int = 400, seed: int = 0) -> list[dict[str, object]]:
    """A master that HiGHS does not solve in minutes when given every row at once."""
    found = []
    for difficulty in (0.25, 0.2):
        coefficients, costs = margins(rows, columns, difficulty=difficulty, seed=seed)
        started = time.perf_counter()
        solution = master_of(coefficients, costs).solve()
        found.append(
            {
                "benchmark": f"lazy rows, mean margin {difficulty}",
                "rows": rows,
                "columns": columns,
                "seconds": round(time.perf_counter() - started, 2),
                "active_rows": solution.active_rows,
                "binding_rows": int((solution.duals.rows > 0).sum()),
                "rows_with_slack": int((solution.slack > 1e-9).sum()),
                "simplex_iterations": solution.solver_iterations,
                "relative_gap": relative_gap(solution, coefficients, costs),
            }
        )
    return found


def main() -> None:
    for row in warm_against_cold() + lazy_rows():
        print(", ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
