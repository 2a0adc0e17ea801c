"""What is said of outputs holds for the numbers that come out, not for those before rounding."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.export import build_onnx_model, export_program
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.layout import Layout
from cg4ai.members import affine
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.equalities import CompletedMembers
from cg4ai.members.mixture import Part
from cg4ai.members.output_sets import ArrangedMembers
from cg4ai.rules import AffineBound, Equality, Monotone, Ordered, Range, Requirement, SumTo
from cg4ai.rules.output_sets import OutputRule, join_output_rules

INPUTS = np.concatenate([np.random.default_rng(1).normal(size=(200, 3)), np.zeros((1, 3))]) * 3


def mixture(members: Any, weights: Any) -> Ensemble:
    part = Part(members, np.zeros(len(members), np.int64), np.asarray(weights))
    return Ensemble((part,), Layout.single(members.output_size))


def arranged(
    rules: list[OutputRule], unit: float, count: int, seed: int, outputs: int = 4
) -> Ensemble:
    random = np.random.default_rng(seed)
    slopes = random.normal(size=(count, 3, outputs))
    offsets = random.normal(size=(count, outputs))
    members = ArrangedMembers(
        affine(unit * slopes, unit * offsets), join_output_rules(rules, outputs)
    )
    return mixture(members, random.dirichlet(np.ones(count)))


def shares(count: int, seed: int, size: int = 3) -> Ensemble:
    """Softmax members, many of which are sure."""
    random = np.random.default_rng(seed)
    slopes = random.normal(size=(count, 3, size)) * 10.0 ** random.uniform(-2, 3, (count, 1, 1))
    members = affine(slopes, random.normal(size=(count, size)), output="softmax")
    return mixture(members, random.dirichlet(np.ones(count)))


many = st.integers(2, 40)
seeds = st.integers(0, 10_000)
units = st.integers(-9, 9).map(lambda power: 10.0**power)


@settings(deadline=None, max_examples=25)
@given(unit=units, count=many, seed=seeds)
def test_ranges_and_orders_hold_for_the_floats(unit: float, count: int, seed: int) -> None:
    low, high = sorted(np.random.default_rng(seed).normal(size=2) * unit)
    rules: list[OutputRule] = [Range(low, high), Ordered((2, 0, 3))]
    model = arranged(rules, unit, count, seed)
    for found in (
        model.predict(INPUTS),
        np.concatenate([model.predict(x[None]) for x in INPUTS[:20]]),
        model.as_module()(torch.as_tensor(INPUTS)).numpy(),
        model.predict(INPUTS, explain=True).outputs,
    ):
        assert found.min() >= low
        assert found.max() <= high
        assert (np.diff(found[:, [2, 0, 3]], axis=1) >= 0).all()


@settings(deadline=None, max_examples=25)
@given(unit=units, count=many, seed=seeds)
def test_sums_hold_to_rounding_and_their_least_numbers_exactly(
    unit: float, count: int, seed: int
) -> None:
    rules: list[OutputRule] = [SumTo(unit), Ordered((0, 1, 2, 3)), Range(None, 0.9 * unit)]
    found = arranged(rules, unit, count, seed).predict(INPUTS)
    assert found.min() >= 0
    assert found.max() <= 0.9 * unit
    assert (np.diff(found, axis=1) >= 0).all()
    assert np.abs(found.sum(1) - unit).max() <= 1e-14 * unit


@settings(deadline=None, max_examples=25)
@given(count=many, seed=seeds)
def test_probabilities_lie_between_zero_and_one(count: int, seed: int) -> None:
    model = shares(count, seed)
    for found in (model.predict(INPUTS), model.as_module()(torch.as_tensor(INPUTS)).numpy()):
        assert found.min() >= 0
        assert found.max() <= 1
        assert np.abs(found.sum(1) - 1).max() <= 1e-14


def test_weights_whose_sum_is_rounded_upwards_do_not_matter() -> None:
    """Six members that say exactly 1: their weighted sum was 1.0000000000000002."""
    values = np.tile([[0.0, 1.0]], (6, 1))
    weights = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.1000000000000002])
    assert weights @ values[:, 1] > 1
    found = mixture(ConstantMembers(values, 3), weights).predict(INPUTS)
    assert found.max() <= 1


def test_forests_give_scores_that_scikit_learn_takes() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    y = (x[:, 0] > 0).astype(int)
    forests = [RandomForestClassifier(23, random_state=k).fit(x, y) for k in range(3)]
    stacks = [from_sklearn(one) for one in forests]
    weights = (0.1, 0.2, 0.7000000000000002)
    parts = tuple(
        Part(stack, np.zeros(1, np.int64), np.array([weight]))
        for stack, weight in zip(stacks, weights, strict=True)
    )
    found = Ensemble(parts, Layout.single(2)).predict(x)
    assert found.max() <= 1
    assert log_loss(y, found) < 0.5
    model = ConstrainedClassifier(members=RandomForestClassifier(7), random_state=0).fit(x, y)
    chances = model.predict_proba(x)
    assert chances.min() >= 0
    assert chances.max() <= 1
    log_loss(y, chances)


def test_exports_keep_ends_and_orders_in_both_precisions() -> None:
    """Of three groups of four outputs with ends of their own, in one graph."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    low = np.array([-0.3, 0.1, 1 / 3]).repeat(4)
    high = low + 0.1
    rules: list[OutputRule] = [Range(low, high), *(Ordered((k + 1, k + 2)) for k in (0, 4, 8))]
    model = arranged(rules, 1.0, 9, 4, outputs=12)
    graph = export_program(model.as_module(), 3).module()(torch.as_tensor(INPUTS)).numpy()
    for precision in ("float64", "float32"):
        data = build_onnx_model(model, precision=precision)
        session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {"inputs": INPUTS.astype(precision)})
        for outputs in (graph, found.astype(np.float64)):
            assert (outputs >= low).all()
            assert (outputs <= high).all()
            for k in (0, 4, 8):
                assert (outputs[:, k + 2] >= outputs[:, k + 1]).all()


