"""Members whose outputs keep equalities: each computes what is free, and is completed to the rest.

`y = offset + slope x + basis z` keeps `A y = b(x)` whatever z is, so that every mixture does, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import check_inputs, read_state_array
from cg4ai.members.networks import NetworkMembers
from cg4ai.members.slopes import Moves
from cg4ai.members.structure import OutputForm
from cg4ai.members.wrappers import Restored, WrappedArchitecture, WrappedMembers
from cg4ai.nn.completing import FIELDS, CompletionTensors
from cg4ai.protocols import Members, Parameters, Single
from cg4ai.records import Array, MemberState
from cg4ai.rules.equality import Completion
from cg4ai.rules.shapes import Shape


def _check(input_size: int, output_size: int, completion: Completion) -> None:
    if not completion.free_size:
        raise InvalidInput(
            f"the equalities determine all {completion.output_size} outputs and leave nothing to "
            "learn; use completion.project(), or drop some of them",
            code="empty",
        )
    if (input_size, output_size) != (completion.input_size, completion.free_size):
        raise InvalidInput(
            f"a completion takes {completion.input_size} inputs and {completion.free_size} free "
            f"outputs, the members have {input_size} and {output_size}; with as many outputs as "
            f"the {completion.output_size} completed ones use completion.project()",
            code="shape",
        )


class CompletedMembers(WrappedMembers[CompletionTensors]):
    """The members of `inner`, whose outputs z become `offset + slope x + basis z`."""

    kind = "completed"
    part = "completion"

    def __init__(self, inner: Members, completion: Completion) -> None:
        _check(inner.input_size, inner.output_size, completion)
        like = torch.empty(0, dtype=torch.float64, device=inner.device)
        super().__init__(inner, CompletionTensors.of(completion, like))

    @property
    def completion(self) -> Completion:
        return self.layer.completion

    @property
    def output_size(self) -> int:
        return self.completion.output_size

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.completion)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        free, fixed = self.inner.outputs(x), self.layer.compute_fixed_part(x)
        if len(self) == 1:
            return torch.addmm(fixed, free[0], self.layer.basis).unsqueeze(0)
        return free @ self.layer.basis + fixed

    def single(self) -> Single | None:
        inner, own = self.inner.single(), self.completion
        slope, offset, basis = own.slope, own.offset, own.basis.T.copy()
        if inner is None:
            return None
        return lambda x: (inner(x)[0].dot(basis) + (slope.dot(x) + offset), None)

    def mixture(self, inputs: Tensor, weights: Tensor) -> Tensor:
        """`sum_i weights_i outputs_i`: (n, d), (len(self),) -> (n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        free = self.inner.mixture(x, weights)
        return free @ self.layer.basis + weights.sum() * self.layer.compute_fixed_part(x)

    def fold(self) -> NetworkMembers | None:
        """The same outputs by plain networks; None where the members inside have no last layer.

        The basis goes into the last layer, the slope into the connection that skips the others.
        """
        if not isinstance(self.inner, NetworkMembers) or self.inner.architecture.softmax_groups:
            return None
        inner, layer = self.inner.architecture, self.layer
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

    def find_output_forms(self) -> Sequence[OutputForm]:
        made = self.completion
        return [OutputForm(made.offset, made.slope, made.basis)]

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        folded = self.fold()
        return () if folded is None else folded.find_moves(shape)

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner, layer = cls._stored(state, restored)
        parts: dict[str, Any] = {name: read_state_array(layer, name) for name in FIELDS}
        return cls(inner, Completion(**parts))


@dataclass(frozen=True, eq=False)
class CompletedArchitecture(WrappedArchitecture[Completion]):
    """An architecture whose members are completed: training moves only what is free."""

    makes = CompletedMembers
    layered = staticmethod(CompletionTensors.of)

    def __post_init__(self) -> None:
        _check(self.inner.input_size, self.inner.output_size, self.source)

    @property
    def output_size(self) -> int:
        return self.source.output_size

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """As of the architecture inside, whose outputs come nearest to this by completion."""
        inverse = np.linalg.pinv(self.source.basis)
        moved = inverse @ (slopes - self.source.slope)
        return self.inner.initialise_near(
            parameters, moved, inverse @ (offsets - self.source.offset)
        )

    def set_output_unit(self, size: float) -> CompletedArchitecture:
        """As of the architecture inside, whose outputs become completed ones of this size."""
        basis = self.source.basis
        inner = size * np.sqrt(len(basis)) / np.linalg.norm(basis)
        return replace(self, inner=self.inner.set_output_unit(float(inner)))

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        free = self.inner.forward(parameters, inputs)
        layer: CompletionTensors = self._layer(free)
        return layer.complete(free, inputs.to(free.dtype))
