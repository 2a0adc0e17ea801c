"""The loop on scripted pricers and separators: what it asks, what it admits and why it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai import Cg4aiError, Problem, Settings, StopReason, solve
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.separation import BlackBox
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import SolverFailure
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, affine
from cg4ai.members.mixture import Mixture
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, PricingRequest, SeparatorDefaults
from cg4ai.records import IntArray, PartState, PricingResult, SeparationResult
from cg4ai.rules import Box, Linear, Requirement
from raising import raises

PLAIN = Settings(
    row_margin=0.0,
    smoothing=0.0,
    final_weights="vertex",
    guarantee="attacked",  # rules over regions as rows, whatever the members are
)
NOTHING: list[float] = []


def changed(**values: Any) -> Settings:
    return Settings(**(PLAIN.as_dict() | values))


def constants(*values: float) -> ConstantMembers:
    """Members with one input and one output that ignore the input."""
    return ConstantMembers(np.array(values, float).reshape(-1, 1), 1)


def start(*values: float) -> list[tuple[ConstantMembers, IntArray]]:
    return [(constants(*values), np.zeros(len(values), np.int64))]


def about(target: float, **kind: Any) -> Supervised:
    """One labelled input: a member's cost is its squared distance to the target."""
    return Supervised(np.zeros((1, 1)), np.full((1, 1), target), **kind)


def at_least(bound: float, *, where: float = 0.0) -> Linear:
    return Linear([[where]], [1.0], bound)


@pytest.mark.parametrize("own", [False, True])
def test_requirements_searched_side_by_side_give_the_same_run(own: bool) -> None:
    boxes = [Box([0.0], [1.0 + number]) for number in range(5)]
    slopes = affine(np.array([[[1.0]], [[-1.0]], [[0.5]]]), np.array([[0.0], [1.0], [0.2]]))

    def run(jobs: int | None) -> Any:
        search = BlackBox(starts=2, evaluations=30)
        rules = [Linear(box, [1.0], 0.4, "<=", separator=search) for box in boxes]
        rules = [replace(rules[0], separator=Remembering()), *rules[1:]] if own else rules
        problem = Problem(
            about(3.0, kind="mixture"),
            rules,
            [FinitePricer([(slopes, np.zeros(3, np.int64))])],
            Layout.single(1),
        )
        return solve(problem, changed(n_jobs=jobs, final_rounds=2))

    one, two = run(None), run(2)
    assert one.ensemble.parts[0].weights.tolist() == two.ensemble.parts[0].weights.tolist()
    compared = ("objective", "slack", "worst_violation", "rows", "columns", "note")
    for first, second in zip(one.history, two.history, strict=True):
        assert [getattr(first, name) for name in compared] == [
            getattr(second, name) for name in compared
        ]
    assert one.history[-1].rows > 0


class Remembering(SeparatorDefaults):
    """A search that counts its calls, which a search in another process could not."""

    def __init__(self) -> None:
        self.calls = 0

    def find(self, *asked: Any, **named: Any) -> SeparationResult:
        self.calls += 1
        return BlackBox(starts=1, evaluations=30).find(*asked, **named)

    def state(self) -> PartState:
        return PartState({"calls": self.calls}, {})

    def restore(self, state: PartState) -> None:
        self.calls = int(state.values["calls"])


class Scripted(PricerDefaults):
    """Answers pricing requests from a list, then with nothing; keeps what it was asked."""

    def __init__(self, *answers: Sequence[float] | Callable[[PricingRequest], Any]) -> None:
        self.answers = list(answers)
        self.requests: list[PricingRequest] = []

    def price(self, request: PricingRequest) -> PricingResult:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else NOTHING
        values = answer(request) if callable(answer) else answer
        if isinstance(values, PricingResult):
            return values
        members = constants(*values) if len(values) else None
        blocks = np.zeros(len(values), np.int64)
        return PricingResult(members, blocks, np.full(len(values), -1))


def finite(*values: float) -> FinitePricer:
    return FinitePricer(start(*values))


def problem(pricer: Any, *rules: Requirement, target: float = 0.0, **more: Any) -> Problem:
    return Problem(about(target), rules, [pricer], Layout.single(1), **more)


