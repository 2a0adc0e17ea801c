"""Members that give the same outputs at every input, such as a static routing as an anchor."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import (
    as_array,
    check_indices,
    check_inputs,
    check_size,
    freeze_tensor,
    read_state_array,
    read_state_field,
)
from cg4ai.members.slopes import Moves
from cg4ai.members.structure import EXACT, Hulls, OutputForm
from cg4ai.protocols import MemberDefaults, Single
from cg4ai.records import Array, IntArray, MemberState
from cg4ai.rules.shapes import Shape


class ConstantMembers(MemberDefaults):
    """`values` (count, r): what each member returns, whatever the input of `input_size` numbers."""

    kind = "constant"
    differentiable = True
    takes_missing = True

    def __init__(self, values: Any, input_size: int) -> None:
        self.values = freeze_tensor(values, "values")
        if self.values.ndim != 2 or self.values.shape[1] == 0:
            raise InvalidInput(
                f"values must be (count, outputs), got {tuple(self.values.shape)}", code="shape"
            )
        self.input_size = check_size(input_size, "input_size")
        self.device = self.values.device

    @property
    def output_size(self) -> int:
        return self.values.shape[1]

    def __len__(self) -> int:
        return self.values.shape[0]

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size), a view of one copy of the values.

        Inputs that require a gradient get one: zero.
        """
        x = check_inputs(inputs, self.input_size, self.device)
        repeated = self.values.unsqueeze(1).expand(-1, x.shape[0], -1)
        if x.requires_grad:
            return repeated + 0.0 * x.sum(1)[None, :, None]
        return repeated

    def mixtures(self, inputs: Tensor, shares: Tensor) -> Tensor:
        """Several mixtures of these members at once: shares (k, len(self)) -> (k, n, outputs)."""
        x = check_inputs(inputs, self.input_size, self.device)
        mixed = (shares @ self.values).unsqueeze(1).expand(-1, x.shape[0], -1)
        return mixed + 0.0 * x.sum(1)[None, :, None] if x.requires_grad else mixed

    def single(self) -> Single | None:
        values = self.values.detach().numpy()
        return lambda _: (values, None)

    def take(self, indices: IntArray) -> Self:
        chosen = self.values[check_indices(indices, len(self), self.device)]
        return type(self)(chosen, self.input_size)

    def to(self, device: torch.device | str) -> Self:
        return type(self)(self.values.to(device), self.input_size)

    def compatible(self, other: Self) -> bool:
        """Whether both can be one stack."""
        sizes = (self.input_size, self.output_size, self.device)
        return sizes == (other.input_size, other.output_size, other.device)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One stack of several that are compatible."""
        return cls(torch.cat([part.values for part in parts]), parts[0].input_size)

    def trained_names(self) -> frozenset[str]:
        """Those of `tensors` that training moves."""
        return frozenset({"values"})

    def tensors(self) -> dict[str, Tensor]:
        """What outputs are computed from."""
        return {"values": self.values}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Self:
        """The same members with other tensors of these names, which are not looked at."""
        made = copy.copy(self)
        made.values = tensors["values"]
        made.device = made.values.device
        return made

    def gives_shares(self) -> bool:
        return bool((self.values >= -EXACT).all() and (self.values <= 1 + EXACT).all())

    def find_output_forms(self) -> Sequence[OutputForm]:
        size = self.output_size
        slope, basis = np.zeros((size, self.input_size)), np.zeros((size, 0))
        return [OutputForm(values, slope, basis) for values in self.values.cpu().numpy()]

    def find_set_forms(self, matrix: Array) -> Sequence[Hulls]:
        own = self.values.cpu().numpy()
        return [Hulls(values[None], np.zeros(1, np.int64)) for values in own]

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        return list(np.zeros((len(self), 1, self.input_size, 4), bool))

    def state(self) -> MemberState:
        return MemberState(
            self.kind, {"input_size": self.input_size}, {"values": as_array(self.values)}
        )

    @classmethod
    def restore(cls, state: MemberState) -> Self:
        """Members from a saved state; anything missing or misshapen is named."""
        return cls(read_state_array(state, "values"), read_state_field(state, "input_size", int))
