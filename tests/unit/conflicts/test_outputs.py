"""Rules that no predictor keeps: irreducible by brute force with linprog, and in readable words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from cg4ai.conflicts import Conflict, Scope, contradiction
from cg4ai.rules import (
    AffineBound,
    Ball,
    Box,
    Difference,
    Equality,
    Linear,
    Margin,
    Monotone,
    Ordered,
    Probability,
    Range,
    Rate,
    SumTo,
)

X = np.random.default_rng(7).normal(size=(6, 2))
BOX = Box([-1.0, -1.0], [1.0, 1.0])


def conflict(*requirements: Any, outputs: int = 3, **more: Any) -> Conflict | None:
    for one in requirements:
        one.check(2, outputs)
    return contradiction(requirements, input_size=2, output_size=outputs, **more)


def kept_together(requirements: Sequence[Any], rows: Sequence[tuple[int, int]]) -> bool:
    """Whether probabilities of three classes at X meet row j of requirement i for all (i, j)."""
    matrix, bounds = [], []
    for number, j in rows:
        made = requirements[number].rows(number)
        row = np.zeros((len(X), 3))
        weights = np.eye(len(X))[made.index[j]] if made.mixing is None else made.mixing[j]
        row += weights[:, None] * made.coefficients[j]
        matrix.append(-row.ravel())
        bounds.append(-made.bounds[j])
    sums = np.kron(np.eye(len(X)), np.ones(3))
    size = 3 * len(X)
    answer = linprog(
        np.zeros(size),
        np.array(matrix).reshape(-1, size),
        np.array(bounds),
        sums,
        np.ones(len(X)),
        bounds=[(0, None)] * size,
    )
    return answer.status == 0


def random_rules(seed: int) -> list[Any]:
    """Rows at single inputs, between two of them, and over all."""
    random = np.random.default_rng(seed)
    some: list[Any] = [Probability(X, random.integers(0, 3, 6), random.uniform(0.2, 0.7, 6))]
    for k in range(int(random.integers(1, 4))):
        a = random.normal(size=(6, 3)).round(1)
        some.append(Linear(X, a, random.uniform(-0.6, 0.4, 6), name=f"sum {k}"))
    pairs = random.integers(0, 6, size=(4, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if len(pairs):
        some.append(Difference(X, pairs, random.uniform(-0.3, 0.5, len(pairs)), output=0))
    some.append(Rate.budget(X, mean_at_most=float(random.uniform(0.2, 0.6)), output=1))
    for one in some:
        one.check(2, 3)
    return some


@pytest.mark.slow
@pytest.mark.guard
def test_conflicts_of_200_random_sets_of_rules_are_irreducible() -> None:
    clashing = seed = 0
    while clashing < 200:
        rules = random_rules(seed)
        seed += 1
        found = contradiction(rules, input_size=2, output_size=3, probabilities=[3])
        named = {
            (number, one.describe(one.rows(number), j)): (number, j)
            for number, one in enumerate(rules)
            for j in range(len(one.rows(number)))
        }
        assert (found is None) == kept_together(rules, list(named.values())), seed
        if found is None:
            continue
        clashing += 1
        assert found.irreducible
        told = zip(found.requirements, found.clauses, strict=True)
        rows = [named[one] for one in told]
        assert not kept_together(rules, rows), seed
        for one in rows:
            assert kept_together(rules, [other for other in rows if other != one]), seed


def test_pairs_at_one_input_are_told_in_words() -> None:
    low = Linear(np.vstack([X, X[:1]]), [0.0, 1.0, 0.0], 0.5, name="low")
    fine = Linear(X[:2], [0.0, 1.0, 0.0], 0.5, "<=", name="fine")
    sure = Probability(X[:1], [1], 0.8, name="sure")
    assert conflict(low, fine) is None
    found = conflict(fine, sure)
    assert found.clauses == ("fine: input 0, f1 <= 0.5", "sure: input 0, class 1 >= 0.8")
    assert found.scope is Scope.OUTPUTS
    assert str(found) == (
        "no predictor can keep these 2 together: fine: input 0, f1 <= 0.5; sure: input 0, class 1 "
        ">= 0.8 (without any one of them the others can be kept)"
    )


def test_a_rule_that_contradicts_itself() -> None:
    both = Linear(X[:2], [1.0, 0.0, 0.0], [1.0, 2.0], "==")
    same = Linear(np.zeros((2, 2)), [1.0, 0.0, 0.0], [1.0, 2.0], "==", name="same")
    assert conflict(both) is None
    assert conflict(same).requirements == (0, 0)
    nothing = Linear(X[:1], [0.0, 0.0, 0.0], 0.5, name="zero")
    assert str(conflict(nothing)) == "no predictor can keep this: zero: input 0, 0 >= 0.5"


def test_what_probabilities_cannot_keep_others_can() -> None:
    beyond = Margin(X, [0, 1, 2, 0, 1, 2], 1.4, form="member")
    assert conflict(beyond) is None
    found = conflict(beyond, probabilities=[3])
    assert found.clauses == ("Margin: input 0, class 0 margin >= 1.4",)
    assert found.scope is Scope.PROBABILITIES
    each = [Probability(X[:1], [k], 0.4, name=f"class {k}") for k in range(3)]
    assert conflict(*each) is None
    assert conflict(*each, probabilities=[3]).requirements == (0, 1, 2)


def test_rules_over_regions_are_read_where_they_meet() -> None:
    low = Linear(BOX, [1.0, 0.0], 0.5, name="low")
    far = Linear(Box([0.8, 0.8], [3.0, 3.0]), [1.0, 0.0], 0.4, "<=", name="far")
    away = Linear(Box([1.5, 1.5], [3.0, 3.0]), [1.0, 0.0], 0.4, "<=", name="away")
    assert conflict(low, away, outputs=2) is None
    assert conflict(low, far, outputs=2).requirements == (0, 1)
    listed = Linear([[0.3, 0.3], [2.0, 2.0]], [1.0, 0.0], 0.4, "<=", name="listed")
    found = conflict(low, listed, outputs=2)
    assert "listed: input 0, f0 <= 0.4" in found.clauses
    assert "low: at x = [0.3, 0.3], f0 >= 0.5" in found.clauses
    margin = Margin(BOX, 0, 0.2, name="lead")
    assert conflict(margin, Linear(BOX, [-1.0, 1.0], 0.0), outputs=2).requirements == (0, 1)


def test_bounds_that_depend_on_the_input_clash_where_they_cross() -> None:
    rising = Linear(Ball([1.0, 1.0], 0.5), [1.0, 0.0], AffineBound(0.0, [1.0, 0.0]), name="rising")
    assert conflict(rising, Linear([[1.2, 1.0]], [1.0, 0.0], 1.3, "<="), outputs=2) is None
    assert conflict(rising, Linear([[1.2, 1.0]], [1.0, 0.0], 1.1, "<="), outputs=2) is not None


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([Range(0, 1), Linear(X, [1.0, 0, 0], 1.5)], "Range: at every input, f0 <= 1"),
        ([Ordered(), Linear(X, [1.0, 0, -1.0], 0.1)], "Ordered: at every input, -f1 + f2 >= 0"),
        ([SumTo(1), Linear(X, [1.0, 0, 0], 1.5)], "SumTo: at every input, f0 + f1 + f2 <= 1"),
        (
            [Equality(None, [1.0, 1.0, 0.0], 2.0), Linear(X, [1.0, 1.0, 0], 1.5, "<=")],
            "Equality: at every input, f0 + f1 == 2",
        ),
    ],
)
def test_rules_at_every_input(rules: list[Any], told: str) -> None:
    found = conflict(*rules)
    assert told in found.clauses
    assert set(found.requirements) == {0, 1}


def test_monotone_rules_tie_inputs() -> None:
    rising = Monotone({0: +1}, 0, name="rises")
    low = Linear([[0.0, 5.0]], [1.0, 0, 0], 1.0, name="low")
    high = Linear([[1.0, 5.0]], [1.0, 0, 0], 0.5, "<=", name="high")
    elsewhere = Linear([[1.0, 6.0]], [1.0, 0, 0], 0.5, "<=", name="elsewhere")
    assert conflict(rising, low, elsewhere) is None
    found = conflict(rising, low, high)
    assert found.clauses == (
        "low: input 0, f0 >= 1",
        "high: input 0, f0 <= 0.5",
        "rises: at every input",
    )


def test_long_lists_are_told_by_requirement() -> None:
    many = np.random.default_rng(0).normal(size=(20_000, 2))
    group = np.arange(20_000) % 2
    equal = Rate(many, group, tolerance=0.02, output=0, name="equal")
    up = Probability(many[group == 0], np.zeros(10_000, int), 0.6, name="up")
    down = Probability(many[group == 1], np.ones(10_000, int), 0.6, name="down")
    assert conflict(equal, up, probabilities=[3]) is None
    found = conflict(equal, up, down, probabilities=[3])
    assert found.requirements == (0, 1, 2)
    assert found.clauses[1] == "up: all its 10000 rows"