def weights_by_value(ensemble: Ensemble) -> dict[float, Any]:
    """Weight of each constant member."""
    (part,) = ensemble.parts
    outputs = part.members.outputs(torch.zeros(1, 1, dtype=torch.float64))[:, 0, 0]
    return {
        float(value): pytest.approx(weight, abs=1e-9)
        for value, weight in zip(outputs, part.weights, strict=True)
    }


class TestProofs:
    def test_optimal_mixes_two_members_to_meet_a_rule_exactly(self) -> None:
        result = solve(problem(finite(0.0, 3.0, 5.0), at_least(1.0)), PLAIN)
        # cost per unit of value: 9 / 3 by the second member, 25 / 5 by the third
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective == pytest.approx(3.0, abs=1e-9)
        assert weights_by_value(result.ensemble) == {0.0: 2 / 3, 3.0: 1 / 3}
        assert result.gap == pytest.approx(0.0, abs=1e-9)
        assert result.feasible
        assert result.note == ""

    def test_a_bound_of_exactly_zero_counts(self) -> None:
        result = solve(problem(finite(0.0, 3.0)), PLAIN)
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.bound == 0.0

    def test_infeasible_is_proven_by_least_slack_and_returns_a_mixture(self) -> None:
        result = solve(problem(finite(0.0, 1.0), at_least(3.0)), PLAIN)
        assert result.stop_reason is StopReason.INFEASIBLE
        assert "total slack is at least 2" in result.note
        assert result.slack == pytest.approx(2.0)
        assert not result.feasible
        assert result.ensemble.predict([[0.0]]) == pytest.approx(1.0)

    def test_rows_that_only_a_higher_price_meets_take_the_slack_phase_and_come_back(self) -> None:
        # a unit of value costs 100, more than the penalty of 10 for lacking it
        result = solve(problem(finite(0.0, 100.0), at_least(100.0)), PLAIN)
        notes = [record.note for record in result.history]
        assert "rows unmet: minimising slack alone" in notes
        assert any(note.startswith("penalty raised to") for note in notes)
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective == pytest.approx(1e4)
        assert result.feasible

    def test_a_penalty_limit_too_low_to_meet_the_rows_is_named_and_no_proof(self) -> None:
        chosen = changed(penalty_limit=10.0, iteration_limit=30)
        result = solve(problem(finite(0.0, 100.0), at_least(100.0)), chosen)
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
        assert "raise penalty_limit" in result.note
        assert not result.feasible

    def test_the_margin_of_many_equations_does_not_make_them_infeasible(self) -> None:
        # 40 equations with a margin of 1e-8 on both sides lack 8e-7 in total, by design
        values = np.stack([np.zeros(40), np.full(40, 200.0)])
        candidates = [(ConstantMembers(values, 1), np.zeros(2, np.int64))]
        rule = Linear(np.zeros((40, 1)), np.eye(40), np.full(40, 150.0), "==")
        objective = Supervised(np.zeros((1, 1)), np.zeros((1, 40)))
        wide = Problem(objective, [rule], [FinitePricer(candidates)], Layout.single(40))
        result = solve(wide, Settings(final_weights="vertex"))
        assert any("minimising slack" in record.note for record in result.history)
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective == pytest.approx(0.75 * 40 * 200.0**2)

    def test_bounds_speak_of_the_rules_without_the_margin(self) -> None:
        chosen = changed(row_margin=1e-3)
        result = solve(problem(finite(0.0, 3.0), at_least(1.0)), chosen)
        assert result.objective == pytest.approx(3.003)
        assert result.bound == pytest.approx(3.0)
        assert result.gap == pytest.approx(0.003)
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN  # not within gap_tolerance

    def test_several_exact_pricers_bound_their_union_and_a_heuristic_none(self) -> None:
        base: dict[str, Any] = {"requirements": [at_least(1.0)], "layout": Layout.single(1)}
        both = Problem(about(0.0), pricers=[finite(0.0), finite(3.0)], **base)
        result = solve(both, PLAIN)
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective == pytest.approx(3.0)
        mixed = Problem(about(0.0), pricers=[finite(0.0, 3.0), Scripted()], **base)
        result = solve(mixed, PLAIN)
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
        assert result.bound is None


