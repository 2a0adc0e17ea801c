"""The convex master against hand-solved cases, scipy and the KKT conditions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from convex_cases import LOSS_NAMES, LOSSES, Case, check_optimality, nothing, squared_to
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from cg4ai.colgen.master import DUMMY_MULTIPLE
from cg4ai.colgen.master.convex import ConvexMaster, sequential
from cg4ai.errors import InvalidInput
from raising import raises


def test_projection_onto_a_segment_takes_one_step():
    master = ConvexMaster(1, squared_to([0.25, 0.0]))
    master.add_columns(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), np.zeros(2, int), nothing(2))
    solution = master.solve()
    # (w - 1/4)^2 + (1 - w)^2 is least at w = 5/8
    np.testing.assert_allclose(solution.weights, [0.625, 0.375], atol=1e-12)
    assert solution.objective == pytest.approx(0.28125, abs=1e-12)
    np.testing.assert_allclose(master.gradient(), [[0.75, 0.75]], atol=1e-12)
    assert solution.duals.blocks == pytest.approx([0.75])
    assert master.gap <= 1e-12


def test_a_row_moves_the_weights_and_gets_its_price():
    master = ConvexMaster(1, squared_to([0.25, 0.0]))
    master.add_columns(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), np.zeros(2, int), nothing(2))
    master.add_rows(np.array([[1.0, 0.0]]), np.array([0.75]), np.array([-1]))
    solution = master.solve()
    np.testing.assert_allclose(solution.weights, [0.75, 0.25], atol=1e-10)
    # d/dw of (w - 1/4)^2 + (1 - w)^2 at 3/4 is 1/2
    assert solution.duals.rows == pytest.approx([0.5])
    assert solution.active_rows == 1


@pytest.mark.parametrize("start", [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
def test_a_member_that_is_sure_and_sometimes_wrong_does_not_trap_the_weights(start: list[float]):
    generator = np.random.default_rng(0)
    right = 1.0 - 1e-6 * generator.random(500)
    right[:5] = [1e-16, 1e-13, 1e-11, 1e-8, 1e-3]  # where it is sure of the other class
    sure, even = np.stack([right, 1.0 - right], axis=1), np.full((500, 2), 0.5)
    labels = torch.zeros(500, dtype=torch.int64)
    master = ConvexMaster(1, lambda mixture: LOSSES["log_loss"](mixture, labels).mean())
    master.add_columns(np.stack([sure, even]), np.zeros(2, int), nothing(2))
    master.restore({**master.state(), "weights": np.array(start)})
    solution = master.solve()

    def loss(weight: float) -> float:
        return float(-np.log(weight * right + (1 - weight) * 0.5).mean())

    best = minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
    assert solution.objective == pytest.approx(best.fun, abs=1e-8)
    assert solution.weights[0] == pytest.approx(best.x, abs=1e-5)
    assert master.gap < 1e-6


@pytest.mark.parametrize(("penalty", "weight"), [(0.25, 0.6875), (10.0, 0.75)])
def test_a_small_penalty_leaves_slack(penalty: float, weight: float):
    master = ConvexMaster(1, squared_to([0.25, 0.0]), penalty=penalty)
    master.add_columns(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), np.zeros(2, int), nothing(2))
    master.add_rows(np.array([[1.0, 0.0]]), np.array([0.75]), np.array([-1]))
    solution = master.solve()  # slope 4 w - 5/2 = penalty at w = 11/16 for penalty 1/4
    assert solution.weights[0] == pytest.approx(weight, abs=1e-9)
    assert solution.slack[0] == pytest.approx(0.75 - weight, abs=1e-9)
    assert solution.penalised == pytest.approx(solution.objective + penalty * (0.75 - weight))


def test_shared_slack_is_charged_once():
    rows, bounds = np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([1.0, 3.0])
    penalised = []
    for slack in ([-1, -1], [7, 7]):
        master = ConvexMaster(1, squared_to([0.0]), penalty=2.0)
        master.add_columns(torch.zeros(2, 1, 1), np.zeros(2, int), nothing(2))
        master.add_rows(rows, bounds, np.array(slack))
        solution = master.solve()
        np.testing.assert_allclose(solution.slack, [1.0, 3.0])
        penalised.append(solution.penalised)
    assert penalised == pytest.approx([8.0, 6.0], abs=1e-6)


def test_a_block_without_members_is_left_to_its_dummy():
    master = ConvexMaster(2, squared_to([1.0, 1.0]))
    master.add_columns(torch.tensor([[[1.0, 0.0]]]), np.array([1]), nothing(1))
    solution = master.solve()
    np.testing.assert_allclose(solution.dummy, [1.0, 0.0], atol=1e-12)
    assert solution.objective == pytest.approx(1.0)
    assert solution.penalised == pytest.approx(1.0 + 10.0 * DUMMY_MULTIPLE)


def test_without_columns_there_is_only_slack():
    master = ConvexMaster(1, squared_to([2.0]))
    with raises(InvalidInput, "unsupported", "add_columns"):
        master.solve()
    master.add_columns(torch.zeros(0, 1, 1), np.empty(0, int), nothing())
    master.add_rows(np.empty((1, 0)), np.array([0.5]), np.array([-1]))
    solution = master.solve()
    assert solution.objective == pytest.approx(4.0)
    assert solution.penalised == pytest.approx(4.0 + 5.0 + 10.0 * DUMMY_MULTIPLE)
    assert solution.duals.rows == pytest.approx([10.0])


def test_least_slack_phase_ignores_the_loss():
    master = ConvexMaster(1, squared_to([0.25, 0.0]), penalty=0.01)
    master.add_columns(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), np.zeros(2, int), nothing(2))
    master.add_rows(np.array([[1.0, 0.0]]), np.array([1.5]), np.array([-1]))
    master.minimise_slack(True)
    solution = master.solve()
    assert solution.objective == 0.0
    assert solution.penalised == pytest.approx(0.5)
    assert not master.gradient().any()
    assert solution.duals.rows == pytest.approx([1.0])
    master.minimise_slack(False)
    assert master.solve().weights[0] == pytest.approx(0.6275)  # 4 w - 5/2 = 0.01


@pytest.mark.parametrize("kind", LOSS_NAMES)
@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("room", [0.1, -0.4])
def test_agrees_with_scipy(kind: str, blocks: int, room: float):
    case = Case(5, kind=kind, blocks=blocks, room=room)
    penalty = 0.3
    solution = case.master(penalty).solve()
    groups = [[j] for j in np.flatnonzero(case.slack < 0)]
    groups += [list(np.flatnonzero(case.slack == k)) for k in (0, 1) if (case.slack == k).any()]
    size, extra = len(case.blocks), len(groups)
    owner = np.zeros((len(case.bounds), extra))
    for k, group in enumerate(groups):
        owner[group, k] = 1.0
    member = np.equal.outer(np.arange(blocks), case.blocks).astype(float)
    answer = minimize(
        lambda x: case.loss_of(x[:size]) + penalty * x[size:].sum(),
        np.concatenate([np.full(size, 0.25), np.full(extra, 3.0)]),
        method="SLSQP",
        bounds=[(0, None)] * (size + extra),
        constraints=[
            {"type": "eq", "fun": lambda x: member @ x[:size] - 1.0},
            {
                "type": "ineq",
                "fun": lambda x: case.coefficients @ x[:size] + owner @ x[size:] - case.bounds,
            },
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert answer.success
    assert solution.penalised == pytest.approx(answer.fun, abs=1e-6)
    assert solution.penalised <= answer.fun + 1e-7


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(LOSS_NAMES),
    blocks=st.integers(1, 3),
    rows=st.integers(0, 10),
    room=st.sampled_from([0.3, 0.0, -0.5]),
    penalty=st.sampled_from([0.01, 1.0, 1e4, 1e8]),
)
def test_solution_is_optimal(
    seed: int, kind: str, blocks: int, rows: int, room: float, penalty: float
):
    case = Case(seed, kind=kind, blocks=blocks, rows=rows, room=room)
    master = case.master(penalty)
    solution = master.solve()
    assert master.gap <= 1e-7 * max(1.0, abs(solution.penalised))
    check_optimality(case, master, solution)
    generator = np.random.default_rng(seed)
    for weights in (case.inside, *(case.random_weights(generator) for _ in range(20))):
        allowed = 1e-8 * max(1.0, abs(solution.penalised))
        assert solution.penalised <= case.penalised(weights, penalty) + allowed


def test_zero_probabilities_do_not_stop_it():
    """Members sure of different classes: each alone has a huge loss, mixtures do not."""
    outputs = torch.zeros(3, 6, 3, dtype=torch.float64)
    for i in range(3):
        outputs[i, :, i] = 1.0
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    master = ConvexMaster(1, lambda p: LOSSES["log_loss"](p, labels).mean())
    master.add_columns(outputs[:1], np.zeros(1, int), nothing(1))
    assert master.solve().objective > 1.0
    master.add_columns(outputs[1:], np.zeros(2, int), nothing(2))
    np.testing.assert_allclose(master.solve().weights, [1 / 2, 1 / 3, 1 / 6], atol=1e-6)
    assert master.gap <= 1e-7


def test_equal_members_and_equations_are_no_trouble():
    """Two copies of each member and `==` as two rows: neither weights nor duals are unique."""
    case = Case(9, kind="cross_entropy", rows=1)
    case.outputs = torch.cat([case.outputs, case.outputs])
    case.blocks = np.zeros(8, int)
    value = float((case.coefficients @ case.inside)[0])
    case.coefficients = np.vstack([case.coefficients, -case.coefficients])
    case.coefficients = np.hstack([case.coefficients, case.coefficients])
    case.bounds, case.slack = np.array([value, -value]), np.array([-1, -1])
    master = case.master()
    solution = master.solve()
    assert solution.slack.max() <= 1e-9
    assert master.gap <= 1e-8
    check_optimality(case, master, solution)


def test_linear_loss_is_a_linear_program():
    master = ConvexMaster(1, lambda outputs: outputs.mean())
    master.add_columns(torch.tensor([[[3.0]], [[1.0]], [[2.0]]]), np.zeros(3, int), nothing(3))
    solution = master.solve()
    np.testing.assert_allclose(solution.weights, [0, 1, 0], atol=1e-9)
    assert solution.duals.blocks == pytest.approx([1.0])


def test_lazy_rows_equal_all_rows(monkeypatch: pytest.MonkeyPatch):
    case = Case(3, kind="cross_entropy", blocks=2, rows=400, room=0.05)
    lazy = case.master().solve()
    monkeypatch.setattr(
        sequential, "_with_violated", lambda program, *_, **__: np.ones(len(program.bounds), bool)
    )
    complete = case.master().solve()
    assert lazy.active_rows < 400
    assert lazy.penalised == pytest.approx(complete.penalised, abs=1e-8)
    np.testing.assert_allclose(lazy.weights, complete.weights, atol=1e-5)


def test_adding_piece_by_piece_gives_the_same_optimum():
    case = Case(8, kind="squared", blocks=2, rows=8)
    master = ConvexMaster(2, case.loss)
    for columns in (slice(0, 4), slice(4, 8)):
        kept = 0 if columns.start == 0 else 3
        master.add_columns(
            case.outputs[columns], case.blocks[columns], case.coefficients[:kept, columns]
        )
        master.solve()
        rows = slice(0, 3) if kept == 0 else slice(3, 8)
        seen = columns.stop
        master.add_rows(case.coefficients[rows, :seen], case.bounds[rows], case.slack[rows])
    assert (master.n_rows, master.n_columns) == (8, 8)
    solution = master.solve()
    assert solution.penalised == pytest.approx(case.master().solve().penalised, abs=1e-8)
    check_optimality(case, master, solution)


def test_solving_again_costs_nothing_and_changes_nothing():
    master = Case(2, kind="log_loss", rows=20).master()
    first, second = master.solve(), master.solve()
    assert second.solver_iterations == 0
    np.testing.assert_array_equal(first.weights, second.weights)


def test_restored_master_continues_identically():
    case = Case(4, kind="cross_entropy", blocks=2, rows=12, room=-0.2)
    master, other = case.master(0.1), case.master(0.1)
    master.solve()
    assert master.raise_penalty()
    other.restore(master.state())
    assert other.penalty == master.penalty == 1.0
    ours, theirs = master.solve(), other.solve()
    np.testing.assert_array_equal(ours.weights, theirs.weights)
    np.testing.assert_array_equal(ours.duals.rows, theirs.duals.rows)
    with raises(InvalidInput, "shape"):
        ConvexMaster(2, case.loss).restore(master.state())


def test_penalty_grows_to_its_limit():
    master = ConvexMaster(
        1, squared_to([0.0]), penalty=10.0, penalty_growth=4.0, penalty_limit=50.0
    )
    assert master.raise_penalty()
    assert master.raise_penalty()
    assert master.penalty == 50.0
    assert not master.raise_penalty()


def test_a_loss_that_is_not_convex_is_refused():
    master = ConvexMaster(1, lambda outputs: -outputs.square().sum())
    master.add_columns(torch.tensor([[[1.0]], [[-1.0]]]), np.zeros(2, int), nothing(2))
    master.add_rows(np.array([[1.0, 0.0]]), np.array([0.9]), np.array([-1]))
    with raises(InvalidInput, "not-convex"):
        master.solve()


def test_a_loss_without_gradient_is_refused():
    for loss in (lambda outputs: outputs.detach().sum(), lambda outputs: outputs.square()):
        master = ConvexMaster(1, loss)
        master.add_columns(torch.ones(1, 1, 2), np.zeros(1, int), nothing(1))
        with raises(InvalidInput, "type"):
            master.solve()
    master = ConvexMaster(1, lambda outputs: outputs.log().sum() * torch.inf)
    master.add_columns(torch.ones(1, 1, 2), np.zeros(1, int), nothing(1))
    with raises(InvalidInput, "not-finite"):
        master.solve()


def test_wrong_shapes_are_refused():
    master = ConvexMaster(1, squared_to([0.0]))
    assert master.gap == np.inf
    with raises(InvalidInput, "unsupported"):
        master.gradient()
    with raises(InvalidInput, "shape", "shape"):
        master.add_columns(torch.zeros(2, 1), np.zeros(2, int), nothing(2))
    with raises(InvalidInput, "range"):
        master.add_columns(torch.zeros(1, 1, 1), np.ones(1, int), nothing(1))
    with raises(InvalidInput, "not-finite", "finite"):
        master.add_columns(torch.full((1, 1, 1), np.nan), np.zeros(1, int), nothing(1))
    master.add_columns(torch.zeros(1, 1, 1), np.zeros(1, int), nothing(1))
    with raises(InvalidInput, "shape", "shape"):
        master.add_columns(torch.zeros(1, 2, 1), np.zeros(1, int), nothing(1))
    with raises(InvalidInput, "not-finite", "coefficients"):
        master.add_rows(np.ones((1, 2)), np.ones(1), np.array([-1]))
    with raises(InvalidInput, "not-finite", "NaN"):
        master.add_rows(np.ones((1, 1)), np.array([np.nan]), np.array([-1]))
    with raises(InvalidInput, "shape", "shared"):
        master.add_rows(np.ones((1, 1)), np.ones(1), np.array([-2]))
    with raises(InvalidInput, "range"):
        ConvexMaster(0, squared_to([0.0]))
    with raises(InvalidInput, "unsupported"):
        master.add_rows(np.ones((1, 1)), np.ones(1), np.array([-1]), np.array([0]))
    assert master.n_rows == 0
    master.add_rows(np.ones((1, 1)), np.ones(1), np.array([-1]), np.array([-1]))
    assert master.n_rows == 1
