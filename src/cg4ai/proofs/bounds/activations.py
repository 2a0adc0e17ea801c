"""Lines above and below an activation on intervals: how bounds pass through hidden layers.

For a unit with value `c` before the activation at the cell's centre and range [l, u] over the
cell, `compute_lines` gives slopes and offsets with, for every t in [l, u],

    f(c) + lower_slope (t - c) + lower_offset <= f(t) <= f(c) + upper_slope (t - c) + upper_offset.

Slopes may be anything; offsets follow from them in closed form from where the derivative of f
grows and falls, so no point is ever sampled. Proofs are in docs/mathematics.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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


def compute_lines(activation: str, centre: Tensor, *, lower: Tensor, upper: Tensor) -> Lines:
    """Lines for `lower <= centre <= upper`, elementwise, differentiable almost everywhere."""
    if activation == "relu":
        return _relu(centre, lower, upper)
    if activation == "tanh":
        return _tanh(centre, lower, upper)
    if activation == "gelu":
        if centre.requires_grad or lower.requires_grad or upper.requires_grad:
            return Lines(*_GeluLines.apply(centre, lower, upper))  # type: ignore[no-untyped-call]
        return _gelu(centre, lower, upper)
    raise InvalidInput(f"no bounds are known for the activation {activation!r}", code="unsupported")


def compute_chord_slope(low: Tensor, high: Tensor, *, width: Tensor, tangent: Tensor) -> Tensor:
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
    chord = compute_chord_slope(low, high, width=upper - lower, tangent=tangent).clamp(1e-30, 1.0)

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
    chord = compute_chord_slope(low, high, width=upper - lower, tangent=tangent)
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


class _GeluLines(torch.autograd.Function):
    """`_gelu` with its derivative by hand: training asks for it at every step.

    Recorded operation by operation, its hundred small ones took most of a step.
    """

    @staticmethod
    def forward(ctx: Any, centre: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, ...]:
        found = _gelu(centre, lower, upper)
        ctx.save_for_backward(centre, lower, upper, *found)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        centre, lower, upper, *found = ctx.saved_tensors
        curve = _Curve(centre, lower, upper, Lines(*found))
        above = curve.above(gradients[0], gradients[1])
        below = curve.below(gradients[2], gradients[3])
        return above[0] + below[0], above[1] + below[1], above[2] + below[2]


class _Curve:
    """gelu and its derivatives at centre and ends: where the gradients of lines come from.

    Both methods give gradients in centre, lower and upper.
    """

    def __init__(self, centre: Tensor, lower: Tensor, upper: Tensor, found: Lines) -> None:
        self.centre, self.lower, self.upper, self.found = centre, lower, upper, found
        self.value, _, self.bend = _gelu_twice(centre)
        self.low, self.low_tangent, self.low_bend = _gelu_twice(lower)
        self.high, self.high_tangent, self.high_bend = _gelu_twice(upper)
        self.tangent = found.lower_slope
        self.down, self.up = lower - centre, upper - centre

    def above(self, slope_by: Tensor, offset_by: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the line above: its slope is a tangent's or a chord's, its offset one of `peaks`."""
        slope = self.found.upper_slope
        left = (self.upper.clamp_max(-ROOT_TWO) - self.lower).clamp_min(0.0)
        right = (self.upper - self.lower.clamp_min(ROOT_TWO)).clamp_min(0.0)
        steeper = (self.low_tangent - slope).clamp_min(0.0)
        flatter = (slope - self.high_tangent).clamp_min(0.0)
        at_left = self.low - slope * self.down + steeper * left
        at_right = self.high - slope * self.up + flatter * right
        chord = slope != self.tangent
        is_left = torch.where(chord | (self.centre.abs() < ROOT_TWO), at_left > at_right, False)
        is_left = is_left | (~chord & (self.centre >= ROOT_TWO))
        counts = offset_by * (self.found.upper_offset > 0)
        by_left = counts * is_left
        by_right = counts - by_left
        bent_left, bent_right = left * (steeper > 0), right * (flatter > 0)
        slope_by = slope_by - by_left * (self.down + bent_left) - by_right * (self.up - bent_right)
        by_chord = torch.where(chord, slope_by / (self.upper - self.lower), 0.0)
        in_centre = counts * (slope - self.tangent) + (slope_by * ~chord) * self.bend
        in_lower = (
            by_chord * (slope - self.low_tangent)
            + by_left * (self.low_tangent - slope - steeper * (left > 0))
            + by_left * bent_left * self.low_bend
            - by_right * flatter * (self.lower > ROOT_TWO)
        )
        in_upper = (
            by_chord * (self.high_tangent - slope)
            + by_right * (self.high_tangent - slope + flatter * (right > 0))
            - by_right * bent_right * self.high_bend
            + by_left * steeper * (self.upper < -ROOT_TWO)
        )
        return in_centre, in_lower, in_upper

    def below(self, slope_by: Tensor, offset_by: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the line below, a tangent: its offset is the least of those in `_gelu_below`."""
        tangent, centre = self.tangent, self.centre
        steepest = (GELU_STEEPEST - tangent).clamp_min(0.0)
        lowest = (GELU_LOWEST - tangent).clamp_max(0.0)
        to_lower = ROOT_TWO - self.lower.clamp_min(-ROOT_TWO)
        to_upper = self.upper.clamp_max(ROOT_TWO) + ROOT_TWO
        from_right = GELU_AT_ROOT - tangent * (ROOT_TWO - centre) - steepest * to_lower
        from_left = GELU_AT_MINUS_ROOT + tangent * (ROOT_TWO + centre) + lowest * to_upper
        beyond, before = centre > ROOT_TWO, centre < -ROOT_TWO
        convex = torch.where(beyond & (self.lower < ROOT_TWO), from_right, torch.inf)
        convex = torch.where(before & (self.upper > -ROOT_TWO), from_left, convex)
        sees_left, sees_right = beyond | (self.lower < -ROOT_TWO), before | (self.upper > ROOT_TWO)
        at_left = torch.where(sees_left, self.low - tangent * self.down, torch.inf)
        at_right = torch.where(sees_right, self.high - tangent * self.up, torch.inf)
        counts = offset_by * (self.found.lower_offset < 0)
        by_convex = counts * (convex < torch.minimum(at_left, at_right))
        by_left = (counts - by_convex) * (at_left <= at_right)
        by_right = counts - by_convex - by_left
        by_far_right, by_far_left = by_convex * beyond, by_convex * before
        moved = by_left * self.down + by_right * self.up
        moved = moved + by_far_right * (ROOT_TWO - centre - to_lower * (steepest > 0))
        moved = moved - by_far_left * (ROOT_TWO + centre - to_upper * (lowest < 0))
        in_lower = by_left * (self.low_tangent - tangent)
        in_lower = in_lower + by_far_right * steepest * (self.lower > -ROOT_TWO)
        in_upper = by_right * (self.high_tangent - tangent)
        in_upper = in_upper + by_far_left * lowest * (self.upper < ROOT_TWO)
        return (slope_by - moved) * self.bend, in_lower, in_upper


def _gelu_twice(t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """gelu(t), gelu'(t) and gelu''(t) = (2 - t^2) phi(t)."""
    share = 0.5 * (1.0 + torch.erf(t / ROOT_TWO))
    density = torch.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
    return t * share, share + t * density, (2.0 - t * t) * density
