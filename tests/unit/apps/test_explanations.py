"""Slack of each kind of rule at single inputs, against what the rule says in plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cg4ai import Ensemble
from cg4ai.apps.explanations import compute_slack, explain_predictions
from cg4ai.apps.explorer import RULES, ExplainedModule
from cg4ai.apps.protocol import Rule
from cg4ai.layout import Layout
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.rules import (
    AffineBound,
    Ball,
    Difference,
    Equality,
    Linear,
    Margin,
    Monotone,
    Ordered,
    Range,
    Rate,
    Requirement,
)

X = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]])
OUTPUTS = [1.0, 3.0]
UNSAID = float("nan")


@pytest.fixture
def ensemble() -> Ensemble:
    members = ConstantMembers([OUTPUTS], 2)
    return Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))


CASES: list[tuple[Requirement, list[float]]] = [
    (Range(0.0, 3.5), [0.5, 0.5, 0.5]),
    (Range(2.0, None), [-1.0, -1.0, -1.0]),
    (Ordered(), [2.0, 2.0, 2.0]),
    (Equality(None, [1.0, 1.0], 4.5), [-0.5, -0.5, -0.5]),
    (Equality(None, [1.0, 1.0], AffineBound(4.0, [1.0, 0.0])), [0.0, -1.0, -5.0]),
    (Equality(Ball([0.0, 0.0], 2.0), [1.0, 1.0], 4.5), [-0.5, -0.5, UNSAID]),
    (Linear(Ball([0.0, 0.0], 2.0), [[1.0, 0.0], [0.0, 1.0]], 3.25, "<="), [0.25, 0.25, UNSAID]),
    (Linear(X[[1, 1, 0]], [1.0, 0.0], [0.5, 0.75, 2.0], ">="), [-1.0, 0.25, UNSAID]),
    (Margin(X[1:2], [1], 0.5), [UNSAID, 1.5, UNSAID]),
    (Rate(X, [0, 0, 1], tolerance=0.1), [UNSAID] * 3),
    (Difference(X, [[0, 1]], 0.0), [UNSAID] * 3),
    (Monotone({0: 1}), [UNSAID] * 3),
]


@pytest.mark.parametrize(("rule", "expected"), CASES)
def test_slack_is_how_far_outputs_are_from_breaking_a_rule(
    ensemble: Ensemble, rule: Requirement, expected: list[float]
) -> None:
    found = compute_slack(ensemble, rule, X, ensemble.predict(X))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("rule", "expected"), [one for one in CASES if one[0].is_pointwise])
def test_pages_compute_the_same_slack(
    ensemble: Ensemble, rule: Requirement, expected: list[float]
) -> None:
    slack, speaks = ExplainedModule(ensemble, [rule])(torch.as_tensor(X))[RULES:]
    np.testing.assert_allclose(np.where(speaks != 0, slack, np.nan), expected, atol=1e-12)


def test_rules_of_one_name_are_one_and_what_is_broken_is_said(ensemble: Ensemble) -> None:
    rules = [
        Rule(Range(0.0, None, name="ends"), ()),
        Rule(Range(None, 2.0, name="ends"), ()),
        Rule(Linear(X[:1], [1.0, 0.0], 0.5, ">=", name="listed"), ()),
    ]
    told = explain_predictions(ensemble, rules, X, ensemble.predict(X, explain=True))
    assert [row["ends: slack"] for row in told] == [-1.0] * 3
    assert [row["ends: strength"] for row in told] == ["violated"] * 3
    assert [row["listed: slack"] for row in told] == [0.5, None, None]
    assert [row["listed: strength"] for row in told] == ["audited", "unverified", "unverified"]
    assert {row["moved by the shield"] for row in told} == {0.0}


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize(("excess", "said"), [(1e-8, "audited"), (1e-3, "violated")])
def test_what_is_broken_is_said_in_any_units(unit: float, excess: float, said: str) -> None:
    members = ConstantMembers([[unit, 0.0]], 2)
    one = Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))
    bound = unit / (1 + excess)
    rules = [
        Rule(Linear(X, [1.0, 0.0], bound, "<=", name="listed"), ()),
        Rule(Range(None, bound, name="ends"), ()),
    ]
    for row in explain_predictions(one, rules, X, one.predict(X, explain=True)):
        assert (row["listed: strength"], row["ends: strength"]) == (said, said)
