"""How far from optimal a run says it is: proven, estimated, or neither."""

import signal
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from cg4ai import Problem, Settings, solve
from cg4ai.colgen import gap_estimate as estimating
from cg4ai.colgen.loop import patch
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.probes import Probe
from cg4ai.colgen.pricing.reduced_cost import compute_reduced_costs
from cg4ai.colgen.result import Result
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.layout import Layout
from cg4ai.members import NetworkMembers, affine
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, Pricer, PricingRequest
from cg4ai.records import GapEstimate, PricingResult
from cg4ai.rules import Linear
from cg4ai.runs.folder import Run


class Unproven(PricerDefaults):
    """A finite class, priced exactly by one who does not say so.

    As training does, it proposes a member where none improves, too; an idle one then does not.
    """

    def __init__(self, inner: FinitePricer, spare: NetworkMembers | None) -> None:
        self.exact, self.spare = inner, spare

    def price(self, request: PricingRequest) -> PricingResult:
        found = self.exact.price(request)
        if found.members is None and self.spare is not None:
            return PricingResult(self.spare, np.zeros(1, np.int64), np.full(1, -1))
        return PricingResult(found.members, found.blocks, found.groups)


def line_problem(proves: bool, *, idle: bool = False) -> Problem:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(30, 2))
    members = affine(rng.normal(size=(60, 2, 1)), rng.normal(size=(60, 1)))
    pricer = FinitePricer([(members, np.zeros(60, np.int64))], per_call=1)
    return Problem(
        Supervised(inputs, inputs.sum(1, keepdims=True), "squared", "mixture"),
        [Linear(inputs[:2], [1.0], 0.5, "<=", name="low")],
        [pricer if proves else Unproven(pricer, None if idle else members.take(np.zeros(1, int)))],
        Layout.single(1),
    )


@pytest.mark.parametrize("iterations", [3, 4, 5])
def test_an_estimate_by_the_least_reduced_costs_is_the_bound_they_would_prove(iterations):
    settings = Settings(iteration_limit=iterations, smoothing=0.0)
    optimum = solve(line_problem(True)).objective
    found = solve(line_problem(False), settings)
    assert found.gap is None
    assert found.estimate is not None
    assert found.estimate <= optimum + 1e-9
    assert found.estimated_gap == pytest.approx(found.objective - found.estimate)
    assert "estimate" in found.distance


def test_a_proven_gap_needs_no_estimate():
    result = solve(line_problem(True))
    assert result.gap is not None
    assert result.estimated_gap is None
    assert "(proven)" in result.distance
    assert "estimate" not in result.distance


def test_where_training_finds_nothing_the_estimate_is_zero_and_no_proof():
    result = solve(line_problem(False))
    assert result.estimated_gap == pytest.approx(0, abs=1e-5)
    assert "proven" not in result.distance


def test_where_nothing_was_trained_at_the_end_the_least_loss_is_all_that_is_said():
    result = solve(line_problem(False, idle=True))
    assert result.estimated_gap is None
    assert result.distance == (
        f"at most {result.objective:.2g} (proven: no mixture is below 0); "
        "not estimated more closely: nothing was trained at the final duals"
    )


# ---- restarts at the final duals -----------------------------------------------------------------


class Drawing(PricerDefaults):
    """Knows a finite class, and looks at as many of its members as it has restarts.

    For the run it proposes the best one of the first `few`.
    """

    def __init__(self, members: NetworkMembers, few: int, seen: list[Probe] | None = None) -> None:
        self.members, self.few, self.seen = members, few, [] if seen is None else seen
        self.restarts = 0

    def for_estimate(self, probe: Probe) -> "Drawing":
        self.seen.append(probe)
        made = Drawing(self.members, self.few, self.seen)
        made.restarts = probe.restarts
        return made

    def price(self, request: PricingRequest) -> PricingResult:
        if self.restarts:
            made = np.random.default_rng(request.seed)
            chosen = made.permutation(len(self.members))[: self.restarts]
        else:
            known = self.members.take(np.arange(self.few))
            costs = compute_reduced_costs(request, known, np.zeros(self.few, np.int64))
            chosen = np.array([costs.argmin()])
        return PricingResult(
            self.members.take(chosen), np.zeros(len(chosen), np.int64), np.full(len(chosen), -1)
        )


RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(30, 2))
CLASS = affine(RNG.normal(size=(60, 2, 1))[::-1], RNG.normal(size=(60, 1))[::-1])
EARLY = Settings(iteration_limit=2, smoothing=0.0)


Kind = Literal["average", "mixture"]


def problem_of(*pricers: Pricer, kind: Kind = "mixture") -> Problem:
    return Problem(
        Supervised(INPUTS, 3.0 + INPUTS.sum(1, keepdims=True), "squared", kind),
        [Linear(INPUTS[:2], [1.0], 0.5, "<=", name="low")],
        pricers,
        Layout.single(1),
        start=[(affine(np.zeros((1, 2, 1)), np.zeros((1, 1))), np.zeros(1, np.int64))],
    )


def listed(members: Members) -> FinitePricer:
    return FinitePricer([(members, np.zeros(len(members), np.int64))])


def optimum(kind: Kind, *stacks: Members) -> float:
    """The best mixture of all of these and the constant, by exact pricing of every one."""
    found = solve(problem_of(*map(listed, stacks), kind=kind), Settings(epsilon=1e-9))
    assert found.gap is not None
    assert found.gap < 1e-5
    return found.objective


@pytest.mark.parametrize("kind", ["mixture", "average"])
def test_restarts_that_see_the_whole_class_never_underestimate(kind):
    best = optimum(kind, CLASS)
    gaps = []
    for restarts in (5, 20, 60):
        settings = replace(EARLY, estimate_restarts=restarts)
        found = solve(problem_of(Drawing(CLASS, 30), kind=kind), settings)
        assert found.stop_reason == "iteration_limit"
        assert f"{restarts} restarts at the final duals" in found.distance
        assert "estimate" in found.distance
        gaps.append(found.estimated_gap)
    assert gaps == sorted(gaps)  # the same draws, and more of them
    true = found.objective - best
    assert true > 0.01
    assert gaps[-1] >= true - 1e-6  # every member was looked at: what a bound would be
    assert gaps[0] < gaps[-1]


def test_the_estimate_takes_a_share_of_the_training_and_changes_nothing_else():
    seen: list[Probe] = []
    found = solve(problem_of(Drawing(CLASS, 30, seen)), EARLY)
    assert seen == [Probe(8, 0.2)]  # a tenth of two pricings
    again = solve(problem_of(Drawing(CLASS, 30)), EARLY)
    off = solve(problem_of(Drawing(CLASS, 30)), replace(EARLY, estimate_restarts=0))
    assert again.estimated == found.estimated
    assert off.distance.endswith("not estimated more closely: estimate_restarts is 0")
    assert off.estimated_gap is None
    np.testing.assert_array_equal(off.ensemble.predict(INPUTS), found.ensemble.predict(INPUTS))
    assert (off.columns, off.rows, off.objective) == (found.columns, found.rows, found.objective)
    assert 0 < found.ending.estimate_s < found.seconds
    assert sum(found.seconds_by_step().values()) == pytest.approx(found.seconds)


def test_a_run_resumed_at_its_end_estimates_the_same(tmp_path):
    def solved() -> Result:
        folder = tmp_path / "run"
        exists = (folder / "run.json").exists()
        with Run.open(folder) if exists else Run.create(folder, "test", {}) as run:
            return solve(problem_of(Drawing(CLASS, 30)), EARLY, run=run)

    whole, resumed = solved(), solved()
    assert whole.estimated is not None
    assert whole.estimated == resumed.estimated


def test_pricings_just_before_count_as_restarts_at_the_same_duals():
    found = solve(problem_of(Drawing(CLASS, 1)), Settings(smoothing=0.0))
    assert found.stop_reason == "no_improving_column"
    assert "8 restarts at the final duals and 2 restarts just before" in found.distance


# ---- kinds that are priced exactly ---------------------------------------------------------------


