"""Upper bounds of a softmax share on cells: log-sum-exp by chords and tangents, then the sigmoid.

The share of a set of outputs is `sigmoid(g)`, g = LSE(scores of the set) - LSE(all others).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from cg4ai.proofs.bounds.activations import compute_chord_slope
from cg4ai.proofs.bounds.networks import Relaxation


class UpperBound(NamedTuple):
    """An upper bound `value + slope . delta` on each cell, and a constant one, `ceiling`.

    value, ceiling (N, B); slope (N, B, d); spread (N, B, d) or (N, B, 0): see
    `networks.LinearBound`.
    """

    value: Tensor
    slope: Tensor
    ceiling: Tensor
    spread: Tensor


def bound_sigmoid(centre: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """(value, slope): sigmoid(t) <= value + slope (t - centre) for |t - centre| <= reach.

    The better at the centre of two slopes, the tangent's and the chord's, each raised to fit:
    sigmoid(t) - slope t peaks where sigmoid' = slope and t >= 0, or at an end.
    """
    low, high = centre - reach, centre + reach
    at_low, at_high = torch.sigmoid(low), torch.sigmoid(high)
    tangent = torch.sigmoid(centre) * torch.sigmoid(-centre)
    chord = compute_chord_slope(at_low, at_high, width=2.0 * reach, tangent=tangent)

    def raise_bound(slope: Tensor, root: Tensor) -> Tensor:
        # no gradient through the peak: the derivative there is zero
        peak = torch.minimum(torch.maximum(root, low), high).detach()
        ends = torch.maximum(at_low + slope * reach, at_high - slope * reach)
        inside = torch.sigmoid(peak) - slope * (peak - centre)
        return torch.where((peak > low) & (peak < high), torch.maximum(ends, inside), ends)

    by_tangent = raise_bound(tangent, centre.abs())
    inner = (1.0 - 4.0 * chord.detach()).clamp(0.0, 1.0).sqrt()
    by_chord = raise_bound(chord, 2.0 * torch.atanh(inner.clamp_max(1.0 - 1e-16)))
    better = by_chord < by_tangent
    return torch.where(better, by_chord, by_tangent), torch.where(better, chord, tangent)


def bound_log_sum_exp(relaxation: Relaxation, on: Tensor) -> tuple[Tensor, Tensor]:
    """(value, combination): LSE of the scores `on` <= value + combination . (z(x) - z(c)).

    `on` is (N, n), or (N, B, n) where cells differ in it. LSE(a, b) = b + softplus(a - b) grows in
    both, so an upper bound of the LSE of the first ones takes its place, and the chord of softplus
    over the range of a - b lies above it.
    """
    scores, size = relaxation.scores, relaxation.scores.shape[-1]
    picked = one_hot(on if on.ndim == 3 else on.unsqueeze(1), size).to(scores.dtype)
    combination = picked[:, :, 0]
    value = (scores * combination).sum(-1)
    for position in range(1, on.shape[-1]):
        other = picked[:, :, position]
        own = (scores * other).sum(-1)
        middle = value - own
        down, up = relaxation.range(combination - other)
        low, high = middle + down, middle + up
        at_low, at_high = softplus(low, threshold=40.0), softplus(high, threshold=40.0)
        slope = compute_chord_slope(
            at_low, at_high, width=high - low, tangent=torch.sigmoid(middle)
        )
        raised = torch.maximum(at_low - slope * down, at_high - slope * up)
        value = own + raised
        combination = slope.unsqueeze(-1) * (combination - other) + other
    return value, combination


def bound_share(
    relaxation: Relaxation, on: Tensor, *, off: Tensor, spread: bool = False
) -> UpperBound:
    """The share of the outputs `on` (N, n) among those and `off` (N, K, boolean), N networks."""
    value, combination = bound_log_sum_exp(relaxation, on)
    chords = None
    if spread:
        chords = value - torch.logsumexp(relaxation.scores.gather(-1, _each(on, value)), -1)
    return bound_ratio(relaxation, value, combination, off=off.unsqueeze(1), chords=chords)


def bound_ratio(
    relaxation: Relaxation,
    value: Tensor,
    combination: Tensor,
    *,
    off: Tensor,
    chords: Tensor | None = None,
) -> UpperBound:
    """The share of outputs whose LSE is below `value` + `combination` . (z(x) - z(c)).

    It is that among them and `off` (N, 1 or B, K, boolean). `chords` (N, B), what the value lost
    by chords, asks for the spread.
    """
    others = relaxation.scores.masked_fill(~off, -torch.inf)
    # LSE is convex: it lies above its tangent at the centre, whose slopes are a softmax
    against = combination - torch.softmax(others, -1)
    linear = relaxation.above(against, spread=chords is not None)
    centre = value - torch.logsumexp(others, -1) + linear.offset
    sizes = linear.slope.abs() * relaxation.radius
    reach = sizes.sum(-1)
    raised, slope = bound_sigmoid(centre, reach)
    shares = linear.spread
    if chords is not None:
        bent = (raised - torch.sigmoid(centre) + slope * chords) / reach.clamp_min(1e-300)
        shares = slope.unsqueeze(-1) * shares + bent.unsqueeze(-1) * sizes
    return UpperBound(
        raised, slope.unsqueeze(-1) * linear.slope, torch.sigmoid(centre + reach), shares
    )


def _each(on: Tensor, like: Tensor) -> Tensor:
    """(N, n) repeated for every cell of `like` (N, B)."""
    return on.unsqueeze(1).expand(-1, like.shape[1], -1)


def bound_scores(
    relaxation: Relaxation, combination: Tensor, *, spread: bool = False
) -> UpperBound:
    """The linear outputs `combination` (N, K), or (N, B, K) where cells differ in it, . z(x)."""
    row = combination if combination.ndim == 3 else combination.unsqueeze(1)
    linear = relaxation.above(row, spread=spread)
    value = (relaxation.scores * row).sum(-1) + linear.offset
    ceiling = value + (linear.slope.abs() * relaxation.radius).sum(-1)
    return UpperBound(value, linear.slope, ceiling, linear.spread)
