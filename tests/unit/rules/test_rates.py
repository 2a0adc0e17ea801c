"""Rates of groups as rows: whom they compare, what margins make of them, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cg4ai.errors import InvalidInput
from cg4ai.rules import DecisionRate, Rate
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3))
GROUPS = np.array(["a", "b", "c"])[RANDOM.integers(0, 3, 60)]
LABELS = RANDOM.integers(0, 2, 60)
VOTES = RANDOM.integers(0, 2, 60)


def values(rule: Any) -> dict[str, float]:
    rule.check(3, 2)
    rows = rule.rows(0)
    outputs = torch.tensor(np.stack([1 - VOTES, VOTES], 1), dtype=torch.float64)
    found = rows.values(outputs).numpy() - rows.bounds
    return {rule.describe(rows, j): float(found[j]) for j in range(len(rows))}


def rate(group: str, label: int | None = None) -> float:
    kept = (group == GROUPS) & (True if label is None else label == LABELS)
    return float(VOTES[kept].mean())


def test_equalised_odds_compare_groups_among_those_of_one_label() -> None:
    rule = DecisionRate(X, GROUPS, tolerance=0.1, of="equalised odds", labels=LABELS)
    found = list(values(rule).values())
    expected = []
    for label in (1, 0):
        for a, b in (("a", "b"), ("a", "c"), ("b", "c")):
            gap = rate(a, label) - rate(b, label)
            expected += [gap + 0.1, 0.1 - gap]
    assert np.allclose(found, expected)


def test_bounds_on_the_rate_of_each_group() -> None:
    rule = DecisionRate(X, GROUPS, at_least=0.2, at_most=0.7)
    found = list(values(rule).values())
    expected = [side for g in "abc" for side in (rate(g) - 0.2, 0.7 - rate(g))]
    assert np.allclose(found, expected)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("demographic parity", "selection"),
        ("equal opportunity", "true positive"),
        ("equalized odds", "equalised odds"),
    ],
)
def test_names_that_others_use(name: str, known: str) -> None:
    assert DecisionRate(X, GROUPS, tolerance=0.1, of=name, labels=LABELS).of == known


def test_equal_opportunity_of_a_pair_in_the_order_named() -> None:
    rule = DecisionRate(
        X, GROUPS, tolerance=0.3, of="equal opportunity", labels=LABELS, between=("c", "a")
    )
    assert np.isclose(next(iter(values(rule).values())), rate("c", 1) - rate("a", 1) + 0.3)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: DecisionRate(X, GROUPS), "missing-argument"),
        (lambda: DecisionRate(X, GROUPS, tolerance=0.1, of="parity"), "unknown-name"),
        (lambda: DecisionRate(X, GROUPS, tolerance=0.1, of="true positive"), "missing-argument"),
        (lambda: DecisionRate(X, GROUPS, at_least=0.8, at_most=0.2), "infeasible"),
        (lambda: DecisionRate(X, GROUPS, at_least=1.2), "range"),
        (lambda: DecisionRate(X, GROUPS, tolerance=0.1, between=("a", "z")), "range"),
        (lambda: DecisionRate(X, GROUPS, tolerance=0.1, margin=-1), "range"),
        (
            lambda: DecisionRate(
                X, GROUPS, tolerance=0.1, of="true positive", labels=LABELS * (GROUPS != "b")
            ).check(3, 2),
            "empty",
        ),
        (lambda: DecisionRate(X, GROUPS, at_most=0.1, output=0).check(3, 1), "unsupported"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, code: str) -> None:
    with raises(InvalidInput, code):
        make()


def test_a_margin_tightens_and_never_forbids_what_is_asked() -> None:
    sizes = np.unique(GROUPS, return_counts=True)[1].tolist()
    error = 0.01 * np.sqrt(sum(1 / size for size in sorted(sizes)[:2]))
    assert np.isclose(Rate(X, GROUPS, tolerance=0.1).tighten(0.01).tolerance, 0.1 - error)
    assert Rate(X, GROUPS, tolerance=0.1).tighten(9.0).tolerance == 0.05
    assert Rate(X, GROUPS, tolerance=0.1, margin=0.03).tighten(9.0).tolerance == 0.07
    assert DecisionRate(X, GROUPS, tolerance=0.1, margin=0.0).tighten(9.0).tolerance == 0.1
    fine = DecisionRate(X, GROUPS, tolerance=0.1).tighten(0.01)
    assert np.isclose(fine.tolerance, 0.1 - 1.645 * error)
    most = DecisionRate(X, GROUPS, at_least=0.9, margin="auto").tighten(9.0)
    assert np.isclose(most.at_least, 0.95), "no rate is above 1"
    both = Rate.budget(X, mean_at_least=0.4, mean_at_most=0.5).tighten(9.0)
    assert np.isclose(both.mean_at_least, 0.45)
    assert np.isclose(both.mean_at_most, 0.45)


def test_a_rule_at_some_of_its_inputs_has_the_rates_of_those() -> None:
    kept = np.arange(60) < 40
    rule = DecisionRate(X, GROUPS, tolerance=0.1, of="equalised odds", labels=LABELS)
    part = rule.restrict_to(kept)
    assert part is not None
    direct = DecisionRate(
        X[kept], GROUPS[kept], tolerance=0.1, of="equalised odds", labels=LABELS[kept]
    )
    direct.check(3, 2)
    part.check(3, 2)
    assert np.array_equal(part.rows(0).mixing, direct.rows(0).mixing)
    assert rule.restrict_to(GROUPS != "b") is None, "a group without inputs has no rate"


def test_labels_of_decision_rates_by_name() -> None:
    names = np.array(["refuse", "approve"])[LABELS]
    rule = DecisionRate(
        X, GROUPS, tolerance=0.1, of="true positive", labels=names, output="approve"
    )
    with raises(InvalidInput, "unsupported", "only"):
        rule.check(X.shape[1], 2)
    known = rule.resolve_names([], ["refuse", "approve"], (X.min(0), X.max(0)))
    assert known.labels.tolist() == LABELS.tolist()
    assert known.output == 1
    with raises(InvalidInput, "unknown-name", "approved"):
        rule.resolve_names([], ["refuse", "approved"], (X.min(0), X.max(0)))
