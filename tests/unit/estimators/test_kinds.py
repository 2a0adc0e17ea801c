"""Every kind of member takes part: a small problem with a rule that data alone would break."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.cluster import KMeans
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from torch import nn

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, StopReason
from cg4ai.ensemble.saved import load
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.members import NetworkMembers, ShieldedMembers, TreeMembers
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import write_certificate
from cg4ai.rules import Box, Linear, Margin, Monotone, Probability, Rate
from cg4ai_checker.verify import check
from raising import raises

QUICK: dict[str, Any] = {
    "hidden": (6,),
    "steps": 60,
    "restarts": 2,
    "iteration_limit": 10,
    "random_state": 0,
}


def classes(count: int = 80) -> tuple[Any, Any]:
    """Three classes by the angle; the first six labels are wrong, so rules there bind."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(count, 2))
    y = np.digitize(np.arctan2(X[:, 1], X[:, 0]), [-1.0, 1.0])
    y[:6] = (y[:6] + 1) % 3
    return X, y


def values(count: int = 80, outputs: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(count, 2))
    y = np.stack([X[:, 0] + X[:, 1] ** 2, X[:, 0] - X[:, 1]], axis=1)[:, :outputs]
    return X, y + 0.05 * rng.normal(size=y.shape)


def module() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3), nn.Softmax(-1))


def smooth_module() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 6), nn.GELU(), nn.Linear(6, 1))


def label(members: Any) -> str:
    """A test name without memory addresses."""
    if isinstance(members, list):
        return "+".join(label(kind) for kind in members)
    return getattr(members, "__name__", str(members))


CLASSIFIERS: list[Any] = [
    "network",
    "stump",
    "tree",
    "forest",
    "boosting",
    DecisionTreeClassifier(max_depth=3),
    RandomForestClassifier(n_estimators=5, max_depth=3),
    GradientBoostingClassifier(n_estimators=5, max_depth=2),
    LogisticRegression(),
    module,
    ["stump", "network"],
    ["tree", module],
]


@pytest.mark.parametrize("members", CLASSIFIERS, ids=label)
def test_classifiers_of_every_kind_meet_their_rule(members: Any) -> None:
    X, y = classes()
    hard = np.arange(10, 14)
    rule = Probability(X[hard], y[hard], at_least=0.55)
    model = ConstrainedClassifier(members=members, **QUICK).fit(X, y, [rule])
    probability = model.predict_proba(X)
    assert model.result_.feasible, str(model.result_)
    assert (probability[hard, y[hard]] >= 0.55 - 1e-6).all()
    np.testing.assert_allclose(probability.sum(1), 1.0, atol=1e-9)
    assert model.score(X, y) > 0.6


REGRESSORS: list[Any] = [
    "network",
    "affine",
    "stump",
    "tree",
    "forest",
    "boosting",
    DecisionTreeRegressor(max_depth=4),
    ExtraTreesRegressor(n_estimators=5, max_depth=4),
    Ridge(),
    smooth_module,
    ["affine", "tree"],
]


@pytest.mark.parametrize("members", REGRESSORS, ids=label)
def test_regressors_of_every_kind_meet_their_rule(members: Any) -> None:
    X, y = values()
    top = np.argsort(-y[:, 0])[:5]
    cap = Linear(X[top], [1.0], 1.0, "<=")
    model = ConstrainedRegressor(members=members, **QUICK).fit(X, y[:, 0], [cap])
    assert y[top].max() > 1.2, "the rule must cost something"
    assert model.result_.feasible, str(model.result_)
    assert (model.predict(X[top]) <= 1.0 + 1e-6).all()
    assert model.score(X, y[:, 0]) > 0.5


@pytest.mark.parametrize("members", ["network", "affine", "stump", "tree", "forest", Ridge()])
def test_several_outputs(members: Any) -> None:
    X, y = values(outputs=2)
    rule = Linear(X[:4], [1.0, -1.0], 0.0)
    model = ConstrainedRegressor(members=members, **QUICK).fit(X, y, [rule])
    predicted = model.predict(X)
    assert predicted.shape == y.shape
    assert model.result_.feasible, str(model.result_)
    assert (predicted[:4, 0] - predicted[:4, 1] >= -1e-6).all()


