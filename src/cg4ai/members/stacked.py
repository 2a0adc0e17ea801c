"""Trained members of one architecture as stacked parameters: what kinds of networks share."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from cg4ai.members.checks import (
    check_indices,
    check_inputs,
    check_stack,
    find_common_device,
    freeze_tensor,
)
from cg4ai.protocols import MemberDefaults, Parameters
from cg4ai.records import IntArray


class Stackable(Protocol):
    """An architecture whose members are parameters alone; equal ones have the same outputs."""

    @property
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    def shapes(self) -> dict[str, tuple[int, ...]]: ...

    def forward_in_chunks(self, parameters: Parameters, inputs: Tensor) -> Tensor: ...


ArchitectureT = TypeVar("ArchitectureT", bound=Stackable)


class StackedMembers(MemberDefaults, Generic[ArchitectureT]):
    """Members of one architecture, float64; parameters are copied and fixed.

    They are in the architecture's order, whatever order they are given in: training and files of
    restored members are those of the members that were saved, bit for bit.
    """

    kind: ClassVar[str]
    differentiable = True

    def __init__(self, architecture: ArchitectureT, parameters: Mapping[str, Any]) -> None:
        self.architecture = architecture
        given = {
            name: freeze_tensor(value, f"parameter {name}") for name, value in parameters.items()
        }
        shapes = architecture.shapes()
        check_stack(given, shapes, f"parameters of {self.kind} members")
        self.parameters: Parameters = {name: given[name] for name in shapes}
        self.device = find_common_device(self.parameters)

    @property
    def input_size(self) -> int:
        return self.architecture.input_size

    @property
    def output_size(self) -> int:
        return self.architecture.output_size

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size) float64; memory beyond that stays small."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.architecture.forward_in_chunks(self.parameters, x)

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset(self.parameters)

    def take(self, indices: IntArray) -> Self:
        positions = check_indices(indices, len(self), self.device)
        return self._known({name: tensor[positions] for name, tensor in self.parameters.items()})

    def to(self, device: torch.device | str) -> Self:
        if torch.empty(0, device=device).device == self.device:
            return self
        return self._known({name: tensor.to(device) for name, tensor in self.parameters.items()})

    def _known(self, parameters: Parameters) -> Self:
        """Members of parameters that were checked, and copied, when these here were made."""
        made = copy.copy(self)
        made.parameters, made.device = parameters, next(iter(parameters.values())).device
        return made

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack."""
        return self.architecture == other.architecture and self.device == other.device

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible."""
        joined = {
            name: torch.cat([part.parameters[name] for part in parts])
            for name in parts[0].parameters
        }
        return cls(parts[0].architecture, joined)
