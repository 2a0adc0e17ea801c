"""Rules on outputs at every input: what is accepted, joined and refused."""

from typing import cast

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.rules import Ordered, Range, SumTo
from cg4ai.rules.output_sets import join_output_rules
from raising import raises


def test_the_rules_become_one_set() -> None:
    made = join_output_rules([Range(0, 1), Ordered(), SumTo(2)], 3)
    matrix, bound = made.rows
    for outputs, inside in (
        ([0.4, 0.6, 1.0], True),
        ([0.6, 0.4, 1.0], False),
        ([0.1, 0.2, 0.3], False),
        ([0.0, 0.9, 1.1], False),
    ):
        assert bool((matrix @ np.array(outputs) >= bound - 1e-12).all()) is inside


def test_ends_are_passed_on_along_an_order() -> None:
    """Between f0 <= f1 <= f2 with f0 >= 1 and f1 <= 5 nothing else is possible."""
    made = join_output_rules(
        [Ordered((0, 1)), Ordered((1, 2)), Range(1, None, [0]), Range(None, 5, [1])], 3
    )
    assert made.chains == ((0, 1, 2),)
    assert made.low.tolist() == [1, 1, 1]
    assert made.high.tolist() == [5, 5, np.inf]


def test_what_is_missed_is_measured() -> None:
    rule = Range([0.0, 10.0], [1.0, 11.0])
    missed = rule.compute_violation(
        np.zeros((3, 1)), np.array([[0.5, 10.5], [1.25, 10.5], [0.5, 9.0]])
    )
    np.testing.assert_allclose(missed, [0, 0.25, 1.0])


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Range(2, 1), "range"),
        (lambda: Range([0, 3], [1, 2]), "range"),
        (lambda: Range("a", 1), "type"),
        (lambda: Range(0, np.nan), "type"),
        (lambda: Range(np.inf, np.inf), "range"),
        (lambda: Range([0, 1], [1, 2, 3]), "shape"),
        (lambda: Range([0, 1], 2, [0, 1, 2]), "shape"),
        (lambda: Range(0, 1, [0, 0]), "invalid-input"),
        (lambda: Range(0, 1, ["a"]).check(1, 3), "unknown-name"),
        (lambda: Range(0, 1, [True]), "type"),
        (lambda: Range(0, 1, name=cast(str, 3)), "type"),
        (lambda: Range([0, 1], 2).check(1, 3), "shape"),
        (lambda: Range(0, 1, [5]).check(1, 3), "unknown-name"),
        (lambda: Ordered([0]).check(1, 3), "invalid-input"),
        (lambda: Ordered().check(1, 1), "invalid-input"),
        (lambda: SumTo(np.inf), "not-finite"),
        (lambda: SumTo([1, 2]), "not-finite"),
        (lambda: SumTo(-1).check(1, 3), "infeasible"),
        (lambda: join_output_rules([SumTo(5), Range(0, 1)], 3), "infeasible"),
        (
            lambda: join_output_rules([Range(3, 4, [0]), Range(0, 1, [1]), Ordered()], 2),
            "infeasible",
        ),
        (lambda: join_output_rules([Range(0, 1), Range(2, 3)], 2), "infeasible"),
        (lambda: join_output_rules([Ordered((0, 1)), Ordered((1, 0))], 2), "infeasible"),
        (lambda: join_output_rules([Ordered((0, 1)), Ordered((0, 2))], 3), "unsupported"),
        (lambda: join_output_rules([SumTo(1, [0, 1]), SumTo(2, [1, 2])], 3), "conflict"),
        (lambda: join_output_rules([SumTo(1, [0, 1]), SumTo(2, [0, 1])], 3), "conflict"),
        (
            lambda: join_output_rules([SumTo(1, [0, 1]), Ordered()], 3),
            "unsupported",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: object, code: str) -> None:
    with raises(InvalidInput, code):
        make()  # type: ignore[operator]


def test_a_total_may_be_at_its_ends() -> None:
    assert join_output_rules([SumTo(0.3, low=0.1)], 3).totals[0].value == 0.3


def test_a_range_without_ends_is_refused() -> None:
    with raises(InvalidInput, "missing-argument"):
        Range(None, None)
    assert Range(None, 1.0).high.tolist() == [1.0]
