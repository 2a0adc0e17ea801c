"""Link utilisation as a function of demands and splits that can be differentiated and priced."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cg4ai.data import Array, IntArray, SparseMatrix
from cg4ai.errors import InvalidInput
from cg4ai.routing.network.instance import Instance
from cg4ai.rules import AffineCoefficients


class _OfFlows:
    """Functions linear in the flows of paths, each `per_flow` (P, functions): a `LinearFunctional`.

    A flow is the demand of its path times its share.
    """

    def __init__(self, path_demand: IntArray, per_flow: Array) -> None:
        self.path_demand, self.per_flow = path_demand, per_flow
        self._tensors: dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    @property
    def count(self) -> int:
        return int(self.per_flow.shape[1])

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Demands (k, D), splits (..., k, P) -> (..., k, functions)."""
        demand, per_flow = self._on(outputs)
        return (inputs.index_select(-1, demand) * outputs) @ per_flow

    def coefficients(self, inputs: Array, which: IntArray) -> Array:
        """Demands (m, D), functions (m,) -> (m, P): d function / d splits."""
        return np.asarray(inputs[:, self.path_demand] * self.per_flow.T[which])

    def affine(self) -> AffineCoefficients:
        """The coefficients as functions of the demands, for certificates."""
        return _scaled_demands(self.per_flow.T, self.path_demand)

    def _on(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Kept: a recorded step must copy nothing from the host."""
        key = (like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = (
                torch.as_tensor(self.path_demand, device=like.device),
                torch.as_tensor(self.per_flow, dtype=like.dtype, device=like.device),
            )
        return self._tensors[key]


class Utilisation(_OfFlows):
    """One function per arc: load over capacity; or others, as `per_flow` (P, functions) says."""

    def __init__(self, instance: Instance, per_flow: Array | None = None) -> None:
        whole = instance.incidence / instance.capacity if per_flow is None else per_flow
        super().__init__(instance.path_demand, whole)
        self._sparse = SparseMatrix.of(np.ascontiguousarray(self.per_flow.T))

    def values(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Demands (k, D), splits (..., k, P) -> utilisation (..., k, A)."""
        if self._sparse is None or not self._sparse.can_multiply(outputs):
            return super().values(inputs, outputs)
        # paths first, as networks lay splits out: the other way everything would be copied
        flows = inputs.mT.index_select(-2, self._on(outputs)[0]) * outputs.mT
        return self._sparse.multiply(flows).mT


class PathCost(_OfFlows):
    """One function: total path cost over that of shortest paths at half demand.

    The cost of a path is its length; the fixed divisor brings values near 1 for training.
    """

    def __init__(self, instance: Instance) -> None:
        shortest = np.array([instance.path_length[block].min() for block in instance.blocks])
        usual = float(shortest @ instance.demand_max / 2)
        if not usual > 0:
            raise InvalidInput(
                f"the objective cost needs path lengths, but every demand of {instance.name} has a "
                "path of length 0; give the links lengths, or use --objective mlu",
                code="unsupported",
            )
        super().__init__(instance.path_demand, (instance.path_length / usual)[:, None])


def _scaled_demands(per_flow: Array, path_demand: IntArray) -> AffineCoefficients:
    """Coefficient [rule, path] is `per_flow[rule, path]` times the path's demand."""
    rule, path = np.nonzero(per_flow)
    return AffineCoefficients(
        np.zeros(per_flow.shape), rule, path, path_demand[path], per_flow[rule, path]
    )
