"""The bound of one rule on a batch of cells: one quadratic in delta over all members and blocks.

With x = c + delta the value of a rule is at most `constant + linear . delta + delta' M delta`,
M the sum of (slope of a factor) x (slope of a share); no product is relaxed by itself. Another
bound replaces every share by its ceiling. The smaller of the two counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.proofs.bounds.limits import LimitUse, RuleLimits, RuleLines
from cg4ai.proofs.bounds.networks import Relaxation, relax
from cg4ai.proofs.bounds.softmax import UpperBound, bound_scores, bound_share
from cg4ai.proofs.bounds.terms import Group, RuleTerms
from cg4ai.proofs.bounds.trees import PIECES
from cg4ai.records import Array

# Halving also shrinks first-order terms, which need not be an error: they count this much.
LINEAR_SCORE = 0.3
NUMBER = 8  # bytes
SQUARES = 6  # (d, d) arrays of a cell alive at once: the sum, its halves, sizes, products
SLOPES = 6  # (terms, d) arrays of a cell alive at once


class Cells(NamedTuple):
    """B boxes, `lower` and `upper` (B, d) float64."""

    lower: Tensor
    upper: Tensor

    @property
    def centre(self) -> Tensor:
        return 0.5 * (self.lower + self.upper)

    @property
    def radius(self) -> Tensor:
        """A hair more than half the width, so that rounding the centre loses nothing."""
        half = 0.5 * (self.upper - self.lower)
        ends = torch.maximum(self.lower.abs(), self.upper.abs())
        return torch.where(half > 0, half + 4e-16 * ends, half)


class EuclideanBall(NamedTuple):
    """A Euclidean ball that the inputs also lie in: `centre` (d,), `radius`."""

    centre: Tensor
    radius: float


class Pieces(NamedTuple):
    """What each term or base adds to the quadratic per unit of weight; n of them, B cells.

    `at` (n,) is the member in the whole ensemble; constant, ceiling (n, B); linear,
    ceiling_slope (n, B, d); factor (n, d) and share (n, B, d) make M; share None if M is zero.
    """

    at: Tensor
    constant: Tensor
    linear: Tensor
    ceiling: Tensor
    ceiling_slope: Tensor
    factor: Tensor
    share: Tensor | None
    spread: Tensor


class CellBound(NamedTuple):
    """`upper` (B,) is proven up to rounding; `scores` (B, d) say where halving helps most.

    `direction` (B, d) is the way the bound grows: a hint where to look for a violation. `use`
    (B, limits + rows): the shares and multipliers behind the bound, where the rule has any.
    """

    upper: Tensor
    scores: Tensor
    direction: Tensor
    use: Array | None = None


def compute_pieces(rule: RuleTerms, cells: Cells, *, spread: bool = False) -> list[Pieces]:
    """The bases of all members, then the groups of terms."""
    centre, radius = cells.centre, cells.radius
    count, (batch, size) = len(rule.base_at), centre.shape
    at_centre = rule.base_constant.unsqueeze(1) + rule.base_slope @ centre.mT
    flat = rule.base_slope.unsqueeze(1).expand(-1, batch, -1)
    nothing = centre.new_zeros(count, batch, size if spread else 0)
    result = [
        Pieces(rule.base_at, at_centre, flat, at_centre, flat, rule.base_slope, None, nothing)
    ]
    for group in rule.groups:
        networks = group.networks
        chosen = {name: value[group.members] for name, value in networks.parameters.items()}
        relaxed = relax(networks.architecture, chosen, centre=centre, radius=radius)
        if group.term_network is not None:
            relaxed = relaxed.take(group.term_network)
        result.append(_products(group, bound_shares(group, relaxed, spread=spread), centre))
    return result


def bound_shares(group: Group, relaxed: Relaxation, *, spread: bool = False) -> UpperBound:
    """The shares of all terms, each of whose networks was relaxed."""
    if group.combination is not None:
        return bound_scores(relaxed, group.combination, spread=spread)
    if group.on is None or group.off is None:
        raise InvalidInput(
            "a group of terms has either outputs on and off, or a combination", code="conflict"
        )
    return bound_share(relaxed, group.on, off=group.off, spread=spread)


def _products(group: Group, above: UpperBound, centre: Tensor) -> Pieces:
    """factor x share, factor = f + s . delta and share <= value + q . delta."""
    factor = group.constant.unsqueeze(1) + group.slope @ centre.mT
    sloped = group.slope.unsqueeze(1)
    return Pieces(
        group.weights_at,
        factor * above.value,
        factor.unsqueeze(-1) * above.slope + above.value.unsqueeze(-1) * sloped,
        factor * above.ceiling,
        above.ceiling.unsqueeze(-1) * sloped,
        group.slope,
        above.slope,
        factor.unsqueeze(-1) * above.spread,
    )


class CellQuadratic(NamedTuple):
    """`constant` (B,) + `linear` (B, d) . delta + delta' `square` (B, d, d) delta, M symmetric."""

    constant: Tensor
    linear: Tensor
    square: Tensor


