"""Outputs completed to keep equalities: `y = offset + slope x + basis z`, whatever z is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cg4ai.records import MemberState
from cg4ai.rules.equality import Completion

FIELDS = ("offset", "slope", "basis")


@dataclass(frozen=True, eq=False)
class CompletionTensors:
    """A completion as tensors (r,), (d, r) and (k, r): what is multiplied by from the right."""

    completion: Completion
    offset: Tensor
    slope: Tensor
    basis: Tensor

    @classmethod
    def of(cls, completion: Completion, like: Tensor) -> CompletionTensors:
        arrays = (completion.offset, completion.slope.T.copy(), completion.basis.T.copy())
        offset, slope, basis = (torch.as_tensor(array).to(like) for array in arrays)
        return cls(completion, offset, slope, basis)

    @property
    def digest(self) -> str:
        return self.completion.digest

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in FIELDS}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> CompletionTensors:
        return CompletionTensors(self.completion, **tensors)

    def state(self) -> MemberState:
        arrays = {name: getattr(self.completion, name) for name in FIELDS}
        return MemberState("completion", {}, arrays)

    def compute_fixed_part(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, r): what the input alone decides."""
        return torch.addmm(self.offset, inputs, self.slope)

    def complete(self, free: Tensor, inputs: Tensor) -> Tensor:
        """(..., n, k), (n, d) -> (..., n, r)."""
        outputs: Tensor = free @ self.basis + (inputs @ self.slope + self.offset)
        return outputs
