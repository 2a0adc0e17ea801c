"""Simple members equal the plain models that they stand for, inside a network's class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from cg4ai.estimators.effort import SHRINKAGES
from cg4ai.estimators.holdout import LabelledData
from cg4ai.estimators.kinds import LearningTask, make_network
from cg4ai.estimators.parameters import Parameters
from cg4ai.estimators.simple_members import simple_members


def architecture(data: LabelledData, outputs: int, links: Any, hidden: tuple[int, ...]) -> Any:
    return make_network(
        Parameters(hidden=hidden), LearningTask(data.inputs, outputs, links, data.targets)
    )


def outputs(members: Any, inputs: Any) -> Any:
    return members.outputs(torch.as_tensor(inputs)).numpy()


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3)])
def test_regression(hidden: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal([3.0, -1.0, 0.0], [2.0, 0.1, 1.0], size=(50, 3))
    targets = 1e3 + 50 * np.stack([inputs[:, 0], inputs[:, 1] - inputs[:, 2]], axis=1)
    data = LabelledData(inputs, targets, rng.uniform(0.5, 2.0, 50))
    members = simple_members(architecture(data, 2, "linear", hidden), data)
    found = outputs(members, inputs)
    assert len(members) == 1 + len(SHRINKAGES)
    expected = np.average(targets, axis=0, weights=data.weights)
    np.testing.assert_allclose(found[0], np.tile(expected, (50, 1)), rtol=1e-9)
    standard = (inputs - inputs.mean(0)) / inputs.std(0)
    weights = data.weights / data.weights.mean()
    for k, shrinkage in enumerate(SHRINKAGES):
        ridge = Ridge(alpha=shrinkage * 50).fit(standard, targets, sample_weight=weights)
        np.testing.assert_allclose(found[1 + k], ridge.predict(standard), rtol=1e-7)


@pytest.mark.parametrize("classes", [2, 3])
def test_classification(classes: int) -> None:
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(60, 4))
    labels = np.digitize(inputs[:, 0] + 0.3 * rng.normal(size=60), [-0.4, 0.4][: classes - 1])
    data = LabelledData(inputs, labels, np.ones(60))
    members = simple_members(architecture(data, classes, "softmax", (5,)), data)
    found = outputs(members, inputs)
    shares = np.bincount(labels) / 60
    np.testing.assert_allclose(found[0], np.tile(shares, (60, 1)), atol=1e-9)
    standard = (inputs - inputs.mean(0)) / inputs.std(0)
    for k, shrinkage in enumerate(SHRINKAGES):
        model = LogisticRegression(C=1 / (60 * shrinkage), max_iter=500, tol=1e-8)
        expected = model.fit(standard, labels).predict_proba(standard)
        np.testing.assert_allclose(found[1 + k], expected, atol=2e-2)


def test_a_single_class_has_a_constant_alone() -> None:
    data = LabelledData(np.eye(4), np.zeros(4, np.int64), np.ones(4))
    members = simple_members(architecture(data, 2, "softmax", (3,)), data)
    found = outputs(members, data.inputs)
    assert len(members) == 1
    assert (found[0, :, 0] > 0.99).all()
