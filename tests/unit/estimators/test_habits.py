"""What users of scikit-learn expect of an estimator: rules as parameters, warm starts, storing."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.members.networks import NetworkMembers
from cg4ai.rules import Box, Linear, Monotone, Probability, Requirement
from raising import raises

QUICK: dict[str, Any] = {
    "hidden": (4,),
    "steps": 20,
    "restarts": 1,
    "iteration_limit": 1,
    "random_state": 0,
}


def labelled(count: int = 60) -> tuple[Any, Any]:
    made = np.random.default_rng(0)
    X = made.normal(size=(count, 3))
    return X, (X[:, 0] + 0.3 * made.normal(size=count) > 0).astype(int)


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_rules_as_a_parameter_hold_as_those_given_to_fit_do() -> None:
    X, y = labelled()
    rule = Probability(X[:4], y[:4], at_least=0.3)
    model = ConstrainedClassifier(**QUICK, requirements=[rule])
    fitted = clone(model).fit(X, y)
    given = ConstrainedClassifier(**QUICK).fit(X, y, [rule])
    assert fitted.audit_[0].holds
    np.testing.assert_array_equal(fitted.predict_proba(X), given.predict_proba(X))
    with raises(InvalidInput, "conflict"):
        model.fit(X, y, [rule])
    with raises(InvalidInput, "type"):
        ConstrainedClassifier(**QUICK, requirements=rule).fit(X, y)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_a_search_compares_rules() -> None:
    X, y = labelled(120)
    target = X[:, 0] - y
    none: list[Requirement] = []
    lists = [none, [Monotone([-1, 0, 0])]]  # the second is wrong about the data
    search = GridSearchCV(ConstrainedRegressor(**QUICK), {"requirements": lists}, cv=2)
    search.fit(X, target)
    assert search.best_params_["requirements"] == none
    assert search.best_estimator_.audit_ == ()


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_a_warm_start_goes_on_from_the_members_there_are() -> None:
    X, y = labelled()
    model = ConstrainedClassifier(**QUICK, warm_start=True).fit(X, y)
    first = model.result_.objective
    before = sum(len(members) for members, _ in model.problem(X, y).start)
    cold = clone(model)
    assert sum(len(members) for members, _ in cold.problem(X, y).start) < before
    assert model.fit(X, y).result_.objective <= first + 1e-9
    cap = Linear(Box(X.min(0), X.max(0)), [0.0, 1.0], 0.7, "<=")
    for _ in range(2):  # members of the second are behind a shield already
        model.fit(X, y, [cap])
        assert model.audit_[0].holds
        assert model.predict_proba(X)[:, 1].max() <= 0.7 + 1e-9
    with raises(InvalidInput, "conflict"):
        model.fit(X[:, :2], y)
    with raises(InvalidInput, "conflict"):
        model.fit(X, y + 1)


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(plain, value.values()))
    if isinstance(value, list | tuple):
        return all(map(plain, value))
    return isinstance(value, np.ndarray) or type(value).__module__ == "builtins"


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_stored_state_is_plain_data_and_predicts_the_same() -> None:
    X, y = labelled()
    cap = Linear(Box(X.min(0), X.max(0)), [0.0, 1.0], 0.7, "<=")
    model = ConstrainedClassifier(**QUICK).fit(X, np.array(["no", "yes"])[y], [cap])
    state = model.__getstate__()
    assert plain(state), [name for name, value in state.items() if not plain(value)]
    other = ConstrainedClassifier.__new__(ConstrainedClassifier)
    other.__setstate__(state)
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    assert other.audit(cap).holds
    for whole in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert str(whole.result_) == str(model.result_)
        np.testing.assert_array_equal(whole.predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore")  # theirs, too
def test_skops_and_mlflow_give_back_the_same_model(tmp_path: Path) -> None:
    stored = pytest.importorskip("skops.io", reason="the extra stores is not installed")
    X, y = labelled()
    model = ConstrainedClassifier(**QUICK).fit(X, y)
    trusted = stored.get_untrusted_types(data=stored.dumps(model))
    assert trusted == ["cg4ai.estimators.estimators.ConstrainedClassifier"]
    loaded = stored.loads(stored.dumps(model), trusted=trusted)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    logged = pytest.importorskip("mlflow.sklearn", reason="the extra stores is not installed")
    for form, types in (("skops", {"skops_trusted_types": trusted}), ("cloudpickle", {})):
        folder = str(tmp_path / form)
        logged.save_model(
            model, folder, serialization_format=form, pip_requirements=["cg4ai"], **types
        )
        np.testing.assert_array_equal(logged.load_model(folder).predict(X), model.predict(X))


@pytest.mark.filterwarnings("ignore::cg4ai.errors.FitWarning")
def test_affine_members_classify_without_further_words() -> None:
    X, y = labelled(90)
    model = ConstrainedClassifier(members="affine", random_state=0, steps=50, iteration_limit=2)
    model.fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.n_held_out_ > 0
    for part in model.ensemble_.used:
        assert isinstance(part.members, NetworkMembers)
        assert part.members.architecture.hidden == ()
    logits = ConstrainedClassifier(members="affine", scores="logit").problem(X, y)
    assert logits.held_out is None  # priced exactly, as before


def test_logarithms_of_chances() -> None:
    X, y = labelled(30)
    with pytest.warns(FitWarning):
        model = ConstrainedClassifier(**QUICK).fit(X, np.zeros(30, int))
    np.testing.assert_array_equal(model.predict_log_proba(X), np.zeros((30, 1)))
    two = ConstrainedClassifier(**{**QUICK, "iteration_limit": 3}).fit(X, y)
    np.testing.assert_allclose(np.exp(two.predict_log_proba(X)), two.predict_proba(X), atol=1e-12)


def test_signs_as_lightgbm_lists_them() -> None:
    X, _ = labelled()
    listed, named = Monotone([1, 0, -1]), Monotone({0: 1, 2: -1})
    assert dict(listed.features) == dict(named.features)
    assert listed.digest == named.digest
    model = ConstrainedRegressor(**QUICK)
    with raises(InvalidInput, "shape"):
        model.problem(X[:, :2], X[:, 0], [listed])
    frame = pd.DataFrame(X, columns=list("abc"))
    model.problem(frame, X[:, 0], [Monotone(np.array([1, 0, -1]))])


def test_errors_say_what_to_do() -> None:
    X, y = labelled()
    model = ConstrainedRegressor(**QUICK)
    with raises(InvalidInput, "unknown-name", "DataFrame"):
        model.fit(X, y, [Monotone({"income": 1})])
    for text in (np.array(["a", "b"])[y], np.array(["a", "b"], object)[y]):
        with raises(InvalidInput, "type", "ConstrainedClassifier"):
            model.fit(X, text)
    with pytest.warns(FitWarning, match="3 rows are too few"):
        model.fit(X[:3], X[:3, 0])
