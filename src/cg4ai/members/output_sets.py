"""Members whose outputs lie in a fixed convex set: ranges, orders and sums, whatever they compute.

Outputs are sorted along each chain, then become `clamp(z - tau, low, high)` with tau 0, or, where
they have a total, the one number that gives it. Sorting never increases a pinball loss, and neither
sorting nor clamping turns anything monotone round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import check_inputs, read_state_array
from cg4ai.members.wrappers import Restored, WrappedArchitecture, WrappedMembers
from cg4ai.protocols import Members, Parameters
from cg4ai.records import Array, MemberState
from cg4ai.rules.output_sets import OutputSet, Total

LARGEST = {torch.float32: 1e30, torch.float64: 1e100}  # what infinite outputs count as

Clamp = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class _OutputSetLayer:
    """An output set as tensors: ends (r,), and the positions of each chain and of each total."""

    source: OutputSet
    low: Tensor
    high: Tensor
    chains: tuple[Tensor, ...]
    totals: tuple[Tensor, ...]

    @classmethod
    def of(cls, source: OutputSet, like: Tensor) -> _OutputSetLayer:
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

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> _OutputSetLayer:
        chains, totals = (
            tuple(tensors[f"{name}_{number}"] for number in range(len(own)))
            for name, own in (("chain", self.chains), ("total", self.totals))
        )
        return _OutputSetLayer(self.source, tensors["low"], tensors["high"], chains, totals)

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


def move_into_set(source: OutputSet, outputs: Array) -> Array:
    """(..., r) numbers, moved into the set as outputs of members are."""
    z = torch.as_tensor(outputs, dtype=torch.float64)
    return np.asarray(_OutputSetLayer.of(source, z).move_into_set(z).numpy())


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

    @staticmethod
    def forward(ctx: Any, z: Tensor, low: Tensor, high: Tensor) -> Tensor:
        ctx.save_for_backward(z, low, high)
        return torch.clamp(z, low, high)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        z, low, high = ctx.saved_tensors
        (gradient,) = gradients
        passes = ((z >= low) | (gradient < 0)) & ((z <= high) | (gradient > 0))
        return torch.where(passes, gradient, 0.0), None, None


def _inward(z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    clamped: Tensor = _Inward.apply(z, low, high)  # type: ignore[no-untyped-call]
    return clamped


def _check(output_size: int, source: OutputSet) -> None:
    if output_size != source.output_size:
        raise InvalidInput(
            f"a set of {source.output_size} outputs cannot be put around members with {output_size}"
        )


def _numbers(stored: Any) -> tuple[int, ...]:
    """Numbers of outputs, as they are stored."""
    if not isinstance(stored, list) or any(type(one) is not int for one in stored):
        raise TypeError(f"outputs are named by integers, got {stored!r:.80}")
    return tuple(stored)


def _total(outputs: Any, value: Any) -> Total:
    if type(value) is not float:
        raise TypeError(f"a total is a float, got {value!r:.80}")
    return Total(_numbers(outputs), value)


class ArrangedMembers(WrappedMembers[_OutputSetLayer]):
    """The members of `inner`, whose outputs are moved into `source`."""

    kind = "arranged"
    part = "set"
    blind = True

    def __init__(self, inner: Members, source: OutputSet) -> None:
        _check(inner.output_size, source)
        like = torch.empty(0, dtype=torch.float64, device=inner.device)
        super().__init__(inner, _OutputSetLayer.of(source, like))

    @property
    def output_set(self) -> OutputSet:
        return self.layer.source

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.output_set)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.layer.move_into_set(self.inner.outputs(x))

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner, layer = cls._stored(state, restored)
        try:
            chains = tuple(map(_numbers, layer.config["chains"]))
            totals = tuple(_total(*one) for one in layer.config["totals"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"arranged members need chains and totals, got {layer.config!r:.80}"
            ) from error
        low, high = (read_state_array(layer, name) for name in ("low", "high"))
        return cls(inner, OutputSet(low, high, chains, totals).validate())


@dataclass(frozen=True, eq=False)
class ArrangedArchitecture(WrappedArchitecture[OutputSet]):
    """An architecture whose members are arranged: gradients reach the parameters through it."""

    makes = ArrangedMembers
    layered = staticmethod(_OutputSetLayer.of)

    def __post_init__(self) -> None:
        _check(self.inner.output_size, self.source)

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """As of the architecture inside: outputs in the set stay as they are."""
        return self.inner.initialise_near(parameters, slopes, offsets)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        outputs = self.inner.forward(parameters, inputs)
        moved: Tensor = self._layer(outputs).move_into_set(outputs, _inward)
        return moved