class TestLimits:
    def test_no_improving_column_after_patience(self) -> None:
        pricer = Scripted([2.0])
        result = solve(problem(pricer, target=2.0), changed(patience=3))
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
        assert [record.note for record in result.history] == [
            "",
            "no improving member, trying again",
            "no improving member, trying again",
            "no improving member",
        ]
        assert result.bound is None
        assert result.gap is None

    def test_what_pricers_note_is_in_the_iteration(self) -> None:
        none = np.empty(0, np.int64)
        diverged = PricingResult(None, none, none, note="4 of 4 trainings diverged")
        pricer = Scripted([2.0], lambda request: diverged)
        result = solve(problem(pricer, target=2.0), changed(patience=2))
        assert [record.note for record in result.history] == [
            "",
            "no improving member, trying again; 4 of 4 trainings diverged",
            "no improving member",
        ]

    def test_a_member_that_does_not_improve_is_not_admitted(self) -> None:
        result = solve(problem(Scripted([2.0], [3.0], [1.0]), target=2.0), PLAIN)
        assert result.columns == 1
        assert result.history[1].best_reduced_cost == pytest.approx(1.0)
        assert result.history[1].added_columns == 0

    def test_column_limit(self) -> None:
        pricer = Scripted([4.0], [3.0], [2.0], [1.0])
        result = solve(problem(pricer), changed(column_limit=2))
        assert result.stop_reason is StopReason.COLUMN_LIMIT
        assert result.columns == 2
        assert result.objective == pytest.approx(9.0)

    def test_of_more_members_than_fit_the_best_enter(self) -> None:
        result = solve(problem(Scripted([4.0, 1.0, 3.0, 2.0])), changed(column_limit=2))
        assert result.stop_reason is StopReason.COLUMN_LIMIT
        assert weights_by_value(result.ensemble) == {1.0: 1.0}
        assert result.columns == 2

    def test_a_group_without_room_stays_out_whole_and_ends_the_run(self) -> None:
        group = PricingResult(constants(1.0, 2.0), np.zeros(2, np.int64), np.zeros(2, np.int64))
        result = solve(problem(Scripted([4.0], lambda _: group)), changed(column_limit=2))
        assert result.stop_reason is StopReason.COLUMN_LIMIT
        assert result.columns == 1
        assert result.history[-1].best_reduced_cost == pytest.approx(2.5 - 16.0)

    def test_iteration_limit_returns_the_mixture_with_its_measured_violation(self) -> None:
        rules = Linear([[0.0], [1.0], [2.0]], [1.0], [3.0, 5.0, -1.0], name="floor")
        result = solve(problem(Scripted([2.0], [2.5]), rules), changed(iteration_limit=1))
        assert result.stop_reason is StopReason.ITERATION_LIMIT
        assert len(result.history) == 1
        (audit,) = result.audits
        assert not audit.holds
        assert audit.satisfied == 1
        assert audit.worst_violation == pytest.approx(3.0)
        np.testing.assert_array_equal(audit.violated, [1, 0])  # worst first
        np.testing.assert_allclose(audit.violations, [3.0, 1.0])
        assert audit.descriptions[0] == "floor: input 1, f0 >= 5"
        assert not result.feasible
        assert str(result).startswith("The rule is NOT kept.")

    def test_time_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def slow(request: PricingRequest) -> list[float]:
            now[0] += 3.0
            return [4.0 - request.iteration]

        result = solve(problem(Scripted(slow, slow, slow)), changed(time_limit_s=2.0))
        assert result.stop_reason is StopReason.TIME_LIMIT
        assert len(result.history) == 1
        assert result.seconds == 3.0

    def test_of_two_limits_the_one_that_cut_training_short_is_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: now[0])

        def slow(request: PricingRequest) -> list[float]:
            now[0] += 3.0
            return [4.0 - request.iteration]

        def stopped(time_limit_s: float) -> StopReason:
            limits = changed(time_limit_s=time_limit_s, iteration_limit=1)
            return solve(problem(Scripted(slow)), limits).stop_reason

        assert stopped(2.0) is StopReason.TIME_LIMIT
        # here only a second iteration would have been too long, and none was allowed
        assert stopped(5.0) is StopReason.ITERATION_LIMIT

    def test_a_stalled_objective_ends_the_run_where_asked(self) -> None:
        def shrinking(request: PricingRequest) -> list[float]:
            return [1.0 + 0.1 ** (request.iteration + 1)]

        pricer = Scripted(*[shrinking] * 20)
        chosen = changed(improvement_tolerance=0.01, improvement_window=2, epsilon=1e-9)
        result = solve(problem(pricer), chosen)
        assert result.stop_reason is StopReason.STALLED
        fell = result.history[-3].objective - result.history[-1].objective
        assert 0 < fell < 0.01

    def test_as_many_rounds_of_training_as_asked_for(self) -> None:
        def shrinking(request: PricingRequest) -> list[float]:
            return [1.0 + 0.1 ** (request.iteration + 1)]

        result = solve(problem(Scripted(*[shrinking] * 20)), changed(training_rounds=2))
        assert result.stop_reason is StopReason.ROUND_LIMIT
        assert sum(bool(one.trainings) for one in result.history) == 2

    def test_without_any_member_there_is_a_clear_error(self) -> None:
        with raises(SolverFailure, "solver-status", "member"):
            solve(problem(Scripted()), PLAIN)

    def test_a_block_without_members_is_no_mixture_either(self) -> None:
        first_block = PricingResult(constants(1.0), np.array([0]), np.array([-1]))
        two = Problem(
            Supervised(np.zeros((1, 1)), np.zeros((1, 2))),
            [],
            [Scripted(lambda _: first_block)],
            Layout((np.array([0]), np.array([1]))),
        )
        with raises(SolverFailure, "solver-status", "member"):
            solve(two, PLAIN)


