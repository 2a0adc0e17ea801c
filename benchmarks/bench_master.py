"""How fast the master is: warm re-solves against cold ones, and lazy rows on a large dense LP.

Run `python benchmarks/bench_master.py`; `--cold-limit` is how long plain HiGHS may try each large
program.
"""

from __future__ import annotations

import argparse
import time

import highspy
import numpy as np
from scipy import sparse

from cg4ai.colgen.master import DUMMY_MULTIPLE, OWN_SLACK, LinearMaster
from cg4ai.records import Array, MasterSolution

PENALTY = 10.0
COLD_LIMIT_S = 60.0


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


def solve_plainly(
    coefficients: Array, costs: Array, *, limit_s: float, interior_point: bool = False
) -> tuple[float, float | None]:
    """Seconds and optimum of HiGHS from scratch on the complete program, with default options.

    The optimum is None where the limit was reached first. `interior_point` without crossover is
    the quickest to an optimum, but ends with no basis to start from again.
    """
    rows, columns = coefficients.shape
    started = time.perf_counter()
    weights, slacks = np.ones((1, columns)), sparse.identity(rows)
    matrix = sparse.bmat(
        [[sparse.csr_matrix(coefficients), None, slacks], [weights, np.ones((1, 1)), None]],
        format="csr",
    )
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = np.concatenate([costs, [PENALTY * DUMMY_MULTIPLE], np.full(rows, PENALTY)])
    model.col_lower_ = np.zeros(model.num_col_)
    model.col_upper_ = np.full(model.num_col_, np.inf)
    model.row_lower_ = np.append(np.zeros(rows), 1.0)
    model.row_upper_ = np.append(np.full(rows, np.inf), 1.0)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", limit_s)
    if interior_point:
        solver.setOptionValue("solver", "ipm")
        solver.setOptionValue("run_crossover", "off")
    solver.passModel(model)
    solver.run()
    seconds, status = time.perf_counter() - started, solver.getModelStatus()
    if status == highspy.HighsModelStatus.kTimeLimit:
        return seconds, None
    if status != highspy.HighsModelStatus.kOptimal:
        raise SystemExit(f"plain HiGHS ended with {status.name}")
    return seconds, solver.getInfo().objective_function_value


def warm_start(*, rows: int = 5000, columns: int = 200, seed: int = 0) -> list[dict[str, object]]:
    """Re-solve after one improving column, against plain HiGHS from scratch on the same LP."""
    coefficients, costs = margins(rows, columns + 1, difficulty=0.25, seed=seed)
    master = master_of(coefficients[:, :-1], costs[:-1])
    started = time.perf_counter()
    first = master.solve()
    first_s = time.perf_counter() - started
    # A member that does a little better on the rows that have a price, as a pricer would return.
    coefficients[:, -1] += 0.5 * (first.duals.rows > 0)
    master.add_columns(costs[-1:], np.zeros(1, dtype=np.int64), coefficients[:, -1:])
    started = time.perf_counter()
    second = master.solve()
    warm_s = time.perf_counter() - started
    cold_s, optimum = solve_plainly(coefficients, costs, limit_s=600.0)
    if optimum is None:
        raise SystemExit("plain HiGHS did not solve the small program in ten minutes")
    return [
        {
            "benchmark": "one more column",
            "rows": rows,
            "columns": columns + 1,
            "first_solve_s": round(first_s, 3),
            "warm_s": round(warm_s, 4),
            "cold_s": round(cold_s, 3),
            "speedup": round(cold_s / warm_s, 1),
            "improvement": first.penalised - second.penalised,
            "difference": abs(second.penalised - optimum) / max(1.0, abs(optimum)),
            "active_rows": second.active_rows,
        }
    ]


def lazy_rows(
    *, rows: int = 20_000, columns: int = 400, seed: int = 0, cold_limit_s: float = COLD_LIMIT_S
) -> list[dict[str, object]]:
    """A large dense master, and plain HiGHS given every row at once for a limited time."""
    found: list[dict[str, object]] = []
    for difficulty in (0.25, 0.2):
        coefficients, costs = margins(rows, columns, difficulty=difficulty, seed=seed)
        case = {"mean_margin": difficulty, "rows": rows, "columns": columns}
        started = time.perf_counter()
        solution = master_of(coefficients, costs).solve()
        found.append(
            {
                **case,
                "solver": "lazy rows",
                "seconds": f"{time.perf_counter() - started:.1f}",
                "active_rows": solution.active_rows,
                "binding_rows": int((solution.duals.rows > 0).sum()),
                "rows_with_slack": int((solution.slack > 1e-9).sum()),
                "simplex_iterations": solution.solver_iterations,
                "relative_gap": relative_gap(solution, coefficients, costs),
            }
        )
        for name, interior_point in (("simplex", False), ("interior point", True)):
            cold_s, optimum = solve_plainly(
                coefficients, costs, limit_s=cold_limit_s, interior_point=interior_point
            )
            ended = f"not finished in {cold_limit_s:g} s" if optimum is None else f"{cold_s:.1f}"
            found.append({**case, "solver": f"plain HiGHS, cold, {name}", "seconds": ended})
    return found


def cold_limit() -> float:
    """The command line's only setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cold-limit",
        type=float,
        default=COLD_LIMIT_S,
        metavar="SECONDS",
        help="how long plain HiGHS may try each large program (default %(default)g)",
    )
    return float(parser.parse_args().cold_limit)


def main() -> None:
    for row in warm_start() + lazy_rows(cold_limit_s=cold_limit()):
        print(", ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
