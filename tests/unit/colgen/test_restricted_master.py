"""The restricted master kept in step with members and rows: admission, pieces, mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cg4ai import Problem, Settings
from cg4ai.colgen.columns import Columns
from cg4ai.colgen.final_weights import choose_final_weights
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.reduced_cost import compute_all_values, compute_block_outputs
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.errors import InvalidInput, SolverFailure
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, affine
from cg4ai.objectives import Epigraph, Supervised
from cg4ai.protocols import MemberDefaults
from cg4ai.records import Array, Duals, IntArray, MasterSolution, PricingResult
from cg4ai.rules import Box, Linear, Margin
from cg4ai.rules.rows import LinearRows
from raising import raises

PLAIN = Settings(row_margin=0.0, final_weights="vertex")
TWO = Layout((np.array([1]), np.array([0])))


def constants(values: Any) -> ConstantMembers:
    table = np.array(values, float)
    return ConstantMembers(table.reshape(len(table), -1), 1)


def never() -> FinitePricer:
    return FinitePricer([(constants([0.0]), np.zeros(1, int))])


def one_block(*rules: Any, target: float = 0.0, kind: Any = "average", **more: Any) -> Problem:
    objective = Supervised(np.zeros((1, 1)), np.full((1, 1), target), kind=kind)
    return Problem(objective, rules, [never()], Layout.single(1), **more)


def two_blocks(*rules: Any, targets: Any = ((0.0, 0.0),)) -> Problem:
    objective = Supervised(np.zeros((1, 1)), np.array(targets))
    return Problem(objective, rules, [never()], TWO)


def workspace(problem: Problem, **settings: Any) -> Workspace:
    work = Workspace(
        CompiledProblem.from_problem(problem), Settings(**(PLAIN.as_dict() | settings))
    )
    work.start()
    return work


def proposal(values: Any, blocks: Any, groups: Any, bound: Array | None = None) -> PricingResult:
    return PricingResult(constants(values), np.array(blocks), np.array(groups), bound)


def priced(work: Workspace, *, blocks: Any) -> MasterSolution:
    """A solution with given block duals and no row duals."""
    duals = Duals(np.zeros(len(work.rows)), np.array(blocks, float))
    nothing = np.zeros(0)
    return MasterSolution(nothing, duals, 0.0, 0.0, nothing, np.ones(1))


class TestAdmission:
    """Costs are squared values, so with row duals 0 a reduced cost is value^2 - gamma."""

    def test_members_on_their_own_enter_by_their_own_reduced_cost(self) -> None:
        work = workspace(one_block())
        solution = priced(work, blocks=[4.0])
        proposed = proposal([1.0, 3.0, 1.5, 2.0], [0] * 4, [-1] * 4)
        entered = work.admit(proposed, solution, charge_loss=True)
        assert entered.count == 2
        assert entered.best == pytest.approx(1.0 - 4.0)
        assert work.columns.outputs(np.zeros((1, 1)))[:, 0, 0].tolist() == [1.0, 1.5]

    def test_a_group_enters_whole_if_its_mean_improves(self) -> None:
        work = workspace(one_block())
        # reduced costs -3, 5 and -3: their mean is below zero although one is not
        entered = work.admit(
            proposal([1.0, 3.0, 1.0], [0] * 3, [0] * 3),
            priced(work, blocks=[4.0]),
            charge_loss=True,
        )
        assert entered.count == 3
        assert entered.best == pytest.approx(-1 / 3)

    def test_a_group_stays_out_whole_if_its_mean_does_not(self) -> None:
        work = workspace(one_block())
        entered = work.admit(
            proposal([1.0, 3.0], [0] * 2, [0] * 2), priced(work, blocks=[4.0]), charge_loss=True
        )
        assert entered.count == 0
        assert entered.best == pytest.approx(1.0)
        assert len(work.columns) == 0

    def test_over_several_blocks_the_sum_of_the_means_decides(self) -> None:
        # block 0: mean of 9 and 1 minus 1 is +4; block 1: 1 minus 6 is -5; together -1
        proposed = proposal([3.0, 1.0, 1.0], [0, 0, 1], [7, 7, 7])
        work = workspace(two_blocks())
        entered = work.admit(proposed, priced(work, blocks=[1.0, 6.0]), charge_loss=True)
        assert entered.count == 3
        assert entered.best == pytest.approx(-1.0)
        work = workspace(two_blocks())
        entered = work.admit(proposed, priced(work, blocks=[1.0, 4.0]), charge_loss=True)
        assert entered.count == 0
        assert entered.best == pytest.approx(1.0)

    def test_the_column_limit_keeps_groups_whole(self) -> None:
        work = workspace(one_block(), column_limit=3)
        proposed = proposal([1.0, 1.0, 0.5, 0.5, 1.2], [0] * 5, [0, 0, 1, 1, -1])
        entered = work.admit(proposed, priced(work, blocks=[4.0]), charge_loss=True)
        # the second group is the best, the first has no room, the last member has
        assert entered.count == 3
        outputs = work.columns.outputs(np.zeros((1, 1)))[:, 0, 0]
        assert outputs.tolist() == pytest.approx([0.5, 0.5, 1.2])

    def test_improvements_below_epsilon_count_only_where_a_bound_makes_them_worth_it(self) -> None:
        value = np.sqrt(4.0 - 1e-6)
        for bound, expected in ((None, 0), (np.array([-1e-6]), 1)):
            work = workspace(one_block(), epsilon=1e-4)
            proposed = proposal([value], [0], [-1], bound)
            entered = work.admit(proposed, priced(work, blocks=[4.0]), charge_loss=True)
            assert entered.count == expected

    def test_in_the_slack_phase_members_cost_nothing(self) -> None:
        work = workspace(one_block(Linear([[0.0]], [1.0], 5.0)))
        duals = Duals(np.array([1.0]), np.array([2.0]))
        nothing = np.zeros(0)
        solution = MasterSolution(nothing, duals, 0.0, 0.0, nothing, np.ones(1))
        entered = work.admit(proposal([100.0], [0], [-1]), solution, charge_loss=False)
        assert entered.best == pytest.approx(-102.0)

    def test_what_does_not_fit_is_refused(self) -> None:
        work = workspace(two_blocks())
        solution = priced(work, blocks=[1.0, 1.0])
        with raises(InvalidInput, "range", "block 2"):
            work.admit(proposal([1.0], [2], [-1]), solution, charge_loss=True)
        wide = PricingResult(ConstantMembers([[1.0]], 3), np.zeros(1, int), np.full(1, -1))
        with raises(InvalidInput, "shape"):
            work.admit(wide, solution, charge_loss=True)
        narrow = Problem(
            Supervised(np.zeros((1, 1)), np.zeros((1, 3))), [], [never()], Layout.single(3)
        )
        other = workspace(narrow)
        with raises(InvalidInput, "shape", "block 0"):
            other.admit(proposal([1.0], [0], [-1]), priced(other, blocks=[1.0]), charge_loss=True)

    def test_members_whose_values_are_no_numbers_never_improve(self) -> None:
        class Broken(MemberDefaults):
            kind = "broken"
            input_size, output_size, differentiable = 1, 1, True
            device = torch.device("cpu")

            def __len__(self) -> int:
                return 1

            def outputs(self, inputs: Tensor) -> Tensor:
                return torch.full((1, len(inputs), 1), torch.nan, dtype=torch.float64)

            def take(self, indices: IntArray) -> Broken:
                return self

            def state(self) -> Any:
                raise NotImplementedError

            def to(self, device: Any) -> Broken:
                return self

        work = workspace(one_block())
        broken = PricingResult(Broken(), np.zeros(1, int), np.full(1, -1))
        entered = work.admit(broken, priced(work, blocks=[4.0]), charge_loss=True)
        assert entered.count == 0
        assert entered.best == np.inf


class TestRows:
    def test_listed_rows_are_there_from_the_start_and_regions_are_not(self) -> None:
        listed = Linear([[0.0], [1.0]], [1.0], 0.5)
        region = Linear(Box([0.0], [1.0]), [1.0], 0.0)
        known = region.rows_at(np.array([[0.3]]), np.zeros(1, int), 1)
        work = workspace(one_block(listed, region, start_rows=[known]))
        assert len(work.rows) == 3
        assert work.add_cuts(known) == 0  # it is there already
        close = region.rows_at(np.array([[0.3 + 1e-12], [0.4]]), np.zeros(2, int), 1)
        assert work.add_cuts(close) == 1
        assert len(work.rows) == 4

    def test_rules_at_the_same_input_are_different_rows(self) -> None:
        both = Linear(Box([0.0], [1.0]), [[1.0], [-1.0]], [0.0, -5.0])
        work = workspace(one_block(both))
        assert work.add_cuts(both.rows_at(np.full((2, 1), 0.5), np.array([0, 1]), 0)) == 2

    def test_start_rows_of_no_requirement_are_refused(self) -> None:
        row = LinearRows(1, np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1), np.zeros(1, int))
        with raises(InvalidInput, "range"):
            one_block(Linear([[0.0]], [1.0], 0.0), start_rows=[row])

    def test_means_of_the_members_own_margins_need_one_block(self) -> None:
        rule = Margin([[0.0]], [1], 0.1, form="member")
        with pytest.raises(InvalidInput):
            workspace(two_blocks(rule))

    def test_the_margin_is_asked_for_on_top(self) -> None:
        rule = Linear([[0.0]], [1.0], 1.0)
        problem = one_block(rule, start=[(constants([0.0, 3.0]), np.zeros(2, int))])
        work = workspace(problem, row_margin=0.25)
        assert float(work.solve_master().weights @ [0.0, 3.0]) == pytest.approx(1.25)

    def test_start_members_that_do_not_fit_are_refused(self) -> None:
        with raises(InvalidInput, "shape"):
            one_block(start=[(ConstantMembers([[1.0]], 2), np.zeros(1, int))])
        with raises(InvalidInput, "shape"):
            one_block(start=[(constants([1.0]), np.zeros(2, int))])
        with raises(InvalidInput, "empty"):
            Problem(one_block().objective, [], [], Layout.single(1))


class Either:
    """The output and minus the output."""

    count = 2

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return torch.cat([outputs, -outputs], dim=-1)

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        return np.where(which == 0, 1.0, -1.0)[:, None]


class TestEpigraph:
    def problem(self) -> Problem:
        """Mean of |f| over three scenarios."""
        inputs = np.array([[-1.0], [0.0], [2.0]])
        members = affine(np.array([[[1.0]], [[-1.0]], [[0.0]]]), np.array([[0.0], [0.0], [3.0]]))
        return Problem(
            Epigraph(inputs, Either()),
            [Linear([[1.0]], [1.0], 0.5)],
            [never()],
            Layout.single(1),
            start=[(members, np.zeros(3, int))],
        )

    def test_pieces_enter_until_none_is_missing(self) -> None:
        work = workspace(self.problem())
        solution = work.solve_master()
        assert not work.incomplete
        outputs = work.columns.outputs(np.array([[-1.0], [0.0], [2.0]]))[..., 0].numpy()
        mixture = solution.weights @ outputs
        assert solution.objective == pytest.approx(np.abs(mixture).mean())
        # f(x) = a x + c with a + c >= 0.5: least at a = c = 1/4, with |f| = 0, 1/4 and 3/4
        assert solution.objective == pytest.approx(1 / 3)

    def test_more_pieces_than_one_solve_adds_are_owned_up_to(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cg4ai.colgen.restricted_master.EPIGRAPH_ROUNDS", 1)
        work = workspace(self.problem())
        first = work.solve_master()
        assert work.incomplete
        solves = 1
        while work.incomplete:
            last = work.solve_master()
            solves += 1
        assert solves > 1
        assert first.objective < last.objective == pytest.approx(1 / 3)

    def test_only_rows_of_requirements_are_rules(self) -> None:
        work = workspace(self.problem())
        work.solve_master()
        ruled = work.requirement_rows()
        assert ruled[0]
        assert not ruled[1:].any()
        assert len(ruled) == len(work.rows) > 1


class TestMixtures:
    def test_blocks_without_weight_share_it_evenly(self) -> None:
        problem = two_blocks()
        work = workspace(problem)
        work.add_columns(constants([1.0, 2.0, 5.0]), np.array([0, 0, 1]))
        ensemble = work.whole_ensemble(np.array([0.0, 0.0, 0.5]))
        # block 0 fills output 1, block 1 output 0
        np.testing.assert_allclose(ensemble.predict([[0.0]]), [[5.0, 1.5]])
        assert work.columns.ensemble(np.array([0.0, 0.0, 0.5])) is None

    def test_without_members_there_is_none(self) -> None:
        work = workspace(two_blocks())
        work.add_columns(constants([1.0]), np.array([0]))
        assert not work.every_block_has_members
        with raises(SolverFailure, "solver-status", "member"):
            work.whole_ensemble(np.ones(1))

    @pytest.mark.parametrize(
        ("choice", "expected"), [("vertex", [1, 0]), ("uniform", [0.6, 0.4]), ("loss", [0.8, 0.2])]
    )
    def test_final_weights(self, choice: str, expected: list[float]) -> None:
        # costs 1 and 16 around the target 1; the mixture is 5 - 5 w; the rule wants w >= 0.6
        ceiling = Linear([[0.0]], [1.0], 2.0, "<=")
        start = [(constants([0.0, 5.0]), np.zeros(2, int))]
        work = workspace(one_block(ceiling, target=1.0, start=start), final_weights=choice)
        weights = choose_final_weights(work, work.solve_master())
        np.testing.assert_allclose(weights, expected, atol=1e-6)

    def test_true_loss_is_that_of_the_mixture(self) -> None:
        start = [(constants([0.0, 2.0]), np.zeros(2, int))]
        work = workspace(one_block(target=1.0, start=start))
        assert work.compute_true_loss(work.whole_ensemble(np.array([0.5, 0.5]))) == pytest.approx(
            0.0
        )


class TestColumns:
    layout = Layout((np.array([2, 0]), np.array([1])))
    x = np.array([[0.5], [-1.0]])

    def columns(self) -> Columns:
        """Constants in two calls around an affine stack; blocks mixed."""
        columns = Columns(self.layout, "cpu")
        columns.add(ConstantMembers([[1.0, 2.0], [3.0, 4.0]], 1), np.array([0, 1]))
        columns.add(affine([[[1.0, 10.0]]], [[0.0, 1.0]]), np.array([0]))
        columns.add(ConstantMembers([[7.0, 8.0]], 1), np.array([1]))
        return columns

    def expected(self) -> Array:
        """(4, 2, 3): block 0 fills outputs 2 and 0, block 1 output 1; surplus is dropped."""
        result = np.zeros((4, 2, 3))
        result[0, :, 2], result[0, :, 0] = 1.0, 2.0
        result[1, :, 1] = 3.0
        result[2, :, 2], result[2, :, 0] = self.x[:, 0], 10 * self.x[:, 0] + 1
        result[3, :, 1] = 7.0
        return result

    def test_members_of_one_kind_share_a_stack_and_keep_their_numbers(self) -> None:
        columns = self.columns()
        assert len(columns) == 4
        assert len(columns.stacks) == 2
        np.testing.assert_array_equal(columns.blocks, [0, 1, 0, 1])
        np.testing.assert_allclose(columns.outputs(self.x).numpy(), self.expected())

    def test_coefficients_of_new_rows_agree_with_the_outputs(self) -> None:
        rng = np.random.default_rng(0)
        rows = LinearRows(
            0, self.x, rng.normal(size=(3, 3)), np.zeros(3), index=np.array([0, 1, 1])
        )
        table = np.einsum("mjr,jr->jm", self.expected()[:, rows.index], rows.coefficients)
        np.testing.assert_allclose(self.columns().coefficients(rows), table)

    def test_many_members_are_evaluated_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cg4ai.colgen.pricing.reduced_cost.CHUNK", 5)
        self.test_coefficients_of_new_rows_agree_with_the_outputs()

    def test_the_mixture_renormalises_each_block(self) -> None:
        weights = np.array([0.2, 0.0, 0.2, 0.4])
        ensemble = self.columns().ensemble(weights)
        assert ensemble is not None
        assert len(ensemble) == 3
        expected = np.einsum("m,mkr->kr", [0.5, 0.0, 0.5, 1.0], self.expected())
        np.testing.assert_allclose(ensemble.predict(self.x), expected)

    def test_block_outputs_and_values_of_candidates(self) -> None:
        members = ConstantMembers([[1.0, 2.0], [3.0, 4.0]], 1)
        blocks = np.array([0, 1])
        outputs = compute_block_outputs(self.x, self.layout, members, blocks, "cpu")
        np.testing.assert_allclose(outputs.numpy(), self.expected()[:2])
        problem = two_blocks()
        empty = workspace(problem).rows
        assert compute_all_values(empty, constants([1.0]), np.zeros(1, int), "cpu").shape == (0, 1)