class TestInterrupts:
    def test_ctrl_c_while_pricing_keeps_what_was_reached(self) -> None:
        def interrupted(request: PricingRequest) -> list[float]:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached: training ends at once")

        before = signal.getsignal(signal.SIGINT)
        result = solve(problem(Scripted([2.0], interrupted, [1.0])), PLAIN)
        assert result.stop_reason is StopReason.INTERRUPTED
        assert result.columns == 1
        assert len(result.history) == 1
        assert signal.getsignal(signal.SIGINT) is before

    def test_ctrl_c_between_steps_ends_the_run_after_the_iteration(self) -> None:
        pricer = Scripted([2.0], [1.0])
        result = solve(
            problem(pricer), PLAIN, progress=lambda _: signal.raise_signal(signal.SIGINT)
        )
        assert result.stop_reason is StopReason.INTERRUPTED
        assert len(pricer.requests) == 1

    def test_ctrl_c_before_the_first_member_is_a_clear_error(self) -> None:
        def interrupted(request: PricingRequest) -> list[float]:
            signal.raise_signal(signal.SIGINT)
            return []

        with raises(Cg4aiError, "interrupted") as caught:
            solve(problem(Scripted(interrupted)), PLAIN)
        assert isinstance(caught.value, KeyboardInterrupt)

    def test_ctrl_c_during_the_last_separation_returns_the_mixture(self) -> None:
        separator = EndPoints(interrupt_at=2)
        rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=separator)
        chosen = changed(iteration_limit=1)
        result = solve(problem(Scripted([2.0]), rule, start=start(3.0)), chosen)
        assert result.stop_reason is StopReason.INTERRUPTED
        assert result.columns == 2


