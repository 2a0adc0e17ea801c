"""Requirements stated in raw features hold for raw inputs, whatever the earlier steps do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    PolynomialFeatures,
    PowerTransformer,
    StandardScaler,
)
from torch import Tensor

from cg4ai import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.data import fit_with_requirements, transform_requirement
from cg4ai.errors import InvalidInput
from cg4ai.rules import (
    AffineBound,
    Ball,
    Box,
    Concave,
    Equality,
    Linear,
    Margin,
    Polytope,
    Pool,
    Probability,
    Rate,
)
from raising import raises

QUICK: dict[str, Any] = {
    "hidden": (6,),
    "steps": 60,
    "restarts": 2,
    "iteration_limit": 6,
    "random_state": 0,
}


def data(count: int = 60, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal([5.0, -2.0, 100.0], [1.0, 0.1, 30.0], size=(count, 3))
    return X, (X[:, 0] + X[:, 2] / 30 > 8.3).astype(int)


def scaled(*steps: Any) -> Pipeline:
    X, y = data()
    return make_pipeline(*(steps or (StandardScaler(),)), GaussianNB()).fit(X, y)


def test_listed_inputs_pass_through_the_steps() -> None:
    X, y = data()
    pipeline = scaled(StandardScaler(), PCA(2))
    expected = pipeline[:-1].transform(X[:5])
    for requirement in (
        Probability(X[:5], y[:5], at_least=0.8, name="five"),
        Margin(X[:5], y[:5], 0.1),
        Linear(X[:5], [1.0, 0.0], 0.3),
        Rate(X[:5], [0, 1, 0, 1, 1], tolerance=0.1),
        Concave(X[:5], lambda outputs: outputs[..., 0], 0.1),
    ):
        inner: Any = transform_requirement(requirement, pipeline)
        np.testing.assert_allclose(inner.inputs, expected)
        assert type(inner) is type(requirement)
        assert inner.name == requirement.name
    pool: Any = transform_requirement(Probability(Pool(X[:5]), y[:5]), pipeline)
    np.testing.assert_allclose(pool.inputs.inputs, expected)
    assert isinstance(pool.region, Pool)


def test_the_requirement_itself_stays_as_it_was() -> None:
    X, y = data()
    requirement = Probability(X[:5], y[:5], at_least=0.8)
    transform_requirement(requirement, scaled())
    np.testing.assert_array_equal(requirement.inputs, X[:5])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), power=st.booleans())
def test_images_of_a_box_lie_in_the_image_box(seed: int, power: bool) -> None:
    rng = np.random.default_rng(seed)
    first = PowerTransformer() if power else MinMaxScaler(feature_range=(-3, 7))
    pipeline = scaled(first, StandardScaler())
    lower = np.array([4.0, -2.1, 60.0]) + 0.01 * rng.normal(size=3)
    upper = lower + rng.uniform(0, [2.0, 0.2, 50.0])
    inner: Any = transform_requirement(Linear(Box(lower, upper), [0.0, 1.0], 0.2), pipeline)
    inside = rng.uniform(lower, upper, size=(200, 3))
    images = pipeline[:-1].transform(inside)
    assert (images >= inner.inputs.lower - 1e-12).all()
    assert (images <= inner.inputs.upper + 1e-12).all()
    ends = pipeline[:-1].transform(np.stack([lower, upper]))
    np.testing.assert_allclose(np.stack([inner.inputs.lower, inner.inputs.upper]), ends)


def test_a_falling_step_swaps_the_ends() -> None:
    X, y = data()
    negative = FunctionTransformer(lambda x: -x)
    pipeline = make_pipeline(negative, GaussianNB()).fit(X, y)
    inner: Any = transform_requirement(Probability(Box([1, 2, 3], [2, 2, 5]), 1), pipeline)
    np.testing.assert_array_equal(inner.inputs.lower, [-2, -2, -5])
    np.testing.assert_array_equal(inner.inputs.upper, [-1, -2, -3])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_polytope_passes_through_steps_that_scale_and_shift(sign: float) -> None:
    pipeline = scaled(FunctionTransformer(lambda x: sign * x), StandardScaler())
    region = Polytope(
        Box([4.0, -2.1, 60.0], [6.0, -2.1, 110.0]),
        [[10.0, 1.0, 1.0], [-1.0, 3.0, 0.1]],
        [130.0, 0.5],
    )
    inner: Any = transform_requirement(Linear(region, [0.0, 1.0], 0.2), pipeline)
    raw = region.box.sample(500, torch.Generator().manual_seed(0)).numpy()
    inside = region.contains(raw)
    assert 0.1 < inside.mean() < 0.9
    assert np.array_equal(inner.inputs.contains(pipeline[:-1].transform(raw)), inside)
    with raises(InvalidInput, "unsupported"):
        transform_requirement(Linear(region, [0.0, 1.0], 0.2), scaled(FunctionTransformer(np.exp2)))


def test_equalities_in_pipelines() -> None:
    pipeline = scaled()
    constant = Equality(None, [1.0, 1.0], 1.0)
    assert transform_requirement(constant, pipeline) is constant
    with raises(InvalidInput, "unsupported"):
        transform_requirement(
            Equality(None, [1.0, 1.0], AffineBound(0.0, [1.0, 0.0, 0.0])), pipeline
        )


def test_a_ball_in_the_maximum_norm_is_a_box() -> None:
    pipeline = scaled()
    inner: Any = transform_requirement(
        Probability(Ball([5.0, -2.0, 100.0], 1.0, np.inf), 1), pipeline
    )
    ends = pipeline[0].transform([[4.0, -3.0, 99.0], [6.0, -1.0, 101.0]])
    np.testing.assert_allclose([inner.inputs.lower, inner.inputs.upper], ends)


@pytest.mark.parametrize(
    "step",
    [
        PCA(3),
        PCA(2),
        PolynomialFeatures(),
        FunctionTransformer(lambda x: (x - [5.0, -2.0, 100.0]) ** 2),  # turns back
        FunctionTransformer(lambda x: x[:, ::-1]),
        FunctionTransformer(lambda x: x + 1e-3 * x[:, :1] * x[:, 1:2]),
    ],
)
def test_boxes_through_steps_that_mix_or_turn_back_are_refused(step: Any) -> None:
    rule = Probability(Box([4.0, -2.2, 60.0], [6.0, -1.8, 140.0]), 1)
    with raises(InvalidInput, "unsupported"):
        transform_requirement(rule, scaled(step))


class FirstOutput:
    """A functional: the first of two outputs."""

    count = 1

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return outputs[..., :1]

    def coefficients(self, inputs: Any, which: Any) -> Any:
        return np.tile([1.0, 0.0], (len(which), 1))


def test_what_cannot_pass_is_refused_with_the_way_out() -> None:
    X, y = data()
    with raises(InvalidInput, "unsupported", "Box"):
        transform_requirement(Probability(Ball([5.0, -2.0, 100.0], 1.0), 1), scaled())
    functional = Linear(X[:3], FirstOutput(), 0.2)
    with raises(InvalidInput, "unsupported"):
        transform_requirement(functional, scaled())
    with raises(InvalidInput, "type", "StandardScaler"):
        transform_requirement(Probability(X[:3], y[:3]), StandardScaler())
    with raises(InvalidInput, "unsupported"):
        transform_requirement(
            Probability(X[:3], y[:3]), make_pipeline(StandardScaler(), GaussianNB())
        )
    with raises(InvalidInput, "type", "GaussianNB"):
        fit_with_requirements(make_pipeline(StandardScaler(), GaussianNB()), X, y, [])


@pytest.mark.filterwarnings("ignore:this model predicts no better:cg4ai.FitWarning")
def test_fit_with_requirements_holds_in_raw_features() -> None:
    X, y = data(80)
    rule = Probability(X[:10], 1 - y[:10], at_least=0.7)
    given = make_pipeline(StandardScaler(), PCA(2), ConstrainedClassifier(**QUICK))
    model = fit_with_requirements(given, X, y, [rule])
    probability = model.predict_proba(X[:10])
    assert (probability[np.arange(10), 1 - y[:10]] >= 0.7 - 1e-6).all()
    assert model[-1].result_.feasible
    assert not hasattr(given[-1], "ensemble_"), "the pipeline given is left as it was"


def test_fit_with_requirements_over_a_box_and_with_a_cache(tmp_path: Any) -> None:
    X, _ = data(80)
    y = X[:, 0] + X[:, 2] / 50
    box = Box([4.0, -2.2, 60.0], [6.0, -1.8, 140.0])
    given = Pipeline(
        [("scale", MinMaxScaler()), ("model", ConstrainedRegressor(**QUICK))],
        memory=str(tmp_path),
    )
    model = fit_with_requirements(given, X, y, [Linear(box, [1.0], 7.5, "<=")])
    assert model[-1].audit_[0].holds
    inside = np.random.default_rng(1).uniform(box.lower, box.upper, size=(500, 3))
    assert model.predict(inside).max() <= 7.5 + 1e-4


def test_a_pipeline_of_one_step_takes_requirements_as_they_are() -> None:
    X, y = data(40)
    rule = Probability(X[:4], y[:4], at_least=0.6)
    pipeline = make_pipeline(ConstrainedClassifier(**QUICK))
    assert transform_requirement(rule, pipeline) is rule
    assert fit_with_requirements(pipeline, X, y, [rule])[-1].audit_[0].holds


def test_named_columns_reach_the_steps_by_name() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data(60)
    frame = pandas.DataFrame(X, columns=["age", "ratio", "income"])
    steps = ColumnTransformer([("chosen", StandardScaler(), ["income", "age"])])
    pipeline = make_pipeline(steps, ConstrainedClassifier(**QUICK))
    model = fit_with_requirements(
        pipeline, frame, y, [Probability(frame.iloc[:5], y[:5], at_least=0.6)]
    )
    assert model[-1].audit_[0].holds
    assert (model.predict(frame.iloc[:5]) == y[:5]).all()
    with raises(InvalidInput, "shape"):
        transform_requirement(Probability(X[:5, :2], y[:5]), model)


def test_sample_weight_reaches_the_last_step() -> None:
    X, y = data(60)
    weight = np.where(y == 1, 1.0, 0.0)
    pipeline = make_pipeline(StandardScaler(), ConstrainedClassifier(**QUICK))
    model = fit_with_requirements(pipeline, X, y, [], sample_weight=weight)
    assert (model.predict(X) == 1).mean() > 0.95