def sum_quadratic(parts: Sequence[Pieces], weights: Tensor) -> CellQuadratic:
    """The weighted sum of the pieces; `weights` of all members of the ensemble."""
    constant = linear = square = torch.zeros((), dtype=weights.dtype, device=weights.device)
    for piece in parts:
        own = weights[piece.at]
        constant = constant + own @ piece.constant
        linear = linear + torch.tensordot(own, piece.linear, dims=1)
        if piece.share is not None:
            weighted = own.unsqueeze(1) * piece.factor
            square = square + torch.einsum("ni,nbj->bij", weighted, piece.share)
    if square.ndim == 0:
        square = linear.new_zeros(*linear.shape, linear.shape[-1])
    return CellQuadratic(constant, linear, 0.5 * (square + square.mT))


def find_separable_peak(linear: Tensor, curvature: Tensor, radius: Tensor) -> Tensor:
    """argmax over |t| <= radius of `linear t + curvature t^2`, elementwise, without gradient.

    The value at the peak needs none through the peak: inside its derivative is zero.
    """
    linear, curvature = linear.detach(), curvature.detach()
    end = torch.where(linear >= 0, radius, -radius)
    inner = linear / (-2.0 * curvature).clamp_min(1e-300)
    return torch.where(curvature < 0, inner.clamp(-radius, radius), end)


def bound_quadratic(form: CellQuadratic, radius: Tensor, *, shift: Tensor | None = None) -> Tensor:
    """An upper bound over |delta| <= radius: (B,).

    Each coordinate is maximised exactly, products of two are at most their size. `shift` (B,)
    bounds `linear . delta` from above in another way, for a ball.
    """
    diagonal = torch.diagonal(form.square, dim1=-2, dim2=-1)
    peak = find_separable_peak(form.linear, diagonal, radius)
    alone = (form.linear * peak + diagonal * peak * peak).sum(-1)
    if shift is not None:
        squares = (diagonal.clamp_min(0.0) * radius * radius).sum(-1)
        alone = torch.minimum(alone, shift + squares)
    return form.constant + alone + _products_above(form.square, diagonal, radius)


def _products_above(square: Tensor, diagonal: Tensor, radius: Tensor) -> Tensor:
    sizes = torch.einsum("bi,bij,bj->b", radius, square.abs(), radius)
    return sizes - (diagonal.abs() * radius * radius).sum(-1)


def _ball_linear(linear: Tensor, cells: Cells, ball: EuclideanBall) -> Tensor:
    """max of linear . delta over the ball, delta measured from the cell's centre."""
    length: Tensor = torch.linalg.vector_norm(linear, dim=-1)
    return (linear * (ball.centre - cells.centre)).sum(-1) + ball.radius * length


class PieceSum(NamedTuple):
    """All pieces together: the quadratic, and an affine `ceiling` (B,) + `slope` (B, d) . delta."""

    form: CellQuadratic
    ceiling: Tensor
    slope: Tensor

    def add_affine(self, constant: Tensor, slope: Tensor) -> PieceSum:
        """With `constant` (B,) + `slope` (B, d) . delta added."""
        own = self.form
        form = CellQuadratic(own.constant + constant, own.linear + slope, own.square)
        return PieceSum(form, self.ceiling + constant, self.slope + slope)

    def add_multiple(self, other: PieceSum, times: Tensor) -> PieceSum:
        """With `times` (B,), each at least 0, of the other added."""
        own, theirs = self.form, other.form
        wide = times.unsqueeze(-1)
        form = CellQuadratic(
            own.constant + times * theirs.constant,
            own.linear + wide * theirs.linear,
            own.square + wide.unsqueeze(-1) * theirs.square,
        )
        ceiling = self.ceiling + times * other.ceiling
        return PieceSum(form, ceiling, self.slope + wide * other.slope)

    def upper(self, cells: Cells, ball: EuclideanBall | None) -> Tensor:
        """The smaller of the quadratic and the ceiling bound, (B,)."""
        radius = cells.radius
        shift = None if ball is None else _ball_linear(self.form.linear, cells, ball)
        ceiling = self.ceiling + (self.slope.abs() * radius).sum(-1)
        return torch.minimum(bound_quadratic(self.form, radius, shift=shift), ceiling)


def sum_pieces(parts: Sequence[Pieces], weights: Tensor) -> PieceSum:
    form = sum_quadratic(parts, weights)
    ceiling, slope = torch.zeros_like(form.constant), torch.zeros_like(form.linear)
    for piece in parts:
        ceiling = ceiling + weights[piece.at] @ piece.ceiling
        slope = slope + torch.tensordot(weights[piece.at], piece.ceiling_slope, dims=1)
    return PieceSum(form, ceiling, slope)


