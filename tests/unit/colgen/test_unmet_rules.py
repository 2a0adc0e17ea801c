"""Why a run ends with rules unmet: conflicts of a finite class against linprog, and of members."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai import ConstrainedClassifier, FitWarning, Problem, Result, Settings, solve
from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.colgen.pricing.exact.affine import AffinePricer
from cg4ai.colgen.pricing.exact.finite import FinitePricer
from cg4ai.conflicts import Scope
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import PricingResult, StopReason
from cg4ai.rules import Linear

X = np.array([[0.0], [1.0], [2.0], [3.0]])
EXACT = Settings(row_margin=0.0, epsilon=1e-9, iteration_limit=500)
SILENT = PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64))


class Silent(PricerDefaults):
    """Proposes nothing and proves nothing, as training that fails to improve."""

    def price(self, request: PricingRequest) -> PricingResult:
        return SILENT


def lines(slopes: Any, offsets: Any) -> Any:
    slopes = np.asarray(slopes, float)
    return affine(slopes[:, None, None], np.asarray(offsets, float)[:, None])


def solved(pricer: Any, rules: list[Linear], start: Any = None) -> Result:
    objective = Supervised(X, np.zeros((4, 1)), "squared", "average")
    begin = [] if start is None else [(start, np.zeros(len(start), np.int64))]
    return solve(Problem(objective, rules, [pricer], Layout.single(1), begin), EXACT)


def rule(at: float, bound: float, sense: str = ">=") -> Linear:
    return Linear([[at]], [1.0], bound, sense, name=f"at {at:g}")


def mixtures_keep(values: np.ndarray, bounds: np.ndarray) -> bool:
    """Whether weights >= 0 of sum one give `values` (m, members) @ w >= bounds."""
    size = values.shape[1]
    answer = linprog(np.zeros(size), -values, -bounds, np.ones((1, size)), [1.0])
    return answer.status == 0


def test_conflicts_of_a_finite_class_are_irreducible() -> None:
    found = seed = 0
    while found < 25:
        random = np.random.default_rng(seed)
        seed += 1
        slopes, offsets = random.normal(size=(2, 5))
        rules = [
            rule(x, bound)
            for x, bound in zip(random.uniform(0, 3, 4), random.normal(0.3, 0.7, 4), strict=True)
        ]
        every = lines(slopes, offsets)
        at = np.array([one.points[0, 0] for one in rules])
        values, bounds = np.outer(at, slopes) + offsets, np.array([one.bound[0] for one in rules])
        if mixtures_keep(values, bounds):
            continue
        result = solved(FinitePricer([(every, np.zeros(5, np.int64))]), rules)
        conflict = result.conflict
        assert result.stop_reason is StopReason.INFEASIBLE
        assert conflict.scope is Scope.CLASS
        assert conflict.irreducible
        rows = np.array(conflict.requirements)
        assert not mixtures_keep(values[rows], bounds[rows])
        for one in rows:
            rest = rows[rows != one]
            assert mixtures_keep(values[rest], bounds[rest])
        found += 1


def test_what_no_line_can_do_is_a_conflict_of_the_class() -> None:
    """A line of slope and offset within limits cannot be high, low and high again."""
    rules = [rule(0, 1.0), rule(1, 0.5, "<="), rule(2, 1.0), rule(3, 10.0, "<=")]
    start = lines([0.0], [0.0])
    result = solved(AffinePricer(input_size=1, output_size=1, radius=5.0), rules, start)
    assert result.stop_reason is StopReason.INFEASIBLE
    assert result.conflict.scope is Scope.CLASS
    assert result.conflict.requirements == (0, 1, 2)
    assert "Conflict: no mixture of members of this kind can keep these 3" in str(result)


def test_members_that_were_trained_speak_for_themselves_alone() -> None:
    result = solved(Silent(), [rule(1, 2.0), rule(1, 3.0, "<=")], lines([0.0, 0.5], [0.0, 1.0]))
    assert result.stop_reason is StopReason.NO_IMPROVING_COLUMN
    assert str(result.conflict) == (
        "no mixture of the trained members can keep this: at 1: input 0, f0 >= 2"
    )


def test_what_no_predictor_can_do_is_said_of_all() -> None:
    result = solved(Silent(), [rule(1, 2.0), rule(1, 1.0, "<=")], lines([0.0], [0.0]))
    assert result.conflict.scope is Scope.OUTPUTS
    assert result.conflict.requirements == (0, 1)


def test_a_run_that_keeps_its_rules_has_no_conflict() -> None:
    assert solved(Silent(), [rule(1, 1.0)], lines([0.0, 0.5], [0.0, 1.0])).conflict is None


def test_estimators_warn_of_what_their_members_cannot_do() -> None:
    random = np.random.default_rng(0)
    inputs = random.normal(size=(60, 1))
    labels = (inputs[:, 0] > 0).astype(int)
    tent = [
        Linear([[-3.0]], [1.0, -1.0], 0.2, name="left"),
        Linear([[0.0]], [1.0, -1.0], -0.2, "<=", name="middle"),
        Linear([[3.0]], [1.0, -1.0], 0.2, name="right"),
    ]
    model = ConstrainedClassifier(members="affine", scores="logit", random_state=0)
    with pytest.warns(FitWarning) as cautions:
        model.fit(inputs, labels, tent)
    told = [str(one.message) for one in cautions]
    assert any("no mixture of members of this kind can keep these 3" in one for one in told)
