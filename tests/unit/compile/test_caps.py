"""Shapes beside rules over boxes: limits that keep both, at every input."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import numpy as np
import pytest

import cg4ai
from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.compile.transformations import compile_problem
from cg4ai.errors import InvalidInput
from cg4ai.members import slopes
from cg4ai.members.capped import CappedMembers
from cg4ai.members.constants import ConstantMembers
from cg4ai.proofs.certificate import build_certificate
from cg4ai.proofs.certification import certify
from cg4ai.rules import (
    AffineBound,
    Ball,
    Box,
    Curvature,
    Largest,
    Linear,
    Monotone,
    Ordered,
    Probability,
    Range,
)
from cg4ai.rules.caps import Caps, Unfit, build_caps
from cg4ai.settings import Settings
from cg4ai_checker import Rejected, verdict

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(0, 1, (300, 3))
Y = 2 * np.sqrt(X[:, 0]) - X[:, 1] + 0.3 * np.sin(6 * X[:, 2]) + RANDOM.normal(0, 0.1, 300)
BOX = Box([0.2, 0.1, 0.0], [0.8, 0.9, 0.6])
QUICK: dict[str, Any] = {"steps": 40, "iteration_limit": 1, "random_state": 0}
MONO = Monotone({0: +1, 1: -1}, name="mono")


def limits(rule: Linear, *shapes: Any, outputs: int = 1) -> Caps:
    rule.check(3, outputs)
    may = slopes.find_output_moves(shapes, outputs, 3)
    return build_caps(rule.normal_form, rule.region, may, None)


def upper(caps: Caps, x: np.ndarray) -> np.ndarray:
    """(n,): the upper limit of output 0, by the layer."""
    huge = CappedMembers(ConstantMembers(np.full((1, caps.output_size), 1e9), 3), caps)
    import torch

    return np.asarray(huge.outputs(torch.as_tensor(x))[0, :, 0].numpy())


@pytest.mark.parametrize("slope", [[1.0, 0.4, -0.5], [-1.0, -0.4, 2.0], [0.0, 3.0, 0.0]])
def test_the_limit_is_the_largest_monotone_function_below_the_bound(slope: list[float]) -> None:
    rule = Linear(BOX, [2.0], AffineBound(0.6, 2 * np.array(slope)), "<=")
    caps = limits(rule, MONO)
    points = RANDOM.uniform(-0.3, 1.3, (40, 3))
    grid = np.linspace(0, 1, 7)
    for x, found in zip(points, upper(caps, points), strict=True):
        # all inputs of the box that are above x in the shape's order, on a grid with its corners
        low0, high1 = max(x[0], 0.2), min(x[1], 0.9)
        inside = low0 <= 0.8 and high1 >= 0.1 and 0 <= x[2] <= 0.6
        if not inside:
            assert found == 1e9
            continue
        above = [
            0.3
            + slope[0] * (low0 + s * (0.8 - low0))
            + slope[1] * (0.1 + t * (high1 - 0.1))
            + slope[2] * x[2]
            for s, t in itertools.product(grid, grid)
        ]
        assert found == pytest.approx(min(above), abs=1e-9)


def test_a_concave_output_keeps_an_upper_limit_and_no_lower_one() -> None:
    concave = Curvature({0: -1})
    caps = limits(Linear(BOX, [1.0], AffineBound(0.3, [1, 0, 0]), "<="), concave)
    one, other = RANDOM.uniform(-2, 2, (2, 500, 3))
    other[:, 1:] = one[:, 1:]
    middle = upper(caps, (one + other) / 2)
    assert (middle >= (upper(caps, one) + upper(caps, other)) / 2 - 1e-9).all()
    with pytest.raises(Unfit):
        limits(Linear(BOX, [1.0], 0.3, ">="), concave)
    with pytest.raises(Unfit):
        limits(Linear(Ball([0.5] * 3, 0.1), [1.0], 0.3, "<="), MONO)
    with pytest.raises(Unfit):
        limits(Linear(BOX, [1.0, 1.0], 0.3, "<="), MONO, outputs=2)


def rules_of(name: str) -> tuple[Any, list[Any]]:
    cap = Linear(BOX, [1.0], AffineBound(0.3, [1, 0.4, -0.5]), "<=", name="cap")
    if name == "pieces":
        several = Largest([AffineBound(0.8, [0.5, 0.4, -0.5]), 0.4])
        floor = Linear(
            Box([0, 0, 0], [0.3, 1, 1]), [2.0], AffineBound(-3.0, [1, -1, 0]), ">=", name="floor"
        )
        return Y, [MONO, Linear(BOX, [1.0], several, "<=", name="cap"), floor]
    if name == "group":  # a cap for one group alone
        group = Box([0, 0, 0.25], [1, 1, 0.25])
        return Y, [MONO, Linear(group, [1.0], 0.5, "<=", name="cap"), Range(-5, 5, name="range")]
    if name == "ordered":
        three = np.column_stack([Y - 0.2, Y, Y + 0.2])
        last = Linear(BOX, [0, 0, 1.0], AffineBound(0.5, [1, 0, 0]), "<=", name="cap")
        first = Linear(BOX, [1.0, 0, 0], AffineBound(-3.0, [1, 0, 0]), ">=", name="floor")
        return three, [MONO, Ordered(name="order"), Range(-3, 4, name="range"), last, first]
    if name == "two classes":
        rising = Monotone({0: +1, 1: -1}, output=1, name="mono")
        capped = Linear(BOX, [0, 1.0], AffineBound(0.3, [0.5, 0, 0]), "<=", name="cap")
        sure = Probability(Box([0, 0.8, 0], [0.3, 1, 1]), 0, 0.7, name="no")
        return (Y > 1).astype(int), [rising, capped, sure]
    if name == "three classes":
        capped = Linear(BOX, [0, 0, 1.0], AffineBound(0.3, [0.5, 0, 0]), "<=", name="cap")
        return np.digitize(Y, [0.3, 1.2]), [Monotone({0: +1, 1: -1}, output=2, name="mono"), capped]
    return Y, [MONO, cap]


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("pieces", "network"),
        ("group", "tree"),
        ("ordered", "network"),
        ("ordered", "tree"),
        ("two classes", "network"),
        ("three classes", "tree"),
    ],
)
def test_shape_and_cap_hold_together_and_are_certified(name: str, members: str) -> None:
    targets, rules = rules_of(name)
    classes = "classes" in name
    model: Any = (ConstrainedClassifier if classes else ConstrainedRegressor)(
        members=members, **QUICK
    )
    model.fit(X, targets, requirements=rules)
    assert {str(audit.strength) for audit in model.audit_} == {"constructed"}
    predict = model.ensemble_.predict
    # pairs that rise, and inputs of each box, compared by hand
    one = RANDOM.uniform(-0.3, 1.3, (4000, 3))
    other = one + RANDOM.uniform(0, 1, (4000, 1)) * [1, -1, 0]
    rises = predict(other, outside="ignore") - predict(one, outside="ignore")
    assert (rises[:, -1] if classes else rises).min() >= -1e-12
    for rule in rules:
        if isinstance(rule, Linear | Probability):
            assert isinstance(rule.region, Box)
            inside = RANDOM.uniform(rule.region.lower, rule.region.upper, (2000, 3))
            slack = rule.normal_form.slack(*map(_tensor, (inside, predict(inside))))
            assert float(slack.min()) >= -1e-13
    if classes:
        assert abs(predict(one, outside="ignore").sum(1) - 1).max() < 1e-12
    # the checker reads all of them off the arrays; and what is saved is the same
    for rule in rules:
        rule.check(3, model.ensemble_.output_size)
        answer = certify(model.ensemble_, rule)
        assert answer.status == "proven", (rule.name, answer.note)
        assert str(
            verdict(build_certificate(model.ensemble_, requirement=rule, certification=answer))
        )
    with tempfile.TemporaryDirectory() as folder:
        model.ensemble_.save(f"{folder}/saved")
        loaded = cg4ai.load(f"{folder}/saved")
    assert np.array_equal(
        loaded.predict(one, outside="ignore"), predict(one, outside="ignore"), equal_nan=True
    )
    alone = [predict(x[None], outside="ignore")[0] for x in one[:20]]
    assert np.allclose(alone, predict(one[:20], outside="ignore"), rtol=0, atol=1e-13)
    cap = next(rule for rule in rules if rule.name == "cap")
    labels = predict(cap.region.middle[None], explain=True).by_requirement
    assert labels["cap"].tolist() == ["constructed"]
    assert (
        predict(one[:1] + 9, explain=True, outside="ignore").by_requirement["cap"] == "unverified"
    )


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.as_tensor(array)


def test_limits_that_do_not_keep_the_rule_are_seen_by_both() -> None:
    cap = Linear(BOX, [1.0], AffineBound(0.3, [1, 0.4, -0.5]), "<=", name="cap")
    model = ConstrainedRegressor(members="tree", **QUICK)
    model.fit(X, Y, requirements=[MONO, cap])
    for stricter in (
        Linear(BOX, [1.0], AffineBound(0.3, [1, 0.4, -0.50001]), "<="),
        Linear(
            Box([0.2, 0.1, 0.0], [0.8001, 0.9, 0.6]), [1.0], AffineBound(0.3, [1, 0.4, -0.5]), "<="
        ),
        Linear(BOX, [1.0], AffineBound(0.2999, [1, 0.4, -0.5]), "<="),
        Linear(BOX, [-1.0], AffineBound(0.3, [1, 0.4, -0.5]), "<="),
    ):
        with pytest.raises(InvalidInput) as error:  # no bounds of cells for such members
            certify(model.ensemble_, stricter)
        assert error.value.code == "unsupported"
    answer = certify(model.ensemble_, cap)
    other = Linear(BOX, [1.0], AffineBound(0.29, [1, 0.4, -0.5]), "<=", name="cap")
    with pytest.raises((InvalidInput, Rejected)):
        verdict(build_certificate(model.ensemble_, requirement=other, certification=answer))
    assert model.audit(other).strength != "constructed"
    assert model.audit(Monotone({2: +1})).strength == "attacked"


@pytest.mark.parametrize(
    "rules",
    [
        # a floor at low incomes, a cap below it at high ones: rising outputs keep one of them
        [
            Linear(Box([0, 0, 0], [0.3, 1, 1]), [1.0], 1.0, ">="),
            Linear(Box([0.6, 0, 0], [0.9, 1, 1]), [1.0], 0.5, "<="),
        ],
        # the bound falls where outputs rise, down to what the range forbids
        [Linear(BOX, [1.0], AffineBound(1.0, [-2, 0, 0]), "<="), Range(0, None)],
    ],
)
def test_what_a_shape_makes_impossible_is_refused(rules: list[Any]) -> None:
    with pytest.raises(InvalidInput) as error:
        ConstrainedRegressor(**QUICK).fit(X, Y, requirements=[MONO, *rules])
    assert error.value.code == "infeasible"


def test_rules_without_limits_stay_rows_and_say_why() -> None:
    ball = Linear(Ball([0.5] * 3, 0.1), [1.0], 0.8, "<=", name="ball")
    problem = ConstrainedRegressor(members="network", **QUICK).problem(
        X, Y, requirements=[MONO, ball]
    )
    compiled = compile_problem(problem, Settings())
    assert any("ball" in note for note in compiled.notes)
    assert [one.name for one in compiled.requirements] == ["ball"]
    with pytest.raises(InvalidInput) as error:
        compile_problem(problem, Settings(guarantee="shielded"))
    assert error.value.code == "anchor"
