"""Ensembles patched by new weights: nearest by SciPy's word, changes by hand, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, affine
from cg4ai.members.mixture import Part
from cg4ai.rules import Box, DecisionRate, Linear
from raising import raises


def mixture(values: Any, weights: Any) -> Ensemble:
    """Of constant members (count, r)."""
    members = ConstantMembers(np.asarray(values, float), 1)
    part = Part(members, np.zeros(len(members), np.int64), np.asarray(weights, float))
    return Ensemble((part,), Layout.single(members.output_size), about={"guarantees": []})


@pytest.mark.parametrize("seed", range(20))
def test_weights_move_as_little_as_the_rules_need(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(5, 2))
    old = random.dirichlet(np.ones(5))
    wanted = (old @ values) + 0.3 * (values[0] - old @ values)  # some mixture reaches it
    rules = [
        Linear([[0.0]], direction, float(np.dot(direction, wanted)) - 1e-3)
        for direction in random.normal(size=(3, 2))
    ]
    made = mixture(values, old).patch(rules, inputs=[[0.0]])
    new = np.concatenate([part.weights for part in made.ensemble.parts])
    # minimise sum t over (w, t) with w in the simplex and |w - old| <= t
    table = np.stack([values @ rule.coefficients for rule in rules])
    one, none = np.eye(5), np.zeros((3, 5))
    answer = linprog(
        np.r_[np.zeros(5), np.ones(5)],
        np.block([[-table, none], [one, -one], [-one, -one]]),
        np.r_[[-rule.bound[0] for rule in rules], old, -old],
        np.r_[np.ones(5), np.zeros(5)][None],
        [1.0],
    )
    assert np.abs(new - old).sum() == pytest.approx(answer.fun, abs=1e-6)
    assert made.moved == pytest.approx(answer.fun / 2, abs=1e-6)
    assert all(made.ensemble.audit(rule).holds for rule in rules)
    apart = np.abs((new - old) @ values)
    assert made.changes.largest == pytest.approx(apart.max(), abs=1e-9)
    assert made.changes.mean == pytest.approx(apart.mean(), abs=1e-9)


def test_changed_answers_are_counted_and_old_claims_are_void() -> None:
    before = mixture([[1.0, 0.0], [0.0, 1.0]], [0.7, 0.3])
    made = before.patch(Linear([[0.0]], [-1.0, 1.0], 0.2), inputs=[[0.0], [1.0]])
    assert made.changes.answers.tolist() == [0, 1]
    assert str(made.changes).startswith("2 of 2 answers changed")
    assert "guarantees" not in made.ensemble.about
    assert before.predict([[0.0]]).tolist() == [[0.7, 0.3]]


def test_what_weights_cannot_do_is_named() -> None:
    before = mixture([[1.0, 0.0], [0.0, 1.0]], [0.5, 0.5])
    rules = [
        Linear([[0.0]], [1.0, 0.0], 0.6, name="one"),
        Linear([[0.0]], [0.0, 1.0], 0.6, name="other"),
        Linear([[0.0]], [1.0, 1.0], 0.5, name="spare"),
    ]
    with raises(InvalidInput, "infeasible"):
        before.patch(rules)
    with raises(InvalidInput, "unsupported"):
        before.patch(Linear(Box([0.0], [1.0]), [1.0, 0.0], 0.1))
    with raises(InvalidInput, "empty"):
        before.patch([])


def test_decisions_stay_as_they_are_and_rules_on_them_are_not_patched() -> None:
    slopes = np.zeros((2, 1, 2))
    slopes[:, 0, 1] = [1.0, 2.0]
    part = Part(affine(slopes, np.zeros((2, 2))), np.zeros(2, np.int64), np.array([0.5, 0.5]))
    x = np.array([[-1.0], [1.0], [-2.0], [2.0]])
    equal = DecisionRate(x, [0, 0, 1, 1], tolerance=0.1)
    higher = Linear([[1.0]], [0.0, 1.0], 1.8)
    plain = Ensemble((part,), Layout.single(2))
    with raises(InvalidInput, "unsupported"):
        plain.patch([equal, higher])
    about = {"decisions": {"weights": [1.0, 0.0], "offsets": [0.0, 0.0], "agreement": False}}
    made = Ensemble((part,), Layout.single(2), about=about).patch([equal, higher], inputs=x)
    assert made.ensemble.audit(equal).holds
    assert made.ensemble.audit(higher).holds
    assert len(made.changes.answers) == 0
    assert made.changes.largest > 0
    with raises(InvalidInput, "unsupported"):
        made.ensemble.patch([DecisionRate(x[[0, 1, 3]], [0, 0, 1], tolerance=0.1), higher])
    same = made.ensemble.patch(equal).ensemble
    np.testing.assert_allclose(same.predict(x), made.ensemble.predict(x), atol=1e-12)
