"""Members whose outputs keep equalities: each computes what is free, and is completed to the rest.

`y = offset + slope x + basis z` keeps `A y = b(x)` whatever z is, so that every mixture does, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import checked_inputs, state_array, tensor_members
from cg4ai.members.networks import NetworkMembers
from cg4ai.protocols import Architecture, Members, Parameters
from cg4ai.records import Array, IntArray, MemberState, below
from cg4ai.rules.equality import Completion
from cg4ai.runs import files

FIELDS = ("offset", "slope", "basis")


@dataclass(frozen=True)
class _Layer:
    """A completion as tensors (r,), (d, r) and (k, r): what is multiplied by from the right."""

    offset: Tensor
    slope: Tensor
    basis: Tensor

    @classmethod
    def of(cls, completion: Completion, like: Tensor) -> _Layer:
        arrays = (completion.offset, completion.slope.T.copy(), completion.basis.T.copy())
        offset, slope, basis = (torch.as_tensor(array).to(like) for array in arrays)
        return cls(offset, slope, basis)

    def fixed(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, r): what the input alone decides."""
        return torch.addmm(self.offset, inputs, self.slope)


def _check(input_size: int, output_size: int, completion: Completion) -> None:
    if not completion.free_size:
        raise InvalidInput(
            f"the equalities determine all {completion.output_size} outputs and leave nothing to "
            "learn; use completion.projected(), or drop some of them"
        )
    if (input_size, output_size) != (completion.input_size, completion.free_size):
        raise InvalidInput(
            f"a completion takes {completion.input_size} inputs and {completion.free_size} free "
            f"outputs, the members have {input_size} and {output_size}; with as many outputs as "
            f"the {completion.output_size} completed ones use completion.projected()"
        )


