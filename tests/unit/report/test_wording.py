"""What people read of any run: how far from optimal it can be, always said, and said once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cg4ai import Problem, Settings, solve
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.colgen.result import Result
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.objectives import Supervised
from cg4ai.records import GapEstimate
from cg4ai.report import wording
from cg4ai.rules import Linear

INPUTS = np.linspace(-1, 1, 8)[:, None]


def lines_about_distance(summary: dict[str, Any]) -> list[str]:
    return wording.describe_optimality(summary, "the objective")


@pytest.fixture(scope="module")
def result() -> Result:
    pool = affine(np.array([[[0.0]], [[1.0]]]), np.zeros((2, 1)))
    return solve(
        Problem(
            Supervised(INPUTS, INPUTS, "squared", "mixture"),
            [Linear(INPUTS[-1:], [1.0], 0.5, "<=", name="low")],
            [FinitePricer([(pool, np.zeros(2, np.int64))])],
            Layout.single(1),
        ),
        Settings(),
    )


def test_every_summary_holds_the_distance_in_numbers_and_words(result: Result) -> None:
    told = wording.outcome_in_numbers(result, preparing_s=0.0)
    assert told["gap"] == result.gap
    assert told["distance"] == result.distance
    best = float(np.mean((INPUTS / 2) ** 2))  # half the line is the best that keeps the rule
    assert told["bound"] <= best + 1e-9
    assert best <= told["bound"] + told["gap"] + 1e-6
    assert "proven" in told["distance"]


def test_what_is_proven_by_a_floor_stands_under_gap_and_no_estimate_does(result: Result) -> None:
    """A program that read the numbers took a proof for an estimate."""
    floor = GapEstimate(value=-1.0, restarts=8, floor=0.0)
    by_floor = replace(result, bound=None, estimated=floor)
    told = wording.outcome_in_numbers(by_floor)
    assert "proven" in told["distance"]
    assert (told["bound"], told["estimated_gap"]) == (0.0, None)
    assert told["gap"] == pytest.approx(by_floor.objective)
    closer = replace(by_floor, estimated=replace(floor, value=by_floor.objective / 2))
    told = wording.summarise_result(replace(closer, audits=()), [])
    assert "estimated from" in told["distance"]
    assert (told["bound"], told["gap"]) == (None, None)
    assert told["estimated_gap"] == pytest.approx(by_floor.objective / 2)
    for why, least in (("not all rows are met", None), ("it was interrupted", 0.0)):
        told = wording.outcome_in_numbers(
            replace(by_floor, estimated=GapEstimate(why=why, floor=least))
        )
        assert (told["gap"] is not None) == ("proven" in told["distance"])


def test_reports_say_it_proven_estimated_or_not_estimated(result: Result) -> None:
    told = wording.summarise_result(replace(result, audits=()), [])
    assert lines_about_distance(told)[0].endswith(f": {result.distance}.")
    for words in ("about 0.1, estimated", "not estimated"):
        (line,) = lines_about_distance(told | {"distance": words})
        assert line.endswith(f": {words}.")
    single = told | {"single": {"text": "single model: gap 0"}}
    assert lines_about_distance(single) == []
