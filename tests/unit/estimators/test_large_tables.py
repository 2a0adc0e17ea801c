"""Tables as people have them: many rows, weights of classes, sparse input, jobs, progress."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.errors import InvalidInput
from cg4ai.estimators import inputs as sparse
from cg4ai.rules import Probability, Rate
from raising import raises

QUICK: dict[str, Any] = {
    "hidden": (6,),
    "steps": 60,
    "restarts": 2,
    "iteration_limit": 3,
    "random_state": 0,
}
X, Y = make_classification(300, 5, n_informative=4, n_redundant=0, weights=[0.85], random_state=0)
RARE = int(np.bincount(Y).argmin())

pytestmark = pytest.mark.filterwarnings("ignore::cg4ai.FitWarning")


def test_many_rows_are_trained_on_in_batches_under_a_rate_over_all_of_them():
    inputs, targets = make_friedman1(8000, 6, noise=0.5, random_state=0)
    groups = inputs[:, 0] > 0.5
    rate = Rate(inputs, groups, output=0, tolerance=1.0)
    model = ConstrainedRegressor(steps=1000, iteration_limit=6, random_state=0)
    model.fit(inputs[:7000], targets[:7000], requirements=[rate])
    gap = model.predict(inputs[groups]).mean() - model.predict(inputs[~groups]).mean()
    assert abs(gap) <= 1.0 + 1e-6
    assert model.score(inputs[7000:], targets[7000:]) > 0.8
    assert abs(targets[groups].mean() - targets[~groups].mean()) > 1.5


@pytest.mark.slow
@pytest.mark.guard
def test_a_rate_over_many_rows_leaves_more_than_a_linear_model() -> None:
    inputs = np.random.default_rng(0).normal(size=(9000, 4))
    labels = (inputs[:, 0] * inputs[:, 1] + 0.3 * inputs[:, 2] > 0).astype(int)  # no line will do
    rate = Rate(inputs[:7000], inputs[:7000, 2] > 0, output=1, tolerance=0.05)
    model = ConstrainedClassifier(steps=1000, iteration_limit=4, random_state=0)
    model.fit(inputs[:7000], labels[:7000], requirements=[rate])
    assert model.audit_[0].holds
    assert model.score(inputs[7000:], labels[7000:]) > model.score_.linear + 0.1


def test_weights_of_classes_are_weights_of_their_rows():
    weights = {0: 1.0, 1: 3.0}
    one = ConstrainedClassifier(class_weight=weights, **QUICK).fit(X, Y)
    other = ConstrainedClassifier(**QUICK).fit(X, Y, sample_weight=np.where(Y == 1, 3.0, 1.0))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_balanced_classes_find_more_of_the_rare_one():
    plain = ConstrainedClassifier(**QUICK).fit(X, Y)
    balanced = ConstrainedClassifier(class_weight="balanced", **QUICK).fit(X, Y)
    found = [float((model.predict(X)[Y == RARE] == RARE).mean()) for model in (plain, balanced)]
    assert found[1] > found[0]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("even", "unknown-name"),
        (3, "unknown-name"),
        ({"no": 1.0}, "unknown-name"),
        ({0: -1.0}, "range"),
    ],
)
def test_weights_of_classes_that_make_no_sense_are_refused(given: Any, code: str) -> None:
    with raises(InvalidInput, code):
        ConstrainedClassifier(class_weight=given, **QUICK).fit(X, Y)


@pytest.mark.parametrize("kind", [ConstrainedClassifier, ConstrainedRegressor])
def test_sparse_input_is_as_good_as_dense(kind: Any) -> None:
    few = np.where(np.abs(X) > 0.7, X, 0.0)
    one = kind(**QUICK).fit(csr_matrix(few), Y)
    other = kind(**QUICK).fit(few, Y)
    np.testing.assert_array_equal(one.predict(csr_matrix(few)), other.predict(few))


def test_sparse_input_that_memory_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "free_bytes", lambda: 1e6)
    wide = csr_matrix((300, 200_000))
    with raises(InvalidInput, "memory", "GiB"):
        ConstrainedClassifier(**QUICK).fit(wide, Y)


def test_sparse_rows_are_predicted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ConstrainedClassifier(**QUICK).fit(X, Y)
    monkeypatch.setattr(sparse, "ROWS", 64)
    np.testing.assert_allclose(model.predict_proba(csr_matrix(X)), model.predict_proba(X))


@pytest.mark.slow
@pytest.mark.guard
def test_jobs_change_nothing_but_the_time() -> None:
    small = HistGradientBoostingRegressor(max_iter=3, early_stopping=False)
    settings = QUICK | {"members": small, "loss": "pinball", "quantiles": (0.2, 0.8)}
    targets = X[:, 0] + X[:, 1] ** 2
    one, two = (
        ConstrainedRegressor(n_jobs=jobs, **settings).fit(X, targets).predict(X) for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)
    small = HistGradientBoostingClassifier(max_iter=3, early_stopping=False)
    rule = Probability(X[:5], Y[:5], at_least=0.6)  # one fit for each way to trade it against data
    one, two = (
        ConstrainedClassifier(n_jobs=jobs, members=small, **QUICK)
        .fit(X, Y, requirements=[rule])
        .predict_proba(X)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)
    with raises(InvalidInput, "range", "n_jobs"):
        ConstrainedRegressor(n_jobs=0, **QUICK).fit(X, targets)


def test_verbose_prints_a_line_for_each_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    model = ConstrainedClassifier(verbose=1, **QUICK).fit(X, Y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["iteration", "objective"]
    assert len(lines) == 1 + len(model.history_)
    ConstrainedClassifier(**QUICK).fit(X, Y)
    assert capsys.readouterr().out == ""
