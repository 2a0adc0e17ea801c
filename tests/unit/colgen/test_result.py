"""The ending: every second in a record, a mixture searched once, and limits of time kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai import Problem, Settings, StopReason, solve
from cg4ai.clock import Deadline
from cg4ai.colgen.gap_estimate import PART
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.pricing.gradient.pricer import GradientPricer
from cg4ai.colgen.pricing.gradient.training import Training
from cg4ai.colgen.separation import GradientAscent
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture
from cg4ai.members.mixture import Mixture
from cg4ai.objectives import Supervised
from cg4ai.protocols import Pricer, PricingRequest, SeparatorDefaults
from cg4ai.records import PricingResult, SeparationResult
from cg4ai.rules import Box, Linear, Requirement
from cg4ai.runs.folder import Run

X = np.random.default_rng(0).normal(size=(20, 2))
BOX = Box([-1.0, -1.0], [1.0, 1.0])


def attacked(**values: Any) -> Settings:
    """Rules over regions as rows of the master, whatever the members are."""
    return Settings(guarantee="attacked", **values)


class Clock:
    """Stands in for `time.perf_counter`: moved by hand, and by `tick` at every reading."""

    def __init__(self) -> None:
        self.now, self.tick = 100.0, 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def sleep(seconds: float) -> None:
    made = time.perf_counter
    assert isinstance(made, Clock)
    made.now += seconds


def test_all_seconds_of_a_run_are_in_its_records(clock: Clock) -> None:
    search = GradientAscent(starts=4, steps=20)
    rule = Linear(BOX, [1.0], -0.5, separator=search)
    network = NetworkArchitecture(2, 1, hidden=(4,), activation="tanh")
    pricer = GradientPricer(network, restarts=2, training=Training(steps=40, learning_rate=0.05))
    problem = Problem(Supervised(X, X[:, :1]), [rule], [pricer], Layout.single(1))
    started, clock.tick = clock.now, 1.0
    result = solve(problem, attacked(iteration_limit=4))
    wall = clock.now - started
    recorded = sum(record.seconds for record in result.history) + result.ending.seconds
    assert recorded == pytest.approx(result.seconds)
    assert wall - 5 <= recorded <= wall  # the first readings are before the rules are imposed
    assert sum(result.seconds_by_step().values()) == pytest.approx(recorded)
    assert result.history[-1].total_s + result.ending.seconds == pytest.approx(result.seconds)


def test_pricing_and_searching_are_booked_as_such(clock: Clock) -> None:
    search, pricer = Slow(0.5), Falling(2.0)
    result = solve(constant(search, pricer), attacked(iteration_limit=3))
    assert result.seconds_by_step() == {
        "pricing_s": pytest.approx(2.0 * sum(record.trainings or 0 for record in result.history)),
        "separation_s": pytest.approx(0.5 * (len(search.shown) + len(search.last))),
        "master_s": 0.0,
        "other_s": 0.0,
    }
    assert result.ending.search_s == pytest.approx(0.5)  # the last one counts as separation
    assert result.seconds == pytest.approx(clock.now - 100.0)


@dataclass
class Slow(SeparatorDefaults):
    """Finds nothing, takes its time, and keeps the mixtures it was shown."""

    seconds: float = 0.0
    shown: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)
    is_last: bool = False

    def thorough(self) -> Slow:
        return Slow(self.seconds, self.shown, self.last, is_last=True)

    def find(
        self,
        ensemble: Mixture,
        requirement: Requirement,
        *,
        seed: int,
        limit: int,
        tolerance: float,
    ) -> SeparationResult:
        sleep(self.seconds)
        probe = torch.zeros(1, 1, dtype=torch.float64)
        (self.last if self.is_last else self.shown).append(float(ensemble.outputs(probe)))
        return SeparationResult(None, np.empty(0), -1.0, {"search": "nothing", "seed": seed})


@dataclass
class Falling(PricerDefaults):
    """Ever better members, each after a while."""

    seconds: float = 0.0

    def price(self, request: PricingRequest) -> PricingResult:
        sleep(self.seconds)
        members = ConstantMembers(np.array([[1.0 + 2.0**-request.iteration]]), 1)
        return PricingResult(members, np.zeros(1, int), np.full(1, -1))


def constant(search: Slow, pricer: Pricer) -> Problem:
    rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=search)
    objective = Supervised(np.zeros((1, 1)), np.zeros((1, 1)))
    return Problem(objective, [rule], [pricer], Layout.single(1))


def test_the_last_search_is_done_once_and_is_the_audit() -> None:
    search = Slow()
    result = solve(constant(search, Falling()), attacked(epsilon=0.3, final_weights="vertex"))
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
    assert len(search.last) == 1
    assert len(search.shown) <= len(result.history)  # no further search by the audit
    (audit,) = result.audits
    assert audit.strength == "attacked"
    assert audit.effort["search"] == "nothing"
    assert result.feasible


def test_the_time_limit_bounds_training_and_ending_together(clock: Clock) -> None:
    problem = constant(Slow(0.1), Falling(0.02))
    started = clock.now
    result = solve(problem, attacked(time_limit_s=2.0, epsilon=1e-12, iteration_limit=10_000))
    assert clock.now - started <= 2.0
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert result.seconds > 1.0  # the limit is made use of


def test_what_the_ending_had_no_time_for_is_named_and_audits_look_in_any_case() -> None:
    search = Slow()
    problem = constant(search, Falling(0.2))
    result = solve(problem, attacked(time_limit_s=0.1))
    training = "training, after 1 iteration"
    left_out = (training, "the choice of final weights", "the thorough last search", PART)
    assert result.cut == left_out
    assert str(result).startswith(f"Cut short by the time limit: {training}; the choice")
    assert search.last == []
    assert len(search.shown) == 1  # the audit looks once, by the rule's own search
    assert result.audits[0].strength == "attacked"
    assert solve(constant(Slow(), Falling()), attacked(iteration_limit=2)).cut == ()


def test_no_time_for_the_last_search_is_no_proof() -> None:
    pool = FinitePricer([(ConstantMembers(np.array([[1.0]]), 1), np.zeros(1, int))])
    problem = constant(Slow(0.2), pool)
    assert solve(problem, attacked()).stop_reason is StopReason.OPTIMAL
    hasty = solve(problem, attacked(time_limit_s=0.3))
    assert hasty.stop_reason is StopReason.TIME_LIMIT
    assert "the thorough last search" in hasty.cut


def test_a_run_that_had_no_time_for_its_ending_goes_on_when_given_more(tmp_path: Path) -> None:
    pool = FinitePricer([(ConstantMembers(np.array([[1.0]]), 1), np.zeros(1, int))])
    problem = constant(Slow(0.2), pool)
    with Run.create(tmp_path / "run", "test", {}) as run:
        hasty = solve(problem, attacked(time_limit_s=0.3), run=run)
    assert hasty.stop_reason is StopReason.TIME_LIMIT
    with Run.open(tmp_path / "run") as run:
        again = solve(problem, attacked(), run=run)
    assert again.stop_reason is StopReason.OPTIMAL
    assert again.cut == ("training before the run was resumed",)


def test_a_deadline_tells_what_is_left_of_it() -> None:
    assert Deadline().compute_seconds_left() == np.inf
    assert not Deadline().reserve(1e9).passed
    later = Deadline.after(100.0)
    assert later.compute_seconds_left() == 100.0
    assert later.reserve(50.0).compute_seconds_left() == 50.0
    assert later.reserve(101.0).passed
    assert later.reserve(101.0).compute_seconds_left() == 0.0


def test_training_is_cut_at_the_limit_and_leaves_a_mixture(clock: Clock) -> None:
    network = NetworkArchitecture(2, 1, hidden=(4,), activation="tanh")
    pricer = GradientPricer(network, training=Training(steps=10**6, schedule="onecycle"))
    problem = Problem(Supervised(X, X[:, :1]), [], [pricer], Layout.single(1))
    started, clock.tick = clock.now, 0.01  # read at every step
    result = solve(problem, attacked(time_limit_s=1.0))
    assert clock.now - started < 1.2  # a million steps would take hours
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert len(result.ensemble) >= 1


def test_under_a_limit_an_ordinary_search_says_whether_a_thorough_one_fits(clock: Clock) -> None:
    """The thorough search takes many times as long: it must not begin where it cannot end."""
    for limit_s, begun in ((200.0, True), (30.0, False)):
        search = Slow(1.0)
        settings = attacked(time_limit_s=limit_s, iteration_limit=2)
        result = solve(constant(search, Falling()), settings)
        assert (search.last != []) == begun
        assert ("the thorough last search" in result.cut) != begun
        assert result.seconds <= 1.1 * limit_s
        assert result.audits[0].effort["search"] == "nothing"  # what was found is not sought again
