"""The best mixture without the rules: the answer where it keeps them, else what they start from."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cg4ai import Problem, Result, Settings, StopReason, solve
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricerCapabilities, PricingRequest
from cg4ai.records import IterationRecord, PricingResult
from cg4ai.rules import Linear
from cg4ai.runs.folder import Run

SETTINGS = Settings(final_weights="vertex", patience=1, smoothing=0.0)
TARGET = 1.0


class Fitting(PricerDefaults):
    """Proposes the target where there are no rows, else what the dearest row asks for."""

    capabilities = PricerCapabilities(fits_data=True)

    def __init__(self) -> None:
        self.rows_seen: list[int] = []

    def price(self, request: PricingRequest) -> PricingResult:
        self.rows_seen.append(len(request.rows))
        value = TARGET if not len(request.rows) else float(request.rows.bounds.max())
        members = ConstantMembers(np.array([[value]]), 1)
        return PricingResult(members, np.zeros(1, int), np.full(1, -1))


def problem(bound: float, pricer: Any, *, loss: str = "squared") -> Problem:
    objective = Supervised(np.zeros((1, 1)), np.full((1, 1), TARGET), loss, "mixture")
    rules = [Linear([[0.0]], [1.0], bound)]
    return Problem(objective, rules, [pricer], Layout.single(1))


def test_a_rule_that_is_kept_anyway_costs_no_training_and_no_loss() -> None:
    pricer = Fitting()
    result = solve(problem(0.5, pricer), SETTINGS)
    assert set(pricer.rows_seen) == {0}, "no member was trained under the rule"
    assert result.feasible
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
    assert "kept without training under them" in result.history[-1].note
    assert result.loss == pytest.approx(0.0, abs=1e-9)
    assert result.plain is not None
    assert result.plain.loss == pytest.approx(result.loss, abs=1e-9)


def test_training_under_a_rule_starts_from_the_plain_mixture_and_the_cost_is_told() -> None:
    pricer = Fitting()
    result = solve(problem(3.0, pricer), SETTINGS)
    first = pricer.rows_seen.index(1)
    assert first > 0
    assert set(pricer.rows_seen[:first]) == {0}
    assert result.feasible
    assert result.ensemble.predict([[0.0]]) == pytest.approx(3.0)
    assert result.plain is not None
    assert result.plain.ensemble.predict([[0.0]]) == pytest.approx(TARGET)
    assert result.plain.loss == pytest.approx(0.0, abs=1e-9)
    assert result.loss == pytest.approx(4.0)
    assert " without rules)" in str(result)


@pytest.mark.parametrize("limits", [{"iteration_limit": 1}, {"column_limit": 1}])
def test_a_limit_within_the_plain_phase_leaves_the_rules_in_the_result(
    limits: dict[str, int],
) -> None:
    settings = Settings(**(SETTINGS.as_dict() | limits))
    result = solve(problem(3.0, Fitting()), settings)
    assert result.rule_rows == 1
    assert result.slack == pytest.approx(2.0)
    assert not result.feasible


def test_the_plain_phase_leaves_a_share_of_the_limits_to_the_rules() -> None:
    class Restless(Fitting):
        """Always a little closer to the target, so that it never ends by itself."""

        def price(self, request: PricingRequest) -> PricingResult:
            found = super().price(request)
            if len(request.rows):
                return found
            value = TARGET + 8.0 * 0.5 ** len(self.rows_seen)
            members = ConstantMembers(np.array([[value]]), 1)
            return PricingResult(members, found.blocks, found.groups)

    settings = Settings(**(SETTINGS.as_dict() | {"iteration_limit": 8, "epsilon": 1e-9}))
    for bound, plain in ((0.5, 4), (30.0, 1)):  # a rule that costs something is bound at once
        pricer = Restless()
        result = solve(problem(bound, pricer), settings)
        assert pricer.rows_seen.count(0) == plain
        assert result.feasible


def test_rules_alone_and_pricers_that_prove_have_no_plain_phase() -> None:
    ruled = Fitting()
    assert solve(problem(3.0, ruled, loss="none"), SETTINGS).plain is None
    assert set(ruled.rows_seen) == {1}
    proving = Fitting()
    proving.capabilities = PricerCapabilities()
    assert solve(problem(3.0, proving), SETTINGS).plain is None


def solved(folder: Path, **options: Any) -> Result:
    exists = (folder / "run.json").exists()
    run = Run.open(folder) if exists else Run.create(folder, "test", SETTINGS.as_dict())
    with run:
        return solve(problem(3.0, Fitting()), SETTINGS, run=run, **options)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_run_killed_in_or_after_the_plain_phase_ends_alike(after: int, tmp_path: Path) -> None:
    def stop(record: IterationRecord) -> None:
        if record.iteration == after:
            signal.raise_signal(signal.SIGINT)

    whole = solved(tmp_path / "whole")
    solved(tmp_path / "killed", progress=stop)
    resumed = solved(tmp_path / "killed")
    assert len(whole.history) > after
    assert [one.note for one in resumed.history] == [one.note for one in whole.history]
    assert (resumed.loss, resumed.rows, resumed.columns) == (whole.loss, whole.rows, whole.columns)
    assert resumed.plain is not None
    assert whole.plain is not None
    assert resumed.plain.loss == whole.plain.loss
