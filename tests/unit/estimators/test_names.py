"""Names of columns, classes and outputs work wherever positions do, and mean the same."""

from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.errors import InvalidInput
from cg4ai.rules import Box, Difference, Linear, Margin, Probability, Rate
from raising import raises

QUICK: dict[str, Any] = {
    "members": "network",
    "hidden": (6,),
    "steps": 60,
    "restarts": 2,
    "iteration_limit": 3,
    "random_state": 0,
}
MADE = np.random.default_rng(0)
X = MADE.normal(size=(120, 3))
TABLE = DataFrame(X, columns=["income", "debt", "age"])
Y = np.where(X[:, 0] - X[:, 1] + 0.3 * MADE.normal(size=120) > 0, "approve", "refuse")
GROUPS = X[:, 2] > 0

pytestmark = pytest.mark.filterwarnings("ignore::cg4ai.FitWarning")


@pytest.mark.parametrize(
    ("named", "numbered"),
    [
        (
            lambda: Probability(X[:5], list(Y[:5]), 0.6),
            lambda: Probability(X[:5], (Y[:5] == "refuse").astype(int), 0.6),
        ),
        (
            lambda: Probability(Box({"income": (2, 3)}), "approve", 0.6),
            lambda: Probability(Box([2, *X.min(0)[1:]], [3, *X.max(0)[1:]]), 0, 0.6),
        ),
        (lambda: Margin(X[:5], "approve", 0.1), lambda: Margin(X[:5], 0, 0.1)),
        (
            lambda: Rate(X, GROUPS, output="approve", tolerance=0.05),
            lambda: Rate(X, GROUPS, output=0, tolerance=0.05),
        ),
        (
            lambda: Linear(X[:5], {"refuse": 1.0}, 0.8, "<="),
            lambda: Linear(X[:5], [0.0, 1.0], 0.8, "<="),
        ),
        (
            lambda: Difference(X[:4], [[0, 1]], -0.1, output="refuse"),
            lambda: Difference(X[:4], [[0, 1]], -0.1, output=1),
        ),
    ],
)
def test_a_rule_by_names_is_the_rule_by_positions(named: Any, numbered: Any) -> None:
    one, other = (
        ConstrainedClassifier(**QUICK).fit(TABLE, Y, requirements=[rule()])
        for rule in (named, numbered)
    )
    np.testing.assert_array_equal(one.predict_proba(TABLE), other.predict_proba(TABLE))
    assert one.audit(named()).holds == other.audit(numbered()).holds


def test_names_of_the_columns_of_y_are_names_of_outputs() -> None:
    targets = DataFrame({"cost": X[:, 0], "time": X[:, 1] - X[:, 2]})
    rule = Linear(Box({"age": (0, 1), "debt": (-1, 1)}), {"time": 1.0}, 5.0, "<=")
    model = ConstrainedRegressor(**QUICK).fit(TABLE, targets, requirements=[rule])
    inputs = MADE.uniform([X[:, 0].min(), -1, 0], [X[:, 0].max(), 1, 1], size=(500, 3))
    assert model.predict(DataFrame(inputs, columns=TABLE.columns))[:, 1].max() <= 5.0 + 1e-6


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda: Probability(X[:2], "aprove", 0.6), "approve"),
        (lambda: Rate(X, GROUPS, output="aprove", tolerance=0.1), "approve"),
        (lambda: Linear(X[:2], {"aprove": 1.0}, 0.1), "approve"),
        (lambda: Probability(Box({"incom": (0, 1)}), "approve", 0.6), "income"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(rule: Any, words: str) -> None:
    with raises(InvalidInput, "unknown-name", words):
        ConstrainedClassifier(**QUICK).fit(TABLE, Y, requirements=[rule()])


def test_names_where_there_are_none_are_refused() -> None:
    with raises(InvalidInput, "unknown-name"):
        ConstrainedClassifier(**QUICK).fit(
            X, Y, requirements=[Probability(Box({"income": (0, 1)}), "approve", 0.6)]
        )
    with raises(InvalidInput, "unsupported"):
        _ = Box({"income": (0, 1)}).size
    with raises(InvalidInput, "range"):
        Box({"income": (1, 0)})
    with raises(InvalidInput, "unsupported"):
        Probability(X[:2], "approve", 0.6).check(3, 2)
