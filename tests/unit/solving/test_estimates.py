"""How far from optimal a run says it is: proven, estimated, or neither."""

import numpy as np
import pytest

from cg4ai import Linear, Problem, Settings, solve
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.objectives import Supervised
from cg4ai.pricing.exact.finite import FinitePricer
from cg4ai.protocols import PricingRequest
from cg4ai.records import PricingResult


class Unproven:
    """A finite class, priced exactly by one who does not say so."""

    def __init__(self, inner: FinitePricer) -> None:
        self.exact = inner

    def price(self, request: PricingRequest) -> PricingResult:
        found = self.exact.price(request)
        return PricingResult(found.members, found.blocks, found.groups)


def line_problem(proves: bool) -> Problem:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(30, 2))
    members = affine(rng.normal(size=(60, 2, 1)), rng.normal(size=(60, 1)))
    pricer = FinitePricer([(members, np.zeros(60, np.int64))], per_call=1)
    return Problem(
        Supervised(inputs, inputs.sum(1, keepdims=True), "squared", "mixture"),
        [Linear(inputs[:2], [1.0], 0.5, "<=", name="low")],
        [pricer if proves else Unproven(pricer)],
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
