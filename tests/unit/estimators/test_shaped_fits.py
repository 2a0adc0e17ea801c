"""Estimators under Monotone and Curvature: kept at every input, whatever the outputs mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, load
from cg4ai.data import fit_with_requirements, transform_requirement
from cg4ai.errors import FitWarning, InvalidInput
from cg4ai.estimators.holdout import LabelledData
from cg4ai.estimators.simple_members import signed_models
from cg4ai.records import IterationRecord
from cg4ai.rules import (
    Ball,
    Curvature,
    Equality,
    Linear,
    Monotone,
    Ordered,
    Probability,
    Range,
    SumTo,
)
from raising import raises

QUICK: dict[str, Any] = {"random_state": 0, "steps": 60, "iteration_limit": 2}
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (300, 4))
Y = np.tanh(3 * X[:, 0]) - X[:, 1] + X[:, 2] * X[:, 3] + 0.3 * generator.normal(size=300)


def pairs(directions: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    first = generator.uniform(-3, 3, (5000, 4))
    second = first.copy()
    for feature, sign in directions.items():
        second[:, feature] += sign * generator.exponential(size=5000)
    return first, second


def test_a_regressor_rises_where_data_say_otherwise(tmp_path: Path) -> None:
    rules = [Monotone({0: -1, 1: +1}), Curvature({2: 1})]
    model = ConstrainedRegressor(**QUICK, effort="best").fit(X, Y, requirements=rules)
    first, second = pairs({0: -1, 1: 1})
    assert (model.predict(second) >= model.predict(first) - 1e-12).all()
    moved = first.copy()
    moved[:, 2] += 1
    middle = (model.predict(first) + model.predict(moved)) / 2
    assert (model.predict((first + moved) / 2) <= middle + 1e-9).all()
    assert [audit.strength for audit in model.audit_] == ["constructed"] * 2
    loaded = load(model.ensemble_.save(tmp_path / "model"))
    assert loaded.audit(rules[0]).strength == "constructed"
    assert set(loaded.predict(X[:3], explain=True).labels) == {"constructed"}
    wrong = loaded.audit(Monotone({0: +1}))
    assert wrong.strength == "attacked"
    assert not wrong.holds


def test_shapes_that_are_true_cost_little() -> None:
    plain = ConstrainedRegressor(random_state=0).fit(X[:200], Y[:200])
    shaped = ConstrainedRegressor(random_state=0).fit(
        X[:200], Y[:200], requirements=[Monotone({0: 1, 1: -1})]
    )
    assert shaped.score(X[200:], Y[200:]) > plain.score(X[200:], Y[200:]) - 0.03


@pytest.mark.parametrize("scores", ["probability", "logit"])
def test_classes(scores: str) -> None:
    model = ConstrainedClassifier(scores=scores, **QUICK)
    first, second = pairs({0: 1, 1: -1})
    rule = {0: 1, 1: -1}

    two = model.fit(X, np.where(Y > 0, "yes", "no"), requirements=[Monotone(rule, output="yes")])
    assert (two.predict_proba(second) >= two.predict_proba(first) - 1e-12)[:, 1].all()
    decided = two.predict(np.concatenate([first, second])).reshape(2, -1) == "yes"
    assert not (decided[0] & ~decided[1]).any()

    label = np.digitize(Y, [-0.5, 0.5])
    one = model.fit(X, label, requirements=[Monotone(rule, output=2)])
    assert (one.predict_proba(second) >= one.predict_proba(first) - 1e-12)[:, 2].all()

    ordered = model.fit(X, label, requirements=[Monotone(rule, ordered=True)])
    low, high = (np.cumsum(ordered.predict_proba(x)[:, ::-1], axis=1) for x in (first, second))
    assert (high >= low - 1e-12).all()
    assert ordered.audit_[0].strength == "constructed"
    assert ordered.audit(Monotone(rule, ordered=True)).strength == "constructed"


@pytest.mark.parametrize(
    "members", ["tree", ["network", "forest"], HistGradientBoostingClassifier(max_iter=10)], ids=str
)
def test_trees_of_many_classes(members: Any, tmp_path: Path) -> None:
    first, second = pairs({0: 1, 1: -1})
    grades = np.array(["A fair", "B good", "C best", "D top"])[np.digitize(Y, [-1, 0, 1])]
    rules = [Monotone({0: 1, 1: -1}, output="A fair"), Monotone({0: 1, 1: -1}, ordered=True)]
    for rule, sums in zip(rules, ([[0]], [[1, 2, 3], [2, 3], [3]]), strict=True):
        known = Probability(X[:4], grades[:4], at_least=0.3, name="known")
        model = ConstrainedClassifier(members=members, **QUICK)
        model.fit(X, grades, requirements=[rule, known])
        assert model.audit_[0].strength == "constructed"
        assert model.audit_[1].holds
        before, after = model.predict_proba(first), model.predict_proba(second)
        for chosen in sums:
            assert (after[:, chosen].sum(1) >= before[:, chosen].sum(1) - 1e-12).all()
        np.testing.assert_allclose(before.sum(1), 1)
        loaded = load(model.ensemble_.save(tmp_path / str(rule.ordered)))
        np.testing.assert_array_equal(loaded.predict(first), before)
        module = model.ensemble_.as_module()
        np.testing.assert_allclose(module(torch.tensor(first)).detach().numpy(), before, atol=1e-12)


def test_auto_has_boosted_trees_of_many_classes() -> None:
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (1600, 3))
    steps = (x[:, 0] > 0.2).astype(int) + (x[:, 0] * (x[:, 1] > 0) > 0.6)
    model = ConstrainedClassifier(**QUICK)
    model.fit(x, steps, requirements=[Monotone({0: 1}, ordered=True)])
    kinds = {type(part.members).__name__ for part in model.ensemble_.used}
    assert "NestedMembers" in kinds
    assert model.audit_[0].strength == "constructed"


def test_missing_values_go_where_monotone_trees_send_them() -> None:
    holes = np.where(generator.random(X.shape) < 0.1, np.nan, X)
    model = ConstrainedClassifier(members="boosting", **QUICK)
    model.fit(holes, np.digitize(Y, [-0.5, 0.5]), requirements=[Monotone({0: 1}, output=2)])
    assert model.audit_[0].strength == "constructed"
    assert np.isfinite(model.predict_proba(holes)).all()


def test_names_of_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = ConstrainedRegressor(**QUICK).fit(frame, Y, requirements=[Monotone({"a": 1})])
    assert model.audit_[0].strength == "constructed"
    assert model.audit(Monotone({"a": 1})).strength == "constructed"
    with raises(InvalidInput, "unknown-name"):
        ConstrainedRegressor(**QUICK).fit(frame, Y, requirements=[Monotone({"e": 1})])


def test_region_rules_become_rows_beside_a_shape() -> None:
    cap = Linear(Ball(np.zeros(4), 0.2), [1.0], 1.0, "<=", name="cap")
    with pytest.warns(FitWarning):  # of the iteration limit, at least
        model = ConstrainedRegressor(**QUICK).fit(X, Y, requirements=[Monotone({0: 1}), cap])
    assert model.audit_[0].strength == "constructed"
    assert model.audit_[1].strength in ("attacked", "certified")
    assert model.audit_[1].holds
    assert "rows of the master instead" in model.result_.note


@pytest.mark.parametrize(
    ("parameters", "rule", "code"),
    [
        ({"activation": "gelu"}, Monotone({0: 1}), "unsupported"),
        ({"members": "affine"}, Monotone({0: 1}), "unsupported"),
        ({"members": "stump"}, Monotone({0: 1}), "unsupported"),
        ({}, Monotone({7: 1}), "range"),
        ({}, Monotone({0: 1}, output=1), "range"),
        ({}, Monotone({0: 1}, ordered=True), "unsupported"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_training(
    parameters: dict[str, Any], rule: Monotone, code: str
) -> None:
    trained: list[IterationRecord] = []
    with raises(InvalidInput, code):
        ConstrainedRegressor(**QUICK, **parameters).fit(X, Y, [rule], progress=trained.append)
    assert not trained


def test_shapes_and_equalities_do_not_mix() -> None:
    both = np.stack([Y, 1 - Y], axis=1)
    with raises(InvalidInput, "infeasible"):
        ConstrainedRegressor(**QUICK).fit(
            X, both, [Monotone({0: 1}, output=0), Equality(None, [1.0, 1.0], 1.0)]
        )


def test_signed_ridge_is_the_best_within_its_signs() -> None:
    """Against projected gradient steps from many starts, and against ridge where it is inside."""
    data = LabelledData(X, Y[:, None], np.ones(len(X)))
    model = signed_models(data, 1, [0.1], (Monotone({0: -1, 1: -1}),))[0]
    centred = X - X.mean(0)
    gram = centred.T @ centred / len(X) + 0.1 * np.eye(4)
    target = centred.T @ (Y - Y.mean()) / len(X)
    slopes = np.zeros(4)
    for _ in range(5000):
        slopes = slopes - 0.5 * (gram @ slopes - target)
        slopes[:2] = np.minimum(slopes[:2], 0)
    assert np.allclose(model.slopes[0], slopes, atol=1e-6)
    labels = LabelledData(X, (Y > 0).astype(int), np.ones(len(X)))
    scores = signed_models(labels, 2, [0.1], (Monotone({0: 1}, output=1),))[0].slopes
    assert scores[1, 0] - scores[0, 0] > 0.5


def test_a_shape_goes_with_a_range_and_an_order() -> None:
    both = np.stack([Y, Y + 1], axis=1)
    rules: list[Any] = [Monotone({0: 1, 1: -1}), Range(-1.0, 2.0), Ordered()]
    model = ConstrainedRegressor(**QUICK).fit(X, both, requirements=rules)
    assert [audit.strength for audit in model.audit_] == ["constructed"] * 3
    first, second = pairs({0: 1, 1: -1})
    assert (model.predict(second) >= model.predict(first) - 1e-12).all()
    outputs = model.predict(first)
    assert outputs.min() >= -1
    assert outputs.max() <= 2
    assert (outputs[:, 0] <= outputs[:, 1]).all()
    clashes: list[list[Any]] = [
        [Monotone({0: 1}), SumTo(1.0)],
        [Monotone({0: 1}, output=0), Ordered()],
        [Curvature({0: 1}), Range(-1.0, 2.0)],
        [Curvature({0: 1}), Range(None, 2.0)],
        [Curvature({0: -1}), Range(-1.0, None)],
        [Curvature({0: 1}), Range(-1.0, None), Ordered()],
    ]
    for wrong in clashes:
        with raises(InvalidInput, "infeasible"):
            ConstrainedRegressor(**QUICK).fit(X, both, wrong)


@pytest.mark.parametrize(("sign", "ends"), [(1, (0.0, None)), (-1, (None, 0.5))])
def test_curvature_goes_with_the_end_that_bends_alike(
    sign: int, ends: tuple[float | None, float | None]
) -> None:
    rules: list[Any] = [Curvature({2: sign}), Range(*ends)]
    model = ConstrainedRegressor(**QUICK).fit(X, Y, requirements=rules)
    assert [audit.strength for audit in model.audit_] == ["constructed"] * 2
    first, _ = pairs({})
    second = first.copy()
    second[:, 2] -= 3 * first[:, 2] + 1
    middle, halves = model.predict((first + second) / 2), np.zeros(len(first))
    for end in (first, second):
        found = model.predict(end)
        assert (found >= (-np.inf if ends[0] is None else ends[0])).all()
        assert (found <= (np.inf if ends[1] is None else ends[1])).all()
        halves += found / 2
    assert (sign * (halves - middle) >= -1e-9).all()
    assert np.ptp(model.predict(first)) > 0.1


@pytest.mark.parametrize("beside", [[], ["network"]])
def test_trees_beside_networks_keep_it_too(beside: list[str]) -> None:
    first, second = pairs({0: 1, 1: -1})
    boosted = HistGradientBoostingRegressor(max_iter=20)
    model = ConstrainedRegressor(members=[*beside, boosted], **QUICK)
    model.fit(X, Y, requirements=[Monotone({0: 1, 1: -1})])
    assert model.audit_[0].strength == "constructed"
    assert (model.predict(second) >= model.predict(first) - 1e-12).all()
    trees = HistGradientBoostingClassifier(max_iter=20)
    classes = ConstrainedClassifier(members=[*beside, trees], **QUICK)
    classes.fit(X, Y > 0, requirements=[Monotone({0: 1, 1: -1})])
    assert classes.audit_[0].strength == "constructed"
    assert (classes.predict_proba(second) >= classes.predict_proba(first) - 1e-12)[:, 1].all()


def test_quantiles_can_be_monotone() -> None:
    model = ConstrainedRegressor(loss="pinball", quantiles=(0.1, 0.9), **QUICK)
    model.fit(X, Y, requirements=[Monotone({0: 1, 1: -1})])
    first, second = pairs({0: 1, 1: -1})
    assert (model.predict(second) >= model.predict(first) - 1e-12).all()
    assert {audit.strength for audit in model.audit_} == {"constructed"}


def test_shapes_in_raw_features_of_a_pipeline() -> None:
    flip = FunctionTransformer(lambda x: np.column_stack([-5 * x[:, 1], x[:, [0, 2, 3]] + 1]))
    pipeline = make_pipeline(flip, StandardScaler(), ConstrainedRegressor(**QUICK))
    rules: list[Any] = [Monotone({0: 1, 1: -1}), Curvature({2: -1})]
    model = fit_with_requirements(pipeline, X, Y, rules)
    first, second = pairs({0: 1, 1: -1})
    assert (model.predict(second) >= model.predict(first) - 1e-12).all()
    behind = [transform_requirement(rule, model) for rule in rules]
    assert [getattr(rule, "features", None) for rule in behind] == [{1: 1, 0: 1}, {2: -1}]
    square = make_pipeline(PolynomialFeatures(2), ConstrainedRegressor(**QUICK))
    with raises(InvalidInput, "unsupported"):
        fit_with_requirements(square, X, Y, rules[:1])
