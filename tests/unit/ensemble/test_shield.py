"""The shield against brute force, hand-solved cases and finite differences; labels; files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import cg4ai
from cg4ai.ensemble.claims import record_audited, record_certified
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import load
from cg4ai.ensemble.shield import ShieldedEnsemble
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, TreeMembers, affine
from cg4ai.members.mixture import Part
from cg4ai.records import Array, IntArray
from cg4ai.rules import (
    AffineBound,
    Concave,
    Largest,
    Linear,
    Margin,
    Probability,
    Quadratic,
    Rate,
    Requirement,
)
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.rules.regions import Ball, Box
from cg4ai.runs import files
from raising import raises

UNIT = Box([0.0, 0.0], [1.0, 1.0])


def one(members: Any) -> Ensemble:
    """A mixture of a single member."""
    return Ensemble((Part(members, np.zeros(1, np.int64), np.ones(1)),), Layout.single(2))


def identity() -> Ensemble:
    """Outputs are the inputs, so that outputs can be chosen in tests."""
    return one(affine(np.eye(2)[None], np.zeros((1, 2))))


def prove(mixture: Ensemble, requirement: Requirement) -> None:
    """Certify and record."""
    proof = cg4ai.certify(mixture, requirement, time_limit_s=20)
    record_certified(mixture, requirement, certification=proof)


def networks(seed: int = 0, inputs: int = 2, outputs: int = 2) -> Ensemble:
    architecture = NetworkArchitecture(inputs, outputs, hidden=(8,), activation="tanh")
    generator = torch.Generator().manual_seed(seed)
    members = architecture.members(architecture.initialise(3, generator))
    part = Part(members, np.zeros(3, np.int64), np.array([0.2, 0.3, 0.5]))
    return Ensemble((part,), Layout.single(outputs))


@dataclass(frozen=True)
class Products:
    """Rules `sum_q x_q y_q` and `(1 + 2 x_0) y_0 - y_1`: coefficients affine in the input."""

    count: int = 2

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        first = (inputs * outputs).sum(-1)
        second = (1 + 2 * inputs[..., 0]) * outputs[..., 0] - outputs[..., 1]
        return torch.stack([first, second], -1)

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        second = np.stack([1 + 2 * inputs[:, 0], -np.ones(len(inputs))], axis=1)
        return np.where(which[:, None] == 0, inputs, second)


class KnownProducts(Products):
    def affine(self) -> AffineCoefficients:
        return AffineCoefficients(
            np.array([[0.0, 0.0], [1.0, -1.0]]),
            np.array([0, 0, 1]),
            np.array([0, 1, 0]),
            np.array([0, 1, 0]),
            np.array([1.0, 1.0, 2.0]),
        )


def test_hand_solved_blend() -> None:
    """y_0 <= 0.6 and y_0 + y_1 <= 1 with the anchor (0.2, 0.2)."""
    rule = Linear(UNIT, [[1.0, 0.0], [1.0, 1.0]], [0.6, 1.0], "<=", name="caps")
    shielded = identity().apply_shield([0.2, 0.2], rule)
    inputs = np.array([[0.5, 0.4], [0.8, 0.1], [0.4, 1.0], [1.0, 1.0]])
    # the second moves by (0.8 - 0.6) / (0.8 - 0.2), the third by 0.4 / 1.0, the fourth by the
    # larger of 0.4 / 0.8 and 1.0 / 1.6
    expected = np.array([0.0, 1 / 3, 0.4, 0.625])
    explained = shielded.predict(inputs, explain=True)
    np.testing.assert_allclose(explained.theta, expected, atol=1e-11)
    moved = inputs + expected[:, None] * (0.2 - inputs)
    np.testing.assert_allclose(explained.outputs, moved, atol=1e-11)
    np.testing.assert_array_equal(explained.outputs, shielded.predict(inputs))
    np.testing.assert_array_equal(explained.outputs[0], inputs[0])
    assert explained.labels.tolist() == ["shielded"] * 4
    assert shielded.checks[0].exact
    assert shielded.checks[0].room == pytest.approx(0.4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31))
def test_theta_is_the_smallest_that_restores_all_rules(seed: int) -> None:
    """Against a grid: every smaller theta leaves a rule broken, this one leaves none."""
    random = np.random.default_rng(seed)
    rules = random.normal(size=(4, 3))
    anchor = random.normal(size=3)
    bounds = rules @ anchor - random.exponential(0.3, 4)  # the anchor has room
    weights = random.normal(size=(1, 2, 3))
    mixture = Ensemble(
        (Part(affine(weights, np.zeros((1, 3))), np.zeros(1, np.int64), np.ones(1)),),
        Layout.single(3),
    )
    shielded = mixture.apply_shield(anchor, Linear(Box([-2, -2], [2, 2]), rules, bounds, ">="))
    inputs = random.uniform(-2, 2, (20, 2))
    plain = mixture.predict(inputs)
    explained = shielded.predict(inputs, explain=True)
    assert (explained.outputs @ rules.T >= bounds).all()
    grid = np.linspace(0, 1, 2001)
    tried = plain[:, None] + grid[:, None] * (anchor - plain)[:, None]
    good = (tried @ rules.T >= bounds - 1e-13).all(-1)
    smallest = grid[good.argmax(axis=1)]
    assert (explained.theta <= smallest + 1e-9).all()
    assert (explained.theta >= smallest - 1 / 2000 - 1e-9).all()


@pytest.mark.parametrize("functional", [Products(), KnownProducts()])
@pytest.mark.parametrize("sense", ["<=", ">=", "=="])
def test_coefficients_that_depend_on_the_input(functional: Products, sense: str) -> None:
    """Known as affine or only as a function: the same theta, and no rule broken."""
    mixture = one(affine(3 * np.eye(2)[None], np.full((1, 2), -1.0)))
    bound = {"<=": [0.5, 0.7], ">=": [-0.1, -0.3], "==": [0.0, 0.0]}[sense]
    rule = Linear(UNIT, functional, bound, sense)
    shielded = mixture.apply_shield([0.0, 0.0], rule)
    assert shielded.checks[0].exact == hasattr(functional, "affine")
    inputs = np.random.default_rng(0).uniform(0, 1, (300, 2))
    x = torch.as_tensor(inputs)
    outputs, theta = shielded.outputs(x), shielded.theta(x)
    assert float(rule.violations(torch.as_tensor(inputs), outputs).max()) <= 1e-12
    own = functional.values(torch.as_tensor(inputs), torch.as_tensor(mixture.predict(inputs)))
    sides = {
        "<=": own.numpy() - bound,
        ">=": bound - own.numpy(),
        "==": np.abs(own.numpy()),
    }[sense]
    room = 0.0 if sense == "==" else np.abs(bound)
    expected = np.where(sides > 0, sides / np.where(sides > 0, sides + room, 1), 0).max(axis=1)
    np.testing.assert_allclose(theta.numpy(), expected, atol=1e-10)
    assert theta.max() > 0.3


def test_concave_rules_are_restored_but_not_by_the_smallest_step() -> None:
    """|y| <= 1 as a concave rule; the chord to the centre gives more than needed."""
    ball = Concave(Box([-3, -3], [3, 3]), lambda y: -(y**2).sum(-1), -1.0, name="disc")
    shielded = identity().apply_shield([0.0, 0.0], ball)
    inputs = np.array([[0.3, 0.4], [3.0, 0.0], [-1.5, 2.0]])
    explained = shielded.predict(inputs, explain=True)
    size = (inputs**2).sum(1)
    # (bound - value) / (value of the anchor - value) = (size - 1) / size
    np.testing.assert_allclose(explained.theta, np.maximum(0, (size - 1) / size), atol=1e-11)
    assert ((explained.outputs**2).sum(1) <= 1).all()
    smallest = 1 - 1 / np.sqrt(size[1:])
    assert (explained.theta[1:] > smallest).all()
    assert shielded.checks[0].exact  # a constant has one value at every input
    assert shielded.checks[0].room == 1
    assert explained.labels.tolist() == ["shielded"] * 3


@pytest.mark.parametrize("form", ["member", "pairwise"])
def test_margins_and_probabilities_are_linear_for_one_output(form: str) -> None:
    margin = Margin(UNIT, 1, 0.2, form=form, name="margin")
    least = Probability(UNIT, 1, 0.7, name="score")
    shielded = identity().apply_shield([0.0, 1.0], [margin, least])
    inputs = np.array([[0.1, 0.9], [0.9, 0.3], [0.9, 0.8], [0.0, 0.4]])
    explained = shielded.predict(inputs, explain=True)
    for_margin = np.maximum(
        0, (0.2 - inputs[:, 1] + inputs[:, 0]) / (1 - inputs[:, 1] + inputs[:, 0])
    )
    for_score = np.maximum(0, (0.7 - inputs[:, 1]) / (1 - inputs[:, 1]))
    np.testing.assert_allclose(explained.theta, np.maximum(for_margin, for_score), atol=1e-11)
    assert set(explained.by_requirement) == {"margin", "score"}


def test_gradients_are_those_of_finite_differences() -> None:
    rule = Linear(UNIT, KnownProducts(), [0.1, 0.05], "<=")
    shielded = networks(3).apply_shield([0.0, 0.0], rule)
    generator = torch.Generator().manual_seed(1)
    inputs = UNIT.sample(40, generator).requires_grad_(True)
    outputs, theta = shielded.outputs(inputs), shielded.theta(inputs)
    assert (theta > 1e-3).any()
    assert (theta == 0).any()
    (slopes,) = torch.autograd.grad(outputs.sum(), inputs)
    step = 1e-6
    for coordinate in range(2):
        shift = torch.zeros(2, dtype=torch.float64)
        shift[coordinate] = step
        with torch.no_grad():
            moved = shielded.outputs(inputs + shift).sum(1) - shielded.outputs(inputs - shift).sum(
                1
            )
        difference = (moved / (2 * step)).numpy()
        close = np.isclose(slopes[:, coordinate].numpy(), difference, rtol=1e-4, atol=1e-6)
        assert close.mean() >= 0.95  # theta has kinks, which a step may straddle
        assert np.isfinite(slopes.numpy()).all()


def test_an_anchor_at_the_bound_is_returned_itself() -> None:
    rule = Linear(UNIT, [1.0, 0.0], 0.1, "<=")
    shielded = identity().apply_shield([0.1, 0.3], rule)
    explained = shielded.predict(np.array([[0.7, 0.9]]), explain=True)
    assert explained.theta.tolist() == [1.0]
    assert explained.outputs.tolist() == [[0.1, 0.3]]
    assert explained.labels.tolist() == ["shielded"]


def test_predictions_that_are_no_numbers_become_the_anchor() -> None:
    huge = one(affine(np.full((1, 2, 2), 1e308), np.zeros((1, 2))))
    shielded = huge.apply_shield([0.1, 0.3], Linear(UNIT, [1.0, -1.0], 0.1, "<="))
    assert shielded.predict(np.array([[1.0, 1.0]])).tolist() == [[0.1, 0.3]]


@pytest.mark.parametrize(
    ("region", "worst"),
    [
        (Box([0.0, -1.0], [2.0, 1.0]), 2.0 + 3.0),
        (Ball([0.0, 0.0], 2.0), 2.0 * math.sqrt(10)),
        (Ball([0.0, 0.0], 2.0, math.inf), 2.0 + 6.0),
    ],
)
def test_the_anchor_is_checked_in_closed_form(region: Box | Ball, worst: float) -> None:
    """x . (1, 3) over box and balls, for the anchor (1, 3) under the rule x . y <= limit."""
    mixture = networks()
    room = mixture.apply_shield(
        [1.0, 3.0], Linear(region, KnownProducts(), [worst + 0.5, 99], "<=")
    )
    assert room.checks[0].room == pytest.approx(0.5)
    with raises(InvalidInput, "anchor", "rule 0", "Linear"):
        mixture.apply_shield([1.0, 3.0], Linear(region, KnownProducts(), [worst - 0.5, 99], "<="))


def test_quadratic_rules_are_restored_by_the_smallest_step(tmp_path: Path) -> None:
    """The disc again, now known to be quadratic: the step ends on its rim, and is stored."""
    disc = Quadratic(Box([-3, -3], [3, 3]), np.eye(2), 1.0, name="disc")
    shielded = identity().apply_shield([0.0, 0.0], disc)
    assert "closed form" in str(shielded.checks[0])
    inputs = np.array([[0.3, 0.4], [3.0, 0.0], [-1.5, 2.0]])
    explained = shielded.predict(inputs, explain=True)
    size = np.sqrt((inputs**2).sum(1))
    np.testing.assert_allclose(explained.theta, np.maximum(0, 1 - 1 / size), atol=1e-11)
    np.testing.assert_allclose(explained.outputs[1:], inputs[1:] / size[1:, None], atol=1e-11)
    assert explained.labels.tolist() == ["shielded"] * 3
    shielded.save(tmp_path / "stored")
    again = cg4ai.load(tmp_path / "stored")
    np.testing.assert_array_equal(again.predict(inputs), explained.outputs)
    module = shielded.as_module()
    np.testing.assert_allclose(module(torch.as_tensor(inputs)).detach(), explained.outputs)
    with raises(InvalidInput, "anchor", "anchor", "disc"):
        identity().apply_shield([1.0, 1.0], disc)


def test_bounds_that_depend_on_the_input_are_kept() -> None:
    place = Box([-1, -1], [1, 1])
    rule = Linear(place, [1.0, 0.0], Largest([0.1, AffineBound(0.3, [0.0, 0.5])]), "<=")
    shielded = identity().apply_shield([0.0, 0.0], rule)
    assert shielded.checks[0].exact
    assert shielded.checks[0].room == pytest.approx(0.1)
    inputs = np.random.default_rng(0).uniform(-1, 1, size=(500, 2))
    limit = np.maximum(0.1, 0.3 + 0.5 * inputs[:, 1])
    outputs = shielded.predict(inputs)
    np.testing.assert_allclose(outputs[:, 0], np.minimum(inputs[:, 0], limit), atol=1e-11)
    assert (outputs[:, 0] <= limit).all()


def test_a_function_of_the_input_is_not_read_at_one_input() -> None:
    """A functional without affine(): the anchor is looked at, nothing is said to be exact."""
    rule = Linear(Box([0, 0], [1, 1]), Products(), [3.0, 3.0], "<=")
    assert not identity().apply_shield([1.0, 1.0], rule).checks[0].exact


def test_an_affine_anchor_is_checked_by_closed_form() -> None:
    rule = Linear(UNIT, [1.0, 0.0], 0.6, "<=")
    good = affine(np.array([[[0.2, 0.0], [0.3, 0.0]]]), np.zeros((1, 2)))
    shielded = identity().apply_shield(good, rule)
    assert shielded.checks[0].exact
    assert shielded.checks[0].room == pytest.approx(0.1)
    explained = shielded.predict(np.array([[0.9, 0.1]]), explain=True)
    assert explained.theta == pytest.approx((0.9 - 0.6) / (0.9 - 0.21))
    bad = affine(np.array([[[0.4, 0.0], [0.3, 0.0]]]), np.zeros((1, 2)))
    with raises(InvalidInput, "anchor"):
        identity().apply_shield(bad, rule)


def test_where_the_anchor_breaks_the_rule_unseen_nothing_is_claimed() -> None:
    """A spike of the anchor at x_0 = 0.7, too narrow for the samples that look at it."""
    architecture = NetworkArchitecture(2, 2, hidden=(3,), activation="relu")
    width = 1e-5
    spike = architecture.members(
        {
            "weight_0": torch.tensor([[[1 / width, 0.0]] * 3], dtype=torch.float64),
            "bias_0": torch.tensor([[-0.7 / width + 1, -0.7 / width, -0.7 / width - 1]]).double(),
            "weight_1": torch.tensor([[[1.0, -2.0, 1.0], [0.0, 0.0, 0.0]]], dtype=torch.float64),
            "bias_1": torch.zeros(1, 2, dtype=torch.float64),
        }
    )
    shielded = identity().apply_shield(spike, Linear(UNIT, [1.0, 0.0], 0.6, "<="))
    explained = shielded.predict(np.array([[0.7, 0.2], [0.71, 0.2]]), explain=True)
    assert explained.labels.tolist() == ["unverified", "shielded"]
    # the anchor is worse there, so the prediction is left alone
    np.testing.assert_array_equal(explained.outputs[0], [0.7, 0.2])
    np.testing.assert_allclose(explained.outputs[1, 0], 0.6)


def test_outside_the_region_nothing_is_changed_or_claimed() -> None:
    shielded = identity().apply_shield([0.2, 0.2], Linear(UNIT, [1.0, 0.0], 0.6, "<="))
    inputs = np.array([[1.0, 0.5], [1.0 + 1e-14, 0.5], [1.1, 0.5]])
    explained = shielded.predict(inputs, explain=True)
    # rounding puts the second outside: it is shielded all the same, but not claimed
    np.testing.assert_allclose(explained.outputs[:, 0], [0.6, 0.6, 1.1], atol=1e-11)
    assert explained.labels.tolist() == ["shielded", "unverified", "unverified"]


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        (Linear(np.zeros((1, 2)), [1.0, 0.0], 1.0, "<="), "unsupported"),
        (Rate(np.zeros((2, 2)), mean_at_most=1.0), "unsupported"),
        ([], "empty"),
        ([Linear(UNIT, [1.0, 0.0], 9.0, "<=")] * 2, "duplicate"),
        (Linear(Box([0.0], [1.0]), [1.0, 0.0], 9.0, "<="), "shape"),
    ],
)
def test_what_cannot_be_shielded_is_refused(requirement: Any, code: str) -> None:
    with raises(InvalidInput, code):
        identity().apply_shield([0.0, 0.0], requirement)


def test_anchors_of_the_wrong_kind_are_refused() -> None:
    rule = Linear(UNIT, [1.0, 0.0], 9.0, "<=")
    with raises(InvalidInput, "shape", "anchor"):
        identity().apply_shield([0.0, 0.0, 0.0], rule)
    with raises(InvalidInput, "anchor"):
        identity().apply_shield(ConstantMembers(np.zeros((2, 2)), 2), rule)
    with raises(InvalidInput, "shape"):
        identity().apply_shield(ConstantMembers(np.zeros((1, 2)), 3), rule)
    with raises(InvalidInput, "unsupported"):
        identity().apply_shield([0.0, 0.0], rule).fuse()


def test_an_anchor_behind_a_shield_of_its_own_is_refused() -> None:
    """It is moved in a place so small that samples do not find it; its members keep the rule."""
    moved = Linear(Box([0.3, 0.3], [0.300001, 0.300001]), [1.0, 0.0], 3.0, ">=", name="moved")
    anchor = one(ConstantMembers(np.array([[0.1, 0.1]]), 2)).apply_shield([4.0, 0.0], moved)
    assert anchor.predict(np.full((1, 2), 0.3000005))[0, 0] > 2
    with raises(InvalidInput, "anchor"):
        identity().apply_shield(anchor, caps())


def caps(name: str = "caps") -> Linear:
    return Linear(UNIT, KnownProducts(), [0.1, 0.05], "<=", name=name)


def test_saved_and_loaded_it_predicts_the_same(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).uniform(-0.5, 1.5, (200, 2))
    disc = Linear(Ball([0.5, 0.5], 0.4), [1.0, 1.0], 0.1, "<=", name="disc")
    shielded = networks(3).apply_shield([0.0, 0.0], [caps(), disc])
    shielded.about["name"] = "test"
    shielded.save(tmp_path / "run")
    loaded = cg4ai.load(tmp_path / "run")
    assert isinstance(loaded, ShieldedEnsemble)
    assert loaded.about == {"name": "test"}
    assert loaded.checks == shielded.checks
    explained, again = (router.predict(inputs, explain=True) for router in (shielded, loaded))
    assert (explained.theta > 0).any()
    np.testing.assert_array_equal(again.outputs, explained.outputs)
    np.testing.assert_array_equal(again.theta, explained.theta)
    np.testing.assert_array_equal(again.labels, explained.labels)
    # saving the mixture alone takes the shield away
    loaded.unshielded.save(tmp_path / "run")
    assert not isinstance(cg4ai.load(tmp_path / "run"), ShieldedEnsemble)


def test_a_shield_that_is_lost_or_damaged_is_missed(tmp_path: Path) -> None:
    shielded = networks(3).apply_shield([0.0, 0.0], caps())
    folder = shielded.save(tmp_path / "run")
    record = files.read_json(folder / "ensemble.json")
    stored = files.read_arrays(folder / "members.safetensors")
    for name in stored:
        if name.startswith(("anchor.", "guard.")):
            rest = {key: array for key, array in stored.items() if key != name}
            digest = files.write_arrays(folder / "members.safetensors", rest)
            files.write_json(folder / "ensemble.json", record | {"arrays": digest})
            with raises(RunFolderError, "bad-file", "ensemble.json"):
                cg4ai.load(folder)
    broken = stored | {"guard.0.limit": np.array([-1.0, -1])}
    files.write_arrays(folder / "members.safetensors", broken)
    with raises(RunFolderError, "bad-file", "members.safetensors"):
        cg4ai.load(folder)


def test_rules_in_python_are_given_again(tmp_path: Path) -> None:
    rule = Linear(UNIT, Products(), [0.5, 0.7], "<=")
    shielded = identity().apply_shield([0.0, 0.0], rule)
    shielded.save(tmp_path / "run")
    with raises(InvalidInput, "missing-factory"):
        load(tmp_path / "run")
    again = load(tmp_path / "run", factories={"Linear": rule})
    x = np.array([[0.9, 0.9], [0.1, 0.2]])
    np.testing.assert_array_equal(again.predict(x), shielded.predict(x))


def test_the_module_predicts_the_same() -> None:
    shielded = networks(3).apply_shield([0.0, 0.0], caps())
    inputs = Box([-0.2, -0.2], [1.2, 1.2]).sample(100, torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        shielded.as_module()(inputs), shielded.outputs(inputs), rtol=0, atol=1e-15
    )


def test_the_module_has_no_branches_on_data() -> None:
    """Traced on inputs at which the shield does nothing, it still acts on others."""
    shielded = one(ConstantMembers([[0.1, 0.2]], 2)).apply_shield([0.0, 0.0], caps())
    inputs = UNIT.sample(200, torch.Generator().manual_seed(0))
    expected, theta = shielded.outputs(inputs), shielded.theta(inputs)
    traced = make_fx(shielded.as_module())(inputs[theta == 0][:5])
    busy = theta > 0
    torch.testing.assert_close(traced(inputs[busy][:5]), expected[busy][:5], rtol=0, atol=1e-15)


def test_tensors_in_tensors_out_and_audits() -> None:
    shielded = networks(3).apply_shield([0.0, 0.0], caps())
    explained = shielded.predict(torch.zeros(3, 2), explain=True)
    assert isinstance(explained.outputs, torch.Tensor)
    assert not shielded.unshielded.audit(caps(), tolerance=1e-9).holds
    assert shielded.audit(caps(), tolerance=1e-9).holds
    assert shielded.to("cpu") is shielded
    assert "keeps caps" in repr(shielded)


def test_labels_without_a_shield() -> None:
    mixture = identity()
    inputs = np.array([[0.1, 0.1], [0.5, 0.5], [2.0, 2.0], [0.9, 0.1]])
    assert mixture.predict(inputs, explain=True).labels.tolist() == ["unverified"] * 4
    cap = Linear(Box([0.0, 0.0], [0.3, 0.3]), [1.0, 0.0], 0.6, "<=", name="cap")
    prove(mixture, cap)
    wide = Linear(Box([0.0, 0.0], [9.0, 9.0]), [1.0, 0.0], 0.6, "<=", name="cap")
    assert record_audited(mixture, wide, inputs=inputs[1:]) == 1  # two rows are missed
    explained = mixture.predict(inputs, explain=True)
    assert explained.labels.tolist() == ["certified", "audited", "unverified", "unverified"]
    listed = Linear(inputs, [1.0, 0.0], [0.5, 0.5, 3.0, 0.5], "<=", name="listed")
    assert record_audited(mixture, listed) == 3
    explained = mixture.predict(inputs, explain=True)
    assert explained.labels.tolist() == ["audited", "audited", "unverified", "unverified"]
    assert explained.by_requirement["listed"].tolist() == ["audited"] * 3 + ["unverified"]
    assert explained.theta.tolist() == [0.0] * 4
    # a second requirement about which less is known weakens the label
    record_audited(mixture, Linear(inputs[:1], [0.0, 1.0], 1.0, "<=", name="other"))
    explained = mixture.predict(inputs, explain=True)
    assert explained.labels.tolist() == ["audited"] + ["unverified"] * 3
    assert explained.by_requirement["cap"][0] == "certified"


def test_claims_are_saved_and_do_not_pass_to_another_mixture(tmp_path: Path) -> None:
    mixture = identity()
    ball = Ball([0.0, 0.0], 1.0, math.inf)
    prove(mixture, Linear(ball, [1.0, 0.0], 1.5, "<=", name="cap"))
    record_audited(mixture, caps(), inputs=np.array([[0.0, -0.0], [9.0, 9.0], [1.0, 1.0]]))
    inputs = np.array([[-0.0, 0.0], [2.0, 0.0]])
    loaded = cg4ai.load(mixture.save(tmp_path / "run"))
    explained = loaded.predict(inputs, explain=True)
    assert explained.by_requirement["cap"].tolist() == ["certified", "unverified"]
    assert explained.by_requirement["caps"].tolist() == ["audited", "unverified"]
    stale = Ensemble(networks().parts, mixture.layout, about=mixture.about)
    assert stale.predict(inputs, explain=True).labels.tolist() == ["unverified"] * 2
    loaded.about["guarantees"].append({"strength": "sworn"})
    with raises(InvalidInput, "bad-file"):
        loaded.predict(inputs, explain=True)


def test_claims_about_the_mixture_end_where_the_shield_acts() -> None:
    mixture = identity()
    prove(mixture, Linear(UNIT, [0.0, 1.0], -0.1, ">=", name="second"))
    first = Linear(UNIT, [1.0, 0.0], 0.6, "<=", name="first")
    prove(mixture, Linear(Box([0, 0], [0.1, 1]), [1.0, 0.0], 0.6, "<=", name="first"))
    shielded = mixture.apply_shield([0.2, 0.2], first)
    explained = shielded.predict(np.array([[0.05, 0.5], [0.5, 0.5], [0.9, 0.5]]), explain=True)
    assert explained.by_requirement["first"].tolist() == ["certified", "shielded", "shielded"]
    assert explained.by_requirement["second"].tolist() == ["certified", "certified", "unverified"]
    assert explained.labels.tolist() == ["certified", "shielded", "unverified"]


@pytest.mark.parametrize(
    ("requirement", "inputs", "code"),
    [
        (Rate(np.zeros((2, 2)), mean_at_most=1.0), None, "unsupported"),
        (caps(), None, "missing-argument"),
        (Linear(np.zeros((1, 2)), [1.0, 0.0], 1.0, "<="), np.zeros((1, 2)), "conflict"),
    ],
)
def test_audits_that_label_nothing_are_refused(
    requirement: Requirement, inputs: Any, code: str
) -> None:
    with raises(InvalidInput, code):
        record_audited(identity(), requirement, inputs=inputs)
    proof = cg4ai.certify(identity(), Linear(UNIT, [1.0, 0.0], 2.0, "<="))
    with raises(InvalidInput, "unsupported"):
        record_certified(
            identity(), Linear(np.zeros((1, 2)), [1.0, 0.0], 1.0, "<="), certification=proof
        )


def test_only_a_proof_of_this_very_claim_is_recorded() -> None:
    mixture = identity()
    cap = Linear(UNIT, [1.0, 0.0], 2.0, "<=", name="cap")
    proof = cg4ai.certify(mixture, cap)
    part = cg4ai.certify(mixture, cap, region=Box([0.0, 0.0], [0.5, 0.5]))
    broken = Linear(UNIT, [1.0, 0.0], 0.5, "<=", name="cap")
    for ensemble, requirement, answer, code in (
        (mixture, broken, cg4ai.certify(mixture, broken), "rejected"),
        (mixture, cap, part, "altered"),
        (mixture, Linear(UNIT, [1.0, 0.0], 1.9, "<=", name="cap"), proof, "altered"),
        (networks(), cap, proof, "altered"),
    ):
        with raises(InvalidInput, code):
            record_certified(ensemble, requirement, certification=answer)
    assert "guarantees" not in mixture.about
    record_certified(mixture, cap, certification=proof)
    assert mixture.predict(np.zeros((1, 2)), explain=True).labels.tolist() == ["certified"]


def test_rules_that_share_a_name_are_not_merged() -> None:
    mixture = identity()
    inputs = np.array([[0.4, 0.4], [0.9, 0.9]])
    prove(mixture, Linear(UNIT, [1.0, 0.0], 2.0, "<=", name="cap"))
    tight = Linear(UNIT, [1.0, 0.0], 0.5, "<=", name="cap")
    assert record_audited(mixture, tight, inputs=inputs) == 1
    assert mixture.predict(inputs, explain=True).labels.tolist() == ["audited", "unverified"]
    # nor by a shield of that name: in the second input it acts
    other = identity()
    prove(other, Linear(UNIT, [1.0, 0.0], 2.0, "<=", name="cap"))
    explained = other.apply_shield([0.0, 0.0], tight).predict(inputs, explain=True)
    assert explained.labels.tolist() == ["shielded", "unverified"]


def test_claims_that_do_not_state_their_rules_are_refused() -> None:
    mixture = identity()
    prove(mixture, Linear(UNIT, [1.0, 0.0], 2.0, "<=", name="cap"))
    del mixture.about["guarantees"][0]["rules"]
    with raises(InvalidInput, "bad-file", "rules"):
        mixture.predict([[0.4, 0.4]], explain=True)


@pytest.mark.parametrize("norm", [2, math.inf])
def test_no_input_outside_a_ball_is_labelled_certified(norm: float) -> None:
    # the tree jumps to 5 right behind the ball's end
    tree = TreeMembers(
        [[[0, 0, 0]]], [[[1001.0, 0, 0]]], left=[[[1, 1, 2]]], right=[[[2, 1, 2]]],
        value=[[[[0.0], [0.0], [5.0]]]], input_size=1,
    )  # fmt: skip
    part = Part(tree, np.zeros(1, np.int64), np.ones(1))
    mixture = Ensemble((part,), Layout.single(1))
    prove(mixture, Linear(Ball([1000.0], 1.0, norm), [1.0], 1.0, "<=", name="cap"))
    explained = mixture.predict([[999.0], [1001.0], [np.nextafter(1001.0, 2000)]], explain=True)
    assert explained.outputs[:, 0].tolist() == [0.0, 0.0, 5.0]
    assert explained.labels.tolist() == ["certified", "certified", "unverified"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_it_predicts_the_same() -> None:
    shielded = networks(3).apply_shield([0.0, 0.0], caps())
    inputs = np.random.default_rng(0).uniform(0, 1, (100, 2))
    moved = shielded.to("cuda")
    np.testing.assert_allclose(moved.predict(inputs), shielded.predict(inputs), atol=1e-12)
    explained = moved.predict(inputs, explain=True)
    assert (explained.labels == "shielded").all()
    assert (explained.theta > 0).any()
