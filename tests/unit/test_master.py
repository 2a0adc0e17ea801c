"""The master against a hand-solved program, scipy on the complete LP, and scripted statuses."""

from __future__ import annotations

import highspy
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.master import DUMMY_MULTIPLE, NO_SLACK, OWN_SLACK, LinearMaster, _Solver

Status = highspy.HighsModelStatus


class Complete:
    """The same master written out in full: every row, every column, solved by scipy."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.costs = np.empty(0)
        self.column_blocks = np.empty(0, dtype=int)
        self.coefficients = np.empty((0, 0))
        self.bounds = np.empty(0)
        self.slack = np.empty(0, dtype=int)
        self.epigraph = np.empty(0, dtype=int)
        self.weights = np.empty(0)
        self.floor = 0.0

    def add_columns(self, costs, blocks, coefficients):
        self.costs = np.r_[self.costs, costs]
        self.column_blocks = np.r_[self.column_blocks, blocks]
        self.coefficients = np.hstack([self.coefficients, coefficients])

    def add_rows(self, coefficients, bounds, slack, epigraph):
        self.coefficients = np.vstack([self.coefficients, coefficients])
        self.bounds = np.r_[self.bounds, bounds]
        self.slack = np.r_[self.slack, slack]
        self.epigraph = np.r_[self.epigraph, epigraph]

    def optimum(self, penalty: float, *, slack_phase: bool = False) -> float:
        m, n = self.coefficients.shape
        own = np.flatnonzero(self.slack == OWN_SLACK)
        shared = np.unique(self.slack[self.slack >= 0])
        extra = np.zeros((m, len(self.weights) + len(own) + len(shared)))
        for j in range(m):
            if self.epigraph[j] >= 0:
                extra[j, self.epigraph[j]] = 1
            if self.slack[j] == OWN_SLACK:
                extra[j, len(self.weights) + np.flatnonzero(own == j)] = 1
            if self.slack[j] >= 0:
                at = len(self.weights) + len(own) + np.flatnonzero(shared == self.slack[j])
                extra[j, at] = 1
        cost_of_slack = 1.0 if slack_phase else penalty
        cost_of_dummy = 1.0 if slack_phase else penalty * DUMMY_MULTIPLE
        free = 0.0 if slack_phase else 1.0
        slacks = len(own) + len(shared)
        costs = [
            free * self.costs,
            np.full(self.blocks, cost_of_dummy),
            free * self.weights,
            np.full(slacks, cost_of_slack),
        ]
        convexity = np.zeros((self.blocks, n + self.blocks + extra.shape[1]))
        convexity[self.column_blocks, np.arange(n)] = 1
        convexity[np.arange(self.blocks), n + np.arange(self.blocks)] = 1
        lower = [0.0] * (n + self.blocks) + [self.floor] * len(self.weights) + [0.0] * slacks
        answer = linprog(
            np.concatenate(costs),
            A_ub=-np.hstack([self.coefficients, np.zeros((m, self.blocks)), extra]) if m else None,
            b_ub=-self.bounds if m else None,
            A_eq=convexity,
            b_eq=np.ones(self.blocks),
            bounds=[(low, None) for low in lower],
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        assert answer.status == 0, answer.message
        return float(answer.fun)

    def dual_objective(self, duals, penalty: float) -> float:
        """The bound that these duals prove, after checking that they are feasible."""
        tolerance = 1e-7 * max(1.0, penalty)
        assert (duals.rows >= 0).all()
        assert (duals.rows[self.slack == OWN_SLACK] <= penalty + tolerance).all()
        for number in np.unique(self.slack[self.slack >= 0]):
            assert duals.rows[self.slack == number].sum() <= penalty + tolerance
        assert (duals.blocks <= penalty * DUMMY_MULTIPLE + tolerance).all()
        reduced = self.costs - duals.rows @ self.coefficients - duals.blocks[self.column_blocks]
        assert (reduced >= -tolerance).all()
        left = self.weights.copy()
        np.subtract.at(left, self.epigraph[self.epigraph >= 0], duals.rows[self.epigraph >= 0])
        assert (left >= -tolerance).all()
        return float(self.bounds @ duals.rows + duals.blocks.sum() + self.floor * left.sum())


def close(found: float, expected: float, tolerance: float = 1e-8) -> bool:
    return abs(found - expected) <= tolerance * max(1.0, abs(expected))


def one_block(**options) -> LinearMaster:
    """min w_0 + 3 w_1 with w_0 + w_1 = 1 and the row -w_0 + w_1 >= 0."""
    master = LinearMaster(1, **options)
    master.add_columns(np.array([1.0, 3.0]), np.array([0, 0]), np.empty((0, 2)))
    master.add_rows(np.array([[-1.0, 1.0]]), np.array([0.0]), np.array([OWN_SLACK]))
    return master


def random_master(seed: int, *, rows: int = 60, columns: int = 8, **options) -> LinearMaster:
    generator = np.random.default_rng(seed)
    master = LinearMaster(1, **options)
    master.add_columns(generator.random(columns), np.zeros(columns, int), np.empty((0, columns)))
    coefficients = generator.normal(0.3, 1, (rows, columns))
    master.add_rows(coefficients, np.zeros(rows), np.full(rows, OWN_SLACK))
    return master


def extend(master: LinearMaster, generator: np.random.Generator) -> None:
    """One random column and ten random rows."""
    master.add_columns(
        generator.random(1), np.zeros(1, int), generator.normal(0.3, 1, (master.n_rows, 1))
    )
    coefficients = generator.normal(0.2, 1, (10, master.n_columns))
    master.add_rows(coefficients, np.zeros(10), np.full(10, OWN_SLACK))


def test_hand_solved_weights_duals_and_signs():
    # The row forces equal weights: cost 2. Raising its bound by d moves d/2 of weight from cost
    # 1 to cost 3, so beta = 1; both reduced costs vanish: 1 + 1 = gamma = 3 - 1 = 2.
    solution = one_block().solve()
    np.testing.assert_allclose(solution.weights, [0.5, 0.5], atol=1e-12)
    np.testing.assert_allclose(solution.duals.rows, [1.0], atol=1e-12)
    np.testing.assert_allclose(solution.duals.blocks, [2.0], atol=1e-12)
    assert solution.objective == pytest.approx(2.0)
    assert solution.penalised == pytest.approx(2.0)
    np.testing.assert_allclose(solution.slack, [0.0], atol=1e-12)
    np.testing.assert_allclose(solution.dummy, [0.0], atol=1e-12)


def test_reduced_costs_of_candidates_use_the_same_signs():
    master = one_block()
    duals = master.solve().duals
    # 0.5 - 1 * 0 - 2 improves; 3 - 1 * 1 - 2 is the member held already.
    found = master.reduced_costs(
        np.array([0.5, 3.0]), np.array([0, 0]), np.array([[0.0, 1.0]]), duals
    )
    np.testing.assert_allclose(found, [-1.5, 0.0], atol=1e-12)
    with pytest.raises(InvalidInput, match="shape"):
        master.reduced_costs(np.array([0.5]), np.array([0]), np.zeros((2, 1)), duals)
    master.add_columns(np.array([0.5]), np.array([0]), np.array([[0.0]]))
    np.testing.assert_allclose(master.solve().weights, [0, 0, 1], atol=1e-12)


def test_infeasible_row_ends_with_positive_slack_and_the_penalty_as_its_dual():
    master = LinearMaster(1, penalty=10.0)
    master.add_columns(np.array([1.0, 2.0]), np.array([0, 0]), np.empty((0, 2)))
    master.add_rows(np.array([[0.0, 1.0]]), np.array([1.5]), np.array([OWN_SLACK]))
    solution = master.solve()
    np.testing.assert_allclose(solution.weights, [0, 1], atol=1e-12)
    np.testing.assert_allclose(solution.slack, [0.5])
    np.testing.assert_allclose(solution.duals.rows, [10.0])
    assert solution.objective == pytest.approx(2.0)
    assert solution.penalised == pytest.approx(7.0)
    assert master.raise_penalty()
    assert master.penalty == 100.0
    assert master.solve().penalised == pytest.approx(52.0)
    master.minimise_slack(True)
    phase = master.solve()
    assert phase.objective == 0.0
    assert phase.penalised == pytest.approx(0.5)
    np.testing.assert_allclose(phase.duals.rows, [1.0])
    # Members are free in this phase whatever costs are given: 0 - 1 * 2 - gamma, gamma = -1.
    priced = master.reduced_costs(np.array([9.0]), np.array([0]), np.array([[2.0]]), phase.duals)
    np.testing.assert_allclose(priced, [-1.0], atol=1e-12)
    master.minimise_slack(False)
    assert master.solve().penalised == pytest.approx(52.0)


def test_shared_slack_is_paid_once_and_own_slack_per_row():
    for slack, paid in ((np.array([4, 4]), 3.0), (np.array([-1, -1]), 4.0)):
        master = LinearMaster(1, penalty=10.0)
        master.add_columns(np.array([0.0]), np.array([0]), np.empty((0, 1)))
        master.add_rows(np.zeros((2, 1)), np.array([1.0, 3.0]), slack)
        solution = master.solve()
        assert solution.penalised == pytest.approx(10 * paid)
        np.testing.assert_allclose(solution.slack, [1.0, 3.0])


def test_epigraph_is_the_mean_of_the_largest_pieces():
    # Pieces w_0 and w_1 in scenario 0, w_1 alone in scenario 1: (max(w) + w_1) / 2, floor 0.1.
    master = LinearMaster(1)
    master.add_epigraph(np.array([0.5, 0.5]), 0.1)
    master.add_columns(np.zeros(2), np.array([0, 0]), np.empty((0, 2)))
    rows = -np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    master.add_rows(rows, np.zeros(3), np.full(3, NO_SLACK), np.array([0, 0, 1]))
    solution = master.solve()
    # 0.5 max(w, 1 - w) + 0.5 max(1 - w, 0.1) is smallest, 0.5, anywhere in 0.5 <= w <= 0.9.
    assert solution.objective == pytest.approx(0.5)
    assert 0.5 - 1e-9 <= solution.weights[0] <= 0.9 + 1e-9
    np.testing.assert_array_equal(solution.slack, 0.0)


def test_a_block_without_members_rests_on_its_dummy():
    master = LinearMaster(2, penalty=2.0)
    master.add_columns(np.array([1.0]), np.array([1]), np.empty((0, 1)))
    solution = master.solve()
    np.testing.assert_allclose(solution.dummy, [1.0, 0.0])
    np.testing.assert_allclose(solution.duals.blocks, [2.0 * DUMMY_MULTIPLE, 1.0])
    assert solution.penalised == pytest.approx(1 + 2 * DUMMY_MULTIPLE)
    assert master.raise_penalty()
    assert master.solve().penalised == pytest.approx(1 + 20 * DUMMY_MULTIPLE)


def test_penalty_stops_at_its_limit():
    master = LinearMaster(1, penalty=10.0, penalty_growth=10.0, penalty_limit=50.0)
    assert master.raise_penalty()
    assert master.penalty == 50.0
    assert not master.raise_penalty()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(
    seed=st.integers(0, 2**32 - 1),
    blocks=st.integers(1, 3),
    scenarios=st.integers(0, 3),
    age_limit=st.integers(0, 2),
    batch=st.integers(1, 6),
    whole=st.booleans(),
    steps=st.lists(
        st.sampled_from(["rows", "columns", "penalty", "reload", "slack"]), min_size=3, max_size=9
    ),
)
def test_any_history_equals_the_complete_program(
    seed, blocks, scenarios, age_limit, batch, whole, steps
):
    generator = np.random.default_rng(seed)

    def numbers(*shape):
        drawn = generator.normal(0.3, 1, shape)
        return np.round(drawn) if whole else drawn  # whole numbers make degenerate programs

    master = LinearMaster(
        blocks,
        penalty=5.0,
        row_age_limit=age_limit,
        column_age_limit=age_limit,
        activation_batch=batch,
    )
    complete = Complete(blocks)
    if scenarios:
        complete.weights, complete.floor = generator.random(scenarios), -0.5
        master.add_epigraph(complete.weights, complete.floor)
    for step in ["columns", "rows", *steps]:
        if step == "columns":
            count = int(generator.integers(1, 6))
            columns = (
                numbers(count),
                generator.integers(0, blocks, count),
                numbers(master.n_rows, count),
            )
            master.add_columns(*columns)
            complete.add_columns(*columns)
        elif step == "rows":
            count = int(generator.integers(1, 9))
            epigraph = generator.integers(-1, scenarios, count)
            slack = generator.choice([OWN_SLACK, NO_SLACK, 3, 8], count)
            slack[(epigraph < 0) & (slack == NO_SLACK)] = OWN_SLACK
            rows = (numbers(count, master.n_columns), numbers(count), slack, epigraph)
            master.add_rows(*rows)
            complete.add_rows(*rows)
        elif step == "penalty":
            master.raise_penalty()
        elif step == "reload":
            master.reload()
        elif step == "slack":
            master.minimise_slack(True)
            expected = complete.optimum(master.penalty, slack_phase=True)
            assert close(master.solve().penalised, expected)
            master.minimise_slack(False)
        solution = master.solve()
        expected = complete.optimum(master.penalty)
        assert close(solution.penalised, expected)
        assert close(complete.dual_objective(solution.duals, master.penalty), expected)
        totals = np.bincount(complete.column_blocks, solution.weights, minlength=blocks)
        np.testing.assert_allclose(totals + solution.dummy, 1.0, atol=1e-12)
        assert (solution.weights >= 0).all()
        free = (complete.slack == OWN_SLACK) & (complete.epigraph < 0)
        value = complete.coefficients[free] @ solution.weights
        expected_slack = np.maximum(0, complete.bounds[free] - value)
        np.testing.assert_allclose(solution.slack[free], expected_slack, atol=1e-12)
    assert master.cold_restarts == 0


def test_the_largest_penalty_is_still_solved():
    master = random_master(3, rows=300, columns=20)
    complete = Complete(1)
    complete.costs, complete.column_blocks = master._costs, np.zeros(20, int)
    complete.coefficients, complete.bounds = master.coefficients, np.zeros(300)
    complete.slack, complete.epigraph = np.full(300, OWN_SLACK), np.full(300, -1)
    while master.raise_penalty():
        solution = master.solve()
        assert solution.slack.sum() > 0
        assert close(solution.penalised, complete.optimum(master.penalty))
    assert master.penalty == 1e8


def test_idle_rows_leave_and_the_basis_stays():
    master = random_master(1, rows=2000, columns=40, row_age_limit=1, column_age_limit=1)
    first = master.solve()
    assert first.solver_iterations > 100
    assert first.active_rows < 2000
    counts = [master.solve() for _ in range(4)]
    assert counts[0].solver_iterations == 0
    assert counts[-1].active_rows < first.active_rows
    assert all(later.penalised == pytest.approx(first.penalised, rel=1e-10) for later in counts)
    # Deleting rows and columns kept the basis: still nothing to do.
    assert counts[-1].solver_iterations <= 2


def test_one_more_column_is_cheaper_from_the_old_basis_than_from_scratch():
    master = random_master(1, rows=2000, columns=40)
    first = master.solve()
    better = np.random.default_rng(2).normal(0.3, 1, (2000, 1))
    better += 0.1 * (first.duals.rows[:, None] > 0)
    master.add_columns(np.array([0.2]), np.array([0]), better)
    warm = master.solve()
    assert warm.weights[-1] > 0
    scratch = LinearMaster(1)
    costs = np.append(np.random.default_rng(1).random(40), 0.2)
    scratch.add_columns(costs, np.zeros(41, int), np.empty((0, 41)))
    scratch.add_rows(master.coefficients, np.zeros(2000), np.full(2000, OWN_SLACK))
    cold = scratch.solve()
    assert warm.penalised == pytest.approx(cold.penalised, rel=1e-8)
    assert warm.solver_iterations < 0.7 * cold.solver_iterations


def test_columns_set_aside_return_when_they_improve():
    master = LinearMaster(1, column_age_limit=0)
    master.add_columns(np.array([0.0, 1.0]), np.array([0, 0]), np.empty((0, 2)))
    for _ in range(3):
        solution = master.solve()
    assert solution.active_columns == 1
    master.add_rows(np.array([[-1.0, 0.0]]), np.array([0.0]), np.array([OWN_SLACK]))
    solution = master.solve()
    np.testing.assert_allclose(solution.weights, [0, 1], atol=1e-12)
    assert solution.active_columns == 2


def test_reloaded_and_restored_runs_are_equal_bit_for_bit():
    kept = random_master(9, row_age_limit=1, column_age_limit=1, activation_batch=7)
    for step in range(7):
        extend(kept, np.random.default_rng(step))
        if step == 5:
            assert kept.raise_penalty()
        kept.solve()
        state = kept.state()
        kept.reload()
    restored = LinearMaster.restore(state)
    for step in range(7, 14):
        solutions = []
        for master in (kept, restored):
            extend(master, np.random.default_rng(step))
            solutions.append(master.solve())
            master.reload()
        first, second = solutions
        np.testing.assert_array_equal(first.weights, second.weights)
        np.testing.assert_array_equal(first.duals.rows, second.duals.rows)
        np.testing.assert_array_equal(first.duals.blocks, second.duals.blocks)
        np.testing.assert_array_equal(first.slack, second.slack)
        assert first.solver_iterations == second.solver_iterations
        assert first.active_rows == second.active_rows
    other = restored.state()
    for name, array in kept.state().items():
        np.testing.assert_array_equal(array, other[name])


def test_state_before_the_first_solve_restores_too():
    master = one_block()
    restored = LinearMaster.restore(master.state())
    assert restored.solve().objective == pytest.approx(master.solve().objective)


def scripted(monkeypatch, statuses):
    """HiGHS runs for real, but these statuses are reported in turn."""
    waiting, attempt = iter(statuses), _Solver._attempt
    monkeypatch.setattr(
        _Solver,
        "_attempt",
        lambda self, *, primal: (next(waiting), attempt(self, primal=primal)[1]),
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.kInfeasible, "slacks and dummies rule out"),
        (Status.kUnbounded, "slacks and dummies rule out"),
        (Status.kUnboundedOrInfeasible, "slacks and dummies rule out"),
        (Status.kIterationLimit, "limit"),
        (Status.kTimeLimit, "limit"),
        (Status.kSolveError, "no solution"),
        (Status.kUnknown, "no solution"),
        (Status.kInterrupt, "no solution"),
    ],
)
def test_every_other_status_is_a_failure_that_names_it(monkeypatch, status, words):
    master = one_block()
    master.solve()
    scripted(monkeypatch, [status, status])
    with pytest.raises(SolverFailure, match=words) as failure:
        master.solve()
    assert status.name in str(failure.value)


def test_a_failed_warm_start_is_repeated_from_scratch_and_counted(monkeypatch):
    master = one_block()
    master.solve()
    scripted(monkeypatch, [Status.kSolveError, Status.kOptimal])
    assert master.solve().objective == pytest.approx(2.0)
    assert master.cold_restarts == 1
    master.reload()
    assert master.cold_restarts == 1
    assert LinearMaster.restore(master.state()).cold_restarts == 1


def test_a_cold_failure_is_not_repeated(monkeypatch):
    master = one_block()
    scripted(monkeypatch, [Status.kSolveError])
    with pytest.raises(SolverFailure, match="kSolveError"):
        master.solve()
    assert master.cold_restarts == 0


def test_a_refused_call_is_a_failure_that_names_it():
    solver = _Solver(1e-9)
    with pytest.raises(SolverFailure, match="kError to setBasis"):
        solver.set_basis(np.zeros(3, int), np.zeros(2, int))


@pytest.mark.parametrize(
    "options",
    [
        {"blocks": 0},
        {"penalty": 0.0},
        {"penalty": 2.0, "penalty_limit": 1.0},
        {"penalty": float("nan")},
        {"penalty_growth": 1.0},
        {"row_age_limit": -1},
        {"activation_batch": 0},
        {"tolerance": 0.0},
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(InvalidInput):
        LinearMaster(**{"blocks": 1, **options})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coefficients": np.zeros((1, 3))}, "shape"),
        ({"coefficients": np.array([[0.0, np.nan]])}, "finite"),
        ({"bounds": np.array([np.inf])}, "finite"),
        ({"slack": np.array([0.5])}, "integers"),
        ({"slack": np.array([NO_SLACK])}, "infeasible"),
        ({"slack": np.array([-3])}, "slack must be"),
        ({"epigraph": np.array([0])}, "add_epigraph"),
    ],
)
def test_wrong_rows_are_refused_and_change_nothing(change, words):
    master = one_block()
    row = {
        "coefficients": np.zeros((1, 2)),
        "bounds": np.zeros(1),
        "slack": np.array([OWN_SLACK]),
        "epigraph": None,
    }
    with pytest.raises(InvalidInput, match=words):
        master.add_rows(**{**row, **change})
    assert master.n_rows == 1
    master.add_rows(**row)
    assert master.n_rows == 2


def test_wrong_columns_and_a_second_epigraph_are_refused():
    master = one_block()
    with pytest.raises(InvalidInput, match=r"0\.\.0"):
        master.add_columns(np.zeros(1), np.array([1]), np.zeros((1, 1)))
    with pytest.raises(InvalidInput, match="shape"):
        master.add_columns(np.zeros(1), np.array([0]), np.zeros((2, 1)))
    with pytest.raises(InvalidInput, match=">= 0"):
        master.add_epigraph(np.array([-1.0]), 0.0)
    master.add_epigraph(np.array([1.0]), 0.0)
    with pytest.raises(InvalidInput, match="once"):
        master.add_epigraph(np.array([1.0]), 0.0)
