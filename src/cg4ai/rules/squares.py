"""`y' Q y` as a sum of squares that is never less: what shields compute and proofs bound.

A square matrix Q, its symmetric part being S, is factored in units of its own diagonal, powers of
two, so that outputs in grams beside outputs in tonnes lose nothing: `y' Q y <= |factor' y|^2 +
rest . y^2` for all y, and the two sides differ by rounding relative to `sqrt(S_ii S_jj)`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.records import Array

EPSILON = float(np.finfo(np.float64).eps)
# of what a factor misses, entry by entry, relative to sqrt(S_ii S_jj): more is no rounding
ROUNDING = 1e-12
RANGE = 2.0**-400, 2.0**400  # of diagonals: beyond, products of entries leave the range of float64


class Squares(NamedTuple):
    """`factor` (r, k) and `rest` (r,) >= 0, which is rounding and 0 where the factor is exact."""

    factor: Array
    rest: Array


def decompose_squares(square: Array, name: str) -> Squares:
    """The square (r, r) as squares; InvalidInput where it is not convex or out of range."""
    half = square / 2 + square.T / 2
    diagonal = np.diag(half)
    if (witness := _negative_plane(half)) is not None:
        raise _not_convex(name, half, witness)
    used = np.flatnonzero(diagonal)
    if ((diagonal[used] < RANGE[0]) | (diagonal[used] > RANGE[1])).any():
        raise InvalidInput(
            f"{name} cannot be represented: the diagonal of its square runs from "
            f"{diagonal[used].min():.4g} to {diagonal[used].max():.4g}, and {RANGE[0]:.3g} to "
            f"{RANGE[1]:.3g} is what float64 can square; use other units",
            code="range",
        )
    exponent = np.frexp(diagonal[used])[1] // 2
    own = half[np.ix_(used, used)]
    scaled = np.ldexp(own, -(exponent[:, None] + exponent))  # its diagonal is in [0.5, 2)
    root = _cholesky(scaled)
    missed = np.abs(_residual(scaled, root))
    if not (missed <= ROUNDING * np.sqrt(np.outer(np.diag(scaled), np.diag(scaled)))).all():
        values, vectors = np.linalg.eigh(scaled)
        witness = np.zeros(len(half))
        witness[used] = np.ldexp(vectors[:, 0], -exponent)
        if values[0] < 0:
            raise _not_convex(name, half, witness)
        raise InvalidInput(
            f"{name} cannot be represented: no factor of its square is found in float64 to "
            f"within {ROUNDING:g} of each entry; leave out outputs that others determine"
        )
    # diagonally dominant in these units: what is missed is at most that
    spare = missed.sum(axis=1) * (1 + ROUNDING)
    factor, rest = np.zeros((len(half), root.shape[1])), np.zeros(len(half))
    factor[used] = np.ldexp(root, exponent[:, None])
    rest[used] = np.ldexp(spare, 2 * exponent)
    return Squares(factor, rest)


def _negative_plane(half: Array) -> Array | None:
    """Outputs (r,), at most two of them not 0, at which the value is below 0 whatever the rest."""
    diagonal, point = np.diag(half), np.zeros(len(half))
    if (diagonal < 0).any():
        point[int(diagonal.argmin())] = 1.0
        return point
    alone, beside = np.nonzero((diagonal == 0)[:, None] & (half != 0))
    if not len(alone):
        return None
    i, j = int(alone[0]), int(beside[0])
    # at (t, 1) the value is 2 t S_ij + S_jj
    point[j], point[i] = 1.0, -np.sign(half[i, j]) * max(1.0, diagonal[j] / abs(half[i, j]))
    return point


def _not_convex(name: str, half: Array, at: Array) -> InvalidInput:
    shown = ", ".join(f"{number:.4g}" for number in at[:6])
    more = ", ..." if len(at) > 6 else ""
    return InvalidInput(
        f"{name} is not convex: y' square y is {at @ half @ at:.6g} at y = [{shown}{more}]; only "
        "squares that are nowhere below 0 keep the guarantee for a mixture",
        code="not-convex",
    )


def _cholesky(scaled: Array) -> Array:
    """(r, k): the factor by the largest diagonal first, until what is left is rounding."""
    left, columns = scaled.copy(), []
    least = 2 * len(scaled) * EPSILON
    for _ in range(len(scaled)):
        pivot = int(np.diag(left).argmax()) if len(left) else 0
        if not len(left) or left[pivot, pivot] <= least:
            break
        column = left[:, pivot] / np.sqrt(left[pivot, pivot])
        left -= np.outer(column, column)
        left[pivot], left[:, pivot] = 0.0, 0.0
        columns.append(column)
    return np.array(columns).T if columns else np.zeros((len(scaled), 0))


def _residual(scaled: Array, root: Array) -> Array:
    """`scaled - root root'` in twice the digits, so that an exact factor leaves nothing.

    The root is cut into slices of so few digits that sums of their products are exact in float64,
    and matrix products can take them; what is below the third slice needs no such care.
    """
    first, second, third, below = _slice_digits(root)
    total, low = scaled.copy(), np.zeros_like(scaled)
    for one, other in ((first, first), (first, second), (first, third), (second, second)):
        product = one @ other.T
        for part in [product] if one is other else [product, product.T]:
            summed = total - part
            back = summed - total
            low += (total - (summed - back)) - (part + back)
            total = summed
    mixed = second @ (third + below).T + first @ below.T
    rest = (third + below) @ (third + below).T
    return np.asarray(total + (low - (mixed + mixed.T + rest)))


def _slice_digits(root: Array) -> tuple[Array, Array, Array, Array]:
    """Three slices of the root (r, k), each row in units of its own, and what they leave."""
    digits = (53 - int(np.ceil(np.log2(max(1, root.shape[1]))))) // 2 - 1
    unit = np.frexp(np.abs(root).max(axis=1, initial=0.0))[1][:, None]
    slices, left = [], root
    for number in (1, 2, 3):
        part = np.ldexp(np.rint(np.ldexp(left, number * digits - unit)), unit - number * digits)
        slices.append(part)
        left = left - part  # exact: both are multiples of the last digit of the root
    return slices[0], slices[1], slices[2], left
