"""The ending: every second in a record, a mixture searched once, and limits of time kept."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cg4ai import Box, Linear, Problem, Settings, StopReason, solve
from cg4ai.members import ConstantMembers, NetworkArchitecture
from cg4ai.members.mixture import Layout, Mixture
from cg4ai.objectives import Supervised
from cg4ai.pricing.exact.finite import FinitePricer
from cg4ai.pricing.gradient.pricer import GradientPricer
from cg4ai.pricing.gradient.training import Training
from cg4ai.protocols import Pricer, PricingRequest
from cg4ai.records import PricingResult, SeparationResult
from cg4ai.rules import Requirement
from cg4ai.runs.folder import Run
from cg4ai.separation import GradientAscent
from cg4ai.solving.deadline import Deadline

X = np.random.default_rng(0).normal(size=(20, 2))
BOX = Box([-1.0, -1.0], [1.0, 1.0])


def trained(**settings: Any) -> tuple[Any, float]:
    """A real small solve with a region to search, and the seconds it took from outside."""
    search = GradientAscent(starts=4, steps=20)
    rule = Linear(BOX, [1.0], -0.5, separator=search)
    network = NetworkArchitecture(2, 1, hidden=(4,), activation="tanh")
    pricer = GradientPricer(network, restarts=2, training=Training(steps=40, learning_rate=0.05))
    problem = Problem(Supervised(X, X[:, :1]), [rule], [pricer], Layout.single(1))
    started = time.perf_counter()
    result = solve(problem, Settings(iteration_limit=4, **settings))
    return result, time.perf_counter() - started


def test_all_seconds_of_a_run_are_in_its_records() -> None:
    result, wall = trained()
    recorded = sum(record.seconds for record in result.history) + result.ending.seconds
    assert recorded == pytest.approx(result.seconds, rel=1e-6)
    assert recorded == pytest.approx(wall, rel=0.02)
    assert sum(result.seconds_by_step().values()) == pytest.approx(wall, rel=0.02)
    assert result.history[-1].total_s + result.ending.seconds == pytest.approx(result.seconds)
    # what no step claims is little
    assert result.seconds_by_step()["other_s"] - result.ending.audits_s < 0.2 * wall


@dataclass
class Slow:
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
        time.sleep(self.seconds)
        probe = torch.zeros(1, 1, dtype=torch.float64)
        (self.last if self.is_last else self.shown).append(float(ensemble.outputs(probe)))
        return SeparationResult(None, np.empty(0), -1.0, {"search": "nothing", "seed": seed})


@dataclass
class Falling:
    """Ever better members, each after a while."""

    seconds: float = 0.0

    def price(self, request: PricingRequest) -> PricingResult:
        time.sleep(self.seconds)
        members = ConstantMembers(np.array([[1.0 + 2.0**-request.iteration]]), 1)
        return PricingResult(members, np.zeros(1, int), np.full(1, -1))


def constant(search: Slow, pricer: Pricer) -> Problem:
    rule = Linear(Box([0.0], [1.0]), [1.0], 0.0, separator=search)
    objective = Supervised(np.zeros((1, 1)), np.zeros((1, 1)))
    return Problem(objective, [rule], [pricer], Layout.single(1))


def test_the_last_search_is_done_once_and_is_the_audit() -> None:
    search = Slow()
    result = solve(constant(search, Falling()), Settings(epsilon=0.3, final_weights="vertex"))
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
    assert len(search.last) == 1
    assert len(search.shown) <= len(result.history)  # no further search by the audit
    (audit,) = result.audits
    assert audit.strength == "attacked"
    assert audit.effort["search"] == "nothing"
    assert result.feasible


def test_seconds_of_the_last_search_count_as_separation() -> None:
    result = solve(constant(Slow(0.05), Falling()), Settings(iteration_limit=2))
    assert result.ending.search_s >= 0.05
    searching = result.seconds_by_step()["separation_s"]
    assert searching >= sum(one.separation_s for one in result.history) + 0.05


def test_the_time_limit_bounds_training_and_ending_together() -> None:
    problem = constant(Slow(0.1), Falling(0.02))
    started = time.perf_counter()
    result = solve(problem, Settings(time_limit_s=2.0, epsilon=1e-12, iteration_limit=10_000))
    assert time.perf_counter() - started < 2.4  # 10 %, and as much for a busy machine
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert result.seconds > 1.0  # the limit is made use of


def test_what_the_ending_had_no_time_for_is_named_and_audits_look_in_any_case() -> None:
    search = Slow()
    problem = constant(search, Falling(0.2))
    result = solve(problem, Settings(time_limit_s=0.1))
    assert result.cut == ("the choice of final weights", "the thorough last search")
    assert "left out at the time limit: the choice" in str(result)
    assert search.last == []
    assert len(search.shown) == 1
    assert result.audits[0].strength == "attacked"
    assert solve(constant(Slow(), Falling()), Settings(iteration_limit=2)).cut == ()


def test_no_time_for_the_last_search_is_no_proof() -> None:
    pool = FinitePricer([(ConstantMembers(np.array([[1.0]]), 1), np.zeros(1, int))])
    problem = constant(Slow(0.2), pool)
    assert solve(problem, Settings()).stop_reason is StopReason.OPTIMAL
    hasty = solve(problem, Settings(time_limit_s=0.3))
    assert hasty.stop_reason is StopReason.TIME_LIMIT
    assert "the thorough last search" in hasty.cut


def test_a_run_that_had_no_time_for_its_ending_goes_on_when_given_more(tmp_path: Path) -> None:
    pool = FinitePricer([(ConstantMembers(np.array([[1.0]]), 1), np.zeros(1, int))])
    problem = constant(Slow(0.2), pool)
    with Run.create(tmp_path / "run", "test", {}) as run:
        hasty = solve(problem, Settings(time_limit_s=0.3), run=run)
    assert hasty.stop_reason is StopReason.TIME_LIMIT
    with Run.open(tmp_path / "run") as run:
        again = solve(problem, Settings(), run=run)
    assert again.stop_reason is StopReason.OPTIMAL
    assert again.cut == ()


def test_a_deadline_tells_what_is_left_of_it() -> None:
    assert Deadline().left() == np.inf
    assert not Deadline().reserving(1e9).passed
    later = Deadline.after(100.0)
    assert 99.0 < later.left() <= 100.0
    assert later.reserving(50.0).left() <= 50.0
    assert later.reserving(101.0).passed
    assert later.reserving(101.0).left() == 0.0


def test_training_is_cut_at_the_limit_and_leaves_a_mixture() -> None:
    network = NetworkArchitecture(2, 1, hidden=(4,), activation="tanh")
    pricer = GradientPricer(network, training=Training(steps=10**6, schedule="onecycle"))
    problem = Problem(Supervised(X, X[:, :1]), [], [pricer], Layout.single(1))
    started = time.perf_counter()
    result = solve(problem, Settings(time_limit_s=1.0))
    assert time.perf_counter() - started < 1.5  # a million steps would take minutes
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert len(result.ensemble) >= 1
