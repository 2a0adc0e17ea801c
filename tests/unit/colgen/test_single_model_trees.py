"""One tree in place of a mixture: stumps against SciPy at every threshold, trees with rules."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.tree import DecisionTreeClassifier

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, StopReason
from cg4ai.colgen.loop import solve
from cg4ai.colgen.pricing.exact.stumps import StumpPricer
from cg4ai.compile.problem import Problem
from cg4ai.layout import Layout
from cg4ai.members.trees import TreeMembers
from cg4ai.objectives import Supervised
from cg4ai.rules import Linear, Probability
from cg4ai.settings import Settings

LOW, HIGH = -2.0, 2.0


def _drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Data, and inputs at which the output is to be at least so much."""
    made = np.random.default_rng(seed)
    x = np.round(made.normal(size=(8, 2)), 2)
    y = np.clip(x[:, :1] + 0.3 * made.normal(size=(8, 1)), LOW, HIGH)
    return x, y, np.round(made.normal(size=(2, 2)), 2), made.uniform(-1.5, 2.3, 2)


def _best_by_scipy(x: np.ndarray, y: np.ndarray, at: np.ndarray, least: np.ndarray) -> float:
    """The least squared error of a stump with values in [LOW, HIGH] that keeps both rows."""
    best = np.inf
    for feature in range(2):
        values = np.unique(np.concatenate([x[:, feature], at[:, feature]]))
        for threshold in values:
            left, there = x[:, feature] <= threshold, at[:, feature] <= threshold
            floor = [max([LOW, *least[there]]), max([LOW, *least[~there]])]
            if max(floor) > HIGH:
                continue
            found = minimize(
                lambda v, left=left: ((np.where(left, v[0], v[1]) - y[:, 0]) ** 2).mean(),
                np.maximum(floor, 0.0),
                bounds=[(floor[0], HIGH), (floor[1], HIGH)],
                tol=1e-12,
            )
            best = min(best, float(found.fun))
    return best


@pytest.mark.parametrize("kind", ["average", "mixture"])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_single_stump(seed: int, kind: str) -> None:
    x, y, at, least = _drawn(seed)
    problem = Problem(
        Supervised(x, y, "squared", kind),  # type: ignore[arg-type]
        [Linear(at[k : k + 1], [[1.0]], float(least[k])) for k in range(2)],
        [StumpPricer(2, 1, low=LOW, high=HIGH)],
        Layout.single(1),
    )
    result = solve(problem, Settings(single_model=True))
    best = _best_by_scipy(x, y, at, least)
    assert result.single is not None
    if best == np.inf:
        assert result.stop_reason is StopReason.INFEASIBLE
        return
    assert result.stop_reason is StopReason.OPTIMAL
    assert result.objective == pytest.approx(best, abs=1e-5)
    assert result.single.bound == pytest.approx(best, abs=2e-5)
    assert len(result.ensemble) == 1


def test_a_small_tree_that_keeps_a_rule() -> None:
    made = np.random.default_rng(0)
    x = made.normal(size=(300, 3))
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).astype(int)
    rule = Probability(x[:6], y[:6], at_least=0.9)
    model = ConstrainedClassifier(
        members=DecisionTreeClassifier(max_depth=3, min_samples_leaf=5),
        single_model=True,
        random_state=0,
    ).fit(x, y, requirements=[rule])
    assert model.audit_[0].holds
    assert len(model.ensemble_) == 1
    (part,) = model.ensemble_.used
    assert isinstance(part.members, TreeMembers)
    assert part.members.depth <= 3
    assert model.score(x, y) > 0.85
    assert model.result_.single is not None
    assert model.result_.single.met


def test_one_linear_model_is_the_mixture_itself() -> None:
    made = np.random.default_rng(1)
    x = made.normal(size=(80, 2))
    y = x @ [1.0, -2.0] + 0.1 * made.normal(size=80)
    rule = Linear(x[:3], [1.0], 0.5, "<=")
    model = ConstrainedRegressor(members="affine", single_model=True, iteration_limit=200)
    model.fit(x, y, requirements=[rule])
    assert model.audit_[0].holds
    assert len(model.ensemble_) == 1
    assert model.result_.single is not None
    assert model.result_.single.proven
