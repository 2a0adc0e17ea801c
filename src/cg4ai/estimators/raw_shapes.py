"""Shapes stated in raw features, in the space behind a pipeline's earlier steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.records import Array
from cg4ai.rules.shapes import Monotone, Shape

BASES = 8  # inputs from which each feature is moved
LADDER = np.concatenate([-np.logspace(4, -3, 29), np.logspace(-3, 4, 29)])
CLOSE = 1e-6


def behind(shape: Shape, images: Callable[[Array], Array], input_size: int) -> Shape:
    """The shape for what the earlier steps make of the features, tried at inputs of all sizes.

    A column that rises with a raw feature takes over its sign, one that falls with it the opposite;
    for a curvature columns must be linear in it. Other steps are refused.
    """
    signs: dict[int, int] = {}
    generator = np.random.default_rng(0)
    bases = generator.normal(size=(BASES, input_size)) * np.logspace(-2, 3, BASES)[:, None]
    for feature, sign in shape.features.items():
        steps = np.repeat(bases[:, None], len(LADDER), axis=1)
        steps[..., int(feature)] = LADDER
        made = images(steps.reshape(-1, input_size)).reshape(BASES, len(LADDER), -1)
        for column, towards in _directions(made, shape, feature).items():
            own = sign * towards if isinstance(shape, Monotone) else sign
            if signs.setdefault(column, own) != own:
                raise InvalidInput(
                    f"{shape.name}: the pipeline's earlier steps put features of both signs into "
                    f"column {column}; state it in the space after them"
                )
    return replace(shape, features=signs)


def _directions(made: Array, shape: Shape, feature: int) -> dict[int, int]:
    """The columns that move with the feature, and which way; Curvature wants them linear."""
    rises = np.diff(made, axis=1)
    size = CLOSE * 1e-3 * (1 + np.abs(made).max(axis=(0, 1)))
    upwards, downwards = (rises >= -size).all(axis=(0, 1)), (rises <= size).all(axis=(0, 1))
    moved = (np.abs(rises) > size).any(axis=(0, 1))
    bad = moved & ~(upwards | downwards)
    if not isinstance(shape, Monotone):
        slopes = rises / np.diff(LADDER)[None, :, None]
        bad |= np.ptp(slopes, axis=(0, 1)) > CLOSE * (1 + np.abs(slopes).max(axis=(0, 1)))
    if bad.any() or not moved.any():
        how = "do not move with" if not moved.any() else "turn back or bend with"
        raise InvalidInput(
            f"{shape.name}: columns after the pipeline's earlier steps {how} feature {feature}; "
            "state it in the space after them"
        )
    return {int(k): 1 if upwards[k] else -1 for k in np.flatnonzero(moved)}
