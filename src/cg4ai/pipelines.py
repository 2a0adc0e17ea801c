"""Requirements for an estimator that stands at the end of a scikit-learn pipeline.

Requirement inputs are in the estimator's own input space. In a pipeline that space is what the
earlier steps produce, so inputs stated in raw features must pass through them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from cg4ai.errors import InvalidInput
from cg4ai.regions import Box, Pool
from cg4ai.requirements import Requirement
from cg4ai.requirements.place import Placed


def transformed(requirement: Requirement, pipeline: Pipeline) -> Requirement:
    """The requirement with its inputs passed through the fitted pipeline's earlier steps.

    Listed inputs and pools always can be. A box can only if each step moves each feature by
    itself, increasing (scalers); this is checked at random points, and anything else is refused.
    """
    earlier = pipeline[:-1]
    if not isinstance(requirement, Placed):
        raise InvalidInput(f"{requirement.name} is not one of cg4ai's own requirements")
    if requirement.region is None:
        return replace(requirement, inputs=earlier.transform(requirement.inputs))
    if isinstance(requirement.region, Pool):
        return replace(requirement, inputs=Pool(earlier.transform(requirement.region.inputs)))
    if isinstance(requirement.region, Box):
        return replace(requirement, inputs=_box(requirement.region, earlier))
    raise InvalidInput(
        f"a {type(requirement.region).__name__} keeps no simple shape through a pipeline; state "
        "the requirement in the space after the earlier steps"
    )


def _box(box: Box, earlier: Pipeline) -> Box:
    lower, upper = (np.asarray(earlier.transform(x.reshape(1, -1)))[0] for x in box.bounds())
    generator = np.random.default_rng(0)
    low, high = box.bounds()
    points = low + (high - low) * generator.uniform(size=(64, len(low)))
    images = np.asarray(earlier.transform(points))
    affine = lower + (upper - lower) * np.divide(
        points - low, high - low, out=np.zeros_like(points), where=high > low
    )
    if images.shape != points.shape or not np.allclose(images, affine, atol=1e-9, rtol=1e-9):
        raise InvalidInput(
            "the pipeline's earlier steps do not map this box to a box; state the requirement in "
            "the space after them"
        )
    return Box(np.minimum(lower, upper), np.maximum(lower, upper))


def fit_with_requirements(
    pipeline: Pipeline, X: Any, y: Any, requirements: Sequence[Requirement]
) -> Pipeline:
    """Fit a copy of the pipeline, with requirements stated in raw features.

    Fits the earlier steps, passes the requirements through them, then fits the last step under
    them.
    """
    fitted = clone(pipeline)
    space = X
    for _, step in fitted.steps[:-1]:
        space = step.fit_transform(space, y) if step not in (None, "passthrough") else space
    inner = [transformed(requirement, fitted) for requirement in requirements]
    fitted.steps[-1][1].fit(space, y, requirements=inner)
    return fitted
