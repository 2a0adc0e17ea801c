"""Sound straight bands around curves: the only approximations that the checker makes.

A band around f on [low, high] is `slope * t + floor <= f(t) <= slope * t + ceiling` for every t
in it. Slopes are those of the chord, where the band of a convex or concave curve is narrowest;
any slope would be sound, floor and ceiling are what must hold. docs/mathematics.md has the
proofs. All functions work on arrays of any common shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, ndtr

Array = NDArray[np.float64]

# SciPy's ndtr is the least accurate function used: its absolute error times |t| stays below 1e-14.
ROUNDING = 2.0**-45
NARROW = 1e-9  # below this width a chord is mostly rounding and a tangent serves
TABLE = 4097  # slopes at which the least value of gelu(t) - slope * t is tabulated
TURN = 0.752  # beyond it gelu is steeper than 1, and below -TURN it falls
ROOT_TWO_PI = float(np.sqrt(2 * np.pi))


@dataclass(frozen=True)
class Band:
    slope: Array
    floor: Array
    ceiling: Array


def relu(low: Array, high: Array) -> Band:
    """max(t, 0): convex, with its corner at 0."""
    slope = _chord(
        np.maximum(low, 0), np.maximum(high, 0), low, high, tangent=np.heaviside(low, 0.0)
    )
    points = (low, high, np.clip(0.0, low, high))
    return _from_points([np.maximum(t, 0) - slope * t for t in points], slope, low, high)


def tanh(low: Array, high: Array) -> Band:
    """tanh - slope * t has its only stationary points where tanh = -+ sqrt(1 - slope)."""
    middle = 0.5 * (low + high)
    slope = _chord(np.tanh(low), np.tanh(high), low, high, tangent=1 - np.tanh(middle) ** 2)
    # a slope this flat is as good as level, and then tanh has no stationary point
    slope = np.where(slope < 1e-12, 0.0, np.minimum(slope, 1.0))
    turn = np.arctanh(np.minimum(np.sqrt(1 - slope), 1 - 2.0**-50))
    points = (low, high, np.clip(turn, low, high), np.clip(-turn, low, high))
    return _from_points([np.tanh(t) - slope * t for t in points], slope, low, high)


def sigmoid(low: Array, high: Array) -> Band:
    """1 / (1 + exp(-t)) = 1/2 + tanh(t / 2) / 2."""
    half = tanh(0.5 * low, 0.5 * high)
    return Band(0.25 * half.slope, 0.5 + 0.5 * half.floor, 0.5 + 0.5 * half.ceiling)


def softplus(low: Array, high: Array) -> Band:
    """log(1 + exp(t)): convex; its least height above a line of slope s is the entropy of s."""
    width = np.maximum(high - low, NARROW)
    # log(1 + exp(t)) = max(t, 0) + log1p(exp(-|t|)): far from 0 the first part is exact
    bend = np.log1p(np.exp(-np.abs(high))) - np.log1p(np.exp(-np.abs(low)))
    slope = bend / width + (np.maximum(high, 0) - np.maximum(low, 0)) / width
    slope = np.where(high - low < NARROW, 0.5 + 0.5 * np.tanh(0.25 * (low + high)), slope)
    slope = np.clip(slope, 0.0, 1.0)
    ends = [
        np.log1p(np.exp(-np.abs(t))) + np.where(t > 0, (1 - slope) * t, -slope * t)
        for t in (low, high)
    ]
    floor = entr(slope) + entr(1 - slope)
    ceiling = np.maximum(ends[0], ends[1])
    return Band(slope, floor - ROUNDING * (1 + floor), ceiling + ROUNDING * (1 + ceiling))


def gelu(low: Array, high: Array) -> Band:
    """t * Phi(t). For slopes in [0, 1] gelu - slope * t falls, then rises: ends and a table do.

    Where the chord is steeper or falls (both ends on one side of 0), the exact range of the
    second derivative around the middle may give less; the narrower band is taken.
    """
    at_low, at_high = low * ndtr(low), high * ndtr(high)
    middle = 0.5 * (low + high)
    narrow = high - low < NARROW
    tangent = np.zeros_like(low)
    tangent[narrow] = _gelu_slope(middle[narrow])
    chord = _chord(at_low, at_high, low, high, tangent=tangent)
    slope = np.clip(chord, 0.0, 1.0)
    least, steps = _gelu_table()
    place = slope * (TABLE - 1)
    entry = np.clip(place.astype(np.int64), 0, TABLE - 2)  # also where the place is no number
    # the least value is concave in the slope, so straight lines between entries lie below it
    floor = least[entry] + (place - entry) * steps[entry]
    ends = at_low - slope * low, at_high - slope * high
    ceiling = np.maximum(*ends)
    # where an interval lies on one side of the turning point, its least value is at an end
    floor = np.where(low >= TURN, ends[0], np.where(high <= -TURN, ends[1], floor))
    outside = chord != slope
    if outside.any():
        other = _gelu_curved(low[outside], high[outside])
        better = other.ceiling - other.floor < ceiling[outside] - floor[outside]
        slope[outside] = np.where(better, other.slope, slope[outside])
        floor[outside] = np.where(better, other.floor, floor[outside])
        ceiling[outside] = np.where(better, other.ceiling, ceiling[outside])
    error = ROUNDING * (1 + np.maximum(np.abs(low), np.abs(high)))
    return Band(slope, floor - error, ceiling + error)


def _gelu_curved(low: Array, high: Array) -> Band:
    """Taylor at the middle with the range of gelu'' = pdf(t) (2 - t^2), extreme at 0 and +-2."""
    middle, radius = 0.5 * (low + high), 0.5 * (high - low)
    slope = _gelu_slope(middle)
    points = [low, high, *(np.clip(turn, low, high) for turn in (-2.0, 0.0, 2.0))]
    curvature = [np.exp(-0.5 * t * t) / ROOT_TWO_PI * (2 - t * t) for t in points]
    smallest = np.minimum(np.minimum.reduce(curvature), 0.0)
    largest = np.maximum(np.maximum.reduce(curvature), 0.0)
    start = middle * ndtr(middle) - slope * middle
    square = 0.5 * radius * radius * (1 + ROUNDING)
    return Band(slope, start + smallest * square, start + largest * square)


def _gelu_slope(t: Array) -> Array:
    slope: Array = ndtr(t) + t * np.exp(-0.5 * t * t) / ROOT_TWO_PI
    return slope


@cache
def _gelu_table() -> tuple[Array, Array]:
    """The least value of gelu(t) - slope * t at evenly spaced slopes in [0, 1], and differences.

    gelu' rises from below 0 to above 1 on [-sqrt 2, sqrt 2], is below 0 to the left of its first
    zero and above 1 to the right of its second one: bisection finds the only stationary point.
    """
    slopes = np.linspace(0.0, 1.0, TABLE)
    low, high = np.full(TABLE, -1.5), np.full(TABLE, 1.5)
    for _ in range(60):
        middle = 0.5 * (low + high)
        rising = _gelu_slope(middle) > slopes
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    least = low * ndtr(low) - slopes * low
    return least, np.diff(least)


def _chord(at_low: Array, at_high: Array, low: Array, high: Array, *, tangent: Array) -> Array:
    width = high - low
    chord = (at_high - at_low) / np.maximum(width, NARROW)
    return np.where(width < NARROW, tangent, chord)


def _from_points(values: list[Array], slope: Array, low: Array, high: Array) -> Band:
    """The band whose floor and ceiling are the extremes of `f(t) - slope * t` at these points."""
    error = ROUNDING * (1 + np.maximum(np.abs(low), np.abs(high)))
    return Band(slope, np.minimum.reduce(values) - error, np.maximum.reduce(values) + error)
