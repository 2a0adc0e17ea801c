"""How far from optimal a run says it is: proven, estimated, or neither."""

import numpy as np
import pytest

from cg4ai import Linear, Problem, Settings, solve
from cg4ai.layout import Layout
from cg4ai.members import NetworkMembers, affine
from cg4ai.objectives import Supervised
from cg4ai.pricing.exact.finite import FinitePricer
from cg4ai.protocols import PricingRequest
from cg4ai.records import PricingResult


class Unproven:
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
    settings = Settings(iteration_limit=iterations, smoothing=0.0, uniform_share=0.0)
    optimum = solve(line_problem(True)).objective
    found = solve(line_problem(False), settings)
    assert found.gap is None
    assert found.estimate is not None
    assert found.estimate <= optimum + 1e-9
    assert found.estimated_gap == pytest.approx(found.objective - found.estimate)
    assert "ESTIMATE" in str(found)


def test_a_proven_gap_needs_no_estimate():
    result = solve(line_problem(True))
    assert result.gap is not None
    assert result.estimated_gap is None
    assert result.distance.startswith("proven: at most")
    assert "ESTIMATE" not in str(result)


def test_where_training_finds_nothing_the_estimate_is_zero_and_no_proof():
    result = solve(line_problem(False))
    assert result.estimated_gap == pytest.approx(0, abs=1e-5)
    assert "no proof" in result.distance


def test_where_nothing_was_trained_at_the_end_nothing_is_estimated():
    result = solve(line_problem(False, idle=True))
    assert result.estimated_gap is None
    assert result.distance == "not estimated"