class TestGuidance:
    """Members are proposed by smoothed duals, and by the true ones where those mislead."""

    rules = (at_least(1.0), at_least(-5.0, where=1.0))

    def test_a_misguided_proposal_falls_back_to_the_true_duals(self) -> None:
        def astray(request: PricingRequest) -> list[float]:
            right = np.array_equal(request.guide, request.duals.rows)
            return [1.0] if right else [50.0]

        pricer = Scripted([0.0], astray, astray)
        result = solve(problem(pricer, *self.rules), changed(smoothing=0.5))
        assert len(pricer.requests) >= 3
        first, second = pricer.requests[1:3]
        assert first.iteration == second.iteration == 1
        # rows have duals (10, 0): a tenth is spread evenly
        np.testing.assert_allclose(first.guide, [9.5, 0.5])
        np.testing.assert_allclose(second.guide, second.duals.rows)
        assert first.seed != second.seed
        assert result.history[1].added_columns == 1
        assert result.feasible

    def test_without_smoothing_nothing_is_tried_twice(self) -> None:
        pricer = Scripted([0.0])
        solve(problem(pricer, *self.rules), changed(penalty_limit=10.0))
        iterations = [request.iteration for request in pricer.requests]
        assert iterations == sorted(set(iterations))

    def test_earlier_duals_stay_in_the_guide(self) -> None:
        pricer = Scripted([0.0], [1.0])
        solve(problem(pricer, self.rules[0]), changed(smoothing=0.5))
        duals = [r.duals.rows[0] for r in pricer.requests]
        guides = {r.iteration: r.guide[0] for r in pricer.requests[:3]}
        assert duals[1] == pytest.approx(10.0)
        assert guides[1] == pytest.approx(10.0)  # the first prices are taken as they are
        assert guides[2] == pytest.approx(0.5 * 10.0 + 0.5 * duals[2])

    def test_the_request_tells_what_the_mixture_is(self) -> None:
        pricer = Scripted([0.0])
        chosen = problem(pricer, *self.rules)
        solve(chosen, PLAIN)
        assert pricer.requests[0].ensemble is None
        assert pricer.requests[1].ensemble is not None
        assert len(pricer.requests[1].rows) == 2
        assert pricer.requests[1].loss_weight == 1.0

    def test_an_exact_pricer_misled_by_the_guide_is_asked_again(self) -> None:
        class Guided(FinitePricer):
            def price(self, request: PricingRequest) -> PricingResult:
                answer = super().price(request)
                if np.array_equal(request.guide, request.duals.rows):
                    return answer
                return PricingResult(None, np.empty(0, int), np.empty(0, int), answer.lower_bound)

        pricer = Guided(start(0.0, 1.0))
        result = solve(problem(pricer, *self.rules), changed(smoothing=0.5))
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective == pytest.approx(1.0)


class TestPenalties:
    def test_the_penalty_grows_while_rows_are_unmet_and_nothing_improves(self) -> None:
        pricer = Scripted()
        chosen = problem(pricer, at_least(100.0), start=start(0.0, 100.0))
        result = solve(chosen, PLAIN)
        # lacking a unit costs the penalty, having it costs 100
        assert [record.penalty for record in result.history[:3]] == [100.0, 1000.0, 1000.0]
        assert result.history[0].note == "rows unmet: penalty raised to 100"
        assert result.feasible
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN

    def test_rows_that_stay_unmet_are_never_called_satisfied(self) -> None:
        result = solve(problem(Scripted([1.0]), at_least(2.0)), changed(penalty_limit=100.0))
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
        assert result.history[-1].penalty == 100.0
        assert result.slack == pytest.approx(1.0)
        assert not result.feasible
        assert result.audits[0].satisfied == 0

    def test_weight_on_the_whole_dummy_column_is_noted(self) -> None:
        chosen = changed(iteration_limit=1, penalty_limit=10.0)
        result = solve(problem(Scripted(), start=start(1000.0, 3000.0)), chosen)
        assert "block 0 had weight 1 on the dummy column" in result.note
        assert "averaged" in result.note
        assert result.ensemble.predict([[0.0]]) == pytest.approx(2000.0)

    def test_part_of_the_weight_on_the_dummy_column_is_noted_and_the_violation_measured(
        self,
    ) -> None:
        ceiling = Linear([[0.0]], [1.0], 5000.0, "<=")
        chosen = changed(iteration_limit=1, penalty_limit=10.0)
        result = solve(problem(Scripted(), ceiling, target=1e4, start=start(1e4)), chosen)
        assert "block 0 had weight 0.5 on the dummy column" in result.note
        assert "renormalised" in result.note
        assert not result.feasible
        assert result.audits[0].worst_violation == pytest.approx(5000.0)


class EndPoints(SeparatorDefaults):
    """Exact for members that are affine in one input: looks at both ends of a Box."""

    def __init__(self, log: list[str] | None = None, interrupt_at: int | None = None) -> None:
        self.log = [] if log is None else log
        self.interrupt_at = interrupt_at
        self.calls = 0

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        self.log.append("separate")
        self.calls += 1
        if self.calls == self.interrupt_at:
            signal.raise_signal(signal.SIGINT)
        lower, upper = requirement.region.bounds()  # type: ignore[union-attr]
        ends = np.stack([lower, upper])
        x = torch.as_tensor(ends)
        violations = requirement.violations(x, ensemble.outputs(x)).numpy()[:, 0]
        order = np.argsort(-violations)
        order = order[violations[order] > tolerance][:limit]
        rows = requirement.rows_at(ends[order], np.zeros(len(order), int), -1)
        effort = {"search": "ends"}
        return SeparationResult(
            rows if len(order) else None, violations[order], float(violations.max()), effort
        )


