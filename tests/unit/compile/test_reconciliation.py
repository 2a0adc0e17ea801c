"""Balances beside ranges, orders and totals: one set of outputs, kept at every input."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pytest
import torch

import cg4ai
from cg4ai import ConstrainedRegressor
from cg4ai.errors import InvalidInput
from cg4ai.nn.reconciling import ReconciliationTensors
from cg4ai.proofs.certificate import build_certificate
from cg4ai.proofs.certification import certify
from cg4ai.rules import AffineBound, Equality, Linear, Ordered, Range, SumTo
from cg4ai.rules.box import Box
from cg4ai.rules.reconciliation import reconcile
from cg4ai_checker import Rejected, verdict
from raising import raises

RANDOM = np.random.default_rng(5)
# total; by country A, B; by product p, q; bottom Ap, Aq, Bp, Bq: two hierarchies that cross
SUMS = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]])
CROSSED = Equality(None, np.column_stack([np.eye(5), -SUMS]), 0.0, name="hierarchy")
ONE = Equality(None, [1.0, 1.0, 1.0, 1.0], 1.0, name="sum")
PER_INPUT = Equality(None, [1.0, 1.0, 1.0, 1.0], AffineBound(0.5, [1.0, -1.0]), name="sum")

CASES: dict[str, list[Any]] = {
    "above zero": [CROSSED, Range(0.0, None, name="range")],
    "a cap on the total": [CROSSED, Range(0.0, [2.0] + [np.inf] * 8, name="range")],
    "orders": [CROSSED, Ordered([5, 6], name="order"), Range(0.0, None, name="range")],
    "an order of sums": [CROSSED, Ordered([1, 2], name="order"), Range(-1.0, 3.0, name="range")],
    "a simplex with caps": [ONE, Range(0.0, 0.4, name="range"), Ordered([0, 1], name="order")],
    "two sums": [Equality(None, [2.0, -1.0, 0, 0], 0.1, name="half"), SumTo(1.0, name="total")],
    "one fixed": [ONE, Range(0.0, [0.2, 1, 1, 1], name="range"), Range([0.2] + [0] * 3, None)],
    "free of ends": [PER_INPUT, Range(0.0, 0.3, outputs=[0, 1, 2], name="range")],
    "other units": [
        Equality(None, [1e6, 1e6, 1.0], 3e6, name="sum"),
        Range([0.0, 0.0, -1e6], [2.0, 2.0, 2e6], name="range"),
    ],
}


def missed(rules: list[Any], inputs: np.ndarray, outputs: np.ndarray) -> float:
    """The worst violation, in the size of the outputs."""
    size = max(1.0, float(np.abs(outputs).max()))
    scale = [size * max(1.0, float(np.abs(getattr(one, "matrix", 1.0)).max())) for one in rules]
    found = [float(one.compute_violation(inputs, outputs).max()) for one in rules]
    return max(own / unit for own, unit in zip(found, scale, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_any_outputs_are_moved_into_the_set_and_those_in_it_stay(name: str) -> None:
    rules = CASES[name]
    equalities = [one for one in rules if isinstance(one, Equality)]
    others = [one for one in rules if not isinstance(one, Equality)]
    made = reconcile(equalities, others, input_size=2)
    size = made.output_size
    raw = RANDOM.normal(size=(200, size)) * 10.0 ** RANDOM.integers(-2, 8, (200, 1))
    raw[0], raw[1], raw[2] = np.nan, np.inf, -np.inf
    x = RANDOM.normal(size=(200, 2))
    layer = ReconciliationTensors.of(made, torch.zeros(1, dtype=torch.float64))
    moved = layer.reconcile(torch.as_tensor(x), torch.as_tensor(raw)).numpy()
    usual = np.abs(moved).max(axis=1) < 1e12
    assert usual.sum() > 150
    assert missed(rules, x[usual], moved[usual]) <= 1e-12
    again = layer.reconcile(torch.as_tensor(x), torch.as_tensor(moved)).numpy()
    assert again[usual] == pytest.approx(moved[usual], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "members"),
    [("above zero", "network"), ("a cap on the total", "tree"), ("free of ends", "tree")],
)
def test_members_are_trained_within_it_certified_and_stored(name: str, members: str) -> None:
    rules = CASES[name]
    x = RANDOM.normal(size=(150, 2))
    bottom = np.maximum(x @ RANDOM.normal(size=(2, 4)) + 0.3, 0.0)
    targets = np.column_stack([bottom @ SUMS.T, bottom])
    if name == "free of ends":
        parts = np.minimum(bottom[:, :3], 0.3)
        targets = np.column_stack([parts, 0.5 + x[:, 0] - x[:, 1] - parts.sum(axis=1)])
    model = ConstrainedRegressor(members=members, steps=60, iteration_limit=1, random_state=0)
    model.fit(x, targets, requirements=rules)
    assert {str(audit.strength) for audit in model.audit_} == {"constructed"}
    far = RANDOM.normal(size=(3000, 2)) * 100
    outputs = model.predict(far)
    assert missed(rules, far, outputs) <= 1e-12
    if name != "free of ends":
        assert outputs.min() >= 0.0  # ends hold exactly
    for rule in rules:
        answer = certify(model.ensemble_, rule)
        assert answer.status == "proven", (rule.name, answer.note)
        proof = build_certificate(model.ensemble_, requirement=rule, certification=answer)
        assert str(verdict(proof))
    wrong = Range(0.1, None, name="range")
    assert certify(model.ensemble_, wrong).status == "unknown"
    with pytest.raises((InvalidInput, Rejected)):
        build_certificate(model.ensemble_, requirement=wrong, certification=answer)
    with tempfile.TemporaryDirectory() as folder:
        model.ensemble_.save(f"{folder}/saved")
        loaded = cg4ai.load(f"{folder}/saved")
    assert np.array_equal(loaded.predict(far), outputs)
    alone = np.stack([model.predict(one[None])[0] for one in far[:10]])
    assert alone == pytest.approx(outputs[:10], rel=1e-12, abs=1e-12)


def test_a_rule_over_a_region_beside_them_stays_a_row_and_says_why() -> None:
    x = RANDOM.normal(size=(80, 2))
    cap = Linear(Box([-1, -1], [1, 1]), [1.0, 0, 0, 0], 0.9, "<=", name="cap")
    model = ConstrainedRegressor(members="network", steps=30, iteration_limit=1, random_state=0)
    settings = {"guarantee": "shielded"}
    with raises(InvalidInput, "anchor", "reconciled"):
        model.set_params(settings=settings).fit(x, np.full((80, 4), 0.25), [ONE, Range(0, 1), cap])


@pytest.mark.parametrize(
    "rules",
    [
        [PER_INPUT, Range(0.0, None)],  # at some inputs the sum is below zero
        [ONE, Range(0.0, 0.25)],  # a single point is left
        [ONE, Range(0.0, 0.2)],  # and none here
        [CROSSED, Range(0.0, [1.0] + [np.inf] * 8), Range([-9.0] * 5 + [0.5] * 4, None)],
    ],
)
def test_what_leaves_no_room_is_refused(rules: list[Any]) -> None:
    equalities = [one for one in rules if isinstance(one, Equality)]
    with raises(InvalidInput, "infeasible"):
        reconcile(equalities, [one for one in rules if one not in equalities], input_size=2)
