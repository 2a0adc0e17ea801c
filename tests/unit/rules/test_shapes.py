"""Monotone and Curvature: what they ask of outputs, and what they refuse."""

import numpy as np
import pytest

from cg4ai.errors import InvalidInput
from cg4ai.rules import Curvature, Monotone
from raising import raises


def test_directions_and_functionals() -> None:
    rule = Monotone({2: +1, 0: -1})
    assert rule.directions(4).tolist() == [-1, 0, 1, 0]
    assert rule.functionals(2).tolist() == [[1, 0], [0, 1]]
    assert Monotone({0: 1}, output=1).functionals(3).tolist() == [[0, 1, 0]]
    rule.check(4, 2)
    assert rule.signs(4).tolist() == [[-1, 0, 1, 0]] * 2


def test_a_class_is_compared_with_each_other() -> None:
    assert Monotone({0: 1}, output=1).differences(3).tolist() == [[-1, 1, 0], [0, 1, -1]]
    assert Monotone({0: 1}, ordered=True).differences(3).tolist() == [[-1, 1, 0], [0, -1, 1]]
    assert Monotone({0: 1}, ordered=True).functionals(3).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert Monotone({0: 1}).for_classes(2, logits=True).functionals(2).tolist() == [[-1, 1]]
    with raises(InvalidInput, "missing-argument"):
        Monotone({0: 1}).for_classes(3, logits=False).differences(3)


def test_adjacent_logits_that_rise_raise_every_tail() -> None:
    """Likelihood ratios in order give stochastic dominance, and mixing keeps that."""
    generator = np.random.default_rng(0)
    low = generator.normal(size=(200, 5))
    high = low + np.cumsum(np.abs(generator.normal(size=(200, 5))), axis=1)
    tails = Monotone({0: 1}, ordered=True).functionals(5).T

    def softmax(z: np.ndarray) -> np.ndarray:
        return np.exp(z) / np.exp(z).sum(1, keepdims=True)

    assert (softmax(high) @ tails >= softmax(low) @ tails - 1e-12).all()


def test_features_by_name() -> None:
    rule = Monotone({"age": +1, 0: -1}, output="yes").resolve_names(
        ["income", "age"], ["no", "yes"]
    )
    assert rule.directions(2).tolist() == [-1, 1]
    assert rule.output == 1
    with raises(InvalidInput, "unknown-name", "age"):
        Monotone({"agee": +1}).resolve_names(["income", "age"])
    with raises(InvalidInput, "duplicate"):
        Monotone({"age": +1, 1: -1}).resolve_names(["income", "age"])
    with raises(InvalidInput, "unsupported"):
        Monotone({"age": +1}).check(2, 1)


@pytest.mark.parametrize(
    ("features", "code"),
    [
        ({}, "type"),
        ([], "type"),
        ([0, 0], "type"),
        ([2, 0], "range"),
        ({0: 2}, "range"),
        ({0: True}, "range"),
        ({-1: 1}, "type"),
    ],
)
def test_what_is_no_shape(features: object, code: str) -> None:
    with raises(InvalidInput, code):
        Monotone(features)


def test_unknown_features_and_outputs() -> None:
    with raises(InvalidInput, "range", "feature 3"):
        Curvature({3: 1}).check(3, 1)
    with raises(InvalidInput, "range", "output 1"):
        Curvature({0: 1}, output=1).check(3, 1)
    with raises(InvalidInput, "conflict"):
        Monotone({0: 1}, output=0, ordered=True)


def test_digests_tell_rules_apart() -> None:
    rules = [Monotone({0: 1}), Monotone({0: -1}), Curvature({0: 1}), Monotone({0: 1}, output=0)]
    assert len({rule.digest for rule in rules}) == len(rules)
    assert Monotone({0: 1}, name="a").digest == Monotone({0: 1}).digest
