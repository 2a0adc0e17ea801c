"""The two estimators as a user meets them: rules hold, errors come early, tools of scikit-learn."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from cg4ai import ConstrainedClassifier, ConstrainedRegressor, Settings, StopReason, solve
from cg4ai.errors import FitWarning, InvalidInput, InvalidSettings
from cg4ai.estimators.holdout import HeldOutPricer
from cg4ai.objectives import Supervised
from cg4ai.rules import Box, Concave, Linear, Margin, Pool, Probability, Rate, Requirement
from raising import raises

QUICK: dict[str, Any] = {
    "hidden": (6,),
    "steps": 60,
    "restarts": 2,
    "iteration_limit": 6,
    "random_state": 0,
}


def two_moons(count: int = 100, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    return X, (X[:, 0] + 0.5 * rng.normal(size=count) > 0).astype(int)


def line(count: int = 100, unit: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(count, 2))
    return X, unit * (X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.normal(size=count))


# ---- what a first user does -----------------------------------------------------------------


def test_defaults_classify_well_and_keep_the_rule() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X_hard, y_hard = X[:40], y[:40]
    rule = Probability(X_hard, y_hard, at_least=0.9)
    model = ConstrainedClassifier(random_state=0).fit(X[:400], y[:400], requirements=[rule])
    assert model.audit_[0].holds
    probability = model.predict_proba(X_hard)
    assert (probability[np.arange(40), y_hard] >= 0.9 - 1e-6).all()
    assert model.score(X[400:], y[400:]) > 0.94
    assert model.result_.feasible
    assert model.n_iter_ == len(model.history_)
    first = str(model.result_).splitlines()[0]
    assert first == "The rule holds."


def test_defaults_regress_well_and_keep_the_rule() -> None:
    X, y = load_diabetes(return_X_y=True)
    highest = np.argsort(-y[:350])[:20]
    cap = Linear(X[highest], [1.0], 200.0, "<=")
    model = ConstrainedRegressor(random_state=0).fit(X[:350], y[:350], requirements=[cap])
    assert model.audit_[0].holds
    assert model.predict(X[highest]).max() <= 200.0 + 1e-3
    assert model.score(X[350:], y[350:]) > 0.3


def test_without_requirements_it_is_an_ordinary_model() -> None:
    X, y = two_moons()
    model = ConstrainedClassifier(**QUICK).fit(X, y)
    assert model.audit_ == ()
    assert model.result_.feasible
    assert model.score(X, y) > 0.8


def test_held_out_rows_keep_noise_from_being_learnt_by_heart() -> None:
    X, y = make_classification(300, 15, n_informative=4, flip_y=0.3, random_state=3)
    settings: dict[str, Any] = {"random_state": 0, "steps": 100, "iteration_limit": 5}
    guarded = ConstrainedClassifier(**settings).fit(X[:200], y[:200])
    learnt = ConstrainedClassifier(
        **settings, effort="best", validation_fraction=0, weight_decay=0.0
    )
    learnt.fit(X[:200], y[:200])
    assert learnt.score(X[:200], y[:200]) > 0.97
    assert guarded.score(X[:200], y[:200]) < 0.95
    assert guarded.score(X[200:], y[200:]) > learnt.score(X[200:], y[200:])


# ---- requirements of every shape --------------------------------------------------------------


def test_requirements_of_all_kinds_together() -> None:
    X, y = two_moons(120)
    groups = np.where(X[:, 1] > 0, "a", "b")
    rules: list[Requirement] = [
        Probability(X[:5], 1 - y[:5], at_least=0.6),
        Margin(Pool(X[20:40]), y[20:40], 0.05, form="pairwise"),
        Rate(X, groups, tolerance=0.05),
        Linear(X[50:55], [0.0, 1.0], 0.9, "<="),
        Concave(X[60:62], lambda outputs: -outputs.square().sum(-1), -0.9),
    ]
    model = ConstrainedClassifier(**{**QUICK, "iteration_limit": 15}).fit(X, y, rules)
    assert model.result_.feasible, str(model.result_)
    scores = model.predict_proba(X)
    assert (scores[np.arange(5), 1 - y[:5]] >= 0.6 - 1e-6).all()
    assert abs(scores[groups == "a", 1].mean() - scores[groups == "b", 1].mean()) <= 0.05 + 1e-6
    assert (scores[50:55, 1] <= 0.9 + 1e-6).all()


def test_a_rule_over_a_box() -> None:
    X, y = line()
    box = Box([0.5, -1.0], [1.0, 1.0])
    model = ConstrainedRegressor(**{**QUICK, "iteration_limit": 10})
    model.fit(X, y, [Linear(box, [1.0], 1.0, "<=")])
    assert model.audit_[0].strength == "shielded"
    assert model.audit_[0].holds
    inside = np.random.default_rng(5).uniform(box.lower, box.upper, size=(1000, 2))
    assert model.predict(inside).max() <= 1.0 + 1e-4


def test_audit_of_a_rule_that_was_not_trained_for() -> None:
    X, y = two_moons()
    model = ConstrainedClassifier(**QUICK).fit(X, y)
    wrong = Probability(X, 1 - y, at_least=0.5)
    found = model.audit(wrong)
    assert not found.holds
    missed = model.predict_proba(X)[np.arange(len(X)), 1 - y] < 0.5 - 1e-6
    assert found.rows - found.satisfied == missed.sum()


# ---- labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        np.array([0, 1]),
        np.array([1, 2]),
        np.array([3, 7]),
        np.array([2.0, 5.0]),
        np.array([False, True]),
    ],
    ids=str,
)
def test_whole_number_labels_mean_themselves_in_requirements(names: Any) -> None:
    X, y = two_moons()
    labels = names[y]
    wrong = names[1 - y]
    rule = Probability(X[:6], wrong[:6], at_least=0.6)
    model = ConstrainedClassifier(**QUICK).fit(X, labels, [rule])
    assert model.audit_[0].holds
    np.testing.assert_array_equal(model.classes_, names)
    assert set(model.predict(X)) <= set(names.tolist())
    np.testing.assert_array_equal(model.predict(X[:6]), wrong[:6])
    assert model.audit(rule).holds
    np.testing.assert_array_equal(
        ConstrainedClassifier.requirement_labels(wrong[:6], labels), wrong[:6].astype(int)
    )


@pytest.mark.parametrize("names", [np.array(["no", "yes"]), np.array([-1, 1])], ids=str)
def test_other_labels_go_by_position(names: Any) -> None:
    X, y = two_moons()
    labels = names[y]
    numbers = ConstrainedClassifier.requirement_labels(names[1 - y][:6], labels)
    np.testing.assert_array_equal(numbers, 1 - y[:6])
    model = ConstrainedClassifier(**QUICK).fit(X, labels, [Margin(X[:6], numbers, 0.1)])
    np.testing.assert_array_equal(model.predict(X[:6]), names[1 - y][:6])


def test_labels_that_y_does_not_have_are_refused() -> None:
    X, y = two_moons()
    with raises(InvalidInput, "unknown-name"):
        ConstrainedClassifier(**QUICK).fit(X, y + 2, [Probability(X[:2], [2, 1])])
    with raises(InvalidInput, "unknown-name", "maybe"):
        ConstrainedClassifier.requirement_labels(["yes", "maybe"], np.array(["no", "yes"])[y])
    with raises(InvalidInput, "range"):
        ConstrainedClassifier(**QUICK).fit(
            X, np.array(["no", "yes"])[y], [Probability(X[:2], [0, 2])]
        )


def test_the_order_of_outputs_is_that_of_classes() -> None:
    X, y = two_moons()
    labels = np.array([9, 4])[y]  # class 9 is output 1
    low = Rate.budget(X, mean_at_most=0.3, output=1)
    model = ConstrainedClassifier(**QUICK).fit(X, labels, [low])
    assert model.predict_proba(X)[:, 1].mean() <= 0.3 + 1e-6
    assert (model.predict(X) == 4).mean() > 0.5


def test_one_class() -> None:
    X, _ = two_moons(30)
    with pytest.warns(FitWarning, match="single class, 'only'"):
        model = ConstrainedClassifier(**QUICK).fit(X, np.full(30, "only"))
    assert (model.predict(X) == "only").all()
    np.testing.assert_array_equal(model.predict_proba(X), np.ones((30, 1)))


# ---- errors before any training ----------------------------------------------------------------


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr("cg4ai.estimators.fitting.solve", refuse)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"objective": "mixtur"}, InvalidInput, "did you mean 'mixture'"),
        ({"objective": "epigraph"}, InvalidInput, "objective must be mixture or average"),
        ({"scores": "logits"}, InvalidInput, "did you mean 'logit'"),
        ({"loss": "sqared"}, InvalidInput, "did you mean 'squared'"),
        ({"settings": {"epsilonn": 1}}, InvalidSettings, "did you mean 'epsilon'"),
        ({"settings": {"time_limit_s": 3}}, InvalidSettings, "by the parameter time_limit_s"),
        ({"settings": {"seed": 3}}, InvalidSettings, "by the parameter random_state"),
        ({"iteration_limit": 0}, InvalidSettings, "iteration_limit"),
        ({"settings": {"final_weights": "unifrom"}}, InvalidSettings, "did you mean 'uniform'"),
        ({"device": "tpu"}, InvalidSettings, "device"),
        ({"steps": 0}, InvalidInput, "steps must be a whole number of at least 1"),
        ({"restarts": 2.5}, InvalidInput, "restarts must be a whole number"),
        ({"batch_size": 0}, InvalidInput, "batch_size"),
        ({"learning_rate": -1.0}, InvalidInput, "learning_rate"),
        ({"learning_rate": "fast"}, InvalidInput, "learning_rate"),
        ({"weight_decay": -1}, InvalidInput, "weight_decay"),
        ({"weight_decay": ()}, InvalidInput, "weight_decay"),
        ({"weight_decay": "much"}, InvalidInput, "weight_decay"),
        ({"validation_fraction": 1.0}, InvalidInput, "validation_fraction"),
        ({"validation_fraction": "yes"}, InvalidInput, "validation_fraction"),
        ({"validation_fraction": 0.001}, InvalidInput, "leaves none to weigh"),
        ({"hidden": (0,)}, InvalidInput, "hidden"),
        ({"hidden": "16"}, InvalidInput, "hidden"),
        ({"activation": "swish"}, InvalidInput, "activation"),
        ({"random_state": "lucky"}, InvalidInput, "random_state"),
    ],
)
@pytest.mark.usefixtures("no_training")
def test_bad_parameters(parameters: dict[str, Any], error: type, text: str) -> None:
    X, y = two_moons()
    with pytest.raises(error, match=text):
        ConstrainedClassifier(**{**QUICK, **parameters}).fit(X, y)


@pytest.mark.usefixtures("no_training")
def test_bad_requirements() -> None:
    X, y = two_moons()
    model = ConstrainedClassifier(**QUICK)
    fits = Probability(X[:3], y[:3], at_least=0.9)
    wrong: tuple[tuple[Any, str], ...] = (
        ([Probability(X[:3, :2], y[:3])], "shape"),
        ([Linear(X[:3], [1.0, 0.0, 0.0], 0.0)], "shape"),
        (fits, "type"),
        (np.ones(len(X)), "type"),
        ([fits, "always right"], "type"),
        ([fits, Linear(X[:1], np.eye(2)[y[0]], 0.5, "<=")], "infeasible"),
    )
    for given, code in wrong:
        with raises(InvalidInput, code):
            model.fit(X, y, given)


@pytest.mark.usefixtures("no_training")
def test_bad_data() -> None:
    X, y = two_moons()
    holed = X.copy()
    holed[3, 1] = np.nan
    for inputs, labels, weights, text in (
        (holed, y, None, "NaN"),
        (X, y[:-1], None, "inconsistent numbers of samples"),
        (X, y, np.ones(3), "sample_weight"),
        (X, y, -np.ones(len(X)), "sample_weight must be numbers >= 0"),
        (X, y, np.zeros(len(X)), "at least one non-zero"),
        (X, np.linspace(0, 1, len(X)), None, "Unknown label type"),
        (X[:0], y[:0], None, "minimum of 1 is required"),
    ):
        with pytest.raises(ValueError, match=text):
            ConstrainedClassifier(**QUICK).fit(inputs, labels, sample_weight=weights)


def test_predicting_before_fitting() -> None:
    with pytest.raises(NotFittedError):
        ConstrainedClassifier().predict(np.zeros((2, 3)))
    with pytest.raises(NotFittedError):
        ConstrainedRegressor().audit(Linear([[0.0]], [1.0], 0.0))


# ---- shapes, weights, units --------------------------------------------------------------------


def test_shapes_of_y_and_predictions() -> None:
    X, y = line(60)
    flat = ConstrainedRegressor(**QUICK).fit(X, y).predict(X)
    column = ConstrainedRegressor(**QUICK).fit(X, y[:, None]).predict(X)
    assert flat.shape == (60,)
    assert column.shape == (60, 1)
    np.testing.assert_array_equal(flat, column[:, 0])
    both = ConstrainedRegressor(**QUICK).fit(X, np.stack([y, -y], axis=1))
    assert both.predict(X).shape == (60, 2)


def test_weights_count_as_copies() -> None:
    X, y = two_moons(40)
    weights = np.random.default_rng(0).integers(0, 3, size=40)
    copies = np.random.default_rng(1).permutation(np.repeat(np.arange(40), weights))
    one = ConstrainedClassifier(**QUICK).fit(X, y, sample_weight=weights)
    other = ConstrainedClassifier(**QUICK).fit(X[copies], y[copies])
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e5])
def test_the_units_of_y_do_not_matter(unit: float) -> None:
    X, y = line(100, unit)
    top = np.argsort(-y)[:5]
    model = ConstrainedRegressor(**{**QUICK, "iteration_limit": 10})
    model.fit(X, y, [Linear(X[top], [1.0], unit, "<=")])
    assert model.audit_[0].holds
    assert (model.predict(X[top]) <= unit * (1 + 1e-5)).all()
    assert model.score(X, y) > 0.7
    assert model.target_scale_ == pytest.approx(y.std())


def test_settings_given_win_over_defaults_in_units_of_y() -> None:
    X, y = line(60, 1e3)
    model = ConstrainedRegressor(**QUICK, settings={"epsilon": 0.25, "patience": 3})
    model.problem(X, y)
    made = model.run_settings()
    assert (made.epsilon, made.patience, made.iteration_limit) == (0.25, 3, 6)
    assert made.penalty == pytest.approx(10 * y.std())
    assert made.improvement_tolerance > 0
    exact = ConstrainedRegressor(members="affine")
    exact.problem(X, y)
    assert exact.run_settings().improvement_tolerance == 0, "proofs need the last improvements"
    assert made.seed == 0


def test_a_constant_target_and_a_constant_feature() -> None:
    X, _ = line(60)
    X[:, 1] = 4.0
    model = ConstrainedRegressor(**QUICK).fit(X, np.full(60, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0, atol=0.2)


@pytest.mark.slow
@pytest.mark.guard
def test_a_loss_of_ones_own() -> None:
    X, y = line(80)
    y[:10] += 50.0  # outliers that a robust loss shrugs off
    loss = ConstrainedRegressor(**QUICK, loss="absolute", validation_fraction=0).fit(X, y)
    assert np.median(np.abs(loss.predict(X[10:]) - y[10:])) < 0.5

    def own(outputs: Any, targets: Any) -> Any:
        return (outputs - targets).abs().sum(-1)

    same = ConstrainedRegressor(**QUICK, loss=own, validation_fraction=0).fit(X, y)
    assert np.median(np.abs(same.predict(X[10:]) - y[10:])) < 0.5


def test_rows_are_held_out_where_there_are_enough() -> None:
    def held_out(count: int, **parameters: Any) -> int:
        X, y = two_moons(count)
        problem = ConstrainedClassifier(**QUICK, **parameters).problem(X, y)
        first = problem.pricers[0]
        if not isinstance(first, HeldOutPricer):
            return 0
        assert isinstance(problem.objective, Supervised)
        weighed = problem.objective.measured[0]
        assert len(first.training.inputs) + len(weighed) == count
        return len(weighed)

    assert abs(held_out(200) - 40) <= 1
    assert abs(held_out(80) - 20) <= 1
    assert abs(held_out(30) - 10) <= 1
    assert held_out(14) == 0
    assert held_out(100, validation_fraction=0) == 0
    assert abs(held_out(40, validation_fraction=0.5) - 20) <= 1
    assert held_out(100, members="stump") == 0
    assert abs(held_out(100, members=["stump", "tree"]) - 20) <= 1


@pytest.mark.filterwarnings("ignore:this model predicts no better:cg4ai.FitWarning")
def test_simple_members_keep_networks_from_running_wild() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 15))
    y = X[:, 0] + 3.0 * rng.normal(size=200)  # a line in noise
    tempered = ConstrainedRegressor(random_state=0, steps=100).fit(X[:100], y[:100])
    wild = ConstrainedRegressor(random_state=0, steps=100, settings={"column_limit": 10})
    wild.fit(X[:100], y[:100])
    truth = X[100:, 0]

    def error(model: Any) -> float:
        return float(np.mean((model.predict(X[100:]) - truth) ** 2))

    assert error(tempered) < 0.6 * error(wild)


def test_simple_members_leave_room_and_can_be_left_out() -> None:
    X, y = two_moons()
    assert len(ConstrainedClassifier(**QUICK).problem(X, y).start[0][0]) == 5
    for parameters in (
        {"settings": {"column_limit": 10}},
        {"members": "tree"},
        {"scores": "logit"},
    ):
        assert not ConstrainedClassifier(**QUICK, **parameters).problem(X, y).start


# ---- repeatability, copies, scikit-learn's tools -----------------------------------------------


def test_an_int_makes_fit_repeatable() -> None:
    X, y = two_moons()
    rule = [Probability(X[:5], y[:5], at_least=0.8)]
    one = ConstrainedClassifier(**QUICK).fit(X, y, rule)
    two = ConstrainedClassifier(**QUICK).fit(X, y, rule)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    other = ConstrainedClassifier(**{**QUICK, "random_state": 1}).fit(X, y, rule)
    assert np.abs(one.predict_proba(X) - other.predict_proba(X)).max() > 0


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0), None])
def test_other_random_states(state: Any) -> None:
    X, y = two_moons(40)
    model = ConstrainedClassifier(**{**QUICK, "random_state": state, "iteration_limit": 1})
    assert model.fit(X, y).predict(X).shape == (40,)


@pytest.mark.parametrize("members", ["network", "tree", "affine"])
def test_pickling_keeps_predictions(members: str) -> None:
    X, y = line(60)
    model = ConstrainedRegressor(**QUICK, members=members).fit(X, y, [Linear(X[:3], [1.0], -5.0)])
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.audit_[0].holds


def test_clones_have_parameters_and_nothing_fitted() -> None:
    X, y = two_moons(40)
    model = ConstrainedClassifier(**QUICK, settings={"patience": 2}).fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "ensemble_")
    assert repr(copy).startswith("ConstrainedClassifier(")
    assert ConstrainedClassifier().set_params(hidden=(4,)).hidden == (4,)


def test_progress_sees_each_iteration() -> None:
    X, y = two_moons(60)
    seen: list[Any] = []
    model = ConstrainedClassifier(**QUICK).fit(X, y, progress=seen.append)
    assert tuple(seen) == model.history_


def test_inside_pipelines_and_cross_validation() -> None:
    X, y = two_moons(60)
    quick = ConstrainedClassifier(**(QUICK | {"iteration_limit": 3, "steps": 30}))
    pipeline = make_pipeline(StandardScaler(), quick)
    space = StandardScaler().fit(X).transform(X[:4])
    rules = [Probability(space, y[:4], at_least=0.7)]
    pipeline.fit(X, y, constrainedclassifier__requirements=rules)
    assert pipeline[-1].audit_[0].holds
    own = [Probability(X[:4], y[:4], at_least=0.7)]
    scores = cross_val_score(quick, X, y, cv=2, params={"requirements": own})
    assert scores.shape == (2,)
    assert scores.min() > 0.6


def test_data_frames_with_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = two_moons(60)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    rule = Probability(frame.iloc[:4], y[:4], at_least=0.7)
    model = ConstrainedClassifier(**QUICK).fit(frame, pandas.Series(y), [rule])
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(frame[:4]), y[:4])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


def test_a_small_fit_uses_one_thread_and_gives_the_others_back() -> None:
    X, y = two_moons(60)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    seen: list[int] = []
    try:
        model = ConstrainedClassifier(**QUICK)
        model.fit(X, y, progress=lambda _: seen.append(torch.get_num_threads()))
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_solving_the_problem_oneself() -> None:
    X, y = two_moons(60)
    model = ConstrainedClassifier(**QUICK)
    problem = model.problem(X, y, [Probability(X[:4], y[:4], at_least=0.7)])
    result = solve(problem, Settings(iteration_limit=4, seed=3))
    assert model.adopt(result) is model
    assert model.audit_[0].holds
    assert model.predict(X).shape == (60,)
    assert model.stop_reason_ in set(StopReason)


def test_probability_rules_need_probabilities() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4))
    y = (x[:, 0] > 0).astype(int)
    rule = Probability(x[:3], y[:3], at_least=0.9)
    with raises(InvalidInput, "unsupported"):
        ConstrainedClassifier(scores="logit").fit(x, y, requirements=[rule])
    with raises(InvalidInput, "unsupported"):
        ConstrainedRegressor().fit(x, x[:, 0], requirements=[rule])

    def logits() -> nn.Module:
        return nn.Linear(4, 2)

    with raises(InvalidInput, "unsupported"):
        ConstrainedClassifier(members=logits).fit(x, y, requirements=[rule])
    other = Probability(x[:3], 1 - y[:3], at_least=0.9)
    with raises(InvalidInput, "infeasible"):
        ConstrainedClassifier().fit(x, y, requirements=[rule, other])


def test_a_requirement_with_other_columns_than_the_data_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    y = (x["a"] > 0).astype(int)
    rule = Probability(x[["b", "a"]][:3], y[:3], at_least=0.9)
    with raises(InvalidInput, "conflict"):
        ConstrainedClassifier(**QUICK).fit(x, y, requirements=[rule])
    margin = Margin(x[:3], y[:3], at_least=0.1, form="member")
    with pytest.raises(InvalidInput):
        ConstrainedClassifier(members=["network", "affine"], scores="logit").fit(x, y, [margin])


def test_logits_need_no_limit() -> None:
    """Labels were standardised like values of a regression: a TypeError of NumPy."""
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    y = (X.sum(1) > 0).astype(int)
    model = ConstrainedClassifier(
        scores="logit", output_limit=None, steps=20, iteration_limit=2, random_state=0
    )
    assert model.fit(X, y).score_.model > 0.9
