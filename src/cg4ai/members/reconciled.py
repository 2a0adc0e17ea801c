"""Members whose outputs keep balances beside ranges and orders, such as hierarchies above zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.members.checks import check_inputs, read_state_array
from cg4ai.members.structure import Hulls, OutputForm, SetForm
from cg4ai.members.wrappers import Restored, WrappedArchitecture, WrappedMembers
from cg4ai.nn.reconciling import ReconciliationTensors
from cg4ai.nn.set_projection import clamp_inward
from cg4ai.protocols import Members, Parameters, Single
from cg4ai.records import Array, MemberState
from cg4ai.rules.output_sets import OutputSet
from cg4ai.rules.reconciliation import ARRAYS, Reconciliation


def _check(sizes: tuple[int, int], source: Reconciliation) -> None:
    if sizes != (source.input_size, source.output_size):
        raise InvalidInput(
            f"a reconciliation takes {source.input_size} inputs and {source.output_size} outputs, "
            f"the members have {sizes[0]} and {sizes[1]}",
            code="shape",
        )


class Reconciled(NamedTuple):
    """Where reconciled outputs lie; what is known of a row is said by the reconciliation."""

    source: Reconciliation

    def compute_least(self, matrix: Array) -> Array:
        return self.source.compute_least(matrix)

    def compute_sizes(self) -> Array:
        return self.source.compute_sizes()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As the checker reads them, `chain` and `rank` (k,) of the free outputs; -1 in none."""
        own = self.source
        chain, rank = (np.full(len(own.free), -1, np.int64) for _ in range(2))
        for number, one in enumerate(own.chains):
            chain[list(one)], rank[list(one)] = number, np.arange(len(one))
        named = {name: getattr(own, name) for name in ("offset", "slope", "basis", "low")}
        rows = {"row": own.matrix, "least": own.bound}
        return {**named, "negated": -own.high, "chain": chain, "rank": rank, **rows}


class ReconciledMembers(WrappedMembers[ReconciliationTensors]):
    """The members of `inner`, whose outputs are reconciled."""

    kind = "reconciled"
    part = "reconciliation"

    def __init__(self, inner: Members, source: Reconciliation) -> None:
        _check((inner.input_size, inner.output_size), source)
        like = torch.empty(0, dtype=torch.float64, device=inner.device)
        super().__init__(inner, ReconciliationTensors.of(source, like))

    @property
    def reconciliation(self) -> Reconciliation:
        return self.layer.source

    @property
    def output_set(self) -> OutputSet:
        """The ends that outputs keep; not the balances, which mixtures keep but for rounding."""
        return self.reconciliation.output_set

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.reconciliation)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.layer.reconcile(x, self.inner.outputs(x))

    def single(self) -> Single | None:
        inner, layer = self.inner.single(), self.layer
        if inner is None:
            return None
        return lambda x: (
            layer.reconcile(torch.from_numpy(x), torch.from_numpy(inner(x)[0])).numpy(),
            None,
        )

    def gives_shares(self) -> bool:
        return bool((self.output_set.low >= 0).all() and (self.output_set.high <= 1).all())

    def find_output_forms(self) -> Sequence[OutputForm]:
        own = self.reconciliation
        made = [OutputForm(own.offset, own.slope, own.basis)]
        if len(own.bound):  # outputs lie between these and the anchor
            size = own.output_size
            made.append(OutputForm(own.anchor, np.zeros_like(own.slope), np.zeros((size, 0))))
        return made

    def find_set_forms(self, matrix: Array) -> Sequence[SetForm]:
        own = self.reconciliation
        made: list[SetForm] = [Reconciled(own)]
        if len(own.bound):
            made.append(Hulls(own.anchor[None], np.zeros(1, np.int64)))
        return made

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner, layer = cls._stored(state, restored)
        chains = layer.config.get("chains")
        if not isinstance(chains, list) or not all(
            isinstance(chain, list) and all(type(one) is int for one in chain) for chain in chains
        ):
            raise InvalidInput(
                f"reconciled members need chains, got {layer.config!r:.80}", code="bad-file"
            )
        arrays: dict[str, Any] = {name: read_state_array(layer, name) for name in ARRAYS}
        return cls(inner, Reconciliation(**arrays, chains=tuple(map(tuple, chains))))


@dataclass(frozen=True, eq=False)
class ReconciledArchitecture(WrappedArchitecture[Reconciliation]):
    """An architecture whose members are reconciled: gradients reach the parameters through it."""

    makes = ReconciledMembers
    layered = staticmethod(ReconciliationTensors.of)

    def __post_init__(self) -> None:
        _check((self.inner.input_size, self.inner.output_size), self.source)

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """As of the architecture inside: outputs in the set stay as they are."""
        return self.inner.initialise_near(parameters, slopes, offsets)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        outputs = self.inner.forward(parameters, inputs)
        layer: ReconciliationTensors = self._layer(outputs)
        return layer.reconcile(inputs, outputs, clamp_inward)
