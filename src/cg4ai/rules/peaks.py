"""The least value in a region of the largest of several affine functions."""

from __future__ import annotations

import numpy as np
import torch

from cg4ai.records import Array
from cg4ai.rules.regions import Ball, Polytope, Region


def least_of_largest(offsets: Array, slopes: Array, region: Region) -> tuple[float, Array]:
    """(K,), (K, d): the least value of `max_k (offsets[k] + slopes[k] . x)`, and where.

    Over a Box or Polytope an LP finds shares of the pieces whose sum, one affine function, is never
    less than that value; what is returned is the least of this sum, which holds whatever the LP's
    accuracy.
    Over a Euclidean Ball the best single piece takes its place: sound, but it may be too low.
    """
    if isinstance(region, Ball) and region.norm == 2:
        lowest = region.peaks(-slopes)
        least = offsets - lowest.values
        best = int(least.argmax())
        return float(least[best]), lowest.inputs[best]
    from scipy.optimize import linprog  # slow to import, seldom needed

    box = region.box if isinstance(region, Polytope) else region
    lower, upper = box.bounds()
    rows, ends = np.column_stack([slopes, -np.ones(len(slopes))]), -offsets
    if isinstance(region, Polytope):
        limits = np.column_stack([region.matrix, np.zeros(len(region.limit))])
        rows, ends = np.concatenate([rows, limits]), np.concatenate([ends, region.limit])
    answer = linprog(
        np.append(np.zeros(region.size), 1.0),
        A_ub=rows,
        b_ub=ends,
        bounds=[*zip(lower, upper, strict=True), (None, None)],
        method="highs",
    )
    if answer.status != 0:
        raise RuntimeError(f"the LP of a piecewise bound ended with {answer.message!r}")
    shares = np.maximum(-answer.ineqlin.marginals[: len(slopes)], 0.0)
    shares = shares / shares.sum()
    slope = shares @ slopes
    least = shares @ offsets - region.peaks(-slope[None]).values[0]
    return float(least), region.pull(torch.as_tensor(answer.x[None, :-1])).numpy()[0]