class Square(NamedTuple):
    """A sum t of outputs that is squared: the terms of t and of -t, and the margin of both."""

    above: RuleTerms
    below: RuleTerms
    margin: float


def bound_cells(
    rule: RuleTerms,
    cells: Cells,
    *,
    weights: Tensor,
    ball: EuclideanBall | None = None,
    limits: RuleLimits | None = None,
    target: float = 0.0,
    squares: Sequence[Square] = (),
) -> CellBound:
    """An upper bound of the rule's value on every cell, without the margin for rounding.

    With `limits`, of what is left of it once shares and multipliers are chosen; cells that hold no
    input of the region have minus infinity.
    """
    radius, use = cells.radius, None
    total, scores = _model(rule, cells, weights)
    for square in squares:
        total, scores = _squared(total, scores, square, cells, weights=weights, ball=ball)
    if limits is not None and limits.size:
        use = _used(total, cells, limits, target)
        constant, slope = (torch.as_tensor(array).to(radius) for array in (use.constant, use.slope))
        total = total.add_affine(constant, slope)
    upper, form = total.upper(cells, ball), total.form
    if use is not None:
        upper = upper.masked_fill(torch.as_tensor(use.missed, device=upper.device), -torch.inf)
    crossed = (form.square.abs() @ radius.unsqueeze(-1)).squeeze(-1) * radius
    scores = scores + crossed + LINEAR_SCORE * form.linear.abs() * radius
    taken = None if use is None else np.concatenate([use.shares, use.multipliers], axis=1)
    return CellBound(upper, scores, form.linear, taken)


def _model(rule: RuleTerms, cells: Cells, weights: Tensor) -> tuple[PieceSum, Tensor]:
    """A quadratic in delta above the rule's value, and (B, d) what loosens it."""
    parts = compute_pieces(rule, cells, spread=True)
    total, scores = sum_pieces(parts, weights), torch.zeros_like(cells.lower)
    for piece in parts:
        scores = scores + torch.tensordot(weights[piece.at], piece.spread, dims=1)
    if rule.trees is not None:
        extra, extra_scores = rule.trees.above(cells.lower, cells.upper)
        total, scores = total.add_affine(extra, torch.zeros_like(scores)), scores + extra_scores
    return total, scores


def _squared(
    total: PieceSum,
    scores: Tensor,
    square: Square,
    cells: Cells,
    *,
    weights: Tensor,
    ball: EuclideanBall | None,
) -> tuple[PieceSum, Tensor]:
    """With t^2 added: t that runs from l to u has t^2 <= (l + u) t - l u, the chord."""
    above, loose = _model(square.above, cells, weights)
    below, loose_below = _model(square.below, cells, weights)
    high = above.upper(cells, ball) + square.margin
    low = -(below.upper(cells, ball) + square.margin)
    rate = low + high
    total = total.add_multiple(above, rate.clamp_min(0.0)).add_multiple(
        below, (-rate).clamp_min(0.0)
    )
    radius = cells.radius
    total = total.add_affine(-low * high, torch.zeros_like(radius))
    swing = above.form.linear.abs() * radius
    share = swing / swing.sum(-1, keepdim=True).clamp_min(1e-300)
    bend = 0.25 * (high - low).square().unsqueeze(-1) * share
    size = torch.maximum(low.abs(), high.abs()).unsqueeze(-1)
    return total, scores + bend + size * (loose + loose_below)


def _used(total: PieceSum, cells: Cells, limits: RuleLimits, target: float) -> LimitUse:
    form = total.form
    given = (form.constant - target, form.linear, cells.centre, cells.radius)
    return limits.choose_use(RuleLines(*(value.cpu().numpy() for value in given)))


def estimate_cell_bytes(rule: RuleTerms, *, input_size: int) -> int:
    """About how much memory one more cell in a batch takes."""
    numbers = SQUARES * input_size**2 + SLOPES * len(rule.base_at) * input_size
    for group in rule.groups:
        hidden = group.networks.architecture.hidden
        # slopes of the units of all hidden layers but the first depend on the cell
        wide = sum(hidden) * max(hidden[1:], default=1) + sum(hidden[1:]) * input_size
        own = max(wide, group.networks.output_size) + SLOPES * input_size
        numbers += len(group.weights_at) * own
    for stack in [] if rule.trees is None else rule.trees.stacks:
        size, count, nodes, outputs = stack.members.value.shape
        numbers += count * nodes * (3 * input_size + 2 * outputs)  # member after member
        numbers += size * (count * nodes // NUMBER + 2 * PIECES * outputs)
        numbers += 5 * PIECES * input_size
    return NUMBER * numbers
