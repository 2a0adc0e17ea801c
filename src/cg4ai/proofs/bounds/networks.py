"""Linear bounds of stacked networks on cells: hidden layers replaced by lines, then back to inputs.

Everything is relative to the forward pass at the cell's centre c: with x = c + delta and
|delta| <= radius, a combination `v . (z(x) - z(c))` of scores is at most `offset + slope . delta`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cg4ai.members.layers import ACTIVATIONS
from cg4ai.members.networks import NetworkArchitecture
from cg4ai.proofs.bounds.activations import Lines, compute_lines
from cg4ai.protocols import Parameters


class LinearBound(NamedTuple):
    """`offset` (N, B) + `slope` (N, B, d) . delta; `spread` (N, B, d) shares the offset out.

    `spread[..., i]` is the part of the relaxation's error that halving input i would lessen.
    """

    offset: Tensor
    slope: Tensor
    spread: Tensor


@dataclass(frozen=True)
class HiddenLayer:
    """Lines of one hidden layer, (N, B, H) each, its weights and what its range came from.

    `reach` (N, 1 or B, H, d) are the absolute slopes of the values before the activation.
    """

    lines: Lines
    weight: Tensor
    reach: Tensor
    width: Tensor


@dataclass(frozen=True)
class Relaxation:
    """N networks on B cells: scores at the centres (N, B, K) and lines of every hidden layer.

    `radius` is (B, d), or (N, B, d) where every network has cells of its own.
    """

    scores: Tensor
    hidden: tuple[HiddenLayer, ...]
    last: Tensor
    skip: Tensor | None
    radius: Tensor

    def take(self, index: Tensor | slice) -> Relaxation:
        """The networks `index` (T,), again and again where wanted."""
        layers = tuple(
            HiddenLayer(
                Lines(*(part[index] for part in layer.lines)),
                layer.weight[index],
                layer.reach[index],
                layer.width[index],
            )
            for layer in self.hidden
        )
        skip = None if self.skip is None else self.skip[index]
        radius = self.radius if self.radius.ndim == 2 else self.radius[index]
        return Relaxation(self.scores[index], layers, self.last[index], skip, radius)

    def above(self, combination: Tensor, *, spread: bool = False) -> LinearBound:
        """An upper bound of `combination . (z(x) - z(c))`, combination (N, 1 or B, K)."""
        slope = combination @ self.last
        start = None if self.skip is None else combination @ self.skip
        return _backwards(slope, self.hidden, radius=self.radius, start=start, spread=spread)

    def range(self, combination: Tensor) -> tuple[Tensor, Tensor]:
        """Least and largest `combination . (z(x) - z(c))`, (N, B) each."""
        radius = self.radius
        return -compute_largest(self.above(-combination), radius), compute_largest(
            self.above(combination), radius
        )


def compute_largest(linear: LinearBound, radius: Tensor) -> Tensor:
    """The maximum of `offset + slope . delta` over |delta| <= radius (B, d): (N, B)."""
    return linear.offset + (linear.slope.abs() * radius).sum(-1)


def _backwards(
    slope: Tensor,
    hidden: tuple[HiddenLayer, ...],
    *,
    radius: Tensor,
    start: Tensor | None,
    spread: bool,
) -> LinearBound:
    """From slopes in the last hidden layer (or the inputs, without one) to slopes in the inputs."""
    batch, size = radius.shape[-2:]
    offset = slope.new_zeros(len(slope), batch)
    shares = slope.new_zeros(len(slope), batch, size if spread else 0)
    for layer in reversed(hidden):
        rising = slope > 0
        errors = slope * torch.where(rising, layer.lines.upper_offset, layer.lines.lower_offset)
        offset = offset + errors.sum(-1)
        if spread:
            shares = shares + _shared_out(errors / layer.width, layer.reach) * radius
        slope = slope * torch.where(rising, layer.lines.upper_slope, layer.lines.lower_slope)
        slope = slope @ layer.weight
    if start is not None:
        slope = slope + start
    return LinearBound(offset, slope.expand(-1, batch, -1), shares)


def _shared_out(errors: Tensor, reach: Tensor) -> Tensor:
    """errors (N, B, H) times reach (N, 1 or B, H, d), summed over units."""
    if reach.shape[1] == 1:
        return errors @ reach[:, 0]
    return torch.einsum("nbh,nbhd->nbd", errors, reach)


def relax(
    architecture: NetworkArchitecture, parameters: Parameters, *, centre: Tensor, radius: Tensor
) -> Relaxation:
    """Networks (stacked parameters) on the cells `centre` +- `radius`.

    Cells are (B, d), or (N, B, d) where every network has its own.
    """
    x = architecture.normalise(centre)
    depth = architecture.depth
    first = _in_inputs(architecture, parameters["weight_0"])
    skip = _in_inputs(architecture, parameters["skip"]) if architecture.skip else None
    if depth == 0:
        scores = x @ parameters["weight_0"].mT + parameters["bias_0"].unsqueeze(1)
        return Relaxation(scores, (), first, None, radius)
    hidden: list[HiddenLayer] = []
    values = x
    before = x @ parameters["weight_0"].mT + parameters["bias_0"].unsqueeze(1)
    reach = first.abs().unsqueeze(1)
    width = radius @ first.abs().mT
    low, high, weight = before - width, before + width, first
    for layer in range(depth):
        if layer > 0:
            weight = parameters[f"weight_{layer}"]
            down, up, reach = _unit_ranges(weight, tuple(hidden), radius)
            before = values @ weight.mT + parameters[f"bias_{layer}"].unsqueeze(1)
            low, high = before + down.clamp_max(0.0), before + up.clamp_min(0.0)
            width = (reach * radius.unsqueeze(-2)).sum(-1)
        fitted = compute_lines(architecture.activation, before, lower=low, upper=high)
        hidden.append(HiddenLayer(fitted, weight, reach, width.clamp_min(1e-300)))
        values = ACTIVATIONS[architecture.activation](before.clone())
    last = parameters[f"weight_{depth}"]
    scores = values @ last.mT + parameters[f"bias_{depth}"].unsqueeze(1)
    if architecture.skip:
        scores = scores + x @ parameters["skip"].mT
    return Relaxation(scores, tuple(hidden), last, skip, radius)


def _in_inputs(architecture: NetworkArchitecture, weight: Tensor) -> Tensor:
    """Weights on normalised inputs as slopes in the inputs themselves."""
    if architecture.scale is None:
        return weight
    return weight / torch.as_tensor(architecture.scale.copy()).to(weight)


def _unit_ranges(
    weight: Tensor, hidden: tuple[HiddenLayer, ...], radius: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Ranges of `weight . (h(x) - h(c))` for every unit, (N, B, H), and slopes (N, B, H, d).

    Each unit is one combination of the layers below; units are put beside the networks, so that
    the pass backwards is the same as for scores.
    """
    count, units, _ = weight.shape
    repeated = tuple(
        HiddenLayer(
            Lines(*(part.repeat_interleave(units, 0) for part in layer.lines)),
            layer.weight.repeat_interleave(units, 0),
            layer.reach.repeat_interleave(units, 0),
            layer.width.repeat_interleave(units, 0),
        )
        for layer in hidden
    )
    batch = radius.shape[-2]
    if radius.ndim == 3:
        radius = radius.repeat_interleave(units, 0)
    rows = weight.reshape(count * units, 1, -1).expand(-1, batch, -1)
    bounds = [
        _backwards(signed, repeated, radius=radius, start=None, spread=False)
        for signed in (-rows, rows)
    ]
    down, up = -compute_largest(bounds[0], radius), compute_largest(bounds[1], radius)
    shape = (count, units, batch)
    reach = torch.maximum(bounds[0].slope.abs(), bounds[1].slope.abs())
    return (
        down.reshape(shape).transpose(1, 2),
        up.reshape(shape).transpose(1, 2),
        reach.reshape(*shape, -1).transpose(1, 2),
    )
