"""Outputs moved into a fixed convex set, of ranges, orders and sums, whatever they were.

Sorting never increases a pinball loss, and neither sorting nor clamping turns anything monotone
round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cg4ai.records import MemberState
from cg4ai.rules.output_sets import OutputSet

LARGEST = {torch.float32: 1e30, torch.float64: 1e100}  # what infinite outputs count as

Clamp = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class SetTensors:
    """An output set as tensors: ends (r,), and the positions of each chain and of each total.

    Outputs are sorted along each chain, then become `clamp(z - tau, low, high)` with tau 0, or,
    where they have a total, the one number that gives it.
    """

    source: OutputSet
    low: Tensor
    high: Tensor
    chains: tuple[Tensor, ...]
    totals: tuple[Tensor, ...]

    @classmethod
    def of(cls, source: OutputSet, like: Tensor) -> SetTensors:
        low, high = (torch.as_tensor(end).to(like) for end in (source.low, source.high))
        chains, totals = (
            tuple(torch.tensor(one, device=like.device) for one in positions)
            for positions in (source.chains, [one.outputs for one in source.totals])
        )
        return cls(source, low, high, chains, totals)

    @property
    def digest(self) -> str:
        return self.source.digest

    def tensors(self) -> dict[str, Tensor]:
        named = {"low": self.low, "high": self.high}
        named |= {f"chain_{number}": one for number, one in enumerate(self.chains)}
        return named | {f"total_{number}": one for number, one in enumerate(self.totals)}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> SetTensors:
        chains, totals = (
            tuple(tensors[f"{name}_{number}"] for number in range(len(own)))
            for name, own in (("chain", self.chains), ("total", self.totals))
        )
        return SetTensors(self.source, tensors["low"], tensors["high"], chains, totals)

    def state(self) -> MemberState:
        config = {
            "chains": [list(one) for one in self.source.chains],
            "totals": [[list(one.outputs), one.value] for one in self.source.totals],
        }
        return MemberState("set", config, {"low": self.source.low, "high": self.source.high})

    def move_into_set(self, outputs: Tensor, clamp: Clamp = torch.clamp) -> Tensor:
        """(..., r) -> (..., r) in the set, whatever the outputs are; not a number counts as 0."""
        most = LARGEST.get(outputs.dtype, 1e4)
        z = torch.nan_to_num(outputs, nan=0.0, posinf=most, neginf=-most)
        for chain in self.chains:
            z = z.index_copy(-1, chain, z.index_select(-1, chain).sort(-1).values)
        found = clamp(z, self.low, self.high)
        for positions, total in zip(self.totals, self.source.totals, strict=True):
            ends = self.low[positions], self.high[positions]
            own = _summing(z.index_select(-1, positions), *ends, total.value, clamp)
            found = found.index_copy(-1, positions, own)
        return found


def _summing(z: Tensor, low: Tensor, high: Tensor, total: float, clamp: Clamp) -> Tensor:
    """`clamp(z - tau, low, high)` with the sum `total`: nearest to z in box and sum, (..., k)."""
    z = z - z.detach().amax(-1, keepdim=True)  # tau moves by as much, and keeps its digits
    y = clamp(z - _tau(z, low, high, total), low, high)
    return y + distribute_remainder(y.detach(), low, high, total)


def _tau(z: Tensor, low: Tensor, high: Tensor, total: float) -> Tensor:
    """(..., 1): where the sum, which falls with tau, has the value `total`.

    The sum is linear between the points at which an output meets an end. Binary search finds the
    last of them with a sum of at least the total; behind it the outputs that are free tell tau.
    """
    with torch.no_grad():
        points = torch.cat([z - high, z - low], -1).sort(-1).values
        last = int(points.shape[-1]) - 1  # a tensor while torch.jit traces
        place = torch.zeros_like(points[..., :1], dtype=torch.int64)
        for bit in reversed(range(last.bit_length())):
            ahead = place + 2**bit
            at = points.gather(-1, ahead.clamp_max(last))
            enough = torch.clamp(z - at, low, high).sum(-1, keepdim=True) >= total
            place = torch.where(enough & (ahead <= last), ahead, place)
        left = points.gather(-1, place)
        right = points.gather(-1, (place + 1).clamp_max(last))
        free = (z - high <= left) & (z - low >= right)
        fixed = torch.where(free, 0.0, torch.where(z - low <= left, low, high))
        count = free.sum(-1, keepdim=True)
    among = torch.where(free, z, 0.0) + fixed
    tau = (among.sum(-1, keepdim=True) - total) / count.clamp_min(1)
    return torch.where(count > 0, tau, left)


def distribute_remainder(y: Tensor, low: Tensor, high: Tensor, total: float) -> Tensor:
    """What rounding left of the total, shared by the outputs as their room allows.

    All are moved by the same share of the way to their ends, or those without an end by the same
    number, so that outputs in order stay so.
    """
    rest = total - y.sum(-1, keepdim=True)
    room = torch.where(rest > 0, high - y, y - low)
    endless = torch.isinf(room)
    room = torch.where(endless.any(-1, keepdim=True), endless.to(y.dtype), room)
    most = room.sum(-1, keepdim=True)
    return rest * room / torch.where(most > 0, most, 1.0)


class _Inward(torch.autograd.Function):
    """Clamps; a gradient that leads back inside passes where a number lies outside.

    Else members that begin outside would learn nothing.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return torch.clamp(z, low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)  # apart from `forward`, as `torch.func` asks for

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        z, low, high = ctx.saved_tensors
        (gradient,) = gradients
        passes = ((z >= low) | (gradient < 0)) & ((z <= high) | (gradient > 0))
        return torch.where(passes, gradient, 0.0), None, None


def clamp_inward(z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    clamped: Tensor = _Inward.apply(z, low, high)  # type: ignore[no-untyped-call]
    return clamped
