"""Lines above and below an activation on intervals: how bounds pass through hidden layers.

For a unit with value `c` before the activation at the cell's centre and range [l, u] over the
cell, `lines` gives slopes and offsets with, for every t in [l, u],

    f(c) + lower_slope (t - c) + lower_offset <= f(t) <= f(c) + upper_slope (t - c) + upper_offset.

Slopes may be anything; offsets follow from them in closed form from where the derivative of f
grows and falls, so no point is ever sampled. Proofs are in docs/certification.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cg4ai.errors import InvalidInput

ROOT_TWO = math.sqrt(2.0)
# gelu'(t) = Phi(t) + t phi(t) grows on [-sqrt 2, sqrt 2] and falls outside; its values there:
GELU_STEEPEST = 0.5 * (1.0 + math.erf(1.0)) + ROOT_TWO * math.exp(-1.0) / math.sqrt(2.0 * math.pi)
GELU_AT_ROOT = ROOT_TWO * 0.5 * (1.0 + math.erf(1.0))  # gelu(sqrt 2)
GELU_LOWEST = 1.0 - GELU_STEEPEST  # gelu'(-sqrt 2)
GELU_AT_MINUS_ROOT = GELU_AT_ROOT - ROOT_TWO  # gelu(-t) = gelu(t) - t
LIPSCHITZ = {"relu": 1.0, "gelu": 1.13, "tanh": 1.0}
# Shorter intervals use the tangent: a chord through two nearly equal numbers is noise.
NARROW = 1e-7


class Lines(NamedTuple):
    """All of one shape; offsets are relative to f(c): upper >= 0, lower <= 0."""

    upper_slope: Tensor
    upper_offset: Tensor
    lower_slope: Tensor
    lower_offset: Tensor


def lines(activation: str, centre: Tensor, *, lower: Tensor, upper: Tensor) -> Lines:
    """Lines for `lower <= centre <= upper`, elementwise, differentiable almost everywhere."""
    if activation == "relu":
        return _relu(centre, lower, upper)
    if activation == "tanh":
        return _tanh(centre, lower, upper)
    if activation == "gelu":
        return _gelu(centre, lower, upper)
    raise InvalidInput(f"no bounds are known for the activation {activation!r}")


def chord_slope(low: Tensor, high: Tensor, *, width: Tensor, tangent: Tensor) -> Tensor:
    """(high - low) / width, or `tangent` where the interval is too narrow to tell."""
    wide = width > NARROW
    return torch.where(wide, (high - low) / torch.where(wide, width, 1.0), tangent)


def _relu(centre: Tensor, lower: Tensor, upper: Tensor) -> Lines:
    straddles = (lower < 0) & (upper > 0)
    on = ((centre > 0) | (lower >= 0)).to(centre.dtype)
    slope = torch.where(straddles, upper / torch.where(straddles, upper - lower, 1.0), on)
    value = centre.clamp_min(0.0)
    offset = torch.where(straddles, slope * (centre - lower) - value, 0.0)
    # t and 0 both lie below max(t, 0): the one that touches at the centre
    return Lines(slope, offset, on, torch.zeros_like(centre))


def _tanh(centre: Tensor, lower: Tensor, upper: Tensor) -> Lines:
    upper_slope, upper_offset = _tanh_above(centre, lower, upper)
    # tanh is odd: a line above it at -t is one below it at t
    lower_slope, mirrored = _tanh_above(-centre, -upper, -lower)
    return Lines(upper_slope, upper_offset, lower_slope, -mirrored)


def _tanh_above(centre: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """The better at the centre of the tangent's and the chord's slope, each raised to fit."""
    value, low, high = torch.tanh(centre), torch.tanh(lower), torch.tanh(upper)
    tangent = (1.0 - value * value).clamp_min(1e-30)
    chord = chord_slope(low, high, width=upper - lower, tangent=tangent).clamp(1e-30, 1.0)

    def offset(slope: Tensor) -> Tensor:
        # tanh(t) - slope t peaks where tanh' = slope and t > 0, or at an end
        root = torch.sqrt((1.0 - slope.detach()).clamp(0.0, 1.0 - 2e-16))
        # no gradient through the peak: the derivative there is zero
        peak = torch.minimum(torch.maximum(torch.atanh(root), lower), upper).detach()
        ends = torch.maximum(low - slope * (lower - centre), high - slope * (upper - centre))
        inside = torch.tanh(peak) - slope * (peak - centre)
        most = torch.where((peak > lower) & (peak < upper), torch.maximum(ends, inside), ends)
        return (most - value).clamp_min(0.0)

    by_tangent, by_chord = offset(tangent), offset(chord)
    better = by_chord < by_tangent
    return torch.where(better, chord, tangent), torch.where(better, by_chord, by_tangent)


def gelu_with_derivative(t: Tensor) -> tuple[Tensor, Tensor]:
    """gelu(t) = t Phi(t) and gelu'(t) = Phi(t) + t phi(t)."""
    share = 0.5 * (1.0 + torch.erf(t / ROOT_TWO))
    return t * share, share + t * torch.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)


