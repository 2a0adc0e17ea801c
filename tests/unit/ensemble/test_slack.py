"""The room of rules against what predictions give by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cg4ai import ConstrainedClassifier, Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.mixture import Part
from cg4ai.rules import (
    Box,
    DecisionRate,
    Equality,
    Linear,
    Margin,
    Monotone,
    Probability,
    Range,
    Rate,
)


@pytest.fixture
def line() -> Ensemble:
    """y = 2 x0 - x1 + 1."""
    members = affine(np.array([[[2.0], [-1.0]]]), np.array([[1.0]]))
    return Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(1))


def test_listed_rows_have_what_is_left_to_their_bounds(line: Ensemble) -> None:
    inputs = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = line.slack(Linear(inputs, [1.0], 2.0, "<=", name="cap"))
    assert found.requirement == "cap"
    assert found.values == pytest.approx([1.0, -1.0, 2.0])
    audit = line.audit(Linear(inputs, [1.0], 2.0, "<=", name="cap"))
    assert audit.worst_violation == pytest.approx(-found.values.min())


def test_over_a_region_only_inputs_inside_it_count(line: Ensemble) -> None:
    rule = Linear(Box([0, 0], [1, 1]), [1.0], 4.0, "<=")
    found = line.slack(rule, np.array([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]))
    assert found.values == pytest.approx([1.0, 4.0])
    sampled = line.slack(rule)
    assert sampled.values.min() == pytest.approx(1.0)  # a vertex is among them
    assert len(sampled.values) > 100


def test_rules_by_construction_have_room_at_inputs_or_none_at_all(line: Ensemble) -> None:
    inputs = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert line.slack(Range(0.0, 5.0), inputs).values == pytest.approx([1.0, 2.0])
    assert len(line.slack(Range(0.0, None)).values) == 0
    assert len(line.slack(Monotone({0: 1}), inputs).values) == 0
    assert len(line.slack(Equality(None, [[1.0]], [1.0]), inputs).values) == 0


def test_inputs_of_another_size_are_refused(line: Ensemble) -> None:
    with pytest.raises(InvalidInput):
        line.slack(Linear(np.zeros((2, 3)), [1.0], 2.0, "<="))


@pytest.fixture(scope="module")
def fitted() -> tuple[ConstrainedClassifier, np.ndarray, np.ndarray]:
    made = np.random.default_rng(0)
    X = made.normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, 7, 3)
    model = ConstrainedClassifier(members="stump", iteration_limit=4, random_state=0)
    return model.fit(X, y, [Probability(X[:4], y[:4], at_least=0.5)]), X, y


def test_estimators_take_labels_of_their_own(
    fitted: tuple[ConstrainedClassifier, np.ndarray, np.ndarray],
) -> None:
    model, X, y = fitted
    rule = Probability(X[:4], y[:4], at_least=0.5)
    of_class = model.predict_proba(X[:4])[np.arange(4), (y[:4] == 7).astype(int)]
    assert model.slack(rule).values == pytest.approx(of_class - 0.5)
    margin = Margin(X[:4], y[:4], at_least=0.1)
    assert model.slack(margin).values == pytest.approx(2 * of_class - 1 - 0.1)


def test_rates_have_a_row_for_each_bound(
    fitted: tuple[ConstrainedClassifier, np.ndarray, np.ndarray],
) -> None:
    model, X, _ = fitted
    groups = np.repeat(["a", "b"], 30)
    scores = model.predict_proba(X)[:, 1]
    apart = scores[:30].mean() - scores[30:].mean()
    found = model.slack(Rate(X, groups, tolerance=0.5, output=1))
    assert sorted(found.values) == pytest.approx(sorted([0.5 - apart, 0.5 + apart]))
    decided = model.slack(DecisionRate(X, groups, tolerance=0.5, output=1))
    votes = (model.predict(X) == 7).astype(float)
    apart = votes[:30].mean() - votes[30:].mean()
    assert sorted(decided.values) == pytest.approx(sorted([0.5 - apart, 0.5 + apart]))
