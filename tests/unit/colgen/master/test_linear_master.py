"""The linear master against hand-solved programs and scipy on the complete one."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from linear_programs import Complete, close, extend, one_block, random_master

from cg4ai.colgen.master import DUMMY_MULTIPLE, NO_SLACK, OWN_SLACK, LinearMaster
from cg4ai.errors import InvalidInput


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


def test_candidates_with_negative_reduced_cost_improve_and_others_do_not():
    master = one_block()
    solution = master.solve()
    beta, gamma = solution.duals.rows[0], solution.duals.blocks[0]
    for cost, coefficient, reduced, objective in ((0.5, -2.0, 0.5, 2.0), (0.5, 0.0, -1.5, 0.5)):
        assert cost - beta * coefficient - gamma == pytest.approx(reduced)
        master.add_columns(np.array([cost]), np.array([0]), np.array([[coefficient]]))
        assert master.solve().objective == pytest.approx(objective)


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
    # Members are free in this phase: the one with weight has 0 - 1 * 1 - gamma = 0.
    np.testing.assert_allclose(phase.duals.blocks, [-1.0])
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


@pytest.mark.parametrize("seed", range(20))
def test_barred_members_are_as_if_they_were_not_there(seed):
    generator = np.random.default_rng(seed)
    master = random_master(seed, columns=12)
    whole = master.solve()
    barred = generator.choice(12, size=5, replace=False)
    without = Complete(1)
    kept = np.setdiff1d(np.arange(12), barred)
    costs = np.random.default_rng(seed).random(12)  # as random_master draws them
    without.add_columns(costs[kept], np.zeros(len(kept), int), np.empty((0, len(kept))))
    rows = len(master.coefficients)
    none = np.full(rows, -1)
    without.add_rows(master.coefficients[:, kept], np.zeros(rows), none, none)
    master.bar(barred)
    tried = master.solve()
    assert close(tried.penalised, without.optimum(master.penalty))
    np.testing.assert_allclose(tried.weights[barred], 0.0, atol=1e-12)
    master.bar(np.empty(0, int))
    assert close(master.solve().penalised, whole.penalised)


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
        st.sampled_from(["rows", "columns", "penalty", "restore", "slack"]), min_size=3, max_size=9
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
        elif step == "restore":
            master = LinearMaster.restore(master.state())
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
    complete.costs = np.random.default_rng(3).random(20)
    complete.column_blocks = np.zeros(20, int)
    complete.coefficients, complete.bounds = master.coefficients, np.zeros(300)
    complete.slack, complete.epigraph = np.full(300, OWN_SLACK), np.full(300, -1)
    while master.raise_penalty():
        solution = master.solve()
        assert solution.slack.sum() > 0
        assert close(solution.penalised, complete.optimum(master.penalty))
    assert master.penalty == 1e8


def test_runs_that_go_on_from_each_saved_state_are_equal_bit_for_bit():
    kept = random_master(9, row_age_limit=1, column_age_limit=1, activation_batch=7)
    for step in range(7):
        extend(kept, np.random.default_rng(step))
        if step == 5:
            assert kept.raise_penalty()
        kept.solve()
        saved = io.BytesIO()
        np.savez(saved, **kept.state())  # type: ignore[arg-type]
        kept = LinearMaster.restore(kept.state())
    saved.seek(0)
    resumed = LinearMaster.restore(np.load(saved, allow_pickle=False))
    for step in range(7, 14):
        solutions = []
        for master in (kept, resumed):
            extend(master, np.random.default_rng(step))
            solutions.append(master.solve())
        first, second = solutions
        np.testing.assert_array_equal(first.weights, second.weights)
        np.testing.assert_array_equal(first.duals.rows, second.duals.rows)
        np.testing.assert_array_equal(first.duals.blocks, second.duals.blocks)
        np.testing.assert_array_equal(first.slack, second.slack)
        assert first.solver_iterations == second.solver_iterations
        assert first.active_rows == second.active_rows
    other = resumed.state()
    for name, array in kept.state().items():
        np.testing.assert_array_equal(array, other[name])


def test_state_before_the_first_solve_restores_too():
    master = one_block()
    restored = LinearMaster.restore(master.state())
    assert restored.solve().objective == pytest.approx(master.solve().objective)


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