@settings(deadline=None, max_examples=25)
@given(unit=units, count=many, seed=seeds)
def test_equalities_hold_to_rounding_of_their_terms(unit: float, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = np.array([1.0, 2.0, 0.1, 1.0]) * unit
    matrix = random.normal(size=(2, 4)) / sizes
    bound = AffineBound(random.normal(size=2), random.normal(size=(2, 3)))
    rule = Equality(None, matrix, bound)
    inner = affine(
        random.normal(size=(count, 3, 4)) * sizes, random.normal(size=(count, 4)) * sizes
    )
    members = CompletedMembers(inner, rule.completion(3).project())
    model = mixture(members, random.dirichlet(np.ones(count)))
    found = model.predict(INPUTS)
    wanted = bound.offset + INPUTS @ bound.slope.T
    terms = np.abs(found) @ np.abs(matrix).T + np.abs(wanted)
    assert (np.abs(found @ matrix.T - wanted) <= 1e-12 * terms).all()


def test_equalities_between_outputs_in_other_units_are_kept() -> None:
    x = np.random.default_rng(0).uniform(size=(50, 2))
    y = np.column_stack([1e9 * x[:, 0], x[:, 1], 1e9 * x[:, 0]])
    rule = Equality(None, [[1e-9, 1.0, 1e-9]], AffineBound([0.0], [[2.0, 1.0]]))
    model = ConstrainedRegressor(random_state=0, steps=20, iteration_limit=3)
    model.fit(x, y, requirements=[rule])
    reached = model.predict(x) @ [1e-9, 1.0, 1e-9]
    np.testing.assert_allclose(reached, x @ [2.0, 1.0], atol=1e-12)


def test_equalities_that_lose_their_digits_are_refused_before_training() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(3, 4)) * 10.0 ** rng.integers(-9, 10, size=(3, 4))
    rule = Equality(None, matrix, AffineBound([0.0, 0.0, 0.0], rng.normal(size=(3, 2))))
    x, y = rng.uniform(size=(50, 2)), rng.normal(size=(50, 4))

    def trained(*_: Any) -> None:
        pytest.fail("it was trained")

    with pytest.raises(InvalidInput):
        ConstrainedRegressor(random_state=0).fit(x, y, requirements=[rule], progress=trained)


@pytest.mark.parametrize("most", [1e-9, 1.0, 1e9])
def test_monotone_members_fall_by_rounding_alone(most: float) -> None:
    random = np.random.default_rng(0)
    x = random.uniform(size=(300, 2))
    y = most * (x[:, 0] + np.sin(5 * x[:, 1]))
    rules: list[Requirement] = [Monotone({0: +1}), Range(0.0, most)]
    model = ConstrainedRegressor(steps=30, iteration_limit=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        model.fit(x, y, requirements=rules)
    steps = np.concatenate([x, x, x])
    higher = steps + np.array([[1e-15, 0.0], [1e-9, 0.0], [0.3, 0.0]]).repeat(len(x), 0)
    before, after = model.predict(steps), model.predict(higher)
    assert (after - before).min() >= -1e-12 * most
    assert before.min() >= 0
    assert after.max() <= most