def test_affine_regression_ends_optimal_at_the_constrained_least_squares() -> None:
    X, y = values()
    target = y[:, 0]
    top = np.argsort(-target)[:3]
    model = ConstrainedRegressor(
        members="affine", objective="average", random_state=0, iteration_limit=60
    ).fit(X, target, [Linear(X[top], [1.0], 0.6, "<=")])
    assert model.stop_reason_ is StopReason.OPTIMAL
    assert model.result_.gap is not None
    assert model.result_.gap <= 1e-5
    design = np.column_stack([X, np.ones(len(X))])
    oracle = minimize(
        lambda w: np.mean((design @ w - target) ** 2),
        np.zeros(3),
        constraints={"type": "ineq", "fun": lambda w: 0.6 - design[top] @ w},
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    free = np.mean((design @ np.linalg.lstsq(design, target, rcond=None)[0] - target) ** 2)
    assert oracle.fun > free + 1e-3, "the rule must cost something"
    assert model.result_.loss == pytest.approx(oracle.fun, abs=2e-5)


def test_affine_logits_meet_a_margin_and_end_with_a_bound() -> None:
    X, y = classes()
    hard = np.arange(10, 14)
    rule = Margin(X[hard], y[hard], 0.5, form="pairwise")
    model = ConstrainedClassifier(
        members="affine", scores="logit", objective="average", random_state=0, iteration_limit=60
    ).fit(X, y, [rule])
    assert model.result_.feasible, str(model.result_)
    assert model.result_.bound is not None
    assert model.result_.bound <= model.result_.objective + 1e-9
    logits = model.decision_function(X[hard])
    own = logits[np.arange(4), y[hard]]
    logits[np.arange(4), y[hard]] = -np.inf
    assert (own - logits.max(1) >= 0.5 - 1e-6).all()


def test_logit_networks_stay_within_the_output_limit() -> None:
    X, y = classes()
    model = ConstrainedClassifier(scores="logit", output_limit=3.0, **QUICK)
    model.fit(X, y, [Margin(X[10:14], y[10:14], 1.0)])
    assert model.result_.feasible
    assert np.abs(model.decision_function(X)).max() <= 3.0 + 1e-4


def test_trees_lines_and_networks_stand_behind_one_shield(tmp_path: Path) -> None:
    """The shield's closed form proves the rule, whatever the members inside are."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(120, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0) + X[:, 1] + 2 * X[:, 0] * X[:, 1]
    box = Box([-1.0, -1.0], [1.0, 1.0])
    band = [Linear(box, [1.0], 2.0, "<=", name="cap"), Linear(box, [1.0], -1.0, name="floor")]
    model = ConstrainedRegressor(members=["tree", "affine", "network"], **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, requirements=band)
    members = [part.members for part in model.ensemble_.parts]
    shielded = [one for one in members if isinstance(one, ShieldedMembers)]
    assert len(shielded) == len(members)
    assert {type(one.inner) for one in shielded} >= {TreeMembers, NetworkMembers}
    assert [audit.strength for audit in model.audit_] == ["shielded", "shielded"]
    inputs = rng.uniform(-1, 1, size=(100_000, 2))
    outputs = model.predict(inputs)
    assert outputs.min() >= -1.0
    assert outputs.max() <= 2.0
    assert model.score_.without_rules is not None
    model.ensemble_.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).predict(inputs)[:, 0], outputs)
    proof = certify(model.ensemble_, band[0], time_limit_s=60)
    assert proof.status == "proven"
    write_certificate(
        tmp_path / "cap.cg4ai", model.ensemble_, requirement=band[0], certification=proof
    )
    check(tmp_path / "cap.cg4ai")  # raises where it is not proven


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ("netwrok", "unknown-name"),
        ([], "empty"),
        (3, "unknown-name"),
        ([None], "unknown-name"),
        (DecisionTreeClassifier, "unknown-name"),
        (DecisionTreeRegressor(), "conflict"),
        (SVC(), "unsupported"),
        (KMeans(), "type"),
        (lambda: nn.Linear(5, 3), "unsupported"),
    ],
)
def test_kinds_that_do_not_fit_are_refused_before_training(members: Any, code: str) -> None:
    X, y = classes()
    with raises(InvalidInput, code):
        ConstrainedClassifier(members=members, **QUICK).problem(X, y)


def test_kinds_and_scores_must_agree() -> None:
    X, y = classes()
    for members in ("stump", "tree", RandomForestClassifier()):
        with raises(InvalidInput, "conflict", "probability"):
            ConstrainedClassifier(members=members, scores="logit").problem(X, y)
    with raises(InvalidInput, "conflict"):
        ConstrainedRegressor(members=DecisionTreeClassifier()).problem(*values())


def test_a_model_fitted_with_a_lambda_is_pickled_without_it() -> None:
    inputs = np.random.default_rng(0).normal(size=(30, 2))
    model = ConstrainedRegressor(
        members=[lambda: nn.Linear(2, 1), "affine"], steps=2, restarts=1, iteration_limit=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(inputs, inputs[:, 0])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(inputs), model.predict(inputs))
    with raises(InvalidInput, "missing-factory"):
        again.fit(inputs, inputs[:, 0])


def steps(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    inputs = rng.uniform(size=(count, 6))
    height = 3.0 * (inputs[:, 0] > 0.3) * (inputs[:, 1] > 0.5) + 2 * (inputs[:, 2] > 0.6)
    return inputs, height + 0.3 * rng.normal(size=count)


def test_by_itself_larger_tables_have_a_boosted_model_beside_networks() -> None:
    inputs, y = steps(1100)
    problem = ConstrainedRegressor().problem(inputs, y)
    assert len(problem.pricers) == 2
    few: dict[str, Any] = {"iteration_limit": 3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        both = ConstrainedRegressor(**few).fit(inputs[:1000], y[:1000])
        alone = ConstrainedRegressor(**few, members="network").fit(inputs[:1000], y[:1000])
    assert both.score(inputs[1000:], y[1000:]) > alone.score(inputs[1000:], y[1000:])
    assert len(ConstrainedRegressor().problem(inputs[:900], y[:900]).pricers) == 1
    cap = Linear(inputs[:3], [1.0], 3.0, "<=")
    assert len(ConstrainedRegressor().problem(inputs, y, [cap]).pricers) == 2
    assert len(ConstrainedRegressor(effort="best").problem(inputs, y, [cap]).pricers) == 1
    rate = Rate(inputs, inputs[:, 0] > 0.5, output=0, tolerance=0.1)
    assert len(ConstrainedRegressor().problem(inputs, y, [rate]).pricers) == 1
    rising = Monotone({0: 1})
    assert len(ConstrainedRegressor().problem(inputs, y, [rising]).pricers) == 2


def test_models_that_are_fitted_already_are_members_to_start_from() -> None:
    inputs, y = steps(300)
    model = HistGradientBoostingRegressor(max_iter=20).fit(inputs, y)
    fit = ConstrainedRegressor(members=[model, "tree"], iteration_limit=1, random_state=0)
    start = fit.problem(inputs, y).start
    np.testing.assert_allclose(
        start[0][0].outputs(torch.as_tensor(inputs)).numpy()[0, :, 0], model.predict(inputs)
    )
    names = np.array(["no", "yes"])[(y > 2).astype(int)]
    known = HistGradientBoostingClassifier(max_iter=5).fit(inputs, names)
    both = ConstrainedClassifier(members=[known, "network"]).problem(inputs, names)
    assert len(both.start) == 3  # with simple members and the prior's
    with raises(InvalidInput, "conflict"):
        ConstrainedClassifier(members=[known, "network"]).problem(inputs, y > 2)
    with raises(InvalidInput, "shape"):
        ConstrainedRegressor(members=[model, "tree"]).problem(inputs[:, :5], y)
    with raises(InvalidInput, "empty"):
        ConstrainedRegressor(members=model).problem(inputs, y)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_models_of_other_libraries_are_members(library: str) -> None:
    module = pytest.importorskip(library)
    inputs, y = steps(300)
    quiet = {"verbose": -1, "num_threads": 1} if library == "lightgbm" else {"n_jobs": 1}
    name = "LGBM" if library == "lightgbm" else "XGB"
    regressor = getattr(module, f"{name}Regressor")(n_estimators=20, **quiet)
    classifier = getattr(module, f"{name}Classifier")(n_estimators=20, **quiet)
    ours = ConstrainedRegressor(members=regressor, iteration_limit=3, random_state=0)
    two = np.stack([y, -y], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        assert ours.fit(inputs, two, [Monotone({0: 1}, output=0)]).score(inputs, two) > 0.7
        assert ours.audit_[0].holds
        fit = ConstrainedClassifier(members=classifier, iteration_limit=2, random_state=0)
        assert fit.fit(inputs, y > 2).score(inputs, y > 2) > 0.8
    trained = regressor.fit(inputs, y)
    booster = trained.booster_ if library == "lightgbm" else trained.get_booster()
    problem = ConstrainedRegressor(members=[booster, "tree"]).problem(inputs, y)
    assert isinstance(problem.start[0][0], TreeMembers)