def lines(*slopes_and_offsets: tuple[float, float]) -> PricingResult:
    """Affine members with one input and one output."""
    table = np.array(slopes_and_offsets)
    members = affine(table[:, :1, None], table[:, 1:])
    return PricingResult(members, np.zeros(len(table), int), np.full(len(table), -1))


class TestCuts:
    """f(x) >= 0 for all x in [0, 1]; the data want f(0) = 1."""

    def run(self, cuts: str, *answers: Any, **settings: Any) -> tuple[Any, list[str]]:
        log: list[str] = []

        def logged(answer: Any) -> Callable[[PricingRequest], Any]:
            def price(request: PricingRequest) -> Any:
                log.append("price")
                return answer

            return price

        rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=EndPoints(log))
        pricer = Scripted(*[logged(answer) for answer in answers])
        result = solve(
            problem(pricer, rule, target=1.0), changed(cuts=cuts, patience=1, **settings)
        )
        return result, log

    def test_before_pricing_the_mixture_is_separated_until_nothing_is_violated(self) -> None:
        # the first member is perfect on the data and violates x = 1; the second repairs it
        result, log = self.run("before", lines((-3.0, 1.0)), lines((1.0, 2.0)), [])
        assert log[:4] == ["price", "separate", "separate", "price"]
        assert result.history[1].worst_violation == pytest.approx(2.0)
        assert result.history[1].added_rows == 1
        assert result.rows == 1
        assert result.feasible
        assert result.ensemble.predict([[1.0]]) == pytest.approx(0.0, abs=1e-9)
        # cost 0 on the first, 1 on the second: -2 w + 3 (1 - w) = 0
        assert result.objective == pytest.approx(0.4)

    def test_after_column_generation_has_converged(self) -> None:
        """Algorithm 2 as printed: separate only when pricing finds nothing, then start over."""
        result, log = self.run("after", lines((-3.0, 1.0)), [], lines((1.0, 2.0)), [])
        assert log[:4] == ["price", "price", "separate", "price"]
        assert result.history[0].worst_violation is None
        assert result.history[1].note == "1 cuts"
        assert result.feasible
        assert result.objective == pytest.approx(0.4)
        assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN

    def test_cut_rounds_limit_the_separations_before_pricing(self) -> None:
        members = lines((-3.0, 1.0), (1.0, -2.0), (0.0, 9.0))
        _, log = self.run("before", members, lines((0.0, 8.0)), cut_rounds=1)
        assert log[:3] == ["price", "separate", "price"]

    def test_a_region_may_share_one_slack(self) -> None:
        result, _ = self.run("before", lines((-3.0, 1.0)), penalty_limit=10.0)
        assert result.slack == pytest.approx(2.0)
        assert not result.feasible
        assert result.audits[0].strength == "attacked"

    def test_an_exact_pricer_is_optimal_only_with_every_violated_input_a_row(self) -> None:
        for cuts in ("before", "after"):
            own = lines((-3.0, 1.0), (1.0, 2.0), (3.0, 0.0))
            assert own.members is not None
            pricer = FinitePricer([(own.members, own.blocks)])
            rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=EndPoints())
            result = solve(problem(pricer, rule, target=1.0), changed(cuts=cuts, cut_rounds=1))
            assert result.stop_reason is StopReason.OPTIMAL
            assert result.objective == pytest.approx(0.4)
            assert result.gap == pytest.approx(0.0, abs=1e-6)
            assert result.feasible

    def test_rows_met_while_training_become_cuts(self) -> None:
        rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=EndPoints())
        met = rule.rows_at(np.array([[0.25], [0.75]]), np.zeros(2, int), 0)
        first = replace(lines((-3.0, 1.0)), rows=(met,))
        pricer = Scripted(lambda _: first, lambda _: replace(lines((1.0, 2.0)), rows=(met,)))
        result = solve(problem(pricer, rule, target=1.0), changed(patience=1))
        assert result.history[0].added_rows == 2
        assert result.rows == 3  # the end at 1 besides, and none of them twice
        assert result.feasible

    def test_rows_met_by_an_exact_pricer_leave_its_proof_in_order(self) -> None:
        rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=EndPoints())
        met = rule.rows_at(np.array([[1.0]]), np.zeros(1, int), 0)

        class Meeting(FinitePricer):
            def price(self, request: PricingRequest) -> PricingResult:
                return replace(super().price(request), rows=(met,))

        own = lines((-3.0, 1.0), (1.0, 2.0)).members
        assert own is not None
        pricer = Meeting([(own, np.zeros(2, int))])
        result = solve(problem(pricer, rule, target=1.0), PLAIN)
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.objective == pytest.approx(0.4)

    def test_final_weights_are_separated_again(self) -> None:
        log: list[str] = []
        rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=EndPoints(log))
        members = lines((0.0, 1.0), (-3.0, 0.0)).members
        assert members is not None
        chosen = problem(Scripted(), rule, target=1.0, start=[(members, np.zeros(2, int))])
        result = solve(chosen, changed(final_weights="uniform"))
        # the master takes the first member alone, which violates nothing; equal weights do
        (part,) = result.ensemble.parts
        np.testing.assert_allclose(part.weights, [0.75, 0.25], atol=1e-6)
        assert result.rows == 1
        assert result.feasible
        none = solve(chosen, changed(final_weights="uniform", final_rounds=0))
        np.testing.assert_allclose(none.ensemble.parts[0].weights, [0.5, 0.5], atol=1e-6)
        assert not none.feasible

    def test_final_weights_that_need_new_members_send_the_loop_back(self) -> None:
        rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=EndPoints())
        members = lines((-3.0, 1.0), (10.0, -5.0)).members
        assert members is not None
        pricer = Scripted(NOTHING, lambda _: lines((0.0, 0.5)))
        chosen = problem(pricer, rule, target=1.0, start=[(members, np.zeros(2, int))])
        # the one cut allowed before pricing, x = 1, makes the mixture violate x = 0
        result = solve(chosen, changed(patience=1, cut_rounds=1))
        assert result.history[0].note == "the final weights violate new rows"
        assert result.history[1].added_columns == 1
        assert result.rows == 2
        assert result.feasible


