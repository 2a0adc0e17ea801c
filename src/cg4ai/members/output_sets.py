"""Members whose outputs lie in a fixed convex set: ranges, orders and sums, whatever they compute.

Outputs are sorted along each chain, then become `clamp(z - tau, low, high)` with tau 0, or, where
they have a total, the one number that gives it. Sorting never increases a pinball loss, and neither
sorting nor clamping turns anything monotone round.
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
from cg4ai.members.slopes import Moves, map_into_set
from cg4ai.members.structure import Arrangement
from cg4ai.members.wrappers import Restored, WrappedArchitecture, WrappedMembers
from cg4ai.nn.set_projection import SetTensors, clamp_inward
from cg4ai.protocols import Members, Parameters, Single
from cg4ai.records import Array, MemberState
from cg4ai.rules.caps import Caps, survives
from cg4ai.rules.output_sets import OutputSet, Total
from cg4ai.rules.shapes import Shape


def move_into_set(source: OutputSet, outputs: Array) -> Array:
    """(..., r) numbers, moved into the set as outputs of members are."""
    z = torch.as_tensor(outputs, dtype=torch.float64)
    return np.asarray(SetTensors.of(source, z).move_into_set(z).numpy())


def _check(output_size: int, source: OutputSet) -> None:
    if output_size != source.output_size:
        raise InvalidInput(
            f"a set of {source.output_size} outputs cannot be put around members with "
            f"{output_size}",
            code="shape",
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


class ArrangedMembers(WrappedMembers[SetTensors]):
    """The members of `inner`, whose outputs are moved into `source`."""

    kind = "arranged"
    part = "set"
    blind = True

    def __init__(self, inner: Members, source: OutputSet) -> None:
        _check(inner.output_size, source)
        like = torch.empty(0, dtype=torch.float64, device=inner.device)
        super().__init__(inner, SetTensors.of(source, like))

    @property
    def output_set(self) -> OutputSet:
        return self.layer.source

    @property
    def caps(self) -> Caps | None:
        """Those of the members inside, where moving outputs into the set keeps them."""
        own = self.inner.caps
        return own if own is not None and survives(own, self.output_set) else None

    def wrap(self, inner: Members) -> Self:
        return type(self)(inner, self.output_set)

    def outputs(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (len(self), n, output_size)."""
        x = check_inputs(inputs, self.input_size, self.device)
        return self.layer.move_into_set(self.inner.outputs(x))

    def single(self) -> Single | None:
        inner, layer = self.inner.single(), self.layer
        if inner is None:
            return None
        return lambda x: (layer.move_into_set(torch.from_numpy(inner(x)[0])).numpy(), None)

    def gives_shares(self) -> bool:
        return bool((self.output_set.low >= 0).all() and (self.output_set.high <= 1).all())

    def find_set_forms(self, matrix: Array) -> Sequence[Arrangement]:
        return [Arrangement.of(self.output_set)]

    def find_moves(self, shape: Shape) -> Sequence[Moves]:
        if shape.logits or shape.ordered:
            return ()
        size = self.output_size
        every = replace(shape, output=None)  # sorting makes each output one of several
        asked = np.flatnonzero(shape.functionals(size).any(axis=0))
        found = self.inner.find_moves(every)
        whole = (np.broadcast_to(one, (size, *one.shape[1:])) for one in found)
        return [map_into_set(one, self.output_set)[asked] for one in whole]

    @classmethod
    def restore(cls, state: MemberState, restored: Restored, factories: Mapping[str, Any]) -> Self:
        """Members from a saved state; `restored` makes the members inside."""
        inner, layer = cls._stored(state, restored)
        try:
            chains = tuple(map(_numbers, layer.config["chains"]))
            totals = tuple(_total(*one) for one in layer.config["totals"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"arranged members need chains and totals, got {layer.config!r:.80}",
                code="bad-file",
            ) from error
        low, high = (read_state_array(layer, name) for name in ("low", "high"))
        return cls(inner, OutputSet(low, high, chains, totals).validate())


@dataclass(frozen=True, eq=False)
class ArrangedArchitecture(WrappedArchitecture[OutputSet]):
    """An architecture whose members are arranged: gradients reach the parameters through it."""

    makes = ArrangedMembers
    layered = staticmethod(SetTensors.of)

    def __post_init__(self) -> None:
        _check(self.inner.output_size, self.source)

    def initialise_near(self, parameters: Parameters, slopes: Array, offsets: Array) -> Parameters:
        """As of the architecture inside: outputs in the set stay as they are."""
        return self.inner.initialise_near(parameters, slopes, offsets)

    def forward(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """(n, d), or (count, n, d) with inputs of each member's own -> (count, n, output_size)."""
        outputs = self.inner.forward(parameters, inputs)
        moved: Tensor = self._layer(outputs).move_into_set(outputs, clamp_inward)
        return moved
