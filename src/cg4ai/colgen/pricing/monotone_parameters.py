"""Monotone shapes as the constraint parameters that libraries of trees have for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone

from cg4ai.errors import InvalidInput
from cg4ai.records import IntArray
from cg4ai.rules.shapes import Monotone, Shape


def check_shapes(estimator: Any, shapes: Sequence[Shape]) -> tuple[Monotone, ...]:
    """The shapes, if trees grown by this estimator can keep them; else what to do instead."""
    kind = type(estimator).__name__
    set_monotone_constraints(
        clone(estimator), np.zeros(1, np.int64)
    )  # refuses what has no such parameter
    for shape in shapes:
        if not isinstance(shape, Monotone):
            raise InvalidInput(
                f"{shape.name} cannot be built into trees, which are steps: use networks",
                code="unsupported",
            )
        if shape.logits:
            raise InvalidInput(
                f"{shape.name} is about logits, which {kind} does not give: use networks, or "
                "scores='probability'",
                code="unsupported",
            )
    return tuple(shape for shape in shapes if isinstance(shape, Monotone))


def find_signs(
    shapes: Sequence[Monotone], input_size: int, output_size: int, classification: bool
) -> IntArray | None:
    """(outputs, inputs): which way each column of the trees' values must move; None if any may.

    Of two classes it is the second that trees are told of: it rises where the first falls. Of more
    the columns are those of the parts that they are nested in.
    """
    if not shapes:
        return None
    signs = np.zeros((output_size, input_size), np.int64)
    for shape in shapes:
        directions = shape.directions(input_size)
        if classification and output_size == 2:
            asked = np.zeros_like(signs)
            asked[1] = -directions if shape.output == 0 else directions
        else:
            rows = shape.functionals(output_size)
            asked = np.where((rows != 0).any(axis=0)[:, None], directions, 0)
        if (signs * asked < 0).any():
            raise InvalidInput(
                f"{shape.name} asks for the opposite of another rule: the outputs would have to "
                "stay constant; leave one out",
                code="infeasible",
            )
        signs = np.where(asked != 0, asked, signs)
    return signs


def set_monotone_constraints(model: Any, directions: IntArray) -> Any:
    """The model with its own monotone constraints set to `directions` (d,)."""
    known, library = model.get_params(), type(model).__module__.partition(".")[0]
    name = "monotonic_cst" if "monotonic_cst" in known else "monotone_constraints"
    if name not in known and library != "lightgbm":
        raise InvalidInput(
            f"{type(model).__name__} has no monotone constraints: use DecisionTree, RandomForest, "
            "ExtraTrees or HistGradientBoosting models, LightGBM or XGBoost",
            code="unsupported",
        )
    if known.get(name) is not None:
        raise InvalidInput(
            f"{type(model).__name__} has its own {name}={known[name]!r:.80}: state it as Monotone "
            "in the requirements, and leave it out here",
            code="conflict",
        )
    signs = directions.tolist()
    return model.set_params(**{name: str(tuple(signs)) if library == "xgboost" else signs})
