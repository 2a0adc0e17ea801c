"""Requirements for an estimator that stands at the end of a scikit-learn pipeline.

Requirement inputs are in the estimator's own input space. In a pipeline that space is what the
earlier steps produce, so inputs stated in raw features must pass through them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from cg4ai.data.batches import as_batches
from cg4ai.errors import InvalidInput
from cg4ai.estimators.estimators import ConstrainedClassifier, ConstrainedRegressor
from cg4ai.estimators.raw_columns import RawColumns
from cg4ai.records import Array
from cg4ai.rules import Equality, Linear, OutputRule, Requirement, Shape
from cg4ai.rules.regions import Ball, Box, Polytope, Pool
from cg4ai.rules.requirement import InputRule

PROBES = 256  # random inputs by which steps are tried before a box is passed through them


def transform_requirement(
    requirement: Requirement, pipeline: Pipeline, X: Any = None
) -> Requirement:
    """The requirement with its inputs passed through the fitted pipeline's earlier steps.

    Lists and pools always can be, DataFrames with text and missing values too. A box (or a ball in
    the maximum norm, which is one) can if each step moves each feature by itself and in one
    direction, as scalers do; that is tried at random inputs, and any other step is refused. A
    polytope needs steps that scale and shift. Regions of other shapes are refused, as are
    coefficients and bounds that are functions of the input. A `Monotone` or `Curvature`, and a box
    by names, go over to the columns that move with their features, at values that are not missing;
    how these move is tried at rows of `X`, needed where raw columns hold text.
    """
    _check_pipeline(pipeline)
    if isinstance(requirement, Linear | Equality) and requirement.depends_on_inputs:
        raise InvalidInput(
            f"{requirement.name} has coefficients or a bound that depend on the input, which is "
            "another one after the earlier steps; state the requirement in the space after them",
            code="unsupported",
        )
    if isinstance(requirement, OutputRule):  # it names no inputs
        return requirement
    if isinstance(requirement, Shape):
        if len(pipeline.steps) == 1:
            return requirement
        return RawColumns(_fitted_steps(pipeline), X).transform_shape(requirement)
    if not isinstance(requirement, InputRule):
        raise InvalidInput(
            f"{requirement.name} is not one of cg4ai's own requirements; state it in the space "
            "after the earlier steps and give it to the last step's fit",
            code="unsupported",
        )
    if len(pipeline.steps) == 1 or requirement.inputs is None:
        return requirement
    raw = RawColumns(_fitted_steps(pipeline), X)
    region, rule = requirement.region, requirement.name
    if region is None or isinstance(region, Pool):
        images = raw.transform_rows(
            requirement.points, requirement.feature_names, rule, missing=True
        )
        return replace(requirement, inputs=images if region is None else Pool(images))
    if isinstance(region, Box) and region.by_name:
        return replace(requirement, inputs=raw.transform_box(region, rule))
    if isinstance(region, Ball) and region.norm != 2:
        region = Box(*region.bounds())
    through = partial(raw.transform_rows, own=None, rule=rule)
    if isinstance(region, Box):
        return replace(requirement, inputs=_box(region, through))
    if isinstance(region, Polytope):
        return replace(requirement, inputs=_polytope(region, through))
    raise InvalidInput(
        f"{region} keeps no simple shape through a pipeline; use a Box or Polytope, or state the "
        "requirement in the space after the earlier steps",
        code="unsupported",
    )


def fit_with_requirements(
    pipeline: Pipeline,
    X: Any,
    y: Any,
    requirements: Sequence[Requirement],
    *,
    sample_weight: Any = None,
) -> Pipeline:
    """A fitted copy of the pipeline, under requirements stated in raw features.

    Fits the earlier steps, passes the requirements through them, then fits the last step, which
    must be a `ConstrainedClassifier` or `ConstrainedRegressor`, under them. `sample_weight` is for
    the last step alone.
    """
    _check_pipeline(pipeline)
    if as_batches(X) is not None:
        raise InvalidInput(
            "the earlier steps of a pipeline take all rows at once, which Batches are not; "
            "transform them where they are read, and fit the last step to them",
            code="unsupported",
        )
    if not isinstance(pipeline.steps[-1][1], ConstrainedClassifier | ConstrainedRegressor):
        raise InvalidInput(
            "the last step of the pipeline must be a ConstrainedClassifier or a "
            f"ConstrainedRegressor, got {type(pipeline.steps[-1][1]).__name__}",
            code="type",
        )
    fitted = clone(pipeline)
    space = X
    if len(fitted.steps) > 1:
        earlier = fitted[:-1]
        space = earlier.fit_transform(X, y)
        fitted.steps[:-1] = earlier.steps  # with a cache the fitted steps are other objects
    inner = [transform_requirement(requirement, fitted, X) for requirement in requirements]
    fitted.steps[-1][1].fit(space, y, requirements=inner, sample_weight=sample_weight)
    return fitted


def _check_pipeline(pipeline: Any) -> None:
    if not isinstance(pipeline, Pipeline):
        raise InvalidInput(
            f"a scikit-learn Pipeline is needed, got {type(pipeline).__name__}", code="type"
        )


def _fitted_steps(pipeline: Pipeline) -> Pipeline:
    earlier = pipeline[:-1]
    try:
        check_is_fitted(earlier)
    except NotFittedError as error:
        raise InvalidInput(
            "the earlier steps of the pipeline are not fitted; fit them first, or use "
            "fit_with_requirements",
            code="unsupported",
        ) from error
    return earlier


def _box(box: Box, through: Callable[[Array], Array]) -> Box:
    """The box between the images of the ends: it holds every image if features move alone."""
    low, high = box.bounds()
    generator = np.random.default_rng(0)
    one, other = (generator.uniform(low, high, size=(PROBES, len(low))) for _ in range(2))
    pick = generator.integers(2, size=one.shape).astype(bool)
    points = np.concatenate([low[None], high[None], one, other, np.where(pick, one, other)])
    images = through(points)
    if images.shape == points.shape:
        ends, own, others, mixed = np.split(images, [2, 2 + PROBES, 2 + 2 * PROBES])
        alone = np.allclose(mixed, np.where(pick, own, others), rtol=1e-9, atol=1e-12)
        if alone and _one_direction(points, images):
            return Box(ends.min(axis=0), ends.max(axis=0))
    raise InvalidInput(
        "the pipeline's earlier steps do not map this box to a box: some step mixes features or "
        "turns back within the box; state the requirement in the space after them",
        code="unsupported",
    )


def _polytope(region: Polytope, through: Callable[[Array], Array]) -> Polytope:
    """The image under steps that scale and shift each feature: a . x = sum_i (a_i / scale_i) x'_i
    minus a . shift / scale. A feature without width is a constant in the limits."""
    image = _box(region.box, through)
    low, high = region.box.bounds()
    middle = through(np.stack([low, (low + high) / 2, high]))
    if not np.allclose(middle[1], (middle[0] + middle[2]) / 2, rtol=1e-9, atol=1e-12):
        raise InvalidInput(
            "the pipeline's earlier steps bend a feature, so that the limits of this polytope are "
            "no longer linear; state the requirement in the space after them",
            code="unsupported",
        )
    wide = high > low
    scale = np.where(wide, (middle[2] - middle[0]) / np.where(wide, high - low, 1.0), 1.0)
    matrix = np.where(wide, region.matrix / scale, 0.0)
    return Polytope(image, matrix, region.limit - region.matrix @ low + matrix @ middle[0])


def _one_direction(points: Array, images: Array) -> bool:
    """Whether each image feature only rises, or only falls, with its own feature."""
    order = np.argsort(points, axis=0, kind="stable")
    steps = np.diff(np.take_along_axis(images, order, axis=0), axis=0)
    slack = 1e-12 * (1.0 + np.abs(images).max(axis=0))
    return bool(np.all((steps >= -slack).all(axis=0) | (steps <= slack).all(axis=0)))
