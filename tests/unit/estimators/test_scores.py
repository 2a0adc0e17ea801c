"""Scores without rules: on few rows at most as sure as the data allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from cg4ai import ConstrainedClassifier
from cg4ai.estimators.holdout import LabelledData
from cg4ai.estimators.linear_prior import MOST_ROWS, PRIOR_ROWS, find_linear_prior
from cg4ai.members.networks import NetworkArchitecture


def linear_rows(count: int, features: int = 12, seed: int = 0) -> tuple[Any, Any]:
    made = np.random.default_rng(seed)
    X = made.normal(size=(count, features))
    slopes = 2.0 * made.normal(size=features) / np.sqrt(features)
    return X, (X @ slopes + made.logistic(size=count) > 0).astype(np.int64)


def rows_of(X: Any, y: Any) -> LabelledData:
    return LabelledData(X, y, np.ones(len(X)))


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_few_rows_give_no_worse_log_loss_than_logistic_regression() -> None:
    differences = []
    for seed in range(3):
        X, y = linear_rows(1090, seed=seed)
        model = ConstrainedClassifier(random_state=seed, iteration_limit=2).fit(X[:90], y[:90])
        plain = LogisticRegression().fit(X[:90], y[:90])
        losses = [log_loss(y[90:], one.predict_proba(X[90:])) for one in (model, plain)]
        differences.append(losses[0] - losses[1])
    assert np.mean(differences) < 0.03, differences
    assert max(differences) < 0.15, differences


def test_prior_rows_weigh_as_many_rows_and_have_the_labels_that_a_line_expects() -> None:
    X, y = linear_rows(200)
    whole, trained, weighed = rows_of(X, y), rows_of(X[40:], y[40:]), rows_of(X[:40], y[:40])
    architecture = NetworkArchitecture(12, 2, hidden=(), output="softmax", shift=X.mean(0))
    prior = find_linear_prior(architecture, (whole, trained, weighed), (), 0)
    assert prior is not None
    np.testing.assert_allclose(prior.chances.sum(1), 1.0)
    joined = prior.add_to(weighed.objective("log_loss", "mixture"))
    assert joined.sample_weight is not None
    assert joined.sample_weight.sum() == pytest.approx(40 + PRIOR_ROWS)
    expected = joined.sample_weight[40:][joined.targets[40:] == 1] * 40 / PRIOR_ROWS
    np.testing.assert_allclose(expected, prior.chances[:, 1])
    np.testing.assert_array_equal(joined.measured[1], y[:40])
    # the member knows all rows, the chances are of a model that did not see those held out
    own = prior.member.outputs(torch.as_tensor(X[:40]))[0].numpy()
    assert not np.allclose(own, prior.chances)
    assert np.corrcoef(own[:, 1], prior.chances[:, 1])[0, 1] > 0.9


def test_without_a_prior_where_many_rows_are_held_out_or_a_class_is_rare() -> None:
    X, y = linear_rows(2 * MOST_ROWS + 2, features=2)
    half = MOST_ROWS + 1
    rows = rows_of(X, y), rows_of(X[half:], y[half:]), rows_of(X[:half], y[:half])
    architecture = NetworkArchitecture(2, 2, hidden=(), output="softmax")
    assert find_linear_prior(architecture, rows, (), 0) is None
    rare = np.zeros(60, np.int64)
    rare[0] = 1  # in one fold alone: nothing but the constant can be compared
    few = rows_of(X[:60], rare)
    prior = find_linear_prior(architecture, (few, few, rows_of(X[40:60], rare[40:])), (), 0)
    assert prior is not None
    assert np.ptp(prior.chances[:, 1]) == 0
