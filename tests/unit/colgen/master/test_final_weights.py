"""Final weights against random mixtures, hand-solved cases and a failing solver."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
from convex_cases import LOSS_NAMES, Case, Floats
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.colgen.master.convex import FinalWeights, compute_final_weights, sequential
from cg4ai.colgen.master.convex.final import _restored
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.solvers.conic import QuadraticProgram
from raising import raises


def final(case: Case, choice: str, start: Floats) -> FinalWeights:
    return compute_final_weights(
        choice,  # type: ignore[arg-type]
        coefficients=case.coefficients,
        bounds=case.bounds,
        blocks=case.blocks,
        n_blocks=case.n_blocks,
        start=start,
        loss=case.loss,
        outputs=case.outputs,
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    choice=st.sampled_from(["loss", "uniform"]),
    kind=st.sampled_from(LOSS_NAMES),
    blocks=st.integers(1, 3),
    room=st.sampled_from([0.3, 0.0, -0.2]),
)
def test_final_weights_keep_rows_and_improve(
    seed: int, choice: str, kind: str, blocks: int, room: float
):
    case = Case(seed, kind=kind, blocks=blocks, rows=15, room=room)
    start = case.inside  # violates every row if room < 0: then it must not get worse
    result = final(case, choice, start)
    needed = np.minimum(case.bounds, case.coefficients @ start)
    assert (case.coefficients @ result.weights - needed).min() >= -1.1e-9
    assert result.weights.min() >= 0
    sums = np.bincount(case.blocks, result.weights)
    np.testing.assert_allclose(sums, 1.0, atol=1e-12)

    def objective(weights: Floats) -> float:
        return case.loss_of(weights) if choice == "loss" else float(np.sum((weights - 0.25) ** 2))

    assert objective(result.weights) <= objective(start) + 1e-14
    generator = np.random.default_rng(seed)
    for _ in range(20):  # walk from start towards random mixtures as far as the rows allow
        step = case.random_weights(generator) - start
        change = case.coefficients @ step
        room_left = (case.coefficients @ start - needed)[change < 0] / -change[change < 0]
        other = start + min(1.0, room_left.min(initial=1.0)) * step
        assert objective(result.weights) <= objective(other) + result.gap + 1e-9
    assert result.gap <= 1e-5 or "optimal only to within" in result.note


def test_uniform_weights_where_rows_allow_them():
    case = Case(1, kind="squared", blocks=2, rows=1)
    case.bounds = np.array([-100.0])
    result = final(case, "uniform", case.inside)
    np.testing.assert_allclose(result.weights, 0.25, atol=1e-9)
    assert result.note == ""


def test_uniform_with_one_tight_row_is_the_projection():
    result = compute_final_weights(
        "uniform",
        coefficients=np.array([[1.0, 0.0, 0.0]]),
        bounds=np.array([0.6]),
        blocks=np.zeros(3, int),
        n_blocks=1,
        start=np.array([1.0, 0.0, 0.0]),
    )
    np.testing.assert_allclose(result.weights, [0.6, 0.2, 0.2], atol=1e-8)
    assert result.weights[0] >= 0.6
    assert result.gap <= 1e-8


def test_final_weights_with_many_rows_activate_few(monkeypatch: pytest.MonkeyPatch):
    case = Case(6, kind="log_loss", blocks=1, rows=2000, room=0.2)
    lazy = final(case, "loss", case.inside)
    monkeypatch.setattr(
        sequential, "_with_violated", lambda program, *_, **__: np.ones(len(program.bounds), bool)
    )
    complete = final(case, "loss", case.inside)
    assert case.loss_of(lazy.weights) == pytest.approx(case.loss_of(complete.weights), abs=1e-8)


def test_solver_failure_keeps_the_start_and_says_so(monkeypatch: pytest.MonkeyPatch):
    def fail(self: object) -> None:
        raise SolverFailure("Clarabel ended with status Unsolved and no usable iterate")

    monkeypatch.setattr(QuadraticProgram, "solve", fail)
    case = Case(7, kind="squared")
    result = final(case, "loss", case.inside)
    np.testing.assert_allclose(result.weights, case.inside)
    assert "Unsolved" in result.note
    assert result.gap == np.inf
    with raises(SolverFailure, "solver-status", "Unsolved"):
        case.master().solve()


@pytest.mark.parametrize("status", ["PrimalInfeasible", "Unsolved", "SomethingNew"])
def test_unusable_statuses_are_named(status: str, monkeypatch: pytest.MonkeyPatch):
    class Solver:
        def __init__(self, *_: object) -> None:
            pass

        def solve(self) -> object:
            return type("Answer", (), {"status": status, "x": [0.0], "z": [0.0], "s": [0.0]})()

    monkeypatch.setattr(clarabel, "DefaultSolver", Solver)
    with raises(SolverFailure, "solver-status", status):
        Case(7, kind="squared").master().solve()


def test_broken_rows_are_restored_by_blending():
    weights, note = _restored(
        np.array([0.0, 1.0]),
        np.array([1.0, 0.0]),
        coefficients=np.array([[1.0, 0.0], [0.5, 0.0]]),
        needed=np.array([0.25, 0.2]),
    )
    np.testing.assert_allclose(weights, [0.4, 0.6])
    assert "0.4" in note


def test_final_weights_refuse_what_they_cannot_use():
    case = Case(7, kind="squared", blocks=2)
    with raises(InvalidInput, "unknown-name", "loss", "uniform"):
        final(case, "best", case.inside)
    with raises(InvalidInput, "empty"):
        final(case, "uniform", np.where(case.blocks == 1, 0.0, case.inside))
    with raises(InvalidInput, "missing-argument"):
        compute_final_weights(
            "loss",
            coefficients=case.coefficients,
            bounds=case.bounds,
            blocks=case.blocks,
            n_blocks=2,
            start=case.inside,
        )
