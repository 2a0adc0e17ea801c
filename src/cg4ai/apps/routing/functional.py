"""Link utilisation as a function of demands and splits that can be differentiated and priced."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cg4ai.apps.routing.data import Instance
from cg4ai.errors import InvalidInput
from cg4ai.records import Array, IntArray
from cg4ai.rules.coefficients import AffineCoefficients
from cg4ai.sparse import SparseMatrix


class Utilisation:
    """One function per arc: load over capacity, linear in the splits (a `LinearFunctional`)."""

    def __init__(self, instance: Instance) -> None:
        self.path_demand = instance.path_demand
        self.per_flow: Array = instance.incidence / instance.capacity
        self._sparse = SparseMatrix.of(np.ascontiguousarray(self.per_flow.T))
        self._tensors: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def count(self) -> int:
        return int(self.per_flow.shape[1])

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Demands (k, D), splits (..., k, P) -> utilisation (..., k, A)."""
        demand, per_flow = self._on(outputs)
        if self._sparse is not None and self._sparse.serves(outputs):
            # paths first, as networks lay splits out: the other way everything would be copied
            flows = inputs.mT.index_select(-2, demand) * outputs.mT
            return self._sparse.times(flows).mT
        return (inputs.index_select(-1, demand) * outputs) @ per_flow

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """Demands (m, D), arcs (m,) -> (m, P): d utilisation of that arc / d splits."""
        return np.asarray(inputs[:, self.path_demand] * self.per_flow.T[which])

    def affine(self) -> AffineCoefficients:
        """The coefficients as functions of the demands, for certificates."""
        return _scaled_demands(self.per_flow.T, self.path_demand)

    def _on(self, like: Tensor) -> tuple[Tensor, Tensor]:
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = (
                torch.as_tensor(self.path_demand, device=like.device),
                torch.as_tensor(self.per_flow, dtype=like.dtype, device=like.device),
            )
        return self._tensors[key]


class PathCost:
    """One function: total path cost over that of shortest paths at half demand, linear in splits.

    The cost of a path is its length; the fixed divisor brings values near 1 for training.
    """

    def __init__(self, instance: Instance) -> None:
        shortest = np.array([instance.path_length[block].min() for block in instance.blocks])
        usual = float(shortest @ instance.demand_max / 2)
        if not usual > 0:
            raise InvalidInput(
                f"the objective cost needs path lengths, but every demand of {instance.name} has a "
                "path of length 0; give the links lengths, or use --objective mlu"
            )
        self.path_demand = instance.path_demand
        self.per_flow: Array = instance.path_length / usual

    @property
    def count(self) -> int:
        return 1

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Demands (k, D), splits (..., k, P) -> (..., k, 1)."""
        demand = torch.as_tensor(self.path_demand, device=outputs.device)
        per_flow = torch.as_tensor(self.per_flow, dtype=outputs.dtype, device=outputs.device)
        flows = inputs.index_select(-1, demand) * outputs
        return (flows @ per_flow).unsqueeze(-1)

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """Demands (m, D) -> (m, P)."""
        return np.asarray(inputs[:, self.path_demand] * self.per_flow)

    def affine(self) -> AffineCoefficients:
        """The coefficients as functions of the demands, for certificates."""
        return _scaled_demands(self.per_flow[None], self.path_demand)


def _scaled_demands(per_flow: Array, path_demand: IntArray) -> AffineCoefficients:
    """Coefficient [rule, path] is `per_flow[rule, path]` times the path's demand."""
    rule, path = np.nonzero(per_flow)
    return AffineCoefficients(
        np.zeros(per_flow.shape), rule, path, path_demand[path], per_flow[rule, path]
    )