def _gelu(centre: Tensor, lower: Tensor, upper: Tensor) -> Lines:
    """gelu is convex on [-sqrt 2, sqrt 2] and concave on either side of it."""
    value, tangent = gelu_with_derivative(centre)
    low, low_derivative = gelu_with_derivative(lower)
    high, high_derivative = gelu_with_derivative(upper)
    chord = chord_slope(low, high, width=upper - lower, tangent=tangent)
    right = (upper - lower.clamp_min(ROOT_TWO)).clamp_min(0.0)  # length of the concave parts
    left = (upper.clamp_max(-ROOT_TWO) - lower).clamp_min(0.0)
    down, up = lower - centre, upper - centre

    def peaks(slope: Tensor) -> tuple[Tensor, Tensor]:
        # a concave function lies below its tangent, here the one at the far end
        at_left = low - value - slope * down + (low_derivative - slope).clamp_min(0.0) * left
        at_right = high - value - slope * up + (slope - high_derivative).clamp_min(0.0) * right
        return at_left, at_right

    at_left, at_right = peaks(tangent)
    at_left = torch.where(centre <= -ROOT_TWO, 0.0, at_left)  # touches from above there
    at_right = torch.where(centre >= ROOT_TWO, 0.0, at_right)
    by_tangent = torch.maximum(at_left, at_right).clamp_min(0.0)
    by_chord = torch.maximum(*peaks(chord)).clamp_min(0.0)
    better = by_chord < by_tangent
    ends = (low - value - tangent * down, high - value - tangent * up)
    return Lines(
        torch.where(better, chord, tangent),
        torch.where(better, by_chord, by_tangent),
        tangent,
        _gelu_below(centre, lower, upper, value=value, tangent=tangent, ends=ends),
    )


def _gelu_below(
    centre: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    value: Tensor,
    tangent: Tensor,
    ends: tuple[Tensor, Tensor],
) -> Tensor:
    """How far gelu falls below its tangent at the centre, <= 0.

    On concave parts that is at an end; on the convex part a tangent at its end bounds it, or
    nothing where the centre itself lies in it.
    """
    at_left, at_right = ends
    lowest = torch.zeros_like(centre)
    lowest = torch.where((lower < -ROOT_TWO) | (centre > ROOT_TWO), at_left, lowest)
    right = torch.where((upper > ROOT_TWO) | (centre < -ROOT_TWO), at_right, 0.0)
    lowest = torch.minimum(torch.minimum(lowest, right), torch.zeros_like(centre))
    from_right = GELU_AT_ROOT - value - tangent * (ROOT_TWO - centre)
    from_right = from_right - (GELU_STEEPEST - tangent).clamp_min(0.0) * (
        ROOT_TWO - lower.clamp_min(-ROOT_TWO)
    )
    from_left = GELU_AT_MINUS_ROOT - value + tangent * (ROOT_TWO + centre)
    from_left = from_left + (GELU_LOWEST - tangent).clamp_max(0.0) * (
        upper.clamp_max(ROOT_TWO) + ROOT_TWO
    )
    reaches_right = (centre > ROOT_TWO) & (lower < ROOT_TWO)
    reaches_left = (centre < -ROOT_TWO) & (upper > -ROOT_TWO)
    lowest = torch.where(reaches_right, torch.minimum(lowest, from_right), lowest)
    return torch.where(reaches_left, torch.minimum(lowest, from_left), lowest)