def test_of_the_kinds_priced_exactly_a_bound_is_stated():
    trained, exact = CLASS.take(np.arange(20)), CLASS.take(np.arange(20, 60))
    problem = problem_of(Drawing(trained, 20), listed(exact), kind="average")
    found = solve(problem, replace(EARLY, estimate_restarts=20))
    assert found.gap is None
    assert found.estimated is not None
    assert found.estimated.exact == ("listed members",)
    assert "20 restarts at the final duals and all listed members" in found.distance
    assert "proven of listed members: with more of them it would fall by" in found.distance
    assert found.estimated.bound is not None
    columns = [part.members for part in found.ensemble.parts]
    assert found.estimated.bound <= optimum("average", *columns, exact) + 1e-6
    assert found.estimated.bound < found.objective - 1e-3
    assert found.estimated_gap >= found.objective - optimum("average", CLASS) - 1e-6


def test_where_all_kinds_are_exact_a_run_that_was_cut_has_a_bound():
    halves = [listed(CLASS.take(np.arange(k, 60, 2))) for k in range(2)]
    found = solve(problem_of(*halves, kind="average"), EARLY)
    assert found.estimated is None
    assert found.bound is not None
    assert found.bound <= optimum("average", CLASS) + 1e-6


# ---- what is not estimated -----------------------------------------------------------------------


class Whole(PricerDefaults):
    """A pricer without a brief way."""

    def __init__(self) -> None:
        self.inner, self.calls = Drawing(CLASS, 30), 0

    def price(self, request: PricingRequest) -> PricingResult:
        self.calls += 1
        return self.inner.price(request)


def test_a_pricer_that_works_whole_is_not_asked_where_that_is_dear():
    pricer = Whole()
    found = solve(problem_of(pricer), EARLY)
    assert pricer.calls == 2
    assert "1 restart by the last pricing, at duals before the final ones" in found.distance


def test_an_interrupt_while_estimating_leaves_the_mixture_as_it_is():
    class Interrupting(Drawing):
        def for_estimate(self, probe: Probe) -> Drawing:
            signal.raise_signal(signal.SIGINT)
            return super().for_estimate(probe)

    found = solve(problem_of(Interrupting(CLASS, 30)), EARLY)
    whole = solve(problem_of(Drawing(CLASS, 30)), EARLY)
    assert found.stop_reason == "interrupted"
    assert "it was interrupted" in found.distance
    assert found.estimated_gap is None
    np.testing.assert_array_equal(found.ensemble.predict(INPUTS), whole.ensemble.predict(INPUTS))


def test_no_time_or_rows_unmet_or_nothing_trained_is_said(monkeypatch):
    monkeypatch.setattr(estimating, "_share", lambda run: 1e9)  # no limit leaves time for it
    found = solve(problem_of(Drawing(CLASS, 30)), replace(EARLY, time_limit_s=60.0))
    assert found.cut == (estimating.PART,)
    assert "the time limit left no time for it" in found.distance
    impossible = replace(
        problem_of(Drawing(CLASS, 1)),
        requirements=[Linear(INPUTS[:1], [1.0], 1e6, ">=", name="high")],
    )
    assert solve(impossible, EARLY).distance == "not estimated: not all rows are met"
    pool = [(CLASS.take(np.arange(10)), np.zeros(10, np.int64))]
    patched = patch(problem_of(Drawing(CLASS, 30)), pool, EARLY)
    assert patched.distance.endswith("not estimated more closely: no member was trained")


def test_losses_that_are_known_to_be_positive_bound_the_distance():
    estimate = GapEstimate(value=0.0, restarts=8, floor=0.0)
    assert estimate.describe_distance(0.25) == (
        "at most 0.25 (proven: no mixture is below 0); an estimate from the best of 8 restarts at "
        "the final duals adds nothing"
    )
    own = Supervised(INPUTS, INPUTS, lambda y, t: -(y - t).sum(-1))
    stated = replace(problem_of(Drawing(CLASS, 30)), objective=own)
    assert estimating.find_floor(CompiledProblem.from_problem(stated)) is None
