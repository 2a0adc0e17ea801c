"""Where functions that are affine in the input are largest in a region, and by how much."""

from __future__ import annotations

import numpy as np

from cg4ai.records import Array
from cg4ai.rules.regions import Ball, Region


def peaks(slopes: Array, region: Region) -> Array:
    """(L, d) -> (L, d): the inputs where `slopes[l] . x` is largest, in closed form.

    At a corner of a Box, along the slope in a Euclidean Ball.
    """
    if isinstance(region, Ball) and region.norm == 2:
        length = np.linalg.norm(slopes, axis=1, keepdims=True)
        return np.asarray(region.centre + region.radius * slopes / np.maximum(length, 1e-300))
    lower, upper = region.bounds()
    return np.where(slopes > 0, upper, lower)


def least_of_largest(offsets: Array, slopes: Array, region: Region) -> tuple[float, Array]:
    """(K,), (K, d): the least value of `max_k (offsets[k] + slopes[k] . x)`, and where.

    Over a Box an LP finds shares of the pieces whose sum, one affine function, is never less than
    that value; what is returned is the least of this sum, which holds whatever the LP's accuracy.
    Over a Euclidean Ball the best single piece takes its place: sound, but it may be too low.
    """
    if isinstance(region, Ball) and region.norm == 2:
        points = peaks(-slopes, region)
        least = offsets + (slopes * points).sum(axis=1)
        best = int(least.argmax())
        return float(least[best]), points[best]
    from scipy.optimize import linprog  # slow to import, seldom needed

    lower, upper = region.bounds()
    answer = linprog(
        np.append(np.zeros(region.size), 1.0),
        A_ub=np.column_stack([slopes, -np.ones(len(slopes))]),
        b_ub=-offsets,
        bounds=[*zip(lower, upper, strict=True), (None, None)],
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"the LP of a piecewise bound ended with {answer.message!r}")
    shares = np.maximum(-answer.ineqlin.marginals, 0.0)
    shares = shares / shares.sum()
    slope = shares @ slopes
    least = shares @ offsets + float(slope @ peaks(-slope[None], region)[0])
    return float(least), np.clip(answer.x[:-1], lower, upper)
