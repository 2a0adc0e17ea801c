"""Splitting and merging labelled rows, and pricing on other data than the master weighs by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cg4ai.colgen.pricing.defaults import PricerDefaults
from cg4ai.estimators.holdout import HeldOutPricer, LabelledData, merge_rows, split_rows
from cg4ai.layout import Layout
from cg4ai.objectives import Supervised
from cg4ai.protocols import PricingRequest
from cg4ai.records import Duals, PricingResult
from cg4ai.rules.rows import RowSet


def labelled(count: int, classes: int = 3, seed: int = 0) -> LabelledData:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    return LabelledData(rng.normal(size=(count, 2)), labels, np.ones(count))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), count=st.integers(2, 30))
def test_weights_are_copies_and_order_means_nothing(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = rng.integers(3, size=(count, 2)).astype(float)
    targets = rng.integers(2, size=count)
    weights = rng.integers(0, 4, size=count).astype(float)
    weights[0] = 1.0
    copies = np.repeat(rng.permutation(count), 1)
    repeated = np.repeat(copies, weights[copies].astype(int))
    one = merge_rows(LabelledData(inputs, targets, weights))
    other = merge_rows(LabelledData(inputs[repeated], targets[repeated], np.ones(len(repeated))))
    for a, b in ((one.inputs, other.inputs), (one.targets, other.targets)):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.weights, other.weights)
    assert one.weights.sum() == weights.sum()
    pairs = np.column_stack([one.inputs, one.targets])
    assert len(np.unique(pairs, axis=0)) == len(pairs)


def test_merging_keeps_rows_that_differ_in_the_target_alone() -> None:
    data = LabelledData(
        np.zeros((3, 1)), np.array([[1.0], [2.0], [1.0]]), np.array([1.0, 1.0, 2.0])
    )
    result = merge_rows(data)
    found = {float(t): float(w) for t, w in zip(result.targets[:, 0], result.weights, strict=True)}
    assert found == {1.0: 3.0, 2.0: 1.0}


def test_minus_zero_is_zero() -> None:
    data = LabelledData(np.array([[0.0], [-0.0]]), np.array([1, 1]), np.ones(2))
    assert len(merge_rows(data).inputs) == 1


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.33, 0.5])
def test_each_class_is_held_out_alike(fraction: float) -> None:
    data = labelled(300)
    trained, weighed = split_rows(data, fraction, np.random.default_rng(0))
    for label in range(3):
        total = int((data.targets == label).sum())
        assert abs((weighed.targets == label).sum() - fraction * total) <= 1
    both = np.concatenate([trained.inputs, weighed.inputs])
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(data.inputs, axis=0))


def test_rare_classes_are_trained_on() -> None:
    data = labelled(50)
    data.targets[:] = 0
    data.targets[:4] = 1
    trained, weighed = split_rows(data, 0.2, np.random.default_rng(0))
    assert (trained.targets == 1).sum() == 4
    assert len(weighed.targets) == 9


def test_numeric_targets_are_split_at_random() -> None:
    data = labelled(100)
    data = replace(data, targets=np.arange(100.0)[:, None])
    sizes, firsts = set(), set()
    for seed in range(3):
        _, weighed = split_rows(data, 0.2, np.random.default_rng(seed))
        sizes.add(len(weighed.targets))
        firsts.add(float(weighed.targets[0, 0]))
    assert sizes == {20}
    assert len(firsts) > 1


class Recording(PricerDefaults):
    seen: PricingRequest

    def price(self, request: PricingRequest) -> PricingResult:
        self.seen = request
        return PricingResult(None, np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(1))


def test_the_inner_pricer_sees_the_training_data_and_its_bound_is_dropped() -> None:
    training: Any = Supervised(np.zeros((3, 2)), np.zeros((3, 1)))
    weighed = Supervised(np.ones((2, 2)), np.ones((2, 1)))
    inner = Recording()
    request = PricingRequest(
        iteration=0,
        seed=7,
        duals=Duals(np.array([2.0]), np.array([-0.5])),
        guide=np.array([2.0]),
        rows=RowSet(Layout.single(1)),
        objective=weighed,
        loss_weight=1.0,
        ensemble=None,
        device="cpu",
    )
    result = HeldOutPricer(inner, training, weighed.inputs).price(request)
    assert result.lower_bound is None
    assert inner.seen.objective is training
    assert inner.seen.duals.rows == np.array([2.0])
    assert inner.seen.seed == 7
    assert inner.seen.duals.blocks[0] > 1e5, "no proposal may be held back by a foreign price"