class CompletedMembers:
    """The members of `inner`, whose outputs z become `offset + slope x + basis z`."""

    kind = "completed"

    def __init__(self, inner: Members, completion: Completion) -> None:
        _check(inner.input_size, inner.output_size, completion)
        self.inner, self.completion = inner, completion
        self._layer = _Layer.of(completion, torch.empty(0, dtype=torch.float64, device=self.device))

    @property
    def device(self) -> torch.device:
        return self.inner.device

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.completion.output_size

    @property
    def differentiable(self) -> bool:
        return self.inner.differentiable

    def __len__(self) -> int:
        return len(self.inner)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = checked_inputs(inputs, self.input_size, self.device)
        free, fixed = self.inner.outputs(x), self._layer.fixed(x)
        if len(self) == 1:
            return torch.addmm(fixed, free[0], self._layer.basis).unsqueeze(0)
        return free @ self._layer.basis + fixed

    def mixture(self, inputs: Tensor, weights: Tensor) -> Tensor:
        """`sum_i weights_i outputs_i`: (n, d), (len(self),) -> (n, output_size)."""
        x = checked_inputs(inputs, self.input_size, self.device)
        mix: Callable[[Tensor, Tensor], Tensor] | None = getattr(self.inner, "mixture", None)
        if mix is None:
            free = torch.einsum("m,mnk->nk", weights, self.inner.outputs(x))
        else:
            free = mix(x, weights)
        return free @ self._layer.basis + weights.sum() * self._layer.fixed(x)

    def take(self, indices: IntArray) -> Self:
        return type(self)(self.inner.take(indices), self.completion)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.inner.to(device), self.completion)

    def around(self, inner: Members) -> Self:
        """Other members, completed alike."""
        return type(self)(inner, self.completion)

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack, as far as their completions go."""
        return self.completion.digest == other.completion.digest

    def folded(self) -> NetworkMembers | None:
        """The same outputs by plain networks; None where the members inside have no last layer.

        The basis goes into the last layer, the slope into the connection that skips the others.
        """
        if not isinstance(self.inner, NetworkMembers) or self.inner.architecture.softmax_groups:
            return None
        inner, layer = self.inner.architecture, self._layer
        depth, parameters = inner.depth, dict(self.inner.parameters)
        units = inner.units(self.device)
        shift = units.get("shift", torch.zeros_like(layer.slope[:, 0]))
        slope = layer.slope * units.get("scale", torch.ones_like(layer.slope[:, 0]))[:, None]
        basis = layer.basis.T
        last, bias = f"weight_{depth}", f"bias_{depth}"
        parameters[last] = basis @ parameters[last]
        parameters[bias] = parameters[bias] @ layer.basis + layer.offset + shift @ layer.slope
        skips = inner.skip or (depth > 0 and bool(layer.slope.any()))
        if depth == 0:
            parameters[last] = parameters[last] + slope.T
        elif skips:
            skipped = basis @ parameters["skip"] if inner.skip else 0.0
            parameters["skip"] = skipped + slope.T.expand(len(self), -1, -1)
        return NetworkMembers(replace(inner, output_size=self.output_size, skip=skips), parameters)

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        own = tensor_members(self.inner).tensors()
        layer = {f"completion.{name}": getattr(self._layer, name) for name in FIELDS}
        return {f"inner.{name}": tensor for name, tensor in own.items()} | layer

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        made.inner = tensor_members(self.inner).with_tensors(below(tensors, "inner."))
        made._layer = _Layer(**below(tensors, "completion."))
        return made

    def state(self) -> MemberState:
        inner = self.inner.state()
        arrays = {f"inner.{name}": array for name, array in inner.arrays.items()}
        arrays |= {f"completion.{name}": getattr(self.completion, name) for name in FIELDS}
        return MemberState(self.kind, {"inner": files.member_record(inner)}, arrays)

    @classmethod
    def restore(
        cls,
        state: MemberState,
        restored: Callable[[MemberState], Members],
        factories: Mapping[str, Any],
    ) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner = files.member_state(state.config.get("inner"), below(state.arrays, "inner."))
        parts: dict[str, Any] = {name: state_array(state, f"completion.{name}") for name in FIELDS}
        return cls(restored(inner), Completion(**parts))


@dataclass(frozen=True, eq=False)
class CompletedArchitecture:
    """An architecture whose members are completed: training moves only what is free."""

    inner: Architecture
    completion: Completion

    def __post_init__(self) -> None:
        _check(self.inner.input_size, self.inner.output_size, self.completion)
        object.__setattr__(self, "_layers", {})

    @property
    def input_size(self) -> int:
        return self.inner.input_size

    @property
    def output_size(self) -> int:
        return self.completion.output_size

    @property
    def scale_outputs(self) -> Callable[[Parameters, Tensor], Parameters]:
        """Of the free outputs z: what the equalities decide stays as it is."""
        scale: Callable[[Parameters, Tensor], Parameters] = self.inner.scale_outputs  # type: ignore[attr-defined]
        return scale

    def initialise(self, count: int, generator: torch.Generator) -> Parameters:
        return self.inner.initialise(count, generator)

    def starting_at(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """As of the architecture inside, whose outputs come nearest to this by completion."""
        start = getattr(self.inner, "starting_at", None)
        if start is None:
            return parameters
        inverse = np.linalg.pinv(self.completion.basis)
        moved = inverse @ (slopes - self.completion.slope)
        made: Parameters = start(parameters, moved, inverse @ (offsets - self.completion.offset))
        return made

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        free = self.inner.forward(parameters, inputs)
        layer = self._layer(free)
        x = inputs.to(free.dtype)
        return free @ layer.basis + (x @ layer.slope + layer.offset)

    def _layer(self, like: Tensor) -> _Layer:
        known: dict[tuple[torch.dtype, torch.device], _Layer] = self._layers  # type: ignore[attr-defined]
        key = (like.dtype, like.device)
        if key not in known:
            with torch.inference_mode(False):
                known[key] = _Layer.of(self.completion, like)
        return known[key]

    def members(self, parameters: Parameters) -> CompletedMembers:
        return CompletedMembers(self.inner.members(parameters), self.completion)

    def parameters(self, members: Members) -> Parameters | None:
        """Those of members of this architecture, completed like these or not at all."""
        if isinstance(members, CompletedMembers):
            if members.completion.digest != self.completion.digest:
                return None
            members = members.inner
        return self.inner.parameters(members)