class TestObjectives:
    def test_a_loss_that_is_not_convex_keeps_the_weights_of_the_average(self) -> None:
        def bent(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return torch.sin(outputs[..., 0]) + 1.0

        objective = Supervised(np.zeros((1, 1)), np.zeros((1, 1)), loss=bent)
        ceiling = Linear([[0.0]], [1.0], 2.0, "<=")
        chosen = Problem(objective, [ceiling], [finite(0.5, 1.5, 4.0)], Layout.single(1))
        result = solve(chosen, changed(final_weights="loss"))
        assert "kept the master's weights" in result.note
        assert result.stop_reason is StopReason.OPTIMAL

    def test_the_mixture_objective_may_start_from_nothing(self) -> None:
        chosen = Problem(
            about(1.0, kind="mixture"), [at_least(2.0)], [finite(0.0, 3.0)], Layout.single(1)
        )
        result = solve(chosen, PLAIN)
        assert result.history[0].objective == np.inf
        assert result.history[0].bound is None
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.loss == pytest.approx(1.0)
        assert result.bound == pytest.approx(1.0, abs=1e-6)

    def test_blocks_whose_members_come_from_different_pricers_all_get_their_turn(self) -> None:
        kinds: list[tuple[Members, np.ndarray]] = [
            (constants(5.0, 1.0), np.array([0, 0])),
            (affine(np.zeros((1, 1, 1)), np.array([[2.0]])), np.array([1])),
        ]
        chosen = Problem(
            Supervised(np.zeros((1, 1)), np.ones((1, 2)), kind="mixture"),
            [],
            [FinitePricer(kinds)],
            Layout((np.array([0]), np.array([1]))),
        )
        result = solve(chosen, changed(iteration_limit=20))
        assert result.stop_reason is StopReason.OPTIMAL
        assert result.loss == pytest.approx(1.0)


def test_history_and_progress_tell_of_every_iteration() -> None:
    seen: list[Any] = []
    result = solve(problem(Scripted([2.0], [1.0])), PLAIN, progress=seen.append)
    assert seen == list(result.history)
    assert [record.iteration for record in seen] == list(range(len(seen)))
    assert [record.columns for record in seen[:3]] == [1, 2, 2]
    assert seen[1].objective == pytest.approx(4.0)
    assert seen[2].objective == pytest.approx(1.0)
