"""Link utilisation as a function of demands and splits that can be differentiated and priced."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cg4ai.records import Array, IntArray
from cg4ai.routing.data import Instance


class Utilisation:
    """One function per arc: load over capacity, linear in the splits (a `LinearFunctional`)."""

    def __init__(self, instance: Instance) -> None:
        self.path_demand = instance.path_demand
        self.per_flow: Array = instance.incidence / instance.capacity
        self._tensors: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def count(self) -> int:
        return int(self.per_flow.shape[1])

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Demands (k, D), splits (..., k, P) -> utilisation (..., k, A)."""
        demand, per_flow = self._on(outputs)
        return (inputs.index_select(-1, demand) * outputs) @ per_flow

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """Demands (m, D), arcs (m,) -> (m, P): d utilisation of that arc / d splits."""
        return np.asarray(inputs[:, self.path_demand] * self.per_flow.T[which])

    def _on(self, like: Tensor) -> tuple[Tensor, Tensor]:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = (
                torch.as_tensor(self.path_demand, device=like.device),
                torch.as_tensor(self.per_flow, dtype=like.dtype, device=like.device),
            )
        return self._tensors[key]
