"""Rules on outputs at every input in `solve` and the estimators: kept, and seen in the arrays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cg4ai
from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules import AffineBound, Box, Equality, Linear, Ordered, Range, SumTo
from raising import raises

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 2))
Y = np.column_stack([X[:, 0], X[:, 0] + X[:, 1] ** 2, 2 - X[:, 1]])
EVERYWHERE = np.concatenate([X, 1e3 * RANDOM.normal(size=(200, 2)), [[1e12, -1e12]]])


def fitted(rules: list[Any], **parameters: Any) -> ConstrainedRegressor:
    quick = {"iteration_limit": 3, "steps": 40, "random_state": 0} | parameters
    model = ConstrainedRegressor(**quick)
    return model.adopt(cg4ai.solve(model.problem(X, Y, rules), model.run_settings()))


def kept(rules: list[Any], outputs: Array) -> bool:
    return all(float(one.compute_violation(EVERYWHERE, outputs).max()) <= 1e-9 for one in rules)


@pytest.mark.parametrize("members", ["network", "forest", "affine"])
@pytest.mark.parametrize(
    "rules",
    [[Range(-1, [1, 2, 3])], [Ordered((0, 1)), Range(0, None, [2])], [SumTo(3, low=-1), Ordered()]],
    ids=["range", "order", "sum"],
)
def test_rules_on_outputs_hold_at_every_input(members: str, rules: list[Any]) -> None:
    model = fitted(rules, members=members)
    assert kept(rules, model.ensemble_.predict(EVERYWHERE))
    assert [audit.strength for audit in model.audit_] == ["constructed"] * len(rules)
    explained = model.ensemble_.predict(EVERYWHERE, explain=True)
    assert set(explained.labels) == {"constructed"}


def test_a_module_of_the_users_own_keeps_them() -> None:
    model = fitted([Range(0, 1)], members=lambda: torch.nn.Linear(2, 3))
    assert kept([Range(0, 1)], model.ensemble_.predict(EVERYWHERE))


def test_they_go_together_with_rules_at_listed_inputs_and_over_regions(tmp_path: Path) -> None:
    output = [SumTo(3, low=-1), Range(None, 2.5)]
    box = Linear(Box([-1, -1], [1, 1]), [0.0, 0.0, 1.0], 1.5, "<=", name="box")
    listed = Linear(X[:3], [1.0, 0.0, 0.0], 0.2, ">=", name="listed")
    model = fitted([*output, box, listed])
    assert [audit.strength for audit in model.audit_] == [
        *("constructed", "constructed", "shielded", "audited")
    ]
    assert all(audit.holds for audit in model.audit_)
    assert kept(output, model.ensemble_.predict(EVERYWHERE, outside="ignore"))
    model.ensemble_.save(tmp_path)
    loaded = cg4ai.load(tmp_path)
    assert np.array_equal(
        loaded.predict(EVERYWHERE, outside="ignore"),
        model.ensemble_.predict(EVERYWHERE, outside="ignore"),
    )
    assert loaded.audit(output[0]).strength == "constructed"
    assert loaded.audit(box).strength == "shielded"


def test_logits_can_be_bound() -> None:
    labels = (X[:, 0] > 0).astype(int)
    model = ConstrainedClassifier(
        scores="logit", iteration_limit=2, steps=40, random_state=0, validation_fraction=0.2
    )
    model.adopt(cg4ai.solve(model.problem(X, labels, [Range(-2, 2)]), model.run_settings()))
    assert np.abs(model.ensemble_.predict(EVERYWHERE)).max() <= 2
    assert model.score(X, labels) > 0.9


@pytest.mark.parametrize("members", ["network", "forest"])
def test_probabilities_are_refused(members: str) -> None:
    with raises(InvalidInput, "unsupported", "logit"):
        ConstrainedClassifier(members=members).fit(X, X[:, 0] > 0, requirements=[Range(0.1, 0.9)])


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (
            [Range(0, 1), Equality(None, [1.0, 1.0, 1.0], AffineBound(2.0, [1.0] * X.shape[1]))],
            "infeasible",
        ),
        ([Range(0, 1), SumTo(5)], "infeasible"),
        ([Range(0, 1, [4])], "unknown-name"),
        ([Ordered((0, 1)), Range(2, 3, [0]), Range(0, 1, [1])], "infeasible"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_training(rules: list[Any], code: str) -> None:
    model = ConstrainedRegressor()
    with raises(InvalidInput, code):
        model.fit(X, Y, requirements=rules)


def test_an_anchor_outside_the_set_is_refused() -> None:
    box = Linear(Box([-1, -1], [1, 1]), [0.0, 0.0, 1.0], 1.5, "<=")
    model = ConstrainedRegressor(random_state=0)
    problem = model.problem(X, Y, [Range(0, 1), box])
    with raises(InvalidInput, "anchor", "anchor"):
        cg4ai.solve(replace(problem, anchor=np.array([0.5, 0.5, -1.0])), model.run_settings())


def test_outputs_can_be_named_as_the_columns_of_y() -> None:
    frame = pytest.importorskip("pandas").DataFrame(Y, columns=["low", "middle", "rest"])
    model = ConstrainedRegressor(random_state=0, iteration_limit=2, steps=40)
    rules = [Ordered(["low", "middle"]), Range(0, 1, "rest")]
    model.adopt(cg4ai.solve(model.problem(X, frame, rules), model.run_settings()))
    outputs = model.ensemble_.predict(EVERYWHERE)
    assert bool((outputs[:, 0] <= outputs[:, 1]).all())
    assert 0 <= outputs[:, 2].min() <= outputs[:, 2].max() <= 1
    assert model.audit(rules[0]).strength == "constructed"
    with raises(InvalidInput, "unknown-name", "middle"):
        model.problem(X, frame, [Ordered(["low", "midle"])])
    with raises(InvalidInput, "unknown-name"):
        model.problem(X, Y, [Ordered(["low", "middle"])])
