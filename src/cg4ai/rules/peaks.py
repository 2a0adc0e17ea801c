"""The least value in a region of the largest of several affine functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from cg4ai.errors import SolverFailure
from cg4ai.records import Array
from cg4ai.rules.regions import Ball, Polytope, Region

ROUNDS = 60  # of half-spaces around a ball
ENOUGH = 1e-9  # how near the bound over a ball is to the least value, relative to its size


class _Solved(NamedTuple):
    """The least value over what the rows leave, where, and the share of each piece there."""

    value: float
    point: Array
    shares: Array


def minimise_maximum(offsets: Array, slopes: Array, region: Region) -> tuple[float, Array]:
    """(K,), (K, d): the least value of `max_k (offsets[k] + slopes[k] . x)`, and where.

    An LP finds shares of the pieces whose sum, one affine function, is never less than that value;
    what is returned is the least of this sum, which holds whatever the LP's accuracy. Around a
    Euclidean Ball half-spaces are added until the two agree.
    """
    if isinstance(region, Ball) and region.norm == 2:
        return _over_ball(offsets, slopes, region)
    box, rows, ends = region, np.empty((0, region.size)), np.empty(0)
    if isinstance(region, Polytope):
        box, rows, ends = region.box, region.matrix, region.limit
    lower, upper = box.bounds()
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    ends = ends - rows @ middle
    unit = np.ones(region.size)
    start, rising = offsets + slopes @ middle, slopes * half
    solved = _program(start, rising, rows=rows * half, ends=ends, box=(-unit, unit))
    solved = solved._replace(point=np.clip(middle + half * solved.point, lower, upper))
    slope = solved.shares @ slopes
    least = solved.shares @ offsets - region.peaks(-slope[None]).values[0]
    return float(least), region.pull(torch.as_tensor(solved.point[None])).numpy()[0]


def _over_ball(offsets: Array, slopes: Array, ball: Ball) -> tuple[float, Array]:
    """In coordinates w of the unit ball along which pieces differ: x = centre + radius basis' w."""
    _, sizes, along = np.linalg.svd(slopes, full_matrices=False)
    basis = along[sizes > 1e-12 * sizes.max(initial=1e-300)]
    start, rising = offsets + slopes @ ball.centre, ball.radius * slopes @ basis.T
    cuts = np.empty((0, len(basis)))
    box = (-np.ones(len(basis)), np.ones(len(basis)))
    best, lowest, point = -np.inf, np.inf, ball.centre
    for _ in range(ROUNDS):
        solved = _program(start, rising, rows=cuts, ends=np.ones(len(cuts)), box=box)
        # over the whole slopes, so that directions left out of the basis count
        swing = ball.radius * float(np.linalg.norm(solved.shares @ slopes))
        best = max(best, float(solved.shares @ start) - swing)
        inside = solved.point / max(float(np.linalg.norm(solved.point)), 1.0)
        reached = float((start + rising @ inside).max())
        if reached < lowest:
            lowest, point = reached, ball.centre + ball.radius * inside @ basis
        if best >= lowest - ENOUGH * float(np.abs(start).max() + np.abs(rising).max(initial=0.0)):
            break
        cuts = np.vstack([cuts, inside])
    return best, np.asarray(point)


def _program(
    offsets: Array, slopes: Array, *, rows: Array, ends: Array, box: tuple[Array, Array]
) -> _Solved:
    """The least value in the box where `rows @ x <= ends`, each in units of its own."""
    from scipy.optimize import linprog  # slow to import, seldom needed

    unit = max(float(np.abs(offsets).max()), float(np.abs(slopes).max(initial=0.0))) or 1.0
    own = np.maximum(np.abs(rows).max(axis=1, initial=0.0), np.abs(ends))
    own = np.where(own > 0, own, 1.0)
    above = np.column_stack([slopes / unit, -np.ones(len(slopes))])
    inside = np.column_stack([rows / own[:, None], np.zeros(len(rows))])
    answer = linprog(
        np.append(np.zeros(slopes.shape[1]), 1.0),
        A_ub=np.concatenate([above, inside]),
        b_ub=np.concatenate([-offsets / unit, ends / own]),
        bounds=[*zip(*box, strict=True), (None, None)],
        method="highs",
    )
    if answer.status != 0:
        raise SolverFailure(f"the LP of a piecewise bound ended with {answer.message!r}")
    shares = np.maximum(-answer.ineqlin.marginals[: len(slopes)], 0.0)
    return _Solved(float(answer.fun), answer.x[:-1], shares / shares.sum())
