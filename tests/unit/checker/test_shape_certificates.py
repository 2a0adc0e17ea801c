"""Certificates of shapes: accepted for members that keep them, rejected for all others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeClassifier

from cg4ai import Ensemble, certify, write_certificate
from cg4ai.colgen.pricing.nested_classes import find_nesting, fit_nested_member
from cg4ai.layout import Layout
from cg4ai.members import concatenate
from cg4ai.members.constants import ConstantMembers
from cg4ai.members.conversion import from_sklearn
from cg4ai.members.mixture import Part
from cg4ai.members.networks import NetworkArchitecture, NetworkMembers
from cg4ai.members.output_sets import ArrangedMembers
from cg4ai.members.signed_networks import SignedArchitecture
from cg4ai.proofs.structure_certificates import build_construction_certificate
from cg4ai.protocols import Members
from cg4ai.rules import Curvature, Monotone
from cg4ai.rules.output_sets import Ordered, Range, join_output_rules
from cg4ai.rules.shapes import Shape
from cg4ai_checker import Rejected, verdict
from cg4ai_checker.folder_reader import MemberState
from cg4ai_checker.run_folder import compare
from cg4ai_checker.shape import ShapeClaim
from raising import raises

D = 3


def mixture(*stacks: Members) -> Ensemble:
    weights = np.full(sum(map(len, stacks)), 1.0 / sum(map(len, stacks)))
    parts, start = [], 0
    for one in stacks:
        own = weights[start : start + len(one)]
        parts.append(Part(one, np.zeros(len(one), np.int64), own))
        start += len(one)
    return Ensemble(tuple(parts), Layout.single(stacks[0].output_size))


def networks(rules: tuple[Shape, ...], outputs: int = 1, **kwargs: Any) -> Members:
    inner = NetworkArchitecture(D, outputs, **{"hidden": (6, 4), "activation": "relu", **kwargs})
    signed = SignedArchitecture(inner, rules)
    return signed.members(signed.initialise(3, torch.Generator().manual_seed(0)))


def trees(directions: list[int]) -> Members:
    generator = np.random.default_rng(0)
    x = generator.uniform(size=(200, D))
    y = x[:, 0] - x[:, 1] + 0.3 * generator.normal(size=200)
    return from_sklearn(
        HistGradientBoostingRegressor(max_iter=5, monotonic_cst=directions).fit(x, y)
    )


def nested(rule: Monotone, classes: int, model: Any) -> Members:
    """Two members of many classes whose parts are binary trees that rise with feature 2."""
    generator = np.random.default_rng(0)
    x = generator.uniform(size=(300, D))
    labels = np.digitize(x[:, 2] - x[:, 1] + 0.3 * generator.normal(size=300), [-0.3, 0.1, 0.4])
    signs = np.tile(np.array([0, 0, 1]), (classes, 1))
    made = [
        fit_nested_member(
            model,
            (x[own], np.minimum(labels[own], classes - 1), None),
            nesting=find_nesting([rule], classes),
            signs=signs,
        )
        for own in (slice(None, 200), slice(100, None))
    ]
    joined_up = concatenate(made)
    assert joined_up is not None
    return joined_up


BOOSTED = HistGradientBoostingClassifier(max_iter=5)
CASES: dict[str, tuple[Shape, list[Members]]] = {
    "mixed": (
        Monotone({0: 1, 1: -1}),
        [
            networks((Monotone({0: 1, 1: -1}),), scale=np.ones(D), skip=True),
            trees([1, -1, 0]),
            ConstantMembers([[2.0]], D),
        ],
    ),
    "curved": (Curvature({0: -1}), [networks((Curvature({0: -1}),), skip=True)]),
    "class": (
        Monotone({2: 1}, output=1),
        [networks((Monotone({2: 1}, output=1),), 3, output="softmax")],
    ),
    "ordered": (
        Monotone({2: 1}, ordered=True),
        [networks((Monotone({2: 1}, ordered=True),), 4, output="softmax")],
    ),
    "class of trees": (
        Monotone({2: 1}, output=0),
        [
            nested(Monotone({2: 1}, output=0), 3, BOOSTED),
            networks((Monotone({2: 1}, output=0),), 3, output="softmax"),
        ],
    ),
    "ordered trees": (
        Monotone({2: 1}, ordered=True),
        [nested(Monotone({2: 1}, ordered=True), 4, DecisionTreeClassifier(max_depth=3))],
    ),
    "logits": (
        Monotone({2: 1}, output=0, logits=True),
        [networks((Monotone({2: 1}, output=0, logits=True),), 2)],
    ),
    "floored": (
        Curvature({0: 1}, output=1),
        [
            ArrangedMembers(
                networks((Curvature({0: 1}),), 2), join_output_rules([Range(0.0, None)], 2)
            )
        ],
    ),
    "arranged": (
        Monotone({0: 1}, output=0),
        [
            ArrangedMembers(
                networks((Monotone({0: 1}),), 2), join_output_rules([Range(0.0, 1.0), Ordered()], 2)
            )
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kept_shapes_are_proven_and_found_in_the_folder(name: str, tmp_path: Path) -> None:
    rule, stacks = CASES[name]
    ensemble = mixture(*stacks)
    found = certify(ensemble, rule)
    assert found.status == "proven", found.note
    assert found.strength == "constructed"
    write_certificate(tmp_path / "proof.cg4ai", ensemble, requirement=rule, certification=found)
    proven = verdict(tmp_path / "proof.cg4ai")
    assert "feature" in str(proven)
    assert compare(proven.claim, ensemble.save(tmp_path / "model"))


@pytest.mark.parametrize("name", CASES)
def test_the_opposite_is_not_proven(name: str) -> None:
    rule, stacks = CASES[name]
    turned = {feature: -sign for feature, sign in rule.features.items()}
    kwargs = {"output": rule.output, "logits": rule.logits}
    if isinstance(rule, Monotone):
        kwargs["ordered"] = rule.ordered
    wrong = type(rule)(turned, **kwargs)
    wrong.check(D, stacks[0].output_size)
    assert certify(mixture(*stacks), wrong).status == "unknown"
    with raises(Rejected, "not-proven"):
        verdict(build_construction_certificate(mixture(*stacks), wrong))


def test_a_folder_with_another_member_is_rejected(tmp_path: Path) -> None:
    rule, stacks = CASES["mixed"]
    proven = verdict(build_construction_certificate(mixture(*stacks), rule))
    folder = mixture(*stacks, trees([0, 0, 0])).save(tmp_path / "other")
    with raises(Rejected, "not-proven", "part 3"):
        compare(proven.claim, folder)


def test_convex_members_below_an_upper_end_are_not_taken_for_convex() -> None:
    inner = networks((Curvature({0: 1}),), 2)
    capped = mixture(ArrangedMembers(inner, join_output_rules([Range(None, 0.0)], 2)))
    assert certify(capped, Curvature({0: 1}, output=1)).status == "unknown"
    with raises(Rejected, "not-proven"):
        verdict(build_construction_certificate(capped, Curvature({0: 1}, output=1)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"output": 1}, "nested for other classes"),
        ({"output": None}, "nested for other classes"),
        ({"output": "0"}, "for one class or for all in order"),
        ({"kind": "constant"}, "made of trees|not known"),
        ({"short": True}, "some are missing"),
    ],
)
def test_nested_members_that_are_not_what_they_seem_are_rejected(
    change: dict[str, Any], words: str
) -> None:
    rule, stacks = CASES["class of trees"]
    state = stacks[0].state()
    config = {**state.config, "nesting": {"output": change.get("output", 0)}}
    config["inner"] = {**config["inner"], "kind": change.get("kind", "tree")}
    arrays = {
        name: array[1:] if "short" in change else array for name, array in state.arrays.items()
    }
    claim = verdict(build_construction_certificate(mixture(*stacks), rule)).claim
    assert isinstance(claim, ShapeClaim)
    with pytest.raises(Rejected, match=words):
        claim.verify_stored(MemberState(state.kind, config, arrays), np.arange(2), "stack 0")


def test_parts_of_other_classes_than_the_claim_are_rejected() -> None:
    rule, _ = CASES["class of trees"]
    larger = nested(Monotone({2: 1}, output=0), 4, BOOSTED)
    claim = verdict(
        build_construction_certificate(mixture(*CASES["class of trees"][1]), rule)
    ).claim
    assert isinstance(claim, ShapeClaim)
    state = larger.state()
    own = MemberState(state.kind, dict(state.config), dict(state.arrays))
    with raises(Rejected, "rejected", "claim"):
        claim.verify_stored(own, np.arange(2), "stack 0")


@pytest.mark.parametrize(
    "weights",
    [
        [[[1e308, -1e308]], [[1.0]]],
        [*[[[1e60, 0.0], [0.0, 1e60]]] * 6, [[1.0, -1.0]], [[1.0]]],  # none too large by itself
    ],
)
def test_weights_by_which_sums_overflow_are_not_taken_for_monotone(weights: list[Any]) -> None:
    """Infinity minus infinity is no number, which counts as 0 where outputs are arranged."""
    arrays = {f"weight_{layer}": np.array([one]) for layer, one in enumerate(weights)}
    arrays |= {f"bias_{layer}": np.zeros((1, len(one))) for layer, one in enumerate(weights)}
    arrays[f"bias_{len(weights) - 1}"] += 3.0
    hidden = tuple(len(one) for one in weights[:-1])
    inner = NetworkMembers(NetworkArchitecture(2, 1, hidden=hidden), arrays)
    ensemble = mixture(ArrangedMembers(inner, join_output_rules([Range(-5.0, 5.0)], 1)))
    rise = ensemble.predict(np.array([[0.0, 10.0], [9.0, 10.0]]))
    assert rise.tolist() == [[3.0], [0.0]]  # which is a fall
    rule = Monotone({0: 1})
    rule.check(2, 1)
    with raises(Rejected, "not-finite"):
        verdict(build_construction_certificate(ensemble, rule))


@pytest.mark.parametrize("name", ["bias_0", "bias_1"])
def test_a_bias_that_is_no_number_is_rejected(name: str) -> None:
    rule = Monotone({0: 1})
    stack = networks((rule,))
    claim = verdict(build_construction_certificate(mixture(stack), rule)).claim
    assert isinstance(claim, ShapeClaim)
    state = stack.state()
    arrays = {**state.arrays, name: np.full_like(state.arrays[name], np.inf)}
    own = MemberState(state.kind, dict(state.config), arrays)
    with raises(Rejected, "not-finite", name):
        claim.verify_stored(own, np.arange(1), "stack 0")
